//! The ranges noted by [`super::advice`]: disjoint, in order, as many as a process has mappings for.
//!
//! Programs with a collector have thousands (each 256 KiB of V8's heap is one), most have none, which costs one load to find out. The lock is held for
//! some microseconds, with all signals blocked. In a child that was forked meanwhile the holder is not there ([`forget_holder`]).
#![expect(unsafe_code, reason = "all of it is valid when zeroed")]

use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::sched;
use forkless_sys::signal::{self, SigSet};

use crate::fork;
use crate::insist::insist;
use crate::late::Late;
use crate::owner;
use crate::reserve;

type Note = (AtomicUsize, AtomicUsize);

/// Linux allows a process 65,530 mappings (vm.max_map_count). Each range is one at least, and so is nearly always what lies
/// between it and the next, or they would be one range.
const MOST: usize = 1 << 15;

/// Bytes that they take.
pub(crate) const LEN: usize = size_of::<[Note; MOST]>();

/// Mapped when there is something to note.
// SAFETY: made of atomics.
static TABLE: Late<[Note; MOST]> = unsafe { Late::new(reserve::MARKS) };

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LOCK: AtomicBool = AtomicBool::new(false);
/// Not everything is noted.
static INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether nothing is noted, and nothing was to be.
pub(super) fn is_empty() -> bool {
    COUNT.load(Relaxed) == 0 && !INCOMPLETE.load(Relaxed)
}

/// Whether not everything is noted.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_incomplete() -> bool {
    if is_empty() {
        return false;
    }
    exclusive(|_| ()).is_none()
}

/// Notes all of `start..end`.
pub(super) fn add(start: usize, end: usize) {
    // Without the mark a copy could not tell that the lock is not held.
    let is_marked = owner::mark();
    locked(|table| {
        if !is_marked || !table.add(start, end) {
            INCOMPLETE.store(true, Relaxed);
        }
    });
}

/// From here on nothing is known.
#[cfg(target_arch = "x86_64")]
pub(super) fn give_up() {
    INCOMPLETE.store(true, Relaxed);
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

/// Whether every byte of `start..end` is noted. After [`is_incomplete`], with all signals blocked: this is asked for each mapping there is.
#[cfg(target_arch = "x86_64")]
pub(super) fn cover(start: usize, end: usize) -> bool {
    exclusive(|table| table.cover(start, end)).unwrap_or(true)
}

/// `None`: nothing is known.
fn locked<T>(work: impl FnOnce(Table) -> T) -> Option<T> {
    // A handler that marks memory as well would wait for itself.
    let before = signal::set_mask(SigSet::ALL);
    let result = exclusive(work);
    if let Ok(before) = before {
        let _ = insist(|| signal::set_mask(before));
    }
    result
}

/// Forgets who has the lock: a thread of another process, which this memory is a copy of. What it was changing is of no use.
pub(super) fn forget_holder() {
    if LOCK.load(Relaxed) {
        INCOMPLETE.store(true, Relaxed);
        LOCK.store(false, Relaxed);
    }
}

fn exclusive<T>(work: impl FnOnce(Table) -> T) -> Option<T> {
    /// A process that shares this memory may be killed while it has the lock.
    const PATIENCE: usize = 100_000;
    if owner::is_copy() && !fork::speculating() {
        owner::take_over(fork::forget_parents);
    }
    let mut turns = 0;
    while LOCK.compare_exchange(false, true, Acquire, Relaxed).is_err() {
        turns += 1;
        if turns == PATIENCE {
            INCOMPLETE.store(true, Relaxed);
            return None;
        }
        sched::yield_now();
    }
    let result = (!INCOMPLETE.load(Relaxed)).then(|| work(Table::current()));
    LOCK.store(false, Release);
    result
}

/// The table, by whoever has the lock.
struct Table {
    notes: &'static [Note],
}

impl Table {
    fn current() -> Table {
        Table { notes: TABLE.get().map_or(&[], |all| all) }
    }

    fn len(&self) -> usize {
        COUNT.load(Relaxed)
    }

    fn get(&self, i: usize) -> (usize, usize) {
        (self.notes[i].0.load(Relaxed), self.notes[i].1.load(Relaxed))
    }

    fn set(&self, i: usize, (start, end): (usize, usize)) {
        self.notes[i].0.store(start, Relaxed);
        self.notes[i].1.store(end, Relaxed);
    }

    /// Index of the first range that ends at `addr` or above.
    fn first_from(&self, addr: usize) -> usize {
        self.notes[..self.len()].partition_point(|(_, end)| end.load(Relaxed) < addr)
    }

    fn touch(&self, start: usize, end: usize) -> bool {
        let i = self.first_from(start.saturating_add(1));
        i < self.len() && self.get(i).0 < end
    }

    #[cfg(target_arch = "x86_64")]
    fn cover(&self, start: usize, end: usize) -> bool {
        let i = self.first_from(start.saturating_add(1));
        i < self.len() && self.get(i).0 <= start && end <= self.get(i).1
    }

    /// `false`: there is no room.
    fn add(self, mut start: usize, mut end: usize) -> bool {
        let from = self.first_from(start);
        let mut to = from;
        // Neighbours become one: V8 marks one chunk after the other.
        while to < self.len() && self.get(to).0 <= end {
            let (s, e) = self.get(to);
            (start, end) = (start.min(s), end.max(e));
            to += 1;
        }
        self.replace(from, to, &[(start, end)])
    }

    fn remove(self, start: usize, end: usize) -> bool {
        let from = self.first_from(start.saturating_add(1));
        let mut to = from;
        while to < self.len() && self.get(to).0 < end {
            to += 1;
        }
        if from == to {
            return false;
        }
        let (below, above) = ((self.get(from).0, start), (end, self.get(to - 1).1));
        // Where there is no room for both, all of it stays noted, which does no harm.
        match (below.0 < below.1, above.0 < above.1) {
            (true, true) => self.replace(from, to, &[below, above]),
            (true, false) => self.replace(from, to, &[below]),
            (false, true) => self.replace(from, to, &[above]),
            (false, false) => self.replace(from, to, &[]),
        }
    }

    /// Puts others into the place of `from..to`.
    fn replace(mut self, from: usize, to: usize, by: &[(usize, usize)]) -> bool {
        let (len, behind) = (self.len(), from + by.len());
        let longer = len - (to - from) + by.len();
        if longer > self.notes.len() {
            if longer > MOST || !TABLE.map() {
                return false;
            }
            self = Table::current();
        }
        if behind > to {
            (to..len).rev().for_each(|i| self.set(i + behind - to, self.get(i)));
        } else if behind < to {
            (to..len).for_each(|i| self.set(i + behind - to, self.get(i)));
        }
        for (i, note) in by.iter().enumerate() {
            self.set(from + i, *note);
        }
        COUNT.store(longer, Relaxed);
        true
    }
}
