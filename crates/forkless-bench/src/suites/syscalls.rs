//! The `syscalls` suite: single system calls, through libc, raw and through the vDSO; the calls that make processes, alone and
//! together; and a system call under a tracer, for contrast.
//!
//! Metrics, each a call: `real`; `cpu_total`, exact; `cpu_user` and `cpu_system`, the kernel's estimate. `execve` alone is
//! measured by a program that execs itself, counting an argument down.

#![expect(unsafe_code, reason = "the workloads are system calls")]

use std::ffi::{CString, c_int, c_long};
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::ptr;

use crate::clock::{self, now};
use crate::engine::{self, Arm, Observer, Plan};
use crate::error::Error;
use crate::guard::Guard;
use crate::noise::Watch;
use crate::program::{Kind, Program};
use crate::results::{Derived, Param, Params, Series, Suite, rows};
use crate::spawn::worker::{Worker, environment, reap};
use crate::spawn::{Method, Target, worker};
use crate::stats::bootstrap::{Replicates, Resampler, Samples};
use crate::suites::batch::{Batch, METRICS};
use crate::suites::blobs;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Names of calls to measure, as in [`CALLS`]; all when empty.
    pub calls: Vec<String>,
    /// A tracer that takes `-o FILE PROGRAM`, such as strace.
    pub tracer: Option<PathBuf>,
    /// Length and density.
    pub plan: Plan,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec { calls: Vec::new(), tracer: None, plan: Plan { runs: 200, ..Plan::default() } }
    }
}

