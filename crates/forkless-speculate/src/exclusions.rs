//! Exclusions of a speculative fork: which memory the child lacks, and which stays with the kernel.
//!
//! Exclusions are page ranges, not mappings. One mapping may hold a large malloc beside TLS, the
//! rseq area, the word that the clone clears or a stack. Without these the child dies at once, or
//! has its parent's number. Such ranges are pinned ([`Pins`]): whatever mapping they lie in, they
//! stay with the kernel.
//!
//! The parent fills the tables in the window, so one at a time in a process. Its child reads its
//! own copy of them.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use forkless_sys::maps::{self, Mapping};

use crate::site::resident;

const MAX: usize = 512;

/// Ranges in ascending order, each with a flag for executable memory. All zeros at first.
pub struct Ranges {
    len: AtomicUsize,
    /// The start, which is a page's, with [`EXEC`] in it; and the end.
    range: [(AtomicUsize, AtomicUsize); MAX],
}

/// In the low bits of a start: the range is executable.
const EXEC: usize = 1;

impl Ranges {
    /// None.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Ranges {
        Ranges {
            len: AtomicUsize::new(0),
            range: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MAX],
        }
    }

    /// Forgets all ranges.
    pub fn clear(&self) {
        // Most programs share nothing, and a table that is empty is not written.
        if !self.is_empty() {
            self.truncate(0);
        }
    }

    /// Forgets the ranges from the `n`th on.
    pub fn truncate(&self, n: usize) {
        self.len.store(n, Relaxed);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a range that lies above all others; `false`: the table is full.
    pub fn push(&self, start: usize, end: usize, exec: bool) -> bool {
        let n = self.len();
        if n == MAX {
            return false;
        }
        self.range[n].0.store(start | if exec { EXEC } else { 0 }, Relaxed);
        self.range[n].1.store(end, Relaxed);
        self.len.store(n + 1, Relaxed);
        true
    }

    /// Start and end of the `i`th range, and whether it is executable.
    pub fn get(&self, i: usize) -> (usize, usize, bool) {
        let start = self.range[i].0.load(Relaxed);
        (start & !EXEC, self.end(i), start & EXEC != 0)
    }

    fn start(&self, i: usize) -> usize {
        self.get(i).0
    }

    fn end(&self, i: usize) -> usize {
        self.range[i].1.load(Relaxed)
    }

    /// Start and end of each.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.len()).map(|i| (self.start(i), self.end(i)))
    }

    /// Index of the first range that ends above `addr`.
    pub fn at_or_after(&self, addr: usize) -> usize {
        self.range[..self.len()].partition_point(|(_, end)| end.load(Relaxed) <= addr)
    }

    /// The range `addr` lies in.
    pub fn find(&self, addr: usize) -> Option<usize> {
        let i = self.at_or_after(addr);
        (i < self.len() && self.start(i) <= addr).then_some(i)
    }

    /// Whether any range has a byte of `addr..addr + len`.
    pub fn overlaps(&self, addr: usize, len: usize) -> bool {
        let i = self.at_or_after(addr);
        i < self.len() && self.start(i) < addr.saturating_add(len)
    }
}

/// Bytes below and above the stack pointer. The kernel writes signal frames there without being
/// asked, and the functions that return soon need the rest.
const STACK_WINDOW: usize = 256 << 10;
/// Below the thread pointer lies static TLS. Above it lies the thread's descriptor with its robust
/// list, its rseq area and the word that CLONE_CHILD_SETTID writes. The kernel touches these three
/// by itself, and nothing asks the child to fetch them first.
const TLS_BELOW: usize = 64 << 10;
const TLS_ABOVE: usize = 16 << 10;

/// The ranges of library, thread and stack, and a site's resident ranges. One of the latter may
/// have a piece cut out of its middle. And the ranges that an earlier child of the same fork has
/// fetched (`late`), as far as they lie apart from the others.
const PINS: usize = 5 + resident::MAX + 1 + FETCHED;

/// Ranges that a child can report as fetched.
pub const FETCHED: usize = 480;

