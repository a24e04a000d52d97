//! The `syscalls` suite: single system calls, through libc, raw and through the vDSO; the calls
//! that make processes, alone and together; and a system call under a tracer, for contrast.
//!
//! Metrics, each a call: `real`; `cpu_total`, exact; `cpu_user` and `cpu_system`, the kernel's
//! estimate. `execve` alone is measured by a program that execs itself, counting an argument down.
//! Other systems than Linux have only the calls through libc.

#![expect(unsafe_code, reason = "the workloads are system calls")]

use std::ffi::c_int;
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::ptr;

use crate::clock;
use crate::engine::{self, Arm, Observer, Schedule};
use crate::error::Error;
use crate::guard::Guard;
use crate::noise::NoiseSnapshot;
use crate::program::{Kind, Program};
use crate::registry::{Registration, row_of};
use crate::results::{Derived, Param, Params, Series, Suite, rows};
use crate::spawn::worker::{Worker, reap};
use crate::spawn::{Method, SpawnedProgram, worker};
use crate::stats::bootstrap::{Replicates, Resampler, Samples};
use crate::suites::batch::{Batch, METRICS};

#[cfg(target_os = "linux")]
#[path = "syscalls/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "syscalls/elsewhere.rs"]
mod system;

#[cfg(target_os = "linux")]
pub use self::system::exec_chain;

/// The suite for those that show and compare.
pub(crate) const SUITE: Registration = Registration {
    name: "syscalls",
    yardstick: |rows, row| row_of(rows, "vfork+execve", row),
    ..Registration::DEFAULT
};

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Names of calls to measure, as [`offered`] has them; all when empty.
    pub calls: Vec<String>,
    /// A tracer that takes `-o FILE PROGRAM`, such as strace.
    pub tracer: Option<PathBuf>,
    /// Length and density.
    pub schedule: Schedule,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec { calls: Vec::new(), tracer: None, schedule: Schedule { runs: 200, ..Schedule::default() } }
    }
}

/// Every call the suite knows, and the way it is made.
const CALLS: [(&str, &str); 24] = [
    ("getpid", "libc"),
    ("getpid", "raw"),
    ("fstat", "libc"),
    ("lstat", "libc"),
    ("gettimeofday", "libc"),
    ("gettimeofday", "raw"),
    ("time", "libc"),
    ("clock_monotonic", "libc"),
    ("clock_monotonic", "raw"),
    ("clock_process_cpu", "libc"),
    ("clock_thread_cpu", "libc"),
    ("umask", "libc"),
    ("sigprocmask", "libc"),
    ("sigprocmask", "raw"),
    ("sigprocmask", "program"),
    ("sigprocmask", "traced"),
    ("fork", "libc"),
    ("vfork", "raw"),
    ("execve", "raw"),
    ("fork+execve", "libc"),
    ("vfork+execve", "raw"),
    ("posix_spawn", "libc"),
    ("forkless", "library"),
    ("system", "libc"),
];

/// What of them there is here: everywhere the ways that go through libc, vfork among them where its
/// system call is no interface.
#[must_use]
pub fn offered() -> Vec<(&'static str, &'static str)> {
    let here = |(name, via)| match (name, via) {
        _ if cfg!(target_os = "linux") => Some((name, via)),
        ("vfork" | "vfork+execve", _) => Some((name, "libc")),
        (_, "libc") => Some((name, via)),
        _ => None,
    };
    CALLS.into_iter().filter_map(here).collect()
}

/// Calls in a batch of cheap ones: long enough for the clock not to matter, short enough to stay
/// interleaved.
const BATCH: u64 = 2000;

