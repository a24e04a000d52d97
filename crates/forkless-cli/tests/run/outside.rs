//! Behaviour that must stay, seen from outside: execs that fail, whatever parents and other
//! processes can learn of a child, and children of processes with threads. One test a case of
//! `exec_cases.c`, `outside_cases.c` and `thread_cases.c`.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use crate::fork::{FOR_THREADS, compare_beside_locks, compare_in, only_its_own, same_as_plain};
use crate::support::{
    compile, compile_as, may_make_pid_namespaces, may_mount, nothing_speculates, observe, plain, reported,
    reported_by, root, root_to, run, temporary,
};

static EXEC: LazyLock<PathBuf> = LazyLock::new(|| compile("exec_cases.c", &[]));
static OUTSIDE: LazyLock<PathBuf> = LazyLock::new(|| compile("outside_cases.c", &["-ldl"]));
static THREADS: LazyLock<PathBuf> = LazyLock::new(|| compile("thread_cases.c", &["-lpthread", "-lrt"]));

macro_rules! cases {
    ($program:ident, $mode:expr; $($name:ident: $commits:literal, [$($reason:literal),*];)*) => {
        $(#[test] fn $name() {
            compare_in(&$program, &only_its_own($mode), stringify!($name), $commits, &[$($reason),*]);
        })*
    };
}

cases! {
    EXEC, &[];
    searches_the_path: 1, ["Call", "Call", "Call"];
    every_error_of_exec: 1, ["Fault", "Fault"];
    executes_a_descriptor: 3, ["Call"];
    a_pipe_tells_that_exec_failed: 1, ["Inherited", "Inherited"];
    goes_on_with_its_signals: 1, [];
    prints_after_exec_failed: 0, ["Call", "Inherited", "Inherited"];
    dies_in_exec: 2, ["Call"];
    many_arguments_and_another_environment: 2, [];
}

cases! {
    OUTSIDE, &[];
    waits_in_every_way: 7, [];
    stops_before_it_executes: 0, ["Call"];
    sigchld_says_whose_and_why: 3, ["Call"];
    asks_to_be_traced: 0, ["Call"];
    is_traced_itself: 0, ["Traced"];
    both_sides_make_the_group: 10, [];
    system_v_objects: 1, ["Call", "Call", "Call", "SharedWrite"];
    locks_of_every_kind: 1, ["Command", "Command", "Command"];
    a_lease_is_broken_once: 0, ["Call"];
    what_descriptors_share: 1, ["Call", "Call", "Call", "Call", "Command", "Inherited"];
    maps_a_file_in_every_way: 1, ["Call", "Call", "SharedWrite"];
    timers_are_not_inherited: 3, [];
    makes_processes_in_every_way: 0, ["Call", "Call", "Call", "Call"];
    a_daemon: 1, ["Call", "Call"];
    takes_a_terminal: 0, ["Command", "OpenFile"];
    clones_of_its_own: 0, ["Call"];
    deep_recursion: 2, ["Fault"];
    jumps_before_it_executes: 1, [];
    memory_of_every_kind: 4, ["Call", "Fault", "Fault", "Layout", "Layout"];
    // Regression: the pipe held bytes that were written after the fork.
    lends_memory_to_a_pipe: 1, ["Lent", "Lent"];
    // Regression: that one's fork did not wait until no memory was marked.
    loads_a_second_libc: 1, ["SecondLibc"];
    // Regression: a child saw what the device wrote after the fork.
    has_a_ring: 2, ["Ring"];
    opens_what_is_no_file: 4, ["OpenFile", "OpenFile", "OpenFile", "OpenFile", "OpenFile", "OpenFile", "OpenFile", "OpenFile", "OpenFile", "OpenFile"];
}

/// Cases that only root can run. For another user the kernel refuses at other places.
macro_rules! root_cases {
    ($($name:ident: $commits:literal, [$($reason:literal),*];)*) => {
        $(#[test] fn $name() {
            if !root_to("do that") {
                return;
            }
            compare_in(&OUTSIDE, &only_its_own(&[]), stringify!($name), $commits, &[$($reason),*]);
        })*
    };
}

