//! The tiers below BPF: what each of them finds without BPF, and what it says that it cannot see.

use std::process::Command;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::findings::knows_huge_pages;
use crate::support::{FORKLESS, diagnose, find, functions, known_problem, of_kind, only, skip, trial};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let no_capsh = find("capsh").is_none().then_some("no capsh: apt-get install libcap2-bin");
    let no_tracefs = (!std::path::Path::new("/sys/kernel/tracing").is_dir() || find("unshare").is_none())
        .then_some("no tracefs to mount, or no unshare(1)");
    type Test = (&'static str, fn(), Option<&'static str>);
    let tests: [Test; 6] = [
        ("tiers::perf_tells_full_forks_by_their_childs_page_faults", by_faults, None),
        ("tiers::perf_prices_the_forks_of_a_program_that_lives_for_milliseconds", short_lived, None),
        ("tiers::perf_does_not_accuse_spawns", spawns, None),
        ("tiers::perf_finds_snapshots_and_their_place", snapshots, None),
        ("tiers::perf_times_forks_by_tracepoint_where_tracefs_is", by_tracepoint, no_tracefs),
        ("tiers::without_cap_bpf_perf_takes_over", without_cap_bpf, no_capsh),
    ];
    for (name, test, missing) in tests {
        if let Some(why) = missing {
            eprintln!("{name}: ignored, {why}");
        }
        trials.push(trial(name, test).with_ignored_flag(missing.is_some()));
    }
}

fn report(program: &[&str]) -> Value {
    let (mut values, _, _) = diagnose(&["--tier", "perf", "--min-share", "0"], program);
    assert_eq!(values.len(), 1);
    values.remove(0)
}

fn by_faults() {
    let report = report(&["forkexec", "20", "64"]);
    assert_eq!(report["tier"], "perf");
    assert_eq!(report["totals"]["creations"], 20, "{report}");
    assert_eq!(report["totals"]["lost_ring"], 0);
    let finding = of_kind(&report, "full_fork_then_exec");
    // Samples tell a full fork. They may be lost while the program fills its memory, and later on a
    // busy machine.
    assert!((1..=20).contains(&finding["count"].as_u64().expect("a count")), "{finding}");
    assert!(functions(&finding).contains(&"fork_for_exec"), "{:?}", functions(&finding));
    assert!(!report["limits"].as_array().expect("a list").is_empty());
}

/// Regression: the rings were read when the program and its memory were gone, and nothing was
/// found.
fn short_lived() {
    const TOO_LATE: &str = "had ended before their memory could be read";
    let mut found = report(&["forkexec", "5", "64"]);
    // On a very busy machine the tool does not run meanwhile, and says so.
    for _ in 0..4 {
        if found["limits"].to_string().contains(TOO_LATE) {
            found = report(&["forkexec", "5", "64"]);
        }
    }
    if found["limits"].to_string().contains(TOO_LATE) {
        return skip("the machine is too busy for a watch of 15 ms");
    }
    let finding = of_kind(&found, "full_fork_then_exec");
    let anonymous =
        finding["evidence"].as_array().expect("a list").iter().find(|e| e["what"] == "of it anonymous");
    let value = anonymous.expect("it is a fork's")["value"].as_str().expect("a text");
    let mib: f64 = value.trim_end_matches(" MiB").parse().expect("MiB");
    assert!((60.0..70.0).contains(&mib), "{finding}");
}

fn spawns() {
    for mode in ["spawn", "vfork"] {
        // Its pages are in the page cache. A child that is the first to need a page from the disk
        // looks like a fork (decision 18).
        let warm = Command::new(known_problem().expect("checked before")).args([mode, "5", "64"]).output();
        assert!(warm.expect("the program runs").status.success());
        let report = report(&[mode, "50", "64"]);
        assert_eq!(report["creations"]["shared_memory"], 50, "{mode}: {report}");
        assert!(report["findings"].as_array().expect("a list").is_empty(), "{mode}: {report}");
    }
}

fn snapshots() {
    let report = report(&["snapshot", "5", "64"]);
    if !knows_huge_pages(&report) {
        return;
    }
    let finding = of_kind(&report, "fork_of_small_pages");
    assert!(functions(&finding).contains(&"one_snapshot"), "{:?}", functions(&finding));
}

/// In a mount namespace of its own, so that the machine stays as it is.
fn by_tracepoint() {
    let script = "{ test -e /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing; } && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", FORKLESS, "diagnose", "--json", "--tier", "perf", "--"])
        .arg(known_problem().expect("checked before"))
        .args(["forkexec", "20", "64"])
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (truth, report) = (&values[0], &values[1]);
    let finding = only(report, "full_fork_then_exec");
    // The tracepoint tells the flags, so the count is exact.
    assert_eq!(finding["count"], 20, "{finding}");
    let share = finding["cost"]["caller_ns"].as_f64().expect("ns") / truth["call_ns"].as_f64().expect("ns");
    // The program's clock also counts the time that it does not run right after the copy.
    assert!(share > 0.0 && share < 1.05, "{share} of the time that the program saw");
    assert!(functions(&finding).contains(&"fork_for_exec"), "{:?}", functions(&finding));
}

/// Root without CAP_BPF and CAP_SYS_ADMIN, as in many containers.
fn without_cap_bpf() {
    let command = format!(
        "exec {FORKLESS} diagnose --json -- {} forkexec 20 64",
        known_problem().expect("checked before").display()
    );
    let output = Command::new("capsh")
        .args(["--drop=cap_bpf,cap_sys_admin", "--", "-c", &command])
        .output()
        .expect("capsh runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(report["tier"], "perf", "{report}");
    assert_eq!(report["refused"][0]["tier"], "bpf_tracepoints", "{report}");
    assert_eq!(report["totals"]["creations"], 20, "{report}");
    of_kind(&report, "full_fork_then_exec");
}
