//! Calls that a speculative child may make because their effect is private, or postponed until
//! exec: one test a case of `policy_cases.c`. Each case has the program that would notice
//! otherwise.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::fork::{compare_in, only_its_own, same_as_plain};
use crate::support::{PATIENT, before_linux, compile, may_mount, nothing_speculates, root_to};

static POLICY: LazyLock<PathBuf> = LazyLock::new(|| compile("policy_cases.c", &[]));

macro_rules! cases {
    ($($name:ident: $commits:literal, [$($reason:literal),*];)*) => {
        $(#[test] fn $name() {
            compare(stringify!($name), $commits, &[$($reason),*]);
        })*
    };
}

fn compare(case: &str, commits: u64, reasons: &[&str]) {
    compare_in(&POLICY, &only_its_own(&[]), case, commits, reasons);
}

cases! {
    clears_nonblocking_and_executes: 1, [];
    sets_flags_that_are_set: 1, [];
    sets_flags_back_and_forth: 1, [];
    sets_other_flags: 0, ["Inherited", "Inherited", "Inherited", "Inherited"];
    an_undone_child_has_set_no_flags: 0, ["Inherited"];
    lets_go_of_what_it_has_set: 0, ["Inherited", "Inherited", "Inherited", "Inherited"];
    sets_flags_for_an_exec_that_fails: 2, ["Inherited"];
    makes_timers_and_executes: 2, [];
    asks_about_timers: 1, [];
    sets_a_timer: 0, ["Call"];
    asks_where_a_file_stands: 1, [];
    adds_the_right_to_write: 3, ["Call", "Call", "Call"];
    adds_the_right_to_write_under_a_limit: 0, ["Layout", "Layout"];
    asks_about_its_time: 1, [];
    asks_for_addresses: 1, [];
    looks_for_a_name_service: 2, ["Call", "Call", "Call", "Call"];
    reads_what_is_the_same_for_all: 1, ["Inherited"];
}

/// Before Linux 6.15 the library's timer takes a number that an executed program would get.
#[test]
fn numbers_go_on_over_exec() {
    if before_linux(6, 15) {
        println!("skipped: before Linux 6.15 the numbers of timers cannot be chosen");
        return;
    }
    compare("numbers_go_on_over_exec", 1, &[]);
}

/// Of three limits two leave no room for the library's timer, or for one of the program's.
#[test]
fn the_last_timer_is_the_programs() {
    if root_to("become another user") {
        compare("the_last_timer_is_the_programs", 1, &["Call", "Call"]);
    }
}

#[test]
fn reads_what_was_the_same_for_all() {
    if may_mount("mount over files of /proc") {
        compare("reads_what_was_the_same_for_all", 0, &["Inherited"]);
    }
}

/// A place whose children are undone by signals is tried again after four forks each time.
#[test]
fn a_signal_comes_each_time() {
    if nothing_speculates() {
        return;
    }
    let options = ["--fork-minimum=1M", "--children=no", PATIENT];
    let report = same_as_plain(&POLICY, &options, "a_signal_comes_each_time");
    let reasons = report.reasons();
    let undone = reasons.iter().filter(|reason| *reason == "Signal").count();
    let left_alone = reasons.iter().filter(|reason| *reason == "Learned").count();
    assert_eq!((undone, left_alone), (5, 19), "{reasons:?}");
}
