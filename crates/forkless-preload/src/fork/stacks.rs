//! The signal stacks of threads that fork, one for each slot of [`arm`](super::arm), and the stacks
//! of helpers.
#![expect(unsafe_code, reason = "bytes that the kernel and one thread write")]

use core::cell::UnsafeCell;
use core::ffi::c_void;

use forkless_sys::signal::AltStack;

/// Threads that can be armed at a time.
pub(super) const SLOTS: usize = 8;

/// A signal frame with AVX-512 state takes 3.5 KB, with AMX state 11 KB. Two may nest (a fault
/// inside the dispatch handler), and the handlers' own frames come on top.
const OWN: usize = 64 << 10;
/// Below it, for what attends to the child (`memory_source`): some calls deep, and no handlers.
const ATTENDING: usize = 16 << 10;
/// For a helper that looks at something (`helper`).
const LOOK: usize = 8 << 10;

/// The kernel leaves the signal stack while a handler runs on it, and takes it back from the
/// handler's frame. A signal that interrupts the handler goes further down.
const SS_AUTODISARM: i32 = 1 << 31;

/// The stacks of one slot.
#[repr(C, align(4096))]
pub(super) struct SlotStacks {
    attending: UnsafeCell<[u8; ATTENDING]>,
    own: UnsafeCell<[u8; OWN]>,
}
// SAFETY: only the thread that owns the slot, the kernel on its behalf, and the memory server or
// attendant of its fork use the memory.
unsafe impl Sync for SlotStacks {}

/// The stack of a look.
#[repr(C, align(4096))]
pub(super) struct LookStack(UnsafeCell<[u8; LOOK]>);
// SAFETY: one helper at a time uses the memory.
unsafe impl Sync for LookStack {}

impl LookStack {
    /// Where the stack begins.
    pub(super) fn top(&self) -> *mut c_void {
        self.0.get().cast::<c_void>().wrapping_byte_add(LOOK)
    }
}

/// One for each slot.
pub(super) type Stacks = [SlotStacks; SLOTS];

impl SlotStacks {
    /// The thread's signal stack, as the kernel is told of it.
    pub(super) fn signal_stack(&self) -> AltStack {
        AltStack { start: self.own.get() as usize, flags: SS_AUTODISARM, size: OWN }
    }

    /// Where the stack of a memory server or attendant begins.
    pub(super) fn attending_stack(&self) -> *mut c_void {
        self.attending.get().cast::<c_void>().wrapping_byte_add(ATTENDING)
    }
}
