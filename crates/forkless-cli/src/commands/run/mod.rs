//! `forkless run`: its flags, and the words for the findings of the launcher in `forkless-run`. The
//! program is executed in this very process: its status, signals and terminal are the program's
//! own.

pub(super) mod report;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use forkless_run::{
    Destination, EnvironmentEntries, ForkMode, Launcher, PreparedProgram, RecordFile, Settings,
};

use crate::args;
use crate::exit::Exit;
use crate::terminal::complain;

/// Run a program unmodified, without the cost of its forks.
///
/// The program is executed in this process, under a preloaded library. Its forks become
/// speculative: the child runs on almost no copied memory, execve commits, and anything that
/// another process could notice aborts to a plain fork. Lines of system() and popen() run without
/// their shell where that is provably the same.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forkless run [OPTIONS] [--] <PROGRAM> [ARGS]...",
    after_help = "Examples:\n  forkless run --report -- perl script.pl\n  forkless run -- node server.js\n  \
    forkless run --fork=off --huge-pages=thp -- redis-server\n\nExit status: the program's own; 125 when forkless itself fails, 126 when the program cannot be executed, 127 \
    when it is not found. FORKLESS=off in the environment leaves everything as it is."
)]
pub(crate) struct Args {
    /// Speculative fork: in which processes, and what its child may read beside threads.
    #[arg(long, value_enum, default_value_t = ForkArg::Exact, value_name = "MODE")]
    fork: ForkArg,

    /// Leave the forks of a process alone that has less private memory than this.
    #[arg(long, value_name = "SIZE", value_parser = args::size, default_value = "8M")]
    fork_minimum: u64,

    /// Abort a speculation whose child has not executed a program after this many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    fork_limit: u32,

    /// Speculate at every call site, whatever became of earlier children. For tests.
    #[arg(long, hide = true)]
    fork_always: bool,

    /// Run lines of system() and popen() that need no shell without one.
    #[arg(long, value_enum, default_value_t = ShellArg::Bypass, value_name = "MODE")]
    shell: ShellArg,

    /// Back malloc's memory with huge pages, for forks that cannot be avoided.
    #[arg(long, value_enum, default_value_t = HugePagesArg::Off, value_name = "KIND")]
    huge_pages: HugePagesArg,

    /// Set TZ where it is unset, so that localtime() no longer looks at /etc/localtime every time.
    /// A change of that file is then not noticed until the program starts again.
    #[arg(long)]
    tz: bool,

    /// User-level context switches (swapcontext and its kin) without system calls for the signal
    /// mask. A context then no longer has a mask of its own.
    #[arg(long, value_enum, default_value_t = ContextArg::Off, value_name = "MODE")]
    context: ContextArg,

    /// Whether programs that PROGRAM executes get the same treatment.
    #[arg(long, value_enum, default_value_t = ChildrenArg::Follow, value_name = "WHICH")]
    children: ChildrenArg,

    /// At exit, report what was done in the whole process tree, on standard error or in FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    report: Option<Option<PathBuf>>,

    /// The report as JSON; implies --report.
    #[arg(long)]
    json: bool,

    /// Do not say why a program is run plainly.
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Which processes speculate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ForkArg {
    /// All processes. Beside threads a child commits only with memory as it was at the fork.
    Exact,
    /// Processes with one thread.
    Strict,
    /// All processes. Beside threads a child may read memory as it is after the fork.
    Speculate,
    /// None.
    Off,
}

/// What happens to the lines of system() and popen().
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ShellArg {
    /// Those that need no shell lose it.
    Bypass,
    /// All go to /bin/sh.
    Off,
}

/// Huge pages for the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HugePagesArg {
    /// Transparent: the kernel joins pages where it can.
    Thp,
    /// From the pool of the system (vm.nr_hugepages); never passed on to executed programs.
    Hugetlb,
    /// As the program has it.
    Off,
}

/// How contexts are switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ContextArg {
    /// Without the mask.
    Fast,
    /// As libc does.
    Off,
}

/// Who gets the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ChildrenArg {
    /// Every program that is executed.
    Follow,
    /// Only PROGRAM.
    No,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    match prepare_and_exec(&args) {
        Ok(never) => match never {},
        Err(Failure { code, error }) => {
            complain!("forkless: {error:#}");
            Ok(Exit::Code(code))
        }
    }
}

/// Why PROGRAM was not executed, with the status a shell would give.
struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { code: 125, error }
    }
}

/// Nothing: a successful exec does not return.
enum Never {}

fn prepare_and_exec(args: &Args) -> Result<Never, Failure> {
    let name = args.command[0].as_os_str();
    let found = Launcher::new(args.command.clone(), args.settings(), EnvironmentEntries::current());
    let launcher = found.map_err(|error| not_executable(name, error))?;
    let prepared = prepare(args, &launcher)?.unwrap_or_else(|| launcher.plain());
    crate::inherited::give_back();
    Err(not_executable(name, prepared.exec()))
}

