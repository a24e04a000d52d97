//! The call sites of this process, and whether it is large enough to speculate: `forkless_speculate::site`, asked of the kernel.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forkless_speculate::site::{
    Site,
    threshold::{Anonymous, Threshold},
};
use forkless_sys::process::{self, MemoryUsage};

use crate::{config, small_file};

use super::tables;

static THRESHOLD: Threshold = Threshold::new();

/// Attempts of the process. Counted here and not at each site: this page is written at each fork anyway, a site's seldom.
static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// The site of a call, in the window.
fn of(address: usize) -> &'static Site {
    tables::get().sites.of(address)
}

/// Whether to speculate at this site now. Counts down the forks that are to be left alone.
pub(crate) fn worth_trying(address: usize) -> bool {
    !config::learn() || tables::known().is_none_or(|tables| tables.sites.of(address).history.worth_trying())
}

/// The child executed a program.
pub(crate) fn committed(address: usize) {
    of(address).history.committed();
}

/// The child had to be replaced.
pub(crate) fn aborted(address: usize) {
    of(address).history.aborted();
}

/// Learns what a child made at the site had fetched when it executed a program, or was undone.
pub(crate) fn learn(address: usize, fetched: impl Iterator<Item = (usize, usize)> + Clone, committed: bool) {
    of(address).resident.learn(ATTEMPTS.load(Relaxed), fetched, committed);
}

/// Calls `each` for every range that is left to the kernel in the fork that is about to be made at a site.
pub(crate) fn each_resident(address: usize, each: impl FnMut(usize, usize)) {
    let now = ATTEMPTS.load(Relaxed).wrapping_add(1);
    ATTEMPTS.store(now, Relaxed);
    of(address).resident.each(now, each);
}

/// A fork at the site would lack `absent` bytes, which are too few. Where what is left to the kernel makes them so, the site forgets it.
pub(crate) fn note_small(address: usize, absent: usize) {
    if of(address).forgot_resident(absent, config::minimum()) {
        return;
    }
    if let (Ok(usage), Some(now)) = (process::memory_usage(), anonymous()) {
        THRESHOLD.note_small(process::getpid(), address, absent, now, usage.faults);
    }
}

/// There is much to gain.
pub(super) fn note_large() {
    THRESHOLD.note_large();
}

/// The largest resident set the process has had, in bytes; 0 where that cannot be told.
pub(super) fn peak() -> usize {
    process::memory_usage().map_or(0, |usage| usage.max_rss_kib as usize * 1024)
}

/// Whether a child forked at `site` would lack too little, as far as that can be told without opening a file; else [`is_small`] can tell.
pub(super) fn guess(usage: MemoryUsage, site: usize) -> Option<bool> {
    THRESHOLD.guess(usage, site, config::minimum(), process::getpid)
}

/// Whether a child would lack too little, by what the kernel says of this process.
pub(super) fn is_small(usage: MemoryUsage) -> bool {
    anonymous().is_some_and(|now| THRESHOLD.is_small(usage, now, config::minimum(), process::getpid()))
}

/// Anonymous memory that has entries for a fork to copy: 11 us.
fn anonymous() -> Option<usize> {
    let mut anonymous = Anonymous::default();
    small_file::status_lines(|line| anonymous.read(line));
    anonymous.bytes()
}
