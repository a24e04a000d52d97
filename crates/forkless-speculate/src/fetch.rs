//! Which memory a speculative child fetches from its parent: clusters of pages, some ahead, within
//! a budget.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::exclusions::Ranges;

/// Bytes of a cluster, sixteen pages: a fault costs 3 us in signal and mapping, a page 0.5 us.
pub const CLUSTER: usize = 64 << 10;

/// The most clusters that one fetch brings, where faults go upwards.
const AHEAD: usize = 16;

/// The most clusters of a child, 64 MB. A child that needs more is no speculation any more.
const TRACKED: usize = 1024;

/// Clusters that a child has fetched: an open-addressed set. All zeros at first.
///
/// An entry is the cluster's address, with the position of its range plus one in the low bits. Two
/// ranges may meet inside one cluster.
pub struct Clusters([AtomicUsize; TRACKED]);

/// How far a child's fetches have come. Apart from [`Clusters`], because the child has written this
/// page already.
pub struct Progress {
    /// Clusters fetched.
    count: AtomicUsize,
    /// Where the last fetch ended, and how many clusters it brought.
    last_end: AtomicUsize,
    streak: AtomicUsize,
}

impl Progress {
    /// Nothing is fetched.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Progress {
        Progress { count: AtomicUsize::new(0), last_end: AtomicUsize::new(0), streak: AtomicUsize::new(0) }
    }
}

/// The bytes to fetch for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// The parent has nothing there that the child lacks.
    Nothing,
    /// These bytes.
    Range {
        /// First address.
        start: usize,
        /// First address after it.
        end: usize,
        /// Whether they are executable.
        is_executable: bool,
    },
    /// More clusters than a child may have.
    TooMuch,
}

impl Clusters {
    /// None is fetched.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Clusters {
        Clusters([const { AtomicUsize::new(0) }; TRACKED])
    }

    /// Chooses the clusters to fetch for a fault at `addr`, and remembers them as fetched.
    pub fn fetch(&self, progress: &Progress, absent: &Ranges, addr: usize) -> Fetch {
        let Some(range) = absent.find(addr) else { return Fetch::Nothing };
        let (low, high, is_executable) = absent.get(range);
        let first = addr & !(CLUSTER - 1);
        if self.has(first, range) {
            return Fetch::Nothing;
        }
        let goes_on = first == progress.last_end.load(Relaxed);
        let wanted = if goes_on { (progress.streak.load(Relaxed) * 2).min(AHEAD) } else { 1 };
        let mut n = 1;
        while n < wanted && first + n * CLUSTER < high && !self.has(first + n * CLUSTER, range) {
            n += 1;
        }
        progress.streak.store(n, Relaxed);
        progress.last_end.store(first + n * CLUSTER, Relaxed);
        for i in 0..n {
            if !self.add(progress, first + i * CLUSTER, range) {
                return Fetch::TooMuch;
            }
        }
        Fetch::Range { start: first.max(low), end: (first + n * CLUSTER).min(high), is_executable }
    }

    /// The place of a key, or the free one where it would be.
    fn place(&self, key: usize) -> Result<&AtomicUsize, &AtomicUsize> {
        let mut i = (key >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        loop {
            let place = &self.0[i % TRACKED];
            match place.load(Relaxed) {
                0 => return Err(place),
                known if known == key => return Ok(place),
                _ => i += 1,
            }
        }
    }

    fn has(&self, cluster: usize, range: usize) -> bool {
        self.place(cluster | (range + 1)).is_ok()
    }

    /// `false`: there is no room.
    fn add(&self, progress: &Progress, cluster: usize, range: usize) -> bool {
        let count = progress.count.load(Relaxed);
        // One place stays free, so that a search always ends.
        if count + 1 >= TRACKED {
            return false;
        }
        if let Err(free) = self.place(cluster | (range + 1)) {
            free.store(cluster | (range + 1), Relaxed);
            progress.count.store(count + 1, Relaxed);
        }
        true
    }
}

/// Up to so many fetched pages no limit of memory is looked for. Few children need more, and
/// looking costs as much as sixty pages.
const UNLIMITED: u64 = 48;
/// The same for new pages: more than the heap grows by at once (glibc: 33).
const UNLIMITED_NEW: u64 = 64;

/// Bytes that a child takes before a limit of memory is looked for.
pub const UNASKED: u64 = (UNLIMITED + UNLIMITED_NEW) * 4096;

/// The pages that a child takes.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// The kernel copies them when the child writes them, and does not ask.
    pub left: u64,
    /// Copied from its parent, which a plain child would not take.
    pub fetched: u64,
    /// Mapped by itself, touched or not.
    pub new: u64,
}

