//! Marks of the program's on memory (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MAP_DROPPABLE`) without a
//! note: made by an instruction of its own, or moved by libc itself (`realloc`). Decision 41.
//!
//! The kernel's list of mappings does not show marks. But adjacent mappings become one if all their
//! flags are the same. So a mapping becomes two when a part of it gets a flag, unless the mapping
//! has the flag already. This test takes seven calls, 4 us. So a mapping without a mark is not
//! tested again ([`Seen`]), with two exceptions: it has shrunk or been split since, or libc may
//! have moved a mark there ([`may_have_moved`]).

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use forkless_sys::maps::Mapping;
use forkless_sys::mm::{MADV_DOFORK, MADV_DONTFORK, MADV_KEEPONFORK, MADV_WIPEONFORK};
use forkless_sys::{Errno, Result};

use crate::retry::retry;

/// A process of a thousand threads has a mapping for each stack. Each fork asks again about each
/// mapping without room, which takes some 4 us.
const ROOM: usize = 4096;
/// A quarter stays free, so that a search is short, and ends.
const MOST: usize = ROOM / 4 * 3;

/// Where mappings without a mark begin, and where they ended. All zeros at first.
pub struct Seen {
    count: AtomicUsize,
    /// Mappings without room since the table has been full.
    left_out: AtomicUsize,
    at: [(AtomicUsize, AtomicUsize); ROOM],
}

impl Seen {
    /// No mapping.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Seen {
        Seen {
            count: AtomicUsize::new(0),
            left_out: AtomicUsize::new(0),
            at: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; ROOM],
        }
    }

    fn place(&self, start: usize) -> &(AtomicUsize, AtomicUsize) {
        let mut i = (start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - ROOM.ilog2());
        loop {
            let place = &self.at[i % ROOM];
            let known = place.0.load(Relaxed);
            if known == start || known == 0 {
                return place;
            }
            i += 1;
        }
    }

    /// Whether a mapping that was tested is still one mapping from end to end.
    pub fn has(&self, m: &Mapping) -> bool {
        let (start, end) = self.place(m.start);
        start.load(Relaxed) == m.start && end.load(Relaxed) <= m.end
    }

    /// Remembers a mapping without a mark. A full table is emptied, for mappings come and go; but
    /// seldom, or a process with more mappings would be asked about each of them at each fork.
    pub fn add(&self, m: &Mapping) {
        let (start, end) = self.place(m.start);
        if start.load(Relaxed) == 0 {
            let count = self.count.load(Relaxed);
            if count >= MOST {
                let left_out = self.left_out.load(Relaxed) + 1;
                self.left_out.store(left_out, Relaxed);
                if left_out >= 8 * ROOM {
                    self.at.iter().for_each(|(start, _)| start.store(0, Relaxed));
                    self.left_out.store(0, Relaxed);
                    self.count.store(0, Relaxed);
                }
                return;
            }
            start.store(m.start, Relaxed);
            self.count.store(count + 1, Relaxed);
        }
        end.store(m.end, Relaxed);
    }
}

/// Whether glibc's malloc gives such a second word to memory that is a mapping by itself: the size,
/// with bit 1 set (malloc/malloc.c, `IS_MMAPPED`). From glibc 2.43 on the size is without that of
/// the two words. An mremap of glibc's own moves nothing else. A moved mapping joins no other but
/// marked ones.
#[must_use]
pub fn may_have_moved(second_word: usize) -> bool {
    const FLAGS: usize = 7;
    const IS_MMAPPED: usize = 2;
    const WORDS: usize = 16;
    let size = second_word & !FLAGS;
    second_word & FLAGS == IS_MMAPPED
        && [size, size.wrapping_add(WORDS)].iter().any(|s| s.is_multiple_of(4096))
}

/// Whether a block of glibc's malloc may be a mapping by itself, by where it begins: behind two
/// words, or at an alignment, which is a power of two (malloc/malloc.c, `sysmalloc_mmap`,
/// `_int_memalign`).
#[must_use]
pub const fn may_be_a_mapping(block: usize) -> bool {
    let in_page = block & 4095;
    in_page & in_page.wrapping_sub(1) == 0
}

/// The least size with which musl's malloc has a mapping for a block (mallocng/meta.h,
/// `MMAP_THRESHOLD`).
pub const SMALLEST_MAPPING_OF_MUSL: usize = 131_052;

