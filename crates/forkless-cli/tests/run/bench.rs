//! `forkless bench memory` and `cow` also measure a fork under `forkless run`, but only if it was
//! speculated.

use std::path::Path;
use std::process::Command;

use crate::support::{FORKLESS, LIBRARY, emulated, nothing_speculates, seconds};

fn results(arguments: &[&str], library: &Path) -> serde_json::Value {
    let mut command = Command::new("timeout");
    command.arg(seconds(600).as_secs().to_string()).args([FORKLESS, "bench"]).args(arguments).args([
        "--pages",
        "base",
        "--no-save",
        "--json",
        "-",
    ]);
    let output = command.env("FORKLESS_LIBRARY", library).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")["suites"][0].clone()
}

fn median(suite: &serde_json::Value, method: &str, metric: &str) -> Option<f64> {
    let rows = suite["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["method"] == method && row["metric"] == metric)?;
    row["median"].as_f64()
}

const UNDER_RUN: &str = "fork_exec_under_run";

fn limit_is_too_short() -> bool {
    if emulated() {
        println!("skipped: a child in an emulator may take longer than bench lets it speculate");
    }
    emulated()
}

#[test]
fn bench_memory_has_a_row_for_a_speculated_fork() {
    if nothing_speculates() || limit_is_too_short() {
        return;
    }
    let arguments =
        ["memory", "--sizes", "256M", "--runs", "10", "--methods", "fork_exec,fork_exec_under_run"];
    let suite = results(&arguments, &LIBRARY);
    for method in ["fork_exec", UNDER_RUN] {
        assert!(median(&suite, method, "wall").is_some(), "{method}: {}", suite["notes"]);
    }
    let row = suite["rows"].as_array().unwrap().iter().find(|row| row["method"] == UNDER_RUN).unwrap();
    let limit = row["limit"].as_str().expect("every row names its limit");
    assert!(!limit.contains("not speculated"), "{limit}");
}

#[test]
fn bench_cow_has_no_slow_pass_after_a_speculated_fork() {
    if nothing_speculates() || limit_is_too_short() {
        return;
    }
    let arguments = ["cow", "--count", "10000", "--runs", "5", "--methods", "fork_exec_under_run"];
    let suite = results(&arguments, &LIBRARY);
    let faults = median(&suite, UNDER_RUN, "faults").unwrap_or_else(|| panic!("{}", suite["notes"]));
    assert!(faults < 1_000.0, "{faults}");
    assert!(median(&suite, "fork", "faults").unwrap() >= 10_000.0);
}

#[test]
fn without_the_library_bench_has_no_such_row_and_says_so() {
    let suite = results(&["cow", "--count", "500", "--runs", "2"], Path::new("/nonexistent"));
    assert_eq!(median(&suite, UNDER_RUN, "faults"), None);
    let notes = suite["notes"].to_string();
    assert!(notes.contains("skipped: fork_exec_under_run") && notes.contains("/nonexistent"), "{notes}");
}
