//! One module a subcommand: its flags (`Args`) and its `run`, which returns an
//! [`Exit`](crate::exit::Exit).

#[cfg(target_os = "linux")]
use crate::exit::Missing;

pub(crate) mod bench;
pub(crate) mod compare;
#[cfg(target_os = "linux")]
pub(crate) mod diagnose;
#[cfg(target_os = "linux")]
pub(crate) mod doctor;
pub(crate) mod generate;
#[cfg(target_os = "linux")]
pub(crate) mod repair;
#[cfg(target_os = "linux")]
pub(crate) mod report;
#[cfg(target_os = "linux")]
pub(crate) mod reproduce;
#[cfg(target_os = "linux")]
pub(crate) mod run;
#[cfg(target_os = "linux")]
pub(crate) mod sh;
#[cfg(target_os = "linux")]
pub(crate) mod trial;

/// Fails where /proc is not mounted, as in a bare `chroot`, or does not know this process. Without
/// this check the missing files would look like a process that has ended, or like a refused
/// permission.
#[cfg(target_os = "linux")]
pub(crate) fn need_proc() -> anyhow::Result<()> {
    match std::fs::symlink_metadata("/proc/self/exe") {
        Ok(_) => Ok(()),
        // A link that leads nowhere: this process has no number in that namespace.
        Err(_) if std::fs::symlink_metadata("/proc/self").is_ok() => {
            Err(Missing(forkless_diagnose::WatchError::ForeignProc.to_string()).into())
        }
        Err(error) => {
            let remedy = "mount it (as root: mount -t proc proc /proc)";
            Err(Missing(format!("/proc is needed, and is not to be seen here ({error}): {remedy}")).into())
        }
    }
}
