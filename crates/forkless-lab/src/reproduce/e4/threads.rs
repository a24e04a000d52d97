//! The program of green threads: built both ways, as the author did. A third run takes the first
//! build as it is, under `forkless run --context=fast`, which removes its mask calls. Times in
//! turns; calls counted by a tracer.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use forkless_bench::clock::CpuTime;
use forkless_bench::error::Error;
use forkless_bench::published::masks;
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::stats::median;

use crate::reproduce::green::{self, How};
use crate::reproduce::trace::trace;
use crate::reproduce::{Bench, Experiment, Figure, TitledGrid, tools};
use crate::run_command::run_command;

/// Why a program is not run without its needless calls.
pub(super) const NO_RUN: &str =
    "the library of forkless run is not there (./x build puts it beside the command)";

/// The options that take the calls away from an unmodified program.
pub(super) const REMEDY: &str = "--context=fast";

/// A method of running the program.
struct SwitchMethod {
    /// The beginning of its figures' names.
    key: &'static str,
    name: &'static str,
    how: How,
    under_run: bool,
    /// Seconds (real, user, system) and mask calls, where the author has them.
    published: Option<([f64; 3], u64)>,
}

const METHODS: [SwitchMethod; 3] = [
    SwitchMethod {
        key: "ucontext",
        name: "getcontext, setcontext",
        how: How::Ucontext,
        under_run: false,
        published: Some((masks::UCONTEXT_S, masks::MASK_CALLS[0])),
    },
    SwitchMethod {
        key: "setjmp",
        name: "_setjmp, _longjmp",
        how: How::Setjmp,
        under_run: false,
        published: Some((masks::SETJMP_S, masks::MASK_CALLS[1])),
    },
    SwitchMethod {
        key: "run",
        name: "the first unmodified, under forkless run",
        how: How::Ucontext,
        under_run: true,
        published: None,
    },
];

/// Words that start the program.
pub(super) fn words(forkless: &Path, how: How, under_run: bool, operations: u64) -> Vec<OsString> {
    let mut words = Vec::new();
    if under_run {
        words = run_command(forkless, &[REMEDY, "--quiet"]);
    }
    words.push(forkless.into());
    words.extend(["bench", "green-threads", how.name()].map(OsString::from));
    words.push(operations.to_string().into());
    words
}

/// Real, user and system seconds of a program.
pub(super) fn timed(words: &[OsString], without: &[&str]) -> Result<[f64; 3], Error> {
    let mut command = tools::command(words);
    for name in without {
        command.env_remove(name);
    }
    let before = CpuTime::of_self_and_children();
    let start = Instant::now();
    tools::run(&mut command, Duration::from_secs(300))?.fine(&words[0].to_string_lossy())?;
    let used = CpuTime::of_self_and_children().since(before);
    Ok([start.elapsed().as_secs_f64(), used.user / 1e6, used.system / 1e6])
}

/// Calls of one kind that a program makes for each unit of its length, and the number that does not
/// grow with it. Both are exact: they come from traced runs of two lengths.
#[expect(clippy::cast_precision_loss, reason = "counts of calls")]
pub(super) fn counted(
    lengths: [u64; 2],
    call: i64,
    without: &[&str],
    words: impl Fn(u64) -> Vec<OsString>,
) -> Result<(f64, f64), Error> {
    let count = |length| -> Result<f64, Error> {
        let words = words(length);
        let trace = trace(|| tools::become_program(&words, without))?;
        if !trace.succeeded() {
            return Err(Error::Missing(format!("{} failed while it was traced", words[0].to_string_lossy())));
        }
        Ok(trace.count(call) as f64)
    };
    let [short, long] = [count(lengths[0])?, count(lengths[1])?];
    let each = (long - short) / (lengths[1] - lengths[0]) as f64;
    Ok((each, short - each * lengths[0] as f64))
}

