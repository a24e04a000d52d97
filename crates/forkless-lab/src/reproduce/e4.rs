//! E4: signal-mask calls, plain and traced. A program of green threads is built with both methods,
//! and run unmodified without the calls. The calls that the vDSO answers; localtime and TZ; and
//! both kinds of needless call found in running programs.

#![expect(unsafe_code, reason = "signal masks")]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use forkless::Command;

use super::plot::{Mark, Plot};
use super::tools;
use super::trace::trace;
use super::{Bench, Experiment, Figure, Id, TitledGrid};
use forkless_bench::engine::{Schedule, Silent};
use forkless_bench::error::Error;
use forkless_bench::program::Program;
use forkless_bench::published::masks;
use forkless_bench::render::number;
use forkless_bench::results::Param;
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::stats::median;
use forkless_bench::suites::{blobs, context};

mod found;
mod threads;

const THEIRS: &str = "The author found a Ruby with two green threads making twenty million calls of rt_sigprocmask that no line of \
    the program asks for: glibc's getcontext and setcontext save and restore the signal mask. Built to switch by _setjmp and \
    _longjmp, the program made 3 such calls and took 3.7 s instead of 6.1 s. The tracer that showed the calls could not show their \
    price: a million of them take 0.047 s, under the tracer 52 s, and its summary gives 0. The article follows one about localtime, \
    which looks at /etc/localtime at every call unless TZ is set.";
const OURS: &str = "A static program makes the same million calls, alone and under strace. A small interpreter with two green threads \
    stands in for Ruby 1.8, once with each way of switching, and once more as it is with the first way, under forkless run \
    --context=fast; its mask calls are counted by tracing two lengths of it. What enters the kernel is counted the same way, and the \
    functions of the vDSO are read from its own symbol names. Then forkless diagnose looks for the needless calls in the running \
    program, and in a Perl that asks for the local time, before and after forkless run has removed them.";

