//! Carrying out a script: what runs next, starting it, and leaving the rest to the shell where that is the rule.

use super::ShellLine;
use super::child::{Ending, ShellChild, Signals};
use super::place::Place;
use super::traits::shell_traits;
use super::wiring::{self, Base, Slot, Table};
use crate::child::Child;
use crate::command::{Command, Defaults, run_to_end, start_planned};
use crate::error::{SpawnError, Step, WaitError};
use crate::own;
use crate::start::Until;
use crate::stdio;
use crate::strings::Strings;
use forkless_shell::{
    CommandKind, Connector, EnvSlot, EnvString, Environment, Pipeline, Pipelines, ShellKind, ShellTraits,
    Span, analyze,
};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{ids, namespace, process};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

/// What a script wants done next.
enum Due<'s> {
    /// These programs.
    Programs(Pipeline<'s>),
    /// From here on it is the shell's.
    HandOver(Pipeline<'s>),
    /// Nothing: this is the line's status.
    Nothing(u8),
}

/// A script on its way.
struct Walk<'s> {
    how: &'s ShellLine,
    traits: ShellTraits,
    environment: &'s Strings,
    pipelines: Pipelines<'s>,
    place: Place,
    status: u8,
    /// This shell has emptied its signal mask; see [`Walk::mask_is_emptied`].
    mask_emptied: bool,
    /// A program has run, or a directory was changed: the whole line can no longer be given to the shell.
    begun: bool,
    /// A command that is no pipeline has run: bash exports no inherited `_` any more.
    past_underscore: bool,
}

/// One program of a pipeline, ready to start.
struct Stage {
    command: Command,
    table: Table,
    /// Its descriptors before its own redirections.
    base: Table,
    span: Span,
    /// Where its pipeline begins in the line.
    rest: usize,
    replaces_shell: bool,
}

/// The stages of a pipeline, and the parent's copies of what they are connected to.
struct Prepared {
    stages: Vec<Stage>,
    files: Vec<OwnedFd>,
}