#[expect(clippy::cast_precision_loss, reason = "counts of operations")]
pub(super) fn measure(bench: &mut Bench<'_>, experiment: &mut Experiment) -> Result<(), Error> {
    const NAMES: [&str; 5] = [
        "ucontext.calls_per_switch",
        "setjmp.calls_per_switch",
        "setjmp.gain_percent",
        "ucontext.seconds",
        "setjmp.seconds",
    ];
    let forkless = match &bench.options.forkless {
        Some(forkless) if green::AVAILABLE => forkless.clone(),
        Some(_) => {
            experiment.miss(&NAMES, green::ELSEWHERE);
            return Ok(());
        }
        None => {
            experiment.miss(&NAMES, "there is no forkless command to start the program of green threads");
            return Ok(());
        }
    };
    let operations = bench.quick(300_000, masks::OPERATIONS);
    if operations < masks::OPERATIONS {
        experiment.scaled.push(format!("{operations} pushes and pops instead of {}", masks::OPERATIONS));
    }
    if !bench.options.run {
        experiment.miss(&["run.calls_per_switch", "run.gain_percent"], NO_RUN);
    }
    let methods: Vec<&SwitchMethod> =
        METHODS.iter().filter(|method| bench.options.run || !method.under_run).collect();
    let rounds = 3;
    let seed = bench.options.seed;
    let mut times: Vec<Vec<[f64; 3]>> = vec![Vec::new(); methods.len()];
    for round in 0..rounds {
        for step in 0..methods.len() {
            let index = (step + round) % methods.len();
            let method = methods[index];
            times[index].push(timed(&words(&forkless, method.how, method.under_run, operations), &[])?);
        }
    }
    let mut table = TitledGrid::new(
        format!("Two green threads, {operations} pushes and pops each, seconds"),
        &[
            "switching by",
            "real",
            "user",
            "system",
            "mask calls",
            "published real",
            "user",
            "system",
            "mask calls",
        ],
        1,
    );
    for (method, times) in methods.iter().zip(&times) {
        let SwitchMethod { key, name, .. } = method;
        let column = |column: usize| Samples::one_a_round(times.iter().map(|time| time[column]).collect());
        let calls = counted([50, 250], libc::SYS_rt_sigprocmask, &[], |length| {
            words(&forkless, method.how, method.under_run, length)
        });
        let whole = match calls {
            Ok((an_operation, beside)) => {
                let per_switch = format!("{key}.calls_per_switch");
                let about = format!("mask calls a switch, {name}");
                // Each operation is followed by a switch there and, later, back.
                experiment.add(Figure::exact(&per_switch, &about, "", an_operation / 2.0));
                let whole = beside + an_operation * operations as f64;
                let about = format!("mask calls of the whole program, {name} (from two traced lengths)");
                experiment.add(Figure::exact(&format!("{key}.mask_calls"), &about, "", whole));
                format!("{whole:.0}")
            }
            Err(error) => {
                experiment.miss(&[&format!("{key}.calls_per_switch")], error.to_string());
                String::new()
            }
        };
        let about = format!("the program, {name}");
        experiment.add(Figure::of(&format!("{key}.seconds"), &about, "s", &column(0), seed));
        let mut cells = vec![(*name).to_owned()];
        cells.extend((0..3).map(|one| format!("{:.3}", median(&column(one).values))));
        cells.push(whole);
        match method.published {
            Some((seconds, calls)) => {
                cells.extend(seconds.map(|seconds| format!("{seconds:.3}")));
                cells.push(calls.to_string());
            }
            None => cells.extend([const { String::new() }; 4]),
        }
        table.line(cells);
    }
    for (method, faster) in methods.iter().zip(&times).skip(1) {
        let saved = times[0].iter().zip(faster).map(|(slow, fast)| 100.0 * (1.0 - fast[0] / slow[0]));
        let about = if method.under_run {
            format!("real time saved by forkless run {REMEDY}")
        } else {
            "real time saved by _setjmp".to_owned()
        };
        let saved = Samples::one_a_round(saved.collect());
        experiment.add(Figure::of(&format!("{}.gain_percent", method.key), &about, "%", &saved, seed));
    }
    experiment.tables.push(table);
    Ok(())
}
