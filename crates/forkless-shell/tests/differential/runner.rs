//! Runs a script as the crate's documentation asks of a runner, and falls back to the shell where
//! it says so.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::rc::Rc;

use forkless_shell::{
    Command, CommandKind, Connector, Directory, EnvSlot, EnvString, Environment, Pipeline, PreviousDirectory,
    RedirectionKind, Script, ShellKind, ShellTraits, resolve_directory,
};

use crate::process::{Outcome, Table, ignoring_sigquit, start, wait};

pub(crate) struct Runner<'a> {
    pub(crate) shell: &'a CStr,
    pub(crate) traits: &'a ShellTraits,
    pub(crate) line: &'a [u8],
    pub(crate) environment: &'a [CString],
    pub(crate) table: Table,
    /// How many times the shell had to take over.
    pub(crate) handed_over: usize,
    current: Vec<u8>,
    previous: Option<Vec<u8>>,
    previous_is_stale: bool,
    /// A command that is no pipeline has run: bash exports no inherited `_` any more.
    past_underscore: bool,
}

/// The environment as the analysis wants it.
pub(crate) struct Strings<'a>(pub(crate) &'a [CString]);

impl Environment for Strings<'_> {
    fn entry(&self, index: usize) -> Option<&[u8]> {
        self.0.get(index).map(|entry| entry.to_bytes())
    }
}

/// A program ready to start.
struct Stage {
    path: CString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    table: Table,
    base: Table,
    source: CString,
    ignores_sigquit: bool,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(
        shell: &'a CStr,
        traits: &'a ShellTraits,
        line: &'a [u8],
        environment: &'a [CString],
        table: Table,
    ) -> Self {
        let strings = Strings(environment);
        let here = std::fs::metadata(".").expect("the current directory");
        let current = strings
            .variable(b"PWD")
            .filter(|path| path.starts_with(b"/"))
            .filter(|path| {
                std::fs::metadata(OsStr::from_bytes(path))
                    .is_ok_and(|there| (there.dev(), there.ino()) == (here.dev(), here.ino()))
            })
            .map_or_else(
                || std::env::current_dir().expect("getcwd").into_os_string().into_encoded_bytes(),
                <[u8]>::to_vec,
            );
        let previous_is_stale = strings.variable(b"OLDPWD").is_some_and(|path| {
            !std::fs::metadata(OsStr::from_bytes(path)).is_ok_and(|there| there.is_dir())
        });
        Self {
            shell,
            traits,
            line,
            environment,
            table,
            handed_over: 0,
            current,
            previous: None,
            previous_is_stale,
            past_underscore: false,
        }
    }

    pub(crate) fn run(&mut self, script: &Script<'_>) -> Outcome {
        let mut status = 0;
        for pipeline in script.pipelines() {
            let is_due = match pipeline.connector() {
                Connector::Always => true,
                Connector::And => status == 0,
                Connector::Or => status != 0,
            };
            if !is_due {
                continue;
            }
            let first = pipeline.stages().next().expect("a stage");
            status = match first.kind() {
                CommandKind::Status(status) => status,
                CommandKind::Exit(code) => return Outcome::Code(code.unwrap_or(status)),
                CommandKind::ChangeDirectory => match self.change_directory(&first) {
                    Some(()) => 0,
                    None => return self.hand_over(&pipeline),
                },
                CommandKind::External | CommandKind::Exec => {
                    let Some(stages) = self.prepare(&pipeline) else { return self.hand_over(&pipeline) };
                    let outcome = self.run_stages(stages, first.replaces_shell());
                    if first.replaces_shell() {
                        return outcome;
                    }
                    match outcome {
                        Outcome::Code(code) => code,
                        Outcome::Signal(signal, _) => 128 + signal,
                    }
                }
            };
            self.past_underscore |= pipeline.stage_count() == 1;
            if pipeline.is_negated() {
                status = u8::from(status == 0);
            }
        }
        Outcome::Code(status)
    }

    fn change_directory(&mut self, command: &Command<'_>) -> Option<()> {
        let mut buf = [0; 4200];
        let to = resolve_directory(&self.current, command.operand()?.to_bytes(), &mut buf).ok()?;
        std::env::set_current_dir(OsStr::from_bytes(to.to_bytes())).ok()?;
        self.previous = Some(std::mem::replace(&mut self.current, to.to_bytes().to_vec()));
        Some(())
    }

    /// Everything that can fail before anything has happened.
    fn prepare(&self, pipeline: &Pipeline<'_>) -> Option<Vec<Stage>> {
        let mut stages = Vec::new();
        let mut input = None;
        let count = pipeline.stage_count();
        for (index, command) in pipeline.stages().enumerate() {
            let mut base = self.table.clone();
            if let Some(input) = input.take() {
                base[0] = Some(input);
            }
            if index + 1 < count {
                let (read, write) = std::io::pipe().expect("pipe");
                base[1] = Some(Rc::new(File::from(std::os::fd::OwnedFd::from(write))));
                input = Some(Rc::new(File::from(std::os::fd::OwnedFd::from(read))));
            }
            let mut table = base.clone();
            redirect(&command, &mut table)?;
            let words: Vec<CString> = command.words().map(CStr::to_owned).collect();
            let path = self.find(words.first()?)?;
            let envp = self.environment_of(&command, path.to_bytes())?;
            let source = if command.replaces_shell() {
                self.line[pipeline.span().start..].to_vec()
            } else {
                // So that the shell that takes over waits as the line's own would have.
                [command.span().of(self.line), b"\nexit"].concat()
            };
            let source = CString::new(source).ok()?;
            let ignores_sigquit = self.traits.ignores_sigquit(&command);
            stages.push(Stage { path, argv: words, envp, table, base, source, ignores_sigquit });
        }
        Some(stages)
    }

