//! Commit or abort: how a parent learns whether its speculative child executed a program.
//!
//! The decision is apart from the system calls that it asks for. So `tests/commit.rs` tries every order in
//! which parent, child and kernel can act.

/// What the parent asks the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// `waitid(WEXITED | WNOHANG | WNOWAIT)`: is there a child, alive or dead, whose exit signal is
    /// SIGCHLD? The clone gave it exit signal 0, and only exec sets SIGCHLD.
    Executed,
    /// `waitid(WEXITED | __WALL)`: waits for the child's end, whatever its exit signal, and reaps it.
    End,
}

/// What the kernel answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// There is such a child. For [`Question::End`]: it has ended and is reaped.
    Yes,
    /// `ECHILD`.
    NoChild,
    /// `EINTR`.
    Interrupted,
    /// Any other error, however often the question is put: a filter came into force meanwhile.
    Refused,
}

/// Whether the child executed a program. The parent asks once the child has left its memory (the
/// vfork completion). A child that executed nothing is reaped afterwards.
///
/// `executing` reads the mark that the child sets just before execve, and takes back when execve
/// fails. The mark decides only where the child is gone and this process has not reaped it:
/// - the program ignores SIGCHLD, so the kernel reaps a child that executed a program and ended. The
///   kernel never reaps one whose exit signal is 0 (kernel/signal.c, `do_notify_parent`);
/// - another thread waits with `__WALL`;
/// - a filter refuses the questions.
///
/// The first question needs its answer before the second is put. The second waits for the end of the
/// program, if the child executed one.
pub fn committed(mut ask: impl FnMut(Question) -> Answer, executing: impl Fn() -> bool) -> bool {
    loop {
        match ask(Question::Executed) {
            Answer::Yes => return true,
            Answer::NoChild => break,
            Answer::Interrupted => {}
            Answer::Refused if executing() => return true,
            Answer::Refused => break,
        }
    }
    loop {
        match ask(Question::End) {
            Answer::Yes => return false,
            Answer::Interrupted => {}
            Answer::NoChild | Answer::Refused => return executing(),
        }
    }
}
