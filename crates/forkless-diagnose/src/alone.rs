//! A test in a process of its own, for what is measured of the whole process or takes more of it than other tests allow.

use std::process::Command;

/// Runs the ignored test of this path, which must pass, and passes on what it had to skip.
pub(crate) fn alone(test: &str) {
    let tests = std::env::current_exe().expect("we run from a file");
    let output = Command::new(tests)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .expect("the tests run");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    complained.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| eprintln!("{line}"));
    // A test that is not there any more would pass.
    assert!(output.status.success() && said.contains("1 passed"), "{said}{complained}");
}
