//! Close loops: programs that close, or mark close-on-exec, every number up to the limit of
//! descriptors. Which of the calls can be answered without the kernel.
//!
//! The kernel says how long its table of descriptors is (`FDSize`). No descriptor has a number
//! beyond the table. That stays so until a system call is made. So an answer needs a proof that
//! none was made since the last answer or call of the loop. The caller brings the proof: the loop
//! is then **unbroken**.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Calls for smaller numbers are the kernel's. Most limits are 1024, and such loops gain nothing.
pub const FIRST: u32 = 1024;

/// So many numbers below and above the middle are answered by a comparison. Beyond them the middle
/// moves, and the numbers are counted.
const REACH: u32 = 4096;

/// So many unbroken refusals are a loop. A look at the table costs as much as a few hundred calls.
const STREAK: u32 = 64;

/// After so many looks in vain a loop is not looked for any more: [`STREAK`] doubles each time.
const LOOKS_IN_VAIN: u32 = 20;

/// The numbers that are known to have no descriptor: `first..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    first: u32,
    end: u32,
}

impl Numbers {
    const NONE: u64 = 0;

    fn around(middle: u32, floor: u32) -> Numbers {
        const PAST_LAST: u32 = 1 << 31;
        Numbers {
            first: middle.saturating_sub(REACH).max(floor),
            end: middle.saturating_add(REACH).min(PAST_LAST),
        }
    }

    fn bits(self) -> u64 {
        u64::from(self.first) | u64::from(self.end) << 32
    }
}

/// What is known of a process's close loop. All zeros at first.
///
/// Threads may change it at the same time: then the process has threads, and nothing is learnt.
#[repr(C)]
pub struct CloseLoop {
    /// [`Numbers`]. Assembly reads it: the first in the lower half, the end in the upper.
    known: AtomicU64,
    /// No descriptor has this number or a higher one. Counts while numbers are known.
    floor: AtomicU32,
    /// The middle of the numbers; how far they are counted.
    middle: AtomicU32,
    /// The last number that the kernel refused.
    refused: AtomicU32,
    streak: AtomicU32,
    /// No look before this number: the table was longer.
    not_before: AtomicU32,
    in_vain: AtomicU32,
}

/// What to do about a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// The kernel is asked.
    Make,
    /// The answer is `EBADF`. So many more numbers have been answered.
    Answer(u32),
}

