//! `--huge-pages=thp` after a fork: memory is merged again a little at a time.
//!
//! While a child lives that has its parent's memory, each page that either writes splits a huge
//! page in the writer (mm/huge_memory.c, `do_huge_pmd_wp_page`). The next fork would copy the
//! entries of all split pages. To merge them before it would take 0.1 s a GiB, while the program
//! answers nobody.
//!
//! So they are merged when the child has ended, by the program's own threads: each time that a wait
//! of theirs has returned (`epoll_wait`, `poll`, `select`, `accept`), a slice of a millisecond at
//! most, and never more than a twentieth of the time. A thread, or a process beside the program,
//! could be seen; time cannot.
//!
//! The slice comes *after* the wait. A signal that arrives in it is as one that arrives just after
//! the wait, and the program looks for what its handler has left before it waits again. In a slice
//! before the wait the handler would run too early to interrupt the wait.
//!
//! Pages that another process has, too, are left: to merge them is to copy them, and both processes
//! would keep theirs. /proc/self/pagemap tells. What it costs: the file is open for some
//! microseconds, with a number that another thread may find taken.

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use forkless_run::Counter;
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, fd, maps, process, sched, time};
use linux_raw_sys::general::{P_PID, WEXITED, WNOHANG, WNOWAIT};

use crate::mappings::each_writable;
use crate::speculation::speculating;
use crate::uninterrupted::uninterrupted;
use crate::{proc, tally};

use super::{HUGE, PAGES};

/// Not 0: the interposed waits have something to do afterwards. They read it.
pub(crate) static WATCHED: AtomicU8 = AtomicU8::new(0);

/// The program has waited for somebody. From then on nothing is merged before a fork.
static WAITED: AtomicBool = AtomicBool::new(false);

/// A fork was made since memory was last found merged.
static PENDING: AtomicBool = AtomicBool::new(false);

/// A thread is in a slice.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Threads that fork. No slice begins meanwhile.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// No slice before this time.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The last child that began with this memory, when it was forked, and whether it may live.
static CHILD: AtomicI32 = AtomicI32::new(0);
static FORKED: AtomicU64 = AtomicU64::new(0);
static LIVES: AtomicBool = AtomicBool::new(false);

/// A sweep goes over all memory once. Where it is, how many ranges it has merged or found whole,
/// and how many it has left since others have them or there was no huge page.
static SWEEPING: AtomicBool = AtomicBool::new(false);
static CURSOR: AtomicUsize = AtomicUsize::new(0);
static MERGED: AtomicUsize = AtomicUsize::new(0);
static SKIPPED: AtomicUsize = AtomicUsize::new(0);
static EMPTY: AtomicUsize = AtomicUsize::new(0);

/// When the next sweep is due, and when the child's end may bring one forward to. In a worker,
/// whose parent has all its memory, each fork would bring one for nothing.
static SWEEP_AT: AtomicU64 = AtomicU64::new(0);
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);

/// Seconds between sweeps that have left something.
static PAUSE: AtomicU32 = AtomicU32::new(1);

/// Huge pages to be merged in one call. More than one while those before were whole already.
static AT_ONCE: AtomicUsize = AtomicUsize::new(1);

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// How often a living child is looked for.
const LOOK: u64 = 100 * MS;

/// A child that lives longer may have executed a program, or be a worker. Only its parent's pages
/// tell, so they are looked at from time to time.
const LONG: u64 = 60 * SECOND;

/// The longest pause between sweeps that have left something.
const LONGEST: u32 = 64;

/// A slice goes on for so long: after a wait that brought something to do, and after one that ran
/// out of time. One huge page takes 0.1 to 0.3 ms.
const BUSY_SLICE: u64 = MS / 4;
const IDLE_SLICE: u64 = 2 * MS;

/// So many times the length of a slice goes by until the next.
const REST: u64 = 19;

/// A huge page that took more processor time than this is followed by a rest that is longer in
/// proportion, up to [`LONGEST_REST`]: the kernel has to move memory for it.
const SLOW: u64 = 2 * MS;
const LONGEST_REST: u64 = 2 * SECOND;

/// Ranges looked at before the clock is read again.
const LOOKED_AT_ONCE: usize = 32;

/// A call that took less has merged nothing. Of so many huge pages the last may yet be split.
const QUICK: u64 = MS / 20;
const MOST_AT_ONCE: usize = 8;

/// Empty ranges a sweep looks at before it goes on to the next mapping: some programs reserve
/// terabytes.
const MOST_EMPTY: usize = 1 << 16;

pub(super) fn configure(wanted: bool) {
    WATCHED.store(wanted.into(), Relaxed);
}

