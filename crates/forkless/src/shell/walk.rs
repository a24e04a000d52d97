//! Going through a script: which pipeline runs next, and how each of its programs is started.

use super::ending::{Ending, Signals};
use super::line::ShellLine;
use super::line_directory::LineDirectory;
use super::traits::shell_traits;
use super::wait::{Ends, wait_for_all, with_limit};
use super::wiring::{self, Base, Connection, Connections, KeptDescriptors};
use crate::child::{Child, run_to_end, spawn};
use crate::command::Command;
use crate::error::{SpawnError, Step};
use crate::kernel::descriptor::pipe;
use crate::kernel::namespace::children_stay;
use crate::spec::Defaults;
use crate::spec::strings::Strings;
use forkless_shell::{
    CommandKind, Connector, EnvSlot, EnvString, Environment, Pipeline, Pipelines, ShellKind, ShellTraits,
    Span, analyze,
};
use forkless_sys::signal::{self, Disposition, SA_NOCLDWAIT, SigSet};
use forkless_sys::{ids, process};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitStatus;

/// The next thing that a script needs.
pub(super) enum Due<'s> {
    /// The programs of a pipeline.
    Programs(Pipeline<'s>),
    /// A shell for the rest, from this pipeline on.
    HandOver(Pipeline<'s>),
    /// Nothing more: this is the line's status.
    Nothing(u8),
}

/// A script that is being carried out, and where it is.
pub(super) struct Walk<'s> {
    how: &'s ShellLine,
    traits: ShellTraits,
    environment: &'s Strings,
    pub(super) pipelines: Pipelines<'s>,
    directory: LineDirectory,
    status: u8,
    /// This shell has emptied its signal mask; see [`Walk::mask_is_emptied`].
    mask_emptied: bool,
    /// A program has run, or a directory was changed. The whole line can no longer be given to the
    /// shell.
    begun: bool,
    /// A command without a program has run: bash exports no inherited `_` any more.
    past_underscore: bool,
}

/// One program of a pipeline, ready to start.
pub(super) struct Stage {
    command: Command,
    connections: Connections,
    /// Its descriptors before its own redirections.
    base: Connections,
    span: Span,
    /// Where the program's pipeline begins in the line.
    rest: usize,
    replaces_shell: bool,
}

/// The stages of a pipeline, and the parent's copies of the files that they are connected to.
pub(super) struct ReadyPipeline {
    pub(super) stages: Vec<Stage>,
    pub(super) files: Vec<OwnedFd>,
}

