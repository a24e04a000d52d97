//! Carrying out a line: directly as far as the analysis allows, the rest by a shell.

use super::child::ShellChild;
use super::ending::LineEnd;
use super::line::ShellLine;
use super::wait::{Ends, wait_for_all, wait_or_kill, with_limit};
use super::walk::{Due, Walk, shell_command, with_walk};
use super::wiring::{Base, Connection};
use crate::child::{ChildParts, run_to_end, spawn};
use crate::command::Command;
use crate::error::SpawnError;
use crate::spec::Defaults;
use crate::spec::stdio::Kind;
use std::os::fd::RawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

impl ShellLine {
    /// Runs the line and waits for it.
    ///
    /// The status is the one of `/bin/sh -c`: 127 for a program that is not found, 126 for one that
    /// cannot be executed. For a program killed by a signal it is that signal or 128 + n, as with
    /// this machine's shell. After a program that died of SIGINT or SIGQUIT nothing more is run,
    /// and the status is that signal, as when a keyboard sends it to the shell, too.
    ///
    /// ```
    /// assert_eq!(forkless::shell("no-such-program 2>/dev/null").status()?.code(), Some(127));
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Command::status`](crate::Command::status): a process cannot be created, or a status is
    /// lost. An error that a shell reports on its standard error is none here.
    pub fn status(&mut self) -> Result<ExitStatus, SpawnError> {
        let deadline = self.deadline();
        let base = Base::open(self, [&Kind::Inherit; 3])?.without_our_ends();
        to_the_end(self, &base, Ends::Awaited(deadline))
    }

    /// Runs the line in the place of this process, as if this process executed `/bin/sh -c` with
    /// it.
    ///
    /// A shell that the line needs is executed here, and so is a program that this machine's shell
    /// would execute without waiting for it. Where that shell would wait for the line's last
    /// program, this process does, and returns the line's status as [`ShellLine::status`] does.
    /// With a [`timeout`](ShellLine::timeout) it always waits.
    ///
    /// ```
    /// // No program is started, so this process goes on. `exec ./server` would take its place.
    /// assert_eq!(forkless::shell("cd / && exit 3").exec()?.code(), Some(3));
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`ShellLine::status`], and those of an exec of the shell. Attributes set before a failing
    /// exec stay set, as for [`Command::exec`].
    pub fn exec(&mut self) -> Result<ExitStatus, SpawnError> {
        if self.timeout.is_some() {
            return self.status();
        }
        let base = Base::open(self, [&Kind::Inherit; 3])?.without_our_ends();
        to_the_end(self, &base, Ends::InPlace { reaps_all: self.reaps_all })
    }

    /// Starts the line and returns.
    ///
    /// `/bin/sh` runs a line of several pipelines, since each has to be started after the one
    /// before, unless all but the last need no program (`cd DIR && make`). It also runs a line
    /// whose standard error is a pipe made here (also by `2>&1`), where this machine's shell
    /// reports programs that were killed.
    ///
    /// ```
    /// use std::io::Read as _;
    /// let mut child = forkless::shell("printenv A | cat")
    ///     .env("A", "1")
    ///     .stdout(forkless::Stdio::piped())
    ///     .spawn()?;
    /// let mut said = String::new();
    /// child.stdout.take().unwrap().read_to_string(&mut said)?;
    /// assert_eq!(said, "1\n");
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&mut self) -> Result<ShellChild, SpawnError> {
        let base = Base::open(self, [&Kind::Inherit; 3])?;
        start(self, base, false)
    }

    /// Starts the line if all that it takes is one program, and no shell. `None` if it takes more,
    /// or cannot be started so: then nothing was started, and the caller gives the line to a shell
    /// of its own.
    ///
    /// The caller waits for the process by its number (there is no pidfd), and has its status
    /// translated by the [`LineEnd`].
    ///
    /// A shell may have something to say about a killed program. A line whose standard error goes
    /// into a pipe, a socket or a terminal gets one, since a reader may wait for its end first.
    /// `read`: of 1 and 2, the numbers whose output the caller reads to the end, and then writes
    /// the shell's words behind it ([`LineEnd::message`]). Such a line needs no shell.
    ///
    /// ```
    /// assert!(forkless::shell("sleep 0 && sleep 0").spawn_alone(&[]).is_none());
    /// ```
    #[doc(hidden)]
    pub fn spawn_alone(&mut self, read: &[RawFd]) -> Option<(ChildParts, LineEnd)> {
        let base = Base::open(self, [&Kind::Inherit; 3]).ok()?;
        with_walk(self, |walk| Ok(start_alone(walk, &base, read)), || Ok(None)).ok()?
    }
}

