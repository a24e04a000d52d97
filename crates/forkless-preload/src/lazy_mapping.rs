//! Tables that few programs need, made usable when a program needs them. As writable memory of the
//! library's file they would be one more mapping in every program of a tree, which takes the loader
//! and the kernel 5 us to make and to take down, and one more in every child.
#![expect(unsafe_code, reason = "makes memory a value")]

use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use crate::reserve::Area;
use crate::rt;

/// A static of a process and of those forked from it. It is there once [`LazyMapping::map`] has
/// said so.
pub(crate) struct LazyMapping<T> {
    area: Area,
    usable: AtomicBool,
    of: PhantomData<T>,
}

impl<T> LazyMapping<T> {
    /// # Safety
    /// All bytes zero are a value of the type. Nothing else lies in the area.
    pub(crate) const unsafe fn new(area: Area) -> LazyMapping<T> {
        assert!(size_of::<T>() <= area.len(), "an area of its size");
        LazyMapping { area, usable: AtomicBool::new(false), of: PhantomData }
    }

    /// Makes it usable. Returns whether it is. Ordinary code, in any thread.
    pub(crate) fn map(&self) -> bool {
        if self.get().is_none() && self.area.open().is_ok() {
            self.usable.store(true, Release);
        }
        self.get().is_some()
    }

    /// `None`: it was not mapped.
    pub(crate) fn get(&self) -> Option<&T> {
        if !self.usable.load(Acquire) {
            return None;
        }
        // SAFETY: zeros of the file, which are a value by the contract of `new`, and never
        // unmapped.
        Some(unsafe { &*(self.area.address() as *const T) })
    }
}

impl<T> Deref for LazyMapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.get().unwrap_or_else(|| rt::abort())
    }
}
