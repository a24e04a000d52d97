//! Behaviour of servers: they give up root, and map their memory in pieces.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::support::{before_linux, compile, observe, plain, reported, root_to, run, without_dispatch};

static SERVERS: LazyLock<PathBuf> = LazyLock::new(|| compile("servers.c", &["-lutil"]));

/// Regression: Apache's workers run as another user, where /proc/self/mem cannot be opened, and
/// never speculated.
#[test]
fn a_process_that_stopped_being_root_speculates_and_keeps_no_descriptor() {
    if !root_to("change its user") {
        return;
    }
    let without = observe(&mut plain(&SERVERS, &["drops"]));
    let (with, report) = reported(&["--fork-minimum=1M", "--fork-always"], &SERVERS, &["drops"]);
    assert_eq!(without, with);
    assert_eq!(without.0, Some(0), "{without:?}");
    if without_dispatch() {
        assert_eq!(report.count("committed"), 0);
        assert!(report.reasons().iter().all(|r| r == "NoDispatch"), "{:?}", report.reasons());
        return;
    }
    // The parent's two and the worker's. The worker itself forks, and executes nothing.
    assert_eq!(report.count("committed"), 3, "{:?}", report.reasons());
    assert_eq!(report.reasons(), ["Call"]);
}

/// Regression: a descriptor of the parent's memory was kept from before it changed its user.
/// Children made past `fork` inherited it, became another user, and read what the parent wrote
/// after the fork.
#[test]
fn nothing_of_a_parents_memory_crosses_a_change_of_user() {
    if !root_to("change its user") {
        return;
    }
    for ids in [["0", "1000"], ["1000", "1000"], ["1000", "0"], ["-1", "0"]] {
        let args = [&["leaks"], &ids[..]].concat();
        let without = observe(&mut plain(&SERVERS, &args));
        assert_eq!(without.1.matches("status 0\n").count(), 4, "{ids:?} {without:?}");
        let (with, report) = reported(&["--fork-minimum=1M", "--fork-always"], &SERVERS, &args);
        assert_eq!(without, with, "{ids:?}");
        // Once as root, before the change, and twice beside a child that looks.
        let committed = if without_dispatch() { 0 } else { 4 };
        assert_eq!(report.count("committed"), committed, "{ids:?}: {:?}", report.reasons());
    }
}

/// Regression: the library opened and kept the descriptor at calls that leave the user as it is.
/// Ruby's tests for leaks noticed it.
#[test]
fn a_process_that_stays_root_has_no_descriptor_more() {
    if !root_to("change its user") {
        return;
    }
    let without = observe(&mut plain(&SERVERS, &["stays_root"]));
    let (with, _) = reported(&["--fork-minimum=1M", "--fork-always"], &SERVERS, &["stays_root"]);
    assert_eq!(without, with);
    assert_eq!(without.1, "0 0 0 0\n", "{without:?}");
}

/// Ruby 2.6 and redis forbid themselves huge pages. A user who asks for huge pages learns the
/// reason.
#[test]
fn a_program_that_turns_huge_pages_off_for_itself_is_reported() {
    let declines = |options: &[&str], case: &str| {
        let ((status, out, err), report) =
            reported(&[&["--fork=off", "--huge-pages=thp"], options].concat(), &SERVERS, &[case]);
        assert_eq!(status, Some(0), "{options:?}: {err}");
        let lines = err.lines().filter(|l| l.contains("huge pages off for itself")).count();
        (out, report.count("huge_pages_declined"), lines)
    };
    assert_eq!(declines(&[], "declines"), ("0 MiB\n".to_owned(), 1, 1));
    assert_eq!(declines(&["--quiet"], "declines"), ("0 MiB\n".to_owned(), 1, 0));
    let (_, forks, lines) = declines(&[], "pieces");
    assert_eq!((forks, lines), (0, 0));
}

/// Regression: APR maps 8 KiB at a time, past every allocator's setting.
#[test]
fn memory_mapped_in_pieces_gets_huge_pages_before_a_fork() {
    let huge = |(status, out, err): (Option<i32>, String, String)| -> u64 {
        assert_eq!(status, Some(0), "{err}");
        out.trim().strip_suffix(" MiB").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{out} {err}"))
    };
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !enabled.contains("[madvise]") && !enabled.contains("[never]") {
        println!("skipped: transparent huge pages are everywhere, or nowhere: {enabled:?}");
        return;
    }
    if before_linux(6, 1) {
        println!("skipped: memory is merged from Linux 6.1 on");
        return;
    }
    assert_eq!(huge(observe(&mut plain(&SERVERS, &["pieces"]))), 0);
    let with = huge(observe(&mut run(&["--quiet", "--fork=off", "--huge-pages=thp"], &SERVERS, &["pieces"])));
    // All pieces, and nothing of the sparse mapping.
    assert!((56..=64).contains(&with), "{with} MiB");
}
