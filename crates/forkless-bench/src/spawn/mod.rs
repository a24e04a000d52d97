//! The `spawn` suite: ways to start a tiny program and wait for it, in one interleaved run.
//!
//! All methods start the same file with the same arguments and environment and wait in the same
//! way; those with a pipe read it to its end first. A child inherits standard input, output and
//! error unless a method's nature is another (popen-noshell gives it `/dev/null` to read from).
//!
//! Metrics of one spawn: `wall` lasts from before the method's first action (its pipe) until the
//! child is reaped. `blocked` is its part until the call that makes the child returns. `cpu_total`
//! is the processor time of this process and its children over a whole turn; `cpu_user` and
//! `cpu_system` are the kernel's estimated division of it. `first` lasts from before the method's
//! first action until the child's first instruction. It is taken from children of their own, which
//! read the clock and tell the time: that would lengthen `wall`. With several threads there is no
//! `first`; `rate` counts the spawns of all threads in a second.

mod libc_methods;
#[cfg(target_os = "linux")]
mod linux;
mod method;
pub mod selfcheck;
mod shells;
mod threads;
#[cfg(any(not(target_os = "linux"), test))]
pub(crate) mod vfork;
pub mod worker;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

#[cfg(target_os = "linux")]
pub(crate) use self::linux::raw;
pub use self::method::Method;
use self::shells::PlainSignals;
use self::threads::Pool;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::vfork as raw;
pub use self::worker::SpawnedProgram;
use self::worker::{Lap, Worker};
use crate::clock::{self, CpuTime};
use crate::engine::{self, Arm, Measured, Observer, Schedule, Turn};
use crate::error::Error;
use crate::guard::Guard;
use crate::noise::NoiseSnapshot;
use crate::page_kinds::Pages;
use crate::parent::{Descriptors, Memory};
use crate::program::{FirstInstruction, Kind, Program};
use crate::registry::{Columns, MetricPlot, Registration};
use crate::results::{Metric, Param, Params, Series, Suite, rows};
use crate::stats::bootstrap::Samples;
use crate::stdio::NullStdout;

/// The suite for those that show and compare.
pub(crate) const SUITE: Registration = Registration {
    name: "spawn",
    // As the published table has them.
    columns: Columns::Metrics { all: true },
    plots: &[
        MetricPlot::marks("wall"),
        MetricPlot::marks("blocked"),
        MetricPlot::marks("first"),
        MetricPlot::marks("rate"),
    ],
    ..Registration::DEFAULT
};

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The methods, each once.
    pub methods: Vec<Method>,
    /// What the children run.
    pub child: Kind,
    /// Bytes the parent has written before the measurement.
    pub rss: u64,
    /// Pages behind them.
    pub pages: Pages,
    /// Descriptors the parent holds open; 0 for no more than the program has.
    pub fds: u64,
    /// Threads that spawn at once; 1 measures in the calling thread.
    pub threads: usize,
    /// Length and density.
    pub schedule: Schedule,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            methods: Method::offered(),
            child: Kind::Exit,
            rss: 0,
            pages: Pages::Base,
            fds: 0,
            threads: 1,
            schedule: Schedule::default(),
        }
    }
}

const BLOCKED: Metric = Metric { name: "blocked", unit: "us", estimate: false };
const CPU_TOTAL: Metric = Metric { name: "cpu_total", unit: "us", estimate: false };
const CPU_USER: Metric = Metric { name: "cpu_user", unit: "us", estimate: true };
const CPU_SYSTEM: Metric = Metric { name: "cpu_system", unit: "us", estimate: true };
/// What every method is measured by.
pub const METRICS: [Metric; 5] = [Metric::WALL, BLOCKED, CPU_TOTAL, CPU_USER, CPU_SYSTEM];
/// Where [`METRICS`] has the processor time. The parts of the user and of the system follow.
pub const CPU_TOTAL_AT: usize = 2;
const _: () = assert!(matches!(METRICS[CPU_TOTAL_AT].name.as_bytes(), b"cpu_total"));
/// The series of an arm that comes behind those of [`METRICS`].
const FURTHER: usize = METRICS.len();
const FIRST: Metric = Metric { name: "first", unit: "us", estimate: false };

