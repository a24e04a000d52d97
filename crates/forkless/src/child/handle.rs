//! The handle of a running child: its pipes, the waits for it and the signals to it.

use super::held::Held;
use crate::error::WaitError;
use crate::kernel::poll::{poll, timespec};
use crate::plan::Plan;
use crate::reap::by_pidfd;
use crate::spec::Spec;
use crate::spec::attributes::OnDrop;
use crate::start::Started;
use forkless_sys::Errno;
use forkless_sys::poll::{POLLIN, PollFd};
use forkless_sys::process::WNOHANG;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A child process, held by a pidfd: signals and waits reach this child and no other, however
/// numbers are reused.
///
/// Where there is no pidfd ([`Child::pidfd`]), a timer on the child's clock tells whether the child
/// has been reaped, and is asked before each use of its number. Without that timer only the number
/// is left. If other code of the program then reaps the child, the number can become another
/// child's, and signals and waits reach that one. It takes a filter that refuses `timer_create`, or
/// a user at `RLIMIT_SIGPENDING`.
///
/// Beyond [`std::process::Child`] it has a wait with a deadline, signals to its process group, and
/// a choice of what its drop does ([`OnDrop`]). Nothing here needs or disturbs a SIGCHLD handler.
///
/// A program that closes all of its descriptors must drop its handles first. Afterwards the pidfd's
/// number may be another file's, or another child's.
///
/// It may be moved to another thread and waited for there. To signal it from one thread while
/// another waits, keep a copy of its [`pidfd`](Child::pidfd). The copy means this child alone, also
/// when the child has been waited for.
///
/// ```
/// use std::os::unix::process::ExitStatusExt;
/// let mut child = forkless::Command::new("sleep").arg("60").spawn()?;
/// let pidfd = child.pidfd().expect("Linux 5.4, and no filter").try_clone_to_owned()?;
/// let waiting = std::thread::spawn(move || child.wait());
/// rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::TERM)?;
/// assert_eq!(waiting.join().unwrap()?.signal(), Some(15));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// ```
/// use forkless::Command;
/// let mut child = Command::new("sleep").arg("60").spawn().unwrap();
/// assert!(child.try_wait().unwrap().is_none());
/// child.kill().unwrap();
/// assert!(!child.wait().unwrap().success());
/// ```
#[derive(Debug)]
pub struct Child {
    /// The parent's end of the child's standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    // After the pipes: fields are dropped in this order. With a pipe still open, a child that has
    // filled it would never end.
    pub(crate) held: Held,
}

/// The parts of a [`Child`]; see [`Child::into_parts`].
///
/// ```
/// let mut child = forkless::Command::new("true").spawn()?;
/// child.wait()?;
/// let parts = child.into_parts();
/// assert!(parts.waited_for && parts.stdin.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ChildParts {
    /// The process id. Means this child until it is waited for.
    pub pid: u32,
    /// Whether the child has been waited for: `pid` may be another process's then.
    pub waited_for: bool,
    /// The pidfd. `None` where pidfds are refused, and where no descriptor was left at the start.
    pub pidfd: Option<OwnedFd>,
    /// The parent's end of the child's standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    /// The parent's ends of other pipes, by the child's numbers.
    pub pipes: Vec<(RawFd, OwnedFd)>,
}

impl Child {
    pub(crate) fn new(spec: &Spec, plan: &Arc<Plan>, mut started: Started) -> Child {
        let mut pipes = std::mem::take(&mut started.pipes);
        // Only the usual direction: a pipe in the other direction stays among the numbered ones.
        let mut take = |n: RawFd| {
            let at = pipes.iter().position(|p| p.0 == n && spec.is_read_by_child(n) == (n == 0));
            at.map(|i| pipes.swap_remove(i).1)
        };
        let (stdin, stdout, stderr) = (take(0), take(1), take(2));
        let held = Held::new(spec, plan, Started { pipes, ..started });
        Child {
            stdin: stdin.map(ChildStdin::from),
            stdout: stdout.map(ChildStdout::from),
            stderr: stderr.map(ChildStderr::from),
            held,
        }
    }

    /// The process id. A number may come to mean another process: prefer the methods here, or
    /// [`Child::pidfd`].
    ///
    /// ```
    /// let mut child = forkless::Command::new("true").spawn().unwrap();
    /// assert!(child.id() > 1);
    /// child.wait().unwrap();
    /// ```
    pub fn id(&self) -> u32 {
        self.held.pid as u32
    }

