//! `forkless try`: a user's own command, plain and under `run`, in turns. `forkless_bench::trial`
//! measures and judges; here are the flags, the words and the exit code.

mod html;
mod json;
mod line;
mod text;
mod words;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forkless_bench::engine::{Observer, Silent};
use forkless_bench::error::Error;
use forkless_bench::results::Results;
use forkless_bench::trial::{self, Comparison, Spec, Trial, TrialError};

use super::bench::{Output, Progress, guard};
use super::run::{TreatmentArgs, not_executable};
use crate::exit::{Exit, Missing, Usage};
use crate::terminal::{self, complain};

use self::line::Line;

/// Try `run` on your command: with and without `run`, in turns, with a verdict.
///
/// Each round runs CMD with and without `run`, in random order; the first round warms up and does
/// not count. The verdict rests on the ratio of the times within rounds, with its 95 % interval,
/// and on the counts of the library. The time under `run` includes the work of its launcher.
///
/// Standard input and output are /dev/null by default. Processes that CMD leaves running are ended
/// after each run. Ctrl-C ends the trial, and the results so far are reported.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forkless try [OPTIONS] [--] <CMD> [ARGS]...",
    after_help = "Examples:\n  forkless try -- ./report.pl --all\n  forkless try --prepare 'make clean' --runs 10 -- make -j8\n  \
    forkless try --huge-pages=thp --same-output --html try.html -- ./simulation\n\nExit codes: 0 faster under run, or no difference that \
    can be told; 1 slower by more than 1 %, or run behaves differently; 2 usage; 3 the library or another facility is missing; 125 CMD \
    or --prepare fails, or forkless itself; 126 CMD cannot be executed; 127 CMD is not found."
)]
pub(crate) struct Args {
    /// Number of counted rounds, each with a run of both kinds [default: as many as fit in --time,
    /// 6 to 1000].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,

    /// Stop after this many seconds, at a whole round [default: 20, or none with --runs].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<Duration>,

    /// Run this line by /bin/sh before each run, untimed; it must end with 0.
    #[arg(short, long, value_name = "LINE")]
    prepare: Option<OsString>,

    /// Standard input of each run [default: /dev/null].
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Let CMD and --prepare write to this command's output.
    #[arg(long, conflicts_with = "same_output")]
    show_output: bool,

    /// Compare standard output byte for byte: it must be the same with and without run.
    #[arg(long)]
    same_output: bool,

    /// Go on if CMD fails without run.
    #[arg(short, long)]
    ignore_failure: bool,

    /// Seed of the order of runs and of the intervals.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Write everything as JSON to a file; - is standard output, in place of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with plots, all in one file; - is standard output, in place of the text.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    treatment: TreatmentArgs,

    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds <= 1e9);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "must be more than 0 and at most 1e9 seconds".to_owned())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    match measure(args) {
        Err(error) if !(error.is::<Usage>() || error.is::<Missing>()) => {
            complain!("forkless: {error:#}");
            Ok(Exit::Code(125))
        }
        other => other,
    }
}

/// What every form of the result shows.
struct Shown<'a> {
    trial: &'a Trial,
    /// The command.
    command: Line,
    /// The command line by which a user has what was tried.
    under_run: Line,
    verdict: String,
}

