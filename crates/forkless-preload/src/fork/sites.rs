//! What each call site has taught: whether its children execute programs, and which memory they need first.
//!
//! Private to the process and lost at exec; changed only by the thread inside the window.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::config;

/// Call sites remembered; further ones share the last entry.
const SITES: usize = 64;
/// Ranges left to the kernel at a site.
pub(crate) const KEPT: usize = 48;
/// Ranges closer together than this are kept as one: each one splits a mapping, and copying a page table entry costs 25 ns where a
/// split and its undoing cost about 2 us.
const GAP: usize = 512 << 10;

struct Site {
    address: AtomicUsize,
    /// Aborts since the last commit.
    streak: AtomicU32,
    /// Forks to let pass before the next attempt.
    skip: AtomicU32,
    kept: AtomicUsize,
    start: [AtomicUsize; KEPT],
    end: [AtomicUsize; KEPT],
}

static TABLE: [Site; SITES] = [const {
    Site {
        address: AtomicUsize::new(0),
        streak: AtomicU32::new(0),
        skip: AtomicU32::new(0),
        kept: AtomicUsize::new(0),
        start: [const { AtomicUsize::new(0) }; KEPT],
        end: [const { AtomicUsize::new(0) }; KEPT],
    }
}; SITES];

fn site(address: usize) -> &'static Site {
    for site in &TABLE {
        // Looked at first: the exchange writes to its page, whatever comes of it.
        let mut known = site.address.load(Relaxed);
        if known == 0 {
            known = site.address.compare_exchange(0, address, Relaxed, Relaxed).err().unwrap_or(address);
        }
        if known == address {
            return site;
        }
    }
    &TABLE[SITES - 1]
}

/// Whether to speculate at this site now. Counts down what is to be skipped.
pub(crate) fn worth_trying(address: usize) -> bool {
    if !config::learn() {
        return true;
    }
    let site = site(address);
    let skip = site.skip.load(Relaxed);
    if skip > 0 {
        site.skip.store(skip - 1, Relaxed);
    }
    skip == 0
}

/// The child executed a program.
pub(crate) fn committed(address: usize) {
    let site = site(address);
    // Both are zero nearly always, and the page need not be written then.
    if site.streak.load(Relaxed) != 0 || site.skip.load(Relaxed) != 0 {
        site.streak.store(0, Relaxed);
        site.skip.store(0, Relaxed);
    }
}

/// The child had to be replaced. The pauses grow fourfold, to 4,096 forks: a worker's fork pays next to nothing, and a program that
/// changes its ways is still noticed.
pub(crate) fn aborted(address: usize) {
    let site = site(address);
    let streak = site.streak.load(Relaxed).min(5);
    site.streak.store(streak + 1, Relaxed);
    site.skip.store(4 << (2 * streak), Relaxed);
}

/// Adds ranges the child had to fetch to those kept from now on.
pub(crate) fn keep(address: usize, ranges: impl Iterator<Item = (usize, usize)>) {
    let site = site(address);
    for (start, end) in ranges {
        let n = site.kept.load(Relaxed);
        let near = (0..n).find(|&i| {
            start <= site.end[i].load(Relaxed).saturating_add(GAP)
                && site.start[i].load(Relaxed) <= end.saturating_add(GAP)
        });
        if let Some(i) = near {
            if start < site.start[i].load(Relaxed) {
                site.start[i].store(start, Relaxed);
            }
            if end > site.end[i].load(Relaxed) {
                site.end[i].store(end, Relaxed);
            }
        } else if n < KEPT {
            site.start[n].store(start, Relaxed);
            site.end[n].store(end, Relaxed);
            site.kept.store(n + 1, Relaxed);
        }
    }
}

/// Calls `each` for every range kept at a site.
pub(crate) fn kept(address: usize, mut each: impl FnMut(usize, usize)) {
    let site = site(address);
    for i in 0..site.kept.load(Relaxed) {
        each(site.start[i].load(Relaxed), site.end[i].load(Relaxed));
    }
}