root_cases! {
    attributes_survive_exec: 1, ["Collision", "Command"];
    privileges_of_root_are_dropped_in_part: 2, [];
    // Regression: a process with the ids of such a child could take the descriptor of its parent's
    // memory from it.
    capabilities_alone_are_dropped: 1, ["Call", "Call"];
    new_namespaces_and_a_filter: 1, ["Call", "Call", "Call", "Call", "Call", "Call", "Command"];
}

/// Regression: children executed files that another user had put in place of /proc.
#[test]
fn somebody_elses_proc() {
    if may_mount("mount over /proc") {
        compare_in(&OUTSIDE, &only_its_own(&[]), "somebody_elses_proc", 2, &["NoProc"; 6]);
    }
}

/// What threads do beside a fork.
macro_rules! thread_cases {
    ($($name:ident: $commits:literal, [$($reason:literal),*];)*) => {
        $(#[test] fn $name() {
            compare_beside_locks(&THREADS, stringify!($name), $commits, &[$($reason),*]);
        })*
    };
}

thread_cases! {
    a_lock_held_by_another_thread: 5, [];
    locks_held_by_the_forking_thread: 2, [];
    a_lock_of_libc_is_held_for_long: 0, ["Lock"];
    what_a_thread_has_of_its_own: 1, ["Inherited"];
    locks_in_shared_memory: 1, ["Call", "SharedWrite", "SharedWrite"];
    signals_come_all_the_time: 40, [];
    the_forking_thread_ends_first: 1, [];
    // Regression: the notice was lost.
    a_queue_notifies: 1, ["Queue", "Queue"];
    beside_who_lists_objects: 5, ["Call", "Call", "Call", "Call", "Call"];
    memory_written_meanwhile_moves_as_one: 2, [];
    marks_made_meanwhile_stay: 2, [];
    threads_change_the_user: 0, [];
    children_allocate_while_threads_do: 40, [];
}

/// A child that leaves its exec by a signal handler is undone. The signals reach its parent as
/// well. So its fork is made again, and is plain if one more signal waits by then.
fn leaves_an_exec(options: &[&str], case: &str, reason: &str) {
    let report = same_as_plain(&EXEC, options, case);
    let (reasons, waits) = (report.reasons(), ["Signal"]);
    assert_eq!(report.count("committed"), 0, "{reasons:?}");
    assert!(nothing_speculates() || reasons == [reason] || reasons == waits, "{reasons:?}");
}

/// Regression: the time limit stood still in an exec, and the parent waited for ever.
#[test]
fn jumps_out_of_an_exec() {
    leaves_an_exec(&only_its_own(&[]), "jumps_out_of_an_exec", "Interrupted");
}

/// Regression: as [`jumps_out_of_an_exec`], and only the time limit ends it.
#[test]
fn stays_in_a_handler_in_an_exec() {
    let options = ["--fork-minimum=1M", "--fork-always", "--fork-limit=50"];
    leaves_an_exec(&options, "stays_in_a_handler_in_an_exec", "Timeout");
}

/// Regression: a thread that was forking was killed for the library's calls.
#[test]
fn a_filter_for_all_threads() {
    for mode in FOR_THREADS {
        let report = same_as_plain(&THREADS, &only_its_own(&[mode]), "a_filter_for_all_threads");
        if !nothing_speculates() {
            assert!(report.count("committed") >= 20, "{mode}: {:?}", report.reasons());
        }
    }
}

/// Regression: the library opened files to look at the namespaces, while other threads opened
/// theirs.
#[test]
fn lines_take_no_number() {
    let report = same_as_plain(&THREADS, &["--fork=off"], "lines_take_no_number");
    assert_eq!(report.count("shells_skipped"), 200);
}

#[test]
fn fork_handlers_that_lock() {
    compare_beside_locks(&THREADS, "fork_handlers_that_lock", 20, &["Call"; 10]);
}

