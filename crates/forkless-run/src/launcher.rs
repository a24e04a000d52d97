//! Starting a program with the preloaded library.
//!
//! A [`Launcher`] finds the program. [`Launcher::examine`] says whether the library can be in it.
//! [`Examined::prepare`] makes its environment. A [`PreparedProgram`] is executed in this process,
//! or becomes a [`Command`](std::process::Command).

#[cfg(target_arch = "x86_64")]
mod call_names;
mod collector;
mod complaint;
mod environment;
mod exec;
mod filters;
mod huge_pages;
mod library;
mod machine;
mod preloading;
mod record_file;
mod report;
mod settings;
mod shell;
mod target;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{
    Filters, ForkMode, HugePages, OPTIONS_VARIABLE, Options, RecordPath, SWITCH_FILE, SWITCH_VARIABLE, is_off,
};

pub use complaint::complain;
pub use environment::EnvironmentEntries;
pub use filters::{library_calls, report_calls};
pub use huge_pages::HugePagesWarning;
pub use library::{LIBRARY_PATH_VARIABLE, LibraryError, find_library};
pub use machine::{SPECULATES, loaders, own_memory, procmap_query, user_dispatch};
pub use preloading::{PreloadList, Preloading, preloadings};
pub use record_file::RecordFile;
pub use report::{Destination, Report, SiteReport};
pub use settings::Settings;
pub use target::{ProgramError, preloadable_program};

use filters::{Killers, Purposes, Tried};
use shell::ShellKnowledge;
use target::Target;

/// A program that was found, and how it is to be run.
#[derive(Debug)]
pub struct Launcher {
    program: PathBuf,
    argv: Vec<OsString>,
    settings: Settings,
    environment: EnvironmentEntries,
    preloading: Option<PathBuf>,
    reports: bool,
}

impl Launcher {
    /// Looks the first word of `argv` up as `execvp(3)` does, with the `PATH` of `environment`.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) where no file has the name, or `argv` is empty; else
    /// why it cannot be executed.
    pub fn new(
        argv: Vec<OsString>,
        settings: Settings,
        environment: EnvironmentEntries,
    ) -> io::Result<Launcher> {
        let name = argv.first().map(OsString::as_os_str).unwrap_or_default();
        let program = target::find(name, &environment)?;
        Ok(Launcher { program, argv, settings, environment, preloading: None, reports: false })
    }

    /// Takes this library, and not the one that [`find_library`] finds.
    #[must_use]
    pub fn preloading(self, path: PathBuf) -> Launcher {
        Launcher { preloading: Some(path), ..self }
    }

    /// Has [`Launcher::examine`] find out whether a report can be written at the program's end
    /// ([`Examined::can_report`]).
    #[must_use]
    pub fn with_report(self) -> Launcher {
        Launcher { reports: true, ..self }
    }

    /// The file that will be executed.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The switch that turns the library off, if one does: it is in the program then, and leaves
    /// everything as it is.
    pub fn switched_off(&self) -> Option<Switch> {
        Switch::turned(self.environment.get(SWITCH_VARIABLE))
    }

    /// Finds out whether the library can be in the program. `/bin/sh` is asked what it is
    /// meanwhile, where lines may run without it.
    ///
    /// # Errors
    /// Why the library cannot be in the program. [`Launcher::plain`] runs it all the same.
    pub fn examine(&self) -> Result<Examined<'_>, Unloadable> {
        let off = self.switched_off().is_some();
        let filters =
            Tried::look(Purposes { preload: !off, lines: self.settings.skip_shells, report: self.reports });
        let shell = match self.settings {
            _ if off || !filters.allow_lines() => ShellKnowledge::None,
            Settings { skip_shells: false, .. } => ShellKnowledge::None,
            // A single program, which may never come to need the answer. A tree of them would ask
            // again and again.
            Settings { children: false, .. } => ShellKnowledge::LeftToTheLibrary,
            // First, so that it answers while the rest is prepared. An error drops it, which waits
            // for it: the asked shell is never a child of the program.
            Settings { children: true, .. } => ShellKnowledge::ask(),
        };
        let library = self.preloading.clone().map_or_else(find_library, library::preloadable);
        let library = library.map_err(Unloadable::Library)?;
        let target = target::examine(&self.program).map_err(Unloadable::Program)?;
        Ok(Examined { launcher: self, preloaded: library, target, shell, filters })
    }

    /// The program as it is, without the library.
    pub fn plain(self) -> PreparedProgram {
        PreparedProgram {
            program: self.program,
            argv: self.argv,
            environment: self.environment,
            options: None,
            record: None,
            warnings: Vec::new(),
            enables_huge_pages: false,
        }
    }
}