/// Whether the program has begun to wait for others.
pub(super) fn has_waited() -> bool {
    WAITED.load(Relaxed)
}

/// Before a fork: waits for a slice of another thread, and lets none begin until [`after_fork`].
/// The child would have the slice's descriptor.
pub(super) fn hold() {
    if WATCHED.load(Relaxed) == 0 || speculating() {
        return;
    }
    // A child of vfork that was killed in a slice never ends it.
    const PATIENCE: u64 = 2 * SECOND;
    FORKING.fetch_add(1, SeqCst);
    if !BUSY.load(SeqCst) {
        return;
    }
    let end = nanoseconds(time::monotonic_coarse()) + PATIENCE;
    while BUSY.load(SeqCst) {
        if nanoseconds(time::monotonic_coarse()) > end {
            BUSY.store(false, SeqCst);
        }
        sched::yield_now();
    }
}

/// After a fork, in the parent. `keeps`: the child has this memory, and did not execute a program.
pub(super) fn after_fork(child: i32, keeps: bool) {
    if WATCHED.load(Relaxed) == 0 {
        return;
    }
    if keeps && child > 0 {
        let now = nanoseconds(time::monotonic_coarse());
        CHILD.store(child, Relaxed);
        FORKED.store(now, Relaxed);
        LIVES.store(true, Relaxed);
        SWEEPING.store(false, Relaxed);
        SWEEP_AT.store(now + LONG, Relaxed);
        NEXT.store(now + LOOK, Relaxed);
        PENDING.store(true, Relaxed);
    }
    // Where a handler forked while its thread did, there may be none.
    let _ = FORKING.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
}

/// In the child: what is to be merged is its parent's.
pub(super) fn in_child() {
    if WATCHED.load(Relaxed) != 0 {
        PENDING.store(false, Relaxed);
        BUSY.store(false, Relaxed);
        FORKING.store(0, Relaxed);
    }
}

/// After a wait: whether there is something to merge. Makes no system call.
pub(crate) fn is_pending() -> bool {
    if speculating() {
        return false;
    }
    if !has_waited() {
        WAITED.store(true, Relaxed);
    }
    PENDING.load(Relaxed)
}

/// Whether the rest after the last slice is over.
pub(crate) fn is_due() -> bool {
    nanoseconds(time::monotonic_coarse()) >= NEXT.load(Relaxed)
}

/// A slice, unless another thread is in one. `idle`: the wait ran out of time.
#[cold]
#[inline(never)]
pub(crate) fn work(idle: bool) {
    // A handler would find the slice's descriptor, and could fork while the slice is held.
    uninterrupted(|| {
        if !BUSY.swap(true, SeqCst) {
            // A fork that begins from here on waits.
            if FORKING.load(SeqCst) == 0 {
                slice(if idle { IDLE_SLICE } else { BUSY_SLICE });
            }
            BUSY.store(false, SeqCst);
        }
    });
}

fn slice(length: u64) {
    let begun = nanoseconds(time::monotonic());
    if !SWEEPING.load(Relaxed) && !begins(begun) {
        NEXT.store(begun + LOOK, Relaxed);
        return;
    }
    let (mut now, mut longest) = (begun, 0);
    while now - begun < length {
        let before = nanoseconds(time::of_thread());
        let went_on = go_on();
        longest = longest.max(nanoseconds(time::of_thread()) - before);
        now = nanoseconds(time::monotonic());
        if !went_on {
            end(now);
            break;
        }
    }
    let rest = (now - begun) * REST;
    let longer = (rest * (longest / SLOW).max(1)).min(LONGEST_REST);
    NEXT.store(now + rest.max(longer), Relaxed);
}

/// Whether a sweep begins now.
fn begins(now: u64) -> bool {
    if LIVES.load(Relaxed) && !runs(CHILD.load(Relaxed)) {
        LIVES.store(false, Relaxed);
        SWEEP_AT.store(NOT_BEFORE.load(Relaxed), Relaxed);
    }
    if now < SWEEP_AT.load(Relaxed) {
        return false;
    }
    if process::thp_disabled() == Ok(true) {
        PENDING.store(false, Relaxed);
        return false;
    }
    for counter in [&CURSOR, &MERGED, &SKIPPED, &EMPTY] {
        counter.store(0, Relaxed);
    }
    SWEEPING.store(true, Relaxed);
    true
}

