//! A write that the program has not asked for: a line on standard error, a record's first bytes.
//! The program may notice nothing but the text.
//!
//! A write into a pipe that nobody reads, past the limit of file sizes, or to a terminal from the
//! background (`tostop`) ends or stops a process by a signal. A write into a full pipe waits.

use linux_raw_sys::general as k;

use crate::poll::{POLLOUT, PollFd, poll};
use crate::signal::{self, SigSet};
use crate::time::Timespec;
use crate::{Errno, Result, fd};

/// Signals that a write may bring.
pub const SIGNALS: SigSet =
    SigSet::EMPTY.with(k::SIGPIPE as i32).with(k::SIGXFSZ as i32).with(k::SIGTTOU as i32);

/// `write(2)` that neither waits nor leaves a signal. Where it would, it fails with `EAGAIN`, or
/// with the error that comes with the signal (`EPIPE`, `EFBIG`). A text of at most `PIPE_BUF` bytes
/// is not cut by a pipe that is almost full.
///
/// All signals are blocked meanwhile, in this thread.
#[inline]
pub fn write(file: i32, text: &[u8]) -> Result<usize> {
    // All signals: a handler that jumped away would leave the mask changed.
    let before = signal::set_mask(SigSet::ALL)?;
    let written = try_write(file, text);
    // A blocked SIGTTOU is not sent at all (drivers/tty/tty_jobctrl.c).
    if matches!(written, Err(Errno::EPIPE | Errno::EFBIG)) {
        let _ = signal::take_pending(SIGNALS);
    }
    // The same call has just been allowed, and the kernel has no other reason to refuse it.
    let _ = signal::set_mask(before);
    written
}

#[inline(always)]
fn try_write(file: i32, text: &[u8]) -> Result<usize> {
    let mut polled = [PollFd { fd: file, events: POLLOUT, revents: 0 }];
    // Nothing is ready where it cannot be asked.
    let _ = poll(&mut polled, Some(Timespec { tv_sec: 0, tv_nsec: 0 }));
    // With POLLERR or POLLHUP nobody reads. A pending signal could not be told from the one that
    // the write brings: the kernel keeps one of a kind (kernel/signal.c, `legacy_queue`).
    if polled[0].revents != POLLOUT || signal::pending().unwrap_or(SigSet::ALL).and(SIGNALS) != SigSet::EMPTY
    {
        return Err(Errno::EAGAIN);
    }
    fd::write(file, text)
}