/// Measures. The parent's burden is taken up first and given back at the end, whatever the outcome.
///
/// # Errors
/// [`Error::Missing`] when the machine has not got the memory or the descriptors; [`Error::Spec`]
/// for a specification without methods, runs or threads; the first error of any spawn otherwise.
pub fn run(spec: &Spec, mut guard: Option<&mut Guard>, observer: &mut dyn Observer) -> Result<Suite, Error> {
    if spec.threads == 0 {
        return Err(Error::Spec("nobody can measure with 0 threads: there must be at least 1".into()));
    }
    let program = Program::prepare(&spec.child, guard.as_deref_mut())?;
    let target = SpawnedProgram::new(&program);
    // What a talking child writes must not end up among the results.
    let _quiet = program.writes().then(NullStdout::new).transpose()?;
    let _descriptors = (spec.fds > 0).then(|| Descriptors::held(spec.fds)).transpose()?;
    // A program of the system tells no times, and children of several threads would tell theirs in
    // one file.
    let is_first_told = spec.threads == 1 && !matches!(spec.child, Kind::File(_));
    let first = match is_first_told.then(|| FirstInstruction::prepare(guard.as_deref_mut())).transpose() {
        Err(Error::Missing(_)) if !cfg!(target_os = "linux") => None,
        first => first?.map(Rc::new),
    };
    let _pages = (spec.rss > 0).then(|| spec.pages.enable(spec.rss, guard)).transpose()?;
    let _memory = (spec.rss > 0).then(|| Memory::touched(spec.rss, spec.pages)).transpose()?;

    let overhead = clock::overhead();
    let further = match &first {
        Some(_) => Some(FIRST),
        None => (spec.threads > 1).then_some(Metric::RATE),
    };
    let shells =
        spec.methods.iter().any(|method| method.spares_a_shell()) && shells::line_gets_a_shell(&target);
    let mut arms = arms(spec, &target, first, overhead)?;
    let watch = NoiseSnapshot::start();
    let outcome = engine::run(&mut arms, &spec.schedule, observer)?;
    drop(arms);
    let noise = watch.finish(outcome.series.iter().map(|series| steady_series(series, further)));
    let mut notes = noise.warnings();
    if outcome.rounds < outcome.planned {
        notes.push(format!(
            "stopped for time after {} of {} rounds, {:.0} s",
            outcome.rounds,
            outcome.planned,
            outcome.elapsed.as_secs_f64()
        ));
    }
    #[cfg(target_os = "linux")]
    if spec.methods.contains(&Method::ForklessFull) && !linux::may_set_groups() {
        notes.push("forkless_full without groups: setting them needs root".to_owned());
    }
    if shells {
        notes.push("forkless_system and forkless_popen start a shell for each line here".to_owned());
    }
    if outcome.rounds < 20 {
        let rounds = if outcome.rounds == 1 { "round" } else { "rounds" };
        notes.push(format!("only {} {rounds}: the intervals are rough", outcome.rounds));
    }
    Ok(Suite {
        name: SUITE.name.to_owned(),
        seed: spec.schedule.seed,
        rounds: outcome.rounds,
        seconds: outcome.elapsed.as_secs_f64(),
        clock_overhead_ns: overhead,
        noise,
        notes,
        rows: rows(
            series(spec, outcome, further, shells),
            Some(Method::VforkExec.name()),
            spec.schedule.seed,
        ),
        ..Suite::default()
    })
}

/// The series whose wandering says most about the machine: with many threads, single spawns wait
/// for each other.
fn steady_series(series: &[Samples], further: Option<Metric>) -> &Samples {
    &series[if further == Some(Metric::RATE) { FURTHER } else { 0 }]
}

fn series(spec: &Spec, outcome: Measured, further: Option<Metric>, shells: bool) -> Vec<Series> {
    let params = Params::from([
        ("child".to_owned(), Param::Word(spec.child.name())),
        ("fds".to_owned(), Param::Number(spec.fds)),
        ("pages".to_owned(), Param::Word(spec.pages.to_string())),
        ("rss".to_owned(), Param::Number(spec.rss)),
        ("threads".to_owned(), Param::Number(spec.threads as u64)),
    ]);
    let mut all = Vec::new();
    for (method, series) in spec.methods.iter().zip(outcome.series) {
        let limit = if shells && method.spares_a_shell() { Method::System.limit() } else { method.limit() };
        let mut measured: Vec<(Metric, Samples)> = METRICS.into_iter().chain(further).zip(series).collect();
        if further == Some(FIRST) {
            // Beside the other times of the clock: a narrow table shows its first columns only.
            measured[2..].rotate_right(1);
        }
        for (metric, samples) in measured {
            all.push(Series {
                method: method.name().to_owned(),
                params: params.clone(),
                metric,
                limit: Some(limit.to_owned()),
                samples,
            });
        }
    }
    all
}

