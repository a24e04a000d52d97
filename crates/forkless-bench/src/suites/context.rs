//! The `context` suite: the cost of a context switch with and without the system calls of libc's
//! functions, and of asking for the local time with and without TZ.
//!
//! Metrics, each an operation: `real`, and `syscalls`, the number of system calls it makes, counted
//! in a traced child and so exact. Everything runs in forked children, for TZ is a process's own
//! and a library's cache of it is for life.

#![expect(unsafe_code, reason = "context switches, ptrace and the C library's time functions")]

use std::ffi::{CStr, c_char};
use std::hint::black_box;
use std::io::Read as _;

use crate::clock::now;
use crate::engine::{self, Arm, Observer, Schedule, Turn};
use crate::error::Error;
use crate::noise::NoiseSnapshot;
use crate::registry::{Registration, row_of};
use crate::results::{Derived, Metric, Param, Params, Series, Suite, rows};
use crate::spawn::worker::{pipe, reap};
use crate::stats::bootstrap::{Resampler, Samples};

mod count;
pub(crate) mod switch;

/// The suite for those that show and compare. A row's yardstick is the switch without a system
/// call.
pub(crate) const SUITE: Registration = Registration {
    name: "context",
    yardstick: |rows, row| row_of(rows, "_setjmp", row),
    ..Registration::DEFAULT
};

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Words that a name must contain; all when empty.
    pub filter: Vec<String>,
    /// Length and density.
    pub schedule: Schedule,
}

const REAL: Metric = Metric { name: "real", unit: "ns", estimate: false };
const SYSCALLS: Metric = Metric { name: "syscalls", unit: "calls", estimate: false };

/// An operation: its name, the setting of TZ, and what repeats it.
struct Operation {
    name: &'static str,
    tz: Option<&'static CStr>,
    /// Operations a batch; cheap ones need more for the clock.
    batch: u64,
    repeat: fn(u64),
}

impl Operation {
    fn limit(&self) -> &'static str {
        match self.name {
            "getcontext" | "swapcontext" | "sigsetjmp" | "green_ucontext" => {
                "the system calls for the signal mask"
            }
            "localtime" | "mktime" if self.tz.is_none() => "a look at /etc/localtime at every call",
            "localtime" | "localtime_r" | "mktime" | "strftime" => "arithmetic",
            _ => "registers stored and loaded",
        }
    }
}

const ZONE: &CStr = c":/etc/localtime";

fn operations() -> Vec<Operation> {
    let plain = |name, batch, repeat| Operation { name, tz: None, batch, repeat };
    let mut all: Vec<Operation> =
        switch::operations().into_iter().map(|(name, repeat)| plain(name, 2000, repeat)).collect();
    for tz in [None, Some(ZONE)] {
        let zoned = |name, repeat| Operation { name, tz, batch: 500, repeat };
        all.push(zoned("localtime", localtime));
        all.push(zoned("localtime_r", localtime_r));
        all.push(zoned("mktime", mktime));
        all.push(zoned("strftime", strftime));
    }
    all
}

