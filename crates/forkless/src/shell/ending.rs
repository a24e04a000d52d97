//! How a line ends: its status as the shell would have it, and the shell's words about killed
//! programs.

use super::line::ShellLine;
use super::wiring::{Connection, Connections, is_handed_on};
use crate::command::Command;
use crate::kernel::descriptor::owned;
use crate::kernel::namespace::children_stay;
use crate::spec::stdio::{Kind, Stdio};
use crate::spec::strings::Strings;
use forkless_shell::{ShellKind, ShellTraits, SignalMessage};
use forkless_sys::signal::{SIGKILL, SigSet};
use forkless_sys::{Errno, fd};
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a line ends: the status that its last program gives it, and the message about a killed
/// program.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) traits: ShellTraits,
    pub(super) replaces_shell: bool,
    pub(super) stderr: Connection,
    pub(super) kept: Option<OwnedFd>,
    /// The signals the shell would have had.
    pub(super) signals: Signals,
    /// The end of a shell that was to say that a program was killed, if it died of that.
    pub(super) died: Option<ExitStatus>,
}

/// The signal settings of a line, for the shell that speaks for it.
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
        !self.replaces_shell && self.traits.signal_message(SIGKILL as u8, false).is_some()
    }

    /// Takes a descriptor of its own for the shell's messages: the parent's is closed after the
    /// start, or may become another file. False if there is no room for one.
    #[must_use]
    pub(super) fn keep_stderr(&mut self) -> bool {
        let number = match self.stderr {
            _ if !self.may_complain() => None,
            // A shell does not get a close-on-exec descriptor, as this process's end of the line's
            // pipe may be.
            Connection::Inherit => is_handed_on(2).then_some(2),
            Connection::Raw(number) => Some(number),
            Connection::Closed => None,
        };
        self.kept = match number.map(|number| fd::dup_cloexec(number, 3)) {
            Some(Ok(copy)) => Some(owned(copy)),
            // Closed already: the shell could say nothing either.
            None | Some(Err(Errno::EBADF)) => None,
            Some(Err(_)) => return false,
        };
        self.stderr = self.kept.as_ref().map_or(Connection::Closed, |kept| Connection::Raw(kept.as_raw_fd()));
        true
    }

    /// Reports a killed program in the shell's words.
    pub(super) fn complain(&mut self, status: ExitStatus) {
        if let Some(message) = self.message(status) {
            self.died = self.say(message).filter(|status| status.signal().is_some());
        }
    }

    /// The shell's words about a killed program.
    fn message(&self, status: ExitStatus) -> Option<SignalMessage> {
        // A shell that was killed itself says no more.
        if self.replaces_shell || self.died.is_some() || is_of_the_keyboard(status) {
            return None;
        }
        let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
        signal.and_then(|signal| self.traits.signal_message(signal, status.core_dumped()))
    }

    /// Whether the shell may have something to say where a reader waits for the end of all writers,
    /// perhaps before it waits for the program. `given`: what the line was connected to.
    pub(super) fn may_keep_a_reader(&self, given: &Connections) -> bool {
        let Connection::Raw(number) = self.stderr else { return false };
        // The caller has its standard streams itself, so no reader waits for their end. But where
        // one was closed, its number may be a pipe's that the caller has made for the line.
        let is_standard = number <= 2 && !given.contains(&self.stderr);
        if is_standard || !self.may_complain() {
            return false;
        }
        let Ok(copy) = fd::dup_cloexec(number, 3) else { return true };
        let file = File::from(owned(copy));
        let kind = file.metadata().map(|metadata| metadata.file_type());
        !kind.is_ok_and(|kind| kind.is_file() || (kind.is_char_device() && !file.is_terminal()))
    }

    /// Has a shell write the message. The writer may be killed for it (SIGPIPE, SIGXFSZ) or stopped
    /// (SIGTTOU), and this process must not be.
    fn say(&self, message: SignalMessage) -> Option<ExitStatus> {
        let number = match self.stderr {
            Connection::Inherit => 2,
            Connection::Raw(number) => number,
            Connection::Closed => return None,
        };
        // The first child in a new PID namespace has to be the program's.
        if !children_stay() {
            return None;
        }
        let mut shell = Command::new("/bin/sh");
        // The message ends in a newline, and has nothing that is special in a format.
        shell.arg0("sh").arg("-c").arg(format!("printf '{message}'"));
        shell.spec.env.set_exact(Strings::default());
        // If the shell cannot write the message, its own complaint goes nowhere. It reads nothing,
        // and there may be no descriptor left for /dev/null.
        shell.stdin(Stdio::closed()).stdout(Stdio(Kind::Raw(number))).stderr(Stdio::closed());
        shell.inherit_signals(self.signals.inherited);
        shell.default_signals(self.signals.default);
        // dash's mask is empty once it has started a program.
        let mask = self.signals.mask.filter(|_| self.traits.kind() != ShellKind::Dash);
        if mask.is_some() || self.traits.kind() == ShellKind::Dash {
            shell.signal_mask(mask.unwrap_or(SigSet::EMPTY));
        }
        shell.status().ok()
    }

    /// The status of a line whose last program ended with `status`.
    ///
    /// If the shell was killed itself, it is the shell's. Otherwise a shell that waits turns a
    /// signal into 128 + n. The keyboard's signals end the shell as well.
    pub(super) fn translate(&self, status: ExitStatus) -> ExitStatus {
        match status.signal() {
            _ if self.died.is_some() => self.died.unwrap_or(status),
            _ if is_of_the_keyboard(status) => status,
            Some(signal) if !self.replaces_shell => ExitStatus::from_raw((128 + signal) << 8),
            _ => status,
        }
    }
}

