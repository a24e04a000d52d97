//! A system call by number with arguments as they came: for repeating what the program asked for.
//! Everything we ask for ourselves goes through the typed functions of `forkless-sys`.
#![expect(unsafe_code, reason = "passing on the program's own system calls")]

pub(crate) use forkless_speculate::policy::Args;
use forkless_sys::{Reg, raw};

/// Makes the call and returns the kernel's answer as it stands.
///
/// # Safety
/// The program itself must have been about to make this call with these arguments.
#[inline(always)]
pub(crate) unsafe fn pass(nr: u32, args: &Args) -> isize {
    // SAFETY: the caller's contract: the effects are those the program asked for.
    unsafe { raw::syscall(nr, args.map(Reg::from)) }
}
