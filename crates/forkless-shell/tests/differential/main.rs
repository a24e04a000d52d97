//! Runs lines through real shells and through the analysis, and compares all that can be seen.
//!
//! The test compares the outcome, standard output and error, and every file the line left behind.
//! Each program of the line also reports its arguments, environment (values and order), directory,
//! descriptors and signals. A shell that is not installed is counted as skipped and named.
//!
//! `FORKLESS_SHELL_FUZZ_SECONDS=600` runs random lines for that long instead of the fixed number.
//! `FORKLESS_SHELL_SEED` sets their first seed. A failure prints the seed of its line.

#![allow(
    clippy::incompatible_msrv,
    reason = "tests are built with the workspace's compiler, not the libraries' oldest"
)]

mod cases;
mod compare;
mod generator;
mod observer;
mod process;
mod runner;
mod shells;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let own_name = arguments.next().unwrap_or_default();
    observer::act_as(own_name.rsplit('/').next().unwrap_or_default());

    let wanted: Vec<String> = arguments.filter(|argument| !argument.starts_with('-')).collect();
    let _reserved = process::reserve_low_descriptors();
    let mut bench = compare::Bench::new();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for kind in shells::SUPPORTED {
        let Some(shell) = shells::Shell::find(*kind, bench.base()) else {
            println!("test {kind:?} ... skipped: not installed");
            skipped += cases::ALL.len();
            continue;
        };
        for (name, run) in cases::ALL {
            let title = format!("{kind:?}::{name}");
            if !wanted.is_empty() && !wanted.iter().any(|part| title.contains(part.as_str())) {
                continue;
            }
            match run(&mut bench, &shell) {
                Ok(note) => {
                    println!(
                        "test {title} ... ok{}",
                        if note.is_empty() { note } else { format!(" ({note})") }
                    );
                    passed += 1;
                }
                Err(difference) => {
                    println!("test {title} ... FAILED\n{difference}");
                    failed += 1;
                }
            }
        }
    }
    println!("\ntest result: {passed} passed; {failed} failed; {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