/// The names of all operations.
#[must_use]
pub fn offered() -> Vec<&'static str> {
    let mut names: Vec<&str> = operations().iter().map(|operation| operation.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Measures, all operations interleaved.
///
/// # Errors
/// [`Error::Spec`] when the filter leaves nothing; the first error of any child.
pub fn run(spec: &Spec, observer: &mut dyn Observer) -> Result<Suite, Error> {
    let wanted =
        |name: &str| spec.filter.is_empty() || spec.filter.iter().any(|word| name.contains(word.as_str()));
    let operations: Vec<Operation> =
        operations().into_iter().filter(|operation| wanted(operation.name)).collect();
    let mut arms: Vec<Box<dyn Arm + '_>> = Vec::new();
    for operation in &operations {
        arms.push(Box::new(Isolated { operation }));
    }
    let watch = NoiseSnapshot::start();
    let outcome = engine::run(&mut arms, &spec.schedule, observer)?;
    drop(arms);
    let noise = watch.finish(outcome.series.iter().map(|series| &series[0]));
    let mut notes = noise.warnings();
    notes.extend(switch::missing().map(|why| format!("skipped: {why}")));
    notes.extend(count::missing().map(|why| format!("skipped: {why}")));
    let mut all = Vec::new();
    for (operation, mut series) in operations.iter().zip(outcome.series) {
        let tz = operation.tz.map_or_else(|| "unset".into(), CStr::to_string_lossy).into_owned();
        let params = Params::from([("TZ".to_owned(), Param::Word(tz))]);
        let limit = Some(operation.limit().to_owned());
        match count::system_calls(operation) {
            None => {}
            Some(Ok(calls)) => {
                let samples = Samples::one_a_round(vec![calls; outcome.rounds]);
                all.push(Series {
                    method: operation.name.into(),
                    params: params.clone(),
                    metric: SYSCALLS,
                    limit: limit.clone(),
                    samples,
                });
            }
            // For all alike.
            Some(Err(Error::Missing(why))) => {
                let note = format!("skipped: system calls: {why}");
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            Some(Err(error)) => notes.push(format!("skipped: system calls of {}: {error}", operation.name)),
        }
        if let Some(samples) = series.pop() {
            all.push(Series { method: operation.name.into(), params, metric: REAL, limit, samples });
        }
    }
    let derived = derived(&all, spec.schedule.seed);
    Ok(Suite {
        name: SUITE.name.into(),
        seed: spec.schedule.seed,
        rounds: outcome.rounds,
        seconds: outcome.elapsed.as_secs_f64(),
        noise,
        notes,
        rows: rows(all, None, spec.schedule.seed),
        derived,
        ..Suite::default()
    })
}

/// How many times the one operation costs what the other does.
fn derived(series: &[Series], seed: u64) -> Vec<Derived> {
    let real = |name: &str, tz: &str| {
        let tz = Param::Word(tz.to_owned());
        series
            .iter()
            .find(|one| one.method == name && one.metric == REAL && one.params.get("TZ") == Some(&tz))
    };
    let set = ZONE.to_string_lossy();
    let pairs = [
        ("swapcontext / mask-free switch", real("swapcontext", "unset"), real("mask_free", "unset")),
        ("sigsetjmp + siglongjmp / _setjmp + _longjmp", real("sigsetjmp", "unset"), real("_setjmp", "unset")),
        (
            "green threads: ucontext / mask-free",
            real("green_ucontext", "unset"),
            real("green_mask_free", "unset"),
        ),
        ("localtime, TZ unset / set", real("localtime", "unset"), real("localtime", &set)),
        ("mktime, TZ unset / set", real("mktime", "unset"), real("mktime", &set)),
    ];
    let mut all = Vec::new();
    for (name, slow, fast) in pairs {
        let (Some(slow), Some(fast)) = (slow, fast) else { continue };
        let resampler = Resampler::new([&slow.samples, &fast.samples], 2000, seed);
        let draws = resampler.medians(&slow.samples).ratio(&resampler.medians(&fast.samples));
        let value = crate::stats::median(&slow.samples.values) / crate::stats::median(&fast.samples.values);
        let ci95 = draws.interval(0.95).unwrap_or([value; 2]);
        all.push(Derived { name: name.to_owned(), unit: "times".to_owned(), value, ci95 });
    }
    all
}

/// One operation, repeated in a forked child each turn.
struct Isolated<'a> {
    operation: &'a Operation,
}

impl Arm for Isolated<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        for time in in_child(self.operation, settle + counted)?.into_iter().skip(settle) {
            turn.add(0, time);
        }
        Ok(())
    }

    fn series(&self) -> usize {
        1
    }
}

/// Sets TZ as the operation wants it. For forked children only: it changes the environment.
fn set_zone(operation: &Operation) {
    match operation.tz {
        // SAFETY: the child has one thread; both strings are static.
        Some(zone) => unsafe { libc::setenv(c"TZ".as_ptr(), zone.as_ptr(), 1) },
        // SAFETY: as above.
        None => unsafe { libc::unsetenv(c"TZ".as_ptr()) },
    };
}

