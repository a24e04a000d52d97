//! The `memory` suite: the cost of starting a program from a parent that holds much memory. It
//! depends on the size, on the share of memory that was ever written, and on the kind of pages.
//!
//! For fork, three metrics beside those of the `spawn` suite divide its time. `until_exec` lasts
//! until the child has become the program; by then the copied page tables are gone again. `wait`
//! lasts from then until the child is reaped. `teardown` is taken from a forked child that exits at
//! once: from its last instruction until the parent has reaped it. What a method costs is then
//! fitted as a constant and a share a GiB.
//!
//! Sizes that do not fit the machine and pages it does not give are left out, and a note says so.
//! System settings change only as root, and go back to what they were.

#![expect(unsafe_code, reason = "fork, and memory shared with the forked child")]

use std::fmt;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::{self, now};
use crate::engine::{self, Arm, Observer, Schedule, Turn};
use crate::error::Error;
use crate::guard::Guard;
use crate::memory as room;
use crate::page_kinds::Pages;
use crate::parent::Memory;
use crate::program::{Kind, Program};
use crate::registry::{MetricPlot, Registration};
use crate::results::{Fit, Metric, Param, Params, Row, Series, Suite, rows};
use crate::spawn::worker::{self, drain, fork_exec, pipe, reap};
use crate::spawn::{METRICS, Method, SpawnedProgram, single_arms};
use crate::stats::line::fit_medians;
use crate::suites::in_stages;
use crate::under_run::{self, Remote, ServingProgram};

/// The suite for those that show, compare and fit.
pub(crate) const SUITE: Registration = Registration {
    name: "memory",
    plots: &[MetricPlot::over_memory("wall"), MetricPlot::over_memory("blocked")],
    fits: Some(fits),
    host: Some(host),
    ..Registration::DEFAULT
};

/// The part of a process with the preloaded library: the same memory, the same fork and exec.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    pages: String,
    allocated: u64,
    used: u64,
    program: Vec<u8>,
    overhead: f64,
}

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Bytes the parent has mapped.
    pub sizes: Vec<u64>,
    /// Percentages of that which it has written.
    pub usage: Vec<u64>,
    /// Kinds of pages.
    pub pages: Vec<Pages>,
    /// Methods; `vfork_exec` is what the others are compared with.
    pub methods: Vec<Method>,
    /// Measure fork and exec in a process with the preloaded library, too; it holds the same memory
    /// once more.
    pub under_run: Option<ServingProgram>,
    /// Length and density of the run at each size.
    pub schedule: Schedule,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            sizes: vec![0, 256 << 20, 512 << 20, 1 << 30],
            usage: vec![100],
            pages: vec![Pages::Base, Pages::Thp(2048)],
            methods: Method::only_offered(&[
                Method::VforkExec,
                Method::CloneVm,
                Method::PosixSpawn,
                Method::Forkless,
                Method::ForkExec,
                Method::System,
                Method::Popen,
            ]),
            under_run: None,
            schedule: Schedule { runs: 200, ..Schedule::default() },
        }
    }
}

const UNTIL_EXEC: Metric = Metric { name: "until_exec", unit: "us", estimate: false };
const TEARDOWN: Metric = Metric { name: "teardown", unit: "us", estimate: false };
const WAIT: Metric = Metric { name: "wait", unit: "us", estimate: false };
const PARTS: [Metric; 3] = [UNTIL_EXEC, TEARDOWN, WAIT];

/// One state of the parent.
#[derive(Debug, Clone, Copy)]
struct State {
    pages: Pages,
    allocated: u64,
    used: u64,
}

/// Measures every state in turn; within a state all methods are interleaved.
///
/// # Errors
/// As [`spawn::run`](crate::spawn::run); a state the machine cannot take is a note, not an error.
pub fn run(spec: &Spec, mut guard: Option<&mut Guard>, observer: &mut dyn Observer) -> Result<Suite, Error> {
    let program = Program::prepare(&Kind::Exit, guard.as_deref_mut())?;
    let target = SpawnedProgram::new(&program);
    let overhead = clock::overhead();
    let suite = Suite {
        name: SUITE.name.into(),
        seed: spec.schedule.seed,
        clock_overhead_ns: overhead,
        ..Suite::default()
    };
    let mut suite =
        in_stages(suite, &states(spec), observer, ToString::to_string, |&state, progress, suite| {
            let rows = measure(spec, state, &target, overhead, guard.as_deref_mut(), progress, suite)?;
            let wall = rows.iter().find(|row| row.metric == "wall").map(Row::grouped);
            suite.rows.extend(rows);
            Ok(wall)
        })?;
    suite.fits = fits(&suite.rows, spec.schedule.seed);
    Ok(suite)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pages", mib(self.used), self.pages)
    }
}