/// What starts children by a method.
///
/// # Errors
/// When the method's preparation fails.
pub fn worker(method: Method, target: &Arc<SpawnedProgram>) -> Result<Box<dyn Worker>, Error> {
    let (target, name) = (target.clone(), method.name());
    Ok(match method {
        Method::VforkExec => Box::new(libc_methods::Vfork { target, piped: false }),
        Method::VforkExecPipes => Box::new(libc_methods::Vfork { target, piped: true }),
        Method::PosixSpawn => Box::new(libc_methods::PosixSpawn { target, piped: false }),
        Method::PosixSpawnPipes => Box::new(libc_methods::PosixSpawn { target, piped: true }),
        Method::ForkExec => Box::new(libc_methods::Fork { target }),
        Method::System => Box::new(libc_methods::System { target, run: libc_methods::libc_system, name }),
        Method::Popen => {
            let open = libc_methods::libc_popen;
            Box::new(libc_methods::Popen { target, open, close: libc::pclose, name })
        }
        #[cfg(target_os = "linux")]
        _ => return linux::worker(method, target),
        #[cfg(not(target_os = "linux"))]
        _ => return Err(Error::Missing(format!("{name} is for Linux"))),
    })
}

fn arms(
    spec: &Spec,
    target: &Arc<SpawnedProgram>,
    first: Option<Rc<FirstInstruction>>,
    overhead: f64,
) -> Result<Vec<Box<dyn Arm>>, Error> {
    let workers = || spec.methods.iter().map(|&method| worker(method, target)).collect::<Result<Vec<_>, _>>();
    if spec.threads == 1 {
        return spec.methods.iter().map(|&method| single(method, target, first.as_ref(), overhead)).collect();
    }
    let sets = (0..spec.threads).map(|_| workers()).collect::<Result<Vec<_>, _>>()?;
    let pool = Rc::new(RefCell::new(Pool::new(sets)?));
    let arm = |method| Box::new(Crowd { pool: pool.clone(), method, overhead }) as Box<dyn Arm>;
    Ok((0..spec.methods.len()).map(arm).collect())
}

/// An arm for each method, repeated in the calling thread; its series are those of [`METRICS`].
pub fn single_arms(
    methods: &[Method],
    target: &Arc<SpawnedProgram>,
    overhead: f64,
) -> Result<Vec<Box<dyn Arm>>, Error> {
    methods.iter().map(|&method| single(method, target, None, overhead)).collect()
}

fn single(
    method: Method,
    target: &Arc<SpawnedProgram>,
    first: Option<&Rc<FirstInstruction>>,
    overhead: f64,
) -> Result<Box<dyn Arm>, Error> {
    let first = first.map(|first| {
        let worker = worker(method, &SpawnedProgram::new(&first.program))?;
        Ok(UntilFirst { worker, program: first.clone() })
    });
    Ok(Box::new(Single { worker: worker(method, target)?, first: first.transpose()?, overhead }))
}

/// Adds a lap to the series `wall` and `blocked`, in microseconds, without what the clock readings
/// inside it cost.
#[expect(clippy::cast_precision_loss, reason = "a double holds a hundred days of nanoseconds exactly")]
fn add_lap(turn: &mut Turn, lap: Lap, overhead: f64) {
    let microseconds =
        |nanoseconds: u64, readings: f64| (nanoseconds as f64 - readings * overhead).max(0.0) / 1e3;
    // Where the call returns with the child reaped, one reading ended both.
    let readings = if lap.returned == lap.reaped { 1.0 } else { 2.0 };
    turn.add(0, microseconds(lap.reaped - lap.start, readings));
    turn.add(1, microseconds(lap.returned - lap.start, 1.0));
}

#[expect(clippy::cast_precision_loss, reason = "a handful of spawns")]
fn add_cpu(turn: &mut Turn, used: CpuTime, spawns: usize) {
    turn.add(2, used.total() / spawns as f64);
    turn.add(3, used.user / spawns as f64);
    turn.add(4, used.system / spawns as f64);
}

/// A method repeated in the calling thread.
struct Single {
    worker: Box<dyn Worker>,
    first: Option<UntilFirst>,
    overhead: f64,
}

/// The same method with children that tell when they began.
struct UntilFirst {
    worker: Box<dyn Worker>,
    program: Rc<FirstInstruction>,
}

impl UntilFirst {
    /// Microseconds from before the method's first action until the child's first instruction.
    #[expect(clippy::cast_precision_loss, reason = "a double holds a hundred days of nanoseconds exactly")]
    fn spawn(&mut self, overhead: f64) -> Result<f64, Error> {
        let lap = self.worker.spawn()?;
        let first = self.program.time()?;
        if !(lap.start..=lap.reaped).contains(&first) {
            return Err(Error::Missing("a child's clock is not its parent's".into()));
        }
        let nanoseconds = first - lap.start;
        Ok((nanoseconds as f64 - overhead).max(0.0) / 1e3)
    }
}

