//! What /proc is asked of a process in the course of a watch.

use std::time::{Duration, Instant};

use crate::procfs::{self, PageKinds};

/// What is seldom asked of a process that forks much memory: its page kinds, first and last seen, and its settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageHistory {
    pub(crate) first: PageKinds,
    pub(crate) last: PageKinds,
    /// It asked the kernel for no transparent huge pages.
    pub(crate) refuses_huge: bool,
    /// It has had more than one thread.
    pub(crate) has_threads: bool,
    asked: Instant,
}

/// smaps_rollup walks the page tables under the target's lock: seldom, and only where it matters.
const EVERY: Duration = Duration::from_secs(5);

impl PageHistory {
    /// A first look; `None` if the process is gone or not to be read.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let kinds = procfs::page_kinds(pid)?;
        Some(Self {
            first: kinds,
            last: kinds,
            refuses_huge: procfs::refuses_huge_pages(pid),
            has_threads: procfs::has_threads(pid),
            asked: Instant::now(),
        })
    }

    /// Looks again, unless that was done a moment ago.
    pub(super) fn follow(&mut self, pid: u32) {
        if self.asked.elapsed() < EVERY {
            return;
        }
        self.asked = Instant::now();
        self.has_threads |= procfs::has_threads(pid);
        if let Some(kinds) = procfs::page_kinds(pid) {
            self.last = kinds;
        }
    }
}

/// CPU time of a process, as far as it was seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTime {
    first: u64,
    last: u64,
}

impl CpuTime {
    /// Of a process that has used so many nanoseconds at the first look.
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
