//! A line that was started: its processes, and what its end means.

use super::ShellLine;
use super::run::{self, children_stay};
use super::wiring::{Slot, is_handed_on};
use crate::child::handle::Child;
use crate::command::builder::Command;
use crate::error::WaitError;
use crate::spec::stdio::{self, Kind, Stdio};
use crate::spec::strings::Strings;
use forkless_shell::{ShellKind, ShellTraits, SignalMessage};
use forkless_sys::fd;
use forkless_sys::signal::SigSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};

/// A line started by [`ShellLine::spawn`](super::ShellLine::spawn): one or several programs, or a shell.
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

/// What becomes of the status of a program, and of the word that it was killed.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) traits: ShellTraits,
    pub(super) replaces_shell: bool,
    pub(super) stderr: Slot,
    pub(super) kept: Option<OwnedFd>,
    /// The signals the shell would have had.
    pub(super) signals: Signals,
    /// How the shell has ended that was to say that a program was killed.
    pub(super) died: Option<ExitStatus>,
}

/// What a line says of its processes' signals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signals {
    inherited: bool,
    mask: Option<SigSet>,
    default: SigSet,
}

impl Signals {
    pub(super) fn of(how: &ShellLine) -> Signals {
        Signals { inherited: how.inherit_signals, mask: how.signal_mask, default: how.default_signals }
    }
}

impl Ending {
    /// Whether the shell would say that a program was killed.
    pub(super) fn may_complain(&self) -> bool {
        const SIGKILL: u8 = 9;
        !self.replaces_shell && self.traits.signal_message(SIGKILL, false).is_some()
    }

    /// Takes a descriptor of its own for the shell's messages: the parent's is closed after the start, or may become another file.
    pub(super) fn keep_stderr(&mut self) {
        let number = match self.stderr {
            _ if !self.may_complain() => None,
            // Close-on-exec, as our own end of the line's pipe may be, it is nothing to a shell.
            Slot::Inherit => is_handed_on(2).then_some(2),
            Slot::Raw(number) => Some(number),
            Slot::Closed => None,
        };
        self.kept = number.and_then(|number| fd::dup_cloexec(number, 3).ok()).map(stdio::owned);
        self.stderr = self.kept.as_ref().map_or(Slot::Closed, |kept| Slot::Raw(kept.as_raw_fd()));
    }

    /// Says what the shell would say of a program that was killed.
    pub(super) fn complain(&mut self, status: ExitStatus) {
        // A shell that was killed itself says no more.
        if self.replaces_shell || self.died.is_some() || is_of_the_keyboard(status) {
            return;
        }
        let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
        let message = signal.and_then(|signal| self.traits.signal_message(signal, status.core_dumped()));
        if let Some(message) = message {
            self.died = self.say(message).filter(|status| status.signal().is_some());
        }
    }

    /// Has a shell say it. Whoever writes may be killed for it (SIGPIPE, SIGXFSZ) or stopped (SIGTTOU), and this process must not be.
    fn say(&self, message: SignalMessage) -> Option<ExitStatus> {
        let number = match self.stderr {
            Slot::Inherit => 2,
            Slot::Raw(number) => number,
            Slot::Closed => return None,
        };
        // The first child in a new PID namespace has to be the program's.
        if !children_stay() {
            return None;
        }
        let mut shell = Command::new("/bin/sh");
        // It ends in a newline, and has nothing that is special in a format.
        shell.arg0("sh").arg("-c").arg(format!("printf '{message}'"));
        shell.env.set_exact(Strings::default());
        // Its own complaints, should it fail to say it, are nobody's.
        shell.stdin(Stdio::null()).stdout(Stdio(Kind::Raw(number))).stderr(Stdio::closed());
        shell.inherit_signals(self.signals.inherited);
        shell.default_signals(self.signals.default);
        // As dash's is once it has started a program.
        let mask = self.signals.mask.filter(|_| self.traits.kind() != ShellKind::Dash);
        if mask.is_some() || self.traits.kind() == ShellKind::Dash {
            shell.signal_mask(mask.unwrap_or(SigSet::EMPTY));
        }
        shell.status().ok()
    }

    /// The status of the line whose last program ended so: that of a shell that was killed itself; else a shell that waits turns a signal into 128 + n, save those of the
    /// keyboard, which end the shell as well.
    pub(super) fn translate(&self, status: ExitStatus) -> ExitStatus {
        match status.signal() {
            _ if self.died.is_some() => self.died.unwrap_or(status),
            _ if is_of_the_keyboard(status) => status,
            Some(signal) if !self.replaces_shell => ExitStatus::from_raw((128 + signal) << 8),
            _ => status,
        }
    }
}

/// Whether a keyboard may have ended the program, and with it the shell.
fn is_of_the_keyboard(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(libc::SIGINT | libc::SIGQUIT))
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
    /// assert!(!forkless::shell("ls /*").stdout(forkless::Stdio::null()).spawn()?.is_direct()); // a glob
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

    /// Waits for every process of the line. Its standard input, if still held here, is closed first.
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

    /// Kills every process of the line, as far as it is known: a shell's own children live on.
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

    /// See [`run::put_down`].
    pub(super) fn put_down(&mut self) -> WaitError {
        run::put_down(&mut self.stages)
    }

    /// Whether somebody who reads output must also look for the end of the next process; and what is readable then, if it has a pidfd.
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
                ending.stderr = Slot::Closed;
                ending.kept = None;
            }
        }
    }
}
