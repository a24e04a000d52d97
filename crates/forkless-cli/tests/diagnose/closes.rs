//! Loops of closes: found with `forkless run` as their remedy where the preloaded library answers
//! them, by its own report.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::remedies::under_run;
use crate::support::{add_needing, fact, of_kind, program, report_in};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 4] = [
        ("closes::run_answers_a_loop_and_its_forks_commit", answered, "cc"),
        ("closes::a_loop_that_run_leaves_is_not_promised", left, "cc"),
        ("closes::marks_count_against_no_limit_either", marks, "cc"),
        ("closes::work_behind_a_loop_counts_against_the_limit", works, "cc"),
    ];
    add_needing(trials, &tests);
}

/// Children of the fixture.
const CHILDREN: u64 = 6;

/// More than the limit of time allows without the answers.
const NUMBERS: &str = "400000";

fn watched(way: &str, numbers: &str) -> Option<(Value, Vec<String>)> {
    let program = program("close_loop.c").expect("a compiler");
    let command = vec![program.to_string_lossy().into_owned(), way.to_owned(), numbers.to_owned()];
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    Some((report_in("tracepoints", &words)?, command))
}

fn counter(command: &[String], name: &str) -> u64 {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let report = under_run(&words);
    report["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

/// Regression: the finding of the loop named close_range alone, and that of the forks said that
/// their children took too long for `run`.
fn answered() {
    let Some((report, command)) = watched("close", NUMBERS) else { return };
    for kind in ["close_loop", "full_fork_then_exec"] {
        let finding = of_kind(&report, kind);
        assert_eq!(finding["command"], format!("forkless run -- {}", command.join(" ")), "{finding:#}");
        assert_eq!(finding["why_not_run"], Value::Null, "{finding:#}");
    }
    let loops = of_kind(&report, "close_loop");
    let predicted = fact(&loops, "answered by the preloaded library").expect("a count");
    let predicted: u64 = predicted.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
    let all = CHILDREN * NUMBERS.parse::<u64>().expect("a number");
    // The first 64 of a loop teach the library, and numbers below 1024 are the kernel's.
    assert!((all * 9 / 10..all).contains(&predicted), "{predicted} of {all}");
    // The remedy, applied. The library counts in steps, without the last one.
    let closed = counter(&command, "closes_answered");
    assert!((all * 9 / 10..=all).contains(&closed), "{closed} of {all}");
    assert_eq!(counter(&command, "committed"), CHILDREN);
}

fn left() {
    // Regression: -1 is a number beyond the table, and a loop need not be one of neighbours.
    let ways = [
        ("asks", "50000"),
        ("raw", "50000"),
        ("vfork", "50000"),
        ("negative", "50000"),
        ("even", "100000"),
        ("close", "1024"),
    ];
    for (way, numbers) in ways {
        let Some((report, command)) = watched(way, numbers) else { return };
        let finding = of_kind(&report, "close_loop");
        let why = finding["why_not_run"].as_str().unwrap_or_else(|| panic!("{way}: {finding:#}"));
        let expected = match way {
            "raw" => "the loop makes its system calls by another function than libc's",
            _ => "the loop makes another system call between its closes, or ",
        };
        assert!(why.starts_with(expected), "{way}: {why}");
        assert!(finding["command"].to_string().contains("forkless diagnose"), "{way}: {finding:#}");
        assert_eq!(counter(&command, "closes_answered"), 0, "{way}");
    }
}

/// F_SETFD of every number in place of close, and F_GETFD. Regression: such a loop was told to call
/// fcntl once and to keep the result, where `run` answers it.
fn marks() {
    for way in ["fcntl", "getfd"] {
        let Some((report, command)) = watched(way, NUMBERS) else { return };
        let loops = of_kind(&report, "close_loop");
        assert_eq!(loops["command"], format!("forkless run -- {}", command.join(" ")), "{loops:#}");
        assert!(loops["remedy"].to_string().contains("close_range(2)"), "{loops:#}");
        assert!(loops["title"].to_string().contains("calls fcntl for descriptors"), "{loops:#}");
        let closed = counter(&command, "closes_answered");
        let all = CHILDREN * NUMBERS.parse::<u64>().expect("a number");
        assert!((all * 9 / 10..=all).contains(&closed), "{way}: {closed} of {all}");
    }
    let Some((report, command)) = watched("fcntl", NUMBERS) else { return };
    let forks = of_kind(&report, "full_fork_then_exec");
    assert_eq!(forks["why_not_run"], Value::Null, "{forks:#}");
    assert_eq!(counter(&command, "committed"), CHILDREN);
}

fn works() {
    let Some((report, _)) = watched("works", NUMBERS) else { return };
    let forks = of_kind(&report, "full_fork_then_exec");
    let why = forks["why_not_run"].as_str().unwrap_or_else(|| panic!("{forks:#}"));
    assert!(why.contains("before they execute a program, and 50 ms are the limit"), "{why}");
    // The loop itself is answered all the same.
    let loops = of_kind(&report, "close_loop");
    assert!(loops["command"].to_string().contains("forkless run"), "{loops:#}");
}
