//! Memory of speculative children and of the processes beside them: one test a case of
//! `memory_cases.c`.

use crate::fork::{ALWAYS, cases, compare, compare_in, compare_threads, only_its_own, same_as_plain};
use crate::support::{
    MEMORY_CASES, PATIENT, Report, before_linux, compile, nothing_speculates, observe, plain, reported,
    without_dispatch,
};

cases! {
    MEMORY_CASES;
    memory_is_the_parents: 1, [];
    new_mappings_do_not_land_on_absent_memory: 1, [];
    the_stack_grows: 2, ["Fault"];
    // Regression: the child ran over the parent's memory, where the kernel ends a plain one.
    the_stack_meets_a_mapping: 1, ["Fault", "Fault", "Fault"];
    a_mapping_ends_below_the_gap: 40, [];
    is_given_a_buffer_far_below_the_stack: 0, ["Fault", "Fault"];
    is_given_a_buffer_in_a_mapping_below_the_stack: 2, [];
    // Regression: these calls answered EFAULT, or less than they were asked for.
    calls_that_end_below_the_stack: 0, ["Fault", "Fault", "Fault", "Fault", "Fault"];
    reads_less_than_it_asks_for: 1, [];
    // Regression: below a stack whose lower part is absent a call answered EFAULT, and memory was
    // placed there.
    the_stack_was_deeper: 3, [];
    forks_on_another_stack: 0, ["Fault", "Layout"];
    // Regression: a child read zeros there.
    goes_past_the_end_of_a_small_stack: 2, ["Fault"];
    looks_below_the_stack: 0, ["Layout"];
    arguments_in_absent_memory: 1, [];
    shared_memory_written: 0, ["SharedWrite"];
    // Regression: the call failed with EFAULT.
    shared_memory_as_a_buffer: 0, ["SharedWrite", "SharedWrite"];
    shared_semaphore_posted: 0, ["SharedWrite"];
    wakes_on_memory_it_may_only_read: 0, ["Call"];
    // Regression: each speculation of the process was aborted.
    shared_memory_that_is_marked: 1, [];
    maps_as_much_as_it_may: 0, ["Layout"];
    marked_memory: 2, [];
    // Regression: once a process had more than 512 such places, all its forks were plain.
    marked_in_many_places: 2, [];
    a_mark_moves_with_its_mapping: 1, [];
    // Regression: the program had marked memory past the library's functions. Children had this
    // memory, and the mark was gone.
    marked_by_its_own_instruction: 4, ["Fault", "Fault"];
    // Regression: libc moves mappings of malloc's without asking the library.
    a_mark_moves_by_realloc: 4, [];
    a_mark_moves_to_a_known_place: 6, [];
    // Regression: the first call answered EFAULT, and the last two ended the program.
    pointers_of_every_kind: 5, ["SharedWrite"];
}

/// Runs a case that prints numbers on standard error. Its standard output must be the same with and
/// without the library. Returns the numbers without, the numbers with, and the report.
fn counted(case: &str) -> (Vec<u64>, Vec<u64>, Report) {
    let numbers = |seen: &(Option<i32>, String, String)| {
        assert_eq!(seen.0, Some(0), "{case}: {seen:?}");
        seen.2.lines().map(|line| line.parse().expect("a number")).collect()
    };
    let without = observe(&mut plain(&MEMORY_CASES, &[case]));
    let (with, report) = reported(&["--fork-minimum=1M", PATIENT], &MEMORY_CASES, &[case]);
    assert_eq!(without.1, with.1, "{case}");
    (numbers(&without), numbers(&with), report)
}

