//! What the loader and libc are asked for by name.
#![expect(unsafe_code, reason = "functions and variables of the loader's and of libc's")]

use core::ffi::{CStr, c_char, c_void};

unsafe extern "C" {
    /// Of libc (or libdl before glibc 2.34).
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    static environ: *mut *mut c_char;
}

/// `RTLD_NEXT`: after the library the call comes from, which is why `dlsym` may be called only from
/// here.
const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;

/// The definition after ours. Takes the loader's lock: from ordinary code only, never from a
/// handler.
pub(crate) fn next_definition(name: &CStr) -> *mut c_void {
    // SAFETY: a NUL-terminated name.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }
}

/// The environment, as the program may have changed it: libc's own variable, bound by the loader. A
/// search by name at every start would cost 2 us.
pub(crate) fn environment() -> *mut *mut c_char {
    // SAFETY: a pointer, read as every reader of the environment does.
    unsafe { environ }
}

/// An entry of the auxiliary vector, as `getauxval(3)` gives it: 0 if there is none. `None`: this
/// libc cannot tell.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::unnecessary_wraps, reason = "as on arm64")]
pub(crate) fn auxiliary(kind: usize) -> Option<usize> {
    unsafe extern "C" {
        fn getauxval(kind: usize) -> usize;
    }
    // SAFETY: takes no lock and no memory.
    Some(unsafe { getauxval(kind) })
}

/// As on x86-64. Found by name, for ours of that name is for the compiler.
#[cfg(target_arch = "aarch64")]
pub(crate) fn auxiliary(kind: usize) -> Option<usize> {
    let found = next_definition(c"getauxval");
    // SAFETY: null, or the function of this name and type.
    let getauxval =
        unsafe { core::mem::transmute::<*mut c_void, Option<extern "C" fn(usize) -> usize>>(found) };
    Some(getauxval?(kind))
}