impl State {
    fn params(&self) -> Params {
        Params::from([
            ("allocated".to_owned(), Param::Number(self.allocated)),
            ("pages".to_owned(), Param::Word(self.pages.to_string())),
            ("used".to_owned(), Param::Number(self.used)),
        ])
    }
}

fn states(spec: &Spec) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    for &pages in &spec.pages {
        for &allocated in &spec.sizes {
            for &percent in &spec.usage {
                let used = allocated / 100 * percent.min(100) + allocated % 100 * percent.min(100) / 100;
                let state = State { pages, allocated, used };
                // Without memory there is no share of it to vary.
                let same =
                    |other: &State| (other.pages, other.allocated, other.used) == (pages, allocated, used);
                if !states.iter().any(same) {
                    states.push(state);
                }
            }
        }
    }
    states
}

fn measure(
    spec: &Spec,
    state: State,
    target: &Arc<SpawnedProgram>,
    overhead: f64,
    mut guard: Option<&mut Guard>,
    observer: &mut dyn Observer,
    suite: &mut Suite,
) -> Result<Vec<Row>, Error> {
    // A pool takes its pages away from everybody when it grows, so what is written is not all that
    // must fit.
    let wanted = if matches!(state.pages, Pages::Hugetlb(_)) { state.allocated } else { state.used };
    room::require(wanted)?;
    // The process with the preloaded library holds as much again; where that does not fit, it alone
    // is left out.
    let fits = wanted.saturating_mul(2) <= room::largest_safe();
    let twice = under_run::if_it_fits(spec.under_run.as_ref(), fits, &format!(" with {state}"), suite);
    let pages = if twice.is_some() { state.allocated * 2 } else { state.allocated };
    let enabled =
        (state.allocated > 0).then(|| state.pages.enable(pages, guard.as_deref_mut())).transpose()?;
    suite.notes.extend(enabled.as_ref().and_then(|enabled| enabled.note.clone()));
    let mut memory =
        (state.allocated > 0).then(|| Memory::mapped(state.allocated, state.pages)).transpose()?;
    if let Some(memory) = &mut memory {
        memory.touch(usize::try_from(state.used).unwrap_or(usize::MAX));
        note_missing_huge_pages(state, memory, suite);
    }
    let setup = Setup {
        pages: state.pages.to_string(),
        allocated: state.allocated,
        used: state.used,
        program: target.path.as_bytes().to_vec(),
        overhead,
    };
    let forker = under_run::start(twice, &setup, guard, suite)?;
    let series = METRICS.len();
    let mut arms: Vec<Box<dyn Arm + '_>> = Vec::new();
    for arm in single_arms(&spec.methods, target, overhead)? {
        arms.push(arm);
    }
    let splits = spec.methods.contains(&Method::ForkExec);
    if splits {
        arms.push(Box::new(Split { target: target.clone(), stamp: Stamp::new()?, overhead }));
    }
    if let Some(forker) = &forker {
        arms.push(Box::new(Remote { forker, series }));
    }
    let outcome = engine::run(&mut arms, &spec.schedule, observer)?;
    drop(arms);
    suite.rounds += outcome.rounds;
    suite.seconds += outcome.elapsed.as_secs_f64();
    if outcome.rounds < outcome.planned {
        let (rounds, planned) = (outcome.rounds, outcome.planned);
        suite.notes.push(format!("{state}: stopped for time after {rounds} of {planned} rounds"));
    }
    let mut names: Vec<(&str, String, &[Metric])> = Vec::new();
    names.extend(
        spec.methods.iter().map(|&method| (method.name(), limit(method, state.pages), &METRICS[..series])),
    );
    if splits {
        names.push((Method::ForkExec.name(), limit(Method::ForkExec, state.pages), &PARTS));
    }
    match under_run::finish(forker, suite)? {
        Some(done) if done.speculated() => {
            names.push((under_run::METHOD, Method::Forkless.limit().to_owned(), &METRICS[..series]));
        }
        Some(done) => {
            // Left alone, as below the library's threshold. A user gets a plain fork, too, and the
            // row says so.
            let plain = format!("not speculated: {}", done.reasons.join(", "));
            names.push((under_run::METHOD, plain, &METRICS[..series]));
            suite.notes.push(format!("{state}: {}", done.note().unwrap_or_default()));
        }
        None => {}
    }
    let params = state.params();
    let mut all = Vec::new();
    for ((method, limit, metrics), series) in names.into_iter().zip(outcome.series) {
        for (&metric, samples) in metrics.iter().zip(series) {
            all.push(Series {
                method: method.to_owned(),
                params: params.clone(),
                metric,
                limit: Some(limit.clone()),
                samples,
            });
        }
    }
    Ok(rows(all, Some(Method::VforkExec.name()), spec.schedule.seed))
}

