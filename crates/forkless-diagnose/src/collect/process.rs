//! Facts that a watch reads from /proc about a process.

use std::time::{Duration, Instant};

use crate::forecast::Mergeable;
use crate::mappings::{Mapping, MappingCount, page_kinds};
use crate::procfs::{self, PageKinds};

/// Page kinds (first and last seen) and settings of a process that forks much memory. They are read
/// seldom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageHistory {
    pub(crate) first: PageKinds,
    pub(crate) last: PageKinds,
    pub(crate) mappings: MappingCount,
    /// `None` where it is not known.
    pub(crate) mergeable: Option<Mergeable>,
    /// It has turned transparent huge pages off for itself.
    pub(crate) refuses_huge: bool,
    asked: Instant,
    /// What the fork took at which the mappings were counted, nanoseconds.
    counted_at_ns: u64,
}

/// Least time between two readings: smaps and smaps_rollup walk the page tables under the target's
/// lock.
const EVERY: Duration = Duration::from_secs(5);

impl PageHistory {
    /// A first look, at a fork that took so long; `None` if the process is gone or not to be read.
    pub(super) fn of(pid: u32, fork_ns: u64) -> Option<Self> {
        let mappings = Mapping::of(pid).ok().filter(|mappings| !mappings.is_empty())?;
        let kinds = page_kinds(&mappings);
        Some(Self {
            mergeable: Mergeable::of(pid, &mappings),
            mappings: MappingCount::of(&mappings),
            first: kinds,
            last: kinds,
            refuses_huge: procfs::refuses_huge_pages(pid),
            asked: Instant::now(),
            counted_at_ns: fork_ns,
        })
    }

    /// A look at a process with little memory and so many mappings.
    #[cfg(test)]
    pub(crate) fn with_mappings(mappings: MappingCount) -> Self {
        let kinds = PageKinds::default();
        let (first, last, asked) = (kinds, kinds, Instant::now());
        Self { first, last, mappings, mergeable: None, refuses_huge: false, asked, counted_at_ns: 0 }
    }

    /// Looks again, unless that was done a moment ago.
    pub(super) fn follow(&mut self, pid: u32) {
        if self.asked.elapsed() < EVERY {
            return;
        }
        self.asked = Instant::now();
        if let Some(kinds) = procfs::page_kinds(pid) {
            self.last = kinds;
        }
        if self.mergeable.is_some_and(|mergeable| mergeable.is_outgrown(self.last.anon)) {
            self.count(pid);
        }
    }

    /// Whether a fork that took so long may have copied more mappings than were counted: a program
    /// may make them later.
    pub(super) fn is_outgrown(&self, fork_ns: u64) -> bool {
        fork_ns > self.counted_at_ns.saturating_mul(2)
    }

    /// Counts the mappings again, at a fork that took so long.
    pub(super) fn count_at(&mut self, pid: u32, fork_ns: u64) {
        self.counted_at_ns = fork_ns;
        self.count(pid);
    }

    fn count(&mut self, pid: u32) {
        if let Ok(mappings) = Mapping::of(pid)
            && !mappings.is_empty()
        {
            self.mergeable = Mergeable::of(pid, &mappings);
            self.mappings = MappingCount::of(&mappings);
        }
    }
}

/// CPU time of a process between the first and the last look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTime {
    first: u64,
    last: u64,
}

impl CpuTime {
    /// The first look: the process has used `ns` so far.
    pub(super) fn since(ns: u64) -> Self {
        Self { first: ns, last: ns }
    }

    pub(super) fn follow(&mut self, ns: u64) {
        self.last = ns;
    }

    pub(crate) fn used(self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program that makes its mappings after its first fork had few for ever.
    #[test]
    fn mappings_that_came_later_are_counted_at_a_slower_fork() {
        let pid = std::process::id();
        let few = MappingCount { all: 1, written: 1 };
        let mut history = PageHistory::with_mappings(few);
        history.counted_at_ns = 500_000;
        assert!(!history.is_outgrown(1_000_000) && history.is_outgrown(1_100_000));
        history.follow(pid);
        assert_eq!(history.mappings, few, "no slower fork, no reading");
        history.count_at(pid, 9_000_000);
        assert!(history.mappings.all > few.all && !history.is_outgrown(9_000_000));
        // What is gone has its last count.
        let counted = history.mappings;
        history.count_at(u32::MAX, 90_000_000);
        assert_eq!(history.mappings, counted);
    }
}