impl CloseLoop {
    /// Nothing is known.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> CloseLoop {
        CloseLoop {
            known: AtomicU64::new(Numbers::NONE),
            floor: AtomicU32::new(0),
            middle: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            streak: AtomicU32::new(0),
            not_before: AtomicU32::new(0),
            in_vain: AtomicU32::new(0),
        }
    }

    /// A call for a number that is not among those answered by a comparison.
    pub fn call(&self, fd: u32, is_unbroken: bool) -> Call {
        if !is_unbroken {
            self.forget();
            return Call::Make;
        }
        let is_number = i32::try_from(fd).is_ok();
        if self.known.load(Relaxed) == Numbers::NONE || fd < self.floor.load(Relaxed) || !is_number {
            return Call::Make;
        }
        self.in_vain.store(0, Relaxed);
        let more = fd.abs_diff(self.middle.load(Relaxed));
        self.know_around(fd);
        Call::Answer(more)
    }

    /// The kernel has refused a number. Whether the table is worth a look.
    pub fn refused(&self, fd: u32, is_unbroken: bool) -> bool {
        let is_next = fd.abs_diff(self.refused.load(Relaxed)) <= 1;
        let streak = if is_unbroken && is_next { self.streak.load(Relaxed) + 1 } else { 0 };
        self.refused.store(fd, Relaxed);
        self.streak.store(streak, Relaxed);
        let in_vain = self.in_vain.load(Relaxed);
        let is_worth_it = in_vain < LOOKS_IN_VAIN
            && streak >= STREAK << in_vain
            && fd >= self.not_before.load(Relaxed)
            && self.known.load(Relaxed) == Numbers::NONE;
        if is_worth_it {
            self.streak.store(0, Relaxed);
        }
        is_worth_it
    }

    /// A look has told the length of the table, or that nothing may be answered (`None`).
    pub fn looked(&self, fd: u32, table: Option<u32>) {
        let floor = table.map_or(u32::MAX, |table| table.max(FIRST));
        self.not_before.store(if table.is_some() { floor } else { 0 }, Relaxed);
        if fd < floor {
            // A longer table is no failure: the loop is looked at once more, past the table.
            self.in_vain.fetch_add(u32::from(table.is_none()), Relaxed);
            return;
        }
        self.in_vain.fetch_add(1, Relaxed);
        self.floor.store(floor, Relaxed);
        self.know_around(fd);
    }

    fn know_around(&self, fd: u32) {
        self.middle.store(fd, Relaxed);
        self.known.store(Numbers::around(fd, self.floor.load(Relaxed)).bits(), Relaxed);
    }

    /// A system call may have been made since.
    pub fn forget(&self) {
        // A store that changes nothing would copy the page in a child.
        if self.known.load(Relaxed) != Numbers::NONE {
            self.known.store(Numbers::NONE, Relaxed);
        }
        if self.not_before.load(Relaxed) != 0 {
            self.not_before.store(0, Relaxed);
        }
    }

    /// From here on the kernel is asked for every number.
    pub fn give_up(&self) {
        self.forget();
        self.in_vain.store(LOOKS_IN_VAIN, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    const TABLE: u32 = 64;

    impl CloseLoop {
        fn knows(&self, fd: u32) -> bool {
            let known = self.known.load(Relaxed);
            (known as u32..(known >> 32) as u32).contains(&fd)
        }

        /// A loop's calls, the first of which finds the loop broken. How many the kernel got.
        fn made(&self, numbers: impl Iterator<Item = u32>, table: Option<u32>) -> u32 {
            let (mut made, mut is_unbroken) = (0, false);
            for fd in numbers {
                if !self.knows(fd) && self.call(fd, is_unbroken) == Call::Make {
                    made += 1;
                    if self.refused(fd, is_unbroken) {
                        self.looked(fd, table);
                    }
                }
                is_unbroken = true;
            }
            made
        }
    }

    #[test]
    fn a_loop_upwards_is_answered_and_counted() {
        let state = CloseLoop::new();
        assert_eq!(state.made(FIRST..FIRST + 65, Some(TABLE)), 65);
        let mut counted = 0;
        for fd in FIRST + 65..1 << 20 {
            if !state.knows(fd) {
                match state.call(fd, true) {
                    Call::Answer(more) => counted += more,
                    Call::Make => panic!("{fd} went to the kernel"),
                }
            }
        }
        assert!(((1 << 20) - 3 * REACH..1 << 20).contains(&counted), "{counted}");
    }

    #[test]
    fn so_is_a_loop_downwards_to_the_first_number_or_the_tables_end() {
        assert_eq!(CloseLoop::new().made((FIRST..1 << 20).rev(), Some(TABLE)), 65);
        assert_eq!(CloseLoop::new().made((FIRST..1 << 20).rev(), Some(4096)), 65 + 4096 - FIRST);
    }

    #[test]
    fn two_calls_for_each_number_are_a_loop() {
        let twice = (FIRST..1 << 16).flat_map(|fd| [fd, fd]);
        assert!(CloseLoop::new().made(twice, Some(TABLE)) <= 65);
    }

    #[test]
    fn numbers_in_the_table_are_the_kernels() {
        let state = CloseLoop::new();
        assert_eq!(state.made(FIRST..1 << 20, Some(1 << 14)), (1 << 14) - FIRST + 1);
        assert!(!state.knows((1 << 14) - 1));
    }

    #[test]
    fn a_loop_that_is_broken_is_learnt_anew() {
        let state = CloseLoop::new();
        state.made(FIRST..5000, Some(TABLE));
        assert!(state.knows(5000));
        assert_eq!(state.call(20_000, false), Call::Make);
        assert!(!state.knows(5000) && !state.knows(20_000));
        assert_eq!(state.call(20_000, true), Call::Make, "known before, and forgotten");
    }

    #[test]
    fn no_number_is_negative() {
        let state = CloseLoop::new();
        let top = i32::MAX as u32;
        state.made(top - 100..top, Some(TABLE));
        assert!(state.knows(top) && !state.knows(top + 1));
        assert_eq!(state.call(top + 1, true), Call::Make);
        assert_eq!(state.call(u32::MAX, true), Call::Make);
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let state = CloseLoop::new();
        let looks = |rounds: u32| {
            let before = state.in_vain.load(Relaxed);
            for _ in 0..rounds {
                state.made(FIRST..FIRST + 80, Some(TABLE));
            }
            state.in_vain.load(Relaxed) - before
        };
        assert_eq!(looks(1000), 1, "what was learnt served nothing");
        let state = CloseLoop::new();
        state.give_up();
        assert_eq!(state.made(FIRST..1 << 16, Some(TABLE)), (1 << 16) - FIRST);
    }

    /// Calls of a program beside a model of the kernel's table.
    #[derive(Clone, Debug)]
    enum Do {
        Loop(u32, u32),
        Open(u32),
        Close(u32),
    }

    fn act() -> impl Strategy<Value = Do> {
        const ALL: Range<u32> = FIRST..40_000;
        prop_oneof![
            (ALL, 1u32..9000).prop_map(|(from, count)| Do::Loop(from, count)),
            ALL.prop_map(Do::Open),
            ALL.prop_map(Do::Close),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
        #[test]
        fn no_open_descriptor_is_denied(acts in prop::collection::vec(act(), 1..20)) {
            let state = CloseLoop::new();
            let mut open = BTreeSet::new();
            let mut table = TABLE;
            let mut is_unbroken = false;
            for act in acts {
                let numbers = match act {
                    Do::Open(fd) => {
                        open.insert(fd);
                        table = table.max((fd + 1).next_power_of_two());
                        is_unbroken = false;
                        continue;
                    }
                    Do::Close(fd) => fd..fd + 1,
                    Do::Loop(from, count) => from..from + count,
                };
                for fd in numbers {
                    if is_unbroken && state.knows(fd) || state.call(fd, is_unbroken) != Call::Make {
                        prop_assert!(!open.contains(&fd), "{} is open", fd);
                    } else if !open.remove(&fd) && state.refused(fd, is_unbroken) {
                        state.looked(fd, Some(table));
                    }
                    is_unbroken = true;
                }
            }
        }
    }
}