/// Runs batches in a forked child; nanoseconds an operation, one for each batch.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds and counts of a batch")]
fn in_child(operation: &Operation, batches: usize) -> Result<Vec<f64>, Error> {
    let (read, write) = pipe()?;
    // SAFETY: the child runs the operation, writes to a pipe and exits; the suite runs in a program
    // of one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        set_zone(operation);
        // The first batch fills caches that are the process's own, such as the rules of the time
        // zone.
        (operation.repeat)(operation.batch.div_ceil(10));
        for _ in 0..batches {
            let start = now();
            (operation.repeat)(operation.batch);
            let elapsed = (now() - start) as f64 / operation.batch as f64;
            let bytes = elapsed.to_ne_bytes();
            // SAFETY: eight bytes of a local. The parent reads meanwhile, however little the pipe
            // holds.
            unsafe {
                libc::write(std::os::fd::AsRawFd::as_raw_fd(&write), bytes.as_ptr().cast(), bytes.len())
            };
        }
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    if pid < 0 {
        return Err(Error::last_os("fork"));
    }
    drop(write);
    let mut bytes = Vec::new();
    let read = std::fs::File::from(read).read_to_end(&mut bytes);
    Error::check_status(operation.name, reap(pid, 0)?)?;
    read.map_err(Error::io("read a child's times"))?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|chunk| f64::from_ne_bytes(*chunk)).collect())
}

/// `time_t` has 64 bits wherever this is compiled.
const SOME_DAY: i64 = 1_700_000_000;

fn localtime(count: u64) {
    for second in 0..count.cast_signed() {
        let time = SOME_DAY + second;
        // SAFETY: the pointer is to a local; the result is a static of the library, used by one
        // thread.
        black_box(unsafe { libc::localtime(&raw const time) });
    }
}

fn broken_down(time: i64) -> libc::tm {
    // SAFETY: tm is integers and a pointer that may be null; all zero is a valid value.
    let mut result: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals.
    unsafe { libc::localtime_r(&raw const time, &raw mut result) };
    result
}

fn localtime_r(count: u64) {
    for second in 0..count.cast_signed() {
        black_box(broken_down(SOME_DAY + second));
    }
}

fn mktime(count: u64) {
    let day = broken_down(SOME_DAY);
    for _ in 0..count {
        let mut copy = day;
        // SAFETY: the pointer is to a local.
        black_box(unsafe { libc::mktime(&raw mut copy) });
    }
}

fn strftime(count: u64) {
    let day = broken_down(SOME_DAY);
    let mut text = [0 as c_char; 64];
    for _ in 0..count {
        let format = c"%Y-%m-%d %H:%M:%S".as_ptr();
        // SAFETY: the buffer is as long as said, the format a static string.
        black_box(unsafe { libc::strftime(text.as_mut_ptr(), text.len(), format, &raw const day) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_counted_exactly() {
        let by_name = |name: &str, tz: Option<&CStr>| {
            let all = operations();
            let operation = all.into_iter().find(|one| one.name == name && one.tz == tz);
            operation.map(|operation| count::system_calls(&operation).unwrap().unwrap())
        };
        let near = |count: Option<f64>, expected: f64| {
            if let Some(count) = count {
                assert!((count - expected).abs() < 0.06, "{count} for {expected}");
            }
        };
        // glibc's on arm64 calls setcontext, which sets the mask once more.
        near(by_name("swapcontext", None), if cfg!(target_arch = "aarch64") { 2.0 } else { 1.0 });
        near(by_name("getcontext", None), 1.0);
        near(by_name("sigsetjmp", None), 2.0);
        near(by_name("_setjmp", None), 0.0);
        near(by_name("mask_free", None), 0.0);
        near(by_name("localtime", Some(ZONE)), 0.0);
        near(by_name("green_mask_free", None), 0.0);
    }

    #[test]
    fn every_operation_is_timed() {
        let spec = Spec { filter: vec![], schedule: Schedule { runs: 10, ..Schedule::default() } };
        let suite = run(&spec, &mut engine::Silent).unwrap();
        for operation in operations() {
            let row =
                suite.rows.iter().find(|row| row.method == operation.name && row.metric == "real").unwrap();
            assert!(row.summary.median > 0.0, "{}", operation.name);
        }
        assert!(suite.derived.iter().any(|one| one.name.starts_with("localtime")));
    }
}
