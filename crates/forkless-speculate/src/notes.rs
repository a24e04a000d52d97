//! Ranges of memory that the program has marked for fork (`MADV_DONTFORK`, `MADV_WIPEONFORK`). Each
//! is noted when the program marks it. Notes are disjoint, in ascending order.
//!
//! Programs with a collector have thousands (each 256 KiB of V8's heap is one). Most programs have
//! none, and one load tells that.
//!
//! The notes have a lock, held for some microseconds with all signals blocked. A child that is
//! forked meanwhile does not have the thread that holds it ([`Notes::forget_holder`]). A change
//! that the thread had begun leaves the notes useless:
//!
//! ```text
//!   empty ── add ──▶ known ── no room, or the holder is gone ──▶ incomplete (for good)
//! ```
//!
//! When the notes are incomplete nothing may be assumed about any mapping. The answer to every
//! question is then "it may be marked".

use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// A range's start and end.
pub type Note = (AtomicUsize, AtomicUsize);

/// Linux allows a process 65,530 mappings (vm.max_map_count). Each range is one mapping at least.
/// So is nearly always the memory between a range and the next, or they would be one range.
pub const MOST: usize = 1 << 15;

/// The room for notes, mapped when there is something to note.
pub trait Store {
    /// The notes that are mapped.
    fn notes(&self) -> &[Note];
    /// Maps room for all notes. Returns whether it is there.
    fn grow(&self) -> bool;
}

/// The notes of a process, without their room.
pub struct Notes {
    count: AtomicUsize,
    lock: AtomicBool,
    /// A mark may have no note.
    incomplete: AtomicBool,
}

impl Notes {
    /// Nothing is noted.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Notes {
        Notes { count: AtomicUsize::new(0), lock: AtomicBool::new(false), incomplete: AtomicBool::new(false) }
    }

    /// Whether nothing is noted, and no mark is without a note.
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0 && !self.incomplete.load(Relaxed)
    }

    /// From here on nothing is known.
    pub fn give_up(&self) {
        self.incomplete.store(true, Relaxed);
    }

    /// Forgets the thread that holds the lock: it is a thread of another process, whose memory was
    /// copied.
    pub fn forget_holder(&self) {
        if self.lock.load(Relaxed) {
            self.incomplete.store(true, Relaxed);
            self.lock.store(false, Relaxed);
        }
    }

    /// Does `work` with the notes, one thread at a time. `None`: nothing is known. `turn` lets
    /// other threads run, and tells whether to wait on. All signals are blocked, or a handler that
    /// marks memory as well would wait for itself.
    pub fn exclusive<S: Store, T>(
        &self,
        store: &S,
        mut turn: impl FnMut() -> bool,
        work: impl FnOnce(Locked<'_, S>) -> T,
    ) -> Option<T> {
        while self.lock.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            if !turn() {
                self.give_up();
                return None;
            }
        }
        let is_known = !self.incomplete.load(Relaxed);
        let result = is_known.then(|| work(Locked { count: &self.count, store }));
        self.lock.store(false, Release);
        result
    }
}

/// The notes, for the thread that has the lock.
pub struct Locked<'a, S> {
    count: &'a AtomicUsize,
    store: &'a S,
}

impl<'a, S: Store> Locked<'a, S> {
    fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn get(&self, i: usize) -> (usize, usize) {
        (self.store.notes()[i].0.load(Relaxed), self.store.notes()[i].1.load(Relaxed))
    }

    fn set(&self, i: usize, (start, end): (usize, usize)) {
        self.store.notes()[i].0.store(start, Relaxed);
        self.store.notes()[i].1.store(end, Relaxed);
    }

    /// Position of the first range that ends at `addr` or above.
    fn first_from(&self, addr: usize) -> usize {
        self.store.notes()[..self.len()].partition_point(|(_, end)| end.load(Relaxed) < addr)
    }

    /// Whether `start..end` has a noted byte in it.
    pub fn touch(&self, start: usize, end: usize) -> bool {
        let i = self.first_from(start.saturating_add(1));
        i < self.len() && self.get(i).0 < end
    }

    /// Whether every byte of `start..end` is noted.
    pub fn cover(&self, start: usize, end: usize) -> bool {
        let i = self.first_from(start.saturating_add(1));
        i < self.len() && self.get(i).0 <= start && end <= self.get(i).1
    }

