//! The `cow` suite: the cost that a fork leaves behind for its parent. After a fork both processes
//! share every page, write-protected. The parent's next write to each page takes a fault. The fault
//! copies the page while the child lives, and changes only the page-table entry once the child is
//! gone.
//!
//! One repetition is the published procedure: passes that write one byte to every page, timed with
//! the thread's processor clock; a child; the same passes again. Metrics: `before` and `after` are
//! medians of the undisturbed passes; `first` is the pass right after the child was made. `faults`
//! counts that pass's page faults. `copied` is the share of pages that lie elsewhere afterwards,
//! told by their physical addresses (root only). With transparent huge pages, `huge_left` is the
//! share of memory still backed by them. `collapse` is the time MADV_COLLAPSE takes to restore the
//! rest, after each repetition.

#![expect(unsafe_code, reason = "fork, thread clocks and madvise")]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::{self, Arm, Observer, Schedule, Turn};
use crate::error::Error;
use crate::guard::Guard;
use crate::machine::page_size;
use crate::page_kinds::Pages;
use crate::parent::Memory;
use crate::program::{Kind, Program};
use crate::registry::{MetricPlot, Registration};
use crate::results::{Metric, Param, Params, Row, Series, Suite, rows};
use crate::spawn::worker::{Worker, fork, reap};
use crate::spawn::{Method, SpawnedProgram, worker};
use crate::stats::bootstrap::Samples;
use crate::stats::median;
use crate::suites::in_stages;
use crate::under_run::{self, Remote, ServingProgram};

/// The suite for those that show and compare. A pass is measured against the one that nothing
/// disturbs.
pub(crate) const SUITE: Registration = Registration {
    name: "cow",
    plots: &[MetricPlot::marks("first")],
    yardstick: |rows, row| {
        if row.unit != "ms" {
            return (Registration::DEFAULT.yardstick)(rows, row);
        }
        let same = |other: &&Row| (&other.method, &other.params) == (&row.method, &row.params);
        rows.iter().filter(same).find(|other| other.metric == "before")
    },
    picture: Some(bars),
    host: Some(host),
    ..Registration::DEFAULT
};

/// The part of a process with the preloaded library: the same procedure around a fork and exec of
/// its own.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    pages: String,
    bytes: u64,
    stride: u64,
    passes: usize,
    program: Vec<u8>,
}

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Pages of the base size the parent holds.
    pub count: u64,
    /// Every how many pages a pass writes: 1 for all of them.
    pub stride: Vec<u64>,
    /// Passes before and after the child.
    pub passes: usize,
    /// Kinds of pages.
    pub pages: Vec<Pages>,
    /// Methods that run a program; fork alone, its child dead or alive, is always measured.
    pub methods: Vec<Method>,
    /// Measure the procedure in a process with the preloaded library, too; it holds the same memory
    /// once more.
    pub under_run: Option<ServingProgram>,
    /// `runs` is the number of repetitions of the whole procedure.
    pub schedule: Schedule,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            count: 100_000,
            stride: vec![1],
            passes: 10,
            pages: vec![Pages::Base, Pages::Thp(2048)],
            methods: Method::only_offered(&[
                Method::VforkExec,
                Method::PosixSpawn,
                Method::System,
                Method::Forkless,
                Method::ForkExec,
            ]),
            under_run: None,
            schedule: Schedule { runs: 10, per_turn: 1, ..Schedule::default() },
        }
    }
}

const METRICS: [Metric; 7] = [
    Metric { name: "before", unit: "ms", estimate: false },
    Metric { name: "first", unit: "ms", estimate: false },
    Metric { name: "after", unit: "ms", estimate: false },
    Metric { name: "faults", unit: "faults", estimate: false },
    Metric { name: "copied", unit: "%", estimate: false },
    Metric { name: "huge_left", unit: "%", estimate: false },
    Metric { name: "collapse", unit: "ms", estimate: false },
];

