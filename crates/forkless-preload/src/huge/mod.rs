//! `--huge-pages`: huge pages for memory that the allocators' settings do not reach, before a fork
//! copies its page table entry by entry.
//!
//! Programs that map their memory piece by piece never ask malloc (APR's pools, and so Apache, map
//! 8 KiB at a time). Their memory is merged in place (`MADV_COLLAPSE`, Linux 6.1). That takes
//! about a tenth of a second a GiB, and saves nine tenths of every later fork.
//!
//! A program that has not waited for anybody yet is starting: its new memory is merged before a
//! fork, so that its workers get huge pages. Once it has waited, it serves, and a fork may not wait
//! for that: memory is merged in the [`background`], after a fork.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use forkless_run::Counter;
use forkless_sys::{CPtr, maps, mm, process};

use crate::mappings::each_writable;
use crate::{config, small_file, tally};
use forkless_speculate::text::decimal;

pub(crate) mod background;
pub(crate) mod pool;

static MERGES: AtomicBool = AtomicBool::new(false);

/// Resident bytes at the last time. The next time is due when they have grown by a quarter.
static MERGED: AtomicUsize = AtomicUsize::new(0);

const HUGE: usize = 2 << 20;
const PAGES: usize = HUGE / 4096;

/// Whether the option is there.
pub(crate) fn configure(wanted: bool) {
    MERGES.store(wanted, Relaxed);
    background::configure(wanted);
}

/// Ordinary code, before libc's fork takes its locks.
pub(crate) fn before_fork() {
    if MERGES.load(Relaxed) {
        prepare();
        background::hold();
    }
}

/// After the fork. `keeps`: the child has this memory, as it did not execute a program. One compare
/// where the option is not there: the rest lies far from what every fork runs through.
#[inline]
pub(crate) fn after_fork(pid: i32, keeps: bool) {
    if MERGES.load(Relaxed) {
        after_fork_wanted(pid, keeps);
    }
}

#[cold]
#[inline(never)]
fn after_fork_wanted(pid: i32, keeps: bool) {
    if pid == 0 {
        background::in_child();
    } else {
        background::after_fork(pid, keeps);
    }
}

/// Out of line: its arrays would make the frame of every fork span a page more of the stack.
#[cold]
#[inline(never)]
fn prepare() {
    let grown = has_grown();
    pool::before_fork(grown);
    if !grown {
        return;
    }
    // Ruby 2.6 and redis do that themselves, after `run` had cleared the inherited setting.
    if !pool::wanted() && process::thp_disabled() == Ok(true) {
        tally::add(Counter::Declined, 1);
        pool::warn(DECLINED);
        return;
    }
    if background::has_waited() {
        return;
    }
    // The list may end early (no /proc). Memory that was not reached stays as it is.
    let _ = each_writable(|m| {
        if m.flags & maps::SHARED == 0 && m.inode == 0 {
            dense(m.start.next_multiple_of(HUGE), m.end & !(HUGE - 1), advise);
        }
        true
    });
}

const DECLINED: &[u8] = b"forkless: the program turned transparent huge pages off for itself (PR_SET_THP_DISABLE), so --huge-pages changes \
    nothing: it may have a setting for that (redis: disable-thp no)\n";

fn has_grown() -> bool {
    let Some(resident) = resident() else { return false };
    let done = MERGED.load(Relaxed);
    if resident < config::minimum() || resident < done + done / 4 {
        return false;
    }
    MERGED.store(resident, Relaxed);
    true
}

/// Calls `each` for ranges of whole huge pages that are at least half resident. One for a few bytes
/// would be memory lost.
pub(crate) fn dense(start: usize, end: usize, mut each: impl FnMut(usize, usize)) {
    let mut from = start;
    let mut each = |start, end| {
        if end > start {
            each(start, end);
        }
    };
    let mut at = start;
    while at < end {
        let mut there = [0u8; PAGES];
        let dense = mm::mincore(at, &mut there).is_ok()
            && there.iter().filter(|page| **page & 1 != 0).count() * 2 >= PAGES;
        at += HUGE;
        if !dense {
            each(from, at - HUGE);
            from = at;
        }
    }
    each(from, at);
}

/// As [`merge`], where nothing depends on it.
pub(crate) fn advise(start: usize, end: usize) {
    let _ = merge(start, end);
}

/// Makes huge pages of a range. Refused where the program declined huge pages, on older kernels,
/// and when memory is short: no harm done.
#[expect(unsafe_code, reason = "memory advice")]
fn merge(start: usize, end: usize) -> forkless_sys::Result<()> {
    // SAFETY: the contents stay as they are.
    unsafe { mm::madvise(start as *mut _, end - start, mm::MADV_COLLAPSE) }
}

/// Resident private memory: the second field of /proc/self/statm less the third.
fn resident() -> Option<usize> {
    let mut text = [0u8; 128];
    let text = small_file::read(CPtr::from(c"/proc/self/statm"), &mut text)?;
    let mut fields = text.split(|byte| *byte == b' ');
    let all = decimal(fields.nth(1)?)?;
    let shared = decimal(fields.next()?)?;
    Some(all.saturating_sub(shared) as usize * 4096)
}
