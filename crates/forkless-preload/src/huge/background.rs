//! `--huge-pages=thp` after a fork: memory is merged again a little at a time.
//!
//! While a child lives that has its parent's memory, each page that either writes splits a huge
//! page in the writer (mm/huge_memory.c, `do_huge_pmd_wp_page`). The next fork would copy the
//! entries of all split pages. To merge them before it would take 0.1 s a GiB, while the program
//! answers nobody.
//!
//! So they are merged when the child has ended, by the program's own threads: each time that a wait
//! of theirs has returned (`epoll_wait`, `poll`, `select`, `accept4`), a slice of 0.25 ms, or of 2
//! ms if the wait had run out of time. One huge page may come on top. Slices are never more than a
//! twentieth of the time. A thread, or a process beside the program, could be seen; time cannot.
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
use forkless_sys::{Errno, fd, maps, process, time};
use linux_raw_sys::general::{P_PID, WEXITED, WNOHANG, WNOWAIT};

use crate::lazy_mapping::LazyMapping;
use crate::mappings::each_writable;
use crate::patience::wait_while;
use crate::speculation::speculating;
use crate::uninterrupted::uninterrupted;
use crate::{proc, reserve, tally};

use super::{HUGE, PAGES};

/// Not 0: the interposed waits have something to do afterwards. They read it.
pub(crate) static WATCHED: AtomicU8 = AtomicU8::new(0);

/// The program has waited for somebody. From then on nothing is merged before a fork.
static WAITED: AtomicBool = AtomicBool::new(false);

/// A fork was made since memory was last found merged.
static PENDING: AtomicBool = AtomicBool::new(false);

/// The rest of the state, which only programs with the option need.
#[derive(Debug)]
struct State {
    /// A thread is in a slice.
    busy: AtomicBool,
    /// Threads that fork. No slice begins meanwhile.
    forking: AtomicU32,
    /// No slice before this time.
    next: AtomicU64,
    /// The last child that began with this memory, and whether it may live.
    child: AtomicI32,
    lives: AtomicBool,
    /// A sweep goes over all memory once. Where it is, how many ranges it has merged or found
    /// whole, and how many it has left since others have them or there was no huge page.
    sweeping: AtomicBool,
    cursor: AtomicUsize,
    merged: AtomicUsize,
    skipped: AtomicUsize,
    empty: AtomicUsize,
    /// When the next sweep is due, and when the child's end may bring one forward to. In a worker,
    /// whose parent has all its memory, each fork would bring one for nothing.
    sweep_at: AtomicU64,
    not_before: AtomicU64,
    /// How often the pause between sweeps that have left something was doubled.
    doubled: AtomicU32,
    /// Huge pages to be merged in one call; 0 is 1. More than one while those before were whole
    /// already.
    at_once: AtomicUsize,
}

/// Mapped where the option is there.
#[expect(unsafe_code, reason = "all of it is valid when zeroed")]
// SAFETY: made of atomics.
static STATE: LazyMapping<State> = unsafe { LazyMapping::new(reserve::MERGING) };

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// How often a living child is looked for.
const LOOK: u64 = 100 * MS;

/// A child that lives longer may have executed a program, or be a worker. Only its parent's pages
/// tell, so they are looked at from time to time.
const LONG: u64 = 60 * SECOND;

/// A sweep that has left something is followed by another after a second, and after twice the time
/// each time; so often.
const DOUBLED: u32 = 6;

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
    WATCHED.store((wanted && STATE.map()).into(), Relaxed);
}

/// Whether memory is merged after forks.
fn is_watched() -> bool {
    WATCHED.load(Relaxed) != 0 && !speculating()
}

/// Whether the program has begun to wait for others.
pub(super) fn has_waited() -> bool {
    WAITED.load(Relaxed)
}

/// Before a fork: waits for a slice of another thread, and lets none begin until [`after_fork`].
/// The child would have the slice's descriptor.
pub(super) fn hold() {
    if !is_watched() {
        return;
    }
    // A child of vfork that was killed in a slice never ends it.
    const PATIENCE: u64 = 2 * SECOND;
    STATE.forking.fetch_add(1, SeqCst);
    if !STATE.busy.load(SeqCst) {
        return;
    }
    let end = time::monotonic_coarse().nanos() + PATIENCE;
    wait_while(|| {
        if time::monotonic_coarse().nanos() > end {
            STATE.busy.store(false, SeqCst);
        }
        STATE.busy.load(SeqCst)
    });
}

/// After a fork, in the parent. `keeps`: the child has this memory, and did not execute a program.
pub(super) fn after_fork(child: i32, keeps: bool) {
    if !is_watched() {
        return;
    }
    if keeps && child > 0 {
        let now = time::monotonic_coarse().nanos();
        STATE.child.store(child, Relaxed);
        STATE.lives.store(true, Relaxed);
        STATE.sweeping.store(false, Relaxed);
        STATE.sweep_at.store(now + LONG, Relaxed);
        STATE.next.store(now + LOOK, Relaxed);
        PENDING.store(true, Relaxed);
    }
    // Where a handler forked while its thread did, there may be none.
    let _ = STATE.forking.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
}

