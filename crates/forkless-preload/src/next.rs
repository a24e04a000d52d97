//! The next definition of an interposed function, found once with `dlsym(RTLD_NEXT)`: other preloaded libraries and the
//! sanitizers' runtimes keep their place in the chain.
#![expect(unsafe_code, reason = "calling functions found by name")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

unsafe extern "C" {
    /// Of libc (or libdl before glibc 2.34).
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `RTLD_NEXT`: after the library the call comes from, which is why `dlsym` may be called only from here.
const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
const RTLD_DEFAULT: *mut c_void = null_mut();

/// A function looked up at first use.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// Not looked up yet.
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address; null where there is none.
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = lookup(self.name);
        self.address.store(found, Relaxed);
        found
    }
}

/// The definition after ours.
pub(crate) fn lookup(name: &CStr) -> *mut c_void {
    // SAFETY: a NUL-terminated name; dlsym is called from ordinary code only, never from a handler.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }
}

/// The definition the program itself would use.
pub(crate) fn lookup_default(name: &CStr) -> *mut c_void {
    // SAFETY: as above.
    unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) }
}
