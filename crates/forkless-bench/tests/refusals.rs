//! Specifications that cannot be measured are errors that say so, and small pieces that no suite
//! shows.

use std::process::Command;

use forkless_bench::compare::{Change, Comparison, Difference};
use forkless_bench::engine::{Schedule, Silent};
use forkless_bench::error::Error;
use forkless_bench::guard::{self, Guard};
use forkless_bench::program::Kind;
use forkless_bench::restarts::merge;
use forkless_bench::results::{Results, Row, Suite};
use forkless_bench::spawn::{self, Method};
use forkless_bench::suites::{SUITES, context, syscalls};

#[test]
fn no_thread_and_no_child_program_are_refused() {
    let nobody = spawn::Spec { threads: 0, ..spawn::Spec::default() };
    assert!(matches!(spawn::run(&nobody, None, &mut Silent), Err(Error::Spec(_))));
    let absent = spawn::Spec {
        methods: vec![Method::PosixSpawn],
        child: Kind::File("/nonexistent/program".into()),
        schedule: Schedule { runs: 20, ..Schedule::default() },
        ..spawn::Spec::default()
    };
    assert!(spawn::run(&absent, None, &mut Silent).is_err());
}

#[test]
fn unknown_calls_and_filters_that_leave_nothing_are_refused() {
    let unknown = syscalls::Spec { calls: vec!["getpidd".into()], ..syscalls::Spec::default() };
    assert!(matches!(syscalls::run(&unknown, None, &mut Silent), Err(Error::Spec(_))));
    let nothing = context::Spec { filter: vec!["nothing".into()], schedule: Schedule::default() };
    assert!(matches!(context::run(&nothing, &mut Silent), Err(Error::Spec(_))));
}

#[cfg(target_os = "linux")]
#[test]
fn a_block_larger_than_the_file_is_refused() {
    use forkless_bench::suites::blockwrite::{self, Spec};
    let too_large = Spec { bs: vec![8 << 20], size: 4 << 20, ..Spec::default() };
    assert!(matches!(blockwrite::run(&too_large, None, &mut Silent), Err(Error::Spec(_))));
}

#[test]
fn a_processor_that_does_not_exist_is_refused() {
    let answer = forkless_bench::parent::pin(&[1 << 20]);
    assert!(matches!(answer, Err(Error::Spec(_) | Error::Missing(_))));
}

#[test]
fn a_guard_that_cannot_start_is_named() {
    let error = Guard::start(Command::new("/nonexistent/forkless")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/forkless"), "{error}");
}

#[test]
fn a_guard_whose_measurement_ends_at_once_says_so() {
    assert_eq!(guard::serve(std::io::empty(), &[]), ["interrupted: nothing is kept"]);
}

#[test]
fn a_regression_is_one_unless_the_percentage_asked_for_is_ruled_out() {
    let change = Change {
        suite: "spawn".into(),
        method: "posix_spawn".into(),
        metric: "wall".into(),
        unit: "us".into(),
        params: Default::default(),
        a: 90.0,
        b: 108.0,
        ratio: 1.2,
        ci95: [1.15, 1.25],
        comparison: Comparison::Restarts,
        verdict: Difference::Slower,
    };
    assert!(change.is_regression(10.0) && change.is_regression(20.0) && !change.is_regression(30.0));
    let same = Change { verdict: Difference::NoDifferenceShown, ..change };
    assert!(!same.is_regression(10.0));
}

#[test]
fn joined_suites_add_their_rounds_and_say_each_note_once() {
    let part =
        Suite { name: "spawn".into(), rounds: 20, notes: vec!["no strace".into()], ..Suite::default() };
    let joined = Suite::join(vec![part.clone(), part]);
    assert_eq!((joined.rounds, joined.notes.len()), (40, 1));
}

#[test]
fn merged_restarts_keep_their_samples_apart() {
    let restart = |us: f64| {
        let row =
            Row { metric: "wall".into(), samples: vec![us; 3], per_round: vec![1; 3], ..Row::default() };
        let mut results = Results::begin();
        results.suites.push(Suite { name: "spawn".into(), rows: vec![row], ..Suite::default() });
        results
    };
    let merged = merge(vec![restart(60.0), restart(66.0)], SUITES).unwrap();
    let row = &merged.suites[0].rows[0];
    assert_eq!((row.samples.len(), &row.restarts[..]), (6, &[3, 3][..]));
}

#[test]
fn suites_are_registered_once_and_their_changes_have_kinds_of_their_own() {
    let names: Vec<&str> = forkless_bench::suites::ALL.iter().map(|suite| suite.name).collect();
    assert!(names.iter().all(|name| names.iter().filter(|other| other == &name).count() == 1), "{names:?}");
    let mut kinds: Vec<u8> = SUITES.undos().iter().map(|undo| undo.kind).chain(*b"rwxd").collect();
    let all = kinds.len();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), all);
}
