//! What a shell says when a program it waited for was killed.

use core::fmt;

use crate::traits::{ShellKind, ShellTraits};

/// glibc's `strsignal` for the signals 1 to 31 of x86-64 and aarch64.
const NAMES: [&str; 31] = [
    "Hangup",
    "Interrupt",
    "Quit",
    "Illegal instruction",
    "Trace/breakpoint trap",
    "Aborted",
    "Bus error",
    "Floating point exception",
    "Killed",
    "User defined signal 1",
    "Segmentation fault",
    "User defined signal 2",
    "Broken pipe",
    "Alarm clock",
    "Terminated",
    "Stack fault",
    "Child exited",
    "Continued",
    "Stopped (signal)",
    "Stopped",
    "Stopped (tty input)",
    "Stopped (tty output)",
    "Urgent I/O condition",
    "CPU time limit exceeded",
    "File size limit exceeded",
    "Virtual timer expired",
    "Profiling timer expired",
    "Window changed",
    "I/O possible",
    "Power failure",
    "Bad system call",
];

const SIGINT: u8 = 2;
const SIGPIPE: u8 = 13;
/// What `strsignal` counts from; the kernel's 32 and 33 are the C library's.
const SIGRTMIN: u8 = 34;

/// The line a shell writes to standard error, newline included.
///
/// ```
/// use forkless_shell::{ShellTraits, SignalMessage};
/// let message: Option<SignalMessage> = ShellTraits::DASH.signal_message(9, false);
/// assert_eq!(message.unwrap().to_string(), "Killed\n");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalMessage {
    signal: u8,
    core_dumped: bool,
}

impl fmt::Display for SignalMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.signal.checked_sub(1).and_then(|at| NAMES.get(usize::from(at))), self.signal) {
            (Some(name), _) => f.write_str(name)?,
            (None, signal @ SIGRTMIN..=64) => write!(f, "Real-time signal {}", signal - SIGRTMIN)?,
            (None, signal) => write!(f, "Unknown signal {signal}")?,
        }
        f.write_str(if self.core_dumped { " (core dumped)\n" } else { "\n" })
    }
}

impl ShellTraits {
    /// What this shell writes when a program it waited for died of `signal`, if it writes anything: dash and busybox
    /// do for all but SIGINT and SIGPIPE (dash src/jobs.c, `sprint_status`), bash with `-c` does not.
    ///
    /// It goes to the shell's own standard error; while a lone command runs that is the command's, redirected or not.
    ///
    /// ```
    /// use forkless_shell::ShellTraits;
    ///
    /// let message = ShellTraits::DASH.signal_message(11, true).unwrap();
    /// assert_eq!(message.to_string(), "Segmentation fault (core dumped)\n");
    /// assert!(ShellTraits::DASH.signal_message(13, false).is_none());
    /// ```
    #[must_use]
    pub const fn signal_message(&self, signal: u8, core_dumped: bool) -> Option<SignalMessage> {
        match (self.kind, signal) {
            (_, SIGINT | SIGPIPE) | (ShellKind::Bash | ShellKind::Unknown, _) => None,
            _ => Some(SignalMessage { signal, core_dumped }),
        }
    }
}