fn start_alone(mut walk: Walk<'_>, base: &Base, read: &[RawFd]) -> Option<(ChildParts, LineEnd)> {
    let Due::Programs(pipeline) = walk.advance() else { return None };
    if walk.pipelines.next().is_some() || pipeline.is_negated() || pipeline.stage_count() != 1 {
        return None;
    }
    let mut prepared = walk.prepare(&pipeline, base)?;
    let ending = walk.ending(&prepared, base);
    let words_go_to = if ending.may_keep_a_reader(&base.connections) {
        let is_stderr = |number: &RawFd| {
            let connection = usize::try_from(*number).ok().and_then(|number| base.connections.get(number));
            connection == Some(&ending.stderr)
        };
        Some(read.iter().copied().find(is_stderr)?)
    } else {
        None
    };
    let end = LineEnd::new(ending, words_go_to)?;
    let child = walk.start_alone(&mut prepared)?;
    Some((child.into_parts(), end))
}

impl Ends {
    /// The line's status from a shell.
    fn of_shell(self, mut shell: Command) -> Result<ExitStatus, SpawnError> {
        match self {
            Ends::Awaited(_) => await_shell(shell, self),
            Ends::InPlace { .. } => Err(shell.exec()),
        }
    }
}

/// Runs all of a line in the calling thread.
pub(super) fn to_the_end(how: &ShellLine, base: &Base, ends: Ends) -> Result<ExitStatus, SpawnError> {
    with_walk(
        how,
        |mut walk| {
            loop {
                match walk.advance() {
                    Due::Nothing(status) => return Ok(ExitStatus::from_raw(i32::from(status) << 8)),
                    Due::HandOver(pipeline) => {
                        return ends.of_shell(walk.shell(pipeline.span(), base));
                    }
                    Due::Programs(pipeline) => {
                        let Some(mut prepared) = walk.prepare(&pipeline, base) else {
                            return ends.of_shell(walk.shell(pipeline.span(), base));
                        };
                        if let Ends::InPlace { .. } = ends {
                            if let Some(error) = walk.execute_lone(&mut prepared) {
                                return Err(error);
                            }
                        }
                        let mut ending = walk.ending(&prepared, base);
                        // Another thread may close this process's standard error meanwhile.
                        if ending.stderr == Connection::Inherit && !ending.keep_stderr() {
                            drop(prepared);
                            return ends.of_shell(walk.shell(pipeline.span(), base));
                        }
                        let status = if prepared.stages.len() == 1 {
                            walk.run_lone(&mut prepared, &mut ending, ends)?
                        } else {
                            let mut children = walk.start_stages(&mut prepared)?;
                            drop(prepared.files);
                            wait_for_all(&mut children, &mut ending, ends)?
                        };
                        // A signal here ends the shell, too: otherwise it has become 128 + n.
                        if ending.replaces_shell || status.signal().is_some() {
                            return Ok(status);
                        }
                        walk.record(&pipeline, status);
                    }
                }
            }
        },
        || ends.of_shell(shell_command(how, base)),
    )
}

/// Starts the line: directly if one pipeline is all there is to start, otherwise by a shell.
///
/// `waits_first`: the caller waits for the programs before it expects an end of the line's output.
/// A shell that reports a killed program keeps standard error open until then, and so does this
/// process. A caller that reads to the end first would never see the end, so such a line gets a
/// shell.
pub(super) fn start(how: &ShellLine, base: Base, waits_first: bool) -> Result<ShellChild, SpawnError> {
    let mut child = with_walk(
        how,
        |mut walk| {
            let by_shell = || Ok(ShellChild::of_shell(shell_command(how, &base).spawn()?));
            let Due::Programs(pipeline) = walk.advance() else { return by_shell() };
            if walk.pipelines.next().is_some() || pipeline.is_negated() {
                return by_shell();
            }
            let Some(mut prepared) = walk.prepare(&pipeline, &base) else { return by_shell() };
            let mut ending = walk.ending(&prepared, &base);
            if !waits_first && ending.may_complain() && base.is_pipe_of_ours(ending.stderr) {
                return by_shell();
            }
            if !ending.keep_stderr() {
                drop(prepared);
                return by_shell();
            }
            let children = walk.start_stages(&mut prepared)?;
            Ok(ShellChild::of_programs(children, ending))
        },
        || Ok(ShellChild::of_shell(shell_command(how, &base).spawn()?)),
    )?;
    let [stdin, stdout, stderr] = base.ours;
    child.stdin = stdin.map(Into::into);
    child.stdout = stdout.map(Into::into);
    child.stderr = stderr.map(Into::into);
    Ok(child)
}

/// Whether more than one pipeline may have to be started, with a wait in between.
pub(super) fn needs_supervision(how: &ShellLine) -> bool {
    let supervised = with_walk(
        how,
        |mut walk| {
            let first = walk.advance();
            Ok(!matches!(first, Due::Programs(pipeline) if !pipeline.is_negated())
                || walk.pipelines.next().is_some())
        },
        || Ok(false),
    );
    supervised.unwrap_or(false)
}

fn await_shell(command: Command, ends: Ends) -> Result<ExitStatus, SpawnError> {
    run_to_end(
        |wait_for| spawn(&command.spec, with_limit(wait_for, ends), Defaults::Inherit),
        |child| wait_or_kill(std::slice::from_mut(child), ends, |_| {}),
    )
}
