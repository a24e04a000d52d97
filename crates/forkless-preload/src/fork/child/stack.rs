//! Growth of the main thread's stack.
//!
//! The kernel extends the stack at a fault, past [`fetch`] and the policy. In a child it is kept
//! from that by a page below the stack that can be read: it leaves a gap between a stack and
//! accessible memory below it (mm/mmap.c, expand_downwards; `stack_guard_gap`, 1 MB). So growth is
//! a fault of ours first, and counts as new memory. A plain child's stack would grow as far as this
//! page, and reads zeros there, too.
#![expect(unsafe_code, reason = "a page where nothing is, and the program's own calls")]

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use forkless_run::AbortKind;
use forkless_sys::{Errno, mm, sched};
use linux_raw_sys::general as k;

use crate::kernel::{self, Args};

use super::super::exclusions;
use super::{abort, fetch};

/// The stack may begin here, and not lower. 0: that is not known.
static LOWEST: AtomicUsize = AtomicUsize::new(0);
/// The page that keeps the stack from growing. 0: there is none.
static BARRIER: AtomicUsize = AtomicUsize::new(0);
/// Of the stack the child has only what lies higher. Below reserved memory it does not grow.
static IS_ABSENT: AtomicBool = AtomicBool::new(false);

/// The kernel's gap. Where it was made larger by the kernel's command line, a stack does not grow
/// at all; where it was made smaller, so much of its growth is not counted.
const GAP: usize = 1 << 20;

/// The stack may grow by so much more than was needed: a fault costs 3 us.
const AHEAD: usize = 64 << 10;

/// After absent memory is reserved.
pub(crate) fn begin() {
    let start = exclusions::stack_start();
    if start > 2 * GAP {
        LOWEST.store(start, Relaxed);
        if exclusions::absent().find(start).is_some() {
            IS_ABSENT.store(true, Relaxed);
        } else {
            hold(start, start);
        }
    }
}

/// Whether a range has the page, which a plain child would not have. Or memory below the stack that
/// the kernel would refuse to a plain child.
pub(crate) fn is_barrier(addr: usize, len: usize) -> bool {
    let (start, end) = if IS_ABSENT.load(Relaxed) {
        let lowest = LOWEST.load(Relaxed);
        (lowest - GAP, lowest)
    } else {
        let page = BARRIER.load(Relaxed);
        (page, page + 4096)
    };
    start != 0 && addr < end && start < addr.saturating_add(len)
}

/// The highest address below the stack, and below its gap, that a system call was given.
static FAR_BELOW: AtomicUsize = AtomicUsize::new(0);

/// A system call is about to touch `addr` and what follows. Where the program's own access would
/// extend the stack, the kernel would answer EFAULT.
pub(crate) fn need(addr: usize) {
    let lowest = LOWEST.load(Relaxed);
    if addr < lowest && !(lowest - addr <= GAP && grow(addr)) && addr > FAR_BELOW.load(Relaxed) {
        FAR_BELOW.store(addr, Relaxed);
    }
}

/// Makes a call of the program's. What it points to is present, but for what lies far below the
/// stack.
#[inline(never)]
pub(crate) fn pass(nr: u32, args: &Args) -> isize {
    // SAFETY: the program's own call, judged private.
    let answer = unsafe { kernel::pass(nr, args) };
    if answer == -(Errno::EFAULT.raw() as isize) {
        abort_if_in_reach();
    }
    answer
}

/// A system call has answered EFAULT. Where the stack may be so large that it would reach what the
/// call was given, the kernel would have extended it in a plain child.
#[cold]
#[inline(never)]
fn abort_if_in_reach() {
    let far = FAR_BELOW.load(Relaxed);
    // The stack may have grown past it since.
    if far != 0 && LOWEST.load(Relaxed).saturating_sub(far) <= largest() {
        abort(AbortKind::Fault);
    }
}

/// Whether a plain child's stack may grow for an access to `addr`, as nothing is there.
pub(crate) fn would_reach(addr: usize) -> bool {
    let lowest = LOWEST.load(Relaxed);
    addr < lowest
        && lowest - addr <= largest()
        && (is_barrier(addr, 1) || mm::mincore(addr & !4095, &mut [0]).is_err())
}

/// How large the stack may become.
#[inline(never)]
fn largest() -> usize {
    sched::getrlimit(k::RLIMIT_STACK).map_or(usize::MAX, |limit| limit.soft as usize)
}

/// The lowest address that the limit allows the stack. The kernel measures from the end of the
/// stack's mapping, and in the child the mapping may be split.
fn floor() -> usize {
    exclusions::stack_end().saturating_sub(largest()).next_multiple_of(4096)
}

/// Lets the stack grow to `addr`, as far as the child may have new memory. `false`: it is no access
/// that extends the stack, or one that the kernel has refused.
#[cold]
#[inline(never)]
pub(crate) fn grow(addr: usize) -> bool {
    let lowest = LOWEST.load(Relaxed);
    if addr >= lowest || lowest - addr > GAP || IS_ABSENT.load(Relaxed) {
        return false;
    }
    let floor = floor();
    if addr < floor {
        return false;
    }
    let next = ((addr & !4095) - AHEAD).max(floor);
    if !fetch::may_take(lowest - next) {
        abort(AbortKind::Budget);
    }
    hold(next, lowest);
    LOWEST.store(next, Relaxed);
    true
}

/// Keeps the stack from growing below `lowest`. So far it may begin at `before`.
#[inline(never)]
fn hold(lowest: usize, before: usize) {
    let old = BARRIER.load(Relaxed);
    let new = barrier(lowest, before, old);
    if old != 0 && new != old {
        // SAFETY: our own page, which the program does not know.
        let _ = unsafe { mm::munmap(old as *mut _, 4096) };
    }
    BARRIER.store(new, Relaxed);
}

/// Puts the page where it belongs, and says where. 0: there is none. `old`: where it is.
fn barrier(lowest: usize, before: usize, old: usize) -> usize {
    let (mut page, mut prot) = (lowest - GAP - 4096, mm::PROT_READ);
    let is_near = absent_within_gap(lowest, before).is_some_and(|last| {
        // The kernel keeps the parent's stack apart from that memory, which is only reserved here.
        fetch::fetch(last);
        true
    });
    let floor = floor();
    if floor > page {
        // An access to `page` would end a plain child, and reading it would not end this one. So
        // the page lies higher and may not be accessed. The kernel extends the stack that far,
        // which is not counted.
        (page, prot) = (floor.min(lowest) - 4096, mm::PROT_NONE);
    } else if is_near {
        return 0;
    }
    if page == old {
        return old;
    }
    let flags = mm::MAP_PRIVATE | mm::MAP_NORESERVE | mm::MAP_FIXED_NOREPLACE;
    // SAFETY: FIXED_NOREPLACE replaces nothing.
    match unsafe { mm::map_anonymous_at(page, 4096, prot, flags) } {
        Ok(_) => page,
        // Memory of the parent's that the child has: the kernel leaves the gap above it, too. If it
        // may not be accessed, the stack may grow by a megabyte that is not counted.
        Err(Errno::EEXIST) => 0,
        Err(_) => abort(AbortKind::Setup),
    }
}

/// The last byte of the absent memory that lies nearest below the stack, if the stack would come
/// too near.
fn absent_within_gap(lowest: usize, before: usize) -> Option<usize> {
    let absent = exclusions::absent();
    // The page of `hold` counts, too.
    let first = absent.at_or_after(lowest - GAP - 4096);
    let below = absent.at_or_after(before);
    (first < below).then(|| absent.get(below - 1).1 - 1)
}
