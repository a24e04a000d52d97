//! A trial: a user's own command, plain and with the preloaded library in it.
//!
//! Each round runs both, in an order drawn anew; the first round warms up and does not count. The
//! library's counts of every counted run are the evidence of what it did. Nothing outlives the
//! trial: what the command leaves running is ended after each run.
//!
//! A run with the library is timed with what its launcher does: it finds the program, looks into
//! its file, and asks the shell for its traits.

mod output;
mod process;
mod verdict;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forkless_run::{
    EnvironmentEntries, Launcher, LibraryError, ProgramError, RecordFile, Report, SWITCH_VARIABLE, Settings,
    Switch, Unloadable,
};

use crate::check::Quantity;
use crate::engine::{self, Arm, Measured, Observer, Schedule, Turn};
use crate::error::Error;
use crate::guard::Guard;
use crate::machine::own_status;
use crate::noise::NoiseSnapshot;
use crate::plain;
use crate::private_directory::PrivateDirectory;
use crate::registry::{Columns, MetricPlot, Registration};
use crate::results::{Metric, Params, Row, Series, Suite, rows};
use crate::tracing;

use self::output::Outputs;
use self::process::{Finished, Outcome, Watcher};

pub use self::output::{Difference, OutputComparison};
pub use self::process::{End, is_ignored};
pub use self::verdict::{Comparison, LEAST_ROUNDS, Work};

/// The suite of a trial for those that show it.
pub const SUITE: Registration = Registration {
    name: "trial",
    columns: Columns::Metrics { all: true },
    plots: &[MetricPlot::marks("wall"), MetricPlot::marks("cpu_total"), MetricPlot::marks("memory")],
    ..Registration::DEFAULT
};

const METRICS: [Metric; 3] = [
    Metric { name: "wall", unit: "ms", estimate: false },
    Metric { name: "cpu_total", unit: "ms", estimate: false },
    Metric { name: "memory", unit: "MiB", estimate: false },
];

/// Rounds at most where no number is asked for.
const MOST_ROUNDS: usize = 1000;

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// How the library treats the program.
    pub settings: Settings,
    /// A line for `/bin/sh` before each run, outside the clock.
    pub prepare: Option<OsString>,
    /// Standard input of each run; without one it is `/dev/null`.
    pub input: Option<PathBuf>,
    /// The command writes where this process does, and not into `/dev/null`.
    pub show_output: bool,
    /// Standard output is compared.
    pub same_output: bool,
    /// A plain run that fails does not end the trial.
    pub ignore_failure: bool,
    /// Rounds; without a number as many as fit in `time`, and at least [`LEAST_ROUNDS`].
    pub rounds: Option<usize>,
    /// Rounds end after this time.
    pub time: Option<Duration>,
    /// Seed of the order and of the intervals.
    pub seed: u64,
    /// Called before each start: [`Command`] gives its child the default action of SIGPIPE,
    /// whatever this process has inherited.
    pub hand_on: fn(&mut Command),
}

/// How the command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Plain,
    /// With the library.
    Run,
}

impl Method {
    /// The name in rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::Plain => "plain",
            Method::Run => "run",
        }
    }
}

/// Why there is no trial.
#[derive(Debug)]
pub enum TrialError {
    /// The program cannot be executed.
    Program(io::Error),
    /// There is no library that could be preloaded.
    Library(LibraryError),
    /// The library is switched off.
    SwitchedOff(Switch),
    /// The line of [`Spec::prepare`] failed.
    Prepare(End),
    /// The plain command failed, after so many plain runs that did not.
    Failed(End, usize),
    /// Anything else.
    Other(Error),
}

