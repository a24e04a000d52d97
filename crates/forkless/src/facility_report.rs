//! Trying, for `doctor`, what has no harmless probe of its own.
#![expect(unsafe_code, reason = "a descriptor from fcntl becomes ownership")]

use crate::command::builder::Command;
use crate::kernel::facilities;
use crate::reap::handle as reap;
use crate::spec::stdio;
use forkless_sys::process;
use std::os::fd::{AsRawFd, OwnedFd};

/// Tries what has no harmless probe by starting a program that does not exist.
pub(crate) fn try_untried() {
    use std::os::fd::FromRawFd;
    let all = facilities::get();
    // SAFETY: F_DUPFD_CLOEXEC gives a new descriptor, or -1.
    let high = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 200) };
    if high >= 0 {
        // SAFETY: just made, owned by nobody else.
        let high = unsafe { OwnedFd::from_raw_fd(high) };
        let _ = Command::new("").stdin(high).spawn();
    }
    if let Ok(fd) = process::pidfd_open(process::getpid()) {
        let fd = stdio::owned(fd);
        reap::probe(&fd);
        match process::pidfd_exit_status(fd.as_raw_fd()) {
            Ok(_) => all.pidfd_info.confirm(),
            Err(e) => all.pidfd_info.refuse(e),
        }
    }
    if let Some(dir) = own_cgroup() {
        let _ = Command::new("").cgroup(dir).spawn();
    }
}

/// The directory of this process's own cgroup in the unified hierarchy, where there is one.
fn own_cgroup() -> Option<std::path::PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .iter()
        .map(std::path::Path::new)
        .find(|root| root.join("cgroup.controllers").exists())
        .map(|root| root.join(path))
}