/// In the child: what is to be merged is its parent's.
pub(super) fn in_child() {
    if !is_watched() {
        return;
    }
    PENDING.store(false, Relaxed);
    STATE.busy.store(false, Relaxed);
    STATE.forking.store(0, Relaxed);
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

/// Whether the rest after the last slice is over. The coarse clock would add 4 ms to each.
pub(crate) fn is_due() -> bool {
    time::monotonic().nanos() >= STATE.next.load(Relaxed)
}

/// A slice, unless another thread is in one. `idle`: the wait ran out of time.
#[cold]
#[inline(never)]
pub(crate) fn work(idle: bool) {
    // A handler would find the slice's descriptor, and could fork while the slice is held.
    uninterrupted(|| {
        if !STATE.busy.swap(true, SeqCst) {
            // A fork that begins from here on waits.
            if STATE.forking.load(SeqCst) == 0 {
                slice(if idle { IDLE_SLICE } else { BUSY_SLICE });
            }
            STATE.busy.store(false, SeqCst);
        }
    });
}

fn slice(length: u64) {
    let begun = time::monotonic().nanos();
    if !STATE.sweeping.load(Relaxed) && !begins(begun) {
        STATE.next.store(begun + LOOK, Relaxed);
        return;
    }
    let (mut now, mut longest) = (begun, 0);
    while now - begun < length {
        let before = time::of_thread().nanos();
        let went_on = go_on();
        longest = longest.max(time::of_thread().nanos() - before);
        now = time::monotonic().nanos();
        if !went_on {
            end(now);
            break;
        }
    }
    let rest = (now - begun) * REST;
    let longer = (rest * (longest / SLOW).max(1)).min(LONGEST_REST);
    STATE.next.store(now + rest.max(longer), Relaxed);
}

/// Whether a sweep begins now.
fn begins(now: u64) -> bool {
    if STATE.lives.load(Relaxed) && !runs(STATE.child.load(Relaxed)) {
        STATE.lives.store(false, Relaxed);
        STATE.sweep_at.store(STATE.not_before.load(Relaxed), Relaxed);
    }
    if now < STATE.sweep_at.load(Relaxed) {
        return false;
    }
    if process::thp_disabled() == Ok(true) {
        PENDING.store(false, Relaxed);
        return false;
    }
    for counter in [&STATE.cursor, &STATE.merged, &STATE.skipped, &STATE.empty] {
        counter.store(0, Relaxed);
    }
    STATE.sweeping.store(true, Relaxed);
    true
}

/// The sweep has come to the end. Another follows if it has left something.
fn end(now: u64) {
    STATE.sweeping.store(false, Relaxed);
    let lives = STATE.lives.load(Relaxed);
    let doubled = STATE.doubled.load(Relaxed);
    let at = now + (SECOND << doubled);
    let in_vain = STATE.merged.load(Relaxed) == 0;
    if !lives {
        let left = in_vain || STATE.skipped.load(Relaxed) > 0;
        STATE.doubled.store(if left { (doubled + 1).min(DOUBLED) } else { 0 }, Relaxed);
        STATE.not_before.store(if in_vain { at } else { now }, Relaxed);
    }
    STATE.sweep_at.store(if lives { now + LONG } else { at }, Relaxed);
    if STATE.skipped.load(Relaxed) == 0 {
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
    let cursor = STATE.cursor.load(Relaxed);
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
        STATE.skipped.store(0, Relaxed);
        return false;
    };
    let (mut from, mut to, mut at) = (start, start, start);
    let (at_once, mut looked) = (STATE.at_once.load(Relaxed).max(1), 0);
    while at < end && looked < LOOKED_AT_ONCE && to - from < at_once * HUGE {
        let range = look(file, at);
        looked += 1;
        if range == Range::Merge {
            if from == to {
                from = at;
            }
            to = at + HUGE;
        } else if from < to {
            // The ranges before are merged first. This one is looked at again afterwards.
            break;
        }
        at += HUGE;
        match range {
            Range::Shared => drop(STATE.skipped.fetch_add(1, Relaxed)),
            Range::Empty if STATE.empty.fetch_add(1, Relaxed) >= MOST_EMPTY => at = end,
            _ => {}
        }
    }
    let _ = fd::close(file);
    STATE.cursor.store(at, Relaxed);
    from == to || merge(from, to)
}

fn merge(from: usize, to: usize) -> bool {
    let pages = (to - from) / HUGE;
    let before = time::monotonic().nanos();
    let merged = super::merge(from, to);
    let was_quick = time::monotonic().nanos() - before < QUICK;
    STATE.at_once.store(if was_quick { (pages * 2).min(MOST_AT_ONCE) } else { 1 }, Relaxed);
    match merged {
        Ok(()) => {
            STATE.merged.fetch_add(pages, Relaxed);
            tally::add(Counter::Merged, pages as u64);
        }
        // No huge page to be had now: there may be one later.
        Err(Errno::ENOMEM) => {
            STATE.skipped.fetch_add(1, Relaxed);
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
