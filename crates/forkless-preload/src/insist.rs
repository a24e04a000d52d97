//! Asking the kernel again.

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
