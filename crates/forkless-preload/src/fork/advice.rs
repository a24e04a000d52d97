//! What the program itself asked of fork with madvise: ranges it marked `MADV_DONTFORK` or `MADV_WIPEONFORK` are left exactly as they are.
//!
//! Neither the maps file nor the query shows these flags, and smaps costs milliseconds, so the calls are watched as they are made.
//! V8 marks its heap (page by page), RDMA libraries their buffers, random generators a page that must read as zero in a child.
//! A range stays noted when it is unmapped: at worst a new mapping in its place is copied by the kernel as always.

use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::mm::{MADV_DONTFORK, MADV_WIPEONFORK};

const MAX: usize = 512;

static LOCK: AtomicBool = AtomicBool::new(false);
static LEN: AtomicUsize = AtomicUsize::new(0);
static START: [AtomicUsize; MAX] = [const { AtomicUsize::new(0) }; MAX];
static END: [AtomicUsize; MAX] = [const { AtomicUsize::new(0) }; MAX];
static OVERFLOW: AtomicBool = AtomicBool::new(false);

/// Notes a madvise the program is about to make.
pub(crate) fn note(addr: usize, len: usize, advice: u32) {
    if !matches!(advice, MADV_DONTFORK | MADV_WIPEONFORK) || len == 0 {
        return;
    }
    while LOCK.swap(true, Acquire) {
        core::hint::spin_loop();
    }
    let end = addr.saturating_add(len);
    let n = LEN.load(Relaxed);
    // Neighbours grow together: V8 marks one chunk after the other.
    let neighbour = (0..n).find(|&i| addr <= END[i].load(Relaxed) && START[i].load(Relaxed) <= end);
    if let Some(i) = neighbour {
        START[i].fetch_min(addr, Relaxed);
        END[i].fetch_max(end, Relaxed);
    } else if n < MAX {
        START[n].store(addr, Relaxed);
        END[n].store(end, Relaxed);
        LEN.store(n + 1, Release);
    } else {
        OVERFLOW.store(true, Relaxed);
    }
    LOCK.store(false, Release);
}

/// Whether there were more ranges than can be kept: then nothing may be assumed about any mapping.
pub(crate) fn overflowed() -> bool {
    OVERFLOW.load(Relaxed)
}

/// Whether a mapping has a noted range in it. The flags are the mapping's (`VM_DONTCOPY`, `VM_WIPEONFORK`), so one byte decides for all.
pub(crate) fn touches(start: usize, end: usize) -> bool {
    (0..LEN.load(Acquire)).any(|i| START[i].load(Relaxed) < end && END[i].load(Relaxed) > start)
}
