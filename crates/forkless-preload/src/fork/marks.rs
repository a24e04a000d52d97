//! Marks of the program's on memory (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MAP_DROPPABLE`) that nobody has noted: made by an instruction of its
//! own, or moved by libc itself (`realloc`).
//!
//! What the kernel lists of a mapping does not say so. But adjacent mappings are one if all their flags are the same. So a mapping of
//! which a part gets a flag becomes two, unless it has the flag. That takes seven calls, 4 us. So a mapping without a mark is not looked
//! at again unless it has shrunk or been split since, or libc may have moved a mark there.
#![expect(unsafe_code, reason = "advice that is taken back")]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use forkless_sys::maps::Mapping;
use forkless_sys::{Errno, mm, process};

use crate::insist::insist;
use crate::mappings::advice;
use crate::next;

use super::{decide, tables};

const ROOM: usize = 1024;

/// Where mappings begin that had no mark, and where they ended. All zeros at first.
pub(super) struct Seen {
    count: AtomicUsize,
    at: [(AtomicUsize, AtomicUsize); ROOM],
}

impl Seen {
    fn place(&self, start: usize) -> &(AtomicUsize, AtomicUsize) {
        let mut i = (start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        loop {
            let place = &self.at[i % ROOM];
            let known = place.0.load(Relaxed);
            if known == start || known == 0 {
                return place;
            }
            i += 1;
        }
    }

    /// Whether all that there was is still one mapping.
    fn has(&self, m: &Mapping) -> bool {
        let (start, end) = self.place(m.start);
        start.load(Relaxed) == m.start && end.load(Relaxed) <= m.end
    }

    fn add(&self, m: &Mapping) {
        // A quarter stays free, so that a search is short, and ends.
        if self.count.load(Relaxed) >= ROOM / 4 * 3 {
            self.at.iter().for_each(|(start, _)| start.store(0, Relaxed));
            self.count.store(0, Relaxed);
        }
        let (start, end) = self.place(m.start);
        if start.load(Relaxed) == 0 {
            start.store(m.start, Relaxed);
            self.count.store(self.count.load(Relaxed) + 1, Relaxed);
        }
        end.store(m.end, Relaxed);
    }
}

/// Whether the program has marked a private anonymous mapping of three pages and more. `may_split`: whether it may be two for a moment.
/// `beside_threads`: others run meanwhile. In the window, with signals blocked.
pub(super) fn has_one(
    m: &Mapping,
    beside_threads: bool,
    may_split: impl FnOnce(usize, usize) -> bool,
) -> bool {
    let seen = &tables::get().seen;
    if advice::is_marked(m.start, m.end) {
        return true;
    }
    if seen.has(m) && (!advice::any() || libc_has_not_moved(m)) {
        return false;
    }
    let border = border(m);
    if !may_split(m.start, border) {
        return false;
    }
    match look(m.start, border) {
        // A mapping that cannot be asked is left to the kernel, as one that is marked.
        None => {
            if beside_threads {
                // Our marks are then taken back on every mapping without a note.
                advice::found(m.start, m.end);
            }
            true
        }
        Some(true) => {
            // Our marks are taken back everywhere else.
            advice::found(m.start, m.end);
            true
        }
        Some(false) => {
            seen.add(m);
            false
        }
    }
}

/// Whether no mark can have come to a mapping by an mremap of glibc's own. It moves nothing but memory of malloc's that is a mapping by
/// itself, whose second word is the size and bit 1 (malloc/malloc.c, `IS_MMAPPED`). A moved mapping joins none but marked ones.
fn libc_has_not_moved(m: &Mapping) -> bool {
    const FLAGS: usize = 7;
    const IS_MMAPPED: usize = 2;
    if !next::is_glibc() || !decide::is_unfiltered() || advice::touches_in_window(m.start, m.end) {
        return false;
    }
    // Reading would map a page that is not there, and a later look take it for one of the program's.
    let mut there = [0];
    if mm::mincore(m.start, &mut there).is_err() || there[0] & 1 == 0 {
        return false;
    }
    // Another thread may unmap it meanwhile.
    let mut word = [0; 8];
    if mm::read(process::getpid(), m.start + 8, &mut word) != Ok(word.len()) {
        return false;
    }
    let size = usize::from_ne_bytes(word);
    size & FLAGS != IS_MMAPPED || !(size & !FLAGS).is_multiple_of(4096)
}

/// Where to split a mapping: not within a huge page, if there is another place.
fn border(m: &Mapping) -> usize {
    const HUGE: usize = 2 << 20;
    let aligned = (m.start + HUGE) & !(HUGE - 1);
    if aligned + 4096 < m.end { aligned } else { m.start + 4096 }
}

/// Whether a mapping has a mark. `None`: it cannot be told, and the mapping is as it was.
///
/// Only "split" (`EFAULT`) is evidence. "Whole" is also what a refused call looks like (a filter, memory short for a moment), and a
/// flag of ours that stays would take the memory from every later child. So "whole" is asked again, and either answer about
/// `MADV_DONTFORK` needs a "split": after the flag is set, or after it is taken away.
fn look(start: usize, border: usize) -> Option<bool> {
    let advise = |advice| {
        // SAFETY: says what children get, and none is made before it is taken back.
        unsafe { mm::madvise(start as *mut _, border - start, advice) }
    };
    // SAFETY: the mapping goes on behind the page after the border.
    let ask = || unsafe { mm::is_split(border - 4096, 2 * 4096) };
    let is_split = || ask() == Ok(true) || ask() == Ok(true);
    match ask() {
        // `EAGAIN`: locked memory, of which there may be no more.
        Ok(false) | Err(Errno::EAGAIN) => {}
        // Sealed (`EPERM`), or no longer one mapping.
        _ => return None,
    }
    // Refused in a process with as many mappings as it may have.
    advise(mm::MADV_DONTFORK).ok()?;
    let was_unmarked = is_split();
    let _ = insist(|| advise(mm::MADV_DOFORK));
    if !was_unmarked {
        if !is_split() {
            return None;
        }
        let _ = insist(|| advise(mm::MADV_DONTFORK));
        return Some(true);
    }
    match advise(mm::MADV_KEEPONFORK) {
        Ok(()) => {}
        // Droppable memory, which has `MADV_WIPEONFORK` for good (mm/madvise.c, `madvise_vma_behavior`).
        Err(Errno::EINVAL) => return Some(true),
        Err(_) => return None,
    }
    let was_wiped = is_split();
    if was_wiped {
        let _ = insist(|| advise(mm::MADV_WIPEONFORK));
    }
    Some(was_wiped)
}
