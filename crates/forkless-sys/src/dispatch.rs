//! Syscall User Dispatch (Linux 5.11, x86-64): a thread's system calls made outside one range of
//! code arrive as `SIGSYS`.
//!
//! See `Documentation/admin-guide/syscall-user-dispatch.rst` and
//! `kernel/entry/syscall_user_dispatch.c`. The setting is per thread, is not inherited by clone,
//! and is dropped at exec.
#![expect(unsafe_code, reason = "changes what every later system call of the thread does")]

use crate::Result;
use crate::calls::{self, Op, Word};
use linux_raw_sys::prctl as p;

/// `si_code` of a `SIGSYS` sent by dispatch (`SYS_USER_DISPATCH`, `asm-generic/siginfo.h`).
pub const SYS_USER_DISPATCH: i32 = 2;

/// Dispatches the calling thread's system calls, except those whose instruction lies in
/// `allowed_start..allowed_start + len`. There is no selector byte: the range alone decides.
///
/// # Safety
/// A `SIGSYS` handler that returns through an `rt_sigreturn` inside the range must be installed,
/// and `SIGSYS` must stay unblocked: a dispatched call kills the process otherwise.
#[inline]
pub unsafe fn on(allowed_start: usize, len: usize) -> Result<()> {
    // SAFETY: the kernel writes no memory; the caller has installed the handler.
    unsafe {
        calls::prctl(
            Op(p::PR_SET_SYSCALL_USER_DISPATCH),
            Word(p::PR_SYS_DISPATCH_EXCLUSIVE_ON as usize),
            Word(allowed_start),
            Word(len),
            Word(0),
        )
    }
    .map(drop)
}

/// Turns dispatch off for the calling thread. `EINVAL`: the kernel does not have it.
#[inline]
pub fn off() -> Result<()> {
    // SAFETY: the kernel writes no memory, and every later call goes to it as usual.
    unsafe {
        calls::prctl(
            Op(p::PR_SET_SYSCALL_USER_DISPATCH),
            Word(p::PR_SYS_DISPATCH_OFF as usize),
            Word(0),
            Word(0),
            Word(0),
        )
    }
    .map(drop)
}
