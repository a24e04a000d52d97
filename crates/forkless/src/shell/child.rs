//! A line that was started, and its processes.

use super::ending::Ending;
use super::wait;
use super::wiring::Connection;
use crate::child::Child;
use crate::error::WaitError;
use std::io;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};

/// A line started by [`ShellLine::spawn`](super::ShellLine::spawn): one or several programs, or a
/// shell.
///
/// Dropping it neither waits nor kills, as for [`Child`]; nothing is left as a zombie.
///
/// ```
/// let mut child = forkless::shell("sleep 0.01 | cat").spawn()?;
/// assert_eq!(child.processes().len(), 2);
/// assert!(child.wait()?.success());
/// # Ok::<(), forkless::SpawnError>(())
/// ```
#[derive(Debug)]
pub struct ShellChild {
    /// The parent's end of the line's standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of its standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of its standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    stages: Vec<Child>,
    /// How the shell would have ended; `None` if there is a shell.
    ending: Option<Ending>,
    /// The status as the shell makes it, once all have ended.
    ended: Option<ExitStatus>,
    next: usize,
}

impl ShellChild {
    pub(super) fn of_shell(child: Child) -> ShellChild {
        ShellChild::new(vec![child], None)
    }

    pub(super) fn of_programs(stages: Vec<Child>, ending: Ending) -> ShellChild {
        ShellChild::new(stages, Some(ending))
    }

    fn new(stages: Vec<Child>, ending: Option<Ending>) -> ShellChild {
        ShellChild { stdin: None, stdout: None, stderr: None, stages, ending, ended: None, next: 0 }
    }

    /// Whether it runs without a shell.
    ///
    /// ```
    /// assert!(forkless::shell("ls /").stdout(forkless::Stdio::null()).spawn()?.is_direct());
    /// let mut line = forkless::shell("ls /*");
    /// assert!(!line.stdout(forkless::Stdio::null()).spawn()?.is_direct()); // a glob
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.ending.is_some()
    }

    /// The process id of the last program, or of the shell.
    ///
    /// ```
    /// let mut child = forkless::shell("sleep 0").spawn()?;
    /// assert!(child.id() > 1);
    /// child.wait()?;
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> u32 {
        self.stages.last().map_or(0, Child::id)
    }

    /// The processes: each program, or the shell alone.
    ///
    /// ```
    /// let mut child = forkless::shell("sleep 60 | cat").spawn()?;
    /// for process in child.processes() {
    ///     process.kill().unwrap();
    /// }
    /// child.wait()?;
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn processes(&mut self) -> &mut [Child] {
        &mut self.stages
    }

    /// Waits for every process of the line. Its standard input, if still held here, is closed
    /// first.
    ///
    /// ```
    /// let mut child = forkless::shell("test -e /nowhere").spawn()?;
    /// assert_eq!(child.wait()?.code(), Some(1));
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`]; after an error the call may be repeated for what is left.
    pub fn wait(&mut self) -> Result<ExitStatus, WaitError> {
        drop(self.stdin.take());
        loop {
            if let Some(status) = self.ended {
                return Ok(status);
            }
            let Some(child) = self.stages.get_mut(self.next) else { return Err(WaitError::Unknown) };
            let status = child.wait();
            self.next += 1;
            self.take_in(status?);
        }
    }

    /// The status if all have ended, else `None`, at once.
    ///
    /// ```
    /// let mut child = forkless::shell("sleep 60").spawn()?;
    /// assert!(child.try_wait()?.is_none());
    /// child.kill().unwrap();
    /// child.wait()?;
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`ShellChild::wait`].
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, WaitError> {
        while self.ended.is_none() {
            let Some(child) = self.stages.get_mut(self.next) else { return Err(WaitError::Unknown) };
            let Some(status) = child.try_wait()? else { return Ok(None) };
            self.next += 1;
            self.take_in(status);
        }
        Ok(self.ended)
    }

    /// Kills every process of the line that is known here. A shell's own children live on.
    ///
    /// ```
    /// let mut child = forkless::shell("sleep 60").spawn()?;
    /// child.kill().unwrap();
    /// assert!(!child.wait()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Child::kill`].
    pub fn kill(&mut self) -> io::Result<()> {
        self.stages.iter_mut().try_for_each(Child::kill)
    }

    /// See [`wait::kill_and_reap_all`].
    pub(super) fn kill_and_reap(&mut self) -> WaitError {
        wait::kill_and_reap_all(&mut self.stages)
    }

    /// `Some` if a reader of the output must also look for the end of the next process; in it that
    /// process's pidfd, if it has one.
    pub(super) fn awaited(&self) -> Option<Option<std::os::fd::BorrowedFd<'_>>> {
        self.ending.as_ref().filter(|ending| ending.kept.is_some())?;
        self.stages.get(self.next).map(Child::pidfd)
    }

    /// The number of the process whose status is taken next.
    pub(super) fn awaits(&self) -> usize {
        self.next
    }

    pub(super) fn stages_until(
        &mut self,
        deadline: Option<std::time::Instant>,
    ) -> Result<ExitStatus, WaitError> {
        loop {
            if let Some(status) = self.ended {
                return Ok(status);
            }
            let Some(child) = self.stages.get_mut(self.next) else { return Err(WaitError::Unknown) };
            let status = child.wait_until(deadline)?;
            self.next += 1;
            self.take_in(status);
        }
    }

    fn take_in(&mut self, status: ExitStatus) {
        if let Some(ending) = &mut self.ending {
            ending.complain(status);
        }
        if self.next == self.stages.len() {
            self.ended = Some(self.ending.as_ref().map_or(status, |ending| ending.translate(status)));
            if let Some(ending) = &mut self.ending {
                ending.stderr = Connection::Closed;
                ending.kept = None;
            }
        }
    }
}