/// Measures, all calls interleaved.
///
/// # Errors
/// [`Error::Spec`] for a name that is not [`offered`]; the first error of any child.
pub fn run(spec: &Spec, mut guard: Option<&mut Guard>, observer: &mut dyn Observer) -> Result<Suite, Error> {
    let offered = offered();
    if let Some(name) = spec.calls.iter().find(|name| !offered.iter().any(|(known, _)| known == name)) {
        let mut known: Vec<&str> = offered.iter().map(|(name, _)| *name).collect();
        known.dedup();
        return Err(Error::Spec(format!("no call {name:?}; there are: {}", known.join(", "))));
    }
    let fixture = Fixture {
        exit: Program::prepare(&Kind::Exit, guard.as_deref_mut())?,
        system: system::Programs::prepare(spec.tracer.clone(), guard)?,
        overhead: clock::overhead(),
    };
    let wanted = |name: &str| spec.calls.is_empty() || spec.calls.iter().any(|call| call == name);
    let mut notes = Vec::new();
    let mut names = Vec::new();
    let mut arms: Vec<Box<dyn Arm + '_>> = Vec::new();
    for (name, via) in offered.into_iter().filter(|(name, _)| wanted(name)) {
        match fixture.arm(name, via) {
            Ok(arm) => {
                names.push((name, via));
                arms.push(arm);
            }
            Err(Error::Missing(why)) => notes.push(format!("skipped: {name} ({via}): {why}")),
            Err(error) => return Err(error),
        }
    }
    let watch = NoiseSnapshot::start();
    let outcome = engine::run(&mut arms, &spec.schedule, observer)?;
    drop(arms);
    let noise = watch.finish(outcome.series.iter().map(|series| &series[0]));
    notes.extend(noise.warnings());
    if outcome.rounds < outcome.planned {
        notes.push(format!("stopped for time after {} of {} rounds", outcome.rounds, outcome.planned));
    }
    let derived = derived(&names, &outcome.series, spec.schedule.seed);
    let mut all = Vec::new();
    for ((name, via), series) in names.into_iter().zip(outcome.series) {
        let params = Params::from([("via".to_owned(), Param::Word(via.to_owned()))]);
        for (metric, samples) in METRICS.into_iter().zip(series) {
            all.push(Series {
                method: name.to_owned(),
                params: params.clone(),
                metric,
                limit: Some(limit(name, via).to_owned()),
                samples,
            });
        }
    }
    Ok(Suite {
        name: SUITE.name.into(),
        seed: spec.schedule.seed,
        rounds: outcome.rounds,
        seconds: outcome.elapsed.as_secs_f64(),
        clock_overhead_ns: fixture.overhead,
        noise,
        notes,
        rows: rows(all, None, spec.schedule.seed),
        derived,
        ..Suite::default()
    })
}

/// What a row is limited by.
fn limit(name: &str, via: &str) -> &'static str {
    match (name, via) {
        (_, "traced") => "two stops at every call, and the way to the tracer and back",
        ("gettimeofday" | "time" | "clock_monotonic", "libc") if cfg!(target_os = "linux") => {
            "no system call: the vDSO reads the clock"
        }
        ("clock_process_cpu" | "clock_thread_cpu", _) => {
            "the system call: a vDSO does not know processor times"
        }
        ("fstat" | "lstat", _) => "the system call, and for lstat the way along the path",
        ("fork" | "fork+execve", _) => Method::ForkExec.limit(),
        ("posix_spawn", _) => Method::PosixSpawn.limit(),
        ("system", _) => Method::System.limit(),
        ("vfork" | "execve" | "vfork+execve" | "forkless", _) => Method::VforkExec.limit(),
        _ => "the way into the kernel and back",
    }
}

