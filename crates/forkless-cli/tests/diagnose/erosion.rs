//! Workers that make pages private: found with who writes, and less with the remedy applied.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{add_needing, fixture, of_kind, program, report_in, skip};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 8] = [
        ("erosion::by_a_collector_until_the_parent_freezes", collector, "python3"),
        ("erosion::by_a_collector_without_names", nameless_collector, "python3"),
        ("erosion::by_reference_counts", counts, "python3"),
        ("erosion::by_the_programs_own_writes", own_writes, "python3"),
        ("erosion::at_the_end_of_a_worker_is_not_counted", at_the_end, "python3"),
        ("erosion::by_ruby_until_the_parent_is_warm", ruby, "ruby"),
        ("erosion::by_an_allocator_until_the_parent_gives_back_what_is_free", allocator, "cc"),
        ("erosion::after_a_second_with_many_starts", after_many_starts, "python3"),
    ];
    add_needing(trials, &tests);
}

#[track_caller]
fn is_quiet(report: &Value) {
    let findings = report["findings"].as_array().expect("a list");
    assert!(!findings.iter().any(|finding| finding["kind"] == "cow_erosion"), "{report}");
}

fn run(what: &str) -> Option<Value> {
    report_in("tracepoints", &["python3", &fixture("workers.py"), what])
}

fn collector() {
    let Some(report) = run("collect") else { return };
    let finding = of_kind(&report, "cow_erosion");
    assert!(finding["title"].to_string().contains("3 workers make "), "{finding}");
    assert!(finding["title"].to_string().ends_with("by the garbage collector\""), "{finding}");
    assert!(finding["remedy"].to_string().contains("gc.freeze() right before the fork"), "{finding}");
    // The remedy, applied: the same collections write to nothing that is shared.
    let Some(mended) = run("freeze") else { return };
    is_quiet(&mended);
    assert_eq!(mended["creations"]["full_fork_alone"], report["creations"]["full_fork_alone"], "{mended}");
}

/// An interpreter of a distribution's: its static functions have no names, unless its package of
/// symbols is installed.
const OF_DISTRIBUTION: &str = "/usr/bin/python3";

/// Regression: the garbage collector of Debian's Python was "reference counts or its own writes",
/// at the place `PyObject_Vectorcall`, and nobody was told of gc.freeze.
fn nameless_collector() {
    if !std::path::Path::new(OF_DISTRIBUTION).exists() {
        return skip(format!("no {OF_DISTRIBUTION}"));
    }
    let run = |what: &str| report_in("tracepoints", &[OF_DISTRIBUTION, &fixture("workers.py"), what]);
    let Some(report) = run("collect") else { return };
    let finding = of_kind(&report, "cow_erosion");
    let (title, remedy) = (finding["title"].to_string(), finding["remedy"].to_string());
    if !finding["stack"][0]["function"].is_null() {
        return skip("the interpreter's functions have names");
    }
    // Where its code does not tell it, the collector is one of three that are possible.
    let is_known = title.ends_with("by the garbage collector\"");
    assert!(
        is_known || title.ends_with("by its collector, reference counts or its own writes\""),
        "{finding}"
    );
    assert!(is_known || cfg!(not(target_arch = "x86_64")), "{finding}");
    assert!(remedy.contains("gc.freeze() right before the fork"), "{finding}");
    let place = finding["place"].as_str().expect("text");
    assert!(place.contains("python3") && !place.contains("PyObject_Vectorcall"), "{finding}");
    let Some(mended) = run("freeze") else { return };
    is_quiet(&mended);
    // Code that is none of the collector's.
    let Some(report) = run("read") else { return };
    let title = of_kind(&report, "cow_erosion")["title"].to_string();
    assert!(!is_known || title.ends_with("by reference counts or its own writes\""), "{title}");
}

