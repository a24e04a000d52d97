//! Asking the kernel again, and without a signal handler in between.

use forkless_sys::signal::{self, SigSet};

/// Runs `f` with all signals blocked. A handler that interrupts a change of the library's state may leave it by a jump, and the change
/// would stay half made.
pub(crate) fn uninterrupted<T>(f: impl FnOnce() -> T) -> T {
    let before = signal::set_mask(SigSet::ALL);
    let result = f();
    if let Ok(before) = before {
        let _ = insist(|| signal::set_mask(before));
    }
    result
}

/// What takes something back: one refusal (memory short for a moment, a signal) must not leave the program with our handler, our
/// signal stack, or memory that its children will lack.
pub(crate) fn insist<T>(mut call: impl FnMut() -> forkless_sys::Result<T>) -> forkless_sys::Result<T> {
    const TRIES: u32 = 16;
    let mut result = call();
    for _ in 1..TRIES {
        if result.is_ok() {
            break;
        }
        result = call();
    }
    result
}