/// The published derived rows, each with an interval from draws common to all its parts.
fn derived(names: &[(&str, &str)], series: &[Vec<Samples>], seed: u64) -> Vec<Derived> {
    let resampler = Resampler::new(series.iter().map(|series| &series[0]), 2000, seed);
    let find = |name: &str| {
        let index =
            names.iter().position(|&(known, via)| known == name && !matches!(via, "traced" | "program"))?;
        let samples = &series[index][0];
        Some((crate::stats::median(&samples.values), resampler.medians(samples)))
    };
    let mut all = Vec::new();
    let mut add = |name: &str, unit: &str, parts: &[&str], figure: &dyn Fn(&[f64]) -> f64| {
        let found: Option<Vec<(f64, Replicates)>> = parts.iter().map(|part| find(part)).collect();
        let Some(found) = found else { return };
        let medians: Vec<f64> = found.iter().map(|part| part.0).collect();
        let draws = found.iter().map(|part| part.1.values.len()).min().unwrap_or(0);
        let values = (0..draws)
            .map(|draw| figure(&found.iter().map(|part| part.1.values[draw]).collect::<Vec<_>>()))
            .collect();
        let blocks = found.iter().map(|part| part.1.blocks).min().unwrap_or(0);
        let value = figure(&medians);
        let ci95 = Replicates { values, blocks }.interval(0.95).unwrap_or([value; 2]);
        all.push(Derived { name: name.to_owned(), unit: unit.to_owned(), value, ci95 });
    };
    add("vfork / fork", "%", &["vfork", "fork"], &|v| 100.0 * v[0] / v[1]);
    add("vfork+execve / fork+execve", "%", &["vfork+execve", "fork+execve"], &|v| 100.0 * v[0] / v[1]);
    for (whole, first) in [("vfork+execve", "vfork"), ("fork+execve", "fork")] {
        let parts = [whole, first, "execve"];
        add(&format!("{whole} - ({first} + execve)"), "us", &parts, &|v| (v[0] - v[1] - v[2]) / 1e3);
        add(&format!("the same, share of {whole}"), "%", &parts, &|v| 100.0 * (v[0] - v[1] - v[2]) / v[0]);
    }
    all
}

/// What the arms share.
struct Fixture {
    exit: Program,
    system: system::Programs,
    overhead: f64,
}

impl Fixture {
    fn arm<'a>(&'a self, name: &str, via: &str) -> Result<Box<dyn Arm + 'a>, Error> {
        let cheap = |call: fn()| {
            Batch::arm(BATCH, self.overhead, move |calls| {
                for _ in 0..calls {
                    call();
                }
                Ok(())
            })
        };
        if let Some(arm) = self.system.arm(name, via, self.overhead) {
            return arm;
        }
        let target = SpawnedProgram::new(&self.exit);
        let spawning = |method| -> Result<Box<dyn Arm + 'a>, Error> {
            let mut worker: Box<dyn Worker> = worker(method, &target)?;
            Ok(Batch::arm(4, self.overhead, move |calls| {
                (0..calls).try_for_each(|_| worker.spawn().map(drop))
            }))
        };
        Ok(match (name, via) {
            ("getpid", _) => cheap(|| {
                // SAFETY: getpid has no preconditions.
                black_box(unsafe { libc::getpid() });
            }),
            ("fstat", _) => {
                let file = File::open("/dev/null").map_err(Error::io("open /dev/null"))?;
                Batch::arm(BATCH, self.overhead, move |calls| {
                    for _ in 0..calls {
                        stat_with(|buffer| {
                            // SAFETY: the descriptor is open, the buffer writable.
                            unsafe { libc::fstat(file.as_raw_fd(), buffer) }
                        });
                    }
                    Ok(())
                })
            }
            ("lstat", _) => cheap(|| {
                stat_with(|buffer| {
                    // SAFETY: the path is a static string, the buffer writable.
                    unsafe { libc::lstat(c"/dev/null".as_ptr(), buffer) }
                });
            }),
            ("gettimeofday", _) => cheap(|| {
                let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
                // SAFETY: `time` is writable; the time zone may be null.
                unsafe { libc::gettimeofday(&raw mut time, ptr::null_mut()) };
                black_box(time);
            }),
            ("time", _) => cheap(|| {
                // SAFETY: a null pointer asks for the return value alone.
                black_box(unsafe { libc::time(ptr::null_mut()) });
            }),
            ("clock_monotonic", _) => cheap(|| read_clock(libc::CLOCK_MONOTONIC)),
            ("clock_process_cpu", _) => cheap(|| read_clock(libc::CLOCK_PROCESS_CPUTIME_ID)),
            ("clock_thread_cpu", _) => cheap(|| read_clock(libc::CLOCK_THREAD_CPUTIME_ID)),
            ("umask", _) => {
                // Reading it is not possible without setting it; it is set to what it is from then
                // on.
                // SAFETY: umask cannot fail.
                let mask = unsafe { libc::umask(0o077) };
                // SAFETY: as above.
                unsafe { libc::umask(mask) };
                Batch::arm(BATCH, self.overhead, move |calls| {
                    for _ in 0..calls {
                        // SAFETY: as above.
                        black_box(unsafe { libc::umask(mask) });
                    }
                    Ok(())
                })
            }
            ("sigprocmask", _) => cheap(|| {
                let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
                // SAFETY: a null new set only asks; the old one is written to `set`.
                unsafe { libc::sigprocmask(libc::SIG_SETMASK, ptr::null(), set.as_mut_ptr()) };
                black_box(&set);
            }),
            ("fork", _) => Batch::arm(4, self.overhead, |calls| (0..calls).try_for_each(|_| fork_exit())),
            ("vfork", _) => Batch::arm(4, self.overhead, |calls| (0..calls).try_for_each(|_| vfork_exit())),
            ("fork+execve", _) => spawning(Method::ForkExec)?,
            ("vfork+execve", _) => spawning(Method::VforkExec)?,
            ("posix_spawn", _) => spawning(Method::PosixSpawn)?,
            ("forkless", _) => spawning(Method::Forkless)?,
            _ => spawning(Method::System)?,
        })
    }
}

