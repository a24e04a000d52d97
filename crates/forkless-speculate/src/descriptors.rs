//! A speculative child's descriptors.
//!
//! An inherited descriptor shares its open file description with the parent. So a descriptor is
//! **private** only if the child opened it since the fork. A private descriptor is **usable** if
//! nobody else can notice that it is read or written.
//!
//! One descriptor may be the library's own: the **hidden** one. The program must not find it. Nor
//! may the program get other numbers because it is there.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forkless_sys::Errno;
use forkless_sys::fd::{CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE};

/// Descriptors that the tables cover. Higher ones count as inherited.
const TRACKED: usize = 4096;

/// One bit a descriptor.
struct Set([AtomicU64; TRACKED / 64]);

impl Set {
    fn has(&self, fd: usize) -> bool {
        self.0.get(fd / 64).is_some_and(|word| word.load(Relaxed) & 1 << (fd % 64) != 0)
    }

    fn put(&self, fd: usize, on: bool) {
        let Some(word) = self.0.get(fd / 64) else { return };
        let bit = 1 << (fd % 64);
        let now = word.load(Relaxed);
        let new = if on { now | bit } else { now & !bit };
        // A store that changes nothing would copy the page.
        if new != now {
            word.store(new, Relaxed);
        }
    }
}

/// A child's descriptors, as far as they are known. All zeros at first: all are inherited.
pub struct Descriptors {
    private: Set,
    usable: Set,
}

/// The program would have got another answer without the hidden descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collision;

impl Descriptors {
    /// All are inherited.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Descriptors {
        Descriptors {
            private: Set([const { AtomicU64::new(0) }; TRACKED / 64]),
            usable: Set([const { AtomicU64::new(0) }; TRACKED / 64]),
        }
    }

    /// Whether a register names a descriptor that the child opened since the fork.
    pub fn is_private(&self, fd: usize) -> bool {
        self.private.has(number(fd))
    }

    /// Whether a register names a descriptor whose reads and writes nobody else can notice.
    pub fn is_usable(&self, fd: usize) -> bool {
        self.usable.has(number(fd))
    }

    fn set(&self, fd: usize, is_private: bool, is_usable: bool) {
        self.private.put(fd, is_private);
        self.usable.put(fd, is_usable);
    }

    /// The kernel has answered a call for the lowest free number from `lowest` on.
    pub fn opened(
        &self,
        answer: isize,
        lowest: usize,
        is_usable: bool,
        hidden: Option<i32>,
    ) -> Result<(), Collision> {
        no_collision(answer, lowest, hidden)?;
        if answer >= 0 {
            self.set(answer as usize, true, is_usable);
        }
        Ok(())
    }

    /// The kernel has answered a call for a copy of `from`. A copy is as private as its original.
    pub fn duplicated(
        &self,
        answer: isize,
        from: usize,
        lowest: usize,
        hidden: Option<i32>,
    ) -> Result<(), Collision> {
        no_collision(answer, lowest, hidden)?;
        if answer >= 0 {
            self.replaced(from, answer as usize);
        }
        Ok(())
    }

    /// `to` is a copy of `from` now.
    pub fn replaced(&self, from: usize, to: usize) {
        if number(from) != number(to) {
            self.set(number(to), self.is_private(from), self.is_usable(from));
        }
    }

    /// A number is closed.
    pub fn closed(&self, fd: usize) {
        self.set(number(fd), false, false);
    }

    /// A range of numbers is closed, or only marked close-on-exec.
    pub fn closed_range(&self, range: &CloseRange) {
        if !range.closes() {
            return;
        }
        for fd in range.first as usize..=(range.last as usize).min(TRACKED - 1) {
            self.set(fd, false, false);
        }
    }
}

/// A descriptor is an int, in the lower half of a register.
fn number(fd: usize) -> usize {
    fd as u32 as usize
}

/// The hidden descriptor may be the one too many, or have a number that the program would have got.
fn no_collision(answer: isize, lowest: usize, hidden: Option<i32>) -> Result<(), Collision> {
    let Some(hidden) = hidden.map(|fd| fd as isize) else { return Ok(()) };
    let too_many = answer == -(Errno::EMFILE.raw() as isize);
    if too_many || (answer > hidden && lowest as isize <= hidden) { Err(Collision) } else { Ok(()) }
}

/// A `close_range` of the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloseRange {
    /// The first number.
    pub first: u32,
    /// The last number.
    pub last: u32,
    /// `CLOSE_RANGE_*`.
    pub flags: u32,
}

impl CloseRange {
    /// Whether it closes, and does not only mark close-on-exec.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.flags & CLOSE_RANGE_CLOEXEC == 0
    }

    /// Whether the kernel knows all flags.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) == 0
    }

    /// The ranges to close below and above the hidden descriptor. `None`: it is not among them. An
    /// empty range is left out.
    #[must_use]
    pub fn around(&self, hidden: Option<i32>) -> Option<[Option<CloseRange>; 2]> {
        let hidden = hidden.map(|fd| fd as u32).filter(|fd| (self.first..=self.last).contains(fd))?;
        let below = hidden.checked_sub(1).filter(|last| self.first <= *last);
        let above = hidden.checked_add(1).filter(|first| *first <= self.last);
        let below = below.map(|last| CloseRange { last, ..*self });
        let above = above.map(|first| CloseRange { first, ..*self });
        self.closes().then_some([below, above])
    }
}

