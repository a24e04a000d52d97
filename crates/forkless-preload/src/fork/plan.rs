//! What the child will not have, and what it must not write: the parent's mappings, listed just before the clone.
//!
//! Filled in by the parent inside the window (one at a time in a process), read by its child, whose copy it is.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use forkless_run::AbortKind as Kind;
use forkless_sys::maps::{self, Mapping};
use forkless_sys::mm;

use crate::mappings::{advice, each_writable};
use crate::rt;

use super::{kept, marks, outcome, sites, tables};

const MAX: usize = 256;

/// Ranges in ascending order with the protection of each.
pub(crate) struct Ranges {
    len: AtomicUsize,
    /// The start, which is a page's, with [`EXEC`]; and the end.
    range: [(AtomicUsize, AtomicUsize); MAX],
}

/// In the low bits of a start: the range is executable.
const EXEC: usize = 1;

/// Memory the parent has and the child lacks.
pub(crate) fn absent() -> &'static Ranges {
    &tables::get().absent
}

/// Writable shared mappings.
pub(crate) fn shared() -> &'static Ranges {
    &tables::get().shared
}

impl Ranges {
    fn clear(&self) {
        // Most programs share nothing: what is empty is not written.
        if self.len() != 0 {
            self.truncate(0);
        }
    }

