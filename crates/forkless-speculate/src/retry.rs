//! Making a refused call again.

use forkless_sys::Result;

/// Makes a call that takes something back, and makes it again where it is refused. A single refusal
/// (memory short for a moment, a signal) must have no lasting effect: a handler or a signal stack
/// of the library's that stays with the program, or memory that the program's children lack.
pub fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
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

#[cfg(test)]
mod tests {
    use forkless_sys::Errno;

    use super::*;

    #[test]
    fn a_refusal_is_asked_again_and_not_for_ever() {
        let mut left = 3;
        let third = retry(|| {
            left -= 1;
            if left == 0 { Ok(7) } else { Err(Errno::ENOMEM) }
        });
        assert_eq!(third, Ok(7));
        let mut calls = 0;
        let never = retry(|| {
            calls += 1;
            Err::<(), _>(Errno::EPERM)
        });
        assert_eq!((never, calls), (Err(Errno::EPERM), 16));
    }
}