/// The switches that turn the library off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// [`SWITCH_VARIABLE`], in the program's environment.
    Variable,
    /// [`SWITCH_FILE`].
    File,
}

impl Switch {
    /// The switch that turns the library off, if one does, where [`SWITCH_VARIABLE`] has this
    /// value.
    #[must_use]
    pub fn turned(variable: Option<&[u8]>) -> Option<Switch> {
        if variable.is_some_and(is_off) {
            return Some(Switch::Variable);
        }
        switch_file_exists().then_some(Switch::File)
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Switch::Variable => write!(f, "{SWITCH_VARIABLE} is off in the environment"),
            Switch::File => write!(f, "{} exists", SWITCH_FILE.to_string_lossy()),
        }
    }
}

/// Whether [`SWITCH_FILE`] exists, even as a link that leads nowhere.
#[must_use]
pub fn switch_file_exists() -> bool {
    Path::new(OsStr::from_bytes(SWITCH_FILE.to_bytes())).symlink_metadata().is_ok()
}

/// Why the library cannot be in a program.
#[derive(Debug)]
pub enum Unloadable {
    /// There is no library that could be preloaded.
    Library(LibraryError),
    /// The program's loader will not preload it.
    Program(ProgramError),
}

impl fmt::Display for Unloadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unloadable::Library(error) => error.fmt(f),
            Unloadable::Program(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unloadable {}

/// A program that the library can be in.
pub struct Examined<'l> {
    launcher: &'l Launcher,
    preloaded: PathBuf,
    target: Target,
    shell: ShellKnowledge,
    filters: Tried,
}

impl Examined<'_> {
    /// Whether a report can be written at the program's end: asked before its record is made, of
    /// which nothing may stay. For a launcher [with a report](Launcher::with_report).
    ///
    /// # Errors
    /// [`LaunchError::Collector`], where its process may not be made;
    /// [`LaunchError::FilterKills`], where a seccomp filter kills for a call of the report's, or
    /// may.
    pub fn can_report(&self) -> Result<(), LaunchError> {
        collector::can_start().map_err(LaunchError::Collector)?;
        let Killers { names, others } = &self.filters.kill_report_for;
        if self.filters.untried || !self.filters.kill_report_for.are_none() {
            return Err(LaunchError::FilterKills { calls: names.clone(), others: *others });
        }
        Ok(())
    }

    /// Makes the environment: what the library reads, and what makes the loader map it. Waits for
    /// the answer of the shell.
    ///
    /// Where the environment comes from a program that is run under the library, this program
    /// counts into the same record.
    pub fn prepare(self) -> PreparedProgram {
        let Launcher { program, argv, settings, environment, .. } = self.launcher;
        let mut environment = environment.clone();
        // malloc would make calls, too.
        let leaves_memory = self.filters.known == Filters::MayKill;
        let huge = if leaves_memory { HugePages::Off } else { settings.huge_pages };
        let huge = huge_pages::decide_here(huge, &environment);
        let outer = environment.get(OPTIONS_VARIABLE).map(<[u8]>::to_vec).unwrap_or_default();
        let outer = Options::parse(&outer);
        let record = outer.record.map(|path| path.bytes().to_vec());
        let options = Options {
            fork: settings.fork,
            minimum: settings.minimum,
            limit_ms: settings.limit_ms,
            learn: settings.learn,
            shell: self.shell.for_the_library(),
            filters: self.filters.known,
            fast_context: settings.fast_context,
            huge_pages: huge.kind,
            quiet: settings.quiet,
            children: settings.children,
            root: outer.root,
            root_namespace: outer.root_namespace,
            record: None,
            makes_record: false,
        };
        // Its position; the value comes with `PreparedProgram::environment`.
        environment.set(OPTIONS_VARIABLE, b"");
        for (name, value) in &huge.variables {
            environment.set(name, value.as_bytes());
        }
        if settings.time_zone {
            environment::set_time_zone(&mut environment);
        }
        environment::preload(&mut environment, &self.preloaded);
        if self.target.sanitized {
            environment::allow_another_library_first(&mut environment);
        }
        let mut warnings = Vec::new();
        // The default is no request: a caller who asks for the usual gets what there is, without a
        // line at every start.
        if settings.fork == ForkMode::Speculate && !SPECULATES {
            warnings.push(Warning::NeverSpeculates);
        }
        let Settings { fork, skip_shells, huge_pages, .. } = *settings;
        let needs_calls = fork != ForkMode::Off || skip_shells || huge_pages != HugePages::Off;
        // The outer launcher has said it, unless it needed no calls.
        let was_said = outer.filters == Filters::MayKill && !outer.quiet && outer.fork != ForkMode::Off;
        if needs_calls && !was_said {
            warnings.extend(self.filters.warning());
        }
        warnings.extend(huge.warnings.into_iter().map(Warning::HugePages));
        PreparedProgram {
            program: program.clone(),
            argv: argv.clone(),
            environment,
            options: Some(options),
            record,
            warnings,
            enables_huge_pages: huge.enable,
        }
    }
}

