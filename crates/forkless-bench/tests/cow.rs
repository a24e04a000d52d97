//! The `cow` suite in a process of its own: a fork by any other test of the same process would
//! write-protect its pages, too.

use forkless_bench::engine::{Schedule, Silent};
use forkless_bench::page_kinds::Pages;
use forkless_bench::results::Param;
use forkless_bench::spawn::Method;
use forkless_bench::suites::cow::{Spec, run};

#[test]
fn a_fork_makes_the_first_pass_fault_and_other_ways_do_not() {
    let spec = Spec {
        count: 2000,
        passes: 3,
        pages: vec![Pages::Base],
        methods: vec![Method::VforkExec, Method::Forkless],
        schedule: Schedule { runs: 3, per_turn: 1, ..Schedule::default() },
        ..Spec::default()
    };
    let suite = run(&spec, None, &mut Silent).unwrap();
    let figure = |method: &str, child: &str, metric: &str| {
        let child = Param::Word(child.to_owned());
        let row = suite
            .rows
            .iter()
            .find(|row| row.method == method && row.metric == metric && row.params["child"] == child);
        row.map(|row| row.summary.median)
    };
    assert!(figure("fork", "dead", "faults").unwrap() >= 2000.0);
    assert!(figure("fork", "alive", "faults").unwrap() >= 2000.0);
    assert!(figure("vfork_exec", "dead", "faults").unwrap() < 200.0);
    assert!(figure("forkless", "dead", "faults").unwrap() < 200.0);
    // Root sees that pages move only while somebody else still needs them.
    if let Some(copied) = figure("fork", "alive", "copied") {
        assert!(copied > 90.0, "{copied}");
        assert!(figure("fork", "dead", "copied").unwrap() < 10.0);
    }
}