/// Regression: tables, workspaces and the shared page lay where the kernel chose, often in a hole
/// that the program had made. The program unmapped them with the rest and crashed at its next fork.
/// Or it could not have the addresses again.
#[test]
fn address_space_that_is_given_back_stays_free() {
    for (case, commits, lines) in [
        ("room_stays_free", 2, 2),
        ("unmaps_an_arena_with_holes", 6, 5),
        ("maps_over_an_arena_with_holes", 6, 5),
    ] {
        for mode in ["--fork=strict", "--fork=exact", "--fork=speculate"] {
            let options = ["--fork-minimum=1M", "--fork-always", PATIENT, mode];
            let report = same_as_plain(&MEMORY_CASES, &options, case);
            assert_eq!(report.count("shells_skipped"), lines, "{case} {mode}");
            if !without_dispatch() {
                let reasons = report.reasons();
                // A program that a line started has this memory until a moment after the line's
                // call returned. One fork may find the memory shared.
                assert!(reasons.iter().all(|r| r == "Threads"), "{case} {mode}: {reasons:?}");
                assert_eq!(
                    report.count("committed") + reasons.len() as u64,
                    commits,
                    "{case} {mode}: {reasons:?}"
                );
                assert!(report.count("committed") >= commits / 2, "{case} {mode}: {reasons:?}");
            }
        }
    }
}

#[test]
fn what_a_copy_maps_stays_its_own() {
    let report = same_as_plain(&MEMORY_CASES, &ALWAYS, "a_copy_fills_every_gap");
    if !without_dispatch() {
        // The parent's forks commit. If the gap is taken, the copy's forks are plain.
        assert!(matches!(report.count("committed"), 4 | 6), "{:?}", report.reasons());
    }
}

/// Page faults are counted, which a busy machine cannot change. After a fork, a pass over 8,192
/// pages faults on each of them. After a speculation it faults on the pages that were left to the
/// kernel.
#[test]
fn no_page_has_to_be_faulted_again() {
    if nothing_speculates() {
        return;
    }
    let (without, with, report) = counted("writes_after_a_fork");
    assert_eq!(report.count("committed"), 3);
    // A huge page, which some systems give unasked, faults once for 512 pages.
    assert!(without.iter().all(|n| *n >= 16), "{without:?}");
    assert!(with.iter().zip(&without).all(|(with, without)| with * 16 < *without), "{with:?}, {without:?}");
}

/// This kernel can be asked for single mappings. A process with many reads the maps file from the
/// second fork on, unless most lines of the file are of other mappings.
#[test]
fn many_mappings_are_read_from_the_file() {
    if nothing_speculates() {
        return;
    }
    let cannot_ask = before_linux(6, 11);
    for (case, read) in [
        ("many_writable_mappings", [cannot_ask, true, true, true]),
        ("many_mappings_of_others", [cannot_ask, true, cannot_ask, cannot_ask]),
    ] {
        let (_, bytes, report) = counted(case);
        assert_eq!(
            (report.count("committed"), report.reasons()),
            (3, vec!["SharedWrite".to_owned()]),
            "{case}"
        );
        // Each mapping has 32 MiB. It lies above mappings with a path of several pages.
        assert!(report.count("bytes_spared") > 90 << 20, "{case}: {}", report.count("bytes_spared"));
        // A line of the file has 40 bytes at least.
        assert_eq!(
            bytes.iter().map(|bytes| *bytes > 1400 * 40).collect::<Vec<_>>(),
            read,
            "{case}: {bytes:?}"
        );
    }
}

/// Node's Buffers often lie at addresses that V8 had marked before.
#[test]
fn a_mark_ends_with_its_mapping() {
    if nothing_speculates() {
        return;
    }
    let report = same_as_plain(&MEMORY_CASES, &["--fork-minimum=1M"], "a_mark_ends_with_its_mapping");
    let spared = report.count("bytes_spared");
    assert!(spared > 31 << 20, "{spared} bytes of 32 MiB");
}

/// Regression: a mapping that an earlier fork had found unmarked was not asked again. Children had
/// the memory, and the mark was gone.
#[test]
fn a_mark_comes_to_a_known_place_past_the_functions() {
    let program = compile("raw_marks.c", &["-lpthread"]);
    for kind in ["moved", "elsewhere"] {
        let without = observe(&mut plain(&program, &[kind]));
        let options = [&ALWAYS, &["--children=no"][..]].concat();
        let (with, report) = reported(&options, &program, &[kind]);
        assert_eq!(with, without, "{kind}: {:?}", report.reasons());
        if without.0 == Some(77) {
            println!("skipped: process_madvise takes no such advice here");
            continue;
        }
        assert_eq!(without.1, "seen: 1\nmarked: 0\nand again: 0\n", "{kind}");
        assert_eq!(report.count("speculated"), if nothing_speculates() { 0 } else { 3 }, "{kind}");
    }
}