impl Arm for Single {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let _plain = PlainSignals::take();
        let before = CpuTime::of_self_and_children();
        for _ in 0..settle {
            self.worker.spawn()?;
        }
        for _ in 0..counted {
            let lap = self.worker.spawn()?;
            add_lap(turn, lap, self.overhead);
        }
        add_cpu(turn, CpuTime::of_self_and_children().since(before), settle + counted);
        // After the turn's processor time was taken. A quarter as many are enough: the turn's other
        // children have warmed the caches for all but the first.
        if let Some(first) = &mut self.first {
            first.spawn(self.overhead)?;
            for _ in 0..counted.div_ceil(4) {
                turn.add(FURTHER, first.spawn(self.overhead)?);
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        FURTHER + usize::from(self.first.is_some())
    }
}

/// A method repeated in all threads of a pool at once.
struct Crowd {
    pool: Rc<RefCell<Pool>>,
    method: usize,
    overhead: f64,
}

impl Arm for Crowd {
    #[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of a turn")]
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let _plain = PlainSignals::take();
        let pool = self.pool.borrow();
        let total = counted * pool.len();
        let before = CpuTime::of_self_and_children();
        let laps = pool.run(self.method, settle, total)?;
        let used = CpuTime::of_self_and_children().since(before);
        // Every thread's laps would swamp the results with thousands of values a turn; every n-th
        // one stands for them.
        for &lap in laps.iter().skip(pool.len() / 2).step_by(pool.len()) {
            add_lap(turn, lap, self.overhead);
        }
        add_cpu(turn, used, (settle + counted) * pool.len());
        let (Some(first), Some(last)) = (laps.first(), laps.iter().map(|lap| lap.reaped).max()) else {
            return Ok(());
        };
        let elapsed = Duration::from_nanos(last - first.start).as_secs_f64();
        turn.add(FURTHER, total as f64 / elapsed);
        Ok(())
    }

    fn series(&self) -> usize {
        FURTHER + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Silent;

    fn quick(spec: Spec) -> Suite {
        run(&Spec { schedule: Schedule { runs: 10, ..Schedule::default() }, ..spec }, None, &mut Silent)
            .unwrap()
    }

    #[test]
    fn every_method_gives_every_metric() {
        for child in [Kind::Exit, Kind::Write] {
            let suite = quick(Spec { child, ..Spec::default() });
            for method in Method::offered() {
                for metric in METRICS.into_iter().chain([FIRST]) {
                    let found = suite
                        .rows
                        .iter()
                        .find(|row| row.method == method.name() && row.metric == metric.name);
                    // Only Linux children tell when they began.
                    let is_due = metric != FIRST || cfg!(target_os = "linux");
                    assert!(!is_due || found.is_some_and(|row| row.summary.n >= 2), "{method} {metric:?}");
                }
            }
            let vfork =
                suite.rows.iter().find(|row| row.method == "vfork_exec" && row.metric == "wall").unwrap();
            assert!(vfork.summary.median > 0.0);
            assert_eq!(vfork.ratio, None);
            let fork =
                suite.rows.iter().find(|row| row.method == "fork_exec" && row.metric == "wall").unwrap();
            assert_eq!(fork.ratio.as_ref().unwrap().to, "vfork_exec");
        }
    }

    #[test]
    fn threads_give_a_rate() {
        let suite =
            quick(Spec { threads: 3, methods: vec![Method::VforkExec, Method::Popen], ..Spec::default() });
        let rates: Vec<_> = suite.rows.iter().filter(|row| row.metric == "rate").collect();
        assert_eq!(rates.len(), 2);
        assert!(rates.iter().all(|row| row.summary.median > 0.0));
        assert!(suite.rows.iter().all(|row| row.metric != "first"));
    }

    #[test]
    fn only_the_programs_made_here_tell_their_first_instructions_time() {
        let rows = |child| {
            let methods = vec![Method::VforkExec, Method::System];
            let rows = quick(Spec { methods, child, ..Spec::default() }).rows;
            rows.into_iter().filter(|row| row.metric == "first").collect::<Vec<_>>()
        };
        let told = rows(Kind::Exit);
        assert_eq!(told.len(), if cfg!(target_os = "linux") { 2 } else { 0 });
        assert!(told.iter().all(|row| row.summary.min > 0.0));
        assert_eq!(rows(Kind::File("/bin/true".into())), []);
    }

    #[test]
    fn no_threads_and_no_methods_are_refused() {
        let refused = |spec: Spec| matches!(run(&spec, None, &mut Silent), Err(Error::Spec(_)));
        assert!(refused(Spec { threads: 0, ..Spec::default() }));
        assert!(refused(Spec { methods: vec![], ..Spec::default() }));
    }

    #[test]
    fn a_burdened_parent_is_measured_and_left_as_it_was() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let suite = quick(Spec {
            rss: 32 << 20,
            fds: 200,
            methods: vec![Method::VforkExec, Method::NoshellCloneCompat1],
            ..Spec::default()
        });
        assert_eq!(suite.rows[0].params["rss"], Param::Number(32 << 20));
        // Other tests of this process hold descriptors too, but not two hundred.
        assert!(open() < 150);
    }
}
