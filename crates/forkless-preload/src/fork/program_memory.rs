//! Addresses that are known only as numbers become memory here.
#![expect(unsafe_code, reason = "the purpose of this file")]

/// A byte of the program's memory, wherever the program points. Absent memory is fetched by the
/// fault it causes, and an address the parent does not have aborts the speculation, as any fault
/// does.
pub(crate) fn byte(at: usize) -> u8 {
    // SAFETY: only a speculative child reads through the program's pointers, where a fault is
    // handled.
    unsafe { core::ptr::read_volatile(at as *const u8) }
}

/// A word of the program's memory, as [`byte`].
pub(crate) fn word(at: usize) -> usize {
    // SAFETY: as above; x86-64 loads need no alignment.
    unsafe { core::ptr::read_unaligned(at as *const usize) }
}

/// A plain value of the program's memory, as [`byte`].
pub(crate) fn value<T: Copy>(at: usize) -> T {
    // SAFETY: as above; T is one of the kernel's plain structures.
    unsafe { core::ptr::read_unaligned(at as *const T) }
}

/// Writes where the program asked for an answer.
pub(crate) fn store<T>(at: usize, value: T) {
    // SAFETY: as the kernel would have written there; a fault is handled.
    unsafe { core::ptr::write_unaligned(at as *mut T, value) }
}
