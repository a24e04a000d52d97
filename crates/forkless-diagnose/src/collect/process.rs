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
}

/// Least time between two readings: smaps and smaps_rollup walk the page tables under the target's
/// lock.
const EVERY: Duration = Duration::from_secs(5);

impl PageHistory {
    /// A first look; `None` if the process is gone or not to be read.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let mappings = Mapping::of(pid).ok().filter(|mappings| !mappings.is_empty())?;
        let kinds = page_kinds(&mappings);
        Some(Self {
            mergeable: Mergeable::of(pid, &mappings),
            mappings: MappingCount::of(&mappings),
            first: kinds,
            last: kinds,
            refuses_huge: procfs::refuses_huge_pages(pid),
            asked: Instant::now(),
        })
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
        if self.mergeable.is_some_and(|mergeable| mergeable.is_outgrown(self.last.anon))
            && let Ok(mappings) = Mapping::of(pid)
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
