//! Numbers of signals, and the sets of them that the library blocks.

use forkless_sys::Result;
use forkless_sys::signal::{self, SigSet};

use crate::next;

pub(crate) use forkless_sys::signal::{
    SIG_IGN, SIGBUS, SIGCHLD, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGSEGV, SIGSYS,
    SIGTERM, SIGTRAP, SIGTSTP, SIGTTOU, SIGXFSZ,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use forkless_sys::signal::{SIGALRM, SIGCONT, SIGPROF, SIGTTIN, SIGVTALRM, SIGXCPU};

/// Signals that the kernel forces on an instruction. A blocked one kills, so they are never blocked
/// while speculating.
pub(crate) const SYNCHRONOUS: SigSet =
    SigSet::EMPTY.with(SIGILL).with(SIGTRAP).with(SIGBUS).with(SIGFPE).with(SIGSEGV).with(SIGSYS);

/// Signals that a process's own timers and limits send it. Its replacement has the same.
#[cfg(target_arch = "x86_64")]
pub(crate) const OF_TIMERS: SigSet = SigSet::EMPTY.with(SIGALRM).with(SIGXCPU).with(SIGVTALRM).with(SIGPROF);

/// Signals that stop a process, unless SIGCONT comes before they are delivered.
#[cfg(target_arch = "x86_64")]
pub(crate) const STOPS: SigSet = SigSet::EMPTY.with(SIGTSTP).with(SIGTTIN).with(SIGTTOU);

/// The mask of a speculative child, and of our handlers.
pub(crate) const BLOCKED: SigSet = SigSet(!SYNCHRONOUS.0);

/// The signal by which libc cancels a thread: SIGCANCEL of glibc and of musl.
pub(crate) fn of_cancellation() -> i32 {
    if next::is_glibc() { 32 } else { 33 }
}

/// Acts, and is not cancelled meanwhile, whatever the thread's type of cancellation. Its own system
/// calls are no cancellation points.
pub(crate) fn uncancelled<T>(act: impl FnOnce() -> T) -> T {
    let before = signal::mask().unwrap_or_default();
    let _ = signal::set_mask(before.with(of_cancellation()));
    let answer = act();
    let _ = signal::set_mask(before);
    answer
}

/// Blocks all but the synchronous signals, and unblocks none. Returns the mask from before.
pub(crate) fn block_others() -> Result<SigSet> {
    let before = signal::mask()?;
    signal::set_mask(SigSet(before.0 | BLOCKED.0))?;
    Ok(before)
}
