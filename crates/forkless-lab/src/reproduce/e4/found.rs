//! The needless calls found in running programs that nobody prepared for it, and found no more once
//! `forkless run` has removed them. Who looks is `forkless diagnose`; where it may not count system
//! calls (that takes privileges), the tracer's counts stand alone.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use forkless_bench::error::Error;
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::stats::median;
use serde_json::Value;

use super::threads::{self, NO_RUN};
use crate::reproduce::green::{self, How};
use crate::reproduce::{Bench, Experiment, Figure, TitledGrid, text, tools};
use crate::run_command::run_command;

/// The remedy for programs that ask for the local time.
const TZ: &str = "--tz";

/// What `forkless diagnose` says about a kind of needless call in a program.
struct FoundCalls {
    calls: f64,
    /// Where most of them come from.
    place: String,
}

/// Lets `forkless diagnose` watch a program from its beginning to its end. `None`: it finds no such
/// calls.
fn look(forkless: &Path, kind: &str, words: &[OsString]) -> Result<Option<FoundCalls>, Error> {
    let mut command = tools::command(&[forkless.into()]);
    command.args(["diagnose", "--json", "--min-share", "0", "--"]).args(words).env_remove("TZ");
    let said = tools::run(&mut command, Duration::from_secs(120))?;
    // 1: it has findings.
    if said.code != Some(1) {
        said.clone().fine("forkless diagnose")?;
    }
    let report = said.stdout.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let report = report.ok_or_else(|| Error::Missing("forkless diagnose printed no report".into()))?;
    if report["system_calls"] != true {
        return Err(Error::Missing("forkless diagnose may not count system calls here".into()));
    }
    Ok(finding(&report, kind))
}

fn finding(report: &Value, kind: &str) -> Option<FoundCalls> {
    let of_kind: Vec<&Value> =
        report["findings"].as_array()?.iter().filter(|one| one["kind"] == kind).collect();
    let most = of_kind.iter().max_by_key(|one| one["count"].as_u64())?;
    let named = most["stack"].as_array().into_iter().flatten().find_map(|frame| frame["function"].as_str());
    let place = named.unwrap_or("an unnamed function").to_owned();
    Some(FoundCalls { calls: of_kind.iter().filter_map(|one| one["count"].as_f64()).sum(), place })
}

/// A program with needless calls, and what to do about them.
struct Case<'a> {
    /// What readers call it.
    program: &'a str,
    /// The calls as `forkless diagnose` names them, and as readers do.
    kind: &'a str,
    calls: &'a str,
    /// The beginning of the figures' names.
    key: &'a str,
    remedy: &'a str,
    /// The program's words as it is, and under `forkless run`.
    words: [Vec<OsString>; 2],
    /// Seconds of it, as it is and under `forkless run`.
    seconds: [f64; 2],
    /// Calls of it as a tracer counted them.
    traced: [Option<f64>; 2],
}

pub(super) fn measure(bench: &mut Bench<'_>, experiment: &mut Experiment) -> Result<(), Error> {
    let Some(forkless) = bench.options.forkless.clone() else { return Ok(()) };
    let mut table = TitledGrid::new(
        "Found in the running program, and removed from it unmodified",
        &["program", "needless calls", "most from", "removed by", "found", "left", "before, s", "after, s"],
        4,
    );
    if green::AVAILABLE {
        let operations: u64 = 100_000;
        let words = [false, true].map(|run| threads::words(&forkless, How::Ucontext, run, operations));
        let seconds = ["ucontext.seconds", "run.seconds"]
            .map(|name| experiment.figure(name).map_or(f64::NAN, |figure| figure.value));
        #[expect(clippy::cast_precision_loss, reason = "a number of operations")]
        let traced = ["ucontext.calls_per_switch", "run.calls_per_switch"]
            .map(|name| Some(experiment.figure(name)?.value * 2.0 * operations as f64));
        let case = Case {
            program: "two green threads",
            kind: "needless_signal_mask",
            calls: "rt_sigprocmask",
            key: "mask",
            remedy: threads::REMEDY,
            words,
            seconds,
            traced,
        };
        removed(&forkless, &case, bench.options.run, experiment, &mut table);
    }
    perl(bench, &forkless, experiment, &mut table)?;
    if !table.grid.lines.is_empty() {
        experiment.tables.push(table);
    }
    Ok(())
}