/// Measures each kind of pages in turn; within it all methods are interleaved.
///
/// # Errors
/// [`Error::Spec`] for no pages or passes; the first error of any child. Kinds of pages the machine
/// does not give are notes.
pub fn run(spec: &Spec, mut guard: Option<&mut Guard>, observer: &mut dyn Observer) -> Result<Suite, Error> {
    if spec.count == 0 || spec.passes == 0 || spec.stride.contains(&0) {
        return Err(Error::Spec("pages, passes and strides must be at least 1".into()));
    }
    let program = Program::prepare(&Kind::Exit, guard.as_deref_mut())?;
    let target = SpawnedProgram::new(&program);
    let suite = Suite { name: SUITE.name.into(), seed: spec.schedule.seed, ..Suite::default() };
    let with_strides = |&pages| spec.stride.iter().map(move |&stride| (pages, stride));
    let stages: Vec<(Pages, u64)> = spec.pages.iter().flat_map(with_strides).collect();
    let name = |(pages, _): &(Pages, u64)| format!("{pages} pages");
    let mut suite = in_stages(suite, &stages, observer, name, |&(pages, stride), progress, suite| {
        measure(spec, pages, stride, &target, guard.as_deref_mut(), progress, suite)
    })?;
    if suite.rows.iter().any(|row| row.params.get("pages") == Some(&Param::Word("thp-2m".into())))
        && suite.rows.iter().all(|row| row.metric != "huge_left")
    {
        suite.notes.push("huge_left: not measured, /proc/self/smaps does not tell".into());
    }
    if File::open("/proc/self/pagemap").is_err() || suite.rows.iter().all(|row| row.metric != "copied") {
        let to_whom = if cfg!(target_os = "linux") { "to root only" } else { "on Linux only" };
        suite.notes.push(format!("copied: not measured, physical addresses are shown {to_whom}"));
    }
    Ok(suite)
}

fn measure(
    spec: &Spec,
    pages: Pages,
    stride: u64,
    target: &Arc<SpawnedProgram>,
    mut guard: Option<&mut Guard>,
    observer: &mut dyn Observer,
    suite: &mut Suite,
) -> Result<Option<Samples>, Error> {
    let bytes = spec.count.checked_mul(page_size()).filter(|bytes| *bytes <= u64::MAX / 3);
    let bytes =
        bytes.ok_or_else(|| Error::Spec(format!("{} pages are more than any memory has", spec.count)))?;
    // A child that lives through the passes keeps the old copy of every page.
    crate::memory::require(2 * bytes)?;
    let fits = 3 * bytes <= crate::memory::largest_safe();
    let second = under_run::if_it_fits(spec.under_run.as_ref(), fits, &format!(", {pages} pages"), suite);
    let enabled = pages.enable(if second.is_some() { 3 } else { 2 } * bytes, guard.as_deref_mut())?;
    suite.notes.extend(enabled.note.clone());
    let mut memory = Memory::mapped(bytes, pages)?;
    memory.touch(usize::try_from(bytes).unwrap_or(usize::MAX));
    let memory = RefCell::new(memory);
    let setup = Setup {
        pages: pages.to_string(),
        bytes,
        stride,
        passes: spec.passes,
        program: target.path.as_bytes().to_vec(),
    };
    let forker = under_run::start(second, &setup, guard, suite)?;
    let mut names: Vec<(&str, &str)> = vec![("fork", "dead"), ("fork", "alive")];
    names.extend(spec.methods.iter().map(|method| (method.name(), "dead")));
    let mut arms: Vec<Box<dyn Arm + '_>> = Vec::new();
    for index in 0..names.len() {
        let child = match index {
            0 => Child::Exits,
            1 => Child::Lives,
            _ => Child::Program(worker(spec.methods[index - 2], target)?),
        };
        arms.push(Box::new(Procedure { child, memory: &memory, pages, stride, passes: spec.passes }));
    }
    if let Some(forker) = &forker {
        arms.push(Box::new(Remote { forker, series: METRICS.len() }));
    }
    let outcome = engine::run(&mut arms, &spec.schedule, observer)?;
    drop(arms);
    match under_run::finish(forker, suite)? {
        // A row of plain forks would claim what was not measured.
        Some(done) if done.speculated() => names.push((under_run::METHOD, "dead")),
        Some(done) => suite.notes.extend(done.note().map(|note| format!("skipped: {note}"))),
        None => {}
    }
    suite.rounds += outcome.rounds;
    suite.seconds += outcome.elapsed.as_secs_f64();
    let steady = outcome.series.first().map(|series| series[0].clone());
    let params = Params::from([
        ("pages".to_owned(), Param::Word(pages.to_string())),
        ("size".to_owned(), Param::Number(bytes)),
        ("stride".to_owned(), Param::Number(stride)),
    ]);
    suite.rows.extend(rows(series_of(names, &params, outcome.series), None, spec.schedule.seed));
    Ok(steady)
}

