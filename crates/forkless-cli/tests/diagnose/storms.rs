//! Storms of short programs: found with who starts them, and a remedy that fits and works.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{add_needing, fixture, of_kind, report_in};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 5] = [
        ("storms::a_script_that_starts_date_for_each_line", script, "bash"),
        ("storms::xargs_with_one_argument_each", xargs, "xargs"),
        ("storms::find_with_one_file_each", find_exec, "find"),
        ("storms::make_with_a_shell_for_each_line", make, "make"),
        ("storms::what_starts_few_programs_or_by_spawn_is_no_storm", quiet, "sh"),
    ];
    add_needing(trials, &tests);
}

#[track_caller]
fn storm(report: &Value, programs: u64, starts: &str, remedy: &str) {
    let finding = of_kind(report, "start_storm");
    assert_eq!(finding["count"], programs, "{finding}");
    let text = |name: &str| finding[name].as_str().expect("text").to_owned();
    assert!(text("title").contains(starts), "{finding}");
    assert!(text("remedy").contains(remedy), "{finding}");
    assert!(finding["saving_each_ns"]["mid"].as_f64().is_some_and(|ns| ns > 0.0), "{finding}");
}

fn is_quiet(report: &Value) {
    let findings = report["findings"].as_array().expect("a list");
    assert!(!findings.iter().any(|finding| finding["kind"] == "start_storm"), "{report}");
}

/// A script with 2,000 `$(date)` was told to start programs with posix_spawn.
fn script() {
    for tier in ["tracepoints", "perf"] {
        let Some(found) = report_in(tier, &[&fixture("dates.sh")]) else { continue };
        storm(&found, 600, "dates.sh starts 600 short programs", "printf '%(%F %T)T' for date");
        let told = found["findings"].to_string();
        assert!(!told.contains("posix_spawn"), "a shell cannot be changed: {told}");
        let finding = of_kind(&found, "start_storm");
        assert!(finding["remedy"].to_string().contains("${path##*/} for basename"), "{finding}");
        // The remedy, applied.
        let Some(mended) = report_in(tier, &[&fixture("dates_by_bash.sh")]) else { continue };
        assert_eq!(mended["starts"]["programs"], 0, "{mended}");
        is_quiet(&mended);
    }
}

fn xargs() {
    let run =
        |options: &str| report_in("tracepoints", &["sh", "-c", &format!("seq 200 | xargs {options} true")]);
    let Some(found) = run("-n1") else { return };
    storm(&found, 200, "xargs starts 200 short programs", "leave -n1 out");
    let Some(mended) = run("") else { return };
    is_quiet(&mended);
}

fn find_exec() {
    // A directory with many files, which no other test changes.
    let run = |end: &str| {
        let line = format!("find /proc/self/ -maxdepth 1 -exec true {{}} {end}");
        report_in("tracepoints", &["sh", "-c", &line])
    };
    let Some(found) = run("\\;") else { return };
    let count = of_kind(&found, "start_storm")["count"].as_u64().expect("a count");
    storm(&found, count, "find starts ", "-exec with {} +");
    let Some(mended) = run("+") else { return };
    is_quiet(&mended);
}

/// The remedy removes shells, as many as a recipe has further lines.
fn make() {
    let recipes = fixture("recipes.mk");
    let shells = |report: &Value| -> u64 {
        let starters = report["starts"]["starters"].as_array().expect("a list").iter();
        let make = starters.filter(|starter| starter["name"] == "make");
        let started = make.flat_map(|starter| starter["started"].as_array().expect("a list").clone());
        started.filter(|one| one[0] == "sh").map(|one| one[1].as_u64().expect("a count")).sum()
    };
    let Some(found) = report_in("tracepoints", &["make", "-f", &recipes]) else { return };
    assert_eq!(shells(&found), 180, "{}", found["starts"]);
    let finding = of_kind(&found, "start_storm");
    assert!(finding["remedy"].to_string().contains(".ONESHELL"), "{finding}");
    let Some(mended) = report_in("tracepoints", &["make", "-f", &recipes, "ONESHELL=1"]) else { return };
    assert_eq!(shells(&mended), 60, "{}", mended["starts"]);
}

fn quiet() {
    let program = crate::support::known_problem().expect("checked before").to_string_lossy();
    for command in [
        &["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done"][..],
        &[&program, "spawn", "300", "16"],
        &[&program, "vfork", "300", "16"],
    ] {
        let Some(found) = report_in("tracepoints", command) else { return };
        is_quiet(&found);
    }
}