impl From<Error> for TrialError {
    fn from(error: Error) -> TrialError {
        TrialError::Other(error)
    }
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrialError::Program(error) => error.fmt(f),
            TrialError::Library(error) => error.fmt(f),
            TrialError::SwitchedOff(switch) => switch.fmt(f),
            TrialError::Prepare(end) => write!(f, "the preparation ended with {end}"),
            TrialError::Failed(end, _) => write!(f, "the command ended with {end}"),
            TrialError::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TrialError {}

/// How often each end was seen, the commonest first.
pub type Ends = Vec<(End, usize)>;

/// Where the user has ended a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruption {
    /// In a run of the command so; `None` in its preparation.
    pub method: Option<Method>,
    /// How long that had lasted.
    pub lasted: Duration,
}

/// What a trial gave.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// How the library treated the program.
    pub settings: Settings,
    /// Rows of both methods, notes, and how quiet the machine was.
    pub suite: Suite,
    /// Rounds asked for, or the most there could be.
    pub planned: usize,
    /// A plain run's time divided by that of one with the library, round by round.
    pub ratio: Option<Quantity>,
    /// How plain runs ended, warm-up included.
    pub plain: Ends,
    /// How runs with the library ended, warm-up included.
    pub run: Ends,
    /// What their standard output has shown.
    pub output: OutputComparison,
    /// What the library has counted in all counted runs together.
    pub report: Option<Report>,
    /// Why the library cannot be in the program. Then nothing was run.
    pub unloadable: Option<ProgramError>,
    /// Where the user has ended the trial.
    pub interrupted: Option<Interruption>,
}

impl Trial {
    /// The ends of runs with the library that no plain run had.
    #[must_use]
    pub fn new_ends(&self) -> Ends {
        let known = |end| self.plain.iter().any(|&(known, _)| known == end);
        self.run.iter().copied().filter(|&(end, _)| !known(end)).collect()
    }

    /// Whether the command behaves differently with the library in it.
    #[must_use]
    pub fn differs(&self) -> bool {
        !self.new_ends().is_empty() || matches!(self.output, OutputComparison::Differs(_))
    }

    /// How the times compare; `None` without a round.
    #[must_use]
    pub fn comparison(&self) -> Option<Comparison> {
        self.ratio.map(|ratio| Comparison::of(ratio, self.suite.rounds))
    }

    /// What the library did; `None` without a round.
    #[must_use]
    pub fn work(&self) -> Option<Work> {
        self.report.as_ref().map(|report| Work::of(report, self.settings))
    }
}

/// Runs the trial. The calling thread must be the process's only one.
///
/// # Errors
/// See [`TrialError`].
pub fn run(spec: &Spec, guard: &mut Guard, observer: &mut dyn Observer) -> Result<Trial, TrialError> {
    let environment = plain::without_library(EnvironmentEntries::current());
    let launcher = Launcher::new(spec.argv.clone(), spec.settings, environment.clone());
    let launcher = launcher.map_err(TrialError::Program)?;
    if let Some(switch) = launcher.switched_off() {
        return Err(TrialError::SwitchedOff(switch));
    }
    let mut notes: Vec<String> = match launcher.examine() {
        Ok(examined) => examined.prepare().warnings().iter().map(ToString::to_string).collect(),
        Err(Unloadable::Library(error)) => return Err(TrialError::Library(error)),
        Err(Unloadable::Program(error)) => {
            return Ok(Trial { settings: spec.settings, unloadable: Some(error), ..Trial::default() });
        }
    };
    notes.extend(tracing::note());
    let mut without = environment.clone();
    if let Some(note) = plain::note() {
        without.set(SWITCH_VARIABLE, b"off");
        notes.push(note);
    }
    // Programs of the tree that change their user write there, too.
    let records = PrivateDirectory::in_memory(PrivateDirectory::ENTERED_BY_OTHERS, Some(guard))?;
    let outputs = if spec.same_output {
        let directory = PrivateDirectory::temporary(PrivateDirectory::CLOSED, Some(guard))?;
        Some((Outputs::new(directory.path()), directory))
    } else {
        None
    };
    let stage = RefCell::new(Stage {
        spec,
        environment,
        plain: without,
        records,
        outputs,
        watcher: Watcher::new(spec.hand_on).map_err(Error::io("wait for signals"))?,
        ends: [Vec::new(), Vec::new()],
        reports: Vec::new(),
        left: Vec::new(),
        stopped: 0,
        failure: None,
        interrupted: None,
    });
    let noise = NoiseSnapshot::start();
    let schedule = Schedule {
        runs: spec.rounds.unwrap_or(MOST_ROUNDS),
        time: spec.time,
        least_rounds: if spec.rounds.is_some() { 1 } else { LEAST_ROUNDS },
        seed: spec.seed,
        per_turn: 1,
        // One turn warms a method up, and each turn is one run.
        turn_budget: Duration::ZERO,
    };
    let mut arms: Vec<Box<dyn Arm>> = Vec::new();
    for method in [Method::Plain, Method::Run] {
        arms.push(Box::new(InTurn { method, stage: &stage }));
    }
    let measured = engine::run(&mut arms, &schedule, observer)?;
    drop(arms);
    let mut stage = stage.into_inner();
    if let Some(failure) = stage.failure.take() {
        return Err(failure);
    }
    notes.extend(stage.left_note());
    notes.extend(stage.stopped_note());
    Ok(stage.trial(&measured, noise, notes))
}

