//! What leaves a function of the library before it returns, and what looks through its frames.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::fork::same_as_plain;
use crate::support::compile;

static UNWINDING: LazyLock<PathBuf> =
    LazyLock::new(|| compile("unwinding_cases.c", &["-rdynamic", "-lpthread", "-ldl"]));

/// Regression: the child of a `system` that a handler left by `siglongjmp` ran on, and SIGINT
/// stayed ignored. So did SIGINT of a thread that ended there.
#[test]
fn system_may_be_left() {
    for case in ["leaves_system_by_a_jump", "leaves_system_by_its_threads_end"] {
        let report = same_as_plain(&UNWINDING, &[], case);
        // Its lines had no shell: only then it is the library's wait that was left.
        assert!(report.count("shells_skipped") >= 1, "{case}");
    }
}

/// Regression: the linker's table of frames was not sorted, so no unwinder found a frame of the
/// library. Backtraces and exceptions ended there.
#[test]
fn its_callers_are_shown() {
    let report = same_as_plain(&UNWINDING, &["--fork-minimum=1M", "--fork-always"], "its_callers_are_shown");
    assert_eq!(report.count("shells_skipped"), 3);
}

/// Regression: whether there is a tracer was known for some milliseconds, also to a process that
/// had become one to be traced. The tracer took the signals that its children work by.
#[test]
fn a_process_that_asks_to_be_traced() {
    let report = same_as_plain(&UNWINDING, &["--fork-minimum=1M", "--fork-always"], "asks_to_be_traced");
    assert!(report.reasons().iter().filter(|reason| *reason == "Traced").count() >= 10);
}
