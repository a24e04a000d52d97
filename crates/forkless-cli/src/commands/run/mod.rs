//! `forkless run`: its flags, and the words for the findings of the launcher in `forkless-run`. The
//! program is executed in this very process: its status, signals and terminal are the program's
//! own.

pub(super) mod report;
mod treatment;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use forkless_run::{Destination, EnvironmentEntries, Launcher, PreparedProgram, RecordFile, Settings};

use crate::exit::Exit;
use crate::terminal::complain;

pub(super) use self::treatment::TreatmentArgs;

/// Run a program unmodified, without the cost of its forks.
///
/// The program is executed in this process, under a preloaded library. Its forks speculate: a child
/// gets almost no copied memory. If the child does something that another process could notice
/// before it executes a program, a plain fork replaces it. Lines of system(), popen() and `sh -c`
/// run without a shell if that is provably the same.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forkless run [OPTIONS] [--] <PROGRAM> [ARGS]...",
    after_help = "Examples:\n  forkless run --report -- perl script.pl\n  forkless run -- node server.js\n  \
    forkless run --fork=off --huge-pages=thp -- redis-server\n\nExit status: the program's own; 125 when forkless itself fails, 126 when the program cannot be executed, 127 \
    when it is not found. FORKLESS=off in the environment switches the library off."
)]
pub(crate) struct Args {
    #[command(flatten)]
    treatment: TreatmentArgs,

    /// At exit, report what was done in the whole process tree, on standard error or in FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    report: Option<Option<PathBuf>>,

    /// Write the report as JSON; implies --report.
    #[arg(long)]
    json: bool,

    /// Do not say why a program runs without the library.
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
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
pub(super) struct Failure {
    pub(super) code: u8,
    pub(super) error: anyhow::Error,
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
    let mut launcher = found.map_err(|error| not_executable(name, error))?;
    if args.reports() {
        launcher = launcher.with_report();
    }
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
    if args.reports() {
        examined.can_report()?;
    }
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
        Settings { quiet: self.quiet, ..self.treatment.settings() }
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

pub(super) fn not_executable(name: &OsStr, error: io::Error) -> Failure {
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
