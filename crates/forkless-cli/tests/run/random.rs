//! Property: no sequence of steps a child takes lets an observer tell a speculative fork from a plain one.
//!
//! `FORKLESS_SEEDS=N` tries N seeds (from `FORKLESS_FIRST_SEED` on) instead of the 40 of every test run; what ever failed is in `CORPUS`.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;

use crate::support::{compile, observe, plain, reported};

static RANDOM_CHILD: LazyLock<PathBuf> = LazyLock::new(|| compile("random_child.c", &[]));

/// Seeds that once failed, all for what the generator did: 141 and 281 sent a signal twice, which may arrive as one; 1419 read from a pipe
/// that had taken the number of a file.
const CORPUS: [u64; 3] = [141, 281, 1419];

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_children_look_the_same_from_outside() {
    let first = from_environment("FORKLESS_FIRST_SEED", 1);
    let seeds = (first..first + from_environment("FORKLESS_SEEDS", 40)).chain(CORPUS);
    let (mut committed, mut aborted) = (0, 0);
    for seed in seeds {
        let seed = seed.to_string();
        let without = observe(plain(&RANDOM_CHILD, &[&seed]).stdin(Stdio::null()));
        let options = ["--fork-minimum=1M", "--fork-always"];
        let (with, report) = reported(&options, &RANDOM_CHILD, &[&seed]);
        assert_eq!(without, with, "seed {seed}: {:?}", report.reasons());
        assert_eq!(without.0, Some(0), "seed {seed}");
        committed += report.count("committed");
        aborted += report.count("aborted");
    }
    // A generator whose children all go one way tests half of the matter.
    assert!(committed >= 5 && aborted >= 5, "{committed} committed, {aborted} aborted");
}