/// What both methods share.
struct Stage<'a> {
    spec: &'a Spec,
    /// The environment of runs with the library, before their launcher changes it.
    environment: EnvironmentEntries,
    /// The environment of plain runs.
    plain: EnvironmentEntries,
    records: PrivateDirectory,
    outputs: Option<(Outputs, PrivateDirectory)>,
    watcher: Watcher,
    /// The ends of plain runs, then the ends of runs with the library.
    ends: [Vec<End>; 2],
    /// Reports of all runs with the library. The warm-up is the first.
    reports: Vec<Report>,
    /// Names of processes that runs have left behind.
    left: Vec<String>,
    /// Runs that were made again, since this process was stopped meanwhile.
    stopped: usize,
    failure: Option<TrialError>,
    interrupted: Option<Interruption>,
}

/// One method of a trial on its way through the engine.
struct InTurn<'s, 'a> {
    method: Method,
    stage: &'s RefCell<Stage<'a>>,
}

impl Arm for InTurn<'_, '_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let mut stage = self.stage.borrow_mut();
        for _ in 0..settle + counted {
            let finished = stage.turn_without_stop(self.method, turn)?;
            for (series, value) in
                [finished.wall, finished.processor, finished.memory].into_iter().enumerate()
            {
                turn.add(series, value);
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        METRICS.len()
    }
}

