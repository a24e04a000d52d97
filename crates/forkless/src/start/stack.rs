//! Stacks for children.
#![expect(unsafe_code, reason = "a mapping that a child runs on")]

use forkless_sys::Result;
use forkless_sys::mm::{self, LARGEST_PAGE};
use std::ffi::c_void;

/// For a child that runs this library's code alone.
pub(crate) const SIZE: usize = 128 << 10;

/// For a child that runs a function of the caller's: as much as std gives a thread.
///
/// A panic's backtrace alone takes hundreds of kilobytes. A child that dies of a full stack in the
/// middle of it leaves locks of this process held for ever.
pub(super) const HOOK_SIZE: usize = 2 << 20;

/// A stack with a guard below. It must outlive its child's stay in this memory.
pub(crate) struct Stack {
    mapping: *mut c_void,
    size: usize,
}

const GUARD: usize = LARGEST_PAGE;

impl Stack {
    pub(crate) fn new(size: usize) -> Result<Stack> {
        let flags = mm::MAP_PRIVATE | mm::MAP_NORESERVE | mm::MAP_STACK;
        let stack = Stack { mapping: mm::map_anonymous(GUARD + size, mm::PROT_NONE, flags)?, size };
        // SAFETY: the mapping just made, which nobody uses yet; below it stays without access, as a
        // guard.
        unsafe { mm::mprotect(stack.place().0, size, mm::PROT_READ | mm::PROT_WRITE) }?;
        Ok(stack)
    }

    /// The lowest address, and the size in bytes.
    pub(crate) fn place(&self) -> (*mut c_void, usize) {
        (self.mapping.wrapping_byte_add(GUARD), self.size)
    }

    /// Leaves the stack out of the memory of processes forked from this one.
    pub(super) fn leave_out_of_forks(&self) {
        // SAFETY: a forked process has no child on the stack and does not know of it. Kernels that
        // refuse this copy two pages.
        let _ = unsafe { mm::madvise(self.mapping, GUARD + self.size, mm::MADV_DONTFORK) };
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: its child has left, and nobody else knows of it.
        let _ = unsafe { mm::munmap(self.mapping, GUARD + self.size) };
    }
}
