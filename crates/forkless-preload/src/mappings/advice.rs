//! Watches what the program itself asks of fork with madvise. Ranges that it marked `MADV_DONTFORK`
//! or `MADV_WIPEONFORK` are left exactly as they are.
//!
//! Neither the maps file nor the query shows these flags, and smaps costs milliseconds. So calls
//! are watched as they are made. A fork looks for marks that were made by an instruction, or moved
//! by libc itself (`forkless_speculate::marks`).
//!
//! V8 marks its heap (page by page), RDMA libraries their buffers, random generators a page that
//! must read as zero in a child.
//!
//! A note goes when `munmap` unmaps its memory. It stays where libc unmaps memory by itself, or
//! another mapping replaces it. A mapping counts as marked only if all of it is noted. The kernel
//! splits mappings where a mark begins and ends. So a marked mapping was noted from end to end, as
//! long as growing by mremap is noted, too. A mapping that counts as marked without a mark is left
//! to the kernel, which does no harm. But another thread may move a mapping there by an
//! instruction. If that mapping has our mark, the mark stays (docs/trust.md).
//!
//! Once the program has a seccomp filter nothing is noted any more. That takes system calls, and no
//! fork of it speculates.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use forkless_sys::mm::{MADV_DONTFORK, MADV_WIPEONFORK};

use crate::filters::{self, sandboxed};
use crate::speculation::speculating;
use crate::window;

use super::notes;

const fn is_mark(advice: u32) -> bool {
    matches!(advice, MADV_DONTFORK | MADV_WIPEONFORK)
}

/// The program gives an advice by `madvise`, which makes the call. A mark is never made while
/// another thread's speculation has marks of its own: those are all taken back afterwards.
pub(crate) fn given<T>(addr: usize, len: usize, advice: u32, madvise: impl FnOnce() -> T) -> T {
    // A speculative child's call is judged. It has a window of its own, and forks no speculative
    // children.
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

/// Notes an advice that the program is about to give by a call that is only watched. A mark waits
/// for a speculation under way.
pub(crate) fn about_to_be_given(addr: usize, len: usize, advice: u32) {
    given(addr, len, advice, || ());
}

/// The same for `process_madvise`, which takes this advice on oneself since Linux 6.13. Its vector
/// is the kernel's to read, for it may point anywhere. Forks of one thread find the marks. Beside
/// threads nothing is known from here on.
#[cfg(target_arch = "x86_64")]
pub(crate) fn about_to_be_given_somewhere(advice: u32) {
    if is_mark(advice) && !speculating() && !sandboxed() {
        window::outside(|| SOMEWHERE.store(true, Relaxed));
    }
}

/// There are marks that only forks of one thread find.
#[cfg(target_arch = "x86_64")]
static SOMEWHERE: AtomicBool = AtomicBool::new(false);

/// Whether any mapping may have got a mark that nobody noted.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_somewhere() -> bool {
    SOMEWHERE.load(Relaxed)
}

/// A fork has found a mark on a mapping, which was made past the functions that are watched. With
/// all signals blocked.
#[cfg(target_arch = "x86_64")]
pub(crate) fn found(start: usize, end: usize) {
    notes::add(start, end);
}

/// Whether anything is noted.
#[cfg(target_arch = "x86_64")]
pub(crate) fn any() -> bool {
    !notes::is_empty()
}

/// Whether not all marks are known. Then nothing may be assumed about any mapping.
#[cfg(target_arch = "x86_64")]
pub(crate) fn overflowed() -> bool {
    notes::is_incomplete() || is_somewhere() && window::meets_threads()
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

/// Whether a mapping carries a mark (`VM_DONTCOPY`, `VM_WIPEONFORK`): every byte of it has a note.
/// With all signals blocked.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_marked(start: usize, end: usize) -> bool {
    !notes::is_empty() && notes::cover(start, end)
}

/// `munmap` is about to unmap a mapping. It returns 0 when it did. The note goes first: afterwards
/// another thread might have marked what lies there by then. No other thread may look at the
/// mapping between the two: it would find the mark, and note it again.
pub(crate) fn unmapped(addr: usize, len: usize, munmap: impl FnOnce() -> i32) -> i32 {
    if notes::is_empty() || speculating() || sandboxed() || len == 0 || !addr.is_multiple_of(4096) {
        return munmap();
    }
    let end = page_end(addr, len);
    if !notes::touch(addr, end) {
        return munmap();
    }
    window::outside(|| {
        let forgotten = notes::remove(addr, end);
        let result = munmap();
        if result != 0 && forgotten {
            notes::add(addr, end);
        }
        result
    })
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
