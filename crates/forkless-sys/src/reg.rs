//! A register typed by what it carries, so that a misrouted argument does not compile.
#![expect(unsafe_code, reason = "CPtr::from_raw, whose contract its callers state")]

use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;

/// One argument register. Made only by `From` from the types a system call may be given.
///
/// ```
/// use forkless_sys::{Errno, Reg, raw};
/// let args = [Reg::from(-1), Reg::ZERO, Reg::ZERO, Reg::ZERO, Reg::ZERO, Reg::ZERO];
/// // SAFETY: closing a descriptor that does not exist changes nothing.
/// let answer = unsafe { raw::syscall(linux_raw_sys::general::__NR_close, args) };
/// assert_eq!(Errno::check(answer), Err(Errno::EBADF));
/// ```
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Reg(pub(crate) usize);

impl Reg {
    /// An unused argument. The kernel ignores it; zero keeps traces readable.
    pub const ZERO: Reg = Reg(0);
}

macro_rules! reg_from {
    ($($t:ty),*) => {$(
        impl From<$t> for Reg {
            #[inline(always)]
            fn from(v: $t) -> Reg {
                // Sign-extended, as the kernel's own prototypes expect of int arguments.
                Reg(v as isize as usize)
            }
        }
    )*};
}
reg_from!(i32, u32, usize, isize, u64);

impl<T> From<*const T> for Reg {
    #[inline(always)]
    fn from(v: *const T) -> Reg {
        Reg(v.cast::<c_void>() as usize)
    }
}

impl<T> From<*mut T> for Reg {
    #[inline(always)]
    fn from(v: *mut T) -> Reg {
        Reg(v.cast::<c_void>() as usize)
    }
}

impl From<CPtr<'_>> for Reg {
    #[inline(always)]
    fn from(v: CPtr<'_>) -> Reg {
        Reg::from(v.ptr)
    }
}

/// A NUL-terminated string by its address alone: what `&CStr` would be, without the length that needs a scan to learn.
///
/// ```
/// use forkless_sys::CPtr;
/// let p = CPtr::from(c"/tmp");
/// assert_eq!(p.to_c_str(), c"/tmp");
/// ```
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
    /// `ptr` must point to a NUL-terminated string that nobody changes during `'a`.
    ///
    /// ```
    /// use forkless_sys::CPtr;
    /// let name = c"/tmp";
    /// // SAFETY: terminated, and never changed.
    /// let path = unsafe { CPtr::from_raw(name.as_ptr()) };
    /// assert_eq!(path.to_c_str(), name);
    /// ```
    #[inline(always)]
    pub const unsafe fn from_raw(ptr: *const c_char) -> CPtr<'a> {
        CPtr { ptr, of: PhantomData }
    }

    /// The address, for argument vectors.
    ///
    /// ```
    /// use forkless_sys::CPtr;
    /// let argv = [CPtr::from(c"true").as_ptr(), core::ptr::null()];
    /// assert_eq!(argv[0], c"true".as_ptr());
    /// ```
    #[inline(always)]
    pub const fn as_ptr(self) -> *const c_char {
        self.ptr
    }

    /// The string with its length, found by a scan.
    ///
    /// ```
    /// use forkless_sys::CPtr;
    /// assert_eq!(CPtr::from(c"/tmp").to_c_str().count_bytes(), 4);
    /// ```
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