/// What a row is limited by.
fn limit(method: Method, pages: Pages) -> String {
    let limit = match (method, pages) {
        // copy_huge_pmd, mm/huge_memory.c: pte_alloc_one for every huge page, kept for the day it
        // is split. The child's exit frees them, the next fork takes the same ones. Forks with a
        // cold cache lie on a straight line, at twice the price.
        (Method::ForkExec, Pages::Thp(2048)) => {
            "a page table zeroed for every huge page: forks in a row find them in the processor's cache while they fit, so \
             the line bends upwards"
        }
        _ => method.limit(),
    };
    limit.to_owned()
}

/// Builds the second process's part.
fn host(
    setup: &serde_json::Value,
    serve: &mut dyn FnMut(&mut dyn Arm) -> io::Result<()>,
) -> Result<io::Result<()>, Error> {
    let Setup { pages, allocated, used, program, overhead } = under_run::setup(setup)?;
    let mut memory = (allocated > 0).then(|| Memory::mapped(allocated, pages.parse()?)).transpose()?;
    if let Some(memory) = &mut memory {
        memory.touch(usize::try_from(used).unwrap_or(usize::MAX));
    }
    let mut arms = single_arms(&[Method::ForkExec], &SpawnedProgram::at(&program)?, overhead)?;
    Ok(serve(arms[0].as_mut()))
}

/// The kernel falls back to small pages silently; the figures would then be those of something
/// else.
fn note_missing_huge_pages(state: State, memory: &Memory, suite: &mut Suite) {
    if !matches!(state.pages, Pages::Thp(2048) | Pages::Hugetlb(_)) {
        return;
    }
    let Some(huge) = memory.huge_bytes() else {
        let note =
            format!("{} pages: /proc/self/smaps does not tell whether the kernel gave them", state.pages);
        if !suite.notes.contains(&note) {
            suite.notes.push(note);
        }
        return;
    };
    if huge < state.used / 10 * 9 {
        suite.notes.push(format!(
            "{} of {} pages: the kernel gave only {} of them",
            mib(state.used),
            state.pages,
            mib(huge)
        ));
    }
}

/// A page shared with forked children, for the time of their last instruction.
struct Stamp {
    page: NonNull<AtomicU64>,
}

impl Stamp {
    fn new() -> Result<Stamp, Error> {
        // SAFETY: a new anonymous mapping at an address the kernel chooses touches no existing
        // memory.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(page.cast::<AtomicU64>()) {
            Some(pointer) if page != libc::MAP_FAILED => Ok(Stamp { page: pointer }),
            _ => Err(Error::last_os("map a page shared with children")),
        }
    }

    fn time(&self) -> &AtomicU64 {
        // SAFETY: the mapping is zeroed, aligned and lives as long as `self`.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`; no reference into it outlives `self`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), 4096) };
    }
}

/// The parts of fork's time: one fork that leads to an exec and one that exits at once.
struct Split {
    target: Arc<SpawnedProgram>,
    stamp: Stamp,
    overhead: f64,
}

impl Split {
    /// Fork and exec; a close-on-exec pipe ends when the child has become the program.
    fn fork_exec(&self) -> Result<[u64; 3], Error> {
        let (read, write) = pipe()?;
        let start = now();
        let pid = fork_exec(&self.target)?;
        drop(write);
        debug_assert!(read.as_raw_fd() > 2);
        drain(&read)?;
        let became = now();
        let status = reap(pid, 0)?;
        let reaped = now();
        Error::check_status("fork_exec", status)?;
        Ok([start, became, reaped])
    }

    /// Fork and exit: from the child's last instruction until it is reaped.
    fn fork_exit(&self) -> Result<[u64; 2], Error> {
        let last_instruction = || {
            self.stamp.time().store(now(), Ordering::Relaxed);
            0
        };
        // SAFETY: the child reads the clock and writes to shared memory.
        let pid = unsafe { worker::fork(last_instruction) }?;
        let status = reap(pid, 0)?;
        let reaped = now();
        Error::check_status("fork", status)?;
        Ok([self.stamp.time().load(Ordering::Relaxed), reaped])
    }
}

