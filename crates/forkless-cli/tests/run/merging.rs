//! `--huge-pages=thp` beside and after children that keep their parent's memory: nothing is merged
//! before a fork, nothing that another process has, all of it afterwards, and nothing but time
//! tells.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::support::{allow_seconds, before_linux, compile, observe, plain, reported};

static MERGING: LazyLock<PathBuf> = LazyLock::new(|| compile("merging.c", &["-pthread"]));

const OPTIONS: [&str; 3] = ["--quiet", "--fork=off", "--huge-pages=thp"];

/// Whether memory can be merged here, and is not without being asked for.
fn merges() -> bool {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !enabled.contains("[madvise]") && !enabled.contains("[never]") {
        println!("skipped: transparent huge pages are everywhere, or nowhere: {enabled:?}");
        return false;
    }
    if before_linux(6, 1) {
        println!("skipped: memory is merged from Linux 6.1 on");
        return false;
    }
    // A busy machine takes a second for a huge page, with the rests between.
    allow_seconds(900);
    true
}

/// The numbers of the lines that begin so.
fn numbers(out: &str, begin: &str) -> Vec<u64> {
    let lines = out.lines().filter_map(|line| line.strip_prefix(begin));
    lines.map(|number| number.trim().parse().unwrap_or_else(|_| panic!("{out}"))).collect()
}

fn serves(case: &str) {
    if !merges() {
        return;
    }
    let ((status, out, err), report) = reported(&OPTIONS, &MERGING, &[case]);
    assert_eq!(status, Some(0), "{out} {err}");
    // The first child begins with small pages: nothing is merged before a fork of a program that
    // has waited.
    let starts = numbers(&out, "at its start");
    assert_eq!((starts.len(), starts[0]), (2, 0), "{out}");
    // What the child has, too, stays as it is.
    assert!(numbers(&out, "beside it").iter().all(|mib| *mib < 8), "{out}");
    // The second child begins with the huge pages that were merged after the first.
    assert!(starts[1] > 56, "{out}");
    assert_eq!(out.matches("afterwards all").count(), 2, "{out}");
    // Sixty MiB each time, at least.
    assert!(report.count("huge_pages_merged") >= 60, "{}", report.count("huge_pages_merged"));
}

#[test]
fn memory_is_merged_after_the_child_and_not_beside_it_nor_before_a_fork() {
    serves("child");
}

/// A child that ends at once leaves its own child with all the memory.
#[test]
fn memory_that_a_grandchild_has_is_not_merged() {
    serves("grandchild");
}

#[test]
fn a_terabyte_that_is_only_reserved_does_not_keep_memory_from_being_merged() {
    serves("reserved");
}

/// A server's workers get the huge pages of what it has read before.
#[test]
fn a_program_that_is_starting_gets_huge_pages_before_its_fork() {
    if !merges() {
        return;
    }
    let ((status, out, err), _) = reported(&OPTIONS, &MERGING, &["starting"]);
    assert_eq!(status, Some(0), "{err}");
    assert!(numbers(&out, "at its start")[0] > 56, "{out}");
}

/// The same output as by itself, while memory is merged.
fn tells_nothing(case: &str, merged: bool) {
    if !merges() {
        return;
    }
    let (status, expected, err) = observe(&mut plain(&MERGING, &[case]));
    assert_eq!(status, Some(0), "{expected} {err}");
    for fork in ["--fork=off", "--fork=strict"] {
        let options = ["--quiet", fork, "--fork-minimum=1M", "--huge-pages=thp"];
        let args: &[&str] = if merged { &[case, "merged"] } else { &[case] };
        let ((status, out, err), report) = reported(&options, &MERGING, args);
        assert_eq!((status, &out), (Some(0), &expected), "{fork}: {err}");
        if merged {
            assert!(numbers(&err, "merged ")[0] > 56, "{fork}: {err}");
            assert!(report.count("huge_pages_merged") >= 30, "{fork}");
        }
    }
}

#[test]
fn waits_answer_and_fail_and_are_interrupted_as_ever_while_memory_is_merged() {
    tells_nothing("waits", true);
}

/// A thread that is cancelled in a wait is unwound through the library's function.
#[test]
fn threads_are_cancelled_in_waits_while_memory_is_merged() {
    tells_nothing("cancelled", true);
}

#[test]
fn handlers_jump_out_of_waits_while_memory_is_merged() {
    tells_nothing("jumps", true);
}

/// Its filter kills for each call but those of its own waits. Regression: the clock was read before
/// the filter was looked for.
#[test]
fn a_program_with_a_filter_of_its_own_merges_no_more() {
    tells_nothing("forbidden", false);
}

/// Of the file that tells of a process's pages no child ever has a descriptor.
#[test]
fn children_beside_threads_that_merge_find_no_descriptor() {
    tells_nothing("busy", false);
}
