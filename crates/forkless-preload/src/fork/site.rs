//! The call sites of this process (`forkless_speculate::site`).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forkless_run::{AbortKind, AbortReason};
use forkless_speculate::site::ForkSite;
use forkless_speculate::site::history::Said;
use forkless_speculate::site::resident::{Lesson, Trials};
use linux_raw_sys::general as k;

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

/// The child had to be replaced. `has_tried`: its exec had failed before.
pub(crate) fn aborted(address: usize, reason: AbortReason, has_tried: bool) {
    of(address).history.aborted(if has_tried { said_after_exec(reason) } else { said(reason) });
}

/// Speculating at the site costs more than it gains.
pub(crate) fn note_costly(address: usize) {
    of(address).history.aborted(Said::Works);
}

fn said(reason: AbortReason) -> Said {
    match reason.kind() {
        AbortKind::Call if matches!(reason.detail(), k::__NR_exit | k::__NR_exit_group) => Said::Works,
        AbortKind::Died => Said::Works,
        AbortKind::Signal
        | AbortKind::Collision
        | AbortKind::Interrupted
        | AbortKind::Late
        | AbortKind::Setup
        | AbortKind::CloneFailed => Said::Nothing,
        AbortKind::Timeout | AbortKind::Budget => Said::Costs,
        AbortKind::Call
        | AbortKind::Command
        | AbortKind::Inherited
        | AbortKind::Fault
        | AbortKind::SharedWrite
        | AbortKind::OpenFile
        | AbortKind::Layout
        | AbortKind::Call32 => Said::Acts,
        // Of forks that are left alone: no child has one.
        AbortKind::Off
        | AbortKind::Small
        | AbortKind::Threads
        | AbortKind::Traced
        | AbortKind::Sandbox
        | AbortKind::NoDispatch
        | AbortKind::DispatchTaken
        | AbortKind::NoProc
        | AbortKind::NoMaps
        | AbortKind::Descriptors
        | AbortKind::AltStack
        | AbortKind::Learned
        | AbortKind::Busy
        | AbortKind::Unusual
        | AbortKind::Advice
        | AbortKind::Nested
        | AbortKind::Namespace
        | AbortKind::Lock
        | AbortKind::Shared
        | AbortKind::Lent
        | AbortKind::Files
        | AbortKind::Helper
        | AbortKind::Ignored
        | AbortKind::SecondLibc
        | AbortKind::Ring
        | AbortKind::Queue
        | AbortKind::Serves => Said::Acts,
    }
}

/// A child whose exec has failed tells its parent of that, and ends.
fn said_after_exec(reason: AbortReason) -> Said {
    match reason.kind() {
        AbortKind::Call
        | AbortKind::Command
        | AbortKind::Inherited
        | AbortKind::OpenFile
        | AbortKind::Died => Said::Tries,
        _ => said(reason),
    }
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
