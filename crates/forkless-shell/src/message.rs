//! The message of a shell when a program that it waited for was killed.

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
/// The first real-time signal to `strsignal`: the kernel's first two, 32 and 33, are the C
/// library's.
const SIGRTMIN: u8 = 34;

/// The line that a shell writes to standard error about a program that a signal has ended, newline
/// included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalMessage {
    signal: u8,
    core_dumped: bool,
}

impl SignalMessage {
    /// Its text: words, a number for a signal that has no name, and the end of the line. It allows
    /// for callers that cannot afford `core::fmt`, as a library that every program of a tree maps.
    #[must_use]
    pub fn parts(&self) -> (&'static str, Option<u8>, &'static str) {
        let end = if self.core_dumped { " (core dumped)\n" } else { "\n" };
        match (self.signal.checked_sub(1).and_then(|at| NAMES.get(usize::from(at))), self.signal) {
            (Some(name), _) => (name, None, end),
            (None, signal @ SIGRTMIN..=64) => ("Real-time signal ", Some(signal - SIGRTMIN), end),
            (None, signal) => ("Unknown signal ", Some(signal), end),
        }
    }
}

impl fmt::Display for SignalMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, number, end) = self.parts();
        f.write_str(words)?;
        if let Some(number) = number {
            write!(f, "{number}")?;
        }
        f.write_str(end)
    }
}

impl ShellTraits {
    /// The message of this shell when a program it waited for died of `signal`. dash and busybox
    /// write one for every signal but SIGINT and SIGPIPE (dash src/jobs.c, `sprint_status`); bash
    /// with `-c` writes none.
    ///
    /// It goes to the shell's own standard error. While a lone command runs, that is the command's,
    /// redirected or not.
    #[must_use]
    pub const fn signal_message(&self, signal: u8, core_dumped: bool) -> Option<SignalMessage> {
        match (self.kind, signal) {
            (_, SIGINT | SIGPIPE) | (ShellKind::Bash | ShellKind::Unknown, _) => None,
            _ => Some(SignalMessage { signal, core_dumped }),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn signals_have_the_messages_of_strsignal() {
        let text =
            |signal, core_dumped| ShellTraits::DASH.signal_message(signal, core_dumped).unwrap().to_string();
        assert_eq!(text(9, false), "Killed\n");
        assert_eq!(text(11, true), "Segmentation fault (core dumped)\n");
        assert_eq!(text(34, false), "Real-time signal 0\n");
        assert_eq!(text(64, false), "Real-time signal 30\n");
        assert_eq!(text(33, false), "Unknown signal 33\n");
    }

    #[test]
    fn shells_are_silent_about_the_keyboard_and_broken_pipes() {
        for signal in [SIGINT, SIGPIPE] {
            assert_eq!(ShellTraits::DASH.signal_message(signal, false), None);
        }
        assert_eq!(ShellTraits::BASH.signal_message(9, false), None);
        assert!(ShellTraits::BUSYBOX.signal_message(9, false).is_some());
    }
}
