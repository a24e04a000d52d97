//! Runs a test in its own process: it measures the whole process, or takes more memory than other
//! tests allow.

use std::process::Command;

/// Runs the ignored test of this path. It must pass; what it skipped is printed.
pub(crate) fn run_in_own_process(test: &str) {
    let tests = std::env::current_exe().expect("we run from a file");
    let output = Command::new(tests)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .expect("the tests run");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    complained.lines().filter(|line| line.starts_with("skipped:")).for_each(|line| eprintln!("{line}"));
    // Without the count, a test that no longer exists would pass.
    assert!(output.status.success() && said.contains("1 passed"), "{said}{complained}");
}