/// Regression: threads in fork handlers had their signals blocked. The table of forking threads has
/// fewer than twelve places. Both made the program hang. On a busy machine the wait for a place
/// took eight minutes.
#[test]
fn fork_handlers_that_wait_for_other_threads() {
    for case in [
        "a_collector_stops_the_world",
        "many_threads_wait_in_fork_handlers",
        "they_wait_beside_busy_processes",
    ] {
        let without = observe(&mut plain(&THREADS, &[case]));
        for mode in FOR_THREADS {
            let (with, report) = reported(&only_its_own(&[mode]), &THREADS, &[case]);
            assert_eq!((without.1.as_str(), &without), ("done\n", &with), "{case} {mode}");
            // All twelve may meet plain forks under way.
            let some = nothing_speculates() || report.count("committed") > 0;
            let reasons = report.reasons();
            assert!(some || reasons.contains(&"Busy".to_owned()), "{case} {mode}: {reasons:?}");
        }
    }
}

/// Regression: vfork's child took the slots and stacks of a speculation under way for those of an
/// ended process, and freed them.
#[test]
fn vforked_children_fork() {
    for mode in FOR_THREADS {
        let report = same_as_plain(&THREADS, &only_its_own(&[mode]), "vforked_children_fork");
        if !nothing_speculates() {
            let reasons = report.reasons();
            assert!(report.count("committed") > 0, "{mode}: {reasons:?}");
            assert_eq!(reasons.iter().filter(|r| *r == "Shared").count(), 200, "{mode}: {reasons:?}");
        }
    }
}

/// Regression: two processes with the number 1 each took their common page for their own. A
/// speculation that had committed looked aborted, and its program was executed again.
#[test]
fn two_first_processes() {
    if !may_make_pid_namespaces() {
        return;
    }
    let report = same_as_plain(&OUTSIDE, &only_its_own(&[]), "two_first_processes");
    if !nothing_speculates() {
        assert_eq!((report.count("committed"), report.reasons()), (750, vec![]));
    }
}

/// Regression: the other process found the library's descriptors among its own.
#[test]
fn a_process_that_shares_descriptors_is_left_alone() {
    compare_in(
        &OUTSIDE,
        &only_its_own(&[]),
        "a_process_that_shares_descriptors_is_left_alone",
        1,
        &["Files"; 60],
    );
}

/// The library learns about call sites here, so plain forks run beside speculations.
#[test]
fn workers_beside_a_thread_that_executes() {
    for mode in FOR_THREADS {
        let options = [mode, "--fork-minimum=1M", "--children=no"];
        let report = same_as_plain(&THREADS, &options, "workers_beside_a_thread_that_executes");
        if !nothing_speculates() {
            let reasons = report.reasons();
            assert!(report.count("committed") > 0, "{mode}: {reasons:?}");
            assert!(reasons.iter().any(|r| r == "Learned"), "{mode}: {reasons:?}");
        }
    }
}

/// Regression: at their first call in the child, the library's `_exit` and other functions asked
/// the loader.
#[test]
fn children_beside_the_loader() {
    let case = ["children_beside_the_loader"];
    assert_eq!(observe(&mut plain(&THREADS, &case)), observe(&mut run(&[], &THREADS, &case)));
}

/// Regression: each function of the library asked the loader at its first call. Another thread had
/// the loader's lock and waited for the caller.
#[test]
fn a_constructor_that_waits_for_a_thread() {
    let plugin = compile("plugin.c", &["-shared", "-fPIC", "-lpthread"]);
    let program = compile_as("loads_plugin", "plugin.c", &["-DPROGRAM", "-ldl"]);
    let plugin = [plugin.to_str().expect("a path of ours")];
    let without = observe(&mut plain(&program, &plugin));
    assert!(without.1.ends_with("elsewhere\nloaded\n"), "{without:?}");
    for options in
        [&[][..], &["--children=no"], &["--fork=speculate", "--fork-minimum=0"], &["--context=fast"]]
    {
        assert_eq!(without, observe(&mut run(options, &program, &plugin)), "{options:?}");
    }
}

