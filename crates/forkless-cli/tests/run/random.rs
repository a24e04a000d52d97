//! Property: no sequence of steps a child takes lets an observer tell a speculative fork from a
//! plain one, nor any of threads that all fork.
//!
//! `FORKLESS_SEEDS=N` tries N seeds (from `FORKLESS_FIRST_SEED` on) instead of the 40 of every test
//! run, 20 of threads; what ever failed is in `CORPUS`.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;

use crate::fork::FOR_THREADS;
use crate::support::{compile, observe, plain, reported, without_dispatch};

static RANDOM_CHILD: LazyLock<PathBuf> = LazyLock::new(|| compile("random_child.c", &[]));
static RANDOM_THREADS: LazyLock<PathBuf> =
    LazyLock::new(|| compile("random_threads.c", &["-lpthread", "-ldl", "-lm"]));

/// Seeds that once failed, each with the number of kinds of steps the generator had then. 1002761
/// found a handler that had not run when the child blocked its signal. All others failed for what
/// the generator did: 141 and 281 sent a signal twice, which may arrive as one; 1419 read from a
/// pipe that had taken the number of a file; 10485 learnt an errno that only timing decided; 19916
/// made the parent's own pipe blocking, 20669 read below its memory, where anything may lie, 31693
/// showed the number of its terminal, the four from 201240 on learnt what an fstat that failed had
/// left on the stack, and 3000100 read from a hole in its memory, where another mapping lay.
const CORPUS: [(u64, u32); 13] = [
    (141, 48),
    (281, 48),
    (1419, 48),
    (10485, 48),
    (19916, 84),
    (20669, 84),
    (31693, 84),
    (201240, 84),
    (202586, 84),
    (203623, 84),
    (205661, 84),
    (1_002_761, 108),
    (3_000_100, 121),
];

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_children_look_the_same_from_outside() {
    let first = from_environment("FORKLESS_FIRST_SEED", 1);
    let seeds = (first..first + from_environment("FORKLESS_SEEDS", 40)).map(|seed| (seed, None));
    let corpus = CORPUS.into_iter().map(|(seed, kinds)| (seed, Some(kinds)));
    let (mut committed, mut aborted) = (0, 0);
    for (seed, kinds) in seeds.chain(corpus) {
        let texts = [Some(seed.to_string()), kinds.map(|k| k.to_string())];
        let args: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
        let without = observe(plain(&RANDOM_CHILD, &args).stdin(Stdio::null()));
        let options = ["--fork-minimum=1M", "--fork-always"];
        let (with, report) = reported(&options, &RANDOM_CHILD, &args);
        assert_eq!(without, with, "seed {seed}: {:?}", report.reasons());
        assert_eq!(without.0, Some(0), "seed {seed}");
        committed += report.count("committed");
        aborted += report.count("aborted");
    }
    // A generator whose children all go one way tests half of the matter.
    if without_dispatch() {
        assert_eq!((committed, aborted), (0, 0), "none was speculated");
    } else {
        assert!(committed >= 5 && aborted >= 5, "{committed} committed, {aborted} aborted");
    }
}

/// Each step says itself what it found wrong; how the threads' steps fall together differs from run
/// to run, with and without.
#[test]
fn random_threads_find_what_they_are_promised() {
    let first = from_environment("FORKLESS_FIRST_SEED", 11);
    let (mut committed, mut aborted, mut plainly, mut retried) = (0, 0, 0, 0);
    for seed in first..first + from_environment("FORKLESS_SEEDS", 20) {
        let seed = seed.to_string();
        let without = observe(plain(&RANDOM_THREADS, &[&seed]).stdin(Stdio::null()));
        // Some children wait for a lock that a thread of their parent holds, or go in circles in a
        // list of threads that they have read late (glibc's reclaim_stacks), until they are undone.
        // That ends the same after any time, so it need not be a minute. On a busy machine the
        // limit may take twenty times as long.
        for mode in FOR_THREADS {
            let options = [mode, "--fork-minimum=1M", "--fork-always", "--fork-limit=1000"];
            let (with, report) = reported(&options, &RANDOM_THREADS, &[&seed]);
            assert_eq!(without, with, "{mode}, seed {seed}: {:?}", report.reasons());
            assert_eq!(without.0, Some(0), "seed {seed}");
            committed += report.count("committed");
            aborted += report.count("aborted");
            retried += report.count("retried");
        }
        // In a process with threads none.
        let (strict, report) = reported(&["--fork=strict", "--fork-minimum=1M"], &RANDOM_THREADS, &[&seed]);
        assert_eq!(without, strict, "strict, seed {seed}: {:?}", report.reasons());
        plainly += report.count("plain");
    }
    assert!(plainly >= 5, "{plainly} plain forks by --fork=strict");
    if without_dispatch() {
        assert_eq!((committed, aborted), (0, 0), "none was speculated");
    } else {
        assert!(committed >= 5 && aborted >= 5, "{committed} committed, {aborted} aborted");
        assert!(retried >= 5, "{retried} retried");
    }
}
