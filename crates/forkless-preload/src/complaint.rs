//! Writes that the program has not asked for: lines on standard error, and a record's first bytes.
//! Nothing but the text may be noticed.
//!
//! A write into a pipe that nobody reads, past the limit of file sizes, or to a terminal from the
//! background (`tostop`) ends or stops a process by a signal. A write into a full pipe waits.

use forkless_sys::poll::{POLLOUT, PollFd, poll};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, Result, fd};

use crate::filters;
use crate::signals::OF_WRITING;

/// Writes a line of at most `PIPE_BUF` bytes to standard error. It is lost where a write would wait
/// or bring a signal: the program goes on as if there were no line.
#[cold]
#[inline(never)]
pub(crate) fn say(line: &[u8]) {
    // A filter may kill for calls that the program does not make.
    if !filters::are_in_force() {
        let _ = write(2, line);
    }
}

/// `write(2)` of at most 4 GiB that neither waits nor leaves a signal.
#[cold]
#[inline(never)]
pub(crate) fn write(file: i32, text: &[u8]) -> Result<u32> {
    // All signals: a handler that jumped away would leave the mask changed.
    let before = signal::set_mask(SigSet::ALL)?;
    let written = try_write(file, text);
    // A blocked SIGTTOU is not sent at all (drivers/tty/tty_jobctrl.c).
    if matches!(written, Err(Errno::EPIPE | Errno::EFBIG)) {
        let _ = signal::take_pending(OF_WRITING);
    }
    // The same call has just been allowed, and the kernel has no other reason to refuse it.
    let _ = signal::set_mask(before);
    written
}

#[inline(always)]
fn try_write(file: i32, text: &[u8]) -> Result<u32> {
    let mut polled = [PollFd { fd: file, events: POLLOUT, revents: 0 }];
    // Nothing is ready where it cannot be asked.
    let _ = poll(&mut polled, Some(Timespec { tv_sec: 0, tv_nsec: 0 }));
    // With POLLERR or POLLHUP nobody reads. A pending signal could not be told from the one that
    // the write brings: the kernel keeps one of a kind (kernel/signal.c, `legacy_queue`).
    if polled[0].revents != POLLOUT
        || signal::pending().unwrap_or(SigSet::ALL).and(OF_WRITING) != SigSet::EMPTY
    {
        return Err(Errno::EAGAIN);
    }
    fd::write(file, text).map(|n| n as u32)
}
