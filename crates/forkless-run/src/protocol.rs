//! How the parent of a speculative child learns what became of it: the decision, apart from the system calls it asks for, so that every
//! interleaving of parent, child and kernel can be tried (`tests/protocol.rs`).

/// What the parent asks the kernel.
///
/// ```
/// use forkless_run::protocol::{Answer, Question, committed};
/// let mut asked = Vec::new();
/// let no_such_child = |question| {
///     asked.push(question);
///     Answer::NoChild
/// };
/// assert!(!committed(no_such_child, || false));
/// assert_eq!(asked, [Question::Executed, Question::End]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// `waitid(WEXITED | WNOHANG | WNOWAIT)`: is this a child whose exit signal is SIGCHLD, alive or dead? Only exec makes it that.
    Executed,
    /// `waitid(WEXITED | __WALL)`: waits for its end, whatever its exit signal, and reaps it.
    End,
}

/// What the kernel answers.
///
/// ```
/// use forkless_run::protocol::{Answer, committed};
/// let mut answers = [Answer::Interrupted, Answer::Yes].into_iter();
/// assert!(committed(|_| answers.next().unwrap(), || false)); // asked again
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// There is such a child; for [`Question::End`], it has ended and is reaped.
    Yes,
    /// `ECHILD`.
    NoChild,
    /// `EINTR`.
    Interrupted,
    /// Any other error, however often it is asked: a filter that came into force meanwhile.
    Refused,
}

/// Whether the child, which has left the parent's memory (the vfork completion), executed a program. If not it is reaped afterwards.
///
/// `executing` reads the mark the child sets just before execve and takes back when that fails. It decides only when the child is gone
/// without us: a program that ignores SIGCHLD lets the kernel reap what has executed and ended, but never what ends with exit
/// signal 0 (kernel/signal.c, `do_notify_parent`); or another thread waits with `__WALL`; or the kernel may not be asked.
///
/// The first question must have an answer before the second is put: that one waits for the program's end where it has executed.
///
/// ```
/// use forkless_run::protocol::{Answer, Question, committed};
/// // It ended by itself: no child with SIGCHLD, but one with exit signal 0, reaped now.
/// let ended = |question| match question {
///     Question::Executed => Answer::NoChild,
///     Question::End => Answer::Yes,
/// };
/// assert!(!committed(ended, || true));
/// // Executed, ended, and reaped by the kernel: only the mark is left.
/// assert!(committed(|_| Answer::NoChild, || true));
/// ```
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
