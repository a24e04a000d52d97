//! Children that close every number up to a limit: one test a case of `close_cases.c`. The report
//! says whether the calls were answered without the kernel.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::fork::{ALWAYS, only_its_own, same_as_plain};
use crate::support::{
    Report, before_linux, compile, compile_as, nothing_speculates, observe, plain, reported,
};

static CLOSE_CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("close_cases.c", &["-lpthread"]));

/// Every fork is below the threshold, and so plain.
const BELOW: [&str; 2] = ["--fork-minimum=1G", "--children=no"];

/// Whether closes are answered on this machine: on x86-64, if files of /proc can be opened below
/// its root.
fn answers() -> bool {
    let answers = cfg!(target_arch = "x86_64") && !before_linux(5, 6);
    if !answers {
        println!("skipped: close loops are not answered on this machine");
    }
    answers
}

/// The numbers of a loop to 2^20 that are answered: all but the first 1,100 and the last 4,096.
const WHOLE: u64 = (1 << 20) - 1100 - 4096;

/// Runs a case whose children speculate or fork plainly, and asserts that so many loops were
/// answered whole.
fn answered(case: &str, speculated: u64, below: u64) {
    for (options, loops) in [(only_its_own(&[]), speculated), (BELOW.to_vec(), below)] {
        let report = same_as_plain(&CLOSE_CASES, &options, case);
        if answers() {
            let closes = report.count("closes_answered");
            let range = WHOLE * loops..(1 << 20) * loops + 1;
            assert!(range.contains(&closes), "{case} {options:?}: {closes}, {:?}", report.reasons());
        }
    }
}

macro_rules! answered {
    ($($name:ident: $speculated:literal, $below:literal;)*) => {
        $(#[test] fn $name() {
            answered(stringify!($name), $speculated, $below);
        })*
    };
}

answered! {
    closes_upwards: 1, 1;
    closes_downwards: 1, 1;
    sets_flags: 1, 1;
    asks_flags: 1, 1;
    asks_and_closes: 1, 1;
    closes_the_last_numbers: 1, 1;
    // The child that was undone counts as well.
    never_executes: 2, 1;
    grandchild_closes: 1, 1;
    without_a_fork: 0, 0;
    // Beside threads everything is the kernel's.
    cancelled_in_close: 0, 0;
    cancelled_in_the_loop: 0, 0;
    vforks_beside_threads: 0, 0;
}

/// Every answer is the kernel's, whatever happens between two calls.
fn same(case: &str) -> [Report; 2] {
    same_in(only_its_own(&[]), case)
}

fn same_in(speculating: Vec<&str>, case: &str) -> [Report; 2] {
    [speculating, BELOW.to_vec()].map(|options| {
        let (with, report) = reported(&options, &CLOSE_CASES, &[case]);
        // Another number of calls may have been made when a timer's signal came.
        assert_eq!(observe(&mut plain(&CLOSE_CASES, &[case])), with, "{case} {options:?}");
        if with.1.starts_with("SKIPPED") {
            println!("skipped: {}", with.1);
        }
        report
    })
}

macro_rules! same {
    ($($name:ident;)*) => {
        $(#[test] fn $name() {
            same(stringify!($name));
        })*
    };
}

same! {
    closes_one_far_up;
    opens_in_the_midst;
    thread_opens_one;
    process_opens_one;
    vforks_in_the_midst;
    filter_sees_the_calls;
}

/// A speculative child waits for its handler, which is to run in its replacement: the time limit
/// ends the wait.
#[test]
fn opens_in_a_handler() {
    let options = vec!["--fork-minimum=1M", "--fork-always", "--fork-limit=50", "--children=no"];
    for report in same_in(options, "opens_in_a_handler") {
        assert_eq!(report.count("committed"), 0, "{:?}", report.reasons());
    }
}

#[test]
fn a_child_that_closes_all_commits() {
    if nothing_speculates() {
        return;
    }
    let report = same_as_plain(&CLOSE_CASES, &ALWAYS, "closes_upwards");
    assert_eq!((report.count("committed"), report.count("aborted")), (1, 0), "{:?}", report.reasons());
    // Some thousand calls are judged, and not a million.
    assert!(report.count("direct") + report.count("traps") < 3000);
}

#[test]
fn with_forks_left_alone_the_kernel_gets_every_call() {
    let report = same_as_plain(&CLOSE_CASES, &["--fork=off"], "closes_upwards");
    assert_eq!(report.count("closes_answered"), 0);
}

/// A library in front of libc counts the calls of `close`.
#[test]
fn another_library_gets_every_call() {
    let library = compile_as("libclose_counter.so", "close_counter.c", &["-shared", "-fPIC"]);
    let directory = library.parent().expect("a directory").display().to_string();
    let flags =
        [format!("-L{directory}"), format!("-Wl,-rpath,{directory}"), "-Wl,--no-as-needed".to_owned()];
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(["-lclose_counter", "-lpthread"]).collect();
    let program = compile_as("counted_close_cases", "close_cases.c", &flags);
    for options in [&ALWAYS[..], &BELOW] {
        let report = same_as_plain(&program, options, "closes_some");
        assert_eq!(report.count("closes_answered"), 0, "{options:?}");
    }
}
