//! What a POSIX shell line would do, or "ask the shell".
//!
//! [`analyze`] reads a line as `/bin/sh -c LINE` would and answers with a [`Script`], the programs to run with their
//! words, assignments and redirections, or with a [`Rejection`], the first thing that only a shell can do and where it
//! stands. It answers with a script only where running it directly gives what the shell gives, for the shell this
//! machine has ([`ShellTraits`]): dash, bash called `sh`, or busybox ash.
//!
//! No allocation, no libc, no `unsafe`, no global state: everything is laid out in a buffer the caller gives, so it
//! works inside any program, in a signal handler too. It starts nothing, opens nothing and asks the kernel nothing;
//! facts that need asking (`/bin/sh`'s behaviour, whether `PWD` is right) are arguments.
//!
//! ```
//! use forkless_shell::{CommandKind, Reason, RedirectionKind, ShellTraits, analyze};
//!
//! let environment: [&[u8]; 2] = [b"PATH=/usr/bin:/bin", b"SRC=main.c"];
//! let mut buf = [0; 4096];
//!
//! let line = br#"CC=gcc make "$SRC" 2>&1 | tee build.log && ls"#;
//! let script = analyze(line, &environment, &ShellTraits::DASH, &mut buf).unwrap();
//! let first = script.pipelines().next().unwrap();
//! assert_eq!(first.stage_count(), 2);
//! let make = first.stages().next().unwrap();
//! assert_eq!(make.kind(), CommandKind::External);
//! assert!(make.assignments().eq([c"CC=gcc"]));
//! assert!(make.words().eq([c"make", c"main.c"]));
//! let redirection = make.redirections().next().unwrap();
//! assert_eq!((redirection.descriptor, redirection.kind), (2, RedirectionKind::Duplicate(1)));
//!
//! let line = b"rm -f *.o";
//! let rejection = analyze(line, &environment, &ShellTraits::DASH, &mut buf).unwrap_err();
//! assert_eq!(rejection.reason, Reason::Glob);
//! assert_eq!(rejection.span.of(line), b"*");
//! ```
//!
//! # What a runner owes
//!
//! A script says what the shell would do; the shell is not missed if whoever runs it keeps to this.
//!
//! 1. **Order.** The status starts at 0. Pipelines run in order, each if its [`Connector`] says so; a skipped one
//!    leaves the status. All stages of a pipeline are started before any is waited for, all are waited for, and its
//!    status is the last stage's; [`Pipeline::is_negated`] then turns 0 into 1 and anything else into 0.
//! 2. **Status.** An exit code is the status; death by signal n is 128 + n. Except: the command for which
//!    [`Command::replaces_shell`] holds ends the line, and its death by signal is the line's own. When a waited-for
//!    program dies by a signal, dash and busybox write [`ShellTraits::signal_message`] to standard error, as that
//!    command had it (a `2>` of a lone command holds, those inside a pipeline do not).
//! 3. **Keyboard signals.** A shell started by a terminal dies with the program it waits for. A runner that ignores
//!    SIGINT and SIGQUIT while it waits (as `system()` must) cannot tell `kill -INT child` from the keyboard: when a
//!    program dies of either, it ends the line there, with that signal.
//! 4. **Before anything of a pipeline starts**: open its redirections' targets and find its programs, each the first
//!    regular file with execute permission along `PATH` (names with a `/` as they are). **If anything fails** hand
//!    `&line[pipeline.span().start..]` to `/bin/sh -c --` (a part of a line may begin with `-`), with the current
//!    directory and, after a `cd`, with its `PWD` and `OLDPWD`; to bash also without `_` once a command that is no
//!    pipeline has run:
//!    nothing a script depends on has happened since the start of that text, so the shell does the rest, its messages,
//!    126, 127 and redirection errors included. Opening is harmless to repeat. A target that is a FIFO would block the
//!    caller rather than the shell: leave such lines to it, too.
//! 5. **If an exec fails later** (no `#!` line, a missing interpreter, a race): if the command
//!    [`replaces_shell`](Command::replaces_shell), hand over as in 4. Else run its [`span`](Command::span), followed by
//!    a newline and `exit` so that this shell waits as the line's own would have, by `/bin/sh -c --` in its place, with
//!    the descriptors it had before its own redirections.
//! 6. **Redirections** apply in order, after the pipe's own ends; [`RedirectionKind::Duplicate`] refers to what is
//!    there by then, and a descriptor that is close-on-exec in the caller does not exist for the shell. Paths are
//!    relative to the directory as the `cd`s before left it. A lone command's redirections are its own only.
//! 7. **Environment**: [`ShellTraits::environment`] gives each program what this shell would export.
//! 8. `cd` ([`CommandKind::ChangeDirectory`]) fails unless the directory of [`resolve_directory`] can be entered; a
//!    failure is handled as in 4. It must not change the caller's own directory.
//! 9. **Signals and the rest**: sh changes no signal disposition, mask, process group or limit for what it runs in the
//!    foreground, and neither may the runner; but for [`ShellTraits::ignores_sigquit`]. A child's parent is the runner instead of a shell; that is the one
//!    difference, and getppid() can see it.
//! 10. A script without programs (`exit 3`) has no child at all: where one is expected (`popen`), use the shell.
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

/// Lengths and offsets are stored in 32 bits.
const MAX_LINE: usize = 1 << 30;

/// Decides what `/bin/sh -c line` would do in `environment`, for a `/bin/sh` that is `shell`.
///
/// The script is laid out in `buf`: about three times the line plus the values of the variables it expands; a line of
/// many short commands takes up to 25 times its length. One that does not fit is left to the shell like any other.
/// Takes time proportional to the line (and to the environment, for each variable that the line expands).
///
/// # Errors
/// A [`Rejection`] means that the line has to be given to `/bin/sh -c` as it is.
///
/// ```
/// use forkless_shell::{Reason, ShellTraits, analyze};
/// let env: [&[u8]; 1] = [b"PATH=/bin"];
/// let mut buf = [0; 256];
/// let script = analyze(b"sort -u names", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// assert!(script.single().unwrap().words().eq([c"sort", c"-u", c"names"]));
/// let rejection = analyze(b"sort $(ls)", &env, &ShellTraits::DASH, &mut buf).unwrap_err();
/// assert_eq!(rejection.reason, Reason::CommandSubstitution);
/// ```
pub fn analyze<'b, E: Environment + ?Sized>(
    line: &[u8],
    environment: &E,
    shell: &ShellTraits,
    buf: &'b mut [u8],
) -> Result<Script<'b>, Rejection> {
    analyze_in(line, &environment, shell, buf)
}

/// One analysis, whatever holds the environment: a preloaded library needs it for two kinds, and has no room for two of it.
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
