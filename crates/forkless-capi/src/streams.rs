//! The streams of `forkless_popen`, and its calls under way.
//!
//! libc holds a lock while it spawns, so that every child closes the streams of earlier calls; its
//! threads wait for each other. Here spawns run side by side. A new stream becomes inheritable only
//! once the spawns that cannot know of it are over.
#![expect(unsafe_code, reason = "fstat")]

use forkless::ShellChild;
use std::os::fd::RawFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A stream that was handed out.
pub(crate) struct Stream {
    /// The ticket of the call that made it.
    pub(crate) id: u64,
    /// Its address: only ever compared.
    pub(crate) file: usize,
    pub(crate) fd: RawFd,
    /// The pipe. The program may have closed the number by fclose, and another file may have it:
    /// children must not close that.
    pub(crate) pipe: (u64, u64),
    /// Gone while `forkless_pclose` closes the stream.
    pub(crate) child: Option<ShellChild>,
}

/// The streams handed out, and the calls under way.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) next: u64,
    /// Tickets of calls that have looked at `open` and may not have made their child yet.
    pub(crate) spawning: Vec<u64>,
    /// Calls that wait until other calls have made their children.
    pub(crate) waiters: usize,
    pub(crate) open: Vec<Stream>,
}

/// Held only to look or to note.
static STREAMS: Mutex<Streams> =
    Mutex::new(Streams { next: 0, spawning: Vec::new(), waiters: 0, open: Vec::new() });
pub(crate) static SPAWNED: Condvar = Condvar::new();

impl Streams {
    /// For a forked process: no thread is in `forkless_popen`, and the streams stay.
    pub(crate) fn forget_calls(&mut self) {
        self.spawning.clear();
        self.waiters = 0;
    }
}

pub(crate) fn streams() -> MutexGuard<'static, Streams> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call under way.
pub(crate) struct Ticket(pub(crate) u64);

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut s = streams();
        s.spawning.retain(|t| *t != self.0);
        // A call waits for all calls before it, so only the end of the oldest can end a wait.
        let news = s.waiters > 0 && s.spawning.iter().all(|t| *t > self.0);
        drop(s);
        if news {
            SPAWNED.notify_all();
        }
    }
}

/// Device and inode of the file behind a number, if it is open.
pub(crate) fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the result.
    if unsafe { libc::fstat(fd, st.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: success filled it.
    let st = unsafe { st.assume_init() };
    Some((st.st_dev, st.st_ino))
}

/// Takes a ticket. Returns also the numbers that this call's child must not have.
pub(crate) fn begin() -> (Ticket, Vec<RawFd>) {
    let mut s = streams();
    let ticket = s.next;
    s.next += 1;
    s.spawning.push(ticket);
    let close = s.open.iter().filter(|o| identity(o.fd) == Some(o.pipe)).map(|o| o.fd).collect();
    (Ticket(ticket), close)
}
