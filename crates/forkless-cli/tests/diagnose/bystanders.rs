//! Threads that wait behind a fork of their process: found, and not with the remedy applied.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{add_needing, functions, of_kind, program, report_in};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 2] = [
        ("bystanders::threads_that_wait_behind_forks", forks, "cc"),
        ("bystanders::nobody_waits_for_a_process_with_one_thread", alone, "cc"),
    ];
    add_needing(trials, &tests);
}

fn run(tier: &str, how: &str) -> Option<Value> {
    let program = program("bystanders.c").expect("a compiler");
    report_in(tier, &[&program.to_string_lossy(), how, "20", "64", "6"])
}

#[track_caller]
fn is_quiet(report: &Value) {
    let findings = report["findings"].as_array().expect("a list");
    assert!(!findings.iter().any(|finding| finding["kind"] == "bystanders"), "{report}");
}

fn forks() {
    let Some(report) = run("tracepoints", "fork") else { return };
    let finding = of_kind(&report, "bystanders");
    let title = finding["title"].as_str().expect("text");
    assert!(
        title.starts_with("a fork of bystanders stalls ") && title.contains(" other thread"),
        "{finding}"
    );
    let forks = finding["count"].as_u64().expect("a count");
    assert!((1..=20).contains(&forks), "{finding}");
    let waited = finding["cost"]["others_ns"].as_f64().expect("a time");
    assert!(waited > 0.0, "{finding}");
    // Six threads wait, and the forking one never waits for itself.
    let threads = finding["evidence"][1]["value"].as_str().expect("text");
    let most: u64 =
        threads.split(", ").nth(1).and_then(|part| part.split(' ').next()?.parse().ok()).expect(threads);
    assert!((1..=6).contains(&most), "{finding}");
    assert!(functions(&finding).contains(&"start_program"), "{finding}");
    assert!(finding["command"].to_string().contains("forkless run -- "), "{finding}");
    // The remedies, applied.
    let Some(mended) = run("tracepoints", "spawn") else { return };
    is_quiet(&mended);
    assert_eq!(mended["creations"]["shared_memory"], 20, "{mended}");
    // No tier without BPF sees a wait, and none guesses.
    if let Some(other) = run("perf", "fork") {
        is_quiet(&other);
    }
}

fn alone() {
    let program = crate::support::known_problem().expect("checked before").to_string_lossy();
    let Some(report) = report_in("tracepoints", &[&program, "forkexec", "10", "64"]) else { return };
    is_quiet(&report);
}