/// Whether a child may take so many pages in all.
///
/// Copying a page costs about sixteen times as much as the kernel's work for its table entry. Past
/// a sixteenth of the `absent` bytes the plain fork is cheaper. The child asks before it takes the
/// pages: near a limit of memory a megabyte may be too much. `room`, given the pages that the child
/// asks for, says how many bytes are left (`crate::limit`). Half of them are for the plain fork,
/// which may have to follow.
pub fn is_within_budget(taken: Taken, absent: impl FnOnce() -> usize, room: impl FnOnce(u64) -> u64) -> bool {
    const FREE: u64 = 1024;
    let Taken { left, fetched, new } = taken;
    let all = fetched + new;
    (fetched <= UNLIMITED && new <= UNLIMITED_NEW)
        || (fetched <= FREE + absent() as u64 / 4096 / 16 && left + all <= room(all) / 4096 / 2 + 1)
}

/// What a child knows of the memory left below a limit. All zeros at first.
pub struct Room {
    /// Bytes when it first asked.
    first: AtomicU64,
    /// It asks again when it has fetched so many pages.
    next: AtomicU64,
}

impl Room {
    /// Nothing.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Room {
        Room { first: AtomicU64::new(0), next: AtomicU64::new(0) }
    }

    /// The bytes that were left when a child first asked, of which it may take half. 0: the other
    /// half is no longer there. Other processes below the limit may speculate, too, and what each
    /// may take adds up. So the child asks again, each 64th part of the way.
    ///
    /// Where it can't ask (`None`), it knows what was left `at_fork`, and stays within the first
    /// such part.
    pub fn known(&self, pages: u64, at_fork: u64, ask: impl FnOnce() -> Option<u64>) -> u64 {
        const FEWEST: u64 = 32;
        let part = |room: u64| room / 4096 / 64;
        let first = self.first.load(Relaxed);
        if first != 0 && pages < self.next.load(Relaxed) {
            return first;
        }
        let Some(now) = ask() else { return if pages <= part(at_fork) { at_fork } else { 0 } };
        let now = now.max(1);
        let first = if first == 0 { now } else { first };
        self.first.store(first, Relaxed);
        self.next.store(pages.saturating_add(FEWEST.max(part(first))), Relaxed);
        if now < first / 2 { 0 } else { first }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;

    struct Brought(Clusters, Progress);

    impl Brought {
        fn new() -> Brought {
            Brought(Clusters::new(), Progress::new())
        }

        fn fetch(&self, absent: &Ranges, addr: usize) -> Fetch {
            self.0.fetch(&self.1, absent, addr)
        }
    }

    fn one(start: usize, end: usize) -> Ranges {
        let absent = Ranges::new();
        absent.push(start, end, false);
        absent
    }

    fn range(start: usize, end: usize) -> Fetch {
        Fetch::Range { start, end, is_executable: false }
    }

    #[test]
    fn faults_that_go_upwards_bring_more_each_time() {
        let (brought, absent) = (Brought::new(), one(MIB, 64 * MIB));
        let mut at = MIB;
        for n in [1, 2, 4, 8, 16, 16] {
            assert_eq!(brought.fetch(&absent, at), range(at, at + n * CLUSTER));
            at += n * CLUSTER;
        }
        // And one again elsewhere.
        assert_eq!(brought.fetch(&absent, 40 * MIB + 5), range(40 * MIB, 40 * MIB + CLUSTER));
    }

    #[test]
    fn two_ranges_that_meet_in_a_cluster_are_brought_apart() {
        let absent = one(MIB, MIB + 0x4000);
        absent.push(MIB + 0x6000, MIB + 0x9000, true);
        let brought = Brought::new();
        assert_eq!(brought.fetch(&absent, MIB + 0x5000), Fetch::Nothing);
        assert_eq!(brought.fetch(&absent, MIB), range(MIB, MIB + 0x4000));
        let second = Fetch::Range { start: MIB + 0x6000, end: MIB + 0x9000, is_executable: true };
        assert_eq!(brought.fetch(&absent, MIB + 0x8fff), second);
        assert_eq!(brought.fetch(&absent, MIB + 0x6000), Fetch::Nothing, "it is there");
    }

    #[test]
    fn more_than_can_be_kept_track_of_is_too_much() {
        let (brought, absent) = (Brought::new(), one(0, 1 << 30));
        let count = (0..).take_while(|i| brought.fetch(&absent, i * 2 * CLUSTER) != Fetch::TooMuch).count();
        assert_eq!(count, TRACKED - 1);
    }

    #[test]
    fn the_budget_is_a_sixteenth_and_half_of_what_is_left() {
        let few = || panic!("not asked for so few");
        assert!(is_within_budget(Taken { left: 1 << 40, fetched: 48, new: 64 }, few, |_| panic!(
            "not asked for so few"
        )));
        let fetched = |fetched| Taken { left: 0, fetched, new: 0 };
        let unlimited = |_| u64::MAX;
        assert!(is_within_budget(fetched(1024), || 0, unlimited));
        assert!(!is_within_budget(fetched(1025), || 0, unlimited));
        assert!(is_within_budget(fetched(1024 + 16), || MIB, unlimited));
        assert!(!is_within_budget(fetched(49), || MIB, |_| 4096 * 2 * 47));
        assert!(is_within_budget(fetched(49), || MIB, |_| 4096 * 2 * 48));
    }

    /// New memory costs a plain child as much, so only what a limit leaves counts.
    #[test]
    fn new_memory_counts_near_a_limit_only() {
        let room = |pages: u64| move |_| 4096 * 2 * (pages - 1);
        assert!(is_within_budget(Taken { left: 0, fetched: 0, new: 1 << 30 }, || 0, |_| u64::MAX));
        assert!(is_within_budget(Taken { left: 0, fetched: 900, new: 100 }, || 0, room(1000)));
        assert!(!is_within_budget(Taken { left: 0, fetched: 900, new: 101 }, || 0, room(1000)));
        assert!(!is_within_budget(Taken { left: 0, fetched: 0, new: 1001 }, || 0, room(1000)));
        assert!(!is_within_budget(Taken { left: 1, fetched: 900, new: 100 }, || 0, room(1000)));
        assert!(is_within_budget(Taken { left: 1, fetched: 900, new: 99 }, || 0, room(1000)));
    }

    /// Children of several processes fetch in turns, a cluster each, until each is told to stop.
    #[test]
    fn children_below_one_limit_leave_some_of_it() {
        const CHUNK: u64 = 8;
        for (children, limit) in [(1, 10 << 20), (3, 10 << 20), (8, 30 << 20), (16, 1 << 30)] {
            let rooms: Vec<Room> = (0..children).map(|_| Room::new()).collect();
            let mut pages = std::vec![0; children];
            let mut stopped = std::vec![false; children];
            let taken = |pages: &[u64]| pages.iter().sum::<u64>() * 4096;
            while stopped.contains(&false) {
                for i in (0..children).filter(|i| !stopped[*i]).collect::<Vec<_>>() {
                    let left = limit - taken(&pages);
                    let more = pages[i] + CHUNK;
                    let room = |pages| rooms[i].known(pages, limit, || Some(left));
                    let taken = Taken { left: 0, fetched: more, new: 0 };
                    stopped[i] = !is_within_budget(taken, || usize::MAX, room);
                    if !stopped[i] {
                        pages[i] = more;
                    }
                }
            }
            let left = limit - taken(&pages);
            assert!(left > limit / 4 && left < limit * 3 / 5, "{children}, {limit}: {left}");
        }
    }

    #[test]
    fn without_a_limit_it_is_asked_for_once() {
        let room = Room::new();
        assert_eq!(room.known(49, u64::MAX, || Some(u64::MAX)), u64::MAX);
        assert_eq!(room.known(1 << 40, u64::MAX, || panic!("asked again")), u64::MAX);
    }

    #[test]
    fn a_child_that_cannot_ask_stays_within_a_part_of_what_was_left_at_the_fork() {
        let (room, at_fork) = (Room::new(), 64 << 20);
        assert_eq!(room.known(256, at_fork, || None), at_fork);
        assert_eq!(room.known(257, at_fork, || None), 0);
        assert_eq!(room.known(1 << 40, u64::MAX, || None), u64::MAX);
        // It could ask before.
        assert_eq!(room.known(49, at_fork, || Some(at_fork)), at_fork);
        assert_eq!(room.known(304, at_fork, || panic!("asked again")), at_fork);
        assert_eq!(room.known(305, at_fork, || None), 0);
    }

    proptest! {
        /// Every page is fetched once, whatever the order of faults, and only absent pages are.
        #[test]
        fn every_page_is_brought_once(
            gaps in prop::collection::vec((1usize..40, 1usize..40), 1..6),
            faults in prop::collection::vec(0usize..400, 1..60),
        ) {
            let absent = Ranges::new();
            let mut end = 0;
            for (gap, pages) in gaps {
                let start = end + gap;
                end = start + pages;
                absent.push(start * 4096, end * 4096, false);
            }
            let all = Brought::new();
            let mut brought = BTreeSet::new();
            for fault in faults {
                let was_brought = brought.contains(&fault);
                match all.fetch(&absent, fault * 4096) {
                    Fetch::Range { start, end, .. } => {
                        for page in start / 4096..end / 4096 {
                            prop_assert!(absent.find(page * 4096).is_some());
                            prop_assert!(brought.insert(page), "twice");
                        }
                        prop_assert!(brought.contains(&fault));
                    }
                    Fetch::Nothing => prop_assert!(was_brought || absent.find(fault * 4096).is_none()),
                    Fetch::TooMuch => prop_assert!(false, "not so many"),
                }
            }
        }
    }
}
