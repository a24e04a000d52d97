//! Both programs report in the same words, and only the program that forks pays for its memory.

use std::process::{Command, Output};

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

/// The number after `"name":` in the line of JSON.
fn field(output: &Output, name: &str) -> f64 {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let (_, rest) = text.split_once(&format!("\"{name}\":")).unwrap();
    rest[..rest.find([',', '}']).unwrap()].parse().unwrap()
}

const FORK: &str = env!("CARGO_BIN_EXE_server-fork");
const FORKLESS: &str = env!("CARGO_BIN_EXE_server-forkless");

#[test]
fn the_library_removes_what_the_fork_costs() {
    let plain = run(FORK, &["--json", "256", "9"]);
    let ours = run(FORKLESS, &["--json", "256", "9"]);
    for output in [&plain, &ours] {
        assert_eq!(field(output, "mib"), 256.0);
        assert_eq!(field(output, "starts"), 9.0);
    }
    // A fork of 256 MiB in base pages takes 3 ms or more, the library's whole start half a
    // millisecond. The distance keeps the test from failing on a busy machine. Huge pages make the
    // fork cheap, so there would be nothing to see.
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if huge.contains("[always]") {
        println!("skipped: transparent huge pages are always on");
        return;
    }
    let (before, after) = (field(&plain, "start_us"), field(&ours, "start_us"));
    assert!(after * 1.5 < before, "fork {before} us, forkless {after} us");
    let (before, after) = (field(&plain, "pass_after_us"), field(&ours, "pass_after_us"));
    assert!(after * 1.5 < before, "pass after a fork {before} us, after forkless {after} us");
}

#[test]
fn a_bad_argument_is_usage() {
    for program in [FORK, FORKLESS] {
        let output = run(program, &["many"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("usage: "));
    }
}
