//! The common parts of all victims: a private directory, the C program, the executed child, and the
//! suite that takes rows and checks.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forkless_bench::check::{Bound, Check, CheckVerdict, Quantity};
use forkless_bench::engine::{self, Arm, Measured, Observer, Schedule};
use forkless_bench::error::Error;
use forkless_bench::guard::Guard;
use forkless_bench::private_directory::PrivateDirectory;
use forkless_bench::program::{Kind, Program};
use forkless_bench::results::{Derived, Metric, Param, Params, Series, Suite, rows};
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::suites::Stages;
use forkless_run::{Counter, Settings};

use super::Spec;
use super::coprocess::{Coprocess, Order};
use super::kept::{Counts, Kept};
use crate::install;

/// The C victims' source, and what it includes.
const SOURCE: &str = include_str!("programs/parent.c");
const COMMON: &str = include_str!("programs/common.h");

/// What the nanoseconds of an answer become: microseconds, milliseconds, themselves.
pub(super) const US: f64 = 1e-3;
pub(super) const MS: f64 = 1e-6;
pub(super) const NS: f64 = 1.0;

/// The time of a fork in a server.
pub(super) const FORK: Metric = Metric { name: "fork", unit: "us", estimate: false };

/// One method of one victim on its way through the engine.
pub(super) struct Subject<'a> {
    pub(super) method: &'static str,
    pub(super) params: Params,
    pub(super) metrics: &'static [Metric],
    pub(super) arm: Box<dyn Arm + 'a>,
}

impl<'a> Subject<'a> {
    /// An order to a victim, with one number an answer.
    pub(super) fn order(
        method: &'static str,
        params: &Params,
        metric: &'static Metric,
        process: &'a RefCell<Coprocess>,
        order: &'static str,
        scale: f64,
    ) -> Subject<'a> {
        let metrics = std::slice::from_ref(metric);
        Subject { method, params: params.clone(), metrics, arm: Order::arm(process, order, 1, scale) }
    }
}

/// What a figure is of, and the plain limit it has for everybody: that `run` makes nothing worse.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    figure: &'static str,
    unit: &'static str,
    worse_beyond_one: Option<Bound>,
}

impl Asked {
    /// How many times faster with `run`.
    pub(super) const SPEEDUP: Asked =
        Asked { figure: "plain / run", unit: "times", worse_beyond_one: Some(Bound::AtLeast) };

    /// A figure without a limit.
    pub(super) const fn of(figure: &'static str, unit: &'static str) -> Asked {
        Asked { figure, unit, worse_beyond_one: None }
    }

    /// A ratio that should be on this side of one.
    pub(super) const fn beyond_one(figure: &'static str, bound: Bound) -> Asked {
        Asked { figure, unit: "times", worse_beyond_one: Some(bound) }
    }
}

/// The parameters of a row.
pub(super) fn params(victim: &str, mib: u64) -> Params {
    let victim = ("victim".to_owned(), Param::Word(victim.to_owned()));
    if mib == 0 {
        return Params::from([victim]);
    }
    Params::from([victim, ("rss".to_owned(), Param::Number(mib << 20))])
}

