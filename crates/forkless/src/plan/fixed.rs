//! Owned data that others point to while its owner moves.
#![expect(unsafe_code, reason = "ownership of a raw allocation")]

use std::ops::Deref;
use std::ptr::NonNull;

/// A box that may be moved while there are pointers into it. Moving a `Box` claims its contents as
/// unique, which ends every other pointer into them (Stacked Borrows, as Miri checks it); moving
/// this one claims nothing.
#[derive(Debug)]
pub(crate) struct Fixed<T: ?Sized>(NonNull<T>);

// SAFETY: it owns a `T` and hands out shared borrows of it alone.
unsafe impl<T: ?Sized + Send> Send for Fixed<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Fixed<T> {}

impl<T: ?Sized> From<Box<T>> for Fixed<T> {
    fn from(contents: Box<T>) -> Fixed<T> {
        Fixed(NonNull::from(Box::leak(contents)))
    }
}

impl<T: ?Sized> Fixed<T> {
    /// Where the contents are until the drop.
    pub(crate) fn as_ptr(&self) -> *const T {
        self.0.as_ptr()
    }
}

impl<T: ?Sized> Deref for Fixed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box's contents, which nothing changes and the drop alone frees.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and this is its end.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
