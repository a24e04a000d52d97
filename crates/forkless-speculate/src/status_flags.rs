//! Status flags (`fcntl(F_SETFL)`) of open file descriptions that a speculative child shares.
//!
//! A child that sets the flags that are set changes nothing. A change of `O_NONBLOCK` is postponed:
//! the kernel gets it when the child executes a program. Until then the child itself sees the
//! changed flags, and nobody else does. Every other change may be noticed, or refused by the file.
//!
//! Nothing but reading, writing and the flags themselves depends on `O_NONBLOCK`, and the policy
//! allows neither of the first two on an inherited description.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

/// What `F_SETFL` can change (fs/fcntl.c, `SETFL_MASK` and `FASYNC`). It ignores other bits.
const SETTABLE: u32 = k::O_APPEND | k::O_NONBLOCK | k::O_DIRECT | k::O_NOATIME | k::FASYNC;

/// Descriptions whose changes are change. Programs look after standard input, output and error.
const ROOM: usize = 4;

/// The changes that a child has made. All zeros: none.
pub struct StatusFlags([Postponed; ROOM]);

struct Postponed {
    /// The descriptor, plus 1. 0: the entry is free.
    number: AtomicU32,
    /// The flags before the first change.
    before: AtomicU32,
    /// The flags that the child has set.
    wanted: AtomicU32,
    /// Whether the kernel has them: an exec has failed since.
    is_given: AtomicBool,
}

/// A change that may be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noticed;

