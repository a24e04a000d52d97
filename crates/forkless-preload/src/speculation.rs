//! Whether this process is a speculative child, and how the calls it makes are intercepted.
#![cfg_attr(target_arch = "aarch64", expect(dead_code, reason = "arm64 has no speculation"))]

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// How the calls of speculative children are intercepted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Interception {
    /// Interposed functions go to the policy themselves.
    Direct = 1,
    /// All system calls are judged where they arrive, in the signal handler: another library's
    /// functions, which may do more than libc's, are called in children as well.
    Trap = 2,
}

/// The [`Interception`] of a speculative child, from its first instruction to its exec or end. 0 in
/// other processes. The interposers read it.
pub(crate) static SPECULATING: AtomicU8 = AtomicU8::new(0);

/// The [`Interception`] of this program's children. 0: not chosen yet.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Something of the library is no longer as it was at the load. A shell forks for every command,
/// and each page written between two forks costs it, or its child, a fault.
static TOUCHED: AtomicBool = AtomicBool::new(false);

/// Whether this is a speculative child.
#[cfg(target_arch = "x86_64")]
pub(crate) fn speculating() -> bool {
    SPECULATING.load(Relaxed) != 0
}

/// Never on arm64.
#[cfg(target_arch = "aarch64")]
pub(crate) const fn speculating() -> bool {
    false
}

/// Whether this is a speculative child whose interposed functions go to the policy themselves.
pub(crate) fn is_direct() -> bool {
    SPECULATING.load(Relaxed) == Interception::Direct as u8
}

/// From here on this is a speculative child.
pub(crate) fn begin() {
    SPECULATING.store(CHOSEN.load(Relaxed), Relaxed);
}

/// Chooses for all children of this program, before its first speculation: looking takes some
/// microseconds.
pub(crate) fn choose(passes_others_over: impl FnOnce() -> bool) {
    if CHOSEN.load(Relaxed) == 0 {
        let chosen = if passes_others_over() { Interception::Trap } else { Interception::Direct };
        CHOSEN.store(chosen as u8, Relaxed);
    }
}

/// Whether functions that stand between program and libc would be passed over. `others_define`:
/// whether other libraries have any, where that was not asked for all.
#[cfg(target_arch = "x86_64")]
pub(crate) fn passes_others_over(others_define: impl FnOnce() -> bool) -> bool {
    CHOSEN.load(Relaxed) != Interception::Direct as u8 && others_define()
}

/// From here on no child passes over libc's functions.
pub(crate) fn trap_from_now_on() {
    CHOSEN.store(Interception::Trap as u8, Relaxed);
    if speculating() {
        SPECULATING.store(Interception::Trap as u8, Relaxed);
    }
}

/// Something of the library changes now.
pub(crate) fn touch() {
    if !is_touched() {
        TOUCHED.store(true, Relaxed);
    }
}

/// Whether something of the library has changed since the load.
pub(crate) fn is_touched() -> bool {
    TOUCHED.load(Relaxed)
}
