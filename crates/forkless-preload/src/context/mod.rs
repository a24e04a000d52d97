//! `--context=fast`: `getcontext`, `setcontext`, `swapcontext` and `makecontext` without the two
//! system calls that a switch spends on the signal mask.
//!
//! That changes semantics, so it is off by default: contexts no longer carry signal masks of their
//! own, and a mask set in one stays when another runs. Everything else that a context holds in
//! glibc's layout is kept, `uc_link` included. Each architecture's file says which registers. With
//! a user shadow stack in force libc's own functions are called, which know how to switch it.
//!
//! All four are replaced together: a context made by libc's `makecontext` would end in libc's
//! `setcontext`, which would set a mask that was never saved. musl has none of them.
#![expect(unsafe_code, reason = "switching stacks")]

use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use forkless_run::Counter;

use crate::next::{jump_slot, of_libc};
use crate::tally;

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod arch;

/// 1: on.
static FAST: AtomicU8 = AtomicU8::new(0);
/// Switches. Racing threads may lose some, which a report can bear, and a lock on a switch of 13 ns
/// cannot.
static SWITCHES: AtomicU64 = AtomicU64::new(0);

pub(crate) fn configure(fast: bool) {
    FAST.store(u8::from(fast && arch::keeps_all()), Relaxed);
}

/// Adds what this process did to the record.
pub(crate) fn report() {
    // The count is in a page that no other program touches.
    if FAST.load(Relaxed) == 0 {
        return;
    }
    let n = SWITCHES.swap(0, Relaxed);
    if n != 0 {
        tally::add(Counter::Switches, n);
        tally::add(Counter::NanosSaved, n * SAVED);
    }
}

/// 225 ns a switch with the mask, 20 without (x86-64).
const SAVED: u64 = 200;

// A program that calls one of them could not have been linked without it.
jump_slot!(NEXT_GET = c"getcontext", else crate::rt::abort);
jump_slot!(NEXT_SET = c"setcontext", else crate::rt::abort);
jump_slot!(NEXT_SWAP = c"swapcontext", else crate::rt::abort);
jump_slot!(NEXT_MAKE = c"makecontext", else crate::rt::abort);

of_libc! {
    static EXIT: extern "C" fn(c_int) -> ! = c"exit", "exit(3)";
}

/// The end of a context without a successor.
extern "C" fn exit_process(status: c_int) -> ! {
    EXIT.get().map_or_else(|| crate::rt::abort(), |exit| exit(status))
}
