//! Speculative fork: one test a case of `fork_cases.c`.

use std::path::Path;
use std::process::Stdio;

use crate::support::{
    FORK_CASES, PATIENT, Report, before_linux, may_make_pid_namespaces, nothing_speculates, observe, plain,
    reported, run, wait_until, without_dispatch,
};

/// Asserts how the forks of a case went: how many committed, and the abort reasons of the others.
pub(crate) fn compare(program: &Path, case: &str, commits: u64, reasons: &[&str]) {
    // Only a case about the limit may reach it.
    let limit = if reasons.contains(&"Timeout") { "--fork-limit=50" } else { PATIENT };
    compare_in(program, &["--fork-minimum=1M", "--fork-always", limit], case, commits, reasons);
}

/// The same with other options.
pub(crate) fn compare_in(program: &Path, options: &[&str], case: &str, commits: u64, reasons: &[&str]) {
    let report = same_as_plain(program, options, case);
    if without_dispatch() {
        return left_as_they_are(&report, case, commits, reasons);
    }
    assert_eq!(report.count("committed"), commits, "{case}: {:?}", report.reasons());
    assert_eq!(report.reasons(), reasons, "{case}");
}

/// Runs a case with and without the library. Both must look the same and succeed. The caller judges
/// the report.
pub(crate) fn same_as_plain(program: &Path, options: &[&str], case: &str) -> Report {
    let without = observe(&mut plain(program, &[case]));
    let (with, report) = reported(options, program, &[case]);
    assert_eq!(without, with, "{case}: {:?}", report.reasons());
    assert_eq!(without.0, Some(0), "{case}: the fixture itself failed: {without:?}");
    report
}

/// A kernel without syscall user dispatch makes every fork plain. The report gives that reason, or
/// one that is found earlier.
fn left_as_they_are(report: &Report, case: &str, commits: u64, elsewhere: &[&str]) {
    const BEFORE: [&str; 7] = ["AltStack", "Namespace", "Sandbox", "Setup", "Small", "Threads", "Traced"];
    let reasons = report.reasons();
    assert_eq!((report.count("speculated"), report.count("committed")), (0, 0), "{case}: {reasons:?}");
    let wanting = reasons.iter().filter(|r| *r == "NoDispatch").count();
    // A fork handler that forks runs before either fork is tried.
    let before = |r: &str| BEFORE.contains(&r) || elsewhere.contains(&"Nested");
    let known = |r: &String| r == "NoDispatch" || before(r) && elsewhere.contains(&r.as_str());
    assert!(reasons.iter().all(known), "{case}: {reasons:?}");
    let tried = commits > 0 || elsewhere.iter().any(|r| !before(r));
    assert_eq!(wanting > 0, tried, "{case}: {reasons:?}");
}

/// A test for each case of a fixture.
macro_rules! cases {
    ($program:ident; $($name:ident: $commits:literal, [$($reason:literal),*];)*) => {
        $(#[test] fn $name() {
            crate::fork::compare(&$program, stringify!($name), $commits, &[$($reason),*]);
        })*
    };
}
pub(crate) use cases;

/// Every fork speculates, and no child is undone for being slow.
pub(crate) const ALWAYS: [&str; 3] = ["--fork-minimum=1M", "--fork-always", PATIENT];

/// The ways to speculate in processes with threads.
pub(crate) const FOR_THREADS: [&str; 2] = ["--fork=exact", "--fork=speculate"];

/// The same, and what a child executes has no report of its own.
pub(crate) fn only_its_own<'a>(mode: &[&'a str]) -> Vec<&'a str> {
    [&ALWAYS, mode, &["--children=no"]].concat()
}

/// Threads meet in the window between marking and unmarking. If the window is not guarded, a child
/// crashes or hangs, or is refused what every kernel grants.
pub(crate) fn compare_threads(program: &Path, case: &str) {
    for mode in FOR_THREADS {
        let report = same_as_plain(program, &[mode, "--fork-minimum=1M", "--fork-always"], case);
        if without_dispatch() {
            // While another thread maps the tables, a thread does not wait for them.
            left_as_they_are(&report, case, 1, &["Setup"]);
            continue;
        }
        // The others, of 100 or 200, found the window taken. How many did is the scheduler's
        // choice.
        assert!(report.count("committed") > 0, "{case} {mode}: {:?}", report.reasons());
    }
}