    /// The pidfd, close-on-exec, readable once the child has ended; for event loops.
    ///
    /// `None` where pidfds are refused, and where no descriptor was left at the start. Then the
    /// waits look for the end from time to time.
    ///
    /// ```
    /// use std::os::fd::AsRawFd;
    /// let mut child = forkless::Command::new("true").spawn().unwrap();
    /// let handle = child.pidfd().expect("Linux 5.4, and no filter");
    /// assert!(handle.as_raw_fd() > 2); // to be polled for reading
    /// child.wait().unwrap();
    /// ```
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.held.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// The parent's end of a pipe made for a descriptor of the child other than 0, 1 and 2.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut child = Command::new("sh")
    ///     .args(["-c", "echo hi >&5"])
    ///     .fd(5, Stdio::piped())
    ///     .spawn()
    ///     .unwrap();
    /// let pipe = child.take_pipe(5).unwrap();
    /// assert_eq!(std::io::read_to_string(std::fs::File::from(pipe)).unwrap(), "hi\n");
    /// assert!(child.take_pipe(5).is_none());
    /// child.wait().unwrap();
    /// ```
    pub fn take_pipe(&mut self, number: RawFd) -> Option<OwnedFd> {
        let at = self.held.pipes.iter().position(|pipe| pipe.number == number)?;
        Some(self.held.pipes.swap_remove(at).end)
    }

    /// Closes the pipes that the child reads from, so that it sees their end.
    pub(crate) fn close_inputs(&mut self) {
        drop(self.stdin.take());
        self.held.pipes.retain(|pipe| !pipe.child_reads);
    }

    /// Closes every pipe, before a wait that lets nobody take one: the child would wait for ever
    /// for a reader or a writer.
    pub(crate) fn close_pipes(&mut self) {
        drop((self.stdin.take(), self.stdout.take(), self.stderr.take()));
        self.held.pipes.clear();
    }

