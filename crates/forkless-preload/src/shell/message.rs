//! The shell's reaction when the program that it waits for is killed: its status, and the message
//! it writes.
//!
//! A shell is started to write the message. A writer may be killed for it (SIGPIPE, SIGXFSZ),
//! stopped (SIGTTOU) or kept waiting. So it must be a process of its own, with the signals and
//! limits a shell would have; its end is then the line's end.

use core::ptr::null;

use forkless_child::Action;
use forkless_shell::{ShellKind, ShellTraits, SignalMessage};
use forkless_sys::signal::{self, Disposition, SigSet};
use forkless_sys::{CPtr, fd, process, quiet_write};

use crate::fork;
use crate::signals::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTTOU, SIGXFSZ};

use super::launch::{self, Process, Workspace, wait};

/// The shell would have waited for the program and lived on.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub(super) shell: ShellTraits,
    pub(super) errors: Errors,
    /// The caller ignores SIGINT and SIGQUIT while it waits, as `system` does.
    pub(super) waits: bool,
}

/// Where a message goes: a descriptor, and its file when the program was started.
#[derive(Clone, Copy)]
pub(super) struct Errors {
    /// -1: nowhere.
    pub(super) descriptor: i32,
    pub(super) device: u64,
    pub(super) inode: u64,
    /// When the file was made: a newer file may have the inode of a deleted one. 0: the file system
    /// does not say.
    pub(super) birth: u64,
    /// Where the next byte goes; 0 for a file without a position.
    pub(super) position: u64,
}

impl Errors {
    pub(super) const NOWHERE: Errors = Errors { descriptor: -1, device: 0, inode: 0, birth: 0, position: 0 };

    /// Those of a program that is started now, and of its shell: nowhere, where the descriptor is
    /// close-on-exec.
    pub(super) fn at(descriptor: i32) -> Errors {
        if descriptor >= 0 && fd::get_fd_flags(descriptor) == Ok(0) {
            Errors::now(descriptor)
        } else {
            Errors::NOWHERE
        }
    }

    fn now(descriptor: i32) -> Errors {
        let Ok((device, inode)) = fd::identity(descriptor, CPtr::from(c""), fd::AT_EMPTY_PATH) else {
            return Errors::NOWHERE;
        };
        let (birth, position) = (fd::birth(descriptor), fd::position(descriptor));
        Errors { descriptor, device, inode, birth: birth.unwrap_or(0), position: position.unwrap_or(0) }
    }

    /// Whether the descriptor is still that file. The position shows a file that was closed and
    /// opened again since: a shell would have kept the first. (A second descriptor would keep it
    /// for this library, and the program would find that descriptor.)
    fn is_still(&self) -> bool {
        if self.descriptor < 0 {
            return false;
        }
        let now = Errors::now(self.descriptor);
        now.descriptor >= 0
            && (now.device, now.inode) == (self.device, self.inode)
            && (now.birth == self.birth || now.birth == 0 || self.birth == 0)
            && now.position >= self.position
    }
}

/// The signals of the shell that writes the message.
#[derive(Clone, Copy)]
pub(super) struct Signals {
    /// At their default, though the caller ignores them now.
    pub(super) restore: SigSet,
    /// Ignored, though the caller may not.
    pub(super) ignored: SigSet,
    pub(super) mask: SigSet,
}

/// Which of these the caller ignores now, and so a shell that it starts.
pub(super) fn ignored_for_writing() -> SigSet {
    let mut set = SigSet::EMPTY;
    for signal in [SIGPIPE, SIGXFSZ, SIGTTOU] {
        if signal::disposition(signal) == Ok(Disposition::Ignore) {
            set = set.with(signal);
        }
    }
    set
}

impl Signals {
    /// For a shell that was started when the caller ignored these.
    pub(super) fn as_of(ignored: SigSet) -> Signals {
        Signals { restore: quiet_write::SIGNALS, ignored, mask: signal::mask().unwrap_or_default() }
    }
}

impl Ending {
    /// The status a shell would have given for the program. Writes its message where the program
    /// was killed.
    pub(super) fn tell(&self, status: i32, signals: &Signals) -> i32 {
        let counted = fork::begin_work();
        let told = self.told(status, signals);
        fork::end_work(counted);
        told
    }

    fn told(&self, status: i32, signals: &Signals) -> i32 {
        let signal = status & 0x7f;
        if signal == 0 || self.ends_the_shell(signal, signals.mask) {
            status
        } else {
            let code = 128 + signal;
            let message = self.shell.signal_message(signal as u8, status & 0x80 != 0);
            message
                .filter(|_| self.errors.is_still() && !fork::sandboxed())
                .and_then(|message| self.say(message, code, signals))
                .unwrap_or(code << 8)
        }
    }

    /// Whether a signal that ended the program has ended the shell, too. It may have come to all
    /// three where it does not end the caller: the caller has a handler for it by now, or blocks
    /// it, or is the first process of its namespace, which has no default action.
    fn ends_the_shell(&self, signal: i32, mask: SigSet) -> bool {
        let is_keys = signal == SIGINT || signal == SIGQUIT;
        if self.waits && is_keys {
            return true;
        }
        if !signal::SENT.has(signal) {
            return false;
        }
        mask.has(signal)
            || matches!(signal::disposition(signal), Ok(Disposition::Handler(_)))
            || ((is_keys || signal == SIGHUP || signal == SIGTERM) && process::getpid() == 1)
    }

    /// Has a shell write the message and end with `code`. Its status, if it could be started.
    fn say(&self, message: SignalMessage, code: i32, signals: &Signals) -> Option<i32> {
        // Only the known shell; and the first child in a new PID namespace has to be the program's.
        super::traits()?;
        fork::children_stay().then_some(())?;
        let mut text = Text { bytes: [0; 96], len: 0 };
        let (words, number, end) = message.parts();
        text.push(b"printf '")?;
        // The message ends in a newline, and has no character that is special in a format.
        text.push(words.as_bytes())?;
        if let Some(number) = number {
            text.push_number(number)?;
        }
        text.push(end.as_bytes())?;
        text.push(b"'; exit ")?;
        text.push_number(code as u8)?;
        text.push(b"\0")?;
        let argv = [c"sh".as_ptr(), c"-c".as_ptr(), text.bytes.as_ptr().cast(), null()];
        let workspace = Workspace::take()?;
        // Its own complaints, should it fail to write, go nowhere. While it is kept waiting it must
        // hold nothing else open: the reader of another stream's pipe waits for the end.
        let files = [
            launch::connect(self.errors.descriptor, 1),
            launch::close(0),
            Action::CloseRange { first: 2, last: u32::MAX, by_range: true, limit: 0 },
        ];
        let pid = Process {
            path: c"/bin/sh",
            argv: argv.as_ptr(),
            envp: &null(),
            files: &files,
            restore: signals.restore.with(SIGCHLD),
            ignored: SigSet(launch::left_ignored().0 | signals.ignored.0),
            // dash has this mask once it has started a program.
            mask: if self.shell.kind() == ShellKind::Dash { SigSet::EMPTY } else { signals.mask },
        }
        .start(workspace.stack())
        .ok()?;
        wait(pid).ok()
    }
}

/// A line for the shell.
struct Text {
    bytes: [u8; 96],
    len: usize,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// Without `core::fmt`, whose code would be a page more in every program.
    fn push_number(&mut self, number: u8) -> Option<()> {
        let digits = [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit);
        let leading = digits.iter().take(2).take_while(|digit| **digit == b'0').count();
        self.push(digits.get(leading..)?)
    }
}
