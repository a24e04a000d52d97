//! Tables that few programs need, mapped by those that do. In the library's own memory they would be one mapping more in every program of a
//! tree, which takes the loader and the kernel 5 us to make and to take down, and in every child.
#![expect(unsafe_code, reason = "makes memory a value")]

use core::ops::Deref;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::mm;

use crate::mappings::unmap_own;
use crate::rt;

const PAGE: usize = 4096;

/// A static of a process and of those forked from it. Until [`Late::map`] has said that it is there, it must not be looked at.
pub(crate) struct Late<T>(AtomicPtr<T>);

impl<T> Late<T> {
    /// Rounded up to pages.
    const LEN: usize = size_of::<T>().next_multiple_of(PAGE);

    /// # Safety
    /// All bytes zero are a value of the type.
    pub(crate) const unsafe fn new() -> Late<T> {
        Late(AtomicPtr::new(null_mut()))
    }

    /// Maps it, if it is not there yet; whether it is. Between two pages that nobody can touch, so that it never becomes one mapping with memory of
    /// the program's. Ordinary code, in any thread.
    pub(crate) fn map(&self) -> bool {
        if self.get().is_some() {
            return true;
        }
        let len = Self::LEN + 2 * PAGE;
        let Ok(at) = mm::map_anonymous(len, mm::PROT_NONE, mm::MAP_PRIVATE) else { return false };
        let table = at.wrapping_byte_add(PAGE);
        // SAFETY: fresh memory, nobody else's.
        let usable = unsafe { mm::mprotect(table, Self::LEN, mm::PROT_READ | mm::PROT_WRITE) };
        let ours =
            usable.is_ok() && self.0.compare_exchange(null_mut(), table.cast(), Release, Relaxed).is_ok();
        if !ours {
            unmap_own(at, len);
        }
        self.get().is_some()
    }

    /// `None`: it was not mapped.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: zeroed by the kernel, which is a value by the contract of `new`, and never unmapped.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Whether an address is the first of it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn starts_at(&self, address: usize) -> bool {
        self.0.load(Relaxed) as usize == address
    }
}

impl<T> Deref for Late<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.get().unwrap_or_else(|| rt::abort())
    }
}