/// Where the suite is made.
pub(crate) struct Stage<'a> {
    pub(super) spec: &'a Spec,
    pub(crate) guard: &'a mut Guard,
    observer: Stages<'a>,
    /// A private directory below `$TMPDIR` or `/tmp`, gone at the end.
    scratch: PrivateDirectory,
    /// One more, in memory, for victims that write many files: made when the first asks.
    memory: Option<PrivateDirectory>,
    child: Program,
    compiled: Vec<(&'static str, PathBuf)>,
    files: u32,
    suite: Suite,
    steady: Vec<Samples>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        spec: &'a Spec,
        guard: &'a mut Guard,
        observer: &'a mut dyn Observer,
        victims: usize,
    ) -> Result<Stage<'a>, Error> {
        let child = Program::prepare(&Kind::Exit, Some(guard))?;
        let scratch = PrivateDirectory::temporary(PrivateDirectory::ENTERED_BY_OTHERS, Some(guard))?;
        scratch.write("common.h", COMMON)?;
        let suite = Suite { name: super::SUITE.name.into(), seed: spec.schedule.seed, ..Suite::default() };
        let observer = Stages::new(observer, victims);
        let (compiled, steady) = (Vec::new(), Vec::new());
        let memory = None;
        let mut stage =
            Stage { spec, guard, observer, scratch, memory, child, compiled, files: 0, suite, steady };
        if spec.quick {
            let text = "quick: parents and configurations are smaller, and so are the gains";
            stage.note(text.to_owned());
        }
        Ok(stage)
    }

    /// Fails unless `run` does something to a program here: every figure would be that of two equal
    /// runs.
    pub(super) fn try_run(&mut self) -> Result<(), Error> {
        let missing = |why: &dyn std::fmt::Display| {
            Error::Missing(format!("forkless run does not work here: {why} (forkless doctor says more)"))
        };
        let kept = self.keep("--on-input", Some(Settings::default()), OsStr::new("/bin/true"), &[], &[]);
        let (mut command, counts) = kept.map_err(|error| missing(&error))?;
        let output = command.output().map_err(Error::io("start a program with the preloaded library"))?;
        if output.status.success() && counts.counted().count(Counter::Processes) == 1 {
            return Ok(());
        }
        Err(missing(&String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// A path in the private directory that nothing has used yet.
    pub(crate) fn file(&mut self, name: &str) -> PathBuf {
        self.files += 1;
        self.scratch.path().join(format!("{}-{name}", self.files))
    }

    /// A new directory in the private one.
    pub(super) fn directory(&mut self, name: &str) -> Result<PathBuf, Error> {
        new_directory(self.file(name))
    }

    /// A new directory in memory, where a disk's time is not measured with the victim's; in the
    /// private one where `/dev/shm` is not to be had.
    pub(super) fn directory_in_memory(&mut self, name: &str) -> Result<PathBuf, Error> {
        let path = self.file(name);
        let base = self.in_memory();
        new_directory(path.file_name().map(|name| base.join(name)).unwrap_or(path))
    }

    /// The private directory in memory, or the other one.
    fn in_memory(&mut self) -> &Path {
        if self.memory.is_none() {
            self.memory = scratch(self.guard, Path::new("/dev/shm")).ok();
        }
        self.memory.as_ref().unwrap_or(&self.scratch).path()
    }

    /// The command of a kept program, and what the library will count in it.
    pub(super) fn keep(
        &mut self,
        ending: &str,
        settings: Option<Settings>,
        program: &OsStr,
        arguments: &[OsString],
        variables: &[(&str, OsString)],
    ) -> Result<(Command, Counts), Error> {
        let forkless = &self.spec.forkless;
        let records = self.in_memory();
        Kept { forkless, ending, settings, records, program, arguments, variables }.command()
    }

    /// Writes a file into the private directory.
    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.file(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
        Ok(path)
    }

    /// A program of the system, installed if need be.
    pub(crate) fn need(&mut self, name: &str, package: &str) -> Result<PathBuf, Error> {
        install::need(name, package, self.spec.install, &mut self.observer)
    }

    /// The path of the tiny program that victims execute.
    pub(super) fn child(&self) -> OsString {
        self.child.os_path().to_owned()
    }

    /// C source compiled, once for each name.
    pub(super) fn compile(
        &mut self,
        name: &'static str,
        source: &str,
        flags: &[&str],
    ) -> Result<PathBuf, Error> {
        if let Some((_, path)) = self.compiled.iter().find(|(known, _)| *known == name) {
            return Ok(path.clone());
        }
        let compiler = self.need("cc", "gcc libc6-dev")?;
        let file = self.write(&format!("{name}.c"), source)?;
        let program = self.file(name);
        let output = Command::new(compiler)
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(&file)
            .args(flags)
            .output()
            .map_err(Error::io("start cc"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().find(|line| line.contains("error")).unwrap_or("no message").to_owned();
            return Err(Error::Missing(format!("cc cannot compile {name}.c: {first}")));
        }
        self.compiled.push((name, program.clone()));
        Ok(program)
    }

    /// The C program.
    pub(super) fn parent(&mut self) -> Result<PathBuf, Error> {
        self.compile("parent", SOURCE, &["-pthread"])
    }

    /// The C victim holding so much memory, with a program and its arguments to execute; with `run`
    /// or without.
    pub(super) fn c(
        &mut self,
        name: &str,
        settings: Option<Settings>,
        mib: u64,
        program: &[OsString],
    ) -> Result<RefCell<Coprocess>, Error> {
        let parent = self.parent()?;
        let mut arguments = vec![OsString::from(mib.to_string())];
        arguments.extend(program.iter().cloned());
        self.start(name, settings, parent.as_os_str(), &arguments)
    }

    /// A victim, ready.
    pub(super) fn start(
        &mut self,
        name: &str,
        settings: Option<Settings>,
        program: &OsStr,
        arguments: &[OsString],
    ) -> Result<RefCell<Coprocess>, Error> {
        let errors = self.file("errors");
        let kept = self.keep("--on-input", settings, program, arguments, &[])?;
        Coprocess::start(name, settings, kept, errors).map(RefCell::new)
    }

    /// The `forkless` command.
    pub(super) fn forkless(&self) -> &Path {
        &self.spec.forkless
    }

    /// Runs the subjects through the engine, adds their rows, and gives their samples, in order.
    pub(super) fn measure(&mut self, subjects: Vec<Subject<'_>>) -> Result<Vec<Vec<Samples>>, Error> {
        let schedule = self.spec.schedule;
        self.measure_with(&schedule, subjects)
    }

    /// The same with a schedule of the victim's own.
    pub(super) fn measure_with(
        &mut self,
        schedule: &Schedule,
        subjects: Vec<Subject<'_>>,
    ) -> Result<Vec<Vec<Samples>>, Error> {
        let (mut names, mut arms) = (Vec::new(), Vec::new());
        for Subject { method, params, metrics, arm } in subjects {
            names.push((method, params, metrics));
            arms.push(arm);
        }
        let outcome = engine::run(&mut arms, schedule, &mut self.observer)?;
        drop(arms);
        let series = names.iter().zip(&outcome.series).flat_map(|((method, params, metrics), all)| {
            metrics.iter().zip(all).map(|(metric, samples)| series(method, params, metric, samples))
        });
        self.take(&outcome, series.collect());
        Ok(outcome.series)
    }

    /// The same with one arm that fills a series of each method.
    pub(super) fn measure_as_one(
        &mut self,
        schedule: &Schedule,
        methods: &[&'static str],
        params: &Params,
        metric: &Metric,
        arm: Box<dyn Arm + '_>,
    ) -> Result<Vec<Samples>, Error> {
        let outcome = engine::run(&mut [arm], schedule, &mut self.observer)?;
        let all = outcome.series.first().cloned().unwrap_or_default();
        let series =
            methods.iter().zip(&all).map(|(method, samples)| series(method, params, metric, samples));
        self.take(&outcome, series.collect());
        Ok(all)
    }

    /// Adds what was measured to the suite.
    fn take(&mut self, outcome: &Measured, mut series: Vec<Series>) {
        self.suite.rounds += outcome.rounds;
        self.suite.seconds += outcome.elapsed.as_secs_f64();
        self.steady.extend(outcome.series.first().and_then(|series| series.first()).cloned());
        // A method is compared with the plain one under the same parameters.
        while let Some(first) = series.first() {
            let params = first.params.clone();
            let (group, rest) = series.into_iter().partition(|one| one.params == params);
            series = rest;
            self.suite.rows.extend(rows(group, Some("plain"), self.suite.seed));
        }
    }

    /// Adds a figure with its evidence. Without evidence there is no figure.
    pub(super) fn check(
        &mut self,
        params: &Params,
        asked: Asked,
        figure: Option<Quantity>,
        evidence: Result<String, String>,
    ) {
        let name = params.get("victim").map(ToString::to_string).unwrap_or_default();
        let (figure, verdict, evidence) = match (evidence, figure) {
            (Ok(evidence), Some(figure)) => (Some(figure), CheckVerdict::Shown, evidence),
            (Ok(_), None) => (None, CheckVerdict::NotShown, "no round was finished".to_owned()),
            (Err(why), _) => (None, CheckVerdict::NotShown, why),
        };
        let mut params = params.clone();
        params.remove("victim");
        let check = Check {
            name,
            params,
            figure: asked.figure.to_owned(),
            unit: asked.unit.to_owned(),
            bound: None,
            limit: None,
            value: figure.map(|figure| figure.value),
            ci95: figure.map(|figure| figure.ci95),
            verdict,
            evidence,
        };
        self.suite.checks.push(match asked.worse_beyond_one {
            Some(bound) => check.held_to(bound, 1.0),
            None => check,
        });
    }

    /// One series divided by another, round by round.
    pub(super) fn ratio(&self, numerator: &Samples, denominator: &Samples) -> Option<Quantity> {
        Quantity::ratio(numerator, denominator, self.suite.seed)
    }

    /// A ratio that no limit is set for, so that nothing can be missed by it. One of `run` needs
    /// evidence like any other.
    pub(super) fn derive(&mut self, victim: &str, what: &str, numerator: &Samples, denominator: &Samples) {
        let Some(Quantity { value, ci95 }) = self.ratio(numerator, denominator) else { return };
        let (name, unit) = (format!("{victim}: {what}"), "times".to_owned());
        self.suite.derived.push(Derived { name, unit, value, ci95 });
    }

    /// The seed of all intervals.
    pub(super) fn seed(&self) -> u64 {
        self.suite.seed
    }

    /// A sentence for the reader, who needs it once.
    pub(super) fn note(&mut self, text: String) {
        self.suite.take_notes(vec![text]);
    }

    /// A victim without a figure.
    pub(super) fn unmeasured(&mut self, victim: &str, verdict: CheckVerdict, why: &str) {
        self.suite.notes.push(format!("{}: {victim}: {why}", verdict.words()));
        self.suite.checks.push(Check {
            name: victim.to_owned(),
            params: Params::new(),
            figure: String::new(),
            unit: String::new(),
            bound: None,
            limit: None,
            value: None,
            ci95: None,
            verdict,
            evidence: why.to_owned(),
        });
    }

    /// The next victim begins.
    pub(super) fn next(&mut self) {
        self.observer.next();
    }

    /// The suite, and the series that show how steady the machine was.
    pub(super) fn finish(mut self) -> (Suite, Vec<Samples>) {
        let skipped = self.suite.checks.iter().filter(|check| check.verdict == CheckVerdict::Skipped).count();
        if skipped > 0 {
            self.suite.notes.push(format!("{skipped} of the victims skipped"));
        }
        (self.suite, self.steady)
    }
}

fn series(method: &str, params: &Params, metric: &Metric, samples: &Samples) -> Series {
    let (method, params, samples) = (method.to_owned(), params.clone(), samples.clone());
    Series { method, params, metric: *metric, limit: None, samples }
}

fn new_directory(path: PathBuf) -> Result<PathBuf, Error> {
    fs::create_dir(&path).map_err(Error::io(format!("create {}", path.display())))?;
    Ok(path)
}

/// A directory of the suite's own below `base`.
fn scratch(guard: &mut Guard, base: &Path) -> Result<PrivateDirectory, Error> {
    PrivateDirectory::make(base, PrivateDirectory::ENTERED_BY_OTHERS, Some(guard))
}
