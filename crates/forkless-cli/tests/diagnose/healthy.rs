//! A healthy machine gets no finding. These tests are ignored unless asked for, since they are
//! long:
//!
//!     cargo test --release -p forkless-cli --test diagnose -- --ignored healthy::
//!
//! A machine that runs tests does other work too, which may deserve a finding. Findings about other
//! programs are printed, and only findings about the load fail a test.
//! `tests/kernels/diagnose.sh --idle` and `--spawn` watch a machine that does nothing else.

use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{FORKLESS, alone, known_problem};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn()); 2] = [
        ("healthy::a_minute_of_posix_spawn_at_full_rate", spawns),
        ("healthy::three_minutes_without_a_load", idle),
    ];
    for (name, test) in tests {
        trials.push(alone(name, test).with_ignored_flag(true));
    }
}

/// Killed when dropped.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself; the test asserts that elsewhere.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(seconds: &str) -> (Value, Option<i32>) {
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--all", "--json", "-d", seconds])
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    (serde_json::from_slice(&output.stdout).expect("JSON"), output.status.code())
}

/// Findings about other programs are printed. Without any, the exit code has to be 0.
#[track_caller]
fn not_accused(report: &Value, code: Option<i32>, load: &[&str]) {
    let findings = report["findings"].as_array().expect("a list");
    for finding in findings {
        println!("of another program: {}", finding["title"]);
        let exe = finding["process"]["exe"].as_str().unwrap_or_default();
        let comm = finding["process"]["comm"].as_str().expect("text");
        assert!(!load.iter().any(|name| exe.ends_with(name) || comm == *name), "{finding}");
    }
    assert_eq!(code, Some(i32::from(!findings.is_empty())));
    assert_eq!(report["totals"]["lost_ring"], 0, "{report}");
    assert_eq!(report["totals"]["lost_live"], 0, "{report}");
    // Absent where they are not counted.
    assert_eq!(report["totals"]["lost_calls"].as_u64().unwrap_or(0), 0, "{report}");
}

fn spawns() {
    let load = Command::new(known_problem().expect("checked before"))
        .args(["spawn", "100000000", "64"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program runs");
    let load = Load(load);
    let (report, code) = watch("60");
    drop(load);
    let shared = report["creations"]["shared_memory"].as_u64().expect("a count");
    println!("{shared} spawns in a minute");
    assert!(shared > 6000, "{report}");
    not_accused(&report, code, &["/known_problem", "known_problem", "true"]);
}

/// The tool does not find its own parts.
fn idle() {
    let (report, code) = watch("180");
    not_accused(&report, code, &["/known_problem", "known_problem"]);
}
