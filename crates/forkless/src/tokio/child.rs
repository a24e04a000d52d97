//! A child whose end is awaited.

use super::running::{Looks, watch};
use crate::error::WaitError;
use crate::process::waited;
use crate::reap::by_pidfd;
use crate::spec::attributes::OnDrop;
use crate::spec::stdio::Stdio;
use ::tokio::io::AsyncReadExt;
use ::tokio::io::unix::AsyncFd;
use ::tokio::net::unix::pipe::{Receiver, Sender};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::{ExitStatus, Output};
use std::task::Poll;
use std::time::Duration;

/// The parent's end of a child's standard input.
pub type ChildStdin = Sender;
/// The parent's end of a child's standard output.
pub type ChildStdout = Receiver;
/// The parent's end of a child's standard error.
pub type ChildStderr = Receiver;

/// As `tokio::process::Child`: a running child whose end is awaited. Its fields can be moved out.
///
/// ```
/// # #[::tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use forkless::tokio::Command;
/// let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
/// assert!(child.try_wait()?.is_none());
/// child.kill().await?;
/// assert!(!child.wait().await?.success());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Child {
    /// The parent's end of the child's standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    pub(super) held: Held,
    /// The pidfd, watched since the first wait.
    exit: Option<AsyncFd<OwnedFd>>,
}

/// The process behind a [`Child`], with its drop. A type with a drop of its own would not let its
/// fields be moved out, so `Child` has none.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) inner: crate::Child,
    kill_on_drop: bool,
}

impl Child {
    pub(super) fn new(mut inner: crate::Child, kill_on_drop: bool) -> io::Result<Child> {
        // A drop must not wait in an event loop. The library's thread reaps the child.
        inner.set_on_drop(OnDrop::Detach);
        let (stdin, stdout, stderr) = (inner.stdin.take(), inner.stdout.take(), inner.stderr.take());
        let held = Held { inner, kill_on_drop };
        let mut child = Child { stdin: None, stdout: None, stderr: None, held, exit: None };
        child.stdin = stdin.map(|p| Sender::from_owned_fd(p.into())).transpose()?;
        child.stdout = stdout.map(|p| Receiver::from_owned_fd(p.into())).transpose()?;
        child.stderr = stderr.map(|p| Receiver::from_owned_fd(p.into())).transpose()?;
        Ok(child)
    }

