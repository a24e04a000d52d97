//! libc's `errno`, as the interposed functions answer with it.
#![expect(unsafe_code, reason = "a variable of libc's")]

use core::ffi::c_int;

use forkless_sys::Errno;

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// libc's convention for a failure: sets errno and returns -1.
pub(crate) fn fail(errno: Errno) -> c_int {
    // SAFETY: the calling thread's errno.
    let at = unsafe { __errno_location() };
    // SAFETY: as above.
    unsafe { *at = errno.raw() };
    -1
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
