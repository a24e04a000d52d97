//! Bringing absent memory from the parent, a cluster at a time.
#![expect(unsafe_code, reason = "maps memory at addresses that were reserved")]

use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use forkless_run::AbortKind as Kind;
use forkless_sys::{fd, mm};

use super::super::{outcome, plan, source, tables};
use super::{abort, limit};

/// Sixteen pages: a fault costs 3 us in signal and mapping, a page 0.5 us.
pub(crate) const CLUSTER: usize = 64 << 10;

/// Clusters read at once when faults go upwards, at most.
const AHEAD: usize = 16;

/// Clusters that can be kept track of. More than this (64 MB) is no speculation any more.
const TRACKED: usize = 1024;

/// Open-addressed set of fetched clusters. An entry is the cluster's address with the number of its range plus one in the low bits,
/// because two ranges may meet inside one cluster.
pub(in super::super) struct Clusters([AtomicUsize; TRACKED]);

fn fetched() -> &'static [AtomicUsize; TRACKED] {
    &tables::get().fetched.0
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LAST_END: AtomicUsize = AtomicUsize::new(0);
static STREAK: AtomicUsize = AtomicUsize::new(0);
/// Descriptor of the parent's memory; -1: a process serves it.
pub(crate) static SOURCE: AtomicI32 = AtomicI32::new(-1);

fn slot(key: usize) -> Result<usize, usize> {
    let fetched = fetched();
    let mut i = (key >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    loop {
        match fetched[i % TRACKED].load(Relaxed) {
            0 => return Err(i % TRACKED),
            known if known == key => return Ok(i % TRACKED),
            _ => i += 1,
        }
    }
}

fn is_fetched(cluster: usize, range: usize) -> bool {
    slot(cluster | (range + 1)).is_ok()
}

fn mark_fetched(cluster: usize, range: usize) {
    // One slot stays free, so that a search always ends.
    if COUNT.load(Relaxed) + 1 >= TRACKED {
        abort(Kind::Budget);
    }
    if let Err(free) = slot(cluster | (range + 1)) {
        fetched()[free].store(cluster | (range + 1), Relaxed);
        COUNT.store(COUNT.load(Relaxed) + 1, Relaxed);
    }
}

/// Makes the cluster around `addr` present. `false`: the parent has nothing there that the child lacks.
pub(crate) fn fetch(addr: usize) -> bool {
    let absent = plan::absent();
    let Some(range) = absent.find(addr) else { return false };
    let (low, high, exec) = absent.get(range);
    let first = addr & !(CLUSTER - 1);
    if is_fetched(first, range) {
        return false;
    }
    let wanted = if first == LAST_END.load(Relaxed) { (STREAK.load(Relaxed) * 2).min(AHEAD) } else { 1 };
    let mut n = 1;
    while n < wanted && first + n * CLUSTER < high && !is_fetched(first + n * CLUSTER, range) {
        n += 1;
    }
    STREAK.store(n, Relaxed);
    LAST_END.store(first + n * CLUSTER, Relaxed);
    for i in 0..n {
        mark_fetched(first + i * CLUSTER, range);
    }
    let (start, end) = (first.max(low), (first + n * CLUSTER).min(high));
    keep_to_budget((end - start) as u64 / 4096);
    copy(start, end, exec);
    outcome::get().fetched(start, end);
    true
}

/// Copying a page costs about sixteen times what the kernel pays for its table entry: past a sixteenth of the memory, the
/// plain fork is cheaper. Asked before so many more are copied: near a limit of memory a megabyte may be too much.
fn keep_to_budget(more: u64) {
    const FREE: u64 = 1024;
    /// Looked at from here on: few children need more, and looking costs as much as sixty pages.
    const UNLIMITED: u64 = 48;
    static ROOM: AtomicU64 = AtomicU64::new(0);
    let pages = outcome::get().pages.load(Relaxed) + more;
    if pages <= UNLIMITED {
        return;
    }
    if ROOM.load(Relaxed) == 0 {
        // Half of what is left, for the plain fork may have to follow.
        ROOM.store(limit::room() / 4096 / 2 + 1, Relaxed);
    }
    let absent: usize = plan::absent().iter().map(|(s, e)| e - s).sum();
    if pages > (FREE + absent as u64 / 4096 / 16).min(ROOM.load(Relaxed)) {
        abort(Kind::Budget);
    }
}

fn copy(start: usize, end: usize, exec: bool) {
    let prot = mm::PROT_READ | mm::PROT_WRITE | if exec { mm::PROT_EXEC } else { 0 };
    // SAFETY: the range is reserved (PROT_NONE) for exactly this and holds nothing.
    if unsafe { mm::map_anonymous_at(start, end - start, prot, mm::MAP_PRIVATE | mm::MAP_FIXED) }.is_err() {
        abort(Kind::Setup);
    }
    let mut at = start;
    while at < end {
        match read(at, end - at) {
            // Unmapped by another thread of the parent since.
            0 => abort(Kind::Fault),
            n => at += n,
        }
    }
}

/// Reads what the parent has at `at` to the same place, which was just mapped; returns how much.
fn read(at: usize, len: usize) -> usize {
    let file = SOURCE.load(Relaxed);
    if file < 0 {
        return source::ask(at, len);
    }
    // SAFETY: nobody else knows of the memory yet.
    unsafe { fd::pread_raw(file, at as *mut u8, len, at as u64) }.unwrap_or(0)
}