const HUGE: usize = 2 << 20;

/// Where to split a mapping: behind its first page, but not within a huge page, if there is another
/// place.
#[must_use]
pub fn border(m: &Mapping) -> usize {
    let begins_huge = m.start.is_multiple_of(HUGE) && m.start + HUGE + 4096 < m.end;
    m.start + if begins_huge { HUGE } else { 4096 }
}

/// Where to look for a page of a mapping: from its start to here.
#[must_use]
pub fn beginning(m: &Mapping) -> usize {
    m.end.min(m.start + HUGE)
}

/// A mapping that is asked for its marks.
pub trait Part {
    /// Gives an advice about the part below the border.
    fn advise(&self, advice: u32) -> Result<()>;
    /// Whether the mapping is two, split at the border. `EAGAIN`: it cannot be told, for locked
    /// memory.
    fn is_split(&self) -> Result<bool>;
    /// Whether the mapping has a flag above the border, by its letters in smaps. `None`: that
    /// cannot be read.
    fn has_flag(&self, letters: [u8; 2]) -> Option<bool>;
}

/// The kernel's flags of the two advices (fs/proc/task_mmu.c, `show_smap_vma_flags`).
const DONT_COPY: [u8; 2] = *b"dc";
const WIPE_ON_FORK: [u8; 2] = *b"wf";