impl Stage<'_> {
    /// A run during which this process was not stopped: others are made again. If each is stopped,
    /// the last one counts.
    fn turn_without_stop(&mut self, method: Method, turn: &mut Turn) -> Result<Finished, Error> {
        const TRIES: usize = 5;
        let mut tries = 1..=TRIES;
        loop {
            let begin = Instant::now();
            let is_last = tries.next() == Some(TRIES);
            if let Some(finished) = self.turn(method, is_last)? {
                return Ok(finished);
            }
            self.stopped += 1;
            turn.lose(begin.elapsed());
        }
    }

    /// Prepares a run, and runs the command. `None`: this process was stopped meanwhile, and the
    /// run is to be made again. A failure that the engine knows nothing of is kept, and ends the
    /// trial as an interruption does.
    fn turn(&mut self, method: Method, counts_anyway: bool) -> Result<Option<Finished>, Error> {
        self.prepare()?;
        // Not the command's fault, if it cannot be made.
        let output = self.outputs.as_ref().map(|(outputs, _)| outputs.create()).transpose()?;
        let begin = Instant::now();
        let (outcome, report) = match method {
            Method::Plain => (self.run_plain(output), None),
            Method::Run => self.run_with_library(output)?,
        };
        let lasted = begin.elapsed();
        let left = self.watcher.end_rest();
        self.left.extend(left);
        let outcome = outcome.map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) | None => {
                Error::io("start the command")(error)
            }
            Some(_) => self.fail(TrialError::Program(error)),
        })?;
        let Outcome::Finished(finished) = outcome else {
            self.interrupted = Some(Interruption { method: Some(method), lasted });
            return Err(Error::Interrupted);
        };
        if let Some((outputs, _)) = &self.outputs {
            outputs.check_room()?;
        }
        if finished.was_stopped && !counts_anyway {
            return Ok(None);
        }
        self.reports.extend(report.map(|file| file.report()));
        let ends = &mut self.ends[method as usize];
        if method == Method::Plain && finished.end != End::Exit(0) && !self.spec.ignore_failure {
            let failure = TrialError::Failed(finished.end, ends.len());
            return Err(self.fail(failure));
        }
        ends.push(finished.end);
        if let Some((outputs, _)) = &mut self.outputs {
            outputs.take(method == Method::Plain).map_err(Error::io("compare the command's output"))?;
        }
        Ok(Some(finished))
    }

    fn fail(&mut self, failure: TrialError) -> Error {
        self.failure = Some(failure);
        Error::Interrupted
    }

    /// Runs the line of [`Spec::prepare`]. What it leaves running is there for the command.
    fn prepare(&mut self) -> Result<(), Error> {
        let Some(line) = &self.spec.prepare else { return Ok(()) };
        let output = || if self.spec.show_output { Stdio::inherit() } else { Stdio::null() };
        let begin = Instant::now();
        let outcome = self.watcher.run(|| {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(line).env_clear().envs(self.plain.pairs());
            shell.stdin(Stdio::null()).stdout(output()).stderr(output());
            Ok(shell)
        });
        let lasted = begin.elapsed();
        let failure = match outcome.map_err(Error::io("start /bin/sh for the preparation"))? {
            Outcome::Finished(Finished { end: End::Exit(0), .. }) => return Ok(()),
            Outcome::Finished(finished) => self.fail(TrialError::Prepare(finished.end)),
            Outcome::Interrupted => {
                self.interrupted = Some(Interruption { method: None, lasted });
                Error::Interrupted
            }
        };
        self.watcher.end_rest();
        Err(failure)
    }

    fn run_plain(&self, output: Option<File>) -> io::Result<Outcome> {
        self.watcher.run(|| {
            let launcher = Launcher::new(self.spec.argv.clone(), self.spec.settings, self.plain.clone())?;
            self.connect(launcher.plain().command(), output)
        })
    }

    /// The record is made before the clock starts: nobody needs one to use the library.
    fn run_with_library(
        &self,
        output: Option<File>,
    ) -> Result<(io::Result<Outcome>, Option<RecordFile>), Error> {
        let record = RecordFile::create_in(self.records.path()).map_err(|error| {
            let why = std::error::Error::source(&error).map_or_else(String::new, |why| format!(": {why}"));
            Error::Missing(format!("{error}{why}; make room, or raise the limit of a file's size"))
        })?;
        let outcome = self.watcher.run(|| {
            let (argv, environment) = (self.spec.argv.clone(), self.environment.clone());
            let launcher = Launcher::new(argv, self.spec.settings, environment)?;
            let mut prepared = launcher.examine().map_err(io::Error::other)?.prepare();
            prepared.count_into(&record);
            self.connect(prepared.command(), output)
        });
        Ok((outcome, Some(record)))
    }

    /// Connects a command's standard descriptors.
    fn connect(&self, mut command: Command, into: Option<File>) -> io::Result<Command> {
        command.stdin(match &self.spec.input {
            Some(path) => Stdio::from(File::open(path).map_err(|error| {
                io::Error::other(format!("{} cannot be opened: {error}", path.display()))
            })?),
            None => Stdio::null(),
        });
        let output = || if self.spec.show_output { Stdio::inherit() } else { Stdio::null() };
        command.stderr(output());
        command.stdout(into.map_or_else(output, Stdio::from));
        Ok(command)
    }

    /// A sentence about what the command has left running.
    fn left_note(&mut self) -> Option<String> {
        let times = self.left.len();
        self.left.sort();
        self.left.dedup();
        let names = self.left.join(", ");
        let what = "processes that the command or its preparation left running were ended after each run";
        (times > 0).then(|| format!("{what}: {names}"))
    }

    /// A sentence about runs that were made again.
    fn stopped_note(&self) -> Option<String> {
        let runs = if self.stopped == 1 { "a run was" } else { "runs were" };
        (self.stopped > 0).then(|| format!("{runs} made again: this process was stopped meanwhile"))
    }

    fn trial(self, measured: &Measured, noise: NoiseSnapshot, notes: Vec<String>) -> Trial {
        let (seed, settings) = (self.spec.seed, self.spec.settings);
        let wall = |method: Method| &measured.series[method as usize][0];
        let noise = noise.finish([wall(Method::Plain), wall(Method::Run)]);
        let mut suite = Suite {
            name: SUITE.name.to_owned(),
            seed,
            rounds: measured.rounds,
            seconds: measured.elapsed.as_secs_f64(),
            notes,
            rows: Vec::new(),
            ..Suite::default()
        };
        suite.notes.extend(noise.warnings());
        suite.noise = noise;
        let mut ratio = None;
        if measured.rounds > 0 {
            let series = [Method::Plain, Method::Run].into_iter().flat_map(|method| {
                METRICS.iter().zip(&measured.series[method as usize]).map(move |(metric, samples)| Series {
                    method: method.name().to_owned(),
                    params: Params::new(),
                    metric: *metric,
                    limit: None,
                    samples: samples.clone(),
                })
            });
            suite.rows = rows(series.collect(), Some(Method::Plain.name()), seed);
            if let Some(floor) = memory_floor() {
                let is_memory = |row: &Row| row.metric == "memory";
                if suite.rows.iter().any(|row| is_memory(row) && row.summary.median <= floor) {
                    suite.rows.retain(|row| !is_memory(row));
                    let why = "that of this process, which no start tells apart";
                    suite
                        .notes
                        .push(format!("peak memory is left out: it is not above {floor:.1} MiB, {why}"));
                }
            }
            ratio = Quantity::ratio(wall(Method::Plain), wall(Method::Run), seed);
        }
        // The warm-up's comes first; that of a round that was interrupted, last.
        let counted = self.reports.into_iter().skip(1).take(measured.rounds);
        let report = counted.reduce(|mut sum, report| {
            sum.add(report);
            sum
        });
        let [plain, run] = self.ends.map(|ends| counts(&ends));
        let output = self.outputs.map(|(outputs, _)| outputs.comparison()).unwrap_or_default();
        let (planned, interrupted) = (measured.planned, self.interrupted);
        Trial { settings, suite, planned, ratio, plain, run, output, report, unloadable: None, interrupted }
    }
}

/// The largest resident set of this process so far, in MiB. A process that it starts is not said to
/// have had less: a start takes over its starter's (the kernel's fs/exec.c, `exec_mmap`).
fn memory_floor() -> Option<f64> {
    let kib: f64 = own_status("VmHWM")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

fn counts(ends: &[End]) -> Ends {
    let mut counts: Ends = Vec::new();
    for &end in ends {
        match counts.iter_mut().find(|(known, _)| *known == end) {
            Some((_, count)) => *count += 1,
            None => counts.push((end, 1)),
        }
    }
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_that_no_plain_run_had_is_a_difference() {
        let trial =
            |plain: &[End], run: &[End]| Trial { plain: counts(plain), run: counts(run), ..Trial::default() };
        let (fine, failed) = (End::Exit(0), End::Signal(11));
        assert!(!trial(&[fine; 3], &[fine; 3]).differs());
        assert!(!trial(&[fine, failed, fine], &[failed; 3]).differs());
        let differs = trial(&[fine; 3], &[fine, failed, failed]);
        assert!(differs.differs());
        assert_eq!(differs.new_ends(), [(failed, 2)]);
        assert_eq!(differs.run, [(failed, 2), (fine, 1)]);
    }
}