/// Every call the suite knows, and the way it is made.
pub const CALLS: [(&str, &str); 24] = [
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

/// Calls in a batch of cheap ones: long enough for the clock not to matter, short enough to stay interleaved.
const BATCH: u64 = 2000;

/// Calls in a program of their own: enough for its start not to matter, few enough for a tracer.
const MASK_CALLS: u64 = 4_000;

/// Measures, all calls interleaved.
///
/// # Errors
/// [`Error::Spec`] for a name that is not in [`CALLS`]; the first error of any child.
pub fn run(spec: &Spec, mut guard: Option<&mut Guard>, observer: &mut dyn Observer) -> Result<Suite, Error> {
    if let Some(name) = spec.calls.iter().find(|name| !CALLS.iter().any(|(known, _)| known == name)) {
        let mut known: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
        known.dedup();
        return Err(Error::Spec(format!("no call {name:?}; there are: {}", known.join(", "))));
    }
    let fixture = Fixture {
        exit: Program::prepare(&Kind::Exit, guard.as_deref_mut())?,
        countdown: Program::assembled(blobs::countdown(), &["0000000"], guard.as_deref_mut())?,
        mask_loop: Program::assembled(blobs::mask_loop(), &["0"], guard)?,
        overhead: clock::overhead(),
        tracer: spec.tracer.clone(),
    };
    let wanted = |name: &str| spec.calls.is_empty() || spec.calls.iter().any(|call| call == name);
    let mut notes = Vec::new();
    let mut names = Vec::new();
    let mut arms: Vec<Box<dyn Arm + '_>> = Vec::new();
    for (name, via) in CALLS.into_iter().filter(|(name, _)| wanted(name)) {
        match fixture.arm(name, via) {
            Ok(arm) => {
                names.push((name, via));
                arms.push(arm);
            }
            Err(Error::Missing(why)) => notes.push(format!("skipped: {name} ({via}): {why}")),
            Err(error) => return Err(error),
        }
    }
    let watch = Watch::start();
    let outcome = engine::run(&mut arms, &spec.plan, observer)?;
    drop(arms);
    let noise = watch.finish(outcome.series.iter().map(|series| &series[0]));
    notes.extend(noise.warnings());
    if outcome.rounds < outcome.planned {
        notes.push(format!("stopped for time after {} of {} rounds", outcome.rounds, outcome.planned));
    }
    let derived = derived(&names, &outcome.series, spec.plan.seed);
    let mut all = Vec::new();
    for ((name, via), series) in names.into_iter().zip(outcome.series) {
        let params = Params::from([("via".to_owned(), Param::Word(via.to_owned()))]);
        for (metric, samples) in METRICS.into_iter().zip(series) {
            all.push(Series {
                method: name.to_owned(),
                params: params.clone(),
                metric,
                limit: None,
                samples,
            });
        }
    }
    Ok(Suite {
        name: "syscalls".into(),
        seed: spec.plan.seed,
        rounds: outcome.rounds,
        seconds: outcome.elapsed.as_secs_f64(),
        clock_overhead_ns: fixture.overhead,
        noise,
        notes,
        rows: rows(all, None, spec.plan.seed),
        derived,
        ..Suite::default()
    })
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
    countdown: Program,
    mask_loop: Program,
    overhead: f64,
    tracer: Option<PathBuf>,
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
        let target = Target::new(&self.exit);
        let spawning = |method| -> Result<Box<dyn Arm + 'a>, Error> {
            let mut worker: Box<dyn Worker> = worker(method, &target)?;
            Ok(Batch::arm(4, self.overhead, move |calls| {
                (0..calls).try_for_each(|_| worker.spawn().map(drop))
            }))
        };
        Ok(match (name, via) {
            ("getpid", "libc") => cheap(|| {
                // SAFETY: getpid has no preconditions.
                black_box(unsafe { libc::getpid() });
            }),
            ("getpid", "raw") => cheap(|| {
                black_box(raw(libc::SYS_getpid, [0; 4]));
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
            ("gettimeofday", "libc") => cheap(|| {
                let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
                // SAFETY: `time` is writable; the time zone may be null.
                unsafe { libc::gettimeofday(&raw mut time, ptr::null_mut()) };
                black_box(time);
            }),
            ("gettimeofday", _) => cheap(|| {
                let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
                raw(libc::SYS_gettimeofday, [(&raw mut time) as usize, 0, 0, 0]);
                black_box(time);
            }),
            ("time", _) => cheap(|| {
                // SAFETY: a null pointer asks for the return value alone.
                black_box(unsafe { libc::time(ptr::null_mut()) });
            }),
            ("clock_monotonic", "libc") => cheap(|| read_clock(libc::CLOCK_MONOTONIC)),
            ("clock_monotonic", _) => cheap(|| {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                raw(
                    libc::SYS_clock_gettime,
                    [libc::CLOCK_MONOTONIC as usize, (&raw mut time) as usize, 0, 0],
                );
                black_box(time);
            }),
            ("clock_process_cpu", _) => cheap(|| read_clock(libc::CLOCK_PROCESS_CPUTIME_ID)),
            ("clock_thread_cpu", _) => cheap(|| read_clock(libc::CLOCK_THREAD_CPUTIME_ID)),
            ("umask", _) => {
                // Reading it is not possible without setting it; it is set to what it is from then on.
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
            ("sigprocmask", "libc") => cheap(|| {
                let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
                // SAFETY: a null new set only asks; the old one is written to `set`.
                unsafe { libc::sigprocmask(libc::SIG_SETMASK, ptr::null(), set.as_mut_ptr()) };
                black_box(&set);
            }),
            ("sigprocmask", "raw") => cheap(|| {
                let mut set = 0_u64;
                let arguments = [libc::SIG_SETMASK as usize, 0, (&raw mut set) as usize, 8];
                raw(libc::SYS_rt_sigprocmask, arguments);
                black_box(set);
            }),
            ("sigprocmask", "program") => self.external(None),
            ("sigprocmask", _) => {
                let tracer = self.tracer.clone().ok_or_else(|| {
                    Error::Missing("no tracer; install strace, or name one with --tracer".into())
                })?;
                self.external(Some(tracer))
            }
            ("fork", _) => Batch::arm(4, self.overhead, |calls| (0..calls).try_for_each(|_| fork_exit())),
            ("vfork", _) => Batch::arm(4, self.overhead, |calls| (0..calls).try_for_each(|_| vfork_exit())),
            ("execve", _) => self.exec_chain(),
            ("fork+execve", _) => spawning(Method::ForkExec)?,
            ("vfork+execve", _) => spawning(Method::VforkExec)?,
            ("posix_spawn", _) => spawning(Method::PosixSpawn)?,
            ("forkless", _) => spawning(Method::Forkless)?,
            _ => spawning(Method::System)?,
        })
    }

    /// Thousands of calls in a program of their own, with or without a tracer; what it takes to start it is measured each
    /// time with none, and subtracted.
    fn external(&self, tracer: Option<PathBuf>) -> Box<dyn Arm + '_> {
        let run = move |calls: u64| -> Result<f64, Error> {
            let program = &self.mask_loop;
            let mut command = match &tracer {
                Some(tracer) => {
                    let mut command = Command::new(tracer);
                    command.args(["-o", "/dev/null"]).arg(program.os_path());
                    command
                }
                None => Command::new(program.os_path()),
            };
            command.arg(calls.to_string());
            let start = now();
            let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
            let elapsed = now() - start;
            let status = status.map_err(Error::io("run a program of system calls"))?;
            if !status.success() {
                return Err(Error::Missing(format!("the program of system calls ended with {status}")));
            }
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of one program")]
            Ok(elapsed as f64)
        };
        Batch::timed_arm(MASK_CALLS, move |calls| Ok((run(calls)? - run(0)?).max(0.0)))
    }

    /// One child that execs itself a hundred times.
    fn exec_chain(&self) -> Box<dyn Arm + '_> {
        const EXECS: u64 = 100;
        let path = self.countdown.path();
        Batch::arm(EXECS, self.overhead, move |execs| exec_chain(path, execs))
    }
}