    fn run_stages(&mut self, stages: Vec<Stage>, replaces_shell: bool) -> Outcome {
        let is_lone = stages.len() == 1;
        let messages = if is_lone { stages[0].table[2].clone() } else { self.table[2].clone() };
        let mut pids = Vec::new();
        for stage in stages {
            let started = if stage.ignores_sigquit {
                ignoring_sigquit(|| start(&stage.path, &stage.argv, &stage.envp, &stage.table))
            } else {
                start(&stage.path, &stage.argv, &stage.envp, &stage.table)
            };
            let pid = started.unwrap_or_else(|_| {
                self.handed_over += 1;
                self.start_shell(&stage.source, &stage.base)
            });
            pids.push(pid);
            // The stage's descriptors close here: no later program may hold the pipe open.
        }
        let mut outcome = Outcome::Code(0);
        for pid in pids {
            outcome = wait(pid);
            if let Outcome::Signal(signal, core) = outcome
                && !replaces_shell
                && let (Some(message), Some(to)) = (self.traits.signal_message(signal, core), &messages)
            {
                let _ = (&**to).write_all(message.to_string().as_bytes());
            }
        }
        outcome
    }

    /// Leaves the rest of the line, from `pipeline` on, to the shell.
    fn hand_over(&mut self, pipeline: &Pipeline<'_>) -> Outcome {
        self.handed_over += 1;
        let rest = CString::new(&self.line[pipeline.span().start..]).expect("no NUL");
        let pid = self.start_shell(&rest, &self.table.clone());
        wait(pid)
    }

    /// The shell continues where the script stopped: in its directory, with the PWD and OLDPWD that
    /// its `cd`s set.
    fn start_shell(&self, text: &CStr, table: &Table) -> nix::unistd::Pid {
        let mut environment = self.environment.to_vec();
        if let Some(previous) = &self.previous {
            for (name, value) in [("PWD=", &self.current), ("OLDPWD=", previous)] {
                environment.retain(|entry| !entry.to_bytes().starts_with(name.as_bytes()));
                environment.push(CString::new([name.as_bytes(), value].concat()).expect("no NUL"));
            }
        }
        if self.past_underscore && self.traits.kind() == ShellKind::Bash {
            environment.retain(|entry| !entry.to_bytes().starts_with(b"_="));
        }
        let argv = [c"sh".to_owned(), c"-c".to_owned(), c"--".to_owned(), text.to_owned()];
        start(self.shell, &argv, &environment, table).expect("start the shell")
    }

    fn environment_of(&self, command: &Command<'_>, program: &[u8]) -> Option<Vec<CString>> {
        let directory = Directory {
            current: &self.current,
            previous: match &self.previous {
                Some(path) => PreviousDirectory::Left(path),
                None if self.previous_is_stale => PreviousDirectory::Stale,
                None => PreviousDirectory::Inherited,
            },
        };
        let strings = Strings(self.environment);
        let previous = self.previous.as_ref().map_or(0, Vec::len);
        let mut buf = vec![0; Command::environment_bytes(self.current.len(), previous, program.len())];
        let mut slots = vec![EnvSlot::EMPTY; self.environment.len() + command.assignments().count() + 4];
        let count =
            self.traits.environment(&strings, command, &directory, program, &mut buf, &mut slots).ok()?;
        let text = |slot: &EnvSlot<'_>| match slot.string() {
            EnvString::Inherited(index) => self.environment[index].clone(),
            EnvString::Own(text) => text.to_owned(),
        };
        Some(slots[..count].iter().map(text).collect())
    }

    fn find(&self, name: &CStr) -> Option<CString> {
        if name.to_bytes().contains(&b'/') {
            // execve tells whether a file can be run. A directory or a missing file is the shell's.
            let metadata = std::fs::metadata(OsStr::from_bytes(name.to_bytes())).ok()?;
            return (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
                .then(|| name.to_owned());
        }
        let path = Strings(self.environment).variable(b"PATH")?.to_vec();
        path.split(|&byte| byte == b':').find_map(|directory| {
            let candidate = [directory, b"/", name.to_bytes()].concat();
            let metadata = std::fs::metadata(OsStr::from_bytes(&candidate)).ok()?;
            let runs = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
            runs.then(|| CString::new(candidate).expect("no NUL"))
        })
    }
}

/// Applies a command's redirections in order; `None` if one fails.
fn redirect(command: &Command<'_>, table: &mut Table) -> Option<()> {
    for redirection in command.redirections() {
        let mut options = OpenOptions::new();
        let path = match redirection.kind {
            RedirectionKind::Read(path) => (options.read(true), path).1,
            RedirectionKind::Write(path) => (options.write(true).create(true).truncate(true), path).1,
            RedirectionKind::Append(path) => (options.append(true).create(true), path).1,
            RedirectionKind::ReadWrite(path) => (options.read(true).write(true).create(true), path).1,
            RedirectionKind::Duplicate(from) => {
                table[usize::from(redirection.descriptor)] = Some(table[usize::from(from)].clone()?);
                continue;
            }
            RedirectionKind::Close => {
                table[usize::from(redirection.descriptor)] = None;
                continue;
            }
        };
        let path = OsStr::from_bytes(path.to_bytes());
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return None;
        }
        table[usize::from(redirection.descriptor)] = Some(Rc::new(options.open(path).ok()?));
    }
    Some(())
}
