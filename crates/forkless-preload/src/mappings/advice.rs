//! What the program itself asked of fork with madvise: ranges it marked `MADV_DONTFORK` or `MADV_WIPEONFORK` are left exactly as they are.
//!
//! Neither the maps file nor the query shows these flags, and smaps costs milliseconds, so the calls are watched as they are made. A fork
//! looks for those that were made by an instruction, or moved by libc itself (`fork::marks`).
//! V8 marks its heap (page by page), RDMA libraries their buffers, random generators a page that must read as zero in a child.
//! What `munmap` unmaps is forgotten. What libc unmaps by itself, or another mapping replaces, stays noted. That does no harm, for a mapping counts as
//! marked only if all of it is noted: the kernel splits mappings where a mark begins and ends, so one that is marked was noted from end to end, as
//! long as growing by mremap is noted, too.
//!
//! Once the program has a seccomp filter nothing is noted any more: that takes system calls, and no fork of it speculates.

use forkless_sys::mm::{MADV_DONTFORK, MADV_WIPEONFORK};

use crate::filters::{self, sandboxed};
use crate::speculation::speculating;
use crate::window;

use super::notes;

const fn is_mark(advice: u32) -> bool {
    matches!(advice, MADV_DONTFORK | MADV_WIPEONFORK)
}

/// The program gives an advice by `madvise`, which makes the call: a mark never while another thread's speculation has marks of its own, which
/// are all taken back after it.
pub(crate) fn given<T>(addr: usize, len: usize, advice: u32, madvise: impl FnOnce() -> T) -> T {
    // A speculative child's call is judged, in a window that is not its own; it forks no children that would be speculative.
    if !is_mark(advice) || speculating() {
        return madvise();
    }
    filters::learn();
    if sandboxed() {
        return madvise();
    }
    window::outside(|| {
        if len != 0 {
            // The kernel marks whole pages.
            notes::add(addr, page_end(addr, len));
        }
        madvise()
    })
}

/// Where the last page of `addr..addr + len` ends.
fn page_end(addr: usize, len: usize) -> usize {
    addr.saturating_add(len).saturating_add(4095) & !4095
}

/// Notes an advice that the program is about to give by a call that is only watched. If it is a mark it comes after a speculation under way.
pub(crate) fn about_to_be_given(addr: usize, len: usize, advice: u32) {
    given(addr, len, advice, || ());
}

/// The same of a `process_madvise`, which on oneself takes this advice since Linux 6.13. The vector is the kernel's to read: it may point
/// anywhere. Forks of one thread find the marks; beside threads nothing is known from here on.
#[cfg(target_arch = "x86_64")]
pub(crate) fn about_to_be_given_somewhere(advice: u32) {
    if is_mark(advice) && !speculating() && !sandboxed() && window::meets_threads() {
        window::outside(notes::give_up);
    }
}

/// A fork has found a mark on a mapping, which was made past the functions that are watched. With all signals blocked.
#[cfg(target_arch = "x86_64")]
pub(crate) fn found(start: usize, end: usize) {
    notes::add(start, end);
}

/// Whether anything is noted.
#[cfg(target_arch = "x86_64")]
pub(crate) fn any() -> bool {
    !notes::is_empty()
}

/// Whether not all marks are known: then nothing may be assumed about any mapping.
#[cfg(target_arch = "x86_64")]
pub(crate) fn overflowed() -> bool {
    notes::is_incomplete()
}

/// Whether `start..end` has a noted byte in it.
pub(crate) fn touches(start: usize, end: usize) -> bool {
    !notes::is_empty() && notes::touch(start, end)
}

/// The same with all signals blocked.
#[cfg(target_arch = "x86_64")]
pub(crate) fn touches_in_window(start: usize, end: usize) -> bool {
    !notes::is_empty() && notes::touch_in_window(start, end)
}

/// Whether a mapping carries a mark (`VM_DONTCOPY`, `VM_WIPEONFORK`): no byte of it is without a note. With all signals blocked.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_marked(start: usize, end: usize) -> bool {
    !notes::is_empty() && notes::cover(start, end)
}

/// A mapping is about to be unmapped by `munmap`, which returns 0 when it is. It is forgotten first: later another thread might have marked what lies
/// there by then.
pub(crate) fn unmapped(addr: usize, len: usize, munmap: impl FnOnce() -> i32) -> i32 {
    if notes::is_empty() || speculating() || sandboxed() || len == 0 || !addr.is_multiple_of(4096) {
        return munmap();
    }
    let end = page_end(addr, len);
    let forgotten = notes::remove(addr, end);
    let result = munmap();
    if result != 0 && forgotten {
        notes::add(addr, end);
    }
    result
}

/// A mapping is about to be moved or to grow, and may take a mark along. `mremap` makes the call.
pub(crate) fn moved(addr: usize, old_len: usize, new_len: usize, mremap: impl FnOnce() -> usize) -> usize {
    // A speculative child's call is judged, and undoes it.
    if speculating() || sandboxed() {
        return mremap();
    }
    // No other thread may look at the mappings between the move and the note.
    window::outside(|| {
        let noted = touches(addr, addr.saturating_add(old_len.max(1)));
        let at = mremap();
        if noted && at != usize::MAX {
            notes::add(at, page_end(at, new_len));
        }
        at
    })
}

/// In a copy of another process's memory, whose threads are not here.
pub(crate) fn forget_holder() {
    notes::forget_holder();
}