/// The direct plan for a line, if there is one.
fn with_walk<T>(
    how: &ShellLine,
    run: impl FnOnce(Walk<'_>) -> Result<T, SpawnError>,
    whole: impl FnOnce() -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    if how.always_shell || how.env.with_nul().is_some() || !may_be_direct() {
        return whole();
    }
    let traits = shell_traits();
    let environment = how.env.strings();
    // What a line of nothing but `a;` takes; a script that does not fit is left to the shell.
    let mut buf = vec![0; (1024 + 24 * how.line.len()).min(1 << 20)];
    let Ok(script) = analyze(&how.line, &environment, &traits, &mut buf) else { return whole() };
    if !script.single().is_some_and(|command| command.replaces_shell()) && outlives_its_group(how) {
        return whole();
    }
    let Some(place) = Place::new(how.dir.as_deref(), &environment) else { return whole() };
    run(Walk {
        how,
        traits,
        environment: &environment,
        pipelines: script.pipelines(),
        place,
        status: 0,
        mask_emptied: false,
        begun: false,
        past_underscore: false,
    })
}

/// Whether there would be a shell, acting as this thread does, and in the same place.
fn may_be_direct() -> bool {
    ids::are_a_shells(ids::bounding_capabilities)
        && children_stay()
        && process::may_execute(c"/bin/sh".into()).is_ok()
}

/// Whether children are in this thread's own PID namespace. The first child of a new one is its init and ends it: that child is to be the
/// line's shell, and signals at their default do not end it.
pub(super) fn children_stay() -> bool {
    let known = &own::state().pid_namespace;
    let own = known.get().copied().or_else(|| {
        let own = namespace::of_thread().ok()?;
        let _ = known.set(own);
        Some(own)
    });
    own.is_some_and(|own| namespace::children_stay_in(&own))
}

/// Whether this process may survive a signal that ends its group, and with it a shell that waits for its programs. Nothing says
/// afterwards whether a program's death was one to itself alone; without a handler for such a signal it was, for this process lives.
/// The keyboard's two are taken for the group's in any case.
fn outlives_its_group(how: &ShellLine) -> bool {
    // In a group of its own.
    if how.timeout.is_some() {
        return false;
    }
    let sent = signal::SENT.without(libc::SIGINT).without(libc::SIGQUIT);
    how.signal_mask.or_else(|| signal::mask().ok()).is_none_or(|mask| mask.and(sent) != SigSet::EMPTY)
        || signal::any_handled(sent)
}

/// Runs all of it in the calling thread.
pub(super) fn to_the_end(
    how: &ShellLine,
    base: &Base,
    deadline: Option<Instant>,
) -> Result<ExitStatus, SpawnError> {
    with_walk(
        how,
        |mut walk| {
            loop {
                match walk.advance() {
                    Due::Nothing(status) => return Ok(ExitStatus::from_raw(i32::from(status) << 8)),
                    Due::HandOver(pipeline) => {
                        return await_shell(walk.shell(pipeline.span(), base), deadline);
                    }
                    Due::Programs(pipeline) => {
                        let Some(mut prepared) = walk.prepare(&pipeline, base) else {
                            return await_shell(walk.shell(pipeline.span(), base), deadline);
                        };
                        let mut ending = walk.ending(&prepared, base);
                        // Another thread may close it meanwhile.
                        if ending.stderr == Slot::Inherit {
                            ending.keep_stderr();
                        }
                        let status = if prepared.stages.len() == 1 {
                            walk.run_lone(&mut prepared, &mut ending, deadline)?
                        } else {
                            let mut children = walk.start_stages(&mut prepared)?;
                            drop(prepared.files);
                            wait_for_all(&mut children, &mut ending, deadline)?
                        };
                        // A signal ends the shell, too, or has become 128 + n.
                        if ending.replaces_shell || status.signal().is_some() {
                            return Ok(status);
                        }
                        walk.record(&pipeline, status);
                    }
                }
            }
        },
        || await_shell(shell_command(how, base), deadline),
    )
}

/// Starts the line, by itself if one pipeline is all there is to start.
///
/// `waits_first`: the caller waits for the programs before it counts on an end of the line's output. A shell that says of a program
/// that it was killed keeps standard error open until then, and so does what is started here; whoever reads to the end first
/// would never see it, so such a line gets a shell.
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
            let children = walk.start_stages(&mut prepared)?;
            ending.keep_stderr();
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

/// Whether more than one pipeline may have to be started, so that somebody has to wait in between.
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

impl<'s> Walk<'s> {
    /// Goes through what needs no program, up to what does.
    fn advance(&mut self) -> Due<'s> {
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
                    if !self.place.change(operand) {
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
    fn record(&mut self, pipeline: &Pipeline<'_>, status: ExitStatus) {
        self.begun = true;
        self.mask_emptied = self.mask_is_emptied(pipeline);
        self.status = u8::try_from(status.code().unwrap_or(1)).unwrap_or(1);
        if pipeline.is_negated() {
            self.status = u8::from(self.status == 0);
        }
    }

    /// Whether the programs of a pipeline start with no signal blocked, whatever the line was started with.
    ///
    /// dash starts a lone command by vfork since 0.5.11, for which it blocks all signals, and lifts the block by emptying the mask, its
    /// own for good (`vforkexec`, jobs.c). What it forks, as the stages of a pipeline, or becomes by `exec`, has its own mask.
    fn mask_is_emptied(&self, pipeline: &Pipeline<'_>) -> bool {
        let mut stages = pipeline.stages();
        let lone = pipeline.stage_count() == 1;
        let by_vfork = lone && stages.next().is_some_and(|stage| stage.kind() == CommandKind::External);
        self.mask_emptied || (by_vfork && self.traits.kind() == ShellKind::Dash)
    }

    /// Everything that may fail while nothing has happened yet.
    fn prepare(&self, pipeline: &Pipeline<'s>, base: &Base) -> Option<Prepared> {
        let mut files = Vec::new();
        let mut stages = Vec::with_capacity(pipeline.stage_count());
        let mut input = None;
        for (index, stage) in pipeline.stages().enumerate() {
            let mut own = base.table;
            if let Some(input) = input.take() {
                own[0] = Slot::Raw(input);
            }
            if index + 1 < pipeline.stage_count() {
                let (read, write) = stdio::pipe().ok()?;
                own[1] = Slot::Raw(write.as_raw_fd());
                input = Some(read.as_raw_fd());
                files.extend([read, write]);
            }
            let mut table = own;
            for redirection in stage.redirections() {
                let inherits = self.how.inherit_descriptors;
                wiring::redirect(redirection, &mut table, &mut files, &self.place, inherits)?;
            }
            let mut words = stage.words();
            let name = words.next()?;
            let program = self.find(name)?;
            let mut command = Command::new(OsStr::from_bytes(&program));
            command.arg0(OsStr::from_bytes(name.to_bytes()));
            command.args(words.map(|word| OsStr::from_bytes(word.to_bytes())));
            command.scripts_without_interpreter(false);
            command.env.set_exact(self.environment_of(&stage, &program)?);
            self.finish(&mut command, &table, index, pipeline.stage_count());
            if self.mask_is_emptied(pipeline) {
                command.signal_mask(SigSet::EMPTY);
            }
            if self.traits.ignores_sigquit(&stage) {
                command.ignore_signals(SigSet::EMPTY.with(libc::SIGQUIT));
            }
            stages.push(Stage {
                command,
                table,
                base: own,
                span: stage.span(),
                rest: pipeline.span().start,
                replaces_shell: stage.replaces_shell(),
            });
        }
        Some(Prepared { stages, files })
    }

    /// Descriptors, directory and the like of a process of the line.
    fn finish(&self, command: &mut Command, table: &Table, index: usize, count: usize) {
        self.how.dress(command);
        wiring::connect(command, table, self.how.inherit_descriptors);
        if let Some(dir) = self.place.dir() {
            command.current_dir(dir);
        }
        // The later stages join when the first one's number is known.
        if self.how.timeout.is_some() && index == 0 && count > 0 {
            command.process_group(0);
        }
    }

    fn environment_of(&self, command: &forkless_shell::Command<'_>, program: &[u8]) -> Option<Strings> {
        let (current, previous) = self.place.lengths();
        let mut text = vec![0; forkless_shell::Command::environment_bytes(current, previous, program.len())];
        let mut slots =
            vec![EnvSlot::EMPTY; self.environment.iter().len() + command.assignments().count() + 4];
        let directory = self.place.directory();
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

    /// The file a command name means, if there is one that can be executed.
    fn find(&self, name: &CStr) -> Option<Vec<u8>> {
        let runs = |path: &[u8]| {
            let there = std::fs::metadata(self.place.resolve(path));
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

    fn ending(&self, prepared: &Prepared, base: &Base) -> Ending {
        let lone = if let [only] = prepared.stages.as_slice() { Some(only) } else { None };
        Ending {
            traits: self.traits,
            replaces_shell: lone.is_some_and(|stage| stage.replaces_shell),
            // While it waits for a lone command a shell has that command's descriptors.
            stderr: lone.map_or(base.table[2], |stage| stage.table[2]),
            kept: None,
            signals: Signals::of(self.how),
            died: None,
        }
    }

    /// Starts every stage; those started are put down again if a process cannot be created.
    fn start_stages(&self, prepared: &mut Prepared) -> Result<Vec<Child>, SpawnError> {
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
                        let _ = child.put_down();
                    }
                    return Err(error);
                }
            }
        }
        Ok(children)
    }

    /// Runs one program to its end.
    fn run_lone(
        &self,
        prepared: &mut Prepared,
        ending: &mut Ending,
        deadline: Option<Instant>,
    ) -> Result<ExitStatus, SpawnError> {
        let Some(stage) = prepared.stages.first_mut() else { return Ok(ExitStatus::default()) };
        let attempt = run_to_end(
            |until| start_planned(&stage.command, with_limit(until, deadline), Defaults::Inherit),
            |child| wait_for_all(std::slice::from_mut(child), ending, deadline),
        );
        match attempt {
            Err(error) if is_for_the_shell(&error) => {
                let mut child = self.stage_by_shell(stage, None).spawn()?;
                wait_for_all(std::slice::from_mut(&mut child), ending, deadline)
            }
            other => other,
        }
    }

    /// The shell in the place of a program that could not be executed after all: it says why, or runs it as a script.
    fn stage_by_shell(&self, stage: &Stage, first: Option<&Child>) -> Command {
        let text = if stage.replaces_shell {
            self.how.line.get(stage.rest..).unwrap_or_default().to_vec()
        } else {
            // So that this shell waits as the line's own would have.
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
    fn shell(&self, from: Span, base: &Base) -> Command {
        if !self.begun {
            return shell_command(self.how, base);
        }
        let mut command = self.continuation(self.how.line.get(from.start..).unwrap_or_default());
        self.finish(&mut command, &base.table, 0, 1);
        if self.mask_emptied {
            command.signal_mask(SigSet::EMPTY);
        }
        command
    }

    /// A shell that goes on where the script is.
    fn continuation(&self, text: &[u8]) -> Command {
        let mut command = Command::new("/bin/sh");
        // A part of a line may begin with `-`.
        command.arg0("sh").args(["-c", "--"]).arg(OsStr::from_bytes(text));
        let after_cd = self.place.after_cd();
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
        command.env.set_exact(environment);
        command
    }
}

/// The shell for all of it.
fn shell_command(how: &ShellLine, base: &Base) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg0("sh").arg("-c");
    // A line that begins like an option is none: POSIX 2024 and glibc from 2.38 on have this in system(), for every line.
    if matches!(how.line.first(), Some(b'-' | b'+')) {
        command.arg("--");
    }
    command.arg(OsStr::from_bytes(&how.line));
    command.env = how.env.clone();
    how.dress(&mut command);
    wiring::connect(&mut command, &base.table, how.inherit_descriptors);
    if let Some(dir) = &how.dir {
        command.current_dir::<&Path>(dir);
    }
    if how.timeout.is_some() {
        command.process_group(0);
    }
    command
}

fn await_shell(command: Command, deadline: Option<Instant>) -> Result<ExitStatus, SpawnError> {
    run_to_end(
        |until| start_planned(&command, with_limit(until, deadline), Defaults::Inherit),
        |child| wait_or_kill(std::slice::from_mut(child), deadline, |_| {}),
    )
}

/// A wait with a time limit needs the handle: without one it looks again every so many milliseconds.
fn with_limit(until: Until, deadline: Option<Instant>) -> Until {
    if deadline.is_some() { Until::Exec } else { until }
}

/// Waits for all stages; the last one's status as the shell makes it.
fn wait_for_all(
    children: &mut [Child],
    ending: &mut Ending,
    deadline: Option<Instant>,
) -> Result<ExitStatus, SpawnError> {
    let status = wait_or_kill(children, deadline, |status| ending.complain(status))?;
    Ok(ending.translate(status))
}

/// Waits for all; kills the group that the first leads when time is over.
fn wait_or_kill(
    children: &mut [Child],
    deadline: Option<Instant>,
    mut each: impl FnMut(ExitStatus),
) -> Result<ExitStatus, SpawnError> {
    let mut last = Ok(ExitStatus::default());
    for index in 0..children.len() {
        last = children[index].wait_until(deadline);
        if matches!(last, Err(WaitError::Deadline)) {
            return Err(put_down(children).into());
        }
        if let Ok(status) = &last {
            each(*status);
        }
    }
    Ok(last?)
}

/// Kills every process of a line whose time is over, and takes their statuses. What the wait for them says: that, or that one may not
/// be killed.
pub(super) fn put_down(children: &mut [Child]) -> WaitError {
    if let Some(first) = children.first_mut() {
        let _ = first.kill_group();
    }
    let mut said = WaitError::Deadline;
    for child in children.iter_mut() {
        if let Err(refused @ WaitError::Os(_)) = child.put_down() {
            said = refused;
        }
    }
    said
}

/// An error the shell would report on its own standard error, rather than fail to run.
fn is_for_the_shell(error: &SpawnError) -> bool {
    matches!(error.step(), Step::Exec | Step::Chdir | Step::Descriptors)
}
