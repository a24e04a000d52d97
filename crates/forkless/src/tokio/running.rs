//! The moment at which a child becomes the program, awaited.
//!
//! The child holds a pipe that exec closes, and its end is the news. But this process has the pipe's writing end as well until the
//! child exists, and whoever forks just then keeps a copy of it for life. So the end alone is not waited for: the kernel clears a
//! word of this memory before it closes any descriptor (`exec_mmap` before `do_close_on_exec`, fs/exec.c), and that word is
//! looked at now and then.

use crate::child::handle::{Child, timespec};
use crate::spec::stdio;
use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncRead, ReadBuf};
use ::tokio::net::unix::pipe::Receiver;
use ::tokio::task::{JoinHandle, spawn_blocking};
use forkless_sys::time;
use std::future::{Future as _, poll_fn};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// An exec takes a tenth of this, and the pipe tells of it at once. So the first look is the last where a copy is kept.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Until the child has left this memory. `became` is the reading end of what it holds until then.
pub(super) async fn until_running(child: &Child, became: &mut Receiver) -> io::Result<()> {
    if child.has_left() {
        return Ok(());
    }
    let mut looks = Looks::new(FIRST_LOOK);
    poll_fn(|cx| {
        let mut byte = [0];
        // Nobody writes: what is read is the end.
        if let Poll::Ready(end) = Pin::new(&mut *became).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
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

/// Ever longer pauses. Not by tokio's own clock: a runtime need not have it.
pub(super) struct Looks {
    /// `None` where there is no descriptor for it: a thread of the runtime's sleeps instead.
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

    /// Ready when a look is due; the next one is on its way then.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let Some(timer) = &self.timer else { return self.poll_sleep(cx) };
        let Poll::Ready(ready) = timer.poll_read_ready(cx)? else { return Ok(Poll::Pending) };
        let mut ready = ready;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        // Before the readiness is cleared: should the time be over at once, that is news again.
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
        // The runtime is being shut down.
        slept.map_err(io::Error::other)?;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Ok(Poll::Ready(()))
    }
}

fn timer(pause: Duration) -> io::Result<AsyncFd<OwnedFd>> {
    let system = |e: forkless_sys::Errno| io::Error::from_raw_os_error(e.raw());
    let timer = stdio::owned(time::timerfd().map_err(system)?);
    time::arm_timerfd(timer.as_raw_fd(), timespec(pause)).map_err(system)?;
    super::command::watch(timer)
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "fork(2), for a process that keeps what it inherits")]

    use crate::tokio::command::{Command, WHILE_HELD};
    use forkless_sys::process::{self, P_PID, WEXITED, WNOHANG};
    use std::cell::Cell;

    thread_local! {
        static WORKER: Cell<i32> = const { Cell::new(0) };
    }

    /// A process that inherits all there is, and ends by itself only when this test has hung.
    fn fork_a_worker() {
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: takes a number.
            unsafe { libc::alarm(20) };
            loop {
                // SAFETY: waits for the signal.
                unsafe { libc::pause() };
            }
        }
        WORKER.set(pid);
    }

    fn worker_lives() -> bool {
        process::waitid(P_PID, WORKER.get(), WEXITED | WNOHANG).unwrap().pid == 0
    }

    fn beside_a_worker(runtime: &tokio::runtime::Runtime) {
        for program in ["/bin/true", "/does/not/exist"] {
            WHILE_HELD.set(Some(fork_a_worker));
            let started = runtime.block_on(async { Command::new(program).spawn_async().await });
            WHILE_HELD.set(None);
            assert!(worker_lives(), "the start lasted as long as a process forked meanwhile");
            process::kill(WORKER.get(), 9).unwrap();
            process::waitid(P_PID, WORKER.get(), WEXITED).unwrap();
            match started {
                Ok(mut child) => {
                    assert_eq!(program, "/bin/true");
                    assert!(runtime.block_on(child.wait()).unwrap().success());
                }
                Err(e) => assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory"),
            }
        }
    }

    #[test]
    fn a_start_does_not_wait_for_a_process_forked_meanwhile() {
        beside_a_worker(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    }

    #[test]
    fn a_start_needs_no_clock_of_the_runtime_s() {
        beside_a_worker(&tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap());
    }

    /// Regression: it panicked.
    #[test]
    fn a_wait_without_a_pidfd_needs_none_either() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let ended = runtime.block_on(async {
            let mut child = Command::new("/bin/sleep").arg("0.05").spawn().unwrap();
            child.held.inner.held.forget_pidfd();
            child.wait().await
        });
        assert!(ended.unwrap().success());
    }
}