const MASK_FIGURES: [&str; 3] = ["mask.traced", "mask.traced_ns", "mask.summary_us"];

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Experiment, Error> {
    let mut experiment = Experiment::begin(Id::E4, bench.options, THEIRS, OURS);
    masks_plain_and_traced(bench, &mut experiment)?;
    bench.observer.progress(1, 5);
    threads::measure(bench, &mut experiment)?;
    bench.observer.progress(2, 5);
    kernel_entries(&mut experiment);
    bench.observer.progress(3, 5);
    local_time(bench, &mut experiment)?;
    bench.observer.progress(4, 5);
    found::measure(bench, &mut experiment)?;
    bench.observer.progress(5, 5);
    Ok(experiment)
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls")]
fn masks_plain_and_traced(bench: &mut Bench<'_>, experiment: &mut Experiment) -> Result<(), Error> {
    let program = Program::assembled(blobs::mask_loop(), &["0"], bench.guard.as_deref_mut())?;
    let rounds = bench.quick(3, 5);
    let traced_calls = bench.quick(5_000, masks::CALLS / 5);
    let strace = tools::provide(bench, "strace", "strace");
    let mut plain = Vec::new();
    let mut traced = Vec::new();
    for _ in 0..rounds {
        plain.push(per_call(None, &program, masks::CALLS)?);
        if let Ok(strace) = &strace {
            match per_call(Some(strace), &program, traced_calls) {
                Ok(time) => traced.push(time),
                Err(error) => experiment.miss(&MASK_FIGURES, format!("under strace: {error}")),
            }
        }
    }
    let seed = bench.options.seed;
    let plain = Samples::one_a_round(plain);
    let million = masks::CALLS as f64 / 1e9;
    let mut table =
        TitledGrid::new("A million calls of rt_sigprocmask, seconds", &["how", "published", "here"], 1);
    table.line(["plain".into(), "0.047".into(), format!("{:.3}", median(&plain.values) * million)]);
    let mut marks = vec![mark("plain", &plain, seed)];
    experiment.add(Figure::of("mask.plain_ns", "plain", "ns a call", &plain, seed));
    match strace {
        Err(why) => experiment.miss(&MASK_FIGURES, why),
        Ok(strace) if traced.len() == rounds => {
            let traced = Samples::one_a_round(traced);
            table.line([
                "under strace".into(),
                "52".into(),
                format!("{:.1}", median(&traced.values) * million),
            ]);
            marks.push(mark("under strace", &traced, seed));
            experiment.add(Figure::ratio("mask.traced", "traced against plain", &traced, &plain, seed));
            experiment.add(Figure::of("mask.traced_ns", "under strace", "ns a call", &traced, seed));
            let scaled = traced_calls * rounds as u64;
            if scaled < masks::CALLS {
                experiment.scaled.push(format!("{scaled} traced calls instead of a million"));
            }
            summary(&strace, &program, traced_calls, experiment);
        }
        Ok(_) => {}
    }
    experiment.tables.push(table);
    experiment.plots.push(Plot::Marks { title: "One mask call".into(), unit: "ns".into(), marks });
    Ok(())
}

fn mark(name: &str, samples: &Samples, seed: u64) -> Mark {
    let figure = Figure::of(name, "", "", samples, seed);
    let ci95 = figure.bounds().map(|bound| bound.clamp(0.0, 1e15));
    Mark { name: name.to_owned(), value: figure.value, ci95 }
}

/// Nanoseconds a call: the time of the program with `calls` of them less that with none.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds and counts of calls")]
fn per_call(tracer: Option<&Path>, program: &Program, calls: u64) -> Result<f64, Error> {
    let time = |calls: u64| -> Result<f64, Error> {
        let mut command = match tracer {
            Some(tracer) => {
                let mut command = Command::new(tracer);
                command.args(["-o", "/dev/null"]).arg(program.os_path());
                command
            }
            None => Command::new(program.os_path()),
        };
        command.arg(calls.to_string());
        let start = Instant::now();
        tools::run(&mut command, Duration::from_secs(120))?.fine("the program of mask calls")?;
        Ok(start.elapsed().as_nanos() as f64)
    };
    Ok((time(calls)? - time(0)?).max(0.0) / calls as f64)
}

/// What the tracer's own summary says a call costs.
fn summary(strace: &Path, program: &Program, calls: u64, experiment: &mut Experiment) {
    let mut command = Command::new(strace);
    command.arg("-c").arg(program.os_path()).arg(calls.to_string());
    let said = tools::run(&mut command, Duration::from_secs(120));
    let usecs = said.ok().and_then(|said| summary_usecs(&said.stderr));
    match usecs {
        Some(usecs) => {
            let about = "a call in the tracer's summary, strace -c";
            experiment.add(Figure::exact("mask.summary_us", about, "us", usecs));
        }
        None => experiment.miss(&["mask.summary_us"], "strace -c printed no line for rt_sigprocmask"),
    }
}

/// The column `usecs/call` of the line of rt_sigprocmask: `% time, seconds, usecs/call, calls,
/// [errors,] syscall`.
fn summary_usecs(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.split_whitespace().last() == Some("rt_sigprocmask"))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// What enters the kernel, counted; and what the vDSO has.
fn kernel_entries(experiment: &mut Experiment) {
    const CALLS: usize = 100;
    let entries = |body: fn()| -> Result<f64, Error> {
        let count =
            |times: usize| -> Result<usize, Error> { Ok(trace(|| (0..times).for_each(|_| body()))?.calls()) };
        #[expect(clippy::cast_precision_loss, reason = "a few hundred calls")]
        Ok((count(2 * CALLS)? - count(CALLS)?) as f64 / CALLS as f64)
    };
    let mask = || {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: a null new set only asks; the old one is written to `set`.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), set.as_mut_ptr()) };
    };
    let clock = || {
        let _ = forkless_bench::clock::now();
    };
    for (name, about, body) in [
        ("sigprocmask.syscalls", "kernel entries of sigprocmask", mask as fn()),
        ("clock_gettime.syscalls", "kernel entries of clock_gettime, for contrast", clock),
    ] {
        match entries(body) {
            Ok(count) => experiment.add(Figure::exact(name, about, "", count)),
            Err(error) => experiment.miss(&[name], error.to_string()),
        }
    }
    match vdso_functions() {
        Some(functions) => {
            let found = functions.iter().any(|name| name.contains("sigprocmask"));
            experiment.add(Figure::answer(
                "vdso.sigprocmask",
                "sigprocmask among the vDSO's functions",
                found,
            ));
            experiment.notes.push(format!("the vDSO of this kernel has {}", functions.join(", ")));
        }
        None => experiment.miss(&["vdso.sigprocmask"], "the vDSO cannot be read here"),
    }
}

