//! The word that a register carries into the kernel, and a string known by its address alone.
#![expect(unsafe_code, reason = "CPtr::from_raw, whose contract its callers state")]

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;

/// One argument register.
///
/// [`crate::calls`] makes it from a typed argument. `From<usize>` is for a program's own call,
/// passed on as it came; nothing else converts:
///
/// ```compile_fail,E0277
/// let _ = forkless_sys::Reg::from(3i32);
/// ```
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Reg(pub(crate) usize);

impl Reg {
    /// An unused argument. The kernel ignores it; zero keeps traces readable.
    pub const ZERO: Reg = Reg(0);
}

impl From<usize> for Reg {
    #[inline(always)]
    fn from(word: usize) -> Reg {
        Reg(word)
    }
}

/// A NUL-terminated string by its address alone: a `&CStr` without the length, which takes a scan.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CPtr<'a> {
    ptr: *const c_char,
    of: PhantomData<&'a CStr>,
}

// SAFETY: a shared reference to immutable bytes, as `&CStr` is.
unsafe impl Send for CPtr<'_> {}
// SAFETY: as above.
unsafe impl Sync for CPtr<'_> {}

impl<'a> CPtr<'a> {
    /// # Safety
    /// `ptr` must point to a NUL-terminated string that does not change during `'a`.
    #[inline(always)]
    pub const unsafe fn from_raw(ptr: *const c_char) -> CPtr<'a> {
        CPtr { ptr, of: PhantomData }
    }

    /// The address, for argument vectors.
    #[inline(always)]
    pub const fn as_ptr(self) -> *const c_char {
        self.ptr
    }

    /// The string with its length, which a scan finds.
    #[inline]
    pub fn to_c_str(self) -> &'a CStr {
        // SAFETY: the type's invariant is that of `CStr::from_ptr`.
        unsafe { CStr::from_ptr(self.ptr) }
    }
}

impl<'a> From<&'a CStr> for CPtr<'a> {
    #[inline(always)]
    fn from(s: &'a CStr) -> CPtr<'a> {
        CPtr { ptr: s.as_ptr(), of: PhantomData }
    }
}
