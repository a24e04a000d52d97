//! CPython's own tests of processes, with every fork speculated and without forkless. They take
//! minutes, and run when asked for: `cargo test -p forkless-cli --test run -- --ignored cpython`.
//! `FORKLESS_PYTHON` names the interpreter (else `python3`).

use std::path::PathBuf;

use crate::support::{allow_seconds, observe, plain, reported};

const SUITES: [&str; 7] = [
    "test_fork1",
    "test_subprocess",
    "test_os",
    "test_posix",
    "test_signal",
    "test_multiprocessing_fork",
    "test_concurrent_futures",
];

/// The lines of a run that do not depend on its duration.
fn summary(out: &str) -> Vec<&str> {
    out.lines()
        .filter(|l| {
            l.starts_with("Total tests") || l.to_lowercase().contains("result: ") || l.contains("failed")
        })
        .collect()
}

#[test]
#[ignore = "runs for minutes and needs CPython with its test package"]
fn cpython_suites_end_as_without_forkless() {
    let python =
        PathBuf::from(std::env::var_os("FORKLESS_PYTHON").unwrap_or_else(|| "/usr/bin/python3".into()));
    allow_seconds(900);
    for mode in ["exact", "strict", "speculate"] {
        for suite in SUITES {
            let args = ["-m", "test", suite];
            let without = observe(&mut plain(&python, &args));
            let fork = format!("--fork={mode}");
            let options = [fork.as_str(), "--fork-minimum=0", "--fork-always"];
            let (with, report) = reported(&options, &python, &args);
            assert_eq!(without.0, with.0, "{suite} {mode}:\n{}", with.1);
            assert_eq!(summary(&without.1), summary(&with.1), "{suite} {mode}");
            eprintln!(
                "{suite} {mode}: {} speculated, {} committed, {} aborted",
                report.count("speculated"),
                report.count("committed"),
                report.count("aborted")
            );
        }
    }
}