/// As [`compare_in`], for a case whose threads hold locks of libc's. A fork waits 50 ms for such a
/// lock and is left alone after that. A busy machine may keep the lock's holder from running so
/// long.
pub(crate) fn compare_beside_locks(program: &Path, case: &str, commits: u64, reasons: &[&str]) {
    for mode in FOR_THREADS {
        let report = same_as_plain(program, &only_its_own(&[mode]), case);
        if without_dispatch() {
            left_as_they_are(&report, case, commits, reasons);
            continue;
        }
        let (committed, all) = (report.count("committed"), report.reasons());
        let mut expected = reasons.to_vec();
        for reason in all.iter().filter(|reason| *reason != "Lock") {
            let at = expected.iter().position(|one| one == reason);
            expected.remove(at.unwrap_or_else(|| panic!("{case} {mode}: {reason} in {all:?}")));
        }
        assert!(committed <= commits, "{case} {mode}: {committed} committed, {all:?}");
        let forks = commits + reasons.len() as u64;
        assert_eq!(committed + all.len() as u64, forks, "{case} {mode}: {all:?}");
    }
}

cases! {
    FORK_CASES;
    redirect_and_exec: 1, [];
    own_pipe_is_private: 1, [];
    descriptors_are_the_programs: 1, [];
    no_question_finds_a_descriptor: 2, ["Collision", "Collision", "Collision", "Collision", "Collision", "Collision"];
    // Regression: the child found the library's descriptor under other names than its number.
    // Regression: the listing ended before the library's own descriptor.
    lists_descriptors_in_small_pieces: 1, [];
    links_to_descriptors: 0, ["Collision", "Collision", "Collision", "Collision", "Collision", "Collision", "Collision", "Collision"];
    // Regression: what handlers return to was null.
    actions_are_told_in_full: 2, [];
    every_number_can_be_dup2d_onto: 1, [];
    closefrom_and_close_range: 1, [];
    interval_timer_survives_exec: 1, [];
    odd_requests_of_the_child: 1, [];
    exec_failure_goes_on: 1, [];
    thread_id_is_the_childs: 1, [];
    credentials_dropped: 1, [];
    exit_without_exec: 0, ["Call"];
    writes_to_inherited: 0, ["Inherited"];
    calls_by_int_0x80: 0, ["Call32"];
    seeks_inherited: 0, ["Call"];
    reads_inherited: 0, ["Inherited"];
    sets_inherited_nonblocking: 1, [];
    fionbio_on_inherited: 0, ["Command"];
    locks_inherited: 0, ["Call"];
    appends_to_a_file: 0, ["OpenFile"];
    opens_a_fifo: 0, ["OpenFile"];
    // The child aborts at its own fork. Its replacement speculates in turn, and the grandchild
    // commits. Only the replacement's line of the report can say that.
    forks_again: 1, ["Call"];
    takes_too_long: 0, ["Timeout"];
    blocks_on_its_own_pipe: 0, ["Timeout"];
    crashes: 0, ["Fault"];
    ignored_sigchld_executes_once: 20, [];
    in_a_thread: 1, [];
    own_filter: 0, ["Sandbox"];
    own_filter_by_syscall: 0, ["Sandbox"];
    no_descriptor_left: 0, ["Descriptors"];
    few_descriptors_left: 0, ["Collision"];
    fork_handlers_run_once: 1, ["Call"];
    fork_handler_that_forks: 0, ["Nested", "Unusual"];
    cancels_itself: 1, ["Call"];
    paths_through_descriptors: 0, ["Collision"];
    vfork_is_left_alone: 0, [];
}

/// Regression: after a program that was absent the next four starts were plain.
#[test]
fn some_programs_are_absent() {
    let options = ["--fork-minimum=1M", PATIENT];
    compare_in(&FORK_CASES, &options, "some_programs_are_absent", 6, &["Inherited"; 6]);
}

