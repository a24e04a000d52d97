//! Event loops that stand still: found with what they wait for, and not with the remedy applied.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{add_needing, fact, fixture, functions, of_kind, program, report_in, skip};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 7] = [
        ("loops::asyncio_that_waits_for_a_programs_end", asyncio, "python3"),
        ("loops::asyncio_that_always_has_something_to_run", busy_asyncio, "python3"),
        ("loops::node_that_waits_for_a_programs_end", node, "node"),
        ("loops::node_with_a_line_that_waits_and_one_that_goes_on", mixed_node, "node"),
        ("loops::one_that_copies_memory_to_start_programs", forks, "cc"),
        ("loops::in_which_another_thread_starts_programs", another_thread, "cc"),
        ("loops::of_scripts_that_serve_nobody_are_no_finding", scripts, "node"),
    ];
    add_needing(trials, &tests);
}

fn found(report: &Value) -> Option<&Value> {
    report["findings"].as_array().expect("a list").iter().find(|finding| finding["kind"] == "loop_blocked")
}

/// A busy machine may hold a loop until a few ends: it is in the middle of another call then.
#[track_caller]
fn is_not_held_until_an_end(report: &Value) {
    let held = found(report).is_some_and(|one| one["title"].to_string().contains("it waits for the end of"));
    assert!(!held, "{report}");
}

/// Where `runProgram` was read, its line is known. Regression: after some calls V8 compiles it.
#[track_caller]
fn is_placed_by_line(report: &Value, server: &str, call: &str) {
    let text = std::fs::read_to_string(server).expect("a fixture");
    let line = text.lines().position(|line| line.contains(call)).expect("the call") + 1;
    let findings = report["findings"].as_array().expect("a list").iter();
    for finding in findings.filter(|finding| functions(finding).first() == Some(&"runProgram")) {
        assert_eq!(finding["place"], format!("runProgram (loop.js:{line})"), "{finding}");
    }
}

const END: &str = "of it in the wait for the child's end";

fn asyncio() {
    let server = fixture("loop.py");
    let Some(report) = report_in("tracepoints", &["python3", &server]) else { return };
    let finding = of_kind(&report, "loop_blocked");
    assert!(finding["title"].to_string().contains("it waits for the end of sleep"), "{finding}");
    assert!(fact(&finding, END).is_some_and(|value| value.ends_with(" of 20 times")), "{finding}");
    assert!(finding["remedy"].to_string().contains("Await asyncio.create_subprocess_exec"), "{finding}");
    // The line is read while the loop waits. On a busy machine that may be too late for all.
    let line = std::fs::read_to_string(&server).expect("a fixture");
    let marked = line.lines().position(|line| line.ends_with("# @0 run_program")).expect("a mark") + 1;
    if finding["stack"][0]["line"].is_u64() {
        assert_eq!(finding["place"], format!("run_program (loop.py:{marked})"), "{finding}");
    }
    // The remedy, applied.
    let Some(mended) = report_in("tracepoints", &["python3", &server, "await"]) else { return };
    assert!(mended["starts"]["programs"].as_u64().is_some_and(|programs| programs >= 20), "{mended}");
    is_not_held_until_an_end(&mended);
}

/// Regression: a loop that is never seen to wait was none.
fn busy_asyncio() {
    let Some(report) = report_in("tracepoints", &["python3", &fixture("loop.py"), "busy"]) else { return };
    let finding = of_kind(&report, "loop_blocked");
    assert!(finding["title"].to_string().contains("it waits for the end of sleep"), "{finding}");
    assert!(fact(&finding, END).is_some_and(|value| value.ends_with(" of 20 times")), "{finding}");
}

fn node() {
    let server = fixture("loop.js");
    let Some(report) = report_in("tracepoints", &["node", &server]) else { return };
    let finding = of_kind(&report, "loop_blocked");
    assert!(finding["title"].to_string().contains("it waits for the end of sleep"), "{finding}");
    assert!(fact(&finding, END).is_some_and(|value| value.ends_with(" of 20 times")), "{finding}");
    assert!(finding["remedy"].to_string().contains("child_process.execFile"), "{finding}");
    is_placed_by_line(&report, &server, "execFileSync('sleep'");
    // The remedy, applied.
    let Some(mended) = report_in("tracepoints", &["node", &server, "async"]) else { return };
    is_not_held_until_an_end(&mended);
    is_placed_by_line(&mended, &server, "execFile('sleep'");
}

/// Regression: both lines were the place of the wait, and both were told to use execFile.
fn mixed_node() {
    let server = fixture("loop.js");
    let Some(report) = report_in("tracepoints", &["node", &server, "mixed"]) else { return };
    let finding = of_kind(&report, "loop_blocked");
    let text = std::fs::read_to_string(&server).expect("a fixture");
    let line = |mark: &str| text.lines().position(|line| line.ends_with(mark)).expect("a mark") + 1;
    let goes_on = format!("goOn (loop.js:{})", line("// @2 goOn"));
    let waits = format!("waitFor (loop.js:{})", line("// @1 waitFor"));
    // A line is read while the loop is in it. On a busy machine that may be too late.
    if fact(&finding, "other lines, that do not wait for the end").is_none() {
        assert!(!finding["lines"].to_string().contains("waitFor"), "both were read: {finding}");
        return skip("the lines were not both read in time");
    }
    assert!(finding["title"].to_string().contains("it waits for the end of sleep"), "{finding}");
    assert_eq!(finding["place"], waits.as_str(), "{finding}");
    assert!(!finding["lines"].to_string().contains("goOn"), "{finding}");
    let remedy = finding["remedy"].as_str().expect("text");
    assert!(remedy.starts_with(&format!("At {waits}: Use child_process.execFile")), "{remedy}");
    assert!(remedy.contains(&format!(". At {goes_on}: Start programs from a worker")), "{remedy}");
}

/// With much memory: on a busy machine a copy of little costs no more than a speculation's price.
fn run(tier: &str, how: &str) -> Option<Value> {
    let program = program("loop.c").expect("a compiler");
    report_in(tier, &[&program.to_string_lossy(), how, "20", "256"])
}

fn forks() {
    let Some(report) = run("tracepoints", "fork") else { return };
    let finding = of_kind(&report, "loop_blocked");
    assert_eq!(finding["count"], 20, "{finding}");
    // Another thread waits for all of the ends, and its time is none of the loop's.
    is_not_held_until_an_end(&report);
    assert!(functions(&finding).contains(&"start_program"), "{finding}");
    assert!(finding["command"].to_string().contains("forkless run -- "), "{finding}");
    assert!(fact(&finding, "of it the forks' copying, which the preloaded library leaves out").is_some());
    // The remedy, applied: whatever the loop still waits for, it copies nothing.
    let Some(mended) = run("tracepoints", "spawn") else { return };
    assert_eq!(mended["creations"]["shared_memory"], 20, "{mended}");
    if let Some(finding) = found(&mended) {
        assert!(!finding["command"].to_string().contains("forkless run"), "{finding}");
    }
}

fn another_thread() {
    for tier in ["tracepoints", "perf"] {
        let Some(report) = run(tier, "thread") else { continue };
        assert_eq!(found(&report), None, "the loop went on: {report}");
    }
}

/// A build script may wait for its programs.
fn scripts() {
    let script = "for (let i = 0; i < 10; i++) require('child_process').execFileSync('true')";
    let Some(report) = report_in("tracepoints", &["node", "-e", script]) else { return };
    assert_eq!(found(&report), None, "{report}");
}