/// Whether a mapping has a mark. `None`: that cannot be told, and the mapping is unchanged.
///
/// Only "split" by a flag that was set is evidence, that there is no mark. "Whole" may be a refused
/// call (a filter, memory short for a moment), or another thread has put new memory at the border.
/// An advice may be refused where another thread has unmapped a page, and the others follow it. A
/// flag of the library's that stayed would take the memory from every later child. So in all other
/// cases the kernel's own list tells ([`Part::has_flag`]), which takes milliseconds for a gigabyte.
pub fn look(part: &impl Part) -> Option<bool> {
    const TRIES: usize = 16;
    let advise = |advice| part.advise(advice);
    let ask = || part.is_split();
    let is_split = || ask() == Ok(true) || ask() == Ok(true);
    match ask() {
        // `EAGAIN`: locked memory, and the process may lock no more.
        Ok(false) | Err(Errno::EAGAIN) => {}
        // Sealed (`EPERM`), or no longer one mapping.
        _ => return None,
    }
    // Refused also in a process with as many mappings as it may have.
    if advise(MADV_DONTFORK).is_err() || !is_split() {
        let told = part.has_flag(DONT_COPY);
        // The list could not be read. The tries are for answers that are refused, too.
        if told == Some(false) || told.is_none() && (0..TRIES).any(|_| ask() == Ok(true)) {
            let _ = retry(|| advise(MADV_DOFORK));
        }
        return told.filter(|marked| *marked);
    }
    let _ = retry(|| advise(MADV_DOFORK));
    let kept = advise(MADV_KEEPONFORK);
    // Droppable memory, which has `MADV_WIPEONFORK` for good (mm/madvise.c,
    // `madvise_vma_behavior`).
    if kept == Err(Errno::EINVAL) {
        return Some(true);
    }
    if !is_split() {
        return kept.is_ok().then_some(false);
    }
    let told = part.has_flag(WIPE_ON_FORK);
    if told != Some(false) {
        let _ = retry(|| advise(MADV_WIPEONFORK));
    }
    told.filter(|marked| *marked)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::cell::{Cell, RefCell};
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// The flags of a page that decide about children.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    struct Flags {
        dontfork: bool,
        wipeonfork: bool,
        droppable: bool,
    }

    /// A mapping as the kernel keeps it: flags below the border and above. Some calls are refused.
    struct Memory {
        below: Cell<Flags>,
        above: Flags,
        refused: RefCell<Vec<bool>>,
    }

    impl Memory {
        fn of(flags: Flags, refused: Vec<bool>) -> Memory {
            Memory { below: Cell::new(flags), above: flags, refused: RefCell::new(refused) }
        }

        fn is_refused(&self) -> bool {
            self.refused.borrow_mut().pop().unwrap_or(false)
        }
    }

    impl Part for Memory {
        fn advise(&self, advice: u32) -> Result<()> {
            if self.is_refused() {
                return Err(Errno::ENOMEM);
            }
            let now = self.below.get();
            self.below.set(match advice {
                MADV_DONTFORK => Flags { dontfork: true, ..now },
                MADV_DOFORK => Flags { dontfork: false, ..now },
                MADV_WIPEONFORK => Flags { wipeonfork: true, ..now },
                // mm/madvise.c, madvise_vma_behavior
                MADV_KEEPONFORK if now.droppable => return Err(Errno::EINVAL),
                MADV_KEEPONFORK => Flags { wipeonfork: false, ..now },
                _ => return Err(Errno::EINVAL),
            });
            Ok(())
        }

        fn is_split(&self) -> Result<bool> {
            // A call that is refused looks like a mapping that is whole.
            Ok(self.below.get() != self.above && !self.is_refused())
        }

        fn has_flag(&self, letters: [u8; 2]) -> Option<bool> {
            (!self.is_refused()).then_some(match letters {
                DONT_COPY => self.above.dontfork,
                _ => self.above.wipeonfork,
            })
        }
    }

    fn flags() -> impl Strategy<Value = Flags> {
        prop::sample::select(std::vec![
            Flags::default(),
            Flags { dontfork: true, ..Flags::default() },
            Flags { wipeonfork: true, ..Flags::default() },
            Flags { dontfork: true, wipeonfork: true, ..Flags::default() },
            Flags { wipeonfork: true, droppable: true, ..Flags::default() },
        ])
    }

    proptest! {
        #[test]
        fn a_look_tells_the_marks_and_leaves_them(flags in flags()) {
            let memory = Memory::of(flags, Vec::new());
            prop_assert_eq!(look(&memory), Some(flags != Flags::default()));
            prop_assert_eq!(memory.below.get(), flags);
        }

        /// Some calls are refused, but fewer in a row than the tries of a call that takes something
        /// back.
        #[test]
        fn a_refused_call_never_leaves_a_flag_nor_hides_a_mark(
            flags in flags(), refused in prop::collection::vec(any::<bool>(), 0..10)
        ) {
            let memory = Memory::of(flags, refused);
            let answer = look(&memory);
            prop_assert_eq!(memory.below.get().dontfork, flags.dontfork, "{:?}", answer);
            if flags.dontfork {
                prop_assert_ne!(answer, Some(false));
            }
        }
    }

    /// Locked memory of a process that may lock no more: the kernel refuses to tell that it is one
    /// mapping, but not that it is two.
    #[test]
    fn the_marks_of_locked_memory_are_told_and_stay() {
        struct Locked(Memory);
        impl Part for Locked {
            fn advise(&self, advice: u32) -> Result<()> {
                self.0.advise(advice)
            }
            fn is_split(&self) -> Result<bool> {
                if self.0.is_split()? { Ok(true) } else { Err(Errno::EAGAIN) }
            }
            fn has_flag(&self, letters: [u8; 2]) -> Option<bool> {
                self.0.has_flag(letters)
            }
        }
        for dontfork in [false, true] {
            let flags = Flags { dontfork, ..Flags::default() };
            let locked = Locked(Memory::of(flags, Vec::new()));
            assert_eq!(look(&locked), Some(dontfork));
            assert_eq!(locked.0.below.get(), flags);
        }
    }

    /// Another thread unmaps the page below the border and maps it again, all the time: what is
    /// asked there tells nothing, and an advice may say ENOMEM.
    #[derive(Debug)]
    struct Changing {
        /// Of the pages that stay, below the border.
        below: Cell<Flags>,
        above: Flags,
        /// Whether the mapping is one, question by question, and whether an advice meets a hole.
        whole: RefCell<Vec<bool>>,
        holes: RefCell<Vec<bool>>,
    }

    impl Part for Changing {
        fn advise(&self, advice: u32) -> Result<()> {
            let memory = Memory::of(self.below.get(), Vec::new());
            memory.advise(advice)?;
            self.below.set(memory.below.get());
            if self.holes.borrow_mut().pop().unwrap_or(false) { Err(Errno::ENOMEM) } else { Ok(()) }
        }
        fn is_split(&self) -> Result<bool> {
            Ok(!self.whole.borrow_mut().pop().unwrap_or(true))
        }
        fn has_flag(&self, letters: [u8; 2]) -> Option<bool> {
            Memory::of(self.above, Vec::new()).has_flag(letters)
        }
    }

    proptest! {
        #[test]
        fn memory_that_changes_meanwhile_keeps_its_flags_and_gets_none(
            is_marked in any::<bool>(),
            whole in prop::collection::vec(any::<bool>(), 0..12),
            holes in prop::collection::vec(any::<bool>(), 0..6),
        ) {
            let flags = Flags { dontfork: is_marked, ..Flags::default() };
            let part = Changing {
                below: Cell::new(flags),
                above: flags,
                whole: RefCell::new(whole),
                holes: RefCell::new(holes),
            };
            let answer = look(&part);
            // A hole at the border looks like a flag that was not there before.
            if !is_marked {
                prop_assert_ne!(answer, Some(true));
                prop_assert_eq!(part.below.get(), flags);
            }
        }
    }

    #[test]
    fn a_mapping_that_cannot_be_asked_is_left_as_it_is() {
        struct Sealed;
        impl Part for Sealed {
            fn advise(&self, _: u32) -> Result<()> {
                panic!("an advice although the mapping is not one")
            }
            fn is_split(&self) -> Result<bool> {
                Err(Errno::EPERM)
            }
            fn has_flag(&self, _: [u8; 2]) -> Option<bool> {
                None
            }
        }
        assert_eq!(look(&Sealed), None);
    }

    fn mapping(start: usize, end: usize) -> Mapping {
        Mapping { start: start << 12, end: end << 12, flags: 3, inode: 0, page_size: 4096 }
    }

    #[test]
    fn a_mapping_that_was_seen_may_grow_and_not_shrink() {
        let seen = Seen::new();
        assert!(!seen.has(&mapping(8, 16)));
        seen.add(&mapping(8, 16));
        assert!(seen.has(&mapping(8, 16)) && seen.has(&mapping(8, 20)));
        assert!(!seen.has(&mapping(8, 15)) && !seen.has(&mapping(9, 16)));
    }

    /// As many times as a process forks that has more mappings than there is room for.
    #[test]
    fn the_first_that_have_room_stay_and_none_is_mistaken() {
        let seen = Seen::new();
        let all = || (1..=MOST + 100).map(|i| mapping(i * 100, i * 100 + 50));
        for _ in 0..8 * ROOM / 100 {
            all().filter(|m| !seen.has(m)).for_each(|m| seen.add(&m));
            assert_eq!(all().filter(|m| seen.has(m)).count(), MOST);
        }
        assert!(all().all(|m| !seen.has(&Mapping { end: m.end - 4096, ..m })));
    }

    #[test]
    fn a_full_table_makes_room_in_the_end() {
        let seen = Seen::new();
        (1..=MOST).for_each(|i| seen.add(&mapping(i * 100, i * 100 + 50)));
        let later = mapping(7, 9);
        let tries = (1..).take_while(|_| {
            seen.add(&later);
            !seen.has(&later)
        });
        assert_eq!(tries.count(), 8 * ROOM);
    }

    #[test]
    fn the_border_is_inside_and_not_within_a_huge_page_if_possible() {
        for (start, end, expected) in [
            (0x001, 0x004, 0x002),
            (0x100, 0x900, 0x101),
            (0x200, 0x900, 0x400),
            (0x200, 0x401, 0x201),
            (0x200, 0x402, 0x400),
        ] {
            assert_eq!(border(&mapping(start, end)), expected << 12, "{start:x}..{end:x}");
        }
    }

    #[test]
    fn a_block_behind_two_words_or_an_alignment_may_be_a_mapping() {
        for block in [0x7000_0010, 0x7000_0020, 0x7000_0800, 0x7000_0000] {
            assert!(may_be_a_mapping(block), "{block:x}");
        }
        assert!(!may_be_a_mapping(0x7000_0030) && !may_be_a_mapping(0x7000_0ff0));
    }

    #[test]
    fn only_memory_of_mallocs_that_is_a_mapping_by_itself_may_have_moved() {
        assert!(may_have_moved(0x10_0000 | 2) && may_have_moved(0xf_fff0 | 2));
        // Not such memory; in an arena of a thread's; with bytes that are no size.
        assert!(
            !may_have_moved(0x10_0000) && !may_have_moved(0x10_0000 | 6) && !may_have_moved(0x10_0010 | 2)
        );
    }
}