fn measure(args: &Args) -> anyhow::Result<Exit> {
    super::need_proc()?;
    if let Some(input) = &args.input {
        readable_again(input)?;
    }
    let open = |path: &Option<PathBuf>| path.as_deref().map(Output::open).transpose();
    let (json, html) = (open(&args.json)?, open(&args.html)?);
    let to_stdout =
        [&json, &html].into_iter().filter(|output| matches!(output, Some(Output::Stdout))).count();
    if to_stdout > 1 {
        return Err(Usage("only one of --json and --html can go to standard output".into()).into());
    }
    Output::all_differ(&[json.as_ref(), html.as_ref()])?;
    if to_stdout > 0 && args.show_output {
        let remedy = "name a file instead of -";
        return Err(
            Usage(format!("--show-output: CMD's output would be among the result's: {remedy}")).into()
        );
    }
    let mut results = Results::begin();
    let trial = match tried(args) {
        Ok(trial) => trial,
        Err(TrialError::Program(error)) => {
            let failure = not_executable(&args.command[0], error);
            complain!("forkless: {:#}", failure.error);
            return Ok(Exit::Code(failure.code));
        }
        Err(error) => return Err(worded(args, error)),
    };
    if trial.suite.rounds == 0 && trial.unloadable.is_none() && !trial.differs() {
        return Err(anyhow::anyhow!(
            "{}: no round was finished, and nothing was measured",
            words::interrupted(&trial)
        ));
    }
    let flags = args.treatment.flags();
    let shown = Shown {
        verdict: words::verdict(&trial),
        command: Line::of(&args.command),
        under_run: Line::under_run(&flags, &args.command),
        trial: &trial,
    };
    if let Some(output) = json {
        output.write(&json::object(&results, args, &shown)?)?;
    }
    results.suites.push(trial.suite.clone());
    if let Some(output) = html {
        output.write(&html::page(&results, &shown))?;
    }
    if to_stdout == 0 {
        terminal::print(&text::of(&shown, terminal::width()))?;
    }
    Ok(exit_code(&trial))
}

fn exit_code(trial: &Trial) -> Exit {
    let is_slower = trial.comparison() == Some(Comparison::Slower);
    if trial.differs() || is_slower { Exit::Finding } else { Exit::Fine }
}

fn tried(args: &Args) -> Result<Trial, TrialError> {
    /// How long a trial lasts, where nobody says.
    const TIME: Duration = Duration::from_secs(20);
    let spec = Spec {
        argv: args.command.clone(),
        settings: args.treatment.settings(),
        prepare: args.prepare.clone(),
        input: args.input.clone(),
        show_output: args.show_output,
        same_output: args.same_output,
        ignore_failure: args.ignore_failure,
        rounds: args.runs.map(|runs| runs as usize),
        time: args.time.or(args.runs.is_none().then_some(TIME)),
        seed: args.seed,
        hand_on: crate::inherited::hand_on_signals,
    };
    // The bar would be drawn over the command's own output.
    let mut observer: Box<dyn Observer> =
        if args.show_output { Box::new(Silent) } else { Box::new(Progress::new("try")) };
    let mut guard = guard().map_err(|error| TrialError::Other(Error::Missing(format!("{error:#}"))))?;
    trial::run(&spec, &mut guard, observer.as_mut())
}

/// Fails unless each run can read the file of `--input` from its beginning.
fn readable_again(path: &Path) -> anyhow::Result<()> {
    let cannot = |error: io::Error| Usage(format!("--input: cannot read {}: {error}", path.display()));
    let about = path.metadata().map_err(cannot)?;
    // A pipe would be waited for, and is empty the second time.
    if !about.is_file() && !about.file_type().is_char_device() {
        let why = "is no file that each run can read from its beginning";
        return Err(Usage(format!("--input: {} {why}", path.display())).into());
    }
    std::fs::File::open(path).map_err(cannot)?;
    Ok(())
}

/// Gives an error its words and the exit code of its kind.
fn worded(args: &Args, error: TrialError) -> anyhow::Error {
    let command = Line::of(&args.command);
    let hint = if args.show_output { "" } else { "; --show-output shows what it says" };
    match error {
        TrialError::Program(error) => error.into(),
        TrialError::Library(error) => Missing(format!("{error}; build or install it (./x build)")).into(),
        TrialError::SwitchedOff(switch) => {
            Missing(format!("{switch}, so nothing can be tried: remove it first")).into()
        }
        TrialError::Prepare(end) => {
            let line = Line::of(args.prepare.as_slice());
            anyhow::anyhow!("--prepare {line}: ended with {end}{hint}")
        }
        TrialError::Failed(end, 0) => {
            anyhow::anyhow!(
                "{command}: ended with {end} by itself, without run{hint}; --ignore-failure goes on"
            )
        }
        TrialError::Failed(end, before) => anyhow::anyhow!(
            "{command}: ended with {end} by itself, without run, after {before} plain runs that ended with 0{hint}; \
             --ignore-failure goes on"
        ),
        TrialError::Other(error) => super::bench::from_library(error),
    }
}
