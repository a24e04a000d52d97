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

const MAX: usize = 256;

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

/// The ranges of library and thread, and a site's resident ranges. One of the latter may have a
/// piece cut out of its middle.
const PINS: usize = 4 + resident::MAX + 1;

/// Page ranges that stay with the kernel, in ascending order.
pub struct Pins {
    len: usize,
    range: [(usize, usize); PINS],
}

impl Pins {
    /// The ranges that every fork needs: the library's `image`, the stack around `sp`, the thread's
    /// area around its pointer `tp`, and the word where the clone writes the child's id.
    #[must_use]
    pub fn of(image: core::ops::Range<usize>, sp: usize, tp: usize, tid_word: usize) -> Pins {
        let mut pins = Pins { len: 0, range: [(0, 0); PINS] };
        pins.add(image.start, image.end);
        pins.add(sp.saturating_sub(STACK_WINDOW), sp.saturating_add(STACK_WINDOW));
        pins.add(tp.saturating_sub(TLS_BELOW), tp.saturating_add(TLS_ABOVE));
        pins.add(tid_word, tid_word.saturating_add(4));
        pins
    }

    /// Adds the pages of `start..end`. Where there is no room it adds nothing, and the child
    /// fetches them.
    pub fn add(&mut self, start: usize, end: usize) {
        let (start, end) = (start & !4095, end.wrapping_add(4095) & !4095);
        if self.len == self.range.len() || start >= end {
            return;
        }
        // Insertion keeps them sorted.
        let mut i = self.len;
        while i > 0 && self.range[i - 1].0 > start {
            self.range[i] = self.range[i - 1];
            i -= 1;
        }
        self.range[i] = (start, end);
        self.len += 1;
    }

    fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        self.range[..self.len].iter().copied()
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

    use proptest::prelude::*;

    use super::*;

    const PAGE: usize = 4096;
    const SMALLEST: usize = 32 * PAGE;

    fn mapping(start: usize, end: usize) -> Mapping {
        let flags = maps::READABLE | maps::WRITABLE;
        Mapping { start: start * PAGE, end: end * PAGE, flags, inode: 0, page_size: 4096 }
    }

    fn no_pins() -> Pins {
        Pins { len: 0, range: [(0, 0); PINS] }
    }

    #[test]
    fn stack_tls_library_and_id_stay_with_the_kernel() {
        let (image, sp, tp, tid) = (100 << 20..101 << 20, 200 << 20, 300 << 20, 400 << 20);
        let pins = Pins::of(image, sp, tp, tid);
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
        let mut pins = no_pins();
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
        let bytes: usize = (0..300)
            .map(|i| exclude(&mapping(i * 100, i * 100 + 50), &no_pins(), &absent, SMALLEST, |_, _| true))
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
            let mut pins = no_pins();
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