/// Looks at a program as it is, and under `forkless run`.
fn removed(forkless: &Path, case: &Case<'_>, run: bool, experiment: &mut Experiment, table: &mut TitledGrid) {
    let Case { program, calls, key, remedy, .. } = case;
    let names = [format!("{key}.found"), format!("{key}.found_after")];
    let states = [(0, String::new()), (1, format!(" under forkless run {remedy}"))];
    let mut cells = [String::new(), "not run".to_owned()];
    let mut place = String::new();
    for (index, state) in states.into_iter().take(if run { 2 } else { 1 }) {
        match look(forkless, case.kind, &case.words[index]) {
            Ok(found) => {
                let count = found.as_ref().map_or(0.0, |found| found.calls);
                if let (Some(found), 0) = (found, index) {
                    place = found.place;
                }
                let about = format!("{calls} calls that forkless diagnose finds in {program}{state}");
                let figure = Figure::exact(&names[index], &about, "", count);
                cells[index] = text::figure(&figure);
                experiment.add(figure);
            }
            Err(error) => {
                experiment.miss(&[&names[index]], format!("{error}; the tracer's counts stand for it"));
                cells[index] =
                    case.traced[index].map_or_else(String::new, |calls| format!("{calls:.0} (traced)"));
            }
        }
    }
    let [before, after] =
        case.seconds.map(|seconds| if seconds.is_nan() { String::new() } else { format!("{seconds:.3}") });
    let [found, left] = cells;
    table.line([
        (*program).to_owned(),
        (*calls).to_owned(),
        place,
        format!("forkless run {remedy}"),
        found,
        left,
        before,
        after,
    ]);
}

/// Perl's localtime looks at /etc/localtime each time. The Perl of the system, as it is.
fn perl(
    bench: &mut Bench<'_>,
    forkless: &Path,
    experiment: &mut Experiment,
    table: &mut TitledGrid,
) -> Result<(), Error> {
    const NAMES: [&str; 3] = ["perl.calls", "perl.run_calls", "perl.gain"];
    let perl = match tools::provide(bench, "perl", "perl-base") {
        Ok(perl) => perl,
        Err(why) => {
            experiment.miss(&NAMES, why);
            return Ok(());
        }
    };
    let words = |run: bool, calls: u64| {
        let mut words = Vec::new();
        if run {
            words.extend(run_command(forkless, &[TZ, "--quiet"]));
        }
        words.push(perl.clone().into());
        words.extend(["-e".into(), format!("my @now; @now = localtime for 1 .. {calls}").into()]);
        words
    };
    let states: &[bool] = if bench.options.run { &[false, true] } else { &[false] };
    let calls: u64 = bench.quick(200_000, 1_000_000);
    let seed = bench.options.seed;
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..bench.quick(3, 5) {
        for step in 0..states.len() {
            let run = states[(step + round) % states.len()];
            times[usize::from(run)].push(threads::timed(&words(run, calls), &["TZ"])?[0]);
        }
    }
    for &run in states {
        let (name, state) =
            if run { ("perl.run_calls", ", under forkless run --tz") } else { ("perl.calls", "") };
        match threads::counted([50, 250], libc::SYS_newfstatat, &["TZ"], |calls| words(run, calls)) {
            Ok((each, _)) => {
                experiment.add(Figure::exact(
                    name,
                    &format!("stat calls of Perl's localtime{state}"),
                    "",
                    each,
                ));
            }
            Err(error) => experiment.miss(&[name], error.to_string()),
        }
    }
    let seconds =
        [0, 1].map(|index: usize| if times[index].is_empty() { f64::NAN } else { median(&times[index]) });
    let [plain, run] = times.map(Samples::one_a_round);
    if bench.options.run {
        let about = "a Perl that asks for the local time, plain against forkless run --tz";
        experiment.add(Figure::ratio("perl.gain", about, &plain, &run, seed));
    } else {
        experiment.miss(&NAMES[1..], NO_RUN);
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
    let traced =
        ["perl.calls", "perl.run_calls"].map(|name| Some(experiment.figure(name)?.value * calls as f64));
    let case = Case {
        program: "Perl, localtime",
        kind: "localtime_lookups",
        calls: "stat(\"/etc/localtime\")",
        key: "stat",
        remedy: TZ,
        words: [words(false, calls), words(true, calls)],
        seconds,
        traced,
    };
    removed(forkless, &case, bench.options.run, experiment, table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_a_kind_are_added_up_and_placed_where_most_are_from() {
        let report = serde_json::json!({"findings": [
            {"kind": "needless_signal_mask", "count": 5, "stack": [{"function": "sigprocmask"}]},
            {"kind": "needless_signal_mask", "count": 40, "stack": [{"function": null}, {"function": "getcontext"}]},
            {"kind": "localtime_lookups", "count": 1000, "stack": []},
        ]});
        let found = finding(&report, "needless_signal_mask").unwrap();
        assert_eq!((found.calls, found.place.as_str()), (45.0, "getcontext"));
        assert!(finding(&report, "polling").is_none());
        assert!(finding(&serde_json::json!({}), "polling").is_none());
    }
}
