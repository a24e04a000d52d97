//! The facilities that the kernel lets the library use, as `forkless doctor` shows them.
//!
//! Facilities that have no harmless probe of their own are tried here by starts.
#![expect(unsafe_code, reason = "a descriptor from fcntl becomes ownership")]

use crate::command::Command;
use crate::kernel::descriptor::owned;
use crate::kernel::facilities::{self, Facility, Switch};
use crate::kernel::namespace::children_leave;
use crate::reap::by_pidfd;
use forkless_sys::process;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// One facility as `forkless doctor` shows it.
///
/// ```
/// let clone3 = forkless::facilities().into_iter().find(|f| f.name == "clone3").unwrap();
/// assert_eq!(clone3.fallback, "clone(2) with the same flags");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FacilityReport {
    /// The kernel's name for it.
    pub name: &'static str,
    /// Whether it works here.
    pub state: Facility,
    /// What it is used for.
    pub used_for: &'static str,
    /// What is done without it.
    pub fallback: &'static str,
}

/// The facilities of this kernel, for people. Facilities that can be tried without side effects are
/// tried now, those that worked again: a filter may have come. A child that this takes is no child
/// of the program's: no handler for SIGCHLD and no wait for any child is told of it.
///
/// ```
/// for f in forkless::facilities() {
///     println!("{}: {} (else: {})", f.name, f.state, f.fallback);
/// }
/// ```
pub fn facilities() -> Vec<FacilityReport> {
    try_them(true);
    report()
}

/// The same, without a trial of what has been tried; for the C library, whose callers ask for one
/// after the other.
#[doc(hidden)]
pub fn tried_facilities() -> Vec<FacilityReport> {
    try_them(false);
    report()
}

fn report() -> Vec<FacilityReport> {
    let found = facilities::get();
    let row = |name, switch: &Switch, used_for, fallback| FacilityReport {
        name,
        state: switch.state(),
        used_for,
        fallback,
    };
    vec![
        row("clone3", &found.clone3, "creating the child in one call", "clone(2) with the same flags"),
        row(
            "CLONE_VM",
            &found.shared_memory,
            "a child that shares memory: nothing is copied, whatever its size",
            "the emulator's copy; report and exec are learnt of through shared memory and a pipe",
        ),
        row(
            "CLONE_CLEAR_SIGHAND",
            &found.clear_sighand,
            "no handler survives into the child",
            "the child resets each handler itself",
        ),
        row(
            "CLONE_PIDFD",
            &found.pidfd,
            "a handle on the child that no other process can inherit by pid reuse",
            "pidfd_open right after the clone, else the pid and a timer on the child's clock",
        ),
        row(
            "waitid P_PIDFD",
            &found.wait_pidfd,
            "waiting for the child and no other",
            "waitid by pid, else wait4",
        ),
        row(
            "pidfd_send_signal",
            &found.signal_pidfd,
            "signalling the child and no other",
            "kill, after a look whether it is still our child",
        ),
        row(
            "CLONE_INTO_CGROUP",
            &found.into_cgroup,
            "being born in a cgroup",
            "the child writes itself into cgroup.procs",
        ),
        row(
            "close_range",
            &found.close_range,
            "closing what the child is not given",
            "one close for each number",
        ),
        row(
            "CLOSE_RANGE_UNSHARE",
            &found.unshare_range,
            "a cost that does not grow with open descriptors",
            "the clone copies the table",
        ),
        row(
            "CLOSE_RANGE_CLOEXEC",
            &found.close_range_cloexec,
            "exec in place without losing descriptors if it fails",
            "one fcntl for each number",
        ),
        row(
            "pidfd_getfd",
            &found.pidfd_getfd,
            "bringing high-numbered descriptors along without the copy",
            "the clone copies the table",
        ),
        row(
            "PIDFD_GET_INFO",
            &found.pidfd_info,
            "the status of a child that somebody else reaped",
            "WaitError::Unknown",
        ),
    ]
}

/// Tries the facilities that have no harmless probe, by starting a program that does not exist.
fn try_them(again: bool) {
    let found = facilities::get();
    // Neither a child that copies memory nor the init of a new PID namespace is for a trial.
    let may_start = found.share_memory() && !children_leave();
    let by_start = [&found.clear_sighand, &found.unshare_range, &found.pidfd_getfd];
    if may_start && (again || by_start.iter().any(|switch| switch.is_untried())) {
        // SAFETY: F_DUPFD_CLOEXEC gives a new descriptor, or -1.
        let high = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 200) };
        if high >= 0 {
            // SAFETY: just made, owned by nobody else.
            let high = unsafe { OwnedFd::from_raw_fd(high) };
            start_trial(Command::new("").stdin(high));
        }
    }
    if let Ok(fd) = process::pidfd_open(process::getpid()) {
        let fd = owned(fd);
        by_pidfd::probe(&fd);
        match process::pidfd_exit_status(fd.as_raw_fd()) {
            Ok(_) => found.pidfd_info.confirm(),
            Err(e) => found.pidfd_info.refuse(e),
        }
    }
    if may_start && found.into_cgroup.is_untried() {
        if let Some(dir) = own_cgroup() {
            start_trial(Command::new("").cgroup(dir));
        }
    }
}

fn start_trial(command: &mut Command) {
    command.spec.is_trial = true;
    let _ = command.spawn();
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
