//! What other threads of a program must not notice while one of them forks: one test a case of
//! `beside_cases.c`. Each prints how often a thread was surprised.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::fork::{only_its_own, same_as_plain};
use crate::support::{Report, compile, nothing_speculates, root_to, without_dispatch};

static CASES: LazyLock<PathBuf> = LazyLock::new(|| {
    compile("beside_cases.c", &["-lpthread", "-lutil", "-ldl", "-Wno-deprecated-declarations"])
});

/// The case behaves as it does plainly, both where late reads count and where they do not.
fn unnoticed(case: &str) -> [Report; 2] {
    [&[][..], &["--fork=speculate"]].map(|mode| same_as_plain(&CASES, &only_its_own(mode), case))
}

/// And at least so many forks commit. How many others find a plain fork under way is the
/// scheduler's choice.
fn commits(case: &str, least: u64) {
    for report in unnoticed(case) {
        let committed = report.count("committed");
        assert!(without_dispatch() || committed >= least, "{case}: {committed}, {:?}", report.reasons());
    }
}

macro_rules! cases {
    ($($name:ident: $commits:literal;)*) => {
        $(#[test] fn $name() {
            commits(stringify!($name), $commits);
        })*
    };
}

cases! {
    // Regression: the library's files took the lowest number for a moment.
    numbers_are_the_lowest: 190;
    one_number_is_free: 190;
    ten_thousand_are_open: 18;
    // Regression: the action was the library's, and setting it ended the process.
    the_action_is_its_own: 190;
    the_action_in_vforks_child: 190;
    memory_moves: 100;
    // Regression: children past `fork` lacked memory that was marked for another thread's child.
    children_by_number_have_all_memory: 10;
    children_of_libcs_own_forks_have_all_memory: 10;
    // Regression: functions found by a handle of libc's went past the library.
    children_by_handle_have_all_memory: 10;
    marks_by_handle: 2;
    // Regression: the helper waited for ever for memory that the program serves itself.
    faults_of_its_own: 0;
    eight_threads_fork: 20;
}

/// What another thread starts meanwhile would have the signal at its default.
#[test]
fn an_ignored_action_is_inherited() {
    for report in unnoticed("an_ignored_action_is_inherited") {
        let ignored = report.reasons().iter().filter(|reason| *reason == "Ignored").count();
        assert!(without_dispatch() || ignored == 20, "{:?}", report.reasons());
    }
}

#[test]
fn a_process_that_may_not_open_its_memory_speculates_beside_threads() {
    if root_to("change the user") {
        commits("not_dumpable", 18);
    }
}

/// No helper and no child stays behind, and nothing hangs. A child whose helper has ended with the
/// forking thread may wait for it until its time limit.
fn ends_meanwhile(case: &str) {
    for mode in [&[][..], &["--fork=speculate"]] {
        let options = ["--fork-minimum=1M", "--fork-always", "--fork-limit=300", "--children=no"];
        let report = same_as_plain(&CASES, &[&options, mode].concat(), case);
        assert!(without_dispatch() || report.count("committed") > 40, "{:?}", report.reasons());
    }
}

#[test]
fn a_thread_executes_beside_a_speculation() {
    ends_meanwhile("executes_meanwhile");
}

#[test]
fn nothing_is_left_of_a_process_killed_beside_a_speculation() {
    ends_meanwhile("is_killed");
}

/// A process that has no right to a further thread forks plainly, and its threads see nothing.
#[test]
fn where_no_helper_can_be_made_forks_are_plain() {
    if nothing_speculates() || !root_to("change the user") {
        return;
    }
    for report in unnoticed("no_helper") {
        let helper = report.reasons().iter().filter(|reason| *reason == "Helper").count();
        assert_eq!((report.count("committed"), helper), (0, 3), "{:?}", report.reasons());
    }
}