/// Names in the vDSO's symbol strings: all begin with `__vdso_`, or `__kernel_` on arm64.
fn vdso_functions() -> Option<Vec<String>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).ok());
    let mut image = vec![0; usize::try_from(end? - start?).ok()?];
    fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, start?).ok()?;
    let words = image.split(|&byte| byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
    let mut names: Vec<String> = words
        .filter_map(|word| word.strip_prefix("__vdso_").or_else(|| word.strip_prefix("__kernel_")))
        .filter(|name| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then_some(names)
}

/// The suite `context` counts and times localtime with and without TZ.
fn local_time(bench: &mut Bench<'_>, experiment: &mut Experiment) -> Result<(), Error> {
    let runs = bench.quick(50, 500);
    let seed = bench.options.seed;
    let schedule = Schedule { runs, seed, ..Schedule::default() };
    let suite = context::run(&context::Spec { filter: vec!["localtime".into()], schedule }, &mut Silent)?;
    let find = |tz: &str, metric: &str| {
        let tz = Param::Word(tz.to_owned());
        suite.rows.iter().find(|row| {
            row.method == "localtime" && row.metric == metric && row.params.get("TZ") == Some(&tz)
        })
    };
    let mut table = TitledGrid::new("localtime", &["TZ", "system calls", "ns a call"], 1);
    let mut marks = Vec::new();
    for (key, tz) in [("unset", "unset"), ("set", ":/etc/localtime")] {
        let name = format!("localtime.{key}_syscalls");
        let (Some(calls), Some(real)) = (find(tz, "syscalls"), find(tz, "real")) else {
            experiment.miss(&[&name], "the system calls of localtime could not be counted");
            continue;
        };
        let about = format!("system calls of localtime, TZ {key}");
        experiment.add(Figure::exact(&name, &about, "", calls.summary.median));
        table.line([tz.to_owned(), number(calls.summary.median), number(real.summary.median)]);
        marks.push(Mark {
            name: format!("localtime, TZ {key}"),
            value: real.summary.median,
            ci95: real.ci95,
        });
    }
    if let (Some(unset), Some(set)) = (find("unset", "real"), find(":/etc/localtime", "real")) {
        let about = "localtime without TZ against with";
        experiment.add(Figure::ratio("localtime.gain", about, &unset.grouped(), &set.grouped(), seed));
    }
    experiment.tables.push(table);
    experiment.plots.push(Plot::Marks { title: "localtime".into(), unit: "ns".into(), marks });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summarys_column_is_found_with_and_without_errors() {
        let plain = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.012345           3      4000           rt_sigprocmask\n";
        assert_eq!(summary_usecs(plain), Some(3.0));
        assert_eq!(summary_usecs("100.00 0.01 0 4000 1 rt_sigprocmask\n"), Some(0.0));
        assert_eq!(summary_usecs("100.00 0.01 0 4000 getpid\n"), None);
    }

    #[test]
    fn the_vdso_names_its_clock() {
        let Some(functions) = vdso_functions() else { return eprintln!("skipped: no vDSO to read") };
        assert!(functions.iter().any(|name| name.contains("clock_gettime")), "{functions:?}");
    }
}
