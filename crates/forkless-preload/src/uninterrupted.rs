//! Changes of the library's state without a signal handler in between.

use forkless_speculate::retry::retry;
use forkless_sys::signal::{self, SigSet};

/// Runs `f` with all signals blocked. A handler that interrupts a change of the library's state may
/// leave it by a jump, and the change would stay half made.
pub(crate) fn uninterrupted<T>(f: impl FnOnce() -> T) -> T {
    let before = signal::set_mask(SigSet::ALL);
    let result = f();
    if let Ok(before) = before {
        let _ = retry(|| signal::set_mask(before));
    }
    result
}
