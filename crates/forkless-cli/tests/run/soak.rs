//! A process that forks for long holds no more at its end than at its beginning.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::support::{allow_seconds, compile, nothing_speculates, observe, plain, reported};

static GROWS: LazyLock<PathBuf> = LazyLock::new(|| compile("grows.c", &[]));

/// The most that the program held: mappings, descriptors, private memory in kilobytes.
type Held = [u64; 3];

/// In the first tenth of its forks, and in the last.
fn first_and_last((status, out, err): &(Option<i32>, String, String)) -> [Held; 2] {
    assert_eq!((*status, err.as_str()), (Some(0), ""));
    let numbers: Vec<u64> = out.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [a, b, c, x, y, z] = numbers[..] else { panic!("six numbers, not {out:?}") };
    assert!(a > 0 && x > 0, "too few forks to tell: {out}");
    [[a, b, c], [x, y, z]]
}

/// Forks so often, and asserts that most commit, and that the program holds what it holds plainly.
fn holds_what_it_holds_plainly(forks: u64) -> [Held; 2] {
    let forks_text = forks.to_string();
    let args = [forks_text.as_str()];
    let [_, without] = first_and_last(&observe(&mut plain(&GROWS, &args)));
    let (seen, report) = reported(&["--children=no"], &GROWS, &args);
    let [first, with] = first_and_last(&seen);
    println!("{forks} forks: first tenth {first:?}, last {with:?}, last plainly {without:?}");
    // The library and its tables.
    assert!(with[0] <= without[0] + 12, "{with:?}, plainly {without:?}");
    assert_eq!(with[1], without[1]);
    assert!(with[2] <= without[2] + 2048, "{with:?}, plainly {without:?}");
    assert_eq!(report.count("forks"), forks);
    if !nothing_speculates() {
        // Each tenth child executes nothing.
        assert!(report.count("committed") * 100 >= forks * 75, "{:?}", report.reasons());
    }
    [first, with]
}

#[test]
fn forks_leave_nothing_in_the_parent() {
    holds_what_it_holds_plainly(700);
}

/// `FORKLESS_SOAK_FORKS` forks (a million).
#[test]
#[ignore = "half an hour"]
fn a_million_forks_leave_nothing_in_the_parent() {
    let forks = std::env::var("FORKLESS_SOAK_FORKS")
        .map_or(1_000_000, |text| text.parse().expect("FORKLESS_SOAK_FORKS is a number"));
    allow_seconds(36_000);
    let [first, last] = holds_what_it_holds_plainly(forks);
    // The program's own blocks come and go by chance.
    assert!(last[0] <= first[0] + 32 && last[2] <= first[2] + 8 * 1024, "{first:?}, {last:?}");
}