/// The series of the methods named, with what their child was, in the order of the arms.
fn series_of(names: Vec<(&str, &str)>, params: &Params, measured: Vec<Vec<Samples>>) -> Vec<Series> {
    let mut all = Vec::new();
    for ((method, child), series) in names.into_iter().zip(measured) {
        let mut params = params.clone();
        params.insert("child".to_owned(), Param::Word(child.to_owned()));
        // A process whose forks were not speculated has no row.
        let limit = if method == "fork" || method == Method::ForkExec.name() {
            "a write fault for every page: a copy while a child shares it, else only the permission"
        } else {
            "no page is shared: a pass is its writes"
        };
        for (metric, samples) in METRICS.into_iter().zip(series) {
            if samples.values.is_empty() {
                continue;
            }
            all.push(Series {
                method: method.to_owned(),
                params: params.clone(),
                metric,
                limit: Some(limit.to_owned()),
                samples,
            });
        }
    }
    all
}

/// The published picture of the `cow` suite: one `*` a millisecond for the first pass after the
/// child, between the passes before and after it.
#[must_use]
fn bars(suite: &Suite) -> String {
    let mut text =
        String::from("\npass before, first pass after the child, later passes; one * a millisecond\n");
    let named = |row: &Row| {
        let word = |name: &str| row.params.get(name).map(ToString::to_string).unwrap_or_default();
        format!("{} ({}), {}", row.method, word("child"), word("pages"))
    };
    let firsts = || suite.rows.iter().filter(|row| row.metric == "first");
    let width = firsts().map(|row| named(row).len()).max().unwrap_or(0);
    for row in firsts() {
        let same = |metric: &str| {
            let found = suite.rows.iter().find(|other| {
                other.method == row.method && other.params == row.params && other.metric == metric
            });
            found.map_or(0.0, |row| row.summary.median)
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to a line's length"
        )]
        let stars = |milliseconds: f64| "*".repeat(milliseconds.clamp(0.0, 100.0).round() as usize);
        let name = named(row);
        for (label, value) in [(name.as_str(), same("before")), ("", row.summary.median), ("", same("after"))]
        {
            let _ =
                writeln!(text, "{}", format!("{label:<width$} {value:>8.2} ms {}", stars(value)).trim_end());
        }
    }
    text
}

/// Builds the second process's part.
fn host(
    setup: &serde_json::Value,
    serve: &mut dyn FnMut(&mut dyn Arm) -> io::Result<()>,
) -> Result<io::Result<()>, Error> {
    let Setup { pages, bytes, stride, passes, program } = under_run::setup(setup)?;
    let pages: Pages = pages.parse()?;
    let mut memory = Memory::mapped(bytes, pages)?;
    memory.touch(usize::try_from(bytes).unwrap_or(usize::MAX));
    let memory = RefCell::new(memory);
    let child = Child::Program(worker(Method::ForkExec, &SpawnedProgram::at(&program)?)?);
    let mut arm = Procedure { child, memory: &memory, pages, stride, passes };
    Ok(serve(&mut arm))
}

/// What happens between the passes.
enum Child {
    /// Forked; exits at once and is reaped before the passes go on.
    Exits,
    /// Forked; lives until the passes are over.
    Lives,
    /// Runs a program to its end, by some method.
    Program(Box<dyn Worker>),
}

struct Procedure<'a> {
    child: Child,
    memory: &'a RefCell<Memory>,
    pages: Pages,
    stride: u64,
    passes: usize,
}

impl Procedure<'_> {
    /// Milliseconds of processor time for one byte written to every `stride`-th page.
    fn pass(&self, value: u8) -> f64 {
        let mut memory = self.memory.borrow_mut();
        let before = thread_time();
        memory.write_every(self.stride, value);
        thread_time() - before
    }

    fn passes(&self) -> Vec<f64> {
        (0..self.passes).map(|pass| self.pass(u8::try_from(pass % 251).unwrap_or(0))).collect()
    }

    /// Makes the child; the pid of one that lives on.
    fn make_child(&mut self) -> Result<Option<i32>, Error> {
        let lives = match &mut self.child {
            Child::Program(worker) => return worker.spawn().map(|_| None),
            Child::Exits => false,
            Child::Lives => true,
        };
        let live = || {
            if lives {
                live_as_long_as_the_parent();
            }
            0
        };
        // SAFETY: the child makes only system calls.
        let pid = unsafe { fork(live) }?;
        if lives {
            return Ok(Some(pid));
        }
        Error::check_status("fork", reap(pid, 0)?)?;
        Ok(None)
    }
}