impl Arm for Split {
    #[expect(clippy::cast_precision_loss, reason = "a double holds a hundred days of nanoseconds exactly")]
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let us = |from: u64, to: u64| (to.saturating_sub(from) as f64 - self.overhead).max(0.0) / 1e3;
        for repetition in 0..settle + counted {
            let [start, became, reaped] = self.fork_exec()?;
            let [last, gone] = self.fork_exit()?;
            if repetition >= settle {
                turn.add(0, us(start, became));
                turn.add(1, us(last, gone));
                turn.add(2, us(became, reaped));
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        PARTS.len()
    }
}

/// For every method, kind of pages and time metric: a constant and a growth with the memory used,
/// from the medians; their intervals from resampled rounds at every size.
pub(crate) fn fits(rows: &[Row], seed: u64) -> Vec<Fit> {
    let mut fits: Vec<Fit> = Vec::new();
    for row in rows {
        let pages = row.params.get("pages").map(ToString::to_string).unwrap_or_default();
        let known = |fit: &Fit| fit.method == row.method && fit.metric == row.metric && fit.pages == pages;
        if row.metric.starts_with("cpu_") || fits.iter().any(known) {
            continue;
        }
        let group: Vec<&Row> = rows
            .iter()
            .filter(|other| other.method == row.method && other.metric == row.metric)
            .filter(|other| other.params.get("pages") == row.params.get("pages"))
            .collect();
        fits.extend(fit(&group, pages, seed));
    }
    fits
}

#[expect(clippy::cast_precision_loss, reason = "sizes of memory fit a double")]
fn fit(group: &[&Row], pages: String, seed: u64) -> Option<Fit> {
    let gib = |row: &Row| row.number("used").unwrap_or(0) as f64 / f64::from(1 << 30);
    if group.len() < 3 {
        return None;
    }
    let series: Vec<_> = group.iter().map(|row| (gib(row), row.grouped())).collect();
    let fitted = fit_medians(&series, 1000, seed)?;
    let first = group.first()?;
    Some(Fit {
        method: first.method.clone(),
        pages,
        metric: first.metric.clone(),
        constant_us: fitted.line.intercept,
        constant_us_ci95: fitted.intercept?,
        per_gib_ms: fitted.line.slope / 1e3,
        per_gib_ms_ci95: fitted.slope?.map(|end| end / 1e3),
        r2: fitted.line.r2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Silent;

    #[test]
    fn states_without_memory_do_not_multiply() {
        let spec =
            Spec { sizes: vec![0, 1000], usage: vec![50, 100], pages: vec![Pages::Base], ..Spec::default() };
        let used: Vec<u64> = states(&spec).iter().map(|state| state.used).collect();
        assert_eq!(used, [0, 500, 1000]);
    }

    #[test]
    fn every_state_has_rows_and_fork_has_parts_and_a_fit() {
        let spec = Spec {
            sizes: vec![0, 8 << 20, 16 << 20],
            pages: vec![Pages::Base],
            methods: vec![Method::VforkExec, Method::ForkExec],
            schedule: Schedule { runs: 20, ..Schedule::default() },
            ..Spec::default()
        };
        let suite = run(&spec, None, &mut Silent).unwrap();
        for used in [0, 8 << 20, 16 << 20] {
            for metric in ["wall", "blocked", "until_exec", "teardown", "wait"] {
                let found = suite.rows.iter().find(|row| {
                    row.method == "fork_exec"
                        && row.metric == metric
                        && row.params["used"] == Param::Number(used)
                });
                assert!(found.is_some_and(|row| row.summary.median > 0.0), "{metric} at {used}");
            }
        }
        let fit = suite.fits.iter().find(|fit| fit.method == "fork_exec" && fit.metric == "blocked").unwrap();
        assert!(fit.per_gib_ms_ci95[0] <= fit.per_gib_ms && fit.per_gib_ms <= fit.per_gib_ms_ci95[1]);
    }

    #[test]
    fn what_the_machine_has_not_got_is_a_note() {
        let spec = Spec {
            sizes: vec![1 << 50],
            pages: vec![Pages::Base],
            schedule: Schedule { runs: 5, ..Schedule::default() },
            ..Spec::default()
        };
        let suite = run(&spec, None, &mut Silent).unwrap();
        assert!(suite.rows.is_empty());
        assert!(suite.notes.iter().any(|note| note.starts_with("skipped: ")), "{:?}", suite.notes);
    }
}
