//! The stack of a child that runs a function of the caller's.
#![expect(unsafe_code, reason = "a mapping that a child runs on")]

use forkless_sys::mm;
use std::ffi::c_void;

/// As much as std gives a thread: a panic's backtrace alone takes hundreds of kilobytes, and a child that dies of a full stack in
/// the middle of it leaves locks of this process held for ever.
const SIZE: usize = 2 << 20;
const GUARD: usize = 64 << 10;

/// Mapped for one start and unmapped when the child has left: it must outlive the clone, which waits for the exec.
pub(crate) struct HookStack(*mut c_void);

impl HookStack {
    /// `None` where memory is short: the slot's own stack does for a small function.
    pub(crate) fn new() -> Option<HookStack> {
        let flags = mm::MAP_PRIVATE | mm::MAP_NORESERVE | mm::MAP_STACK;
        let stack = HookStack(mm::map_anonymous(GUARD + SIZE, mm::PROT_NONE, flags).ok()?);
        // SAFETY: the mapping just made, which nobody uses yet; below stays without access, as a guard.
        unsafe { mm::mprotect(stack.place().0, SIZE, mm::PROT_READ | mm::PROT_WRITE) }.ok()?;
        Some(stack)
    }

    /// The lowest address, and the size in bytes.
    pub(crate) fn place(&self) -> (*mut c_void, usize) {
        (self.0.wrapping_byte_add(GUARD), SIZE)
    }
}

impl Drop for HookStack {
    fn drop(&mut self) {
        // SAFETY: its child has left, and nobody else knows of it.
        let _ = unsafe { mm::munmap(self.0, GUARD + SIZE) };
    }
}