#[inline]
fn read_clock(clock: libc::clockid_t) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    black_box(time);
}

#[inline]
fn stat_with(call: impl FnOnce(*mut libc::stat) -> c_int) {
    let mut buffer = std::mem::MaybeUninit::<libc::stat>::uninit();
    call(buffer.as_mut_ptr());
    black_box(&buffer);
}

/// fork; the child exits at once and is waited for.
pub fn fork_exit() -> Result<(), Error> {
    // SAFETY: the child only exits.
    let pid = unsafe { crate::spawn::worker::fork(|| 0) }?;
    Error::check_status("fork", reap(pid, 0)?)
}

/// vfork; the child exits at once and is waited for.
pub fn vfork_exit() -> Result<(), Error> {
    // SAFETY: the routine touches no stack in the child.
    let pid = unsafe { crate::spawn::raw::vfork_exit() };
    let pid = i32::try_from(pid).unwrap_or(-1);
    if pid < 0 {
        return Err(Error::errno("vfork", -pid));
    }
    Error::check_status("vfork", reap(pid, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Silent;

    fn quick(calls: &[&str], tracer: Option<PathBuf>) -> Suite {
        let calls = calls.iter().map(|&call| call.to_owned()).collect();
        run(
            &Spec { calls, tracer, schedule: Schedule { runs: 10, ..Schedule::default() } },
            None,
            &mut Silent,
        )
        .unwrap()
    }

    #[test]
    fn every_call_is_measured_and_the_sums_are_derived() {
        let suite = quick(&[], None);
        for (name, via) in offered().into_iter().filter(|(_, via)| *via != "traced") {
            let via = Param::Word(via.to_owned());
            let row = suite
                .rows
                .iter()
                .find(|row| row.method == name && row.params["via"] == via && row.metric == "real");
            // Less the price of an empty round, which a busy machine may make the larger one.
            assert!(row.is_some_and(|row| row.summary.median.is_finite()), "{name} {via}");
        }
        assert_eq!(suite.derived.len(), 6);
        assert!(suite.notes.iter().any(|note| note.contains("no tracer")), "{:?}", suite.notes);
    }

    #[test]
    fn an_unknown_call_is_refused() {
        let spec = Spec { calls: vec!["frobnicate".into()], ..Spec::default() };
        let message = run(&spec, None, &mut Silent).unwrap_err().to_string();
        assert!(message.contains("getpid"), "{message}");
    }
}