/// Regression: the library took the mark for its own, and the mark was gone after the first fork.
/// Before Linux 6.13 the kernel refuses this mark.
#[test]
fn marked_by_process_madvise() {
    if !before_linux(6, 13) {
        compare(&MEMORY_CASES, "marked_by_process_madvise", 4, &[]);
    }
}

/// Regression: children found the contents that their parent had.
#[test]
fn droppable_memory_is_empty_in_a_child() {
    if !before_linux(6, 11) {
        compare(&MEMORY_CASES, "droppable_memory_is_empty_in_a_child", 1, &[]);
    }
}

/// Regression: a child was undone that fetched memory beside a guard. What touches the guard is
/// undone, and a plain fork's child does it.
#[test]
fn a_guard_inside_a_mapping() {
    if !before_linux(6, 13) {
        compare(&MEMORY_CASES, "a_guard_inside_a_mapping", 1, &["Fault", "Fault"]);
    }
}

/// Regression: the process has one thread, but another process changes its memory. A speculative
/// child read pages of different moments.
#[test]
fn memory_shared_with_another_process() {
    let case = "memory_shared_with_another_process";
    compare_in(&MEMORY_CASES, &only_its_own(&["--fork=strict"]), case, 0, &["Threads"; 5]);
    compare(&MEMORY_CASES, case, 0, &["Shared"; 5]);
}

/// The memory that a call site's children touched is there from the start the next time. From the
/// third fork on it is excluded once more.
#[test]
fn ranges_a_site_touched_are_left_to_the_kernel() {
    let Some(report) = touched_by("touches_the_same_memory", &[]) else { return };
    assert_eq!(report.count("committed"), 10);
    let fetched = report.count("pages_fetched");
    // Three places in two children's case. In the other eight none, or a stray cluster.
    assert!((96..=176).contains(&fetched), "{fetched} pages");
}

/// Regression: each range that a child had touched was kept for good. The forks of a long-lived
/// process cost more and more, as much as plain forks in the end, and then were plain.
#[test]
fn ranges_a_site_no_longer_touches_are_withheld() {
    let spared = |case: &str, forks: u64| {
        let report = touched_by(case, &[])?;
        assert_eq!(report.count("committed"), forks, "{case}: {:?}", report.reasons());
        Some(report.count("bytes_spared") >> 20)
    };
    // Each child has 32 MiB.
    let (Some(each_time), Some(less)) =
        (spared("touches_other_memory_each_time", 400), spared("needs_less_later", 330))
    else {
        return;
    };
    assert!(each_time > 400 * 30, "{each_time} MiB");
    // At first 27 MiB of each were spared.
    assert!(less > 330 * 30, "{less} MiB");
}

/// Regression: once nearly all memory was kept at a call site, its forks were plain for good.
#[test]
fn a_site_that_needed_everything_is_tried_again() {
    let Some(report) = touched_by("needs_everything_at_first", &["--fork-always"]) else { return };
    let reasons = report.reasons();
    assert!(reasons.contains(&"Budget".to_owned()) && reasons.contains(&"Small".to_owned()), "{reasons:?}");
    assert!(report.count("committed") >= 25, "{reasons:?}");
}

/// Runs a case, which must end the same. Returns the report, or `None` where nothing speculates.
fn touched_by(case: &str, options: &[&str]) -> Option<Report> {
    if nothing_speculates() {
        return None;
    }
    let options = [&["--fork-minimum=1M", PATIENT, "--children=no"], options].concat();
    Some(same_as_plain(&MEMORY_CASES, &options, case))
}

#[test]
fn threads_that_move_memory_meanwhile() {
    for case in ["a_thread_moves_memory", "a_thread_reallocates_memory", "a_thread_resizes_memory"] {
        compare_threads(&MEMORY_CASES, case);
    }
}
