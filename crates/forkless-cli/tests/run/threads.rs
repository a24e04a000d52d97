//! Processes with threads under `--fork=exact`, the default: a child commits only with memory as it
//! was at the fork. One test a case of `late_cases.c`, and what `snapshot.c` sees.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::fork::{ALWAYS, FOR_THREADS, cases, compare_in, only_its_own, same_as_plain};
use crate::support::{
    PATIENT, Report, allow_seconds, compile, nothing_speculates, observe, plain, reported, reported_by,
    root_to, run, temporary, without_dispatch,
};

static LATE: LazyLock<PathBuf> = LazyLock::new(|| compile("late_cases.c", &["-lpthread"]));
static SNAPSHOT: LazyLock<PathBuf> = LazyLock::new(|| compile("snapshot.c", &["-lpthread"]));

cases! {
    LATE;
    touches_and_executes: 20, [];
    touches_and_fails_to_execute: 1, [];
    executes_a_name_it_lacks: 1, [];
    touches_more_than_is_noted: 0, ["Late"];
    writes_where_nothing_was: 5, [];
    touches_and_crashes: 0, ["Fault"];
    a_signal_reaches_the_child_that_stays: 0, ["Late"];
    threads_come_and_go: 10, [];
    sealed_memory: 1, [];
    as_many_mappings_as_allowed: 0, ["Advice"];
}

/// The first child of a site is undone. The others find what it fetched.
#[test]
fn one_late_read_makes_one_more_child() {
    if nothing_speculates() {
        return;
    }
    for (case, retries) in
        [("touches_and_executes", 1), ("touches_and_fails_to_execute", 1), ("executes_a_name_it_lacks", 1)]
    {
        let report = same_as_plain(&LATE, &only_its_own(&[]), case);
        assert_eq!(report.count("retried"), retries, "{case}: {:?}", report.reasons());
        // A second child is no second fork.
        assert_eq!(report.count("forks"), report.count("committed"), "{case}");
    }
    let report = same_as_plain(&LATE, &only_its_own(&["--fork=speculate"]), "touches_and_executes");
    assert_eq!((report.count("retried"), report.count("committed")), (0, 20), "{:?}", report.reasons());
}

#[test]
fn strict_leaves_a_process_with_threads_alone() {
    compare_in(&LATE, &only_its_own(&["--fork=strict"]), "touches_and_executes", 0, &["Threads"; 20]);
    // Only its forks beside a thread.
    compare_in(&LATE, &only_its_own(&["--fork=strict"]), "threads_come_and_go", 5, &["Threads"; 5]);
}

/// Each fork has the window, the tables and the shared pages for itself.
#[test]
fn threads_fork_at_the_same_moment() {
    let report = same_as_plain(&LATE, &only_its_own(&[]), "threads_fork_at_the_same_moment");
    if !nothing_speculates() {
        // A fork is left alone while another thread maps the tables or forks plainly, or if it
        // waits long for the locks of a thread that forks. It has no second child if another thread
        // began a plain fork meanwhile.
        let others = report.reasons();
        assert!(others.iter().all(|r| ["Busy", "Late", "Lock", "Setup"].contains(&r.as_str())), "{others:?}");
        assert_eq!(report.count("committed") + others.len() as u64, 200);
    }
}

/// Children that work have no second child, whatever they have read, and their site is left alone
/// soon.
#[test]
fn workers_beside_a_thread_are_left_alone_soon() {
    let report = same_as_plain(&LATE, &["--fork-minimum=1M", PATIENT], "workers");
    if !nothing_speculates() {
        let reasons = report.reasons();
        let tries = reasons.iter().filter(|r| *r == "Inherited").count();
        assert!((2..=4).contains(&tries), "{tries} of 60 tried");
        assert_eq!(reasons.iter().filter(|r| *r == "Learned").count(), 60 - tries, "{reasons:?}");
        assert_eq!(report.count("retried"), 0);
    }
}

/// What `snapshot` says: how many children saw a state that never was.
fn snapshot(options: &[&str], args: &[&str]) -> (u64, Report) {
    let ((status, out, err), report) = reported(&[&ALWAYS, options].concat(), &SNAPSHOT, args);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{args:?} {options:?}: {out}");
    let seen = out.split(' ').next().and_then(|n| n.parse().ok());
    (seen.unwrap_or_else(|| panic!("{args:?} {options:?}: {out:?}")), report)
}