/// Regression: direct interception, and lines without a shell, went past the functions of other
/// libraries.
#[test]
fn a_library_between_program_and_libc() {
    let wrapper = compile("wrapper.c", &["-shared", "-fPIC", "-ldl"]);
    let directory = wrapper.parent().expect("a file").display();
    let (flag, path) = (wrapper.display().to_string(), format!("-Wl,--no-as-needed,-rpath,{directory}"));
    let linked = compile_as("linked_with_wrapper", "wrapper.c", &["-DPROGRAM", &path, &flag]);
    let preloaded = compile_as("preloads_wrapper", "wrapper.c", &["-DPROGRAM"]);
    for (program, preload) in [(&linked, ""), (&preloaded, flag.as_str())] {
        let without = observe(plain(program, &[]).env("LD_PRELOAD", preload));
        assert!(without.1.starts_with("umask 77, /usr, setuid -1 13\nstatus 0\n"), "{without:?}");
        assert!(without.1.ends_with("status 200\nsystem\nsystem 0\npopen popen\npclose 1\n"), "{without:?}");
        let (with, report) = reported_by(|more| {
            let mut command = run(&[more, &["--fork-minimum=0", "--children=no"]].concat(), program, &[]);
            command.env("LD_PRELOAD", preload);
            command
        });
        assert_eq!(without, with, "{preload}");
        assert_eq!((report.count("shells_skipped"), report.count("shells_kept")), (0, 2), "{preload}");
        if !nothing_speculates() {
            assert_eq!((report.count("committed"), report.count("direct")), (3, 0), "{preload}");
        }
    }
}

/// Regression: the library's functions under glibc's other names (`__fork`, `__dup2`) went on to
/// the next `fork` and `dup2`. Another library's called them again, until the stack ended.
#[test]
fn a_library_that_calls_glibcs_other_names() {
    let wrapper = compile("other_names.c", &["-shared", "-fPIC"]);
    let program = compile_as("uses_other_names", "other_names.c", &["-DPROGRAM"]);
    let (preloaded, options) = (wrapper.display().to_string(), only_its_own(&[]));
    let without = observe(plain(&program, &[]).env("LD_PRELOAD", &preloaded));
    assert_eq!(without, (Some(0), "executed\nstatus 0, 1\n".repeat(3), String::new()));
    let (with, report) = reported_by(|more| {
        let mut command = run(&[more, &options[..]].concat(), &program, &[]);
        command.env("LD_PRELOAD", &preloaded);
        command
    });
    assert_eq!(without, with);
    // Both names were called.
    assert_eq!(report.count("forks"), if cfg!(target_arch = "x86_64") { 12 } else { 6 });
}

/// How many forks commit depends on the moments at which mappings come and go. A child that meets a
/// mapping that is gone is undone.
#[test]
fn threads_map_and_open_meanwhile() {
    for mode in FOR_THREADS {
        let report = same_as_plain(&THREADS, &only_its_own(&[mode]), "threads_map_and_open_meanwhile");
        if !nothing_speculates() {
            assert!(report.count("committed") > 0, "{mode}: {:?}", report.reasons());
        }
    }
}

/// A file system that is unmounted when dropped, with the process that serves it.
struct Fuse(PathBuf, Child);

impl Fuse {
    fn serve(server: &str, at: PathBuf) -> Option<Fuse> {
        std::fs::create_dir_all(&at).expect("a directory");
        let script = root().join("fixtures/run").join(server);
        let started = Command::new("python3").arg(script).arg(&at).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = started else {
            println!("skipped: no python3 here");
            return None;
        };
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
        let fuse = Fuse(at, child);
        if line != "mounted\n" {
            println!("skipped: no FUSE file system may be mounted here (root may, with /dev/fuse)");
            return None;
        }
        Some(fuse)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
        let _ = self.1.kill();
        let _ = self.1.wait();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The server of a FUSE file system sees each open. The file system was not recognized where its
/// server does not answer statfs, and a child that was undone had taken a number.
#[test]
fn a_file_server_sees_each_open_once() {
    let at = temporary(&format!("fuse.{}", std::process::id()));
    let Some(fuse) = Fuse::serve("counting_fuse.py", at) else { return };
    let program = compile("takes_a_token.c", &[]);
    let file = fuse.0.join("token");
    let args = [file.to_str().expect("a path of ours")];
    let expected = |numbers: &str| (Some(0), numbers.to_owned(), String::new());
    assert_eq!(observe(&mut plain(&program, &args)), expected("1\n2\n3\n"));
    let (seen, report) = reported(&only_its_own(&[]), &program, &args);
    assert_eq!(seen, expected("4\n5\n6\n"));
    let reasons = report.reasons();
    assert!(nothing_speculates() || reasons == ["OpenFile"; 3], "{reasons:?}");
}