impl StatusFlags {
    /// No changes.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> StatusFlags {
        StatusFlags(
            [const {
                Postponed {
                    number: AtomicU32::new(0),
                    before: AtomicU32::new(0),
                    wanted: AtomicU32::new(0),
                    is_given: AtomicBool::new(false),
                }
            }; ROOM],
        )
    }

    fn postponed(&self) -> impl Iterator<Item = &Postponed> {
        self.0.iter().filter(|change| change.number.load(Relaxed) != 0)
    }

    /// The entry for the description of `fd`. `is_same` tells whether `fd` and another descriptor
    /// have one description.
    fn find<E>(&self, fd: u32, is_same: impl Fn(u32) -> Result<bool, E>) -> Result<Option<&Postponed>, E> {
        for change in self.postponed() {
            if change.fd() == fd || is_same(change.fd())? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// The flags that the child sees, where the kernel says `now`.
    ///
    /// # Errors
    /// As `is_same`.
    pub fn seen<E>(&self, fd: u32, now: u32, is_same: impl Fn(u32) -> Result<bool, E>) -> Result<u32, E> {
        Ok(self.find(fd, is_same)?.map_or(now, |change| change.seen(now)))
    }

    /// Postpones what the child sets, where the kernel says `now`.
    ///
    /// # Errors
    /// The change may be noticed, or it cannot be told (`is_same`).
    pub fn set<E>(
        &self,
        fd: u32,
        now: u32,
        wanted: u32,
        is_same: impl Fn(u32) -> Result<bool, E>,
    ) -> Result<(), Noticed> {
        // F_SETFL of an O_PATH descriptor fails (fs/fcntl.c, check_fcntl_cmd).
        if now & k::O_PATH != 0 {
            return Err(Noticed);
        }
        let known = self.find(fd, is_same).map_err(|_| Noticed)?;
        let changed = (known.map_or(now, |change| change.seen(now)) ^ wanted) & SETTABLE;
        if changed == 0 {
            return Ok(());
        }
        if changed & !k::O_NONBLOCK != 0 {
            return Err(Noticed);
        }
        let free = || self.0.iter().find(|change| change.number.load(Relaxed) == 0);
        let entry = match known {
            Some(change) => change,
            None => {
                let change = free().ok_or(Noticed)?;
                change.before.store(now, Relaxed);
                change
            }
        };
        entry.wanted.store(wanted, Relaxed);
        entry.is_given.store(false, Relaxed);
        entry.number.store(fd + 1, Relaxed);
        Ok(())
    }

    /// Whether a change was made by one of these descriptors. It must stay until an exec.
    #[must_use]
    pub fn needs(&self, first: u32, last: u32) -> bool {
        self.postponed().any(|change| (first..=last).contains(&change.fd()))
    }

    /// At exec: the kernel gets what it does not have. `give` sets a descriptor's flags.
    ///
    /// # Errors
    /// As `give`.
    pub fn give<E>(&self, mut give: impl FnMut(u32, u32) -> Result<(), E>) -> Result<(), E> {
        for change in self.postponed().filter(|change| !change.is_given.load(Relaxed)) {
            give(change.fd(), change.wanted.load(Relaxed))?;
            change.is_given.store(true, Relaxed);
        }
        Ok(())
    }

    /// The child is undone after an exec that failed. `back` puts back a descriptor's flags.
    pub fn take_back(&self, mut back: impl FnMut(u32, u32)) {
        for change in self.postponed().filter(|change| change.is_given.load(Relaxed)) {
            back(change.fd(), change.before.load(Relaxed));
        }
    }
}

impl Postponed {
    fn fd(&self) -> u32 {
        self.number.load(Relaxed) - 1
    }

    fn seen(&self, now: u32) -> u32 {
        if self.is_given.load(Relaxed) { now } else { now & !SETTABLE | self.wanted.load(Relaxed) & SETTABLE }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const WRITES: u32 = k::O_WRONLY | 0x8000;
    const WAITS: u32 = k::O_NONBLOCK;

    fn alone(_: u32) -> Result<bool, ()> {
        Ok(false)
    }

    fn given(flags: &StatusFlags) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        let given: Result<(), ()> = flags.give(|fd, flags| {
            all.push((fd, flags));
            Ok(())
        });
        given.expect("no error");
        all
    }

    #[test]
    fn flags_that_are_set_change_nothing() {
        let flags = StatusFlags::new();
        assert_eq!(flags.set(1, WRITES | k::O_APPEND, k::O_APPEND, alone), Ok(()));
        // Bits that F_SETFL ignores.
        assert_eq!(flags.set(1, WRITES, k::O_RDWR | k::O_CREAT | k::O_CLOEXEC, alone), Ok(()));
        assert_eq!(given(&flags), []);
        assert!(!flags.needs(0, u32::MAX));
    }

    #[test]
    fn a_change_of_waiting_is_postponed_and_seen_by_the_child_alone() {
        let flags = StatusFlags::new();
        assert_eq!(flags.set(1, WRITES | WAITS, WRITES, alone), Ok(()));
        assert_eq!(flags.seen(1, WRITES | WAITS, alone), Ok(WRITES));
        // By another number of the same description, and by one of another description.
        assert_eq!(flags.seen(6, WRITES | WAITS, |fd| Ok::<_, ()>(fd == 1)), Ok(WRITES));
        assert_eq!(flags.seen(7, WRITES | WAITS, alone), Ok(WRITES | WAITS));
        assert!(flags.needs(0, 1) && !flags.needs(2, 9));
        assert_eq!(given(&flags), [(1, WRITES)]);
        assert_eq!(given(&flags), [], "once");
        flags.take_back(|fd, before| assert_eq!((fd, before), (1, WRITES | WAITS)));
    }

    #[test]
    fn what_was_given_in_vain_is_the_kernels_from_then_on() {
        let flags = StatusFlags::new();
        assert_eq!(flags.set(1, WRITES | WAITS, WRITES, alone), Ok(()));
        assert_eq!(given(&flags), [(1, WRITES)]);
        // Somebody else has changed them since.
        assert_eq!(flags.seen(1, WRITES | WAITS, alone), Ok(WRITES | WAITS));
        assert_eq!(flags.set(1, WRITES, WRITES | WAITS, alone), Ok(()));
        assert_eq!(given(&flags), [(1, WRITES | WAITS)]);
    }

    #[test]
    fn every_other_change_is_noticed() {
        let flags = StatusFlags::new();
        for change in [k::O_APPEND, k::O_DIRECT, k::O_NOATIME, k::FASYNC, k::O_APPEND | WAITS] {
            assert_eq!(flags.set(1, WRITES, WRITES | change, alone), Err(Noticed), "{change:o}");
        }
        assert_eq!(flags.set(1, k::O_PATH, k::O_PATH, alone), Err(Noticed));
        for fd in 0..ROOM as u32 {
            assert_eq!(flags.set(fd, 0, WAITS, alone), Ok(()));
        }
        assert_eq!(flags.set(9, 0, WAITS, alone), Err(Noticed), "no room");
        assert_eq!(flags.set(9, 0, WAITS, |_| Err(())), Err(Noticed), "it cannot be told");
    }

    proptest! {
        /// As a kernel does it with one description for each number.
        #[test]
        fn a_child_sees_what_it_has_set(sets in prop::collection::vec((0u32..3, any::<bool>()), 0..20)) {
            let (flags, mut model) = (StatusFlags::new(), [WRITES; 3]);
            for (fd, waits) in sets {
                let wanted = if waits { WRITES | WAITS } else { WRITES };
                prop_assert_eq!(flags.set(fd, WRITES, wanted, alone), Ok(()));
                model[fd as usize] = wanted;
                for fd in 0..3 {
                    prop_assert_eq!(flags.seen(fd, WRITES, alone), Ok(model[fd as usize]));
                }
            }
            let mut kernel = [WRITES; 3];
            given(&flags).iter().for_each(|(fd, flags)| kernel[*fd as usize] = *flags);
            prop_assert_eq!(kernel, model);
        }
    }
}