/// Something that was asked for and cannot be had here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The library leaves forks as they are on this processor.
    NeverSpeculates,
    /// Huge pages are not what was asked for.
    HugePages(HugePagesWarning),
    /// A seccomp filter kills for some of the library's calls, which therefore makes none of its
    /// own. Only lines go to the shell where only they need these calls.
    FilterKills {
        /// The calls, the first eight.
        calls: Vec<&'static str>,
        /// Whether there may be others.
        others: bool,
        /// Whether only lines need them.
        only_lines: bool,
    },
    /// A seccomp filter is in force, and no child could find out what it does. The library makes no
    /// calls of its own.
    FilterUntried,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::NeverSpeculates => {
                f.write_str("speculative fork exists on x86-64 only; forks are left as they are")
            }
            Warning::HugePages(warning) => warning.fmt(f),
            Warning::FilterUntried => {
                f.write_str("a filter could not be tried: forks, lines and memory are left alone")
            }
            Warning::FilterKills { calls, others, only_lines } => {
                let what = if *only_lines {
                    "lines go to the shell"
                } else {
                    "forks, lines and memory are left alone"
                };
                let named = named_calls(calls, *others);
                let calls = calls.join(" ");
                write!(
                    f,
                    "a seccomp filter kills for {named}: {what}; have it allow these calls or refuse them; in a \
                     unit of systemd: SystemCallFilter={calls}"
                )
            }
        }
    }
}

fn named_calls(calls: &[&str], others: bool) -> String {
    calls.join(" ") + if others { " and others" } else { "" }
}

/// What the seccomp filters that are in force here do to the library's system calls, found out by
/// trying: `None` where they kill for none.
pub fn filter_warning() -> Option<Warning> {
    Tried::look(Purposes { preload: true, lines: true, report: false }).warning()
}

/// Why a program that could be prepared was not started.
#[derive(Debug)]
pub enum LaunchError {
    /// The record could not be made.
    Record {
        /// The file, or what its random name is read from.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The process that waits to write the report could not be started.
    Collector(io::Error),
    /// A seccomp filter kills for calls that a report needs, or it could not be found out whether
    /// it does.
    FilterKills {
        /// The calls, as far as they are known.
        calls: Vec<&'static str>,
        /// Whether there may be others.
        others: bool,
    },
}

impl LaunchError {
    /// Whether a record finds no room: past the limit of file sizes, on a full disk, or past a
    /// quota. The program can run without one.
    #[must_use]
    pub fn is_without_room(&self) -> bool {
        let LaunchError::Record { error, .. } = self else { return false };
        matches!(error.raw_os_error(), Some(libc::EFBIG | libc::ENOSPC | libc::EDQUOT))
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::Record { path, .. } => write!(f, "cannot make the record {}", path.display()),
            LaunchError::Collector(_) => f.write_str("the report's collector could not be started"),
            LaunchError::FilterKills { calls, .. } if calls.is_empty() => {
                f.write_str("no report can be written: a seccomp filter may kill for its system calls")
            }
            LaunchError::FilterKills { calls, others } => write!(
                f,
                "no report can be written: a seccomp filter kills for {}",
                named_calls(calls, *others)
            ),
        }
    }
}