    /// Forgets the ranges from the `n`th on.
    pub(crate) fn truncate(&self, n: usize) {
        self.len.store(n, Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Appends; `false` when full. The caller goes upwards.
    fn push(&self, start: usize, end: usize, exec: bool) -> bool {
        let n = self.len();
        if n == MAX {
            return false;
        }
        self.range[n].0.store(start | if exec { EXEC } else { 0 }, Relaxed);
        self.range[n].1.store(end, Relaxed);
        self.len.store(n + 1, Relaxed);
        true
    }

    pub(crate) fn get(&self, i: usize) -> (usize, usize, bool) {
        let start = self.range[i].0.load(Relaxed);
        (start & !EXEC, self.end(i), start & EXEC != 0)
    }

    fn start(&self, i: usize) -> usize {
        self.get(i).0
    }

    fn end(&self, i: usize) -> usize {
        self.range[i].1.load(Relaxed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.len()).map(|i| (self.start(i), self.end(i)))
    }

    /// Index of the first range that ends above `addr`.
    pub(crate) fn at_or_after(&self, addr: usize) -> usize {
        self.range[..self.len()].partition_point(|(_, end)| end.load(Relaxed) <= addr)
    }

    /// The range `addr` lies in.
    pub(crate) fn find(&self, addr: usize) -> Option<usize> {
        let i = self.at_or_after(addr);
        (i < self.len() && self.start(i) <= addr).then_some(i)
    }

    /// Whether any range has a byte of `addr..addr + len`.
    pub(crate) fn overlaps(&self, addr: usize, len: usize) -> bool {
        let i = self.at_or_after(addr);
        i < self.len() && self.start(i) < addr.saturating_add(len)
    }
}

/// Below and above the stack pointer: what the kernel writes without being asked (signal frames) and what returning soon needs.
const STACK_WINDOW: usize = 256 << 10;
/// Below the thread pointer: static TLS. Above: the thread's descriptor with its robust list, rseq area and the word
/// CLONE_CHILD_SETTID writes, all of which the kernel touches by itself and does not ask us to fetch.
const TLS_BELOW: usize = 64 << 10;
const TLS_ABOVE: usize = 16 << 10;

/// Those above, and what is kept at a site, with a piece out of the middle.
const PINS: usize = 4 + kept::MAX + 1;

/// Page ranges that stay with the kernel, whatever mapping they lie in.
struct Pins {
    len: usize,
    range: [(usize, usize); PINS],
    beside_threads: bool,
}

impl Pins {
    fn add(&mut self, start: usize, end: usize) {
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

    /// Whether a mapping may be split around `start..end`. Not one without a page beside other threads: the first that writes to it meanwhile gives
    /// each part an `anon_vma` of its own, so that they never become one mapping again, which mremap then refuses to move (EFAULT). With a
    /// page there it has one, which all parts share.
    fn may_split(&self, start: usize, end: usize) -> bool {
        let image = rt::image();
        !self.beside_threads || (start < image.end && image.start < end) || has_a_page(start, end)
    }
}

/// Whether part of a mapping is in memory; also where that cannot be found out.
#[inline(never)]
fn has_a_page(start: usize, end: usize) -> bool {
    const PAGES: usize = 512;
    let mut there = [0u8; PAGES];
    let mut at = start;
    while at < end {
        let pages = (end - at).div_ceil(4096).min(PAGES);
        if mm::mincore(at, &mut there[..pages]).is_err() || there[..pages].iter().any(|page| page & 1 != 0) {
            return true;
        }
        at += pages * 4096;
    }
    false
}

/// What a listing found.
pub(crate) struct Listed {
    /// Bytes the child will lack.
    pub(crate) absent: usize,
    /// Mappings that were looked at.
    pub(crate) mappings: usize,
}

/// Lists the mappings into [`absent`] and [`shared`].
///
/// `tid_word` is where the clone writes the child's id. `beside_threads`: others run meanwhile.
pub(crate) fn list(
    site: usize,
    sp: usize,
    tid_word: usize,
    smallest: usize,
    beside_threads: bool,
) -> Result<Listed, Kind> {
    let (absent, shared) = (absent(), shared());
    absent.clear();
    shared.clear();
    let mut pins = Pins { len: 0, range: [(0, 0); PINS], beside_threads };
    let image = rt::image();
    pins.add(image.start, image.end);
    pins.add(sp.saturating_sub(STACK_WINDOW), sp + STACK_WINDOW);
    let tp = rt::thread_pointer();
    pins.add(tp.saturating_sub(TLS_BELOW), tp + TLS_ABOVE);
    pins.add(tid_word, tid_word + 4);
    sites::each_kept(site, |start, end| pins.add(start, end));

    let mut listed = Listed { absent: 0, mappings: 0 };
    each_writable(|m| {
        listed.mappings += 1;
        if m.flags & maps::SHARED != 0 {
            return m.start == outcome::address() || shared.push(m.start, m.end, false);
        }
        if m.inode == 0
            && m.flags & maps::READABLE != 0
            && m.end - m.start >= smallest
            && !marks::has_one(&m, beside_threads, |start, end| pins.may_split(start, end))
        {
            listed.absent += exclude(&m, &pins, absent, smallest);
        }
        true
    })?;
    Ok(listed)
}

/// Every mapping that could carry our mark now, whatever became of those that are [`absent`]: another thread's mremap moves a mapping with its
/// flags, and a mark left behind would be missed by the next plain fork's child. Returns a number that tells where they lay.
pub(crate) fn each_candidate(mut each: impl FnMut(usize, usize)) -> usize {
    let (mut places, mut end) = (0usize, 0);
    // Of stretches, not of mappings, which join when their marks go.
    let mut place = |at: usize| places = (places ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let _ = each_writable(|m| {
        if m.start != end {
            place(end);
            place(m.start);
        }
        end = m.end;
        if m.flags & maps::SHARED == 0 && m.inode == 0 && !advice::is_marked(m.start, m.end) {
            each(m.start, m.end);
        }
        true
    });
    place(end);
    places
}

/// Adds what the pins leave of a mapping to `absent`. A full table is no error: the rest stays with the kernel.
fn exclude(m: &Mapping, pins: &Pins, absent: &Ranges, smallest: usize) -> usize {
    let mut total = 0;
    let mut at = m.start;
    let mut add = |start: usize, end: usize| {
        if end > start && end - start >= smallest && absent.push(start, end, m.flags & maps::EXECUTABLE != 0)
        {
            total += end - start;
        }
    };
    for &(start, end) in &pins.range[..pins.len] {
        if end <= at || start >= m.end || !pins.may_split(start.max(at), end.min(m.end)) {
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
