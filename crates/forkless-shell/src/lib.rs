//! The programs that a POSIX shell line would run, or the answer "only the shell can tell".
//!
//! [`analyze`] reads a line as `/bin/sh -c LINE` would. It answers with a [`Script`]: the programs
//! to run with their words, assignments and redirections. Or it answers with a [`Rejection`]: the
//! first thing that only a shell can do, and its place. There is a script only where running it
//! directly has the same result as the shell of this machine ([`ShellTraits`]): dash, bash called
//! `sh`, or busybox ash.
//!
//! No allocation, no libc, no `unsafe`, no global state. Everything is laid out in a buffer of the
//! caller's, so the analysis works inside any program, in a signal handler too. It starts nothing,
//! opens nothing and asks the kernel nothing. Facts that must be asked for (the behaviour of
//! `/bin/sh`, whether `PWD` is right) are arguments.
//!
//! # The duties of a runner
//!
//! A script lists the actions of the shell. Nobody misses the shell if the runner of the script
//! keeps to these rules.
//!
//! 1. **Order.** The status starts at 0. Pipelines run in order, each if its [`Connector`] says so;
//!    a skipped one leaves the status. All stages of a pipeline are started before any is waited
//!    for, and all are waited for. The status of the pipeline is the last stage's;
//!    [`Pipeline::is_negated`] then turns 0 into 1 and any other status into 0.
//! 2. **Status.** An exit code is the status; death by signal n is 128 + n. One exception: the
//!    command for which [`Command::replaces_shell`] holds ends the line, and its death by signal is
//!    the line's own. When a program that was waited for dies by a signal, dash and busybox write
//!    [`ShellTraits::signal_message`] to the standard error of that command (after the `2>` of a
//!    lone command, before that of a command inside a pipeline).
//! 3. **Keyboard signals.** A shell on a terminal dies with the program it waits for. A runner that
//!    ignores SIGINT and SIGQUIT while it waits, as `system()` must, cannot tell `kill -INT child`
//!    from the keyboard. So when a program dies of either signal, the runner ends the line there,
//!    with that signal.
//! 4. **Before anything of a pipeline starts**: open the targets of its redirections and find its
//!    programs. A program is the first regular file with execute permission along `PATH`; a name
//!    with a `/` is taken as it is. **If anything fails**, give `&line[pipeline.span().start..]` to
//!    `/bin/sh -c --` (a part of a line may begin with `-`), in the current directory and, after a
//!    `cd`, with its `PWD` and `OLDPWD`; to bash also without `_` once a command that is no
//!    pipeline has run. Nothing that a script depends on has happened since the start of that text,
//!    so the shell does the rest: its messages, 126, 127 and redirection errors. To open a file a
//!    second time is harmless. A FIFO as a target would block the caller rather than the shell:
//!    leave such lines to the shell, too.
//! 5. **If an exec fails later** (no `#!` line, a missing interpreter, a race): if the command
//!    [`replaces_shell`](Command::replaces_shell), proceed as in 4. Else run its
//!    [`span`](Command::span) by `/bin/sh -c --` in its place, with the descriptors it had before
//!    its own redirections. Add a newline and `exit`, so that this shell waits as the line's own
//!    would have.
//! 6. **Redirections** apply in order, after the ends of the pipeline's pipes.
//!    [`RedirectionKind::Duplicate`] refers to the descriptor as the redirections before left it; a
//!    descriptor that is close-on-exec in the caller does not exist for the shell. Paths are
//!    relative to the directory after the `cd`s before. The redirections of a lone command are its
//!    own only.
//! 7. **Environment**: [`ShellTraits::environment`] is the environment that this shell would give
//!    each program.
//! 8. `cd` ([`CommandKind::ChangeDirectory`]) fails unless the directory of [`resolve_directory`]
//!    can be entered; for a failure see 4. It must not change the caller's own directory.
//! 9. **Signals and the rest**: sh changes no signal disposition, mask, process group or limit of
//!    programs that it runs in the foreground, and neither may the runner; the exception is
//!    [`ShellTraits::ignores_sigquit`]. The parent of a child is the runner instead of a shell.
//!    That is the one difference, and getppid() can see it.
//! 10. A script without programs (`exit 3`) has no child at all. Where one is expected (`popen`),
//!     use the shell.
#![no_std]

mod directory;
mod effect;
mod environment;
mod explain;
mod message;
mod names;
mod parse;
pub mod probe;
mod reason;
mod script;
mod simple_command;
mod traits;
mod word;

pub use directory::resolve_directory;
pub use effect::{Directory, EnvSlot, EnvString, PreviousDirectory};
pub use environment::Environment;
pub use explain::Explanation;
pub use message::SignalMessage;
pub use reason::{Reason, Rejection, Span};
pub use script::{
    Command, CommandKind, Connector, Pipeline, Pipelines, Redirection, RedirectionKind, Script, Stages,
};
pub use traits::{ShellKind, ShellTraits};

/// One argument of a program has at most 131,071 bytes (fs/exec.c, `copy_strings`; `MAX_ARG_STRLEN`
/// counts the NUL; a kernel with larger pages allows more). A shell cannot be given a longer line:
/// whoever tries has to get its error.
const MAX_LINE: usize = (1 << 17) - 1;

/// Finds out the actions of `/bin/sh -c line` in `environment`, for a `/bin/sh` that is `shell`.
///
/// The script is laid out in `buf`. It takes about three times the line plus the values of the
/// variables that the line expands; for many short commands up to 25 times the line. A line that
/// does not fit is left to the shell like any other. The time is proportional to the line (and to
/// the environment, for each variable that the line expands).
///
/// # Errors
/// A [`Rejection`] means that the line has to be given to `/bin/sh -c` as it is.
pub fn analyze<'b, E: Environment + ?Sized>(
    line: &[u8],
    environment: &E,
    shell: &ShellTraits,
    buf: &'b mut [u8],
) -> Result<Script<'b>, Rejection> {
    analyze_in(line, &environment, shell, buf)
}

/// The analysis for all kinds of environment: a preloaded library needs it for two kinds, and has
/// no room for two copies of it.
fn analyze_in<'b>(
    line: &[u8],
    environment: &dyn Environment,
    shell: &ShellTraits,
    buf: &'b mut [u8],
) -> Result<Script<'b>, Rejection> {
    if line.len() > MAX_LINE {
        return Err(Rejection::whole(Reason::LineTooLong));
    }
    if shell.kind() == ShellKind::Unknown {
        return Err(Rejection::whole(Reason::UnknownShell));
    }
    shell.check_environment(environment)?;
    parse::analyze_unchecked(line, environment, shell, buf)
}