    /// Notes all of `start..end`; `false`: there is no room.
    pub fn add(&self, mut start: usize, mut end: usize) -> bool {
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

    /// Forgets the notes in `start..end`. Returns whether there were any.
    pub fn remove(&self, start: usize, end: usize) -> bool {
        let from = self.first_from(start.saturating_add(1));
        let mut to = from;
        while to < self.len() && self.get(to).0 < end {
            to += 1;
        }
        if from == to {
            return false;
        }
        let (below, above) = ((self.get(from).0, start), (end, self.get(to - 1).1));
        // Without room for both, all of it stays noted, which does no harm.
        match (below.0 < below.1, above.0 < above.1) {
            (true, true) => self.replace(from, to, &[below, above]),
            (true, false) => self.replace(from, to, &[below]),
            (false, true) => self.replace(from, to, &[above]),
            (false, false) => self.replace(from, to, &[]),
        }
    }

    /// Puts other ranges into the place of `from..to`.
    fn replace(&self, from: usize, to: usize, by: &[(usize, usize)]) -> bool {
        let (len, behind) = (self.len(), from + by.len());
        let longer = len - (to - from) + by.len();
        let fits = || longer <= self.store.notes().len();
        if !(fits() || self.store.grow() && fits()) {
            return false;
        }
        if behind > to {
            (to..len).rev().for_each(|i| self.set(i + behind - to, self.get(i)));
        } else if behind < to {
            (to..len).for_each(|i| self.set(i + behind - to, self.get(i)));
        }
        for (i, note) in by.iter().enumerate() {
            self.set(from + i, *note);
        }
        self.count.store(longer, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    struct Room<const N: usize> {
        notes: [Note; N],
        is_there: Cell<bool>,
    }

    impl<const N: usize> Room<N> {
        fn new() -> Room<N> {
            Room {
                notes: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; N],
                is_there: Cell::new(false),
            }
        }
    }

    impl<const N: usize> Store for Room<N> {
        fn notes(&self) -> &[Note] {
            if self.is_there.get() { &self.notes } else { &[] }
        }
        fn grow(&self) -> bool {
            self.is_there.set(true);
            true
        }
    }

    fn with<S: Store, T>(notes: &Notes, store: &S, work: impl FnOnce(Locked<'_, S>) -> T) -> Option<T> {
        notes.exclusive(store, || true, work)
    }

    /// Miri takes a millisecond for a question.
    const STEP: usize = if cfg!(miri) { 13 } else { 1 };

    #[derive(Clone, Copy, Debug)]
    enum Change {
        Add(usize, usize),
        Remove(usize, usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        (any::<bool>(), 0usize..60, 1usize..20).prop_map(|(adds, start, len)| {
            if adds { Change::Add(start, start + len) } else { Change::Remove(start, start + len) }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

        /// The notes agree with a set of bytes, for every range.
        #[test]
        fn notes_are_a_set_of_bytes(changes in prop::collection::vec(change(), 0..40)) {
            let (notes, room) = (Notes::new(), Room::<64>::new());
            let mut bytes: BTreeSet<usize> = BTreeSet::new();
            for change in changes {
                match change {
                    Change::Add(start, end) => {
                        prop_assert_eq!(with(&notes, &room, |t| t.add(start, end)), Some(true));
                        bytes.extend(start..end);
                    }
                    Change::Remove(start, end) => {
                        let any = bytes.range(start..end).next().is_some();
                        prop_assert_eq!(with(&notes, &room, |t| t.remove(start, end)), Some(any));
                        bytes.retain(|byte| !(start..end).contains(byte));
                    }
                }
                for start in (0..80).step_by(STEP) {
                    for end in [start + 1, start + 7] {
                        let touches = bytes.range(start..end).next().is_some();
                        let covers = (start..end).all(|byte| bytes.contains(&byte));
                        prop_assert_eq!(with(&notes, &room, |t| t.touch(start, end)), Some(touches));
                        prop_assert_eq!(with(&notes, &room, |t| t.cover(start, end)), Some(covers));
                    }
                }
            }
            let ends: Vec<_> = (0..notes.count.load(Relaxed)).map(|i| (&room.notes[i].0, &room.notes[i].1)).collect();
            for pair in ends.windows(2) {
                prop_assert!(pair[0].1.load(Relaxed) < pair[1].0.load(Relaxed), "disjoint, in order, joined");
            }
        }

        /// Without room no mark is forgotten. Memory that is not marked may stay noted.
        #[test]
        fn a_full_table_never_forgets_what_is_marked(changes in prop::collection::vec(change(), 0..40)) {
            let (notes, room) = (Notes::new(), Room::<3>::new());
            let mut bytes: BTreeSet<usize> = BTreeSet::new();
            for change in changes {
                match change {
                    Change::Add(start, end) => {
                        if with(&notes, &room, |t| t.add(start, end)) == Some(true) {
                            bytes.extend(start..end);
                        }
                    }
                    Change::Remove(start, end) => {
                        with(&notes, &room, |t| t.remove(start, end));
                        bytes.retain(|byte| !(start..end).contains(byte));
                    }
                }
                for &byte in &bytes {
                    prop_assert_eq!(with(&notes, &room, |t| t.touch(byte, byte + 1)), Some(true));
                }
            }
        }
    }

    #[test]
    fn a_question_to_empty_notes_maps_nothing() {
        let (notes, room) = (Notes::new(), Room::<4>::new());
        assert!(notes.is_empty());
        assert_eq!(with(&notes, &room, |t| t.touch(0, 100)), Some(false));
        assert_eq!(with(&notes, &room, |t| t.remove(0, 100)), Some(false));
        assert!(!room.is_there.get());
    }

    #[test]
    fn a_holder_that_is_gone_leaves_nothing_known() {
        let (notes, room) = (Notes::new(), Room::<4>::new());
        with(&notes, &room, |t| t.add(1, 2));
        with(&notes, &room, |_| {
            // A copy of the memory is made now.
            notes.forget_holder();
            assert_eq!(with(&notes, &room, |_| ()), None);
        });
        assert!(!notes.is_empty());
        assert_eq!(with(&notes, &room, |t| t.touch(1, 2)), None);
    }

    #[test]
    fn a_lock_that_is_never_given_back_is_not_waited_for_for_ever() {
        let (notes, room) = (Notes::new(), Room::<4>::new());
        let mut turns = 0;
        with(&notes, &room, |_| {
            let turn = || {
                turns += 1;
                turns < 3
            };
            assert_eq!(notes.exclusive(&room, turn, |_| ()), None);
        });
        assert!(turns == 3 && !notes.is_empty());
    }
}