/// The time limit counts no time for which the child waits for a processor. 200 ms is what the
/// fixture's child outlasts.
#[test]
fn waits_for_a_processor() {
    let options = ["--fork-minimum=1M", "--fork-always", "--fork-limit=200"];
    compare_in(&FORK_CASES, &options, "waits_for_a_processor", 1, &[]);
}

/// Regression: each exec that failed began the time limit anew. The child gave up only if it lost
/// the processor for as long as the limit. Later, one child in twenty had no limit left: it passed
/// during the call that was to stop it.
#[test]
fn tries_until_it_can_execute() {
    let limit = ["--fork-minimum=1M", "--fork-always", "--fork-limit=5"];
    compare_in(&FORK_CASES, &limit, "tries_until_it_can_execute", 0, &["Timeout"; 100]);
    // Regression: the limit's signal was ignored in an exec, and did not come again.
    compare_in(&FORK_CASES, &limit, "tries_though_faults_are_ignored", 0, &["Timeout"; 200]);
}

/// Regression: the namespace's init ended with the speculation, and the plain fork failed.
#[test]
fn the_first_child_of_a_pid_namespace_is_no_speculation() {
    if !may_make_pid_namespaces() {
        return;
    }
    compare(&FORK_CASES, "first_of_a_pid_namespace", 0, &["Namespace"]);
    // The namespaces are looked up once, and again when the program has changed them.
    compare(&FORK_CASES, "a_pid_namespace_later", 1, &["Namespace"]);
    compare(&FORK_CASES, "a_pid_namespace_by_number", 1, &["Namespace"]);
    // Regression: a function found by a handle of libc's went past the library.
    compare(&FORK_CASES, "a_pid_namespace_by_handle", 1, &["Namespace"]);
    compare(&FORK_CASES, "its_own_pid_namespace", 3, &[]);
}

/// The library counts threads by a call that a filter from outside may not know. Under such a
/// filter it must not make the call.
#[test]
fn under_a_filter_that_kills() {
    compare(&FORK_CASES, "under_a_filter_that_kills", 0, &["Sandbox"]);
}

#[test]
fn session_and_directory() {
    // The executed shell forks too, below the threshold.
    compare(&FORK_CASES, "session_and_directory", 1, &["Small"]);
}

/// Regression: the library read the size of the process before it counted the threads. The file
/// took the lowest number for a moment.
#[test]
fn a_thread_opens_beside_forks_that_are_left_alone() {
    compare_in(
        &FORK_CASES,
        &only_its_own(&["--fork=strict"]),
        "a_thread_opens_meanwhile",
        0,
        &["Threads"; 200],
    );
}

/// Regression: a process that was made past `fork`, as forkpty does, shared a page with its parent.
/// On this page the parent is told how a child ended. Where SIGCHLD was ignored, a few programs of
/// a hundred were executed twice.
#[test]
fn both_sides_of_a_fork_by_number_execute() {
    let case = ["both_sides_of_a_fork_by_number_execute"];
    let without = observe(&mut plain(&FORK_CASES, &case));
    let (with, report) = reported(&only_its_own(&[]), &FORK_CASES, &case);
    assert_eq!((without, with.clone()), (with, (Some(0), "executed 150 of 150\n".to_owned(), String::new())));
    if !without_dispatch() {
        // The first fork commits, and one side of each later one.
        assert_eq!((report.count("committed"), report.count("aborted")), (151, 150));
    }
}

/// Regression: the program saw the number of the library's timer. Before Linux 6.15 the number
/// cannot be chosen.
#[test]
fn executes_what_makes_a_timer() {
    if !before_linux(6, 15) {
        compare(&FORK_CASES, "executes_what_makes_a_timer", 2, &[]);
    }
}

/// Since Linux 6.2 the size of a directory of descriptors is their number. Regression: the
/// library's descriptors were counted.
#[test]
fn counts_its_descriptors() {
    let (commits, reasons) = if before_linux(6, 2) { (4, &[][..]) } else { (3, &["Call"][..]) };
    compare(&FORK_CASES, "counts_its_descriptors", commits, reasons);
}

