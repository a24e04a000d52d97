//! Whether a process has enough memory for a speculation to gain anything, found out as rarely and as cheaply as can be: most processes have
//! not, and their forks should cost what they cost without us (decision 26).

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use forkless_sys::process::{self, MemoryUsage};

use crate::config;

static SIZE: Size = Size {
    pid: AtomicI32::new(0),
    kind: AtomicU8::new(0),
    site: AtomicUsize::new(0),
    bytes: AtomicUsize::new(0),
    anonymous: AtomicUsize::new(0),
    faults: AtomicU64::new(0),
};

/// Whether there is much to gain, as it was found out last.
///
/// A listing costs a fork 30 us and its cycle 45, a quarter of a small program's. So what was found holds until the process can have grown: by one
/// page with every fault. With huge pages it may have grown more; but then there are as few entries to copy, which is what a fork costs.
struct Size {
    /// Whose: a child counts its faults anew.
    pid: AtomicI32,
    kind: AtomicU8,
    /// Where a fork copies `bytes`. 0: anywhere.
    site: AtomicUsize,
    bytes: AtomicUsize,
    /// Anonymous memory at that time.
    anonymous: AtomicUsize,
    /// Faults at that time.
    faults: AtomicU64,
}

/// Values of [`Size::kind`].
const SMALL: u8 = 1;
const LARGE: u8 = 2;

impl Size {
    fn note_small(&self, site: usize, bytes: usize, anonymous: usize, faults: u64) {
        self.pid.store(process::getpid(), Relaxed);
        self.site.store(site, Relaxed);
        self.bytes.store(bytes, Relaxed);
        self.anonymous.store(anonymous, Relaxed);
        self.faults.store(faults, Relaxed);
        self.kind.store(SMALL, Relaxed);
    }
}

/// The largest resident set the process has had, in bytes; 0 where that cannot be told.
pub(super) fn peak() -> usize {
    process::memory_usage().map_or(0, |usage| usage.max_rss_kib as usize * 1024)
}

/// Whether a child forked at `site` would lack too little, as far as that can be told without opening a file; else [`is_small`] can.
pub(super) fn guess(usage: MemoryUsage, site: usize) -> Option<bool> {
    let minimum = config::minimum();
    // The peak, so never too small; it survives exec and counts files, so it may be too large.
    if usage.max_rss_kib as usize * 1024 < minimum {
        return Some(true);
    }
    if SIZE.kind.load(Relaxed) == LARGE {
        return Some(false);
    }
    if !is_known() {
        return None;
    }
    let of = SIZE.site.load(Relaxed);
    if of != 0 && of != site {
        return Some(false);
    }
    let faults = usage.faults.saturating_sub(SIZE.faults.load(Relaxed)) as usize;
    (SIZE.bytes.load(Relaxed) + faults * 4096 < minimum).then_some(true)
}

/// Whether this process was looked at while it was small.
fn is_known() -> bool {
    SIZE.kind.load(Relaxed) == SMALL && SIZE.pid.load(Relaxed) == process::getpid()
}

/// Whether a child would lack too little, by what the kernel says of this process.
pub(super) fn is_small(usage: MemoryUsage) -> bool {
    let Some(now) = anonymous() else { return false };
    let (of, bytes) = if is_known() {
        // After a fork most faults copy a page, and add none.
        let more = now.saturating_sub(SIZE.anonymous.load(Relaxed));
        (SIZE.site.load(Relaxed), SIZE.bytes.load(Relaxed) + more)
    } else {
        (0, now)
    };
    let is_small = bytes < config::minimum();
    if is_small {
        SIZE.note_small(of, bytes, now, usage.faults);
    }
    is_small
}

/// A child forked at `site` would lack too little, `absent` bytes.
pub(super) fn note_small(site: usize, absent: usize) {
    if let (Ok(usage), Some(now)) = (process::memory_usage(), anonymous()) {
        SIZE.note_small(site, absent, now, usage.faults);
    }
}

/// There is much to gain.
pub(super) fn note_large() {
    if SIZE.kind.load(Relaxed) != LARGE {
        SIZE.kind.store(LARGE, Relaxed);
    }
}

/// Anonymous memory that has entries for a fork to copy, in pages or in swap (proc(5), status): 11 us.
fn anonymous() -> Option<usize> {
    let (mut kib, mut found) = (0, 0);
    crate::small_file::status_lines(|line| {
        if line.starts_with(b"RssAnon:") || line.starts_with(b"VmSwap:") {
            let digits = line.iter().filter(|b| b.is_ascii_digit());
            kib += digits.fold(0usize, |n, digit| n.wrapping_mul(10).wrapping_add(usize::from(digit - b'0')));
            found += 1;
        }
        found < 2
    });
    (found == 2).then_some(kib * 1024)
}
