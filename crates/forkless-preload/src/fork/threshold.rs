//! Whether this process has enough memory to speculate: `forkless_speculate::site::threshold`,
//! asked of the kernel.

use forkless_speculate::site::threshold::{Anonymous, Threshold};
use forkless_sys::process::{self, MemoryUsage};

use crate::{config, small_file};

use super::OrPlain;
use super::helper::look;

static THRESHOLD: Threshold = Threshold::new();

/// A child forked at `site` would lack too little, `absent` bytes.
pub(super) fn note_small(site: usize, absent: usize, beside_threads: bool) {
    if let (Ok(usage), Ok(Some(now))) = (process::memory_usage(), anonymous(beside_threads)) {
        THRESHOLD.note_small(process::getpid(), site, absent, now, usage.faults);
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

/// Whether a child forked at `site` would lack too little, as far as that can be told without
/// opening a file; else [`is_small`] can tell.
pub(super) fn guess(usage: MemoryUsage, site: usize) -> Option<bool> {
    THRESHOLD.guess(usage, site, config::minimum(), process::getpid)
}

/// Whether this process has too little memory to speculate, by the kernel's counts.
pub(super) fn is_small(usage: MemoryUsage, beside_threads: bool) -> OrPlain<bool> {
    let now = anonymous(beside_threads)?;
    Ok(now.is_some_and(|now| THRESHOLD.is_small(usage, now, config::minimum(), process::getpid())))
}

/// Anonymous memory that has entries for a fork to copy: 11 us, some 50 by a helper.
fn anonymous(beside_threads: bool) -> OrPlain<Option<usize>> {
    look(beside_threads, || {
        let mut anonymous = Anonymous::default();
        small_file::status_lines(|line| anonymous.read(line));
        anonymous.bytes()
    })
}