#[inline]
fn raw(number: c_long, [a, b, c, d]: [usize; 4]) -> c_long {
    // SAFETY: callers pass what the call wants: numbers, or pointers to locals of the right size.
    unsafe { libc::syscall(number, a, b, c, d) }
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
pub(crate) fn fork_exit() -> Result<(), Error> {
    // SAFETY: the child only exits.
    let pid = unsafe { crate::spawn::worker::fork(|| 0) }?;
    Error::check_status("fork", reap(pid, 0)?)
}

/// vfork; the child exits at once and is waited for.
pub(crate) fn vfork_exit() -> Result<(), Error> {
    // SAFETY: the routine touches no stack in the child.
    let pid = unsafe { crate::spawn::raw::vfork_exit() };
    let pid = i32::try_from(pid).unwrap_or(-1);
    if pid < 0 {
        return Err(Error::errno("vfork", -pid));
    }
    Error::check_status("vfork", reap(pid, 0)?)
}

/// A child that execs itself so many times.
pub(crate) fn exec_chain(path: &CString, count: u64) -> Result<(), Error> {
    let digits = CString::new(format!("{count:07}")).unwrap_or_default();
    let argv = [path.as_ptr(), digits.as_ptr(), ptr::null()];
    let mut pid = 0;
    // SAFETY: path and vectors are valid C strings and arrays.
    let errno = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            ptr::null(),
            ptr::null(),
            argv.as_ptr().cast(),
            environment().cast(),
        )
    };
    if errno != 0 {
        return Err(Error::errno("start a program that execs itself", errno));
    }
    Error::check_status("execve", reap(pid, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Silent;

    fn quick(calls: &[&str], tracer: Option<PathBuf>) -> Suite {
        let calls = calls.iter().map(|&call| call.to_owned()).collect();
        run(&Spec { calls, tracer, plan: Plan { runs: 10, ..Plan::default() } }, None, &mut Silent).unwrap()
    }

    #[test]
    fn every_call_is_measured_and_the_sums_are_derived() {
        let suite = quick(&[], None);
        for (name, via) in CALLS.into_iter().filter(|(_, via)| *via != "traced") {
            let via = Param::Word(via.to_owned());
            let row = suite
                .rows
                .iter()
                .find(|row| row.method == name && row.params["via"] == via && row.metric == "real");
            assert!(row.is_some_and(|row| row.summary.median > 0.0), "{name} {via}");
        }
        assert_eq!(suite.derived.len(), 6);
        assert!(suite.notes.iter().any(|note| note.contains("no tracer")), "{:?}", suite.notes);
    }

    #[test]
    fn the_program_that_execs_itself_counts_down_exactly() {
        let program = Program::assembled(blobs::countdown(), &["0000000"], None).unwrap();
        let strace = std::path::Path::new("/usr/bin/strace");
        if !strace.exists() {
            println!("skipped: strace is not installed");
            return;
        }
        let output = Command::new(strace)
            .args(["-e", "trace=execve"])
            .arg(program.os_path())
            .arg("0000012")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        // The tracer's own exec of the program, and twelve of itself.
        assert_eq!(text.lines().filter(|line| line.starts_with("execve(")).count(), 13, "{text}");
    }

    #[test]
    fn an_unknown_call_is_refused() {
        let spec = Spec { calls: vec!["frobnicate".into()], ..Spec::default() };
        let message = run(&spec, None, &mut Silent).unwrap_err().to_string();
        assert!(message.contains("getpid"), "{message}");
    }
}
