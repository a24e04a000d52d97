//! What a shell that waits for a program does when it was killed: the status it makes of that, and the message it writes.
//!
//! The message is left to a shell, started for it: whoever writes may be killed for it (SIGPIPE, SIGXFSZ), stopped (SIGTTOU) or kept
//! waiting. That must be a process of its own, with the signals and limits a shell would have, and its end is then the line's.

use core::fmt::Write as _;
use core::ptr::null;

use forkless_shell::{ShellKind, ShellTraits, SignalMessage};
use forkless_sys::signal::{self, Disposition, SigSet};
use forkless_sys::{CPtr, fd, process};

use crate::fork;
use crate::signals::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTTOU, SIGXFSZ};

use super::launch::{self, Launch, Step, Workspace};
use super::system::wait;

/// The shell would have waited for the program and lived on.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub(super) shell: ShellTraits,
    pub(super) errors: Errors,
    /// The caller ignores SIGINT and SIGQUIT while it waits, as `system` does.
    pub(super) waits: bool,
}

/// Where a message goes: a descriptor, and the file it was when the program was started.
#[derive(Clone, Copy)]
pub(super) struct Errors {
    /// -1: nowhere.
    pub(super) descriptor: i32,
    pub(super) device: u64,
    pub(super) inode: u64,
    /// When the file was made: a newer one may have the inode of one that is gone. 0: nobody says.
    pub(super) birth: u64,
    /// Where the next byte goes; 0 for what has no position.
    pub(super) position: u64,
}

impl Errors {
    pub(super) const NOWHERE: Errors = Errors { descriptor: -1, device: 0, inode: 0, birth: 0, position: 0 };

    /// Of a program that is started now, and of its shell: close-on-exec, they have none.
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

    /// Whether the descriptor is still that file. One that was closed since and opened again is told by its position: a shell would have
    /// kept the first. (A second descriptor would keep it for us, and be found by the program.)
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

/// What the shell that says it has of the caller's signals.
#[derive(Clone, Copy)]
pub(super) struct Signals {
    /// At their default, though the caller ignores them now.
    pub(super) restore: SigSet,
    /// Ignored, though the caller may not.
    pub(super) ignored: SigSet,
    pub(super) mask: SigSet,
}

/// Signals that a write may bring.
const OF_WRITING: SigSet = SigSet::EMPTY.with(SIGPIPE).with(SIGXFSZ).with(SIGTTOU);

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
    /// Of a shell that was started when the caller ignored these.
    pub(super) fn as_of(ignored: SigSet) -> Signals {
        Signals { restore: OF_WRITING, ignored, mask: signal::mask().unwrap_or_default() }
    }
}

impl Ending {
    /// The status a shell would have given for a program that it waited for, and its message for one that was killed.
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

    /// Whether a signal that ended the program has ended the shell, too. Where the caller has a handler for it by now, or blocks it, or is the first
    /// process of its namespace, which has no default action, it may have come to all three.
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

    /// Has a shell say it and end with `code`; its status, if there was one.
    fn say(&self, message: SignalMessage, code: i32, signals: &Signals) -> Option<i32> {
        // Still the one that is known; and the first child in a new PID namespace has to be the program's.
        super::traits()?;
        fork::children_stay().then_some(())?;
        let mut line = Line { bytes: [0; 96], len: 0 };
        // It ends in a newline, and has nothing that is special in a format.
        write!(line, "printf '{message}'; exit {code}\0").ok()?;
        let argv = [c"sh".as_ptr(), c"-c".as_ptr(), line.bytes.as_ptr().cast(), null()];
        let workspace = Workspace::take()?;
        // Its own complaints, should it fail to say it, are nobody's. And while it is kept waiting it must hold nothing open: not the pipe of
        // another stream, whose reader waits for the end.
        let steps = [Step::Copy { from: self.errors.descriptor, to: 1 }, Step::Close(0), Step::CloseFrom(2)];
        let pid = Launch {
            path: c"/bin/sh",
            argv: argv.as_ptr(),
            envp: &null(),
            close: &[],
            steps: &steps,
            restore: signals.restore.with(SIGCHLD),
            ignored: SigSet(launch::left_ignored().0 | signals.ignored.0),
            // As dash's is once it has started a program.
            mask: if self.shell.kind() == ShellKind::Dash { SigSet::EMPTY } else { signals.mask },
        }
        .start(workspace.stack())
        .ok()?;
        wait(pid).ok()
    }
}

struct Line {
    bytes: [u8; 96],
    len: usize,
}

impl core::fmt::Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + s.len()).ok_or(core::fmt::Error)?;
        room.copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}