/// No child of the default sees it.
fn exact(kind: &str, writers: &str, pages: &str, forks: &str) -> Report {
    let (seen, report) = snapshot(&["--children=no"], &[kind, writers, pages, forks]);
    let reasons = report.reasons();
    assert_eq!(seen, 0, "{kind}, {writers} writers, {pages} pages: {reasons:?}");
    // All others were plain.
    let others = report.count("aborted") + report.count("plain");
    assert_eq!(report.count("forks"), report.count("committed") + others);
    report
}

#[test]
fn no_child_sees_a_state_that_never_was() {
    for writers in ["1", "2", "8"] {
        for pages in ["8", "64", "512"] {
            exact("apart", writers, pages, if pages == "512" { "8" } else { "25" });
        }
        for kind in ["adjacent", "heap", "protected"] {
            let report = exact(kind, writers, "64", "25");
            let reasons = report.reasons();
            // On a busy machine threads that protect pages all the time are waited for in vain.
            let busy = reasons.iter().filter(|r| *r == "Busy").count() as u64;
            assert!(kind == "protected" || busy == 0, "{kind}, {writers}: {reasons:?}");
            // The first children may need more pages than they may fetch.
            let counted = report.count("committed") + busy + 5;
            assert!(
                nothing_speculates() || counted >= report.count("forks"),
                "{kind}, {writers}: {reasons:?}"
            );
        }
    }
}

/// Pages that are mapped, unmapped, moved and given back while children are made.
#[test]
fn no_child_sees_a_state_that_never_was_where_memory_comes_and_goes() {
    for kind in ["arena", "mapped", "moved", "dropped"] {
        for writers in ["1", "2"] {
            let report = exact(kind, writers, "64", "25");
            // Where a thread is moving memory, a fork is plain. So all of them may be.
            let some = nothing_speculates() || kind == "moved" || report.count("committed") > 0;
            assert!(some, "{kind}, {writers}: {:?}", report.reasons());
        }
    }
}

/// The negative control: with late reads some children see it. Nobody can say how soon, so forks go
/// on until one does. Half of them do where 256 pages lie apart, more than a site keeps.
#[test]
fn late_reads_show_a_state_that_never_was() {
    if nothing_speculates() {
        return;
    }
    let (seen, report) =
        snapshot(&["--fork=speculate", "--children=no"], &["apart", "1", "256", "20000", "1"]);
    assert_eq!(seen, 1, "of {}", report.count("forks"));
}