/// The sweep has come to the end. Another follows if it has left something.
fn end(now: u64) {
    SWEEPING.store(false, Relaxed);
    let lives = LIVES.load(Relaxed);
    let pause = PAUSE.load(Relaxed);
    let at = now + u64::from(pause) * SECOND;
    let in_vain = MERGED.load(Relaxed) == 0;
    if !lives {
        let left = in_vain || SKIPPED.load(Relaxed) > 0;
        PAUSE.store(if left { (pause * 2).min(LONGEST) } else { 1 }, Relaxed);
        NOT_BEFORE.store(if in_vain { at } else { now }, Relaxed);
    }
    SWEEP_AT.store(if lives { now + LONG } else { at }, Relaxed);
    if SKIPPED.load(Relaxed) == 0 {
        PENDING.store(false, Relaxed);
    }
}

/// Whether a child of this process runs. Asks without taking its status, which is the program's. A
/// zombie has no memory.
fn runs(child: i32) -> bool {
    process::waitid(P_PID, child, WEXITED | WNOHANG | WNOWAIT).is_ok_and(|about| about.pid == 0)
}

/// What is to be done with a range of a huge page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Range {
    Merge,
    /// Other processes have some of it.
    Shared,
    /// Half of it is not there, or part of it is swapped out.
    Leave,
    Empty,
}

/// Merges a few ranges from the cursor on. `false`: there are no more.
fn go_on() -> bool {
    let cursor = CURSOR.load(Relaxed);
    let mut found = None;
    // It ends early at the mapping that is looked for.
    let _ = each_writable(|m| {
        let start = m.start.next_multiple_of(HUGE).max(cursor);
        let end = m.end & !(HUGE - 1);
        let fits = m.flags & maps::SHARED == 0 && m.inode == 0 && m.page_size < HUGE as u64;
        if fits && start < end {
            found = Some((start, end));
        }
        found.is_none()
    });
    let Some((start, end)) = found else { return false };
    let Ok(file) = proc::open(c"self/pagemap") else {
        // Of a process that may not look (it has changed its user), the pages stay as they are.
        SKIPPED.store(0, Relaxed);
        return false;
    };
    let (mut from, mut to, mut at) = (start, start, start);
    let (at_once, mut looked) = (AT_ONCE.load(Relaxed), 0);
    while at < end && looked < LOOKED_AT_ONCE && to - from < at_once * HUGE {
        let range = look(file, at);
        looked += 1;
        if range == Range::Merge {
            if from == to {
                from = at;
            }
            to = at + HUGE;
        } else if from < to {
            // It is looked at again, after the merge of those before.
            break;
        }
        at += HUGE;
        match range {
            Range::Shared => drop(SKIPPED.fetch_add(1, Relaxed)),
            Range::Empty if EMPTY.fetch_add(1, Relaxed) >= MOST_EMPTY => at = end,
            _ => {}
        }
    }
    let _ = fd::close(file);
    CURSOR.store(at, Relaxed);
    from == to || merge(from, to)
}

fn merge(from: usize, to: usize) -> bool {
    let pages = (to - from) / HUGE;
    let before = nanoseconds(time::monotonic());
    let merged = super::collapse(from, to);
    let was_quick = nanoseconds(time::monotonic()) - before < QUICK;
    AT_ONCE.store(if was_quick { (pages * 2).min(MOST_AT_ONCE) } else { 1 }, Relaxed);
    match merged {
        Ok(()) => {
            MERGED.fetch_add(pages, Relaxed);
            tally::add(Counter::Merged, pages as u64);
        }
        // No huge page to be had now: there may be one later.
        Err(Errno::ENOMEM) => {
            SKIPPED.fetch_add(1, Relaxed);
            return false;
        }
        // Pinned pages, or memory for which the program declined huge pages.
        Err(_) => {}
    }
    true
}

/// Looks at the pages of a range (Documentation/admin-guide/mm/pagemap.rst).
fn look(file: i32, start: usize) -> Range {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    const EXCLUSIVE: u64 = 1 << 56;
    const AT_ONCE: usize = 128;
    let mut present = 0;
    for part in 0..PAGES / AT_ONCE {
        let mut entries = [0u8; AT_ONCE * 8];
        let offset = (start / 4096 + part * AT_ONCE) * 8;
        if fd::read_at(file, &mut entries, offset as u64) != Ok(entries.len()) {
            return Range::Leave;
        }
        for entry in entries.as_chunks::<8>().0 {
            let entry = u64::from_ne_bytes(*entry);
            if entry & (SWAPPED | OF_FILE) != 0 {
                return Range::Leave;
            }
            if entry & PRESENT != 0 {
                present += 1;
                // The page of zeros is not exclusive, either. It would become memory.
                if entry & EXCLUSIVE == 0 {
                    return Range::Shared;
                }
            }
        }
    }
    match present {
        0 => Range::Empty,
        n if n * 2 >= PAGES => Range::Merge,
        _ => Range::Leave,
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}
