//! Programs that forbid themselves the system calls that they do not make: one test a case of `sandbox_cases.c`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use rustix::process::{Pid, Signal};

use crate::support::{
    FORKLESS, PATIENT, compile, observe, plain, report_when, reported, reported_by, root_to, run, temporary,
    wait_until, without_dispatch,
};

static CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("sandbox_cases.c", &["-lpthread"]));

const WAYS: [&[&str]; 4] = [
    &["--fork-minimum=1M"],
    &["--fork-minimum=1M", "--fork=speculate"],
    &["--fork=off"],
    &["--fork-minimum=1M", "--huge-pages=thp", "--quiet"],
];

/// The program is the root of its run and then another program's child, with a report and without.
fn same_as_plain(case: &str) {
    let without = observe(&mut plain(&CASES, &[case]));
    assert!(matches!(without.0, Some(0..=8)), "{case}: the fixture itself failed: {without:?}");
    let shell = Path::new("/bin/sh");
    let line = format!("{} {case}; exit $?", CASES.display());
    for way in WAYS {
        assert_eq!(without, observe(&mut run(way, &CASES, &[case])), "{case} {way:?}");
        let (with, report) = reported(way, &CASES, &[case]);
        assert_eq!(without, with, "{case} {way:?}, with a report");
        assert!(report.count("processes") >= 1, "{case} {way:?}");
        let (with, report) = reported(way, shell, &["-c", &line]);
        assert_eq!(without, with, "{case} {way:?}, below a shell");
        assert!(report.count("processes") >= 2, "{case} {way:?}");
    }
}

macro_rules! cases {
    ($($name:ident;)*) => {
        $(#[test] fn $name() {
            same_as_plain(stringify!($name));
        })*
    };
}

cases! {
    forbids_twice;
    returns;
    exits;
    // Regression: the library asked for its process's number at every exit, with a report and --fork=off, too.
    exits_at_once;
    exits_unwatched;
    exits_at_once_unwatched;
    is_killed_for_a_call_more;
    strict_mode;
    // Regression: the report's name of the call site was looked up by a system call, and huge pages asked for the size of the process.
    forks_afterwards;
    // Regression: the child gave back what its parent's speculations had shared.
    forks_after_speculations;
    forks_beside_a_thread;
    // Regression: marks were noted under a lock that takes system calls.
    marks_and_moves_memory;
    // Regression: functions that change the user asked who it is.
    calls_what_is_interposed_watched;
    calls_what_is_interposed_unwatched;
    // Regression: a program that is executed under a filter knew nothing of it, and was killed at its first fork, its first line
    // or, with a report, as it was loaded.
    executes_under_a_filter;
}

/// A container's, which all programs have: forks speculate and lines do without a shell, but not where a program of the tree has
/// installed one more.
#[test]
fn a_filter_from_outside_is_worked_under() {
    for (case, sandboxed) in [("beneath_with_lines", false), ("executes_under_a_filter", true)] {
        let without = observe(&mut plain(&CASES, &[case]));
        let (with, report) = reported_by(|more| {
            let inner = run(&[more, &["--fork-minimum=1M"]].concat(), &CASES, &[case]);
            let mut outer = plain(&CASES, &["--filtered"]);
            outer.arg(inner.get_program()).args(inner.get_args());
            outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
            outer
        });
        assert_eq!(without, with, "{case}");
        assert_eq!(report.count("shells_skipped"), if sandboxed { 0 } else { 3 }, "{case}");
        let speculated = if without_dispatch() || sandboxed { 0 } else { 2 };
        assert_eq!(report.count("committed"), speculated, "{case}");
        let plainly = report.reasons().iter().filter(|reason| *reason == "Sandbox").count();
        assert_eq!(plainly, if sandboxed { 9 } else { 0 }, "{case}");
    }
}

