//! The child's descriptors. An inherited one shares its open file description with the parent, so only those opened since the fork
//! are private; and one is ours, invisible to the program.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forkless_run::AbortKind as Kind;
use forkless_sys::{Errno, fd};

use crate::kernel::Args;

use super::super::tables;
use super::{abort, fetch};

/// Descriptors kept track of; higher ones count as inherited.
const TRACKED: usize = 4096;

/// One bit a descriptor.
pub(in super::super) struct Set([AtomicU64; TRACKED / 64]);

/// Opened since the fork.
fn private() -> &'static Set {
    &tables::get().private
}

/// Of those, the ones whose reads and writes nobody else can notice.
fn usable() -> &'static Set {
    &tables::get().usable
}

impl Set {
    fn has(&self, fd: usize) -> bool {
        fd < TRACKED && self.0[fd / 64].load(Relaxed) & 1 << (fd % 64) != 0
    }

    fn put(&self, fd: usize, on: bool) {
        if fd < TRACKED {
            let word = &self.0[fd / 64];
            let bit = 1 << (fd % 64);
            let now = word.load(Relaxed);
            let new = if on { now | bit } else { now & !bit };
            if new != now {
                word.store(new, Relaxed);
            }
        }
    }
}

const EBADF: isize = -(Errno::EBADF.raw() as isize);

pub(crate) fn begin(source: i32) {
    fetch::SOURCE.store(source, Relaxed);
}

/// Whether the register names our descriptor.
pub(crate) fn is_hidden(fd: usize) -> bool {
    hidden() == Some(fd as i32)
}

/// Number of our descriptor, if there is one.
pub(crate) fn hidden() -> Option<i32> {
    Some(fetch::SOURCE.load(Relaxed)).filter(|fd| *fd >= 0)
}

pub(crate) fn is_private(fd: usize) -> bool {
    private().has(fd as u32 as usize)
}

pub(crate) fn is_usable(fd: usize) -> bool {
    usable().has(fd as u32 as usize)
}

/// A descriptor the kernel has just handed out as the lowest free one from `lowest` on.
pub(crate) fn opened(answer: isize, lowest: usize, usable: bool) {
    if let Some(ours) = hidden() {
        // Ours may be the one too many; or without it the program would have got this very number.
        let ours = ours as isize;
        if answer == -(Errno::EMFILE.raw() as isize) || (answer > ours && lowest as isize <= ours) {
            abort(Kind::Collision);
        }
    }
    if answer >= 0 {
        set(answer as usize, true, usable);
    }
}

pub(crate) fn set(fd: usize, is_private: bool, is_usable: bool) {
    private().put(fd, is_private);
    usable().put(fd, is_usable);
}

/// The two descriptors of pipe, pipe2 or socketpair.
pub(crate) fn opened_pair(answer: isize, first: i32, second: i32) {
    if answer == 0 {
        opened(first as isize, 0, true);
        opened(second as isize, 0, true);
    } else {
        opened(answer, 0, false);
    }
}

/// A copy: as private as what it copies.
pub(crate) fn duplicated(answer: isize, from: usize, lowest: usize) {
    let (private, usable) = (is_private(from), is_usable(from));
    opened(answer, lowest, usable);
    if answer >= 0 {
        set(answer as usize, private, usable);
    }
}

/// Before `dup2` or `dup3` onto a number: ours moves out of the way.
pub(crate) fn vacate(target: usize) {
    if let Some(old) = hidden().filter(|_| is_hidden(target)) {
        let Ok(new) = fd::dup_cloexec(old, old + 1) else { abort(Kind::Collision) };
        fetch::SOURCE.store(new, Relaxed);
        let _ = fd::close(old);
    }
}

/// After `dup2` or `dup3` that succeeded.
pub(crate) fn replaced(from: usize, to: usize) {
    if from != to {
        set(to, is_private(from), is_usable(from));
    }
}

pub(crate) fn close(fd: usize) -> isize {
    let fd = fd as u32 as usize;
    if is_hidden(fd) {
        return EBADF;
    }
    let answer = fd::close(fd as i32);
    // Linux closes even where close reports an error; only EBADF left everything as it was.
    set(fd, false, false);
    answer.map_or_else(|e| -(e.raw() as isize), |()| 0)
}

/// `close_range`, around ours.
pub(crate) fn close_range(args: &Args) -> isize {
    let (first, last, flags) = (args[0] as u32, args[1] as u32, args[2] as u32);
    if flags & !(fd::CLOSE_RANGE_UNSHARE | fd::CLOSE_RANGE_CLOEXEC) != 0 {
        return -(Errno::EINVAL.raw() as isize);
    }
    let part = |first, last| {
        if first > last {
            0
        } else {
            fd::close_range(first, last, flags).map_or_else(|e| -(e.raw() as isize), |()| 0)
        }
    };
    let ours = hidden().map(|fd| fd as u32).filter(|fd| (first..=last).contains(fd));
    let Some(ours) = ours.filter(|_| flags & fd::CLOSE_RANGE_CLOEXEC == 0) else {
        let answer = fd::close_range(first, last, flags);
        forget(first, last, flags);
        return answer.map_or_else(|e| -(e.raw() as isize), |()| 0);
    };
    let answer = if ours > 0 { part(first, ours - 1) } else { 0 };
    if answer != 0 {
        return answer;
    }
    forget(first, last, flags);
    part(ours + 1, last)
}

fn forget(first: u32, last: u32, flags: u32) {
    if flags & fd::CLOSE_RANGE_CLOEXEC == 0 {
        for fd in first as usize..=(last as usize).min(TRACKED - 1) {
            set(fd, false, false);
        }
    }
}