    /// Whether this process started the child. It may also be forked from the process that did.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_ours(&self) -> bool {
        self.held.is_ours()
    }

    /// Whether the child has been waited for, so that its number may be another process's.
    pub(crate) fn is_over(&self) -> bool {
        self.held.ended.is_some() || self.held.gone
    }

    /// Whether the start is known to have failed: the next wait says how.
    pub(crate) fn has_failed(&self) -> bool {
        self.held.failed.is_some() || self.held.pending.as_ref().is_some_and(|p| p.slot.failure().is_some())
    }

    /// Whether the child is known to have left this memory: it became the program, or it is gone.
    pub(crate) fn has_left(&self) -> bool {
        self.held.pending.as_ref().is_none_or(|p| p.slot.child_has_left())
    }

    /// Whether the child of a non-blocking start has executed its program, at once. `false` says
    /// that nothing is known yet. A child that was killed on its way counts as executed: a wait
    /// tells of the signal.
    ///
    /// [`Command::spawn_watched`](crate::Command::spawn_watched) tells when to ask.
    ///
    /// ```
    /// use forkless::{Command, Step, WaitError};
    /// let mut child = Command::new("true").spawn().unwrap();
    /// assert!(child.has_executed().unwrap()); // this start waited for it
    /// child.wait().unwrap();
    /// let mut child = Command::new("/does/not/exist").spawn_nonblocking().unwrap();
    /// let error = loop {
    ///     match child.has_executed() {
    ///         Ok(executed) => assert!(!executed),
    ///         Err(e) => break e,
    ///     }
    ///     std::thread::yield_now();
    /// };
    /// assert!(matches!(error, WaitError::Start(e) if e.step() == Step::Exec));
    /// ```
    ///
    /// # Errors
    /// [`WaitError::Start`] when the start failed. The child is reaped then.
    pub fn has_executed(&mut self) -> Result<bool, WaitError> {
        if !self.has_left() {
            return Ok(false);
        }
        if !self.has_failed() {
            return Ok(true);
        }
        // The wait makes the error. The child may still be on its way out.
        self.try_wait().map(|status| status.is_some())
    }

    /// The child in pieces, for code that waits for it in a way of its own. From here on the caller
    /// has to reap the child, to signal it and to close its pipes. A non-blocking start that failed
    /// no longer says so.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use rustix::process::{WaitId, WaitIdOptions, waitid};
    /// use std::os::fd::AsFd;
    /// let parts = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?.into_parts();
    /// assert_eq!(std::io::read_to_string(parts.stdout.unwrap())?, "hi\n");
    /// let pidfd = parts.pidfd.expect("Linux 5.4, and no filter");
    /// let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?.unwrap();
    /// assert_eq!(ended.exit_status(), Some(0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_parts(mut self) -> ChildParts {
        if let Some(pending) = self.held.pending.take() {
            pending.slot.abandon();
        }
        let pipes = std::mem::take(&mut self.held.pipes);
        // So its drop reaps nothing.
        let was_gone = std::mem::replace(&mut self.held.gone, true);
        ChildParts {
            pid: self.held.pid as u32,
            waited_for: was_gone || self.held.ended.is_some(),
            pidfd: self.held.pidfd.take(),
            stdin: self.stdin.take(),
            stdout: self.stdout.take(),
            stderr: self.stderr.take(),
            pipes: pipes.into_iter().map(|pipe| (pipe.number, pipe.end)).collect(),
        }
    }

    /// Sets what the drop of this handle does to a child that still runs.
    ///
    /// ```
    /// use forkless::{Command, OnDrop};
    /// let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    /// child.set_on_drop(OnDrop::Kill);
    /// ```
    pub fn set_on_drop(&mut self, policy: OnDrop) {
        self.held.on_drop = policy;
    }

    /// Waits for the child to end. The pipes that the child reads from, if still held here, are
    /// closed first, so that it sees their end: standard input, and those of
    /// [`Stdio::piped_input`](crate::Stdio::piped_input). Its output is not read: a child that fills
    /// an unread pipe does not end ([`Child::wait_with_output`] reads, and so does
    /// [`Command::communicate`](crate::Command::communicate)).
    ///
    /// A child that this process traces (ptrace(2)) may also have stopped. The status says so
    /// (`stopped_signal`), as std's does, and the next wait goes on. A wait with a deadline looks
    /// for a stop when it begins and when the time is over.
    ///
    /// Where the kernel keeps the status (Linux 6.15), it is not lost to a signal handler, nor
    /// where `SIGCHLD` is ignored.
    ///
    /// ```
    /// let mut child = forkless::Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
    /// assert_eq!(child.wait().unwrap().code(), Some(3));
    /// assert_eq!(child.wait().unwrap().code(), Some(3)); // as often as one likes
    /// ```
    ///
    /// # Errors
    /// [`WaitError::Start`] when a non-blocking start failed; [`WaitError::Unknown`] when the
    /// status is lost; [`WaitError::Os`] with `ECHILD` in a process forked from the one that
    /// started the child.
    pub fn wait(&mut self) -> Result<ExitStatus, WaitError> {
        self.close_inputs();
        self.held.reap(0).map(|s| s.unwrap_or_default())
    }

    /// Kills the child and waits for its end.
    ///
    /// Fails where the child may not be killed, since it has become another user's. A wait for it,
    /// here or when the handle is dropped, would break the promise that a deadline is. The child is
    /// reaped when it ends.
    pub(crate) fn kill_and_reap(&mut self) -> Result<ExitStatus, WaitError> {
        if let Err(e) = self.kill() {
            self.set_on_drop(OnDrop::Detach);
            return Err(WaitError::Os(e));
        }
        loop {
            // If this process traces the child, a wait may tell of a stop first.
            let status = self.wait()?;
            if status.stopped_signal().is_none() {
                return Ok(status);
            }
            if by_pidfd::is_exit_stop(status) {
                self.set_on_drop(OnDrop::Detach);
                return Ok(status);
            }
        }
    }

    /// The status if the child has ended, else `None`, at once.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    /// assert!(child.try_wait().unwrap().is_none());
    /// drop(child.stdin.take());
    /// child.wait().unwrap();
    /// assert!(child.try_wait().unwrap().is_some());
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, WaitError> {
        self.held.reap(WNOHANG)
    }

    /// Waits for at most `timeout`. Closes the child's inputs first, as [`Child::wait`] does, and
    /// leaves them closed when the time is over.
    ///
    /// ```
    /// use forkless::{Command, WaitError};
    /// use std::time::Duration;
    /// let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    /// assert!(matches!(child.wait_timeout(Duration::ZERO), Err(WaitError::Deadline)));
    /// child.kill().unwrap();
    /// child.wait().unwrap();
    /// ```
    ///
    /// # Errors
    /// [`WaitError::Deadline`] when the time is over first: the child goes on, and can be waited
    /// for again. Else as [`Child::wait`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<ExitStatus, WaitError> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Waits until `deadline`; `None` is for ever. Closes the child's inputs first, as
    /// [`Child::wait`] does.
    ///
    /// ```
    /// use forkless::{Command, WaitError};
    /// use std::time::{Duration, Instant};
    /// let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    /// let soon = Instant::now() + Duration::from_millis(5);
    /// assert!(matches!(child.wait_until(Some(soon)), Err(WaitError::Deadline)));
    /// child.kill().unwrap();
    /// assert!(!child.wait_until(None).unwrap().success());
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait_timeout`].
    pub fn wait_until(&mut self, deadline: Option<Instant>) -> Result<ExitStatus, WaitError> {
        self.close_inputs();
        let Some(deadline) = deadline else {
            return self.held.reap(0).map(|s| s.unwrap_or_default());
        };
        let mut pause = Duration::from_micros(200);
        let mut ready = false;
        loop {
            if let Some(status) = self.held.reap(WNOHANG)? {
                return Ok(status);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WaitError::Deadline);
            }
            match &self.held.pidfd {
                // A traced child's pidfd is ready before the child can be waited for: its tracer
                // comes first.
                Some(fd) if !ready => {
                    let mut p = [PollFd { fd: fd.as_raw_fd(), events: POLLIN, revents: 0 }];
                    ready = poll(&mut p, Some(timespec(left))).is_ok_and(|n| n > 0);
                }
                _ => {
                    std::thread::sleep(pause.min(left));
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
            }
        }
    }

    /// Sends SIGKILL. Fine if the child has ended already.
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn().unwrap();
    /// child.kill().unwrap();
    /// assert_eq!(child.wait().unwrap().signal(), Some(9));
    /// child.kill().unwrap(); // nothing is hit any more
    /// ```
    ///
    /// # Errors
    /// Those of the kernel, as `EPERM` for a child that changed its user.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }

    /// Sends a signal to the child, and to no other process; [`Child`] names the one exception.
    /// Fine if the child has ended already.
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn().unwrap();
    /// child.signal(15).unwrap();
    /// assert_eq!(child.wait().unwrap().signal(), Some(15));
    /// assert!(child.signal(99).is_err());
    /// ```
    ///
    /// # Errors
    /// Those of the kernel: `EINVAL` for a number that is no signal, `EPERM`.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.held.signal(signal)
    }

    /// Sends a signal to every process of the group that the child leads, also when the child has
    /// ended and others of the group live on. The child leads one if it was started with
    /// `process_group(0)` or `setsid`.
    ///
    /// ```
    /// let mut child = forkless::Command::new("sh")
    ///     .args(["-c", "sleep 60; true"])
    ///     .process_group(0)
    ///     .spawn()
    ///     .unwrap();
    /// child.signal_group(15).unwrap(); // the shell and its sleep
    /// assert!(!child.wait().unwrap().success());
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` when the child does not lead a group; `NotFound` (`ESRCH`) when the group is
    /// empty; on kernels before Linux 6.9 `ESRCH` also once the child has been waited for, since
    /// the group's number might be another's by then.
    pub fn signal_group(&mut self, signal: i32) -> io::Result<()> {
        if !self.held.leads_group {
            let why = "signal_group: the child was not started with process_group(0) or setsid";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let sent = match (self.held.signal_group(signal), &self.held.pending) {
            // A child whose exec was not waited for may not lead it yet.
            (Err(Errno::ESRCH), Some(pending)) if self.held.is_ours() => {
                if self.held.will_lead_group(pending) {
                    self.held.signal_group(signal)
                } else {
                    by_pidfd::signal(self.held.pid, self.held.pidfd.as_ref(), signal)
                }
            }
            (sent, _) => sent,
        };
        sent.map_err(|e| io::Error::from_raw_os_error(e.raw()))
    }

    /// SIGKILL to the whole group; see [`Child::signal_group`].
    ///
    /// ```
    /// let mut child = forkless::Command::new("sh")
    ///     .args(["-c", "sleep 60; true"])
    ///     .process_group(0)
    ///     .spawn()
    ///     .unwrap();
    /// child.kill_group().unwrap();
    /// assert!(!child.wait().unwrap().success());
    /// ```
    ///
    /// # Errors
    /// As [`Child::signal_group`].
    pub fn kill_group(&mut self) -> io::Result<()> {
        self.signal_group(libc::SIGKILL)
    }
}