/// Page ranges that stay with the kernel, in ascending order, apart from each other. All zeros at
/// first.
pub struct Pins {
    len: AtomicUsize,
    range: [(AtomicUsize, AtomicUsize); PINS],
}

impl Pins {
    /// None.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Pins {
        Pins { len: AtomicUsize::new(0), range: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; PINS] }
    }

    /// Forgets all, and adds the ranges that every fork needs: the library's `image`, the stack
    /// around `sp`, the thread's area around its pointer `tp`, and the word where the clone writes
    /// the child's id.
    pub fn begin(&self, image: core::ops::Range<usize>, sp: usize, tp: usize, tid_word: usize) {
        self.len.store(0, Relaxed);
        self.add(image.start, image.end);
        self.add(sp.saturating_sub(STACK_WINDOW), sp.saturating_add(STACK_WINDOW));
        self.add(tp.saturating_sub(TLS_BELOW), tp.saturating_add(TLS_ABOVE));
        self.add(tid_word, tid_word.saturating_add(4));
    }

    /// Adds the pages of `start..end`. Where there is no room it adds nothing, and the child
    /// fetches them.
    pub fn add(&self, start: usize, end: usize) {
        let (mut start, mut end) = (start & !4095, end.wrapping_add(4095) & !4095);
        if start >= end {
            return;
        }
        let len = self.len.load(Relaxed);
        // Those that it touches become one with it: `first..last`.
        let first = self.range[..len].partition_point(|(_, e)| e.load(Relaxed) < start);
        let mut last = first;
        while last < len && self.get(last).0 <= end {
            start = start.min(self.get(last).0);
            end = end.max(self.get(last).1);
            last += 1;
        }
        if first == last {
            if len == PINS {
                return;
            }
            for i in (first..len).rev() {
                self.set(i + 1, self.get(i));
            }
            self.len.store(len + 1, Relaxed);
        } else if last - first > 1 {
            for i in last..len {
                self.set(first + 1 + i - last, self.get(i));
            }
            self.len.store(len + 1 - (last - first), Relaxed);
        }
        self.set(first, (start, end));
    }

    fn get(&self, i: usize) -> (usize, usize) {
        (self.range[i].0.load(Relaxed), self.range[i].1.load(Relaxed))
    }

    fn set(&self, i: usize, (start, end): (usize, usize)) {
        self.range[i].0.store(start, Relaxed);
        self.range[i].1.store(end, Relaxed);
    }

    fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.len.load(Relaxed)).map(|i| self.get(i))
    }
}

/// Whether a mapping is of a kind that children may lack: private anonymous memory that can be
/// read.
#[must_use]
pub fn is_candidate(m: &Mapping) -> bool {
    m.flags & (maps::SHARED | maps::READABLE) == maps::READABLE && m.inode == 0
}

/// Adds to `absent` the parts of a mapping that the pins leave, in ranges of `smallest` bytes or
/// more. Returns how many bytes that is. A full table is no error: the rest stays with the kernel.
///
/// `may_split` tells whether the mapping may be split around a pinned range. Where it may not, the
/// range is excluded together with the memory around it.
pub fn exclude(
    m: &Mapping,
    pins: &Pins,
    absent: &Ranges,
    smallest: usize,
    may_split: impl Fn(usize, usize) -> bool,
) -> usize {
    let mut total = 0;
    let mut at = m.start;
    let mut add = |start: usize, end: usize| {
        if end > start && end - start >= smallest && absent.push(start, end, m.flags & maps::EXECUTABLE != 0)
        {
            total += end - start;
        }
    };
    for (start, end) in pins.iter() {
        if end <= at || start >= m.end || !may_split(start.max(at), end.min(m.end)) {
            continue;
        }
        add(at, start.min(m.end));
        at = at.max(end);
    }
    if at < m.end {
        add(at, m.end);
    }
    total
}

/// A number that tells where stretches of adjacent mappings lie. Not where each mapping lies:
/// mappings join when their marks go.
#[derive(Default)]
pub struct Places {
    hash: usize,
    end: usize,
}

