//! Arguments as C passes them; the type of each carries the header's promise about it.
//!
//! Each is one machine word with NULL as the empty case. Rust makes them from its values by safe
//! conversions, C under the header's rules. So a conversion to a reference is safe; it happens only
//! here.
#![expect(unsafe_code, reason = "pointers from C become references under the header's promises")]

use crate::error::Failure;
use libc::{c_char, c_int};
use std::ffi::{CStr, OsStr};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

/// A NUL-terminated string that stays as it is during the call, or NULL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(Option<NonNull<c_char>>, PhantomData<&'a CStr>);

impl<'a> From<&'a CStr> for Text<'a> {
    fn from(s: &'a CStr) -> Text<'a> {
        Text(NonNull::new(s.as_ptr().cast_mut()), PhantomData)
    }
}

impl<'a> Text<'a> {
    /// The NULL pointer.
    pub const NULL: Text<'static> = Text(None, PhantomData);

    /// The string, unless NULL.
    pub fn get(self) -> Option<&'a CStr> {
        // SAFETY: made from a `CStr`, or by C under the header's rule for strings.
        self.0.map(|p| unsafe { CStr::from_ptr(p.as_ptr()) })
    }

    pub(crate) fn need(self, what: &'static str) -> Result<&'a OsStr, Failure> {
        match self.get() {
            Some(s) => Ok(OsStr::from_bytes(s.to_bytes())),
            None => Err(Failure::null(what)),
        }
    }
}

/// The first of as many elements as another argument says, or NULL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Array<'a, T>(Option<NonNull<T>>, PhantomData<&'a [T]>);

impl<'a, T> From<&'a [T]> for Array<'a, T> {
    fn from(s: &'a [T]) -> Array<'a, T> {
        Array(Some(NonNull::from(s).cast()), PhantomData)
    }
}

impl<'a, T> Array<'a, T> {
    /// The elements; NULL only where there are none.
    ///
    /// # Safety
    /// `n` must be the number of elements the array was made for.
    pub(crate) unsafe fn need(self, n: usize, what: &'static str) -> Result<&'a [T], Failure> {
        match self.0 {
            // SAFETY: the caller's contract.
            Some(p) => Ok(unsafe { std::slice::from_raw_parts(p.as_ptr(), n) }),
            None if n == 0 => Ok(&[]),
            None => Err(Failure::null(what)),
        }
    }
}

/// A vector of strings that ends with a NULL, or NULL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a>(Option<NonNull<Text<'a>>>);

impl<'a> Vector<'a> {
    /// The vector in `of`, whose last element is the NULL; `None` where it is not.
    pub fn new(of: &'a [Text<'a>]) -> Option<Vector<'a>> {
        of.last()?.0.is_none().then(|| Vector(Some(NonNull::from(of).cast())))
    }

    pub(crate) fn need(
        self,
        what: &'static str,
    ) -> Result<impl Iterator<Item = &'a CStr> + Clone + use<'a>, Failure> {
        let mut at = self.0.ok_or_else(|| Failure::null(what))?;
        Ok(std::iter::from_fn(move || {
            // SAFETY: not past the terminating NULL: it is not advanced when that is met.
            let s = unsafe { *at.as_ptr() }.get()?;
            // SAFETY: the element was not the last one.
            at = unsafe { at.add(1) };
            Some(s)
        }))
    }

    pub(crate) fn as_ptr(self) -> *const *const c_char {
        self.0.map_or(std::ptr::null(), |p| p.as_ptr().cast_const().cast())
    }
}

/// Where a result goes, or NULL.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<'a, T>(Option<&'a mut MaybeUninit<T>>);

impl<'a, T> From<&'a mut MaybeUninit<T>> for Out<'a, T> {
    fn from(place: &'a mut MaybeUninit<T>) -> Out<'a, T> {
        Out(Some(place))
    }
}

impl<T: 'static> Out<'_, T> {
    /// NULL: the result is not wanted.
    pub const UNWANTED: Out<'static, T> = Out(None);

    /// Stores the result, if it is wanted.
    pub(crate) fn set(self, value: T) {
        if let Some(place) = self.0 {
            place.write(value);
        }
    }

    /// For results without which the call makes no sense.
    pub(crate) fn required(self, what: &'static str) -> Result<Self, Failure> {
        if self.0.is_some() { Ok(self) } else { Err(Failure::null(what)) }
    }
}

/// A pointer of the caller's that is only handed back to it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Data(pub *mut libc::c_void);

// SAFETY: never dereferenced here; the header says from which threads the caller's functions are
// called with it.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

/// libc's set as the library's: bit n - 1 stands for signal n.
pub(crate) fn sigset(set: Option<&libc::sigset_t>) -> Result<forkless::SigSet, Failure> {
    let set = set.ok_or_else(|| Failure::null("signal set"))?;
    let mut bits = 0;
    for signal in 1..=64 {
        // SAFETY: reads a set that the caller initialised. -1, for a number libc keeps to itself,
        // counts as absent.
        if unsafe { libc::sigismember(set, signal as c_int) } == 1 {
            bits |= 1u64 << (signal - 1);
        }
    }
    Ok(forkless::SigSet(bits))
}
