//! Awaiting a child's exec.
//!
//! The child holds the writing end of a pipe, and exec closes it: the reader sees the end. But this
//! process has the writing end, too, until the child exists. A process forked just then keeps a
//! copy of it for life. So the end of the pipe is not the only sign. The kernel clears a word of
//! this memory before it closes any descriptor (`exec_mmap` before `do_close_on_exec`, fs/exec.c).
//! So this module looks at that word now and then.
#![expect(unsafe_code, reason = "registering a descriptor promises that it stays open")]

use crate::child::Child;
use crate::kernel::descriptor::owned;
use crate::kernel::poll::timespec;
use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncRead, Interest, ReadBuf};
use ::tokio::net::unix::pipe::Receiver;
use ::tokio::task::{JoinHandle, spawn_blocking};
use forkless_sys::time;
use std::future::{Future as _, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// An exec takes a tenth of this, and the pipe tells of it at once. So where another process keeps
/// a copy of the pipe, the first look is the last.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Awaits the moment when the child leaves this memory. `exec_pipe` is the reading end of the pipe
/// that the child holds until then.
pub(super) async fn until_running(child: &Child, exec_pipe: &mut Receiver) -> io::Result<()> {
    if child.has_left() {
        return Ok(());
    }
    let mut looks = Looks::new(FIRST_LOOK);
    poll_fn(|cx| {
        let mut byte = [0];
        // Nothing is ever written, so a read returns the end.
        if let Poll::Ready(end) = Pin::new(&mut *exec_pipe).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
            return Poll::Ready(end);
        }
        while looks.poll_due(cx)?.is_ready() {
            if child.has_left() {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    })
    .await
}

/// Ever longer pauses. tokio's own clock is not used: a runtime need not have it.
pub(super) struct Looks {
    /// `None` where there is no descriptor for a timer: a thread of the runtime's sleeps instead.
    timer: Option<AsyncFd<OwnedFd>>,
    sleep: Option<JoinHandle<()>>,
    pause: Duration,
}

impl Looks {
    pub(super) fn new(pause: Duration) -> Looks {
        Looks { timer: timer(pause).ok(), sleep: None, pause }
    }

    pub(super) async fn due(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_due(cx).map_or_else(|e| Poll::Ready(Err(e)), |ready| ready.map(Ok))).await
    }

    /// Ready when a look is due. The timer for the next look then runs already.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let Some(timer) = &self.timer else { return self.poll_sleep(cx) };
        let Poll::Ready(ready) = timer.poll_read_ready(cx)? else { return Ok(Poll::Pending) };
        let mut ready = ready;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        // Before the readiness is cleared: the time may be over at once, and then it is ready
        // again.
        time::arm_timerfd(timer.as_raw_fd(), timespec(self.pause))
            .map_err(|e| io::Error::from_raw_os_error(e.raw()))?;
        ready.clear_ready();
        Ok(Poll::Ready(()))
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let pause = self.pause;
        let sleep = self.sleep.get_or_insert_with(|| spawn_blocking(move || std::thread::sleep(pause)));
        let Poll::Ready(slept) = Pin::new(sleep).poll(cx) else { return Ok(Poll::Pending) };
        self.sleep = None;
        // An error means that the runtime is being shut down.
        slept.map_err(io::Error::other)?;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Ok(Poll::Ready(()))
    }
}

fn timer(pause: Duration) -> io::Result<AsyncFd<OwnedFd>> {
    let system = |e: forkless_sys::Errno| io::Error::from_raw_os_error(e.raw());
    let timer = owned(time::timerfd().map_err(system)?);
    time::arm_timerfd(timer.as_raw_fd(), timespec(pause)).map_err(system)?;
    watch(timer)
}

/// Watches a descriptor for reading.
pub(super) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and its own, and nobody takes or replaces it while it is
    // registered.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}