/// Regression: the stacks of a second's first creations left no room for those of private pages.
fn after_many_starts() {
    let workers = fixture("workers.py");
    let starts = "i=0; while [ $i -lt 150 ]; do sh -c '(:); :'; i=$((i + 1)); done; exec python3 \"$0\" read";
    let Some(report) = report_in("tracepoints", &["sh", "-c", starts, &workers]) else { return };
    assert!(report["totals"]["creations"].as_u64().is_some_and(|creations| creations >= 300), "{report}");
    let finding = of_kind(&report, "cow_erosion");
    is_by_counts(&finding);
}

/// With debug information of the interpreter counts alone are named, and they are that for sure.
#[track_caller]
fn is_by_counts(finding: &Value) {
    let title = finding["title"].as_str().expect("text");
    let has_lines = finding["stack"][0].get("line").is_some();
    let writer = if has_lines { "by reference counts" } else { "by reference counts or its own writes" };
    let of_three = "by its collector, reference counts or its own writes";
    assert!(title.ends_with(writer) || !has_lines && title.ends_with(of_three), "{finding}");
    assert_eq!(finding.to_string().contains("which of "), !has_lines, "{finding}");
}

/// Regression: reference counts were blamed for writes to one bytearray.
fn own_writes() {
    let Some(report) = run("write") else { return };
    let finding = of_kind(&report, "cow_erosion");
    let title = finding["title"].as_str().expect("text");
    let known = finding["stack"][0]["function"] == "bytearray_ass_subscript";
    let writer = if known { "by the program" } else { "by reference counts or its own writes" };
    assert!(title.ends_with(writer), "{finding}");
    assert!(finding["remedy"].to_string().contains("apart from data that they only read"), "{finding}");
}

fn counts() {
    let Some(report) = run("read") else { return };
    let finding = of_kind(&report, "cow_erosion");
    is_by_counts(&finding);
    // The remedy, applied: the same data without objects.
    let Some(mended) = run("array") else { return };
    is_quiet(&mended);
}

/// Regression: CPython writes to all objects when it ends, and workers that had only slept were
/// told to make 113.6 MiB each private.
fn at_the_end() {
    let Some(ended) = run("end") else { return };
    is_quiet(&ended);
    let Some(report) = run("half") else { return };
    assert_eq!(ended["creations"]["full_fork_alone"], report["creations"]["full_fork_alone"], "{ended}");
    let finding = of_kind(&report, "cow_erosion");
    is_by_counts(&finding);
    // The end was seen, so that it is its stacks that leave it out.
    let evidence = finding["evidence"].as_array().expect("a list");
    let at_end = |fact: &&Value| fact["what"] == "more by each worker at its end, not counted";
    let at_end = evidence.iter().find(at_end).unwrap_or_else(|| panic!("no end: {finding}"));
    assert!(at_end["value"].to_string().contains("MiB"), "{finding}");
}

/// A libruby without symbols, as distributions have it, was taken for the program.
fn ruby() {
    let workers = fixture("workers.rb");
    let Some(report) = report_in("tracepoints", &["ruby", &workers]) else { return };
    let finding = of_kind(&report, "cow_erosion");
    let title = finding["title"].as_str().expect("text");
    assert!(title.ends_with("by Ruby itself") || title.ends_with("by the garbage collector"), "{finding}");
    assert!(finding["remedy"].to_string().contains("Call Process.warmup in the parent"), "{finding}");
    let Some(mended) = report_in("tracepoints", &["ruby", &workers, "warm"]) else { return };
    is_quiet(&mended);
    assert_eq!(mended["creations"]["full_fork_alone"], 3, "{mended}");
}

fn allocator() {
    let gaps = program("gaps.c").expect("a compiler");
    let gaps = gaps.to_string_lossy();
    let Some(report) = report_in("tracepoints", &[&gaps]) else { return };
    let finding = of_kind(&report, "cow_erosion");
    assert!(finding["title"].to_string().ends_with("by the allocator\""), "{finding}");
    assert!(finding["remedy"].to_string().contains("malloc_trim(0)"), "{finding}");
    let Some(mended) = report_in("tracepoints", &[&gaps, "trim"]) else { return };
    is_quiet(&mended);
    assert_eq!(mended["creations"]["full_fork_alone"], 3, "{mended}");
}
