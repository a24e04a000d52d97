//! The child's descriptors (`forkless_speculate::descriptors`), and the one that is ours, invisible
//! to the program.

use core::sync::atomic::Ordering::Relaxed;

use forkless_run::AbortKind;
use forkless_speculate::descriptors::{CloseRange, Collision, Descriptors};
use forkless_sys::{Errno, fd};

use crate::kernel::Args;

use super::super::state;
use super::{abort, fetch, status_flags};

fn all() -> &'static Descriptors {
    &state::get().descriptors
}

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
    all().is_private(fd)
}

pub(crate) fn is_usable(fd: usize) -> bool {
    all().is_usable(fd)
}

/// A descriptor the kernel has just handed out as the lowest free one.
pub(crate) fn opened(answer: isize, usable: bool) {
    // The kernel's records of it, and of a pipe or socket.
    if answer >= 0 && !fetch::may_take(4096) {
        abort(AbortKind::Budget);
    }
    or_abort(all().opened(answer, 0, usable, hidden()));
}

fn or_abort(result: Result<(), Collision>) {
    if result.is_err() {
        abort(AbortKind::Collision);
    }
}

/// The two descriptors of pipe, pipe2 or socketpair.
pub(crate) fn opened_pair(answer: isize, first: i32, second: i32) {
    if answer == 0 {
        opened(first as isize, true);
        opened(second as isize, true);
    } else {
        opened(answer, false);
    }
}

/// A copy, the lowest free number from `lowest` on.
pub(crate) fn duplicated(answer: isize, from: usize, lowest: usize) {
    or_abort(all().duplicated(answer, from, lowest, hidden()));
}

/// Before `dup2` or `dup3` onto a number: ours moves out of the way.
pub(crate) fn vacate(target: usize) {
    if let Some(old) = hidden().filter(|_| is_hidden(target)) {
        let Ok(new) = fd::dup_cloexec(old, old + 1) else { abort(AbortKind::Collision) };
        fetch::SOURCE.store(new, Relaxed);
        let _ = fd::close(old);
    }
}

/// After `dup2` or `dup3` that succeeded.
pub(crate) fn replaced(from: usize, to: usize) {
    all().replaced(from, to);
}

pub(crate) fn close(fd: usize) -> isize {
    if is_hidden(fd) {
        return -(Errno::EBADF.raw() as isize);
    }
    status_flags::abort_if_needed(fd as u32, fd as u32);
    let answer = fd::close(fd as i32);
    // Linux closes even where close reports an error; only EBADF left everything as it was.
    all().closed(fd);
    errno_or_zero(answer)
}

fn errno_or_zero(result: forkless_sys::Result<()>) -> isize {
    result.map_or_else(|e| -(e.raw() as isize), |()| 0)
}

/// `close_range`, around ours.
pub(crate) fn close_range(args: &Args) -> isize {
    let range = CloseRange { first: args[0] as u32, last: args[1] as u32, flags: args[2] as u32 };
    if !range.is_valid() {
        return -(Errno::EINVAL.raw() as isize);
    }
    if range.closes() {
        status_flags::abort_if_needed(range.first, range.last);
    }
    let close = |part: CloseRange| errno_or_zero(fd::close_range(part.first, part.last, part.flags));
    let Some([below, above]) = range.around(hidden()) else {
        let answer = close(range);
        all().closed_range(&range);
        return answer;
    };
    let answer = below.map_or(0, close);
    if answer != 0 {
        return answer;
    }
    all().closed_range(&range);
    above.map_or(0, close)
}
