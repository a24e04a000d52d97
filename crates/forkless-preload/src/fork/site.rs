//! The call sites of this process (`forkless_speculate::site`).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forkless_speculate::site::ForkSite;
use forkless_speculate::site::resident::{Lesson, Trials};

use crate::config;

use super::{state, threshold};

/// Attempts of the process. Counted here and not at each site: this page is written at each fork
/// anyway, a site's seldom.
static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// The site of a call, in the window.
fn of(address: usize) -> &'static ForkSite {
    state::get().sites.of(address)
}

/// Whether to speculate at this site now. Counts down the forks that are to be left alone.
pub(crate) fn worth_trying(address: usize) -> bool {
    !config::learn() || state::known().is_none_or(|tables| tables.sites.of(address).history.worth_trying())
}

/// The child executed a program.
pub(crate) fn committed(address: usize) {
    of(address).history.committed();
}

/// The child had to be replaced.
pub(crate) fn aborted(address: usize) {
    of(address).history.aborted();
}

/// The children had to be replaced, for what they had read late.
pub(crate) fn read_late(address: usize) {
    of(address).history.read_late();
}

/// Learns what a child made at the site had fetched when it came to its exec, or was undone before.
pub(crate) fn learn(address: usize, fetched: impl Iterator<Item = (usize, usize)> + Clone, lesson: Lesson) {
    of(address).resident.learn(ATTEMPTS.load(Relaxed), fetched, lesson);
}

/// Calls `each` for every range that is left to the kernel in the fork that is about to be made at
/// a site.
pub(crate) fn each_resident(address: usize, trials: Trials, each: impl FnMut(usize, usize)) {
    let now = ATTEMPTS.load(Relaxed).wrapping_add(1);
    ATTEMPTS.store(now, Relaxed);
    of(address).resident.each(now, trials, each);
}

/// A fork at the site would lack `absent` bytes, which are too few. Where what is left to the
/// kernel makes them so, the site forgets it.
pub(crate) fn note_small(address: usize, absent: usize, beside_threads: bool) {
    if of(address).forgot_resident(absent, config::minimum()) {
        return;
    }
    threshold::note_small(address, absent, beside_threads);
}