impl std::error::Error for LaunchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LaunchError::Record { error, .. } | LaunchError::Collector(error) => Some(error),
            LaunchError::FilterKills { .. } => None,
        }
    }
}

/// A program with its environment, ready to be executed.
#[derive(Debug)]
pub struct PreparedProgram {
    program: PathBuf,
    argv: Vec<OsString>,
    environment: EnvironmentEntries,
    /// But for the record. None where the library is not in the program.
    options: Option<Options<'static>>,
    record: Option<Vec<u8>>,
    warnings: Vec<Warning>,
    /// Transparent huge pages are disabled for this process, which exec hands on.
    enables_huge_pages: bool,
}

impl PreparedProgram {
    /// What cannot be had as it was asked for.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Has every process of the program's tree count into a record. Without the library nothing
    /// counts.
    ///
    /// For a program in a child: when that has ended, [`RecordFile::report`] has what was counted.
    pub fn count_into(&mut self, record: &RecordFile) {
        self.record = Some(record.path().as_os_str().as_bytes().to_vec());
        if let Some(options) = &mut self.options {
            (options.root, options.root_namespace) = (None, None);
        }
    }

    /// Has a report written at the end of the program that this process becomes by
    /// [`PreparedProgram::exec`], which must follow.
    ///
    /// A process apart, no child of this one, waits for that end; `render` makes the text there. It
    /// keeps nothing open but `destination`. Of this process there must be one thread.
    ///
    /// # Errors
    /// [`LaunchError::Collector`], where that process could not be made.
    pub fn report_at_end(
        &mut self,
        record: RecordFile,
        destination: Destination,
        render: impl Fn(&Report) -> String,
    ) -> Result<(), LaunchError> {
        self.count_into(&record);
        if let Some(options) = &mut self.options {
            options.root = NonZeroU32::new(std::process::id());
            let namespace = std::fs::metadata("/proc/self/ns/pid").ok();
            options.root_namespace = namespace.and_then(|about| NonZeroU64::new(about.ino()));
        }
        collector::start(record, &destination, render).map_err(LaunchError::Collector)
    }

    /// The file that will be executed.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The environment that the program starts with.
    pub fn environment(&self) -> EnvironmentEntries {
        let mut environment = self.environment.clone();
        if let Some(options) = &self.options {
            let record = self.record.as_deref().and_then(RecordPath::new);
            let mut text = Vec::new();
            Options { record, ..*options }.encode(&mut text);
            environment.set(OPTIONS_VARIABLE, &text);
        }
        environment
    }

    /// Prepares the process of a command whose program executes this one, with
    /// [`PreparedProgram::environment`]: what exec hands on beside the environment.
    pub fn hand_on(&self, command: &mut Command) {
        if self.enables_huge_pages {
            exec::enable_huge_pages(command);
        }
    }

    /// Executes the program in this process, with its signal mask and actions and its descriptors
    /// as they are. Returns only to say why not.
    pub fn exec(self) -> io::Error {
        let environment = self.environment();
        if self.enables_huge_pages {
            let _ = rustix::thread::disable_transparent_huge_pages(false);
        }
        exec::exec(&self.program, &self.argv, environment.entries())
    }

