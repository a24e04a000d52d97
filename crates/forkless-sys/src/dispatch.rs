//! Syscall User Dispatch (Linux 5.11, x86-64): a thread's system calls made outside one range of code arrive as `SIGSYS`.
//!
//! See `Documentation/admin-guide/syscall-user-dispatch.rst` and `kernel/entry/syscall_user_dispatch.c`. The setting is per
//! thread, is not inherited by clone, and is dropped at exec.
#![expect(unsafe_code, reason = "changes what every later system call of the thread does")]

use crate::Result;
use linux_raw_sys::prctl as p;

/// `si_code` of a `SIGSYS` sent by dispatch (`SYS_USER_DISPATCH`, `asm-generic/siginfo.h`).
pub const SYS_USER_DISPATCH: i32 = 2;

/// Dispatches the calling thread's system calls, except those whose instruction lies in `allowed_start..allowed_start + len`.
/// There is no selector byte: the range alone decides.
///
/// # Safety
/// A `SIGSYS` handler that returns through an `rt_sigreturn` inside the range must be installed, and `SIGSYS` must stay unblocked:
/// a dispatched call kills the process otherwise.
///
/// ```
/// # use forkless_sys::{dispatch, sched};
/// # use std::io::Error;
/// # use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
/// let mut child = std::process::Command::new("true");
/// // SAFETY: async-signal-safe; its next system call, the exec, is meant to kill the child.
/// unsafe {
///     child.pre_exec(|| {
/// #       // A death by SIGSYS dumps core.
/// #       let _ = sched::setrlimit(4, sched::Rlimit { soft: 0, hard: 0 });
///         dispatch::on(1, 1).map_err(|e| Error::from_raw_os_error(e.raw()))
///     })
/// };
/// match child.status() {
///     Ok(status) => assert_eq!(status.signal(), Some(31)), // SIGSYS
///     Err(e) => assert_eq!(e.raw_os_error(), Some(22)),    // EINVAL: not on this kernel
/// }
/// ```
pub unsafe fn on(allowed_start: usize, len: usize) -> Result<()> {
    // SAFETY: the kernel writes no memory; the caller answers for what follows.
    unsafe {
        call!(
            __NR_prctl,
            p::PR_SET_SYSCALL_USER_DISPATCH,
            p::PR_SYS_DISPATCH_EXCLUSIVE_ON,
            allowed_start,
            len,
            0usize
        )
    }
    .map(drop)
}

/// Turns dispatch off for the calling thread. Fails with `EINVAL` where the kernel does not have it.
///
/// ```
/// # use forkless_sys::{Errno, dispatch};
/// match dispatch::off() {
///     Ok(()) => {} // it is off, whether it was on or not
///     Err(e) => assert_eq!(e, Errno::EINVAL),
/// }
/// ```
pub fn off() -> Result<()> {
    // SAFETY: the kernel writes no memory, and every later call goes to it as usual.
    unsafe {
        call!(__NR_prctl, p::PR_SET_SYSCALL_USER_DISPATCH, p::PR_SYS_DISPATCH_OFF, 0usize, 0usize, 0usize)
    }
    .map(drop)
}
