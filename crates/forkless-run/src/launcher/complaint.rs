//! Writes of which the program that this process becomes must notice nothing but the text: lines on
//! standard error, and a record's first bytes.
//!
//! A write into a pipe that nobody reads, past the limit of file sizes, or to a terminal from the
//! background (`tostop`) ends or stops a process by a signal. A write into a full pipe waits.

use std::io;

use forkless_sys::poll::{POLLOUT, PollFd, poll};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, Result, fd};

/// Signals that a write may bring.
const OF_WRITING: SigSet = SigSet::EMPTY.with(libc::SIGPIPE).with(libc::SIGXFSZ).with(libc::SIGTTOU);

/// Writes a line to standard error. It is lost where a write would wait or bring a signal: the
/// program runs as if there were no line. What is longer than `PIPE_BUF` is cut.
pub fn complain(line: &str) {
    let line = &line.as_bytes()[..line.len().min(libc::PIPE_BUF - 1)];
    let line = [line, b"\n"].concat();
    let _ = without_signals(|| {
        let mut errors = [PollFd { fd: 2, events: POLLOUT, revents: 0 }];
        poll(&mut errors, Some(Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        // With POLLERR or POLLHUP nobody reads.
        if errors[0].revents == POLLOUT { fd::write(2, &line) } else { Ok(0) }
    });
}

/// Runs what writes, and takes back the signal that its error has brought.
pub(super) fn without_signals<T>(write: impl FnOnce() -> Result<T>) -> io::Result<T> {
    let before = signal::set_mask(SigSet::ALL).map_err(error)?;
    // A pending signal could not be told from the one that the write brings: the kernel keeps one
    // of a kind (kernel/signal.c, `legacy_queue`).
    let pending = signal::pending();
    let written = match pending.map(|pending| pending.and(OF_WRITING)) {
        Ok(SigSet::EMPTY) => write(),
        _ => Err(Errno::EAGAIN),
    };
    // A blocked SIGTTOU is not sent at all (drivers/tty/tty_jobctrl.c).
    if matches!(written, Err(Errno::EPIPE | Errno::EFBIG)) {
        let _ = signal::take_pending(OF_WRITING);
    }
    let _ = signal::set_mask(before);
    written.map_err(error)
}

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw())
}
