//! The ranges noted by [`super::advice`] (`forkless_speculate::notes`), in this process.
#![expect(unsafe_code, reason = "all of it is valid when zeroed")]

use forkless_speculate::notes::{Locked, MOST, Note, Notes, Store};

use crate::lazy_mapping::LazyMapping;
use crate::memory_owner;
use crate::patience::Patience;
use crate::reserve;
use crate::speculation;
use crate::uninterrupted::uninterrupted;

/// Mapped when there is something to note.
// SAFETY: made of atomics.
static ROOM: LazyMapping<[Note; MOST]> = unsafe { LazyMapping::new(reserve::MARKS) };
static NOTES: Notes = Notes::new();

struct Room;

impl Store for Room {
    fn notes(&self) -> &[Note] {
        ROOM.get().map_or(&[], |all| all)
    }

    fn grow(&self) -> bool {
        ROOM.map()
    }
}

/// Whether nothing is noted, and nothing was to be.
pub(super) fn is_empty() -> bool {
    NOTES.is_empty()
}

/// Whether not everything is noted.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_incomplete() -> bool {
    !is_empty() && exclusive(|_| ()).is_none()
}

/// Notes all of `start..end`.
pub(super) fn add(start: usize, end: usize) {
    // Without an owner a copy could not tell that the lock is not held.
    let has_owner = memory_owner::claim();
    locked(|table| {
        if !has_owner || !table.add(start, end) {
            NOTES.give_up();
        }
    });
}

/// Forgets what lies in `start..end`. Returns whether anything did.
pub(super) fn remove(start: usize, end: usize) -> bool {
    locked(|table| table.remove(start, end)).unwrap_or(false)
}

/// Whether `start..end` has a noted byte in it.
pub(super) fn touch(start: usize, end: usize) -> bool {
    locked(|table| table.touch(start, end)).unwrap_or(true)
}

/// The same with all signals blocked.
#[cfg(target_arch = "x86_64")]
pub(super) fn touch_in_window(start: usize, end: usize) -> bool {
    exclusive(|table| table.touch(start, end)).unwrap_or(true)
}

/// Whether every byte of `start..end` is noted. After [`is_incomplete`], with all signals blocked:
/// this is asked for each mapping.
#[cfg(target_arch = "x86_64")]
pub(super) fn cover(start: usize, end: usize) -> bool {
    exclusive(|table| table.cover(start, end)).unwrap_or(true)
}

/// `None`: nothing is known.
fn locked<T>(work: impl FnOnce(Locked<'_, Room>) -> T) -> Option<T> {
    // A handler that marks memory as well would wait for itself.
    uninterrupted(|| exclusive(work))
}

/// In a copy of another process's memory, whose threads are not here.
pub(super) fn forget_holder() {
    NOTES.forget_holder();
}

fn exclusive<T>(work: impl FnOnce(Locked<'_, Room>) -> T) -> Option<T> {
    if memory_owner::is_copy() && !speculation::speculating() {
        memory_owner::take_over();
    }
    // A process that shares this memory may be killed while it has the lock.
    let mut patience = Patience::long(100_000);
    NOTES.exclusive(&Room, || patience.turn(), work)
}
