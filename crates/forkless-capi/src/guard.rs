//! The guard around every call from C: it catches panics, puts `errno` back, and keeps the thread
//! from being cancelled inside.
#![expect(unsafe_code, reason = "errno and cancellation belong to libc")]

use crate::error::Failure;
use crate::ffi::Text;
use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

unsafe extern "C" {
    /// pthread_setcancelstate(3).
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The same number in glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// While it lives, `pthread_cancel` has no effect here: libc would unwind through frames that do
/// not expect it, and leave children and descriptors behind. At its end `errno` is as it was.
pub(crate) struct Inside {
    cancel_state: c_int,
    errno: c_int,
}

impl Inside {
    pub(crate) fn enter() -> Inside {
        let errno = errno();
        let mut cancel_state = 0;
        // SAFETY: a valid state, and a place for the old one.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut cancel_state) };
        Inside { cancel_state, errno }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: the state this thread had; nobody wants the one before.
        unsafe { pthread_setcancelstate(self.cancel_state, std::ptr::null_mut()) };
        set_errno(self.errno);
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: always succeeds.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own word.
    unsafe { *at }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: always succeeds.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own word.
    unsafe { *at = value };
}

/// Runs `body`; a panic becomes a failure with `ENOTRECOVERABLE`.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let _inside = Inside::enter();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().copied();
        let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic");
        let what = format!("a defect in forkless, please report it: {what}");
        // A payload may panic when dropped.
        std::mem::forget(panic);
        Err(Failure::plain(libc::ENOTRECOVERABLE, &what))
    })
}

/// For calls that cannot fail: `otherwise` is returned after a panic.
pub(crate) fn quietly<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    guarded(|| Ok(body())).unwrap_or(otherwise)
}

/// For calls without a handle to keep the failure: negative error number.
pub(crate) fn number(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    guarded(body).unwrap_or_else(|f| -f.number)
}

/// For functions with libc's convention: -1 (or another value for failure), and `errno`.
pub(crate) fn as_libc<T>(failed: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    match guarded(body) {
        Ok(v) => v,
        Err(f) => {
            set_errno(f.number);
            failed
        }
    }
}

/// Whether there is memory for the start of a line, to be asked before anything is allocated: a
/// failed allocation ends the program, while libc's functions have `ENOMEM` for it.
pub(crate) fn memory_for(line: Text<'_>) -> bool {
    // The line is kept as text, as words and as vectors.
    let size = 96 * 1024 + 4 * line.get().map_or(0, |line| line.count_bytes());
    Vec::<u8>::new().try_reserve_exact(size).is_ok()
}

/// A handle that remembers why its last call failed.
pub(crate) trait Remembers {
    fn failure(&mut self) -> &mut Option<Failure>;
}

/// A call on a handle.
pub(crate) fn on<H: Remembers>(
    handle: Option<&mut H>,
    body: impl FnOnce(&mut H) -> Result<c_int, Failure>,
) -> c_int {
    let Some(handle) = handle else { return -libc::EINVAL };
    match guarded(|| {
        *handle.failure() = None;
        body(handle)
    }) {
        Ok(v) => v,
        Err(f) => {
            let number = f.number;
            *handle.failure() = Some(f);
            -number
        }
    }
}

/// Frees a handle.
pub(crate) fn free<H>(handle: Option<Box<H>>) {
    quietly((), || drop(handle));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_errno_stays() {
        set_errno(libc::EXDEV);
        assert_eq!(
            number(|| {
                set_errno(libc::EBADF);
                panic!("on purpose")
            }),
            -libc::ENOTRECOVERABLE
        );
        assert_eq!(errno(), libc::EXDEV);
        assert_eq!(as_libc(-1, || Err(Failure::plain(libc::ENOENT, ""))), -1);
        assert_eq!(errno(), libc::ENOENT);
    }
}