    /// The process id, until the child has been waited for; prefer [`Child::pidfd`].
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.id().unwrap() > 1);
    /// child.wait().await?;
    /// assert_eq!(child.id(), None);
    /// # Ok(()) }
    /// ```
    pub fn id(&self) -> Option<u32> {
        (!self.held.inner.is_over()).then(|| self.held.inner.id())
    }

    /// As [`crate::Child::pidfd`].
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.pidfd().is_some());
    /// child.wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.held.inner.pidfd()
    }

    /// As [`crate::Child::take_pipe`]; wrap it with `tokio::net::unix::pipe`.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use tokio::io::AsyncReadExt as _;
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "echo hi >&3"]).as_inner_mut().fd(3, forkless::Stdio::piped());
    /// let mut child = c.spawn()?;
    /// let mut pipe =
    ///     tokio::net::unix::pipe::Receiver::from_owned_fd(child.take_pipe(3).unwrap())?;
    /// let mut said = String::new();
    /// pipe.read_to_string(&mut said).await?;
    /// assert_eq!(said, "hi\n");
    /// child.wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn take_pipe(&mut self, number: RawFd) -> Option<OwnedFd> {
        self.held.inner.take_pipe(number)
    }

    /// Awaits the child's end. The pipes that it reads from, if still held here, are closed first.
    /// Cancel-safe: nothing is lost when the future is dropped, and it can be awaited again.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use std::time::Duration;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// assert!(tokio::time::timeout(Duration::from_millis(10), child.wait()).await.is_err());
    /// child.kill().await?;
    /// assert!(!child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::process::Child::wait`].
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.held.inner.close_inputs();
        self.ended().await.map_err(waited)
    }

    pub(super) async fn ended(&mut self) -> Result<ExitStatus, WaitError> {
        let mut looks = None;
        loop {
            if let Some(status) = self.held.inner.try_wait()? {
                return Ok(status);
            }
            if let Some(exit) = self.watched() {
                // It stays ready, since a child ends once. An error means that the runtime is gone
                // in which it was first awaited.
                if exit.readable().await.map(|mut ready| ready.retain_ready()).is_err() {
                    self.exit = None;
                }
                if let Some(status) = self.held.inner.try_wait()? {
                    return Ok(status);
                }
                // The child has ended, but a tracer has to wait for it first.
            }
            let looks = match &mut looks {
                Some(looks) => looks,
                None => looks.insert(Looks::new(Duration::from_micros(500))),
            };
            looks.due().await.map_err(WaitError::Os)?;
        }
    }

    /// `None` where there is no pidfd, and where there is no descriptor or watch left now.
    fn watched(&mut self) -> Option<&AsyncFd<OwnedFd>> {
        if self.exit.is_none() {
            // A copy: the registration must not outlive the number, and the handle keeps its own.
            let copy = self.held.inner.pidfd()?.try_clone_to_owned().ok()?;
            self.exit = Some(watch(copy).ok()?);
        }
        self.exit.as_ref()
    }

    /// The status if the child has ended.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
    /// assert!(child.try_wait()?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::process::Child::wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.held.inner.try_wait().map_err(waited)
    }

    /// Sends SIGKILL and does not wait.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// child.start_kill()?;
    /// assert!(!child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Child::kill`].
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.held.inner.kill()
    }

    /// Sends a signal.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// child.signal(15)?;
    /// assert!(!child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Child::signal`].
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.held.inner.signal(signal)
    }

    /// Sends SIGKILL and awaits the end.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// child.kill().await?;
    /// assert!(child.try_wait()?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Child::kill`] and [`Child::wait`].
    ///
    /// # Panics
    /// As [`Child::wait`].
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        // If this process traces the child, a wait may tell of a stop first.
        loop {
            let status = self.wait().await?;
            if status.stopped_signal().is_none() || by_pidfd::is_exit_stop(status) {
                return Ok(());
            }
        }
    }

    /// Awaits the end and collects what the child writes meanwhile to standard output and error.
    /// Every other pipe that was not taken is closed.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let child = Command::new("echo").arg("hi").stdout(forkless::Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_with_output().await?.stdout, b"hi\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`].
    ///
    /// # Panics
    /// As [`Child::wait`].
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        self.held.inner.close_pipes();
        let (out, err) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = both(read_all(out), read_all(err)).await;
        let (stdout, stderr) = (stdout?, stderr?);
        Ok(Output { status: self.wait().await?, stdout, stderr })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.kill_on_drop && self.inner.is_ours() {
            let _ = self.inner.kill();
        }
    }
}

impl TryFrom<Sender> for Stdio {
    type Error = io::Error;

    /// The pipe, blocking, as the program expects it.
    fn try_from(pipe: Sender) -> io::Result<Stdio> {
        pipe.into_blocking_fd().map(Stdio::from)
    }
}

impl TryFrom<Receiver> for Stdio {
    type Error = io::Error;

    /// The pipe, blocking, as the program expects it.
    fn try_from(pipe: Receiver) -> io::Result<Stdio> {
        pipe.into_blocking_fd().map(Stdio::from)
    }
}

async fn read_all(from: Option<Receiver>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut all).await?;
    }
    Ok(all)
}

fn ready<T>(answer: Poll<T>) -> Option<T> {
    match answer {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Awaits both at the same time: a child may fill one pipe before it writes to the other.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut got_a, mut got_b) = (None, None);
    poll_fn(|cx| {
        // A future is not polled again after its end.
        if got_a.is_none() {
            got_a = ready(a.as_mut().poll(cx));
        }
        if got_b.is_none() {
            got_b = ready(b.as_mut().poll(cx));
        }
        match (got_a.take(), got_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (got_a, got_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
