//! What each call site has taught: whether its children execute programs, and which memory they need first.
//!
//! Private to the process and lost at exec; changed only by the thread inside the window.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::config;

use super::kept::Kept;
use super::tables;

/// Call sites remembered; further ones share the last entry.
const SITES: usize = 64;

pub(super) struct Sites([Site; SITES]);

struct Site {
    address: AtomicUsize,
    /// Aborts since the last commit.
    streak: AtomicU32,
    /// Forks to let pass before the next attempt.
    skip: AtomicU32,
    kept: Kept,
}

fn site(address: usize) -> &'static Site {
    let all = &tables::get().sites.0;
    for site in all {
        // Looked at first: the exchange writes to its page, whatever comes of it.
        let mut known = site.address.load(Relaxed);
        if known == 0 {
            known = site.address.compare_exchange(0, address, Relaxed, Relaxed).err().unwrap_or(address);
        }
        if known == address {
            return site;
        }
    }
    &all[SITES - 1]
}

/// Whether to speculate at this site now. Counts down what is to be skipped.
pub(crate) fn worth_trying(address: usize) -> bool {
    if !config::learn() || tables::known().is_none() {
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

/// What a child made at the site had fetched when it executed a program, or was undone.
pub(crate) fn learn(address: usize, fetched: impl Iterator<Item = (usize, usize)> + Clone, committed: bool) {
    site(address).kept.learn(fetched, committed);
}

/// Calls `each` for every range that is left to the kernel in the fork that is about to be made at a site.
pub(crate) fn each_kept(address: usize, each: impl FnMut(usize, usize)) {
    site(address).kept.each(each);
}

/// A fork at the site would lack `absent` bytes, which are too few. Where they were more but for what is kept there, children once needed
/// nearly everything: that is forgotten, and the site tried again as one whose children do not exec.
pub(crate) fn gave_too_much(address: usize, absent: usize) -> bool {
    let kept = &site(address).kept;
    let is_why = absent + kept.bytes() >= config::minimum();
    if is_why {
        kept.forget();
        aborted(address);
    }
    is_why
}
