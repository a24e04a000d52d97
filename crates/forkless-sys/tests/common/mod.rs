//! A check in a forked child, for calls that change the whole process or need it to have one
//! thread.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};

use forkless_sys::Errno;

/// Runs `check` in a child between fork and exec, and fails with the error that it returned.
#[track_caller]
pub(crate) fn in_child(check: impl Fn() -> Result<(), Errno> + Send + Sync + 'static) {
    assert_eq!(status_of(check), Ok(ExitStatus::default()));
}

/// How a child ends that runs `check`, then `true`.
pub(crate) fn status_of(
    check: impl Fn() -> Result<(), Errno> + Send + Sync + 'static,
) -> Result<ExitStatus, Errno> {
    let mut child = Command::new("true");
    let hook = move || check().map_err(|e| std::io::Error::from_raw_os_error(e.raw()));
    // SAFETY: the checks call the kernel only.
    unsafe { child.pre_exec(hook) };
    child.status().map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))
}

/// An assertion for the child, where a panic could hang.
pub(crate) fn must(holds: bool) -> Result<(), Errno> {
    if holds { Ok(()) } else { Err(Errno::EIO) }
}