/// Follows the name of a file, and tells the number that a part of the name is. A part with the
/// hidden descriptor's number may lead to that descriptor: some directories have a link for each.
pub struct Parts {
    number: Option<usize>,
}

impl Parts {
    /// At the beginning of a name.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a beginning is no default")]
    pub fn new() -> Parts {
        Parts { number: Some(0) }
    }

    /// Reads the next byte, 0 at the end. Returns the number that a part ends with here.
    pub fn read(&mut self, byte: u8) -> Option<usize> {
        let before = self.number;
        self.number = match byte {
            0 | b'/' => Some(0),
            digit @ b'0'..=b'9' => before.map(|n| n.wrapping_mul(10).wrapping_add(usize::from(digit - b'0'))),
            _ => None,
        };
        before.filter(|_| matches!(byte, 0 | b'/'))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const HIDDEN: Option<i32> = Some(240);
    const EMFILE: isize = -24;

    #[test]
    fn a_descriptor_is_private_from_its_opening_to_its_closing() {
        let all = Descriptors::new();
        assert!(!all.is_private(5));
        assert_eq!(all.opened(5, 0, true, HIDDEN), Ok(()));
        assert!(all.is_private(5) && all.is_usable(5));
        assert_eq!(all.duplicated(6, 5, 0, HIDDEN), Ok(()));
        assert_eq!(all.duplicated(7, 0, 0, HIDDEN), Ok(()));
        assert!(all.is_usable(6) && !all.is_private(7), "a copy of an inherited one");
        all.replaced(0, 5);
        all.closed(6);
        assert!(!all.is_private(5) && !all.is_private(6));
        // Closed by itself, and onto itself.
        all.opened(9, 0, false, HIDDEN).expect("no collision");
        all.replaced(9, 9);
        assert!(all.is_private(9) && !all.is_usable(9));
    }

    #[test]
    fn the_kernel_looks_at_the_lower_half_of_a_register() {
        let all = Descriptors::new();
        all.opened(5, 0, true, None).expect("no collision");
        assert!(all.is_usable(5 | 7 << 32));
        assert!(!all.is_private(usize::MAX) && !all.is_private(TRACKED));
    }

    #[test]
    fn what_the_hidden_descriptor_changes_is_a_collision() {
        let all = Descriptors::new();
        assert_eq!(all.opened(EMFILE, 0, true, HIDDEN), Err(Collision));
        assert_eq!(all.opened(241, 0, true, HIDDEN), Err(Collision));
        assert_eq!(all.duplicated(241, 0, 240, HIDDEN), Err(Collision));
        assert_eq!(all.duplicated(300, 0, 241, HIDDEN), Ok(()), "numbers above it were asked for");
        assert_eq!(all.opened(239, 0, true, HIDDEN), Ok(()));
        assert_eq!(all.opened(EMFILE, 0, true, None), Ok(()));
        assert_eq!(all.opened(-2, 0, true, HIDDEN), Ok(()), "any other error");
    }

    fn numbers(name: &[u8]) -> std::vec::Vec<usize> {
        let mut parts = Parts::new();
        name.iter().chain(&[0]).filter_map(|byte| parts.read(*byte)).collect()
    }

    #[test]
    fn parts_of_names_that_are_numbers_are_told() {
        assert_eq!(numbers(b"/proc/self/fd/240"), [0, 240]);
        assert_eq!(numbers(b"/proc/77/fd/240/x"), [0, 77, 240]);
        assert_eq!(numbers(b"0240"), [240]);
        assert_eq!(numbers(b"a240/240a/2 40"), []);
    }

    proptest! {
        #[test]
        fn a_range_is_closed_but_for_the_hidden_descriptor(
            first in 0u32..300, length in 0u32..300, hidden in prop::option::of(0i32..400)
        ) {
            let range = CloseRange { first, last: first + length, flags: 0 };
            let expected: BTreeSet<u32> =
                (range.first..=range.last).filter(|fd| Some(*fd as i32) != hidden).collect();
            let parts = range.around(hidden).unwrap_or([Some(range), None]);
            let closed: BTreeSet<u32> =
                parts.iter().flatten().flat_map(|part| part.first..=part.last).collect();
            prop_assert_eq!(closed, expected);
            let all = Descriptors::new();
            (0..700).for_each(|fd| all.opened(fd, 0, true, None).expect("nothing is hidden"));
            all.closed_range(&range);
            for fd in 0..700 {
                prop_assert_eq!(all.is_private(fd), !(range.first..=range.last).contains(&(fd as u32)));
            }
        }
    }
}