/// The program with the library, and its report under way. `None`, which is said, where the library
/// cannot be in it.
fn prepare(args: &Args, launcher: &Launcher) -> anyhow::Result<Option<PreparedProgram>> {
    let say = |line: &dyn std::fmt::Display| {
        if !args.quiet {
            forkless_run::complain(&format!("forkless: {line}"));
        }
    };
    let examined = match launcher.examine() {
        Ok(examined) => examined,
        Err(why) => {
            say(&format_args!("{}: {why}; running it plainly", args.command[0].to_string_lossy()));
            return Ok(None);
        }
    };
    // Opened here: a report that cannot be written is refused before the program starts. After the
    // record: where there is none, no empty report is left.
    let report = match args.reports().then(RecordFile::create).transpose() {
        Ok(Some(record)) => args.destination()?.map(|destination| (record, destination)),
        Ok(None) => None,
        Err(error) if error.is_without_room() => {
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            say(&format_args!("{error}: {why}; nothing is recorded"));
            None
        }
        Err(error) => return Err(error.into()),
    };
    // The operator who switched it off knows that; the reader of a report of zeros may not.
    if report.is_some()
        && let Some(switch) = launcher.switched_off()
    {
        say(&format_args!("{switch}: the report will show nothing"));
    }
    let mut prepared = examined.prepare();
    for warning in prepared.warnings() {
        say(warning);
    }
    if let Some((record, destination)) = report {
        prepared.report_at_end(record, destination, if args.json { report::json } else { report::text })?;
    }
    Ok(Some(prepared))
}

impl Args {
    fn settings(&self) -> Settings {
        Settings {
            fork: match self.fork {
                ForkArg::Exact => ForkMode::Exact,
                ForkArg::Strict => ForkMode::Strict,
                ForkArg::Speculate => ForkMode::Speculate,
                ForkArg::Off => ForkMode::Off,
            },
            minimum: self.fork_minimum,
            limit_ms: self.fork_limit,
            learn: !self.fork_always,
            skip_shells: self.shell == ShellArg::Bypass,
            huge_pages: match self.huge_pages {
                HugePagesArg::Thp => forkless_run::HugePages::Transparent,
                HugePagesArg::Hugetlb => forkless_run::HugePages::Pool,
                HugePagesArg::Off => forkless_run::HugePages::Off,
            },
            fast_context: self.context == ContextArg::Fast,
            time_zone: self.tz,
            children: self.children == ChildrenArg::Follow,
            quiet: self.quiet,
        }
    }

    fn reports(&self) -> bool {
        self.report.is_some() || self.json
    }

    /// Where the report goes, if anywhere.
    fn destination(&self) -> anyhow::Result<Option<Destination>> {
        match (&self.report, self.json) {
            (Some(Some(path)), _) => {
                let file = Destination::file(path);
                Some(file.with_context(|| format!("cannot write the report to {}", path.display())))
            }
            (Some(None), _) | (None, true) => Some(Destination::standard_error().context("standard error")),
            (None, false) => None,
        }
        .transpose()
    }
}

fn not_executable(name: &OsStr, error: io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Failure {
        code,
        error: anyhow::Error::new(error).context(match name.to_string_lossy() {
            empty if empty.is_empty() => "cannot run ''".to_owned(),
            name => format!("cannot run {name}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Args, Settings};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn settings(flags: &[&str]) -> Settings {
        let line = [&["run"][..], flags, &["--", "x"]].concat();
        Line::parse_from(line).args.settings()
    }

    #[test]
    fn without_flags_a_program_is_run_as_the_library_would() {
        assert_eq!(settings(&[]), Settings::default());
    }

    /// People move flags into `FORKLESS_OPTIONS` as they stand.
    #[test]
    fn flags_are_words_of_the_environment() {
        let flags = [
            "--fork=off",
            "--fork-minimum=1.5M",
            "--fork-limit=7",
            "--context=fast",
            "--children=no",
            "--quiet",
        ];
        let text = flags.join(" ");
        let (options, understood) = forkless_run::Options::parse_words(text.as_bytes());
        assert!(understood);
        let forkless_run::Options { fork, minimum, limit_ms, fast_context, children, quiet, .. } = options;
        let expected =
            Settings { fork, minimum, limit_ms, fast_context, children, quiet, ..Settings::default() };
        assert_eq!(settings(&flags), expected);
        for flag in
            ["--shell=off", "--shell=bypass", "--huge-pages=off", "--huge-pages=thp", "--huge-pages=hugetlb"]
        {
            settings(&[flag]);
            assert!(forkless_run::Options::parse_words(flag.as_bytes()).1, "{flag}");
        }
    }

    #[test]
    fn each_flag_is_a_setting() {
        let all = settings(&[
            "--fork=speculate",
            "--fork-minimum=1.5M",
            "--fork-limit=7",
            "--fork-always",
            "--shell=off",
            "--huge-pages=hugetlb",
            "--tz",
            "--context=fast",
            "--children=no",
            "--quiet",
        ]);
        let expected = Settings {
            fork: forkless_run::ForkMode::Speculate,
            minimum: 3 << 19,
            limit_ms: 7,
            learn: false,
            skip_shells: false,
            huge_pages: forkless_run::HugePages::Pool,
            fast_context: true,
            time_zone: true,
            children: false,
            quiet: true,
        };
        assert_eq!(all, expected);
    }
}
