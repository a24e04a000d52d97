//! What the program itself asked of fork with madvise: ranges it marked `MADV_DONTFORK` or `MADV_WIPEONFORK` are left exactly as they are.
//!
//! Neither the maps file nor the query shows these flags, and smaps costs milliseconds, so the calls are watched as they are made.
//! V8 marks its heap (page by page), RDMA libraries their buffers, random generators a page that must read as zero in a child.
//! A range stays noted when it is unmapped. That does no harm, for a mapping counts as marked only if all of it is noted: the kernel splits
//! mappings where a mark begins and ends, so one that is marked was noted from end to end, as long as growing by mremap is noted, too.

use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::mm::{MADV_DONTFORK, MADV_WIPEONFORK};

use crate::fork;

const MAX: usize = 512;

static LOCK: AtomicBool = AtomicBool::new(false);
static LEN: AtomicUsize = AtomicUsize::new(0);
static START: [AtomicUsize; MAX] = [const { AtomicUsize::new(0) }; MAX];
static END: [AtomicUsize; MAX] = [const { AtomicUsize::new(0) }; MAX];
static OVERFLOW: AtomicBool = AtomicBool::new(false);

const fn is_mark(advice: u32) -> bool {
    matches!(advice, MADV_DONTFORK | MADV_WIPEONFORK)
}

/// The program gives an advice by `madvise`, which makes the call: a mark never while another thread's speculation has marks of its own, which
/// are all taken back after it.
pub(crate) fn given<T>(addr: usize, len: usize, advice: u32, madvise: impl FnOnce() -> T) -> T {
    if !is_mark(advice) {
        return madvise();
    }
    let noted = || {
        note(addr, len, advice);
        madvise()
    };
    // A speculative child's call is judged, in a window that is not its own.
    if fork::speculating() { noted() } else { fork::outside_window(noted) }
}

/// Notes an advice that the program is about to give by a call that is only watched. If it is a mark it comes after a speculation under way.
pub(crate) fn about_to_be_given(addr: usize, len: usize, advice: u32) {
    given(addr, len, advice, || ());
}

/// Notes a madvise the program is about to make.
fn note(addr: usize, len: usize, advice: u32) {
    if !is_mark(advice) || len == 0 {
        return;
    }
    while LOCK.swap(true, Acquire) {
        core::hint::spin_loop();
    }
    // The kernel marks whole pages.
    let end = addr.saturating_add(len).saturating_add(4095) & !4095;
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

/// The same of a `process_madvise`, which on oneself takes this advice since Linux 6.13. In a child, whose call is judged, nothing is read.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "reads the program's vector")]
pub(crate) fn note_each(ranges: usize, count: usize, advice: u32) {
    if !is_mark(advice) || fork::speculating() {
        return;
    }
    // As many as the kernel takes.
    for i in 0..count.min(1024) {
        // SAFETY: the caller's iovecs.
        let [addr, len] = unsafe { *(ranges as *const [usize; 2]).wrapping_add(i) };
        about_to_be_given(addr, len, advice);
    }
}

/// Whether there were more ranges than can be kept: then nothing may be assumed about any mapping.
#[cfg(target_arch = "x86_64")]
pub(crate) fn overflowed() -> bool {
    OVERFLOW.load(Relaxed)
}

/// Whether `start..end` has a noted byte in it.
pub(crate) fn touches(start: usize, end: usize) -> bool {
    (0..LEN.load(Acquire)).any(|i| START[i].load(Relaxed) < end && END[i].load(Relaxed) > start)
}

/// Whether a mapping carries a mark (`VM_DONTCOPY`, `VM_WIPEONFORK`): no byte of it is without a note.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_marked(start: usize, end: usize) -> bool {
    let n = LEN.load(Acquire);
    let mut at = start;
    while at < end {
        // Notes may overlap, so the search starts anew from where the last one ended.
        let further = (0..n).find(|&i| START[i].load(Relaxed) <= at && END[i].load(Relaxed) > at);
        match further {
            Some(i) => at = END[i].load(Relaxed),
            None => return false,
        }
    }
    true
}

/// A mapping is about to be moved or to grow, and may take a mark along. `mremap` makes the call.
pub(crate) fn moved(addr: usize, old_len: usize, new_len: usize, mremap: impl FnOnce() -> usize) -> usize {
    // A speculative child's call is judged, and undoes it.
    if fork::speculating() {
        return mremap();
    }
    // No other thread may look at the mappings between the move and the note.
    fork::outside_window(|| {
        let noted = touches(addr, addr.saturating_add(old_len.max(1)));
        let at = mremap();
        if noted && at != usize::MAX {
            note(at, new_len, MADV_DONTFORK);
        }
        at
    })
}
