//! A thread that forks: the notes that `arm` takes of it. They lie with the other tables of
//! speculations, for the library's writable memory is one page in every program.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// A thread between `arm::arm` and `Arming::release`. All zeros: free.
pub(crate) struct ThreadSlot {
    /// Thread pointer of the owner; 0 when free.
    pub(super) owner: AtomicUsize,
    /// How often it was taken: an earlier owner may have lost it.
    pub(super) times_taken: AtomicU32,
    /// Where on its stack the owner took it. 0: it has not said so yet.
    pub(super) taken_at: AtomicUsize,
    /// The thread is to be armed when the program's fork handlers have run.
    pub(super) waiting: AtomicBool,
    pub(super) armed: AtomicBool,
    /// Counted among the plain forks, for which no memory may be marked, until
    /// `Arming::release`.
    pub(super) plain: AtomicBool,
    pub(super) site: AtomicUsize,
    /// The program's signal mask, as it sees it.
    pub(super) mask: AtomicU64,
    /// The same when the thread was armed: libc may block all signals for its clone (glibc 2.41).
    pub(super) mask_before: AtomicU64,
    /// The fork may fail for a signal that waits, since it is made again then. Nobody sees it where
    /// the program has no fork handlers.
    pub(super) may_fail: AtomicBool,
    pub(super) has_handlers: AtomicBool,
    /// It has failed so, and errno was this before.
    pub(super) again: AtomicBool,
    pub(super) errno: AtomicI32,
    /// The program's alternate stack was taken from it.
    pub(super) has_stack: AtomicBool,
    pub(super) alt_start: AtomicUsize,
    pub(super) alt_flags: AtomicI32,
    pub(super) alt_size: AtomicUsize,
    pub(super) resolution: AtomicU8,
    pub(super) number: AtomicUsize,
}
