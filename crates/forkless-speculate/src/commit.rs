//! Commit or abort: how a parent learns whether its speculative child executed a program.
//!
//! The decision makes no system call itself. So `tests/commit.rs` tries every order in which
//! parent, child and kernel can act.

/// A question of the parent's to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitQuestion {
    /// `waitid(WEXITED | WNOHANG | WNOWAIT)`: is there a child, alive or dead, whose exit signal is
    /// SIGCHLD? The clone gave it exit signal 0, and only exec sets SIGCHLD.
    Executed,
    /// `waitid(WEXITED | __WALL)`: waits for the child's end, whatever its exit signal, and reaps
    /// it.
    End,
}

/// The kernel's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitAnswer {
    /// There is such a child. For [`WaitQuestion::End`]: it has ended and is reaped.
    Yes,
    /// `ECHILD`.
    NoChild,
    /// `EINTR`.
    Interrupted,
    /// Any other error, however often the parent asks: a filter came into force meanwhile.
    Refused,
}

/// Whether the child executed a program. The parent asks once the child has left its memory (the
/// vfork completion). A child that executed nothing is reaped afterwards.
///
/// `executing` reads the mark that the child sets just before execve, and takes back when execve
/// fails. The mark decides only where the child is gone and this process has not reaped it:
/// - the program ignores SIGCHLD, so the kernel reaps a child that executed a program and ended.
///   The kernel never reaps a child whose exit signal is 0 (kernel/signal.c, `do_notify_parent`);
/// - another thread waits with `__WALL`;
/// - a filter refuses the questions.
///
/// The first question needs its answer before the parent puts the second. The second waits for the
/// end of the program, if the child executed one.
pub fn committed(mut ask: impl FnMut(WaitQuestion) -> WaitAnswer, executing: impl Fn() -> bool) -> bool {
    loop {
        match ask(WaitQuestion::Executed) {
            WaitAnswer::Yes => return true,
            WaitAnswer::NoChild => break,
            WaitAnswer::Interrupted => {}
            WaitAnswer::Refused if executing() => return true,
            WaitAnswer::Refused => break,
        }
    }
    loop {
        match ask(WaitQuestion::End) {
            WaitAnswer::Yes => return false,
            WaitAnswer::Interrupted => {}
            WaitAnswer::NoChild | WaitAnswer::Refused => return executing(),
        }
    }
}
