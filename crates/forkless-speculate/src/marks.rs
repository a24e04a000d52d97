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

const ROOM: usize = 1024;

/// Where mappings without a mark begin, and where they ended. All zeros at first.
pub struct Seen {
    count: AtomicUsize,
    at: [(AtomicUsize, AtomicUsize); ROOM],
}

impl Seen {
    /// No mapping.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Seen {
        Seen { count: AtomicUsize::new(0), at: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; ROOM] }
    }

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

    /// Whether a mapping that was tested is still one mapping from end to end.
    pub fn has(&self, m: &Mapping) -> bool {
        let (start, end) = self.place(m.start);
        start.load(Relaxed) == m.start && end.load(Relaxed) <= m.end
    }

    /// Remembers a mapping without a mark.
    pub fn add(&self, m: &Mapping) {
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
/// place. Another thread may unmap some pages below the border while the others get the mark. Of a
/// single page there are no others.
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
}

/// Whether a mapping has a mark. `None`: that cannot be told, and the mapping is unchanged.
///
/// Only "split" is evidence. A refused call also looks like "whole" (a filter, memory short for a
/// moment). And a flag of the library's that stayed would take the memory from every later child.
/// So "whole" is asked again. Either answer about `MADV_DONTFORK` needs a "split": after the flag
/// is set, or after it is taken away. An answer about `MADV_WIPEONFORK` rests on two questions.
/// With a third and a fourth, every mapping would cost more calls.
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
    // Refused in a process with as many mappings as it may have. Also where another thread has
    // unmapped a page of the part: then its other pages got the mark.
    if advise(MADV_DONTFORK).is_err() {
        if is_split() {
            let _ = retry(|| advise(MADV_DOFORK));
        }
        return None;
    }
    let was_unmarked = is_split();
    let _ = retry(|| advise(MADV_DOFORK));
    if !was_unmarked {
        // A mapping with the mark is split now, and says so at the first question. The tries are
        // for answers that are refused: without them the mark would be lost.
        if !(0..TRIES).any(|_| ask() == Ok(true)) {
            return None;
        }
        let _ = retry(|| advise(MADV_DONTFORK));
        // With the mark it is one mapping again. Else another thread has changed it meanwhile. No
        // other answer is evidence: locked memory never says that it is one.
        if ask() == Ok(true) {
            let _ = retry(|| advise(MADV_DOFORK));
            return None;
        }
        return Some(true);
    }
    let kept = advise(MADV_KEEPONFORK);
    // Droppable memory, which has `MADV_WIPEONFORK` for good (mm/madvise.c,
    // `madvise_vma_behavior`).
    if kept == Err(Errno::EINVAL) {
        return Some(true);
    }
    if !is_split() {
        return kept.is_ok().then_some(false);
    }
    let _ = retry(|| advise(MADV_WIPEONFORK));
    // As above: another thread has unmapped a page at the border.
    if ask() == Ok(true) {
        let _ = retry(|| advise(MADV_KEEPONFORK));
        return None;
    }
    Some(true)
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
        }
        for dontfork in [false, true] {
            let flags = Flags { dontfork, ..Flags::default() };
            let locked = Locked(Memory::of(flags, Vec::new()));
            assert_eq!(look(&locked), Some(dontfork));
            assert_eq!(locked.0.below.get(), flags);
        }
    }

    /// Another thread puts another mapping there, in the midst of the questions: it is not split
    /// first, and then it is.
    #[test]
    fn a_mapping_that_is_replaced_meanwhile_gets_no_mark() {
        struct Replaced {
            answers: RefCell<Vec<bool>>,
            last: Cell<u32>,
        }
        impl Part for Replaced {
            fn advise(&self, advice: u32) -> Result<()> {
                self.last.set(advice);
                Ok(())
            }
            fn is_split(&self) -> Result<bool> {
                Ok(self.answers.borrow_mut().pop().unwrap_or(true))
            }
        }
        let replaced = Replaced { answers: RefCell::new(std::vec![false; 3]), last: Cell::new(0) };
        assert_eq!(look(&replaced), None);
        assert_eq!(replaced.last.get(), MADV_DOFORK);
    }

    /// Another thread has unmapped a page below the border: an advice says ENOMEM, and the other
    /// pages follow it.
    #[test]
    fn a_part_with_a_hole_keeps_its_flags() {
        struct WithHole {
            memory: Memory,
            hole_from: u32,
        }
        impl Part for WithHole {
            fn advise(&self, advice: u32) -> Result<()> {
                self.memory.advise(advice)?;
                let is_there = advice >= self.hole_from;
                if is_there { Err(Errno::ENOMEM) } else { Ok(()) }
            }
            fn is_split(&self) -> Result<bool> {
                self.memory.is_split()
            }
        }
        for hole_from in [MADV_DONTFORK, MADV_KEEPONFORK] {
            let part = WithHole { memory: Memory::of(Flags::default(), Vec::new()), hole_from };
            assert_eq!(look(&part), None);
            assert_eq!(part.memory.below.get(), Flags::default());
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

    #[test]
    fn more_mappings_than_there_is_room_for_are_forgotten_and_none_is_mistaken() {
        let seen = Seen::new();
        for i in 1..5000 {
            seen.add(&mapping(i * 100, i * 100 + 50));
            assert!(seen.has(&mapping(i * 100, i * 100 + 50)));
        }
        assert!((1..5000).all(|i| !seen.has(&mapping(i * 100, i * 100 + 49))));
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