/// The report is written when the root ends, whoever else calls `exit` or `_exit` in its memory or in a copy of it: what comes
/// afterwards is in it.
#[test]
fn the_report_is_of_the_roots_end() {
    for case in ["vforks", "copies_end", "shares_its_memory"] {
        let without = observe(&mut plain(&CASES, &[case]));
        let forks = if case == "copies_end" { 3 } else { 2 };
        let file = temporary(&format!("{case}.report.{}", std::process::id()));
        let to = format!("--report={}", file.display());
        let options = ["--json", &to, "--fork-minimum=1M", PATIENT];
        let with = observe(&mut run(&options, &CASES, &[case]));
        assert_eq!(without, with, "{case}");
        // `exit` in the root's memory calls the root's handlers, so that nothing waits for the report of the root's end.
        let report = report_when(|report| report.count("forks") == forks, &file, &with);
        assert_eq!(report.count("forks"), forks, "{case}");
        assert_eq!(report.count("committed"), if without_dispatch() { 0 } else { 2 }, "{case}");
    }
    // And once, though nothing can be taken back.
    let seen = observe(&mut run(&["--report", "--fork-minimum=1M"], &CASES, &["vforks"]));
    assert_eq!(seen.2.matches("forkless run report").count(), 1, "{seen:?}");
}

/// Regression: one that came so late that the child of `vfork` had ended took that end for the root's, and there were two reports.
#[test]
fn a_collector_that_comes_late_is_not_misled() {
    let mut run = run(&["--report", "--fork-minimum=1M", PATIENT], &CASES, &["vforks_when_told"]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut timeout = run.spawn().expect("starts");
    let mut input = timeout.stdin.take().expect("a pipe");
    let mut output = BufReader::new(timeout.stdout.take().expect("a pipe"));
    // The collector has executed nothing: its arguments are those of `forkless run`, as long as the program is not there, and after.
    let own = format!("{}\0run\0", FORKLESS);
    let find_collector = || {
        let root = children_of(timeout.id()).into_iter().next()?;
        let is_program = std::fs::read_link(format!("/proc/{root}/exe")).is_ok_and(|exe| exe == *CASES);
        let all = std::fs::read_dir("/proc").ok()?.flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_it = |pid: &u32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            *pid != root && line.starts_with(&own) && line.contains("vforks_when_told")
        };
        is_program.then(|| pids.find(is_it)).flatten()
    };
    let mut collector = None;
    wait_until(|| {
        collector = find_collector();
        collector.is_some()
    });
    let collector = collector.expect("a collector starts");
    let signal = |signal| {
        let pid = Pid::from_raw(collector.cast_signed()).expect("a number");
        rustix::process::kill_process(pid, signal).expect("lives");
    };
    signal(Signal::STOP);
    input.write_all(b"\n").expect("is read");
    let mut text = String::new();
    output.read_line(&mut text).expect("a line");
    assert_eq!(text, "child reaped status 100\n");
    signal(Signal::CONT);
    // It sleeps between two looks.
    let first = sleeps_of(collector);
    assert!(wait_until(|| sleeps_of(collector) > first + 3), "the collector looks no more");
    input.write_all(b"\n").expect("is read");
    let rest = timeout.wait_with_output().expect("ends");
    let report = String::from_utf8_lossy(&rest.stderr);
    assert_eq!(report.matches("forkless run report").count(), 1, "{report}");
    assert!(report.contains("2  forks seen"), "{report}");
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// How often a process has gone to sleep.
fn sleeps_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Regression: of two processes with the number 1, each in its own namespace, the one that ended first had the report written.
#[test]
fn a_process_of_another_namespace_does_not_end_the_report() {
    if !root_to("make a PID namespace") {
        return;
    }
    let shell = Path::new("/bin/sh");
    let line = "unshare --pid --fork true; /bin/true; /bin/true; /bin/true; sleep 0.3";
    let (seen, report) = reported_by(|options| {
        let inner = run(options, shell, &["-c", line]);
        let mut outer = Command::new("unshare");
        outer.args(["--pid", "--fork", "--mount-proc"]).arg(inner.get_program()).args(inner.get_args());
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer
    });
    assert_eq!(seen.0, Some(0), "{seen:?}");
    // The shell, unshare, and the five programs after it.
    assert!(report.count("processes") >= 7, "{}", report.count("processes"));
}