/// The end of a line whose process the caller waits for; see
/// [`spawn_alone`](super::ShellLine::spawn_alone).
#[doc(hidden)]
#[derive(Debug)]
pub struct LineEnd {
    ending: Ending,
    words_go_to: Option<RawFd>,
}

impl LineEnd {
    /// `words_go_to`: behind the output of this number the caller writes the shell's words itself.
    /// `None` if there is no room for the descriptor that the words need.
    pub(super) fn new(mut ending: Ending, words_go_to: Option<RawFd>) -> Option<LineEnd> {
        if words_go_to.is_some() {
            ending.stderr = Connection::Closed;
        } else if !ending.keep_stderr() {
            return None;
        }
        Some(LineEnd { ending, words_go_to })
    }

    /// The descriptor that [`message`](LineEnd::message) is for: one of the numbers given to
    /// [`spawn_alone`](super::ShellLine::spawn_alone). `None` if [`take`](LineEnd::take) writes the
    /// message, or there is never one.
    ///
    /// ```
    /// let (child, end) = forkless::shell("exec sleep 0").spawn_alone(&[]).unwrap();
    /// assert_eq!(end.words_go_to(), None);
    /// rustix::process::waitpid(
    ///     rustix::process::Pid::from_raw(child.pid as i32),
    ///     rustix::process::WaitOptions::empty(),
    /// )?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn words_go_to(&self) -> Option<RawFd> {
        self.words_go_to
    }

    /// The shell's status for a program that ended with `status`. Where the shell would say that
    /// the program was killed, this says it.
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// let (child, mut end) = forkless::shell("exec sleep 0").spawn_alone(&[]).unwrap();
    /// rustix::process::waitpid(
    ///     rustix::process::Pid::from_raw(child.pid as i32),
    ///     rustix::process::WaitOptions::empty(),
    /// )?;
    /// assert_eq!(end.take(std::process::ExitStatus::from_raw(3 << 8)).code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take(&mut self, status: ExitStatus) -> ExitStatus {
        self.ending.complain(status);
        let status = self.ending.translate(status);
        self.ending.stderr = Connection::Closed;
        self.ending.kept = None;
        status
    }

    /// The shell's words about a program that ended with `status`, if it has any.
    ///
    /// ```
    /// let (child, end) = forkless::shell("exec sleep 0").spawn_alone(&[1, 2]).unwrap();
    /// rustix::process::waitpid(
    ///     rustix::process::Pid::from_raw(child.pid as i32),
    ///     rustix::process::WaitOptions::empty(),
    /// )?;
    /// assert_eq!(end.message(std::process::ExitStatus::default()), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn message(&self, status: ExitStatus) -> Option<String> {
        self.ending.message(status).map(|message| message.to_string())
    }
}

/// Whether a keyboard may have ended the program, and with it the shell.
fn is_of_the_keyboard(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(libc::SIGINT | libc::SIGQUIT))
}