/// Calls `run` with the script of a line that may be run directly, and `whole` for any other line.
pub(super) fn with_walk<T>(
    how: &ShellLine,
    run: impl FnOnce(Walk<'_>) -> Result<T, SpawnError>,
    whole: impl FnOnce() -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    if how.always_shell || how.env.with_nul().is_some() || !may_be_direct() {
        return whole();
    }
    let traits = shell_traits();
    let environment = how.env.strings();
    // Room for a line of nothing but `a;`. A script that does not fit is left to the shell.
    let mut buf = vec![0; (1024 + 24 * how.line.len()).min(1 << 20)];
    let Ok(script) = analyze(&how.line, &environment, &traits, &mut buf) else { return whole() };
    let is_replaced = script.single().is_some_and(|command| command.replaces_shell());
    if !is_replaced && (outlives_its_group(how) || loses_statuses()) {
        return whole();
    }
    let Some(directory) = LineDirectory::new(how.dir.as_deref(), &environment) else { return whole() };
    run(Walk {
        how,
        traits,
        environment: &environment,
        pipelines: script.pipelines(),
        directory,
        status: 0,
        mask_emptied: false,
        begun: false,
        past_underscore: false,
    })
}

/// Whether a shell could be started, and would have this thread's rights and namespace.
fn may_be_direct() -> bool {
    ids::are_a_shells(ids::bounding_capabilities)
        && children_stay()
        && process::may_execute(c"/bin/sh".into()).is_ok()
}

/// Whether this process may survive a signal that ends its group, and with the group a shell that
/// waits for its programs.
///
/// Nothing says afterwards whether a signal went to one program alone. If this process has no
/// handler for such a signal and lives, it did. SIGINT and SIGQUIT of the keyboard always count as
/// sent to the group.
fn outlives_its_group(how: &ShellLine) -> bool {
    // The line runs in a group of its own.
    if how.timeout.is_some() {
        return false;
    }
    let sent = signal::SENT.without(libc::SIGINT).without(libc::SIGQUIT);
    how.signal_mask.or_else(|| signal::mask().ok()).is_none_or(|mask| mask.and(sent) != SigSet::EMPTY)
        || signal::any_handled(sent)
}

/// Whether the ends of this process's children are lost, so that only a shell, which handles
/// SIGCHLD, can act by a program's status and tell of its death.
fn loses_statuses() -> bool {
    signal::action(libc::SIGCHLD)
        .is_ok_and(|action| action.disposition() == Disposition::Ignore || action.flags & SA_NOCLDWAIT != 0)
}

impl<'s> Walk<'s> {
    /// Carries out commands that need no program, up to one that does.
    pub(super) fn advance(&mut self) -> Due<'s> {
        for pipeline in self.pipelines.by_ref() {
            let is_due = match pipeline.connector() {
                Connector::Always => true,
                Connector::And => self.status == 0,
                Connector::Or => self.status != 0,
            };
            if !is_due {
                continue;
            }
            let Some(first) = pipeline.stages().next() else { continue };
            self.status = match first.kind() {
                CommandKind::External | CommandKind::Exec => return Due::Programs(pipeline),
                CommandKind::Status(status) => status,
                CommandKind::Exit(status) => return Due::Nothing(status.unwrap_or(self.status)),
                CommandKind::ChangeDirectory => {
                    let operand = first.operand().map(CStr::to_bytes).unwrap_or_default();
                    if !self.directory.change(operand) {
                        return Due::HandOver(pipeline);
                    }
                    self.begun = true;
                    0
                }
            };
            self.past_underscore = true;
            if pipeline.is_negated() {
                self.status = u8::from(self.status == 0);
            }
        }
        Due::Nothing(self.status)
    }

    /// Takes down how the programs ended.
    pub(super) fn record(&mut self, pipeline: &Pipeline<'_>, status: ExitStatus) {
        self.begun = true;
        self.mask_emptied = self.mask_is_emptied(pipeline);
        self.status = u8::try_from(status.code().unwrap_or(1)).unwrap_or(1);
        if pipeline.is_negated() {
            self.status = u8::from(self.status == 0);
        }
    }

    /// Whether the programs of a pipeline start with no signal blocked, whatever the line was
    /// started with.
    ///
    /// Since 0.5.11 dash starts a lone command by vfork, for which it blocks all signals. It lifts
    /// the block by emptying the mask, its own for good (`vforkexec`, jobs.c). The stages of a
    /// pipeline, which it forks, have its own mask, and so has a program that it executes in its
    /// place (`exec`).
    fn mask_is_emptied(&self, pipeline: &Pipeline<'_>) -> bool {
        let mut stages = pipeline.stages();
        let lone = pipeline.stage_count() == 1;
        let by_vfork = lone && stages.next().is_some_and(|stage| stage.kind() == CommandKind::External);
        self.mask_emptied || (by_vfork && self.traits.kind() == ShellKind::Dash)
    }

    /// Prepares the stages: everything that may fail while nothing has happened yet.
    pub(super) fn prepare(&self, pipeline: &Pipeline<'s>, base: &Base) -> Option<ReadyPipeline> {
        let mut files = Vec::new();
        let mut stages = Vec::with_capacity(pipeline.stage_count());
        let mut input = None;
        for (index, stage) in pipeline.stages().enumerate() {
            let mut own = base.connections;
            if let Some(input) = input.take() {
                own[0] = Connection::Raw(input);
            }
            if index + 1 < pipeline.stage_count() {
                let (read, write) = pipe().ok()?;
                own[1] = Connection::Raw(write.as_raw_fd());
                input = Some(read.as_raw_fd());
                files.extend([read, write]);
            }
            let mut connections = own;
            for redirection in stage.redirections() {
                let inherits = self.how.inherit_descriptors;
                wiring::redirect(redirection, &mut connections, &mut files, &self.directory, inherits)?;
            }
            let mut words = stage.words();
            let name = words.next()?;
            let program = self.find(name)?;
            let mut command = Command::new(OsStr::from_bytes(&program));
            command.arg0(OsStr::from_bytes(name.to_bytes()));
            command.args(words.map(|word| OsStr::from_bytes(word.to_bytes())));
            command.scripts_without_interpreter(false);
            command.spec.env.set_exact(self.environment_of(&stage, &program)?);
            self.finish(&mut command, &connections, index, pipeline.stage_count());
            self.set_signals(&mut command, pipeline);
            if self.traits.ignores_sigquit(&stage) {
                command.ignore_signals(SigSet::EMPTY.with(libc::SIGQUIT));
            }
            stages.push(Stage {
                command,
                connections,
                base: own,
                span: stage.span(),
                rest: pipeline.span().start,
                replaces_shell: stage.replaces_shell(),
            });
        }
        Some(ReadyPipeline { stages, files })
    }

    /// Sets the signals as the shell leaves them to its programs. dash and busybox handle SIGCHLD,
    /// so that none starts with that ignored. bash hands it on ignored, but unblocks it. Beside
    /// busybox's SIGQUIT no shell changes another signal: each from 1 to 64 was tried, ignored and
    /// blocked.
    fn set_signals(&self, command: &mut Command, pipeline: &Pipeline<'_>) {
        let blocked = self.how.signal_mask.or_else(|| signal::mask().ok()).unwrap_or_default();
        if self.mask_is_emptied(pipeline) {
            command.signal_mask(SigSet::EMPTY);
        } else if self.traits.kind() == ShellKind::Bash && blocked.has(libc::SIGCHLD) {
            command.signal_mask(blocked.without(libc::SIGCHLD));
        }
        if self.traits.kind() != ShellKind::Bash {
            command.default_signals(SigSet::EMPTY.with(libc::SIGCHLD));
        }
    }

    /// Sets descriptors, directory and process group of a process of the line.
    fn finish(&self, command: &mut Command, connections: &Connections, index: usize, count: usize) {
        self.how.dress(command);
        wiring::connect(command, connections, self.how.inherit_descriptors);
        match self.directory.descriptor() {
            // Its number may be one that the program inherits.
            Some(_) if self.how.inherit_descriptors => {
                self.directory.dir().map(|dir| command.current_dir(dir));
            }
            descriptor => command.spec.directory = descriptor,
        }
        // Later stages join the group when the first child's number is known.
        if self.how.timeout.is_some() && index == 0 && count > 0 {
            command.process_group(0);
        }
    }

    fn environment_of(&self, command: &forkless_shell::Command<'_>, program: &[u8]) -> Option<Strings> {
        let (current, previous) = self.directory.lengths();
        let mut text = vec![0; forkless_shell::Command::environment_bytes(current, previous, program.len())];
        let mut slots =
            vec![EnvSlot::EMPTY; self.environment.iter().len() + command.assignments().count() + 4];
        let directory = self.directory.for_analysis();
        let count = self
            .traits
            .environment(self.environment, command, &directory, program, &mut text, &mut slots)
            .ok()?;
        let mut strings = Strings::default();
        strings.reserve(4096, count);
        for slot in slots.iter().take(count) {
            match slot.string() {
                EnvString::Inherited(index) => strings.push(self.environment.entry(index)?),
                EnvString::Own(text) => strings.push(text.to_bytes()),
            }
        }
        Some(strings)
    }

    /// The file that a command name means, if it can be executed.
    fn find(&self, name: &CStr) -> Option<Vec<u8>> {
        let runs = |path: &[u8]| {
            let there = std::fs::metadata(self.directory.resolve(path));
            there.is_ok_and(|there| there.is_file() && there.permissions().mode() & 0o111 != 0)
        };
        let name = name.to_bytes();
        if name.contains(&b'/') {
            return runs(name).then(|| name.to_vec());
        }
        self.environment
            .variable(b"PATH")?
            .split(|&byte| byte == b':')
            .map(|dir| [dir, b"/", name].concat())
            .find(|path| runs(path))
    }

    pub(super) fn ending(&self, prepared: &ReadyPipeline, base: &Base) -> Ending {
        let lone = if let [only] = prepared.stages.as_slice() { Some(only) } else { None };
        Ending {
            traits: self.traits,
            replaces_shell: lone.is_some_and(|stage| stage.replaces_shell),
            // A shell has a lone command's descriptors while it waits for it.
            stderr: lone.map_or(base.connections[2], |stage| stage.connections[2]),
            kept: None,
            signals: Signals::of(self.how),
            died: None,
        }
    }

    /// Starts every stage. If a process cannot be created, the started ones are killed.
    pub(super) fn start_stages(&self, prepared: &mut ReadyPipeline) -> Result<Vec<Child>, SpawnError> {
        let mut children: Vec<Child> = Vec::with_capacity(prepared.stages.len());
        for stage in &mut prepared.stages {
            if let (Some(first), true) = (children.first(), self.how.timeout.is_some()) {
                stage.command.process_group(i32::try_from(first.id()).unwrap_or(0));
            }
            let child = match stage.command.spawn() {
                Err(error) if is_for_the_shell(&error) => {
                    self.stage_by_shell(stage, children.first()).spawn()
                }
                other => other,
            };
            match child {
                Ok(child) => children.push(child),
                Err(error) => {
                    for child in &mut children {
                        let _ = child.kill_and_reap();
                    }
                    return Err(error);
                }
            }
        }
        Ok(children)
    }

    /// Starts a lone program, if it can be executed, for a caller that waits by its number.
    pub(super) fn start_alone(&self, prepared: &mut ReadyPipeline) -> Option<Child> {
        let command = &mut prepared.stages.first_mut()?.command;
        command.spec.without_pidfd = true;
        command.spawn().ok()
    }

    /// Runs one program to its end.
    pub(super) fn run_lone(
        &self,
        prepared: &mut ReadyPipeline,
        ending: &mut Ending,
        ends: Ends,
    ) -> Result<ExitStatus, SpawnError> {
        let Some(stage) = prepared.stages.first_mut() else { return Ok(ExitStatus::default()) };
        let attempt = run_to_end(
            |wait_for| spawn(&stage.command.spec, with_limit(wait_for, ends), Defaults::Inherit),
            |child| wait_for_all(std::slice::from_mut(child), ending, ends),
        );
        match attempt {
            Err(error) if is_for_the_shell(&error) => {
                let mut child = self.stage_by_shell(stage, None).spawn()?;
                wait_for_all(std::slice::from_mut(&mut child), ending, ends)
            }
            other => other,
        }
    }

    /// Executes a lone program in this process, if the shell would. Returns only the error of a
    /// shell that could not take its place, or `None` if nothing was tried.
    pub(super) fn execute_lone(&self, prepared: &mut ReadyPipeline) -> Option<SpawnError> {
        let [stage] = prepared.stages.as_mut_slice() else { return None };
        if !stage.replaces_shell {
            return None;
        }
        let kept = KeptDescriptors::of(&stage.connections)?;
        let signals = [libc::SIGCHLD, libc::SIGQUIT].map(|signal| (signal, signal::disposition(signal)));
        let error = stage.command.exec();
        if !is_for_the_shell(&error) {
            return Some(error);
        }
        kept.restore();
        let mut shell = self.stage_by_shell(stage, None);
        // The failed exec may have set these two for the program.
        for (signal, before) in signals {
            let is_ignored = before == Ok(Disposition::Ignore) && !self.how.default_signals.has(signal);
            let signal = SigSet::EMPTY.with(signal);
            if is_ignored {
                shell.ignore_signals(signal)
            } else {
                shell.default_signals(signal)
            };
        }
        Some(shell.exec())
    }

    /// The shell in the place of a program that could not be executed after all. It says why, or
    /// runs the program as a script.
    fn stage_by_shell(&self, stage: &Stage, first: Option<&Child>) -> Command {
        let text = if stage.replaces_shell {
            self.how.line.get(stage.rest..).unwrap_or_default().to_vec()
        } else {
            // With `exit` after it, this shell waits as the line's own would have.
            [stage.span.of(&self.how.line), b"\nexit"].concat()
        };
        let mut command = self.continuation(&text);
        self.finish(&mut command, &stage.base, 0, 1);
        if let (Some(first), true) = (first, self.how.timeout.is_some()) {
            command.process_group(i32::try_from(first.id()).unwrap_or(0));
        }
        command
    }

    /// The shell for the rest of the line, from `from` on.
    pub(super) fn shell(&self, from: Span, base: &Base) -> Command {
        if !self.begun {
            return shell_command(self.how, base);
        }
        let mut command = self.continuation(self.how.line.get(from.start..).unwrap_or_default());
        self.finish(&mut command, &base.connections, 0, 1);
        if self.mask_emptied {
            command.signal_mask(SigSet::EMPTY);
        }
        command
    }

    /// A shell that continues where the script is.
    fn continuation(&self, text: &[u8]) -> Command {
        let mut command = Command::new("/bin/sh");
        // A part of a line may begin with `-`.
        command.arg0("sh").args(["-c", "--"]).arg(OsStr::from_bytes(text));
        let after_cd = self.directory.after_cd();
        let forgets_underscore = self.past_underscore && self.traits.kind() == ShellKind::Bash;
        let mut environment = Strings::default();
        for entry in self.environment.iter() {
            let is_replaced =
                after_cd.is_some() && (entry.starts_with(b"PWD=") || entry.starts_with(b"OLDPWD="));
            let is_forgotten = forgets_underscore && entry.starts_with(b"_=");
            if !is_replaced && !is_forgotten {
                environment.push(entry);
            }
        }
        if let Some((current, previous)) = after_cd {
            environment.push_parts(&[b"PWD=", current]);
            environment.push_parts(&[b"OLDPWD=", previous]);
        }
        command.spec.env.set_exact(environment);
        command
    }
}

/// The shell for the whole line.
pub(super) fn shell_command(how: &ShellLine, base: &Base) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg0("sh").arg("-c");
    // A line that begins like an option is still a line. POSIX 2024, and glibc from 2.38 on, put
    // `--` before every line in system().
    if matches!(how.line.first(), Some(b'-' | b'+')) {
        command.arg("--");
    }
    command.arg(OsStr::from_bytes(&how.line));
    command.spec.env = how.env.clone();
    how.dress(&mut command);
    wiring::connect(&mut command, &base.connections, how.inherit_descriptors);
    if let Some(dir) = &how.dir {
        command.current_dir::<&Path>(dir);
    }
    if how.timeout.is_some() {
        command.process_group(0);
    }
    command
}

/// Whether the shell would report this error on its standard error and run on.
fn is_for_the_shell(error: &SpawnError) -> bool {
    matches!(error.step(), Step::Exec | Step::Chdir | Step::Descriptors)
}
