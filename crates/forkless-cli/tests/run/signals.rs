//! Signals around speculative forks: one test a case of `signal_cases.c`.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::fork::{ALWAYS, cases, compare_in, only_its_own, same_as_plain};
use crate::support::{PATIENT, Report, compile, nothing_speculates, reported, without_dispatch};

static SIGNAL_CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("signal_cases.c", &["-lpthread"]));

cases! {
    SIGNAL_CASES;
    signal_state_survives_exec: 1, [];
    signals_by_the_old_name: 4, [];
    death_signal_is_the_programs: 2, [];
    death_signal_goes_with_the_credentials: 2, [];
    joins_a_group_of_orphans: 0, ["Call", "Call", "Inherited"];
    signals_keep_their_senders: 0, ["Inherited", "Inherited"];
    own_fault_handler: 0, ["Fault"];
    one_sigchld_a_child: 1, ["Call"];
    // Regression: a signal that the child itself had caused was sent to the replacement before the
    // replacement had its handler.
    own_signals_come_once: 0, ["Signal", "Signal"];
    // Regression: a handler did not run if the child then blocked or ignored its signal. Nor did it
    // run before the next instruction.
    own_signals_are_handled: 1, ["Signal", "Signal", "Signal", "Signal", "Signal", "Signal", "Signal"];
    forks_on_an_alternate_stack: 0, ["AltStack"];
    alternate_stack_is_kept: 1, [];
    // Regression: after a direct execve the flags were those of the library's stack.
    the_stacks_flags_after_exec: 3, [];
    forks_on_a_small_stack: 1, [];
    // Regression: arming a thread blocks its signals, and came before the program's fork handlers.
    // The handlers waited for ever. A fault that was handled in one left all signals blocked.
    fork_handlers_wait_for_signals: 5, [];
    // Regression: the signal killed the process.
    blocks_every_signal: 5, ["Unusual", "Unusual"];
    ignored_signals_that_wait: 0, ["Signal", "Signal", "Signal"];
}

/// Regression: of the signals that reach a child while it speculates, only those that can be
/// blocked waited until an exec came through.
#[test]
fn signals_reach_the_replacement() {
    // Seven signals for a child that executes and for one that writes. The last four cannot wait
    // for the child's next step.
    let reasons = [&["Inherited"; 3][..], &["Signal"; 11]].concat();
    compare_in(&SIGNAL_CASES, &ALWAYS, "signals_reach_the_replacement", 0, &reasons);
}

/// Regression: a signal that came while the parent prepared a fork waited there, and the child
/// never got it: of 40 process groups that were ended 3 to 7 went on.
#[test]
fn a_signal_to_the_group_comes_before_the_fork_or_to_both() {
    let program = compile("group_signals.c", &[]);
    for kind in ["executes", "writes", "handles", "stops"] {
        let (with, report) = reported(&ALWAYS, &program, &[kind, "60"]);
        let expected = (Some(0), "0 of some rounds\n".into(), String::new());
        assert_eq!(with, expected, "{kind}: {:?}", report.reasons());
        // Of the other kinds the signal ends or stops the process before it counts its fork.
        let aborted = report.count("aborted");
        let counts = kind == "handles" && !nothing_speculates();
        assert!(!counts || aborted >= 20, "{kind}: {aborted}, {:?}", report.reasons());
    }
}

#[test]
fn a_stop_reaches_the_replacement() {
    compare_in(&SIGNAL_CASES, &ALWAYS, "a_stop_reaches_the_replacement", 0, &["Signal"]);
}

/// Regression: the replacement stopped when SIGCONT had come already.
#[test]
fn is_stopped_and_continued() {
    let report = same_as_plain(&SIGNAL_CASES, &ALWAYS, "is_stopped_and_continued");
    // How many are undone by a stop is the scheduler's choice.
    assert!(without_dispatch() || report.count("committed") > 0, "{:?}", report.reasons());
}

#[test]
fn an_ignored_signal_is_ignored() {
    compare_in(&SIGNAL_CASES, &ALWAYS, "an_ignored_signal_is_ignored", 1, &[]);
}

/// Regression: the fork counted as still going on, and all later forks were plain ("Busy").
#[test]
fn jumps_out_of_a_plain_fork() {
    let options = ["--fork=exact", "--fork-minimum=100M", "--fork-always", PATIENT];
    compare_in(&SIGNAL_CASES, &options, "jumps_out_of_a_plain_fork", 2, &[]);
}

/// A case whose signals may come before a fork, after it, or to a child. So each fork may go either
/// way.
fn compare_under_signals(case: &str) -> Report {
    let report = same_as_plain(&SIGNAL_CASES, &only_its_own(&[]), case);
    assert!(without_dispatch() || report.count("speculated") > 0, "{case}: {:?}", report.reasons());
    report
}

/// Regression: such a handler interrupted the library's, in which SIGSYS is blocked. The process
/// was killed for its first system call.
#[test]
fn handles_what_faults_send() {
    compare_under_signals("handles_what_faults_send");
}

/// Regression: handlers ran on the library's stack of 64 KiB.
#[test]
fn handlers_have_their_own_stack() {
    compare_under_signals("handlers_have_their_own_stack");
}

/// Regression: where the child had not yet used so much of the stack, the kernel found no room for
/// the signal's frame. It ended the child by SIGSEGV, and the child left a core file.
#[test]
fn signals_at_the_end_of_the_stack() {
    finds_room_for_frames("signals_at_the_end_of_the_stack");
}

/// The same where the child lacks the memory below its stack pointer.
#[test]
fn signals_at_the_end_of_what_was_fetched() {
    finds_room_for_frames("signals_at_the_end_of_what_was_fetched");
}

#[test]
fn signals_on_an_untouched_stack() {
    finds_room_for_frames("signals_on_an_untouched_stack");
}

fn finds_room_for_frames(case: &str) {
    let reasons = compare_under_signals(case).reasons();
    assert!(!reasons.contains(&"Died".to_owned()), "{case}: {reasons:?}");
}

/// Regression: the program's alternate stack was lost, and all later forks were plain.
#[test]
fn jumps_out_of_forks() {
    let report = compare_under_signals("jumps_out_of_forks");
    assert!(!report.reasons().contains(&"Nested".to_owned()), "{:?}", report.reasons());
}