impl Places {
    /// The next mapping upwards.
    pub fn add(&mut self, m: &Mapping) {
        if m.start != self.end {
            self.place(self.end);
            self.place(m.start);
        }
        self.end = m.end;
    }

    /// The number, when all mappings are added.
    #[must_use]
    pub fn number(mut self) -> usize {
        self.place(self.end);
        self.hash
    }

    fn place(&mut self, at: usize) {
        self.hash = (self.hash ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use forkless_sys::mm::PAGE;
    use proptest::prelude::*;

    use super::*;

    const SMALLEST: usize = 32 * PAGE;

    fn mapping(start: usize, end: usize) -> Mapping {
        let flags = maps::READABLE | maps::WRITABLE;
        Mapping { start: start * PAGE, end: end * PAGE, flags, inode: 0, page_size: 4096 }
    }

    #[test]
    fn stack_tls_library_and_id_stay_with_the_kernel() {
        let (image, sp, tp, tid) = (100 << 20..101 << 20, 200 << 20, 300 << 20, 400 << 20);
        let pins = Pins::new();
        pins.add(1 << 20, 2 << 20);
        pins.begin(image, sp, tp, tid);
        let absent = Ranges::new();
        let bytes = exclude(&mapping(50 << 8, 500 << 8), &pins, &absent, SMALLEST, |_, _| true);
        assert_eq!(absent.len(), 5);
        for at in
            [100 << 20, sp, sp - (200 << 10), sp + (200 << 10), tp, tp - (60 << 10), tp + (15 << 10), tid]
        {
            assert_eq!(absent.find(at), None, "{at:x}");
        }
        assert!(absent.find((100 << 20) - 1).is_some() && absent.find(101 << 20).is_some());
        assert_eq!(bytes, absent.iter().map(|(start, end)| end - start).sum());
    }

    #[test]
    fn a_pin_that_may_not_split_its_mapping_is_excluded_with_it() {
        let pins = Pins::new();
        pins.add(100 * PAGE, 101 * PAGE);
        let absent = Ranges::new();
        exclude(&mapping(0x40, 0x400), &pins, &absent, SMALLEST, |_, _| false);
        assert_eq!(absent.len(), 1);
    }

    #[test]
    fn only_private_anonymous_readable_memory_is_excluded() {
        let m = mapping(1, 2);
        assert!(is_candidate(&m));
        assert!(!is_candidate(&Mapping { inode: 5, ..m }));
        assert!(!is_candidate(&Mapping { flags: maps::WRITABLE, ..m }));
        assert!(!is_candidate(&Mapping { flags: m.flags | maps::SHARED, ..m }));
    }

    #[test]
    fn a_full_table_leaves_the_rest_to_the_kernel() {
        let absent = Ranges::new();
        let bytes: usize = (0..600)
            .map(|i| exclude(&mapping(i * 100, i * 100 + 50), &Pins::new(), &absent, SMALLEST, |_, _| true))
            .sum();
        assert_eq!((absent.len(), bytes), (MAX, MAX * 50 * PAGE));
    }

    #[test]
    fn where_mappings_lie_is_told_and_not_how_they_are_split() {
        let number = |mappings: &[(usize, usize)]| {
            let mut places = Places::default();
            mappings.iter().for_each(|&(start, end)| places.add(&mapping(start, end)));
            places.number()
        };
        assert_eq!(number(&[(1, 5), (7, 9)]), number(&[(1, 3), (3, 5), (7, 9)]));
        assert_ne!(number(&[(1, 5), (7, 9)]), number(&[(1, 5), (8, 10)]));
        assert_ne!(number(&[(1, 5), (7, 9)]), number(&[(1, 5)]));
    }

    proptest! {
        /// Every page of the mappings is either pinned, excluded, or part of a rest that is too
        /// small. No page is two of these, and nothing else is excluded.
        #[test]
        fn a_page_is_pinned_or_excluded_or_too_little(
            mappings in prop::collection::vec((0usize..40, 1usize..120, 0usize..16), 1..8),
            pinned in prop::collection::vec((0usize..800, 1usize..30), 0..12),
        ) {
            let pins = Pins::new();
            pinned.iter().for_each(|&(at, pages)| pins.add(at * PAGE, (at + pages) * PAGE));
            let absent = Ranges::new();
            let mut at = 0;
            let mut all = Vec::new();
            let mut bytes = 0;
            for (gap, pages, flags) in mappings {
                let mut m = mapping(at + gap, at + gap + pages);
                m.flags |= (flags as u64) & maps::EXECUTABLE;
                bytes += exclude(&m, &pins, &absent, SMALLEST, |_, _| true);
                at += gap + pages;
                all.push(m);
            }
            prop_assert_eq!(bytes, absent.iter().map(|(start, end)| end - start).sum::<usize>());
            let is_pinned = |page: usize| pinned.iter().any(|&(at, pages)| (at..at + pages).contains(&page));
            let mut above = 0;
            for i in 0..absent.len() {
                let (start, end, exec) = absent.get(i);
                prop_assert!(above <= start && end - start >= SMALLEST);
                above = end;
                let m = all.iter().find(|m| m.start <= start && end <= m.end);
                prop_assert_eq!(m.map(|m| m.flags & maps::EXECUTABLE != 0), Some(exec));
                prop_assert!((start / PAGE..end / PAGE).all(|page| !is_pinned(page)));
            }
            for m in &all {
                let mut rest = 0;
                for page in m.start / PAGE..m.end / PAGE {
                    let is_left = !is_pinned(page) && absent.find(page * PAGE).is_none();
                    rest = if is_left { rest + PAGE } else { 0 };
                    prop_assert!(rest < SMALLEST, "a range that is large enough was left");
                }
            }
        }

        /// Whatever is added: the pins are in order and apart from each other, and they are exactly
        /// the pages that were added.
        #[test]
        fn pins_are_the_pages_that_were_added(
            added in prop::collection::vec((0usize..800, 1usize..30), 0..60),
        ) {
            let pins = Pins::new();
            added.iter().for_each(|&(at, pages)| pins.add(at * PAGE + 1, (at + pages) * PAGE - 1));
            let all: Vec<_> = pins.iter().collect();
            prop_assert!(all.iter().all(|(start, end)| start < end));
            prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0));
            for page in 0..840 {
                let is_added = added.iter().any(|&(at, pages)| (at..at + pages).contains(&page));
                let is_pinned = all.iter().any(|&(s, e)| (s..e).contains(&(page * PAGE)));
                prop_assert_eq!(is_added, is_pinned);
            }
        }

        #[test]
        fn a_full_table_of_pins_keeps_those_it_has(first in 0usize..4) {
            let pins = Pins::new();
            (0..PINS + 5).for_each(|i| pins.add((4 + i * 2) * PAGE, (5 + i * 2) * PAGE));
            pins.add(first * PAGE, first * PAGE + PAGE);
            prop_assert_eq!(pins.iter().count(), PINS);
            prop_assert_eq!(pins.get(0).1, 5 * PAGE);
        }

        /// `find` and `overlaps` agree with a look at each range.
        #[test]
        fn searches_find_what_there_is(
            gaps in prop::collection::vec((1usize..9, 1usize..9), 0..20), at in 0usize..200, len in 0usize..40
        ) {
            let ranges = Ranges::new();
            let mut end = 0;
            let mut all = Vec::new();
            for (gap, pages) in gaps {
                let start = end + gap;
                end = start + pages;
                ranges.push(start * PAGE, end * PAGE, gap % 2 == 0);
                all.push((start, end, gap % 2 == 0));
            }
            let found = all.iter().position(|&(start, end, _)| (start..end).contains(&at));
            prop_assert_eq!(ranges.find(at * PAGE), found);
            let overlaps = all.iter().any(|&(start, end, _)| at < end && start < at + len);
            if len > 0 {
                prop_assert_eq!(ranges.overlaps(at * PAGE, len * PAGE), overlaps);
            }
            for (i, &(start, end, exec)) in all.iter().enumerate() {
                prop_assert_eq!(ranges.get(i), (start * PAGE, end * PAGE, exec));
            }
        }
    }
}
