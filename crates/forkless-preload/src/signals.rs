//! Signals that are never blocked while something of the program's is in our hands.

use forkless_sys::signal::SigSet;

pub(crate) const SIGILL: i32 = 4;
pub(crate) const SIGTRAP: i32 = 5;
pub(crate) const SIGBUS: i32 = 7;
pub(crate) const SIGFPE: i32 = 8;
pub(crate) const SIGSEGV: i32 = 11;
pub(crate) const SIGSYS: i32 = 31;

/// Signals the kernel forces on an instruction. Blocked, they kill; so they never are while speculating.
pub(crate) const SYNCHRONOUS: SigSet =
    SigSet::EMPTY.with(SIGILL).with(SIGTRAP).with(SIGBUS).with(SIGFPE).with(SIGSEGV).with(SIGSYS);

/// The mask from arming to the end of a speculation, and while memory is replaced.
pub(crate) const BLOCKED: SigSet = SigSet(!SYNCHRONOUS.0);
