//! libc's `errno`, as the interposed functions answer with it.
#![expect(unsafe_code, reason = "a variable of libc's")]

use core::ffi::c_int;

use forkless_sys::Errno;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// libc's convention for a failure: sets errno and returns -1.
pub(crate) fn fail(errno: Errno) -> c_int {
    set(errno.raw());
    -1
}

/// Where the calling thread's errno is.
pub(crate) fn location() -> *mut c_int {
    // SAFETY: libc's function, which only tells the address.
    unsafe { __errno_location() }
}

/// The calling thread's errno.
pub(crate) fn get() -> c_int {
    // SAFETY: the calling thread's errno.
    unsafe { *location() }
}

/// Puts back what [`get`] told.
pub(crate) fn set(number: c_int) {
    // SAFETY: the calling thread's errno.
    unsafe { *location() = number };
}

/// The kernel's answer by libc's convention.
#[cfg(target_arch = "x86_64")]
pub(crate) fn libc_answer(answer: isize) -> c_int {
    Errno::check(answer).map_or_else(fail, |value| value as c_int)
}

/// Stands for a function that this libc does not have. A program that calls it could not have been
/// linked.
pub(crate) extern "C" fn absent() -> c_int {
    fail(Errno::ENOSYS)
}