    /// The program as a command of the standard library, whose child has exactly this environment.
    /// Entries that are no `NAME=VALUE` are left out: the standard library cannot hand them on.
    pub fn command(self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some((name, arguments)) = self.argv.split_first() {
            command.arg0(name).args(arguments);
        }
        command.env_clear().envs(self.environment().pairs());
        self.hand_on(&mut command);
        command
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;
    use crate::{ForkMode, RecordPath};

    fn environment(entries: &[&str]) -> EnvironmentEntries {
        entries.iter().map(|entry| CString::new(*entry).unwrap()).collect()
    }

    fn launcher(settings: Settings, entries: &[&str]) -> Launcher {
        let argv = vec!["/bin/sh".into(), "-c".into(), "exit $STATUS".into()];
        // Any file stands in for the library: nothing here is executed with it.
        Launcher::new(argv, settings, environment(entries)).unwrap().preloading("/bin/sh".into())
    }

    /// The options that a program would find.
    fn options(prepared: &PreparedProgram) -> Vec<u8> {
        prepared.environment().get(OPTIONS_VARIABLE).unwrap().to_vec()
    }

    #[test]
    fn what_is_set_comes_out_as_options() {
        let settings = Settings {
            fork: ForkMode::Speculate,
            minimum: 4096,
            limit_ms: 7,
            learn: false,
            skip_shells: false,
            fast_context: true,
            children: false,
            quiet: true,
            ..Settings::default()
        };
        let prepared = launcher(settings, &["A=1"]).examine().unwrap().prepare();
        let text = options(&prepared);
        let parsed = Options::parse(&text);
        let expected = Options {
            fork: ForkMode::Speculate,
            minimum: 4096,
            limit_ms: 7,
            learn: false,
            fast_context: true,
            children: false,
            quiet: true,
            filters: parsed.filters,
            ..Options::default()
        };
        assert_eq!(parsed, expected);
        assert_eq!(prepared.environment().get("A"), Some(&b"1"[..]));
        assert!(prepared.environment().get("LD_PRELOAD").is_some());
        assert_eq!(prepared.warnings().is_empty(), SPECULATES);
    }

    #[test]
    fn the_default_is_the_same_for_caller_and_library() {
        let settings = Settings { skip_shells: false, ..Settings::default() };
        let text = options(&launcher(settings, &[]).examine().unwrap().prepare());
        let filters = Options::parse(&text).filters;
        assert_eq!(Options::parse(&text), Options { filters, ..Options::default() });
    }

    #[test]
    fn a_run_inside_a_run_counts_into_the_outer_ones_record() {
        let outer = "FORKLESS_RUN=fork=off,limit=9,root=7,ns=8,record=/dev/shm/outer";
        let settings = Settings { skip_shells: false, ..Settings::default() };
        let mut prepared = launcher(settings, &[outer]).examine().unwrap().prepare();
        let text = options(&prepared);
        let inner = Options::parse(&text);
        assert_eq!((inner.fork, inner.limit_ms), (ForkMode::Exact, 50));
        assert_eq!((inner.root, inner.root_namespace), (NonZeroU32::new(7), NonZeroU64::new(8)));
        assert_eq!(inner.record, RecordPath::new(b"/dev/shm/outer"));

        let record = RecordFile::create().unwrap();
        prepared.count_into(&record);
        let text = options(&prepared);
        let own = Options::parse(&text);
        assert_eq!((own.root, own.root_namespace), (None, None));
        assert_eq!(own.record.map(RecordPath::bytes), Some(record.path().as_os_str().as_bytes()));
    }

    #[test]
    fn a_plain_program_has_the_callers_environment() {
        let entries = ["PATH=/bin", "junk", "STATUS=3"];
        let plain = launcher(Settings::default(), &entries).plain();
        assert_eq!(plain.environment(), environment(&entries));
        assert_eq!(plain.command().status().unwrap().code(), Some(3));
    }

    #[test]
    fn what_cannot_be_in_a_program_is_said_in_types() {
        let launcher = launcher(Settings::default(), &["FORKLESS=no"]);
        assert_eq!(launcher.switched_off(), Some(Switch::Variable));
        let missing = launcher.preloading("/nonexistent/library.so".into());
        let Err(Unloadable::Library(LibraryError::Unresolved(path, error))) = missing.examine() else {
            panic!("there is no such library");
        };
        assert_eq!(
            (path.as_path(), error.kind()),
            (Path::new("/nonexistent/library.so"), io::ErrorKind::NotFound)
        );
        let nobody = Launcher::new(vec!["no-such-program".into()], Settings::default(), environment(&[]));
        assert_eq!(nobody.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