/// `FORKLESS_SNAPSHOT_FORKS` forks (a million), or as many as `FORKLESS_SNAPSHOT_SECONDS` allow. A
/// fork takes from 2 to 400 ms, so each layout has its part of the time, not of the forks.
#[test]
#[ignore = "hours"]
fn no_child_in_a_million_sees_a_state_that_never_was() {
    const KINDS: [&str; 8] =
        ["apart", "adjacent", "heap", "arena", "mapped", "protected", "moved", "dropped"];
    /// Forks of one process: so many take a second where they are slow.
    const AT_ONCE: u64 = 25;

    struct Layout {
        of: [&'static str; 3],
        took: Duration,
        forks: u64,
        committed: u64,
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let all = number("FORKLESS_SNAPSHOT_FORKS").unwrap_or(1_000_000);
    let seconds = number("FORKLESS_SNAPSHOT_SECONDS").unwrap_or(u64::MAX);
    let start = Instant::now();
    allow_seconds(200_000);
    let mut layouts = Vec::new();
    for kind in KINDS {
        for writers in ["1", "2", "8"] {
            for pages in ["8", "64", "512"] {
                let of = [kind, writers, pages];
                layouts.push(Layout { of, took: Duration::ZERO, forks: 0, committed: 0 });
            }
        }
    }
    while layouts.iter().map(|layout| layout.forks).sum::<u64>() < all && start.elapsed().as_secs() < seconds
    {
        let next = layouts.iter_mut().min_by_key(|layout| layout.took).expect("layouts");
        let [kind, writers, pages] = next.of;
        // The faster a layout's forks are, the more of them one process makes.
        let at_once = AT_ONCE.max(next.forks.min(40 * AT_ONCE)).to_string();
        let begin = Instant::now();
        let report = exact(kind, writers, pages, &at_once);
        next.took += begin.elapsed();
        next.forks += report.count("forks");
        next.committed += report.count("committed");
    }
    let made: u64 = layouts.iter().map(|layout| layout.forks).sum();
    for Layout { of: [kind, writers, pages], forks, committed, .. } in layouts {
        println!("{kind}, {writers} writers, {pages} pages: {committed} of {forks} committed, 0 saw it");
    }
    println!("{made} forks in {} s, 0 saw it", start.elapsed().as_secs());
}

/// Whether a program of this name can be executed; else the test counts as skipped.
fn has(program: &str, argument: &str) -> bool {
    let works = Command::new(program).arg(argument).output().is_ok_and(|out| out.status.success());
    if !works {
        println!("skipped: no {program} here");
    }
    works
}

/// Runs a line of an interpreter plainly and by default, and asserts the same output, and that all
/// but the first few of its forks commit.
fn interpreter(program: &str, flag: &str, source: &str, forks: u64) {
    let args = [flag, source];
    let without = observe(&mut plain(Path::new(program), &args));
    let (with, report) = reported(&["--children=no", PATIENT], Path::new(program), &args);
    assert_eq!(without, with, "{:?}", report.reasons());
    assert_eq!(without.0, Some(0), "{without:?}");
    if !nothing_speculates() {
        let reasons = report.reasons();
        assert!(!reasons.iter().any(|r| r == "Threads"), "{reasons:?}");
        assert!(
            report.count("committed") >= forks - 10,
            "{} of {forks}: {reasons:?}",
            report.count("committed")
        );
    }
}

#[test]
fn children_of_python_with_busy_threads_commit() {
    const SOURCE: &str = "
import os, subprocess, threading
memory = bytearray(64 << 20)
for at in range(0, len(memory), 4096): memory[at] = 1
quit = False
def busy():
    while not quit: [object() for _ in range(100)]
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads: thread.start()
for i in range(30):
    garbage = [[str(j)] for j in range(1000)]
    print(subprocess.run(['/bin/echo', str(i)], preexec_fn=lambda: os.umask(7), capture_output=True).stdout)
quit = True
for thread in threads: thread.join()
";
    if has("/usr/bin/python3", "--version") {
        interpreter("/usr/bin/python3", "-c", SOURCE, 30);
    }
}

#[test]
fn children_of_node_commit() {
    const SOURCE: &str = "
const { spawnSync } = require('child_process');
const memory = [];
for (let i = 0; i < 64; i++) memory.push(Buffer.alloc(1 << 20, 1));
for (let i = 0; i < 30; i++) {
    const garbage = []; for (let j = 0; j < 1000; j++) garbage.push({ j });
    console.log(spawnSync('/bin/echo', [String(i)]).stdout.toString());
}
";
    if has("/usr/bin/node", "--version") {
        interpreter("/usr/bin/node", "-e", SOURCE, 30);
    }
}

/// A program that another program of the run executes has the default as well.
#[test]
fn a_run_below_a_shell_serves_threads_too() {
    if nothing_speculates() {
        return;
    }
    let line = format!("{} touches_and_executes; exit $?", LATE.display());
    let (seen, report) =
        reported_by(|more| run(&[more, &ALWAYS[..]].concat(), Path::new("/bin/sh"), &["-c", &line]));
    assert_eq!(seen.0, Some(0), "{seen:?}");
    assert!(report.count("committed") >= 20 && report.count("retried") >= 1, "{:?}", report.reasons());
}

/// A block that moves takes a mark of the library's along. So no block moves until the child's
/// exec: neither by `mremap`, nor by `realloc`, which calls it inside libc. The thread sleeps: one
/// of a real-time policy would keep the processor from the fork that it waits for.
#[test]
fn no_block_moves_while_a_child_speculates() {
    if nothing_speculates() {
        return;
    }
    let program = compile("moves_meanwhile.c", &["-lpthread"]);
    for mode in FOR_THREADS {
        let (seen, report) = reported(&only_its_own(&[mode]), &program, &[]);
        let kinds = ["malloc", "aligned_alloc", "mmap"];
        let expected: String =
            kinds.map(|kind| format!("{kind}: moved after the exec, the thread slept\n")).concat();
        assert_eq!(seen, (Some(0), expected, String::new()));
        assert_eq!(report.count("committed"), kinds.len() as u64, "{mode}: {:?}", report.reasons());
    }
}

/// Two parts that get their first pages while the library has one of them marked would stay two for
/// good, and mremap refuses to move them: of 83 moves of committed memory 68 failed. So mprotect
/// waits for the marks, and no mapping is split before it has a page of its own.
#[test]
fn a_mapping_that_plainly_is_one_stays_one() {
    let program = compile("joined_mappings.c", &["-lpthread"]);
    for kind in ["committed", "fresh"] {
        let without = observe(&mut plain(&program, &[kind]));
        let (with, report) = reported(&only_its_own(&[]), &program, &[kind]);
        assert_eq!(without, (Some(0), "none of some moves failed\n".into(), String::new()), "{kind}");
        assert_eq!(with, without, "{kind}: {:?}", report.reasons());
        let committed = report.count("committed");
        assert!(nothing_speculates() || committed >= 20, "{kind}: {committed}, {:?}", report.reasons());
    }
}

/// A mapping is asked for the program's marks by a mark on a part of it. Where another thread
/// unmaps a page of that part just then, the kernel marks the others, and says ENOMEM. The mark
/// stayed: of 2,000 children 14 lacked memory. So it did where the page was the last of the part, a
/// huge page, and mapped again at once: of 2,000 children 28 lacked memory.
#[test]
fn no_child_lacks_memory_of_a_mapping_with_holes() {
    let program = compile("holes.c", &["-lpthread"]);
    for args in [&["400"][..], &["300", "3"]] {
        let (with, report) = reported(&[&ALWAYS, &["--children=no"][..]].concat(), &program, args);
        let reasons = report.reasons();
        assert_eq!(with, (Some(0), "0 lacked something\n".into(), String::new()), "{args:?}: {reasons:?}");
        let committed = report.count("committed");
        assert!(nothing_speculates() || committed >= 200, "{args:?}: {committed}, {reasons:?}");
    }
}

/// A mapping is asked for its marks by growing it, which must fail. Growth by one page succeeded
/// where another thread had just unmapped that page: some 400 of 50,000 came back.
#[test]
fn no_page_comes_back_that_another_thread_unmaps() {
    let program = compile("raw_marks.c", &["-lpthread"]);
    let options = [&ALWAYS, &["--children=no"][..]].concat();
    for _ in 0..3 {
        let (with, report) = reported(&options, &program, &["trims"]);
        assert_eq!(with, (Some(0), "0 mapped again\n".into(), String::new()), "{:?}", report.reasons());
        let committed = report.count("committed");
        assert!(nothing_speculates() || committed > 100, "{committed}, {:?}", report.reasons());
    }
}

/// Other threads map, mark, unmap and move memory all the time. A mark of the library's that stays
/// on a block takes it from all later children.
#[test]
#[ignore = "two minutes"]
fn no_child_lacks_memory_that_moves() {
    let program = compile("marks_and_moves.c", &["-lpthread"]);
    let seen = observe(&mut run(&["--quiet", "--fork-minimum=1M", "--fork-always"], &program, &["120"]));
    assert_eq!(seen, (Some(0), "0 lack memory\n".into(), String::new()));
}

/// Regression: the kernel ended no clone until the monitor had read of it, and the monitor waited
/// for the fork. A monitor in another process was told of some forks only.
#[test]
fn memory_that_a_monitor_serves_is_left_alone() {
    let program = compile("served.c", &["-lpthread"]);
    for kind in ["protects", "moves", "marks", "device", "device_by_number", "process"] {
        let without = observe(&mut plain(&program, &[kind]));
        if without.0 == Some(77) {
            println!("skipped: {kind}: userfaultfd tells this process of no forks");
            continue;
        }
        assert_eq!(without.0, Some(0), "{kind}: {without:?}");
        for mode in FOR_THREADS {
            let (with, report) = reported(&only_its_own(&[mode]), &program, &[kind]);
            let reasons = report.reasons();
            assert_eq!(with, without, "{kind} {mode}: {reasons:?}");
            if !without_dispatch() {
                let forks = if kind == "process" { 4 } else { 3 };
                assert_eq!(report.count("committed"), 1, "{kind} {mode}: {reasons:?}");
                assert_eq!(reasons, vec!["Serves"; forks], "{kind} {mode}");
            }
        }
    }
}

/// Regression: the child waited until a thread had granted its open or exec. That thread waited for
/// the child: for libc's locks, and to move memory.
#[test]
fn a_program_that_grants_opens_is_left_alone() {
    if !root_to("grant opens by fanotify") {
        return;
    }
    let program = compile("grants.c", &["-lpthread"]);
    let file = temporary(&format!("granted.{}", std::process::id()));
    for way in ["init", "number"] {
        let args = [way, file.to_str().expect("a path of ours")];
        let without = observe(&mut plain(&program, &args));
        if without.0 == Some(77) {
            println!("skipped: {way}: fanotify grants nothing here");
            continue;
        }
        assert_eq!(without.0, Some(0), "{way}: {without:?}");
        for mode in FOR_THREADS {
            let (with, report) = reported(&only_its_own(&[mode]), &program, &args);
            let reasons = report.reasons();
            assert_eq!(with, without, "{way} {mode}: {reasons:?}");
            if !without_dispatch() {
                assert_eq!(report.count("committed"), 1, "{way} {mode}: {reasons:?}");
                assert_eq!(reasons, ["Serves"; 2], "{way} {mode}");
            }
        }
    }
    let _ = std::fs::remove_file(file);
}