#[test]
fn a_thread_of_a_process_speculates_unless_told_otherwise() {
    for mode in ["--fork=exact", "--fork=speculate"] {
        compare_in(&FORK_CASES, &only_its_own(&[mode]), "in_a_thread", 1, &[]);
    }
    compare_in(&FORK_CASES, &only_its_own(&["--fork=strict"]), "in_a_thread", 0, &["Threads"]);
}

#[test]
fn small_processes_are_left_alone() {
    compare_in(&FORK_CASES, &["--fork-minimum=1G"], "redirect_and_exec", 0, &["Small"]);
}

#[test]
fn off_means_off() {
    compare_in(&FORK_CASES, &["--fork=off"], "redirect_and_exec", 0, &[]);
}

#[test]
fn the_switch_in_the_environment_means_off() {
    let mut command = run(&["--fork-minimum=1M"], &FORK_CASES, &["redirect_and_exec"]);
    assert_eq!(observe(command.env("FORKLESS", "off")).0, Some(0));
    let file = std::env::temp_dir().join(format!("forkless-off.{}", std::process::id()));
    let to = format!("--report={}", file.display());
    let mut command = run(&["--fork-minimum=1M", "--json", &to], &FORK_CASES, &["redirect_and_exec"]);
    let (_, _, complaint) = observe(command.env("FORKLESS", "off"));
    assert_eq!(complaint, "forkless: FORKLESS is off in the environment: the report will show nothing\n");
    // A program that was left alone does not wait for the report, which comes a moment after its
    // end.
    let mut text = String::new();
    wait_until(|| {
        text = std::fs::read_to_string(&file).expect("the report of a program that was left alone");
        text.ends_with('\n')
    });
    let _ = std::fs::remove_file(&file);
    assert!(text.contains("\"forks\":0"), "{text}");
}

/// Hazard: the parent is killed while its child speculates. The child would then have no owner.
#[test]
fn a_speculative_child_does_not_outlive_its_parent() {
    if nothing_speculates() {
        return;
    }
    let mut command = run(&ALWAYS, &FORK_CASES, &["stays_until_killed"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.as_mut().expect("piped")),
        &mut line,
    )
    .expect("a pid");
    let parent: i32 = line.trim().parse().expect("a pid");
    let mut kid = String::new();
    let appeared = wait_until(|| {
        let children =
            std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        kid = children.split_whitespace().next().unwrap_or_default().to_owned();
        !kid.is_empty()
    });
    assert!(appeared, "no speculative child appeared");
    let state = || std::fs::read_to_string(format!("/proc/{kid}/stat")).unwrap_or_default();
    // The death signal is set in the child's first microseconds. The child has it when it has run
    // for a tick of the clock (utime, proc_pid_stat(5)).
    let ticks = || state().rsplit(')').next()?.split_whitespace().nth(11)?.parse::<u32>().ok();
    assert!(wait_until(|| ticks().is_none_or(|ticks| ticks > 0)), "the child does not run: {}", state());
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(parent).expect("positive"),
        rustix::process::Signal::KILL,
    )
    .expect("alive");
    let ended = || state().is_empty() || state().contains(") Z ");
    assert!(wait_until(ended), "the child lives on: {}", state());
    let _ = child.wait();
}

/// A call site whose speculations abort is left alone for a while.
#[test]
fn a_site_whose_children_never_exec_is_left_alone_soon() {
    if nothing_speculates() {
        return;
    }
    let (seen, report) = reported(&["--fork-minimum=1M"], &FORK_CASES, &["forty_workers"]);
    assert_eq!(seen.0, Some(0), "{seen:?}");
    let reasons = report.reasons();
    let tries = reasons.iter().filter(|r| *r == "Call").count();
    assert!((2..=3).contains(&tries), "{tries} of 40 tried");
    assert_eq!(reasons.iter().filter(|r| *r == "Learned").count(), 40 - tries);
}

/// Regression: every fourth program of a Ruby server was absent, and half of its forks were left
/// alone.
#[test]
fn children_that_act_are_paid_for_by_two_that_execute() {
    let options = ["--fork-minimum=1M", PATIENT];
    compare_in(&FORK_CASES, &options, "every_third_writes", 20, &["Inherited"; 10]);
}

#[test]
fn threads_that_fork_at_once() {
    compare_threads(&FORK_CASES, "threads_fork_at_once");
}
