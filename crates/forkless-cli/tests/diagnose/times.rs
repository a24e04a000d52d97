//! The times that `diagnose` reports against the times that the program takes by its own clock:
//! within 10 %, in every tier. And predicted savings against the savings that a remedy gives.
//!
//! Ignored unless asked for, since a busy machine spoils them:
//!
//!     cargo test --release -p forkless-cli --test diagnose -- --ignored times::
//!
//! Both sides are medians. The scheduler may act between the kernel's stamp and the program's
//! clock, and neither has that time.

use std::process::Command;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::findings::{LoopDevice, has_huge_pages, knows_huge_pages};
use crate::support::{FORKLESS, Truth, alone, assert_near, diagnose, find, known_problem, only, skip};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn()); 8] = [
        ("times::of_the_log", log),
        ("times::of_findings_with_tracepoints", tracepoints),
        ("times::of_findings_with_fentry", fentry),
        ("times::of_findings_with_perf_and_tracefs", perf_with_tracefs),
        ("times::of_findings_with_perf_alone", perf_alone),
        ("times::a_spawn_saves_what_was_predicted", predicted_spawn),
        ("times::huge_pages_save_what_was_predicted", predicted_huge_pages),
        ("times::whole_blocks_save_what_was_predicted", predicted_whole_blocks),
    ];
    for (name, test) in tests {
        trials.push(alone(name, test).with_ignored_flag(true));
    }
}

const NEAR: f64 = 0.10;
/// As many times as the report keeps for its medians.
const TIMED: [&str; 3] = ["timed", "31", "512"];

#[track_caller]
fn near(what: &str, said: f64, truth: f64) {
    println!(
        "{what}: {:.3} ms, by the program's clock {:.3} ms, {:.3} of it",
        said / 1e6,
        truth / 1e6,
        said / truth
    );
    assert_near(what, said, truth, NEAR);
}

fn log() {
    let (lines, truth, _) = diagnose(&["--log"], &TIMED);
    assert_eq!(lines.len(), 31);
    let median = |field: &str| {
        let mut values: Vec<f64> = lines.iter().filter_map(|line| line[field].as_f64()).collect();
        assert_eq!(values.len(), 31, "{field}");
        values.sort_by(f64::total_cmp);
        values[15]
    };
    near("the call", median("caller_waited_ns"), truth.ns("call_median_ns"));
    near("until the exec", median("until_exec_ns"), truth.ns("until_exec_median_ns"));
    near("the exec with its teardown", median("exec_ns"), truth.ns("exec_median_ns"));
    near("until the child's end", median("lifetime_ns"), truth.ns("until_reaped_median_ns"));
}

#[track_caller]
fn findings_are_near(report: &Value, truth: &Truth, stamps: bool) {
    let finding = only(report, "full_fork_then_exec");
    let times = &finding["fork_times"];
    let mid = |field: &str| times[field]["mid"].as_f64().unwrap_or_else(|| panic!("no {field}: {times}"));
    near("the call", mid("call"), truth.ns("call_median_ns"));
    if stamps {
        near("from the copy to the exec", mid("until_exec"), truth.ns("returned_to_exec_median_ns"));
        near("the exec with its teardown", mid("exec"), truth.ns("exec_median_ns"));
    }
}

fn tracepoints() {
    let (values, truth, _) = diagnose(&["--tier", "tracepoints"], &TIMED);
    findings_are_near(&values[0], &truth, true);
}

fn fentry() {
    let probe = Command::new(FORKLESS).args(["diagnose", "--tier", "fentry", "--", "true"]).output();
    let probe = probe.expect("forkless runs");
    if probe.status.code() == Some(3) {
        return skip(String::from_utf8_lossy(&probe.stderr).lines().last().unwrap_or_default());
    }
    let (values, truth, _) = diagnose(&["--tier", "fentry"], &TIMED);
    findings_are_near(&values[0], &truth, true);
}

/// In a mount namespace of its own, so that the machine stays as it is.
fn perf_with_tracefs() {
    if find("unshare").is_none() {
        return skip("no unshare(1)");
    }
    let script = "{ test -e /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing; } && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", FORKLESS, "diagnose", "--json", "--tier", "perf", "--"])
        .arg(known_problem().expect("checked before"))
        .args(TIMED)
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut values = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let (truth, report) = (Truth(values.next().expect("the program's")), values.next().expect("a report"));
    findings_are_near(&report, &truth, false);
}

/// If tracefs can be read, there are no samples to judge. CPU samples are as exact as they are
/// many: some 600 here.
fn perf_alone() {
    if std::path::Path::new("/sys/kernel/tracing/events").exists() {
        return skip("tracefs is mounted");
    }
    let (values, truth, _) = diagnose(&["--tier", "perf"], &["timed", "80", "1024"]);
    // Samples know all forks together, not a single one: the mean is compared.
    let finding = only(&values[0], "full_fork_then_exec");
    let said = finding["fork_times"]["call"]["mid"].as_f64().expect("ns");
    near("the call", said, truth.ns("call_ns") / 80.0);
}

/// A prediction against the remedy applied. The two runs may have had different neighbours.
#[track_caller]
fn came_true(saving: &Value, measured: f64) {
    println!("predicted {saving}, measured {measured:.0}");
    let ratio = saving["mid"].as_f64().expect("ns") / measured;
    assert!((0.4..2.5).contains(&ratio), "predicted {saving}, measured {measured}");
}

/// The same bytes in whole blocks: neither the reads nor so many calls.
fn predicted_whole_blocks() {
    let device = match LoopDevice::new(8 << 20) {
        Ok(device) => device,
        Err(why) => return skip(format!("no loop device: {why}")),
    };
    let (reports, small, _) = diagnose(&[], &["blockwrite", "8000", "0", &device.path]);
    let (_, large, _) = diagnose(&[], &["blockwrite-whole", "1000", "0", &device.path]);
    let measured = (small.ns("wall_ns") - large.ns("wall_ns")) / 8000.0;
    came_true(&only(&reports[0], "partial_block_writes")["saving_each_ns"], measured);
}

/// The same work with posix_spawn.
fn predicted_spawn() {
    let (reports, before, _) = diagnose(&[], &["forkexec", "20", "256"]);
    let (_, after, _) = diagnose(&[], &["spawn", "20", "256"]);
    let measured = (before.ns("call_ns") - after.ns("call_ns")) / 20.0;
    came_true(&only(&reports[0], "full_fork_then_exec")["saving_in_caller_ns"], measured);
}

fn predicted_huge_pages() {
    let (reports, before, _) = diagnose(&[], &["snapshot", "10", "256"]);
    if !knows_huge_pages(&reports[0]) {
        return;
    }
    // One fork alone. The parent writes while its child lives, which splits huge pages, and the
    // next fork is slower.
    let (_, first, _) = diagnose(&[], &["snapshot-huge", "1", "256"]);
    if has_huge_pages(&first, 256) {
        let measured = before.ns("call_ns") / 10.0 - first.ns("call_ns");
        came_true(&only(&reports[0], "fork_of_small_pages")["saving_each_ns"], measured);
    }
}
