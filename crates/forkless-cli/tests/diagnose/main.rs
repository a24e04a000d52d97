//! `forkless diagnose` against programs with known problems (`fixtures/diagnose/known_problem.c`).
//! Counts must be exact where nothing was lost. Times are in `times.rs`, for a quiet machine.
//!
//! The harness is libtest_mimic's: a test that cannot run here, or not to its end (no root, no BPF,
//! no C compiler), counts as ignored, with the reason printed, and never as passed. Tests run two
//! at a time, since a watch and its program keep one processor busy by turns. Those that would see
//! the programs of other tests run alone.

mod bystanders;
mod closes;
mod compare;
mod erosion;
mod findings;
mod healthy;
mod left;
#[path = "../library/mod.rs"]
mod library;
mod lines;
mod log;
mod loops;
mod names;
mod outputs;
mod real;
mod refused;
mod remedies;
mod repair;
mod robust;
mod storms;
mod support;
mod tiers;
mod times;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    left::begin();
    let missing = support::missing();
    if let Some(why) = &missing {
        eprintln!("diagnose: ignored, {why}");
    }
    let mut trials: Vec<Trial> = Vec::new();
    log::add(&mut trials);
    findings::add(&mut trials);
    lines::add(&mut trials);
    names::add(&mut trials);
    storms::add(&mut trials);
    refused::add(&mut trials);
    loops::add(&mut trials);
    closes::add(&mut trials);
    bystanders::add(&mut trials);
    erosion::add(&mut trials);
    remedies::add(&mut trials);
    repair::add(&mut trials);
    outputs::add(&mut trials);
    compare::add(&mut trials);
    tiers::add(&mut trials);
    robust::add(&mut trials);
    real::add(&mut trials);
    times::add(&mut trials);
    healthy::add(&mut trials);
    left::add(&mut trials);
    if missing.is_some() {
        trials = trials.into_iter().map(|trial| trial.with_ignored_flag(true)).collect();
    }
    libtest_mimic::run(&arguments, trials).exit();
}