impl Arm for Procedure<'_> {
    #[expect(clippy::cast_precision_loss, reason = "counts of faults and pages")]
    fn turn(&mut self, _settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        for _ in 0..counted {
            // What another arm's child left behind is paid for here, not in the first timed pass.
            self.pass(0);
            let before = self.passes();
            let places = places(&self.memory.borrow());
            let living = self.make_child()?;
            let faults = minor_faults();
            let first = self.pass(255);
            let faults = minor_faults() - faults;
            let moved = places.zip(self::places(&self.memory.borrow()));
            let after: Vec<f64> = (1..self.passes).map(|_| self.pass(1)).collect();
            if let Some(pid) = living {
                // SAFETY: the pid is a child of this process that has not been reaped.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                reap(pid, 0)?;
            }
            turn.add(0, median(&before));
            turn.add(1, first);
            if !after.is_empty() {
                turn.add(2, median(&after));
            }
            turn.add(3, faults as f64);
            if let Some((old, new)) = moved {
                let moved = old.iter().zip(&new).filter(|(old, new)| old != new).count();
                turn.add(4, 100.0 * moved as f64 / old.len().max(1) as f64);
            }
            if let Pages::Thp(2048) = self.pages {
                let memory = self.memory.borrow();
                if let Some(huge) = memory.huge_bytes() {
                    turn.add(5, (100.0 * huge as f64 / memory.bytes().max(1) as f64).min(100.0));
                }
                if let Some(milliseconds) = memory.collapse() {
                    turn.add(6, milliseconds);
                }
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        METRICS.len()
    }
}

/// Waits to be killed. Nobody would kill this child if the bench itself is killed during the
/// passes: it dies with its parent.
#[cfg(target_os = "linux")]
fn live_as_long_as_the_parent() {
    // SAFETY: affects only this child.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    loop {
        // SAFETY: waits for a signal, and the only one coming kills.
        unsafe { libc::pause() };
    }
}

/// Where no signal tells of the parent's death, looks after it each second: an orphan has got
/// another parent.
#[cfg(not(target_os = "linux"))]
fn live_as_long_as_the_parent() {
    // SAFETY: getppid has no preconditions.
    let parent = unsafe { libc::getppid() };
    // SAFETY: as above.
    while unsafe { libc::getppid() } == parent {
        // SAFETY: sleep has no preconditions; this child has one thread.
        unsafe { libc::sleep(1) };
    }
}

/// Milliseconds of processor time of this thread.
#[expect(clippy::cast_precision_loss, reason = "a double holds a hundred days of nanoseconds exactly")]
pub fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable and every supported system has the clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn minor_faults() -> i64 {
    // SAFETY: rusage is plain integers; all zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable memory of the right type.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_minflt
}

/// Physical page numbers of up to a thousand pages spread over the memory; `None` where the kernel
/// hides them (proc_pid_pagemap(5): without CAP_SYS_ADMIN they read as zero).
fn places(memory: &Memory) -> Option<Vec<u64>> {
    let map = File::open("/proc/self/pagemap").ok()?;
    let page = page_size();
    let count = memory.bytes() as u64 / page;
    let first = memory.start().as_ptr() as u64 / page;
    let step = (count / 1000).max(1);
    let mut places = Vec::new();
    for index in (0..count).step_by(usize::try_from(step).ok()?) {
        let mut entry = [0; 8];
        map.read_exact_at(&mut entry, (first + index) * 8).ok()?;
        places.push(u64::from_ne_bytes(entry) & ((1 << 55) - 1));
    }
    places.iter().any(|&place| place != 0).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Silent;

    #[test]
    fn nothing_to_write_is_refused() {
        for spec in [
            Spec { count: 0, ..Spec::default() },
            Spec { passes: 0, ..Spec::default() },
            Spec { stride: vec![0], ..Spec::default() },
        ] {
            assert!(matches!(run(&spec, None, &mut Silent), Err(Error::Spec(_))));
        }
    }
}
