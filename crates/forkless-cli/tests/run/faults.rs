//! Faults: each system call of the library, in parent and child, is refused once, and each kind of
//! call always. The parent lacks a resource, or a process is killed. The outcome is that of the
//! plain fork, and nothing is left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::asking::ASKING;
use crate::fork::{ALWAYS, same_as_plain};
use crate::support::{
    FORK_CASES, FORKLESS, LIBRARY, MEMORY_CASES, PATIENT, compile, nothing_speculates, observe, plain,
    report_in, reported, temporary, wait_until, without_dispatch,
};

static INJECT: LazyLock<PathBuf> = LazyLock::new(|| compile("inject.c", &[]));
static UNDER_FAULTS: LazyLock<PathBuf> = LazyLock::new(|| compile("under_faults.c", &["-lpthread"]));
static MEMORY_LIMIT: LazyLock<PathBuf> =
    LazyLock::new(|| compile("memory_limit_by_kernel.c", &["-lpthread"]));

const ERRORS: [Errno; 5] = [Errno::PERM, Errno::NOMEM, Errno::INTR, Errno::AGAIN, Errno::NOSYS];

/// The call that fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The nth call, from 1.
    Call(usize),
    /// Every call with this number.
    Number(i64),
}

/// A program under test, with the options of `run`.
struct Subject {
    options: &'static [&'static str],
    program: &'static LazyLock<PathBuf>,
    args: &'static [&'static str],
}

/// Forks. The harness sees every call of the child, so the child is slow.
const FORKS: Subject = Subject { options: &ALWAYS, program: &UNDER_FAULTS, args: &[] };

/// The same beside a thread.
const BESIDE: Subject = Subject { options: &ALWAYS, program: &UNDER_FAULTS, args: &["beside"] };

/// A line for which the library asks `/bin/sh` what it is.
const ASKS: Subject = Subject { options: &["--children=no"], program: &ASKING, args: &["under_faults"] };

/// A run with a fault: its output, the library's calls (`parent NUMBER` or `child NUMBER`), and the
/// processes left behind.
struct Run {
    seen: (Option<i32>, String, String),
    calls: Vec<String>,
    orphans: Option<String>,
}

fn run_with(subject: &Subject, fault: Fault, errno: Errno) -> Run {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let log = temporary(&format!("inject.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let which = match fault {
        Fault::None => "0".to_owned(),
        Fault::Call(n) => n.to_string(),
        Fault::Number(nr) => (-nr).to_string(),
    };
    let mut command = plain(&INJECT, &[&which, &errno.raw_os_error().to_string()]);
    command.arg(&log).args([FORKLESS, "run", "--quiet"]).args(subject.options).arg("--");
    command.arg(&**subject.program).args(subject.args);
    let seen = observe(command.env("FORKLESS_LIBRARY", &*LIBRARY));
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(&log);
    let mut calls: Vec<String> = text.lines().map(str::to_owned).collect();
    let orphans = calls.pop();
    Run { seen, calls, orphans }
}

/// Tries all faults, two at a time. Returns each outcome that differs from `expected`.
fn try_all(
    subject: &Subject,
    faults: &[(Fault, Errno)],
    expected: &(Option<i32>, String, String),
) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some(&(fault, errno)) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = run_with(subject, fault, errno);
            if run.seen != *expected || run.orphans.as_deref() != Some("orphans 0") {
                let lines: Vec<&str> =
                    run.seen.1.lines().filter(|l| !expected.1.lines().any(|e| e == *l)).collect();
                wrong.push(format!(
                    "{fault:?} {errno}: status {:?}, {lines:?}, {:?}",
                    run.seen.0, run.orphans
                ));
            }
        }
        wrong
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut wrong = work();
        wrong.extend(other.join().expect("a thread of the test"));
        wrong
    })
}

/// The calls of a run without a fault. Some of its speculations must commit, and some abort.
fn undisturbed(subject: &Subject) -> ((Option<i32>, String, String), Vec<String>) {
    let expected = observe(&mut plain(&UNDER_FAULTS, subject.args));
    assert_eq!(expected.0, Some(0), "{expected:?}");
    let run = run_with(subject, Fault::None, Errno::PERM);
    assert_eq!(run.seen, expected);
    let count = |line: &str| run.calls.iter().filter(|l| *l == line).count();
    // execve is 59: two that succeed, one before that fails. madvise is 28.
    assert!(count("child 59") >= 3 && count("parent 28") >= 8, "nothing was speculated: {:?}", run.calls);
    (expected, run.calls)
}

/// Only a close look tells the size of a process whose peak is no guide. The library looks again
/// when the process can have grown. To arm for each fork that is left alone costs a small program a
/// quarter of its speed.
#[test]
fn a_small_process_is_looked_at_now_and_then() {
    if nothing_speculates() {
        return;
    }
    const SMALL: Subject =
        Subject { options: &["--fork-minimum=8M"], program: &UNDER_FAULTS, args: &["small"] };
    let run = run_with(&SMALL, Fault::None, Errno::PERM);
    assert_eq!(run.seen.0, Some(0), "{:?}", run.seen);
    assert_eq!(run.orphans.as_deref(), Some("orphans 0"));
    // sigaltstack is 131. A look at each of the 200 forks would make it twice a fork.
    let armed = run.calls.iter().filter(|l| *l == "parent 131").count() / 2;
    assert!(armed < 20, "{armed}");
    let (_, report) = reported(&["--fork-minimum=8M"], &UNDER_FAULTS, &["small"]);
    assert_eq!((report.count("forks"), report.count("committed")), (201, 1), "{:?}", report.reasons());
}

/// Some of the calls, each with one of the errors. [`every_call_refused_with_every_error`] tries
/// them all.
fn some_refused(subject: &Subject, stride: usize) {
    if nothing_speculates() {
        return;
    }
    let (expected, calls) = undisturbed(subject);
    let faults: Vec<_> = (1..=calls.len())
        .step_by(stride)
        .map(|n| (Fault::Call(n), ERRORS[n / stride % ERRORS.len()]))
        .collect();
    let wrong = try_all(subject, &faults, &expected);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_refused_call_is_not_noticed() {
    some_refused(&FORKS, 3);
}

#[test]
fn a_refused_call_beside_a_thread_is_not_noticed() {
    some_refused(&BESIDE, 7);
}

/// A container's filter refuses a kind of call to every process, at every time.
fn always_refused(subject: &Subject) {
    if nothing_speculates() {
        return;
    }
    let (expected, calls) = undisturbed(subject);
    let numbers: BTreeSet<i64> = calls.iter().filter_map(|l| l.rsplit(' ').next()?.parse().ok()).collect();
    assert!(numbers.len() > 15, "{numbers:?}");
    let faults: Vec<_> = numbers
        .iter()
        .enumerate()
        .map(|(i, nr)| (Fault::Number(*nr), if i % 2 == 0 { Errno::PERM } else { Errno::NOSYS }))
        .collect();
    let wrong = try_all(subject, &faults, &expected);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_kind_of_call_that_is_always_refused_is_not_noticed() {
    always_refused(&FORKS);
}

#[test]
fn a_kind_of_call_that_is_always_refused_beside_a_thread_is_not_noticed() {
    always_refused(&BESIDE);
}

fn every_refused(subject: &Subject) {
    let (expected, calls) = undisturbed(subject);
    let faults: Vec<_> =
        (1..=calls.len()).flat_map(|n| ERRORS.map(|errno| (Fault::Call(n), errno))).collect();
    let wrong = try_all(subject, &faults, &expected);
    eprintln!("{} calls, {} runs", calls.len(), faults.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
#[ignore = "every call with every error: minutes"]
fn every_call_refused_with_every_error() {
    every_refused(&FORKS);
}

#[test]
#[ignore = "every call with every error: minutes"]
fn every_call_beside_a_thread_refused_with_every_error() {
    every_refused(&BESIDE);
}

#[test]
#[ignore = "every call with every error: minutes"]
fn every_call_while_asking_refused_with_every_error() {
    let expected = observe(&mut plain(&ASKING, ASKS.args));
    let calls = run_with(&ASKS, Fault::None, Errno::PERM).calls.len();
    let faults: Vec<_> = (1..=calls).flat_map(|n| ERRORS.map(|errno| (Fault::Call(n), errno))).collect();
    let wrong = try_all(&ASKS, &faults, &expected);
    eprintln!("asking: {calls} calls, {} runs", faults.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each call that the library makes to ask the shell is refused once, with one of the errors. Each
/// kind of call is refused always, but for two: without them the program cannot wait or block a
/// signal.
#[test]
fn a_refused_call_while_asking_is_not_noticed() {
    let expected = observe(&mut plain(&ASKING, ASKS.args));
    assert_eq!(expected.0, Some(0), "{expected:?}");
    let run = run_with(&ASKS, Fault::None, Errno::PERM);
    assert_eq!(run.seen, expected);
    // clone3 is 435: once for the process that asks, once for its shell.
    assert_eq!(run.calls.iter().filter(|line| line.ends_with(" 435")).count(), 2, "{:?}", run.calls);
    let once = (1..=run.calls.len()).map(|n| (Fault::Call(n), ERRORS[n % ERRORS.len()]));
    let numbers: BTreeSet<i64> =
        run.calls.iter().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    // The two are rt_sigprocmask and wait4.
    let always =
        numbers.iter().filter(|nr| ![14, 61].contains(*nr)).map(|nr| (Fault::Number(*nr), Errno::NOSYS));
    let faults: Vec<_> = once.chain(always).collect();
    let wrong = try_all(&ASKS, &faults, &expected);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Without a mounted /proc the library cannot speculate, and it says nothing.
#[test]
fn without_proc_forks_are_plain() {
    let line = |command: &str| format!("umount -l /proc && exec {command}");
    let case = format!("{} exec_failure_goes_on", FORK_CASES.display());
    let in_namespace = |command: &str| {
        let mut all =
            plain("unshare".as_ref(), &["--mount", "--propagation=private", "sh", "-c", &line(command)]);
        observe(all.env("FORKLESS_LIBRARY", &*LIBRARY))
    };
    let without = in_namespace(&case);
    if without.0 != Some(0) {
        println!("skipped: no mount namespace without /proc here: {}", without.2.trim());
        return;
    }
    let record = temporary(&format!("report.noproc.{}", std::process::id()));
    let run = format!(
        "{FORKLESS} run --fork-minimum=1M --fork-always --json --report={} -- {case}",
        record.display()
    );
    let with = in_namespace(&run);
    let text = std::fs::read_to_string(&record).unwrap_or_default();
    let _ = std::fs::remove_file(&record);
    assert_eq!(without, with);
    assert!(text.contains("no /proc of its own to read"), "{text}");
}

#[test]
fn short_address_space_ends_as_with_a_plain_fork() {
    let report = same_as_plain(&MEMORY_CASES, &["--fork-minimum=1M", "--fork-always"], "address_space_short");
    assert_eq!(report.count("forks"), 2);
}

/// A memory cgroup below the test's own, and its file for the limit. It is removed when dropped.
struct Cgroup(PathBuf, &'static str);

impl Cgroup {
    fn limit(&self) -> PathBuf {
        self.0.join(self.1)
    }

    fn usage(&self) -> PathBuf {
        self.0.join(if self.1 == "memory.max" { "memory.current" } else { "memory.usage_in_bytes" })
    }

    /// Runs a command line in it, without a limit.
    fn run(&self, command: &str) -> (Option<i32>, String, String) {
        // The limit of the last round would hold for the start of this one.
        let _ = std::fs::write(self.limit(), (1u64 << 40).to_string());
        let procs = self.0.join("cgroup.procs");
        let line = format!("echo $$ > {} && exec {command}", procs.display());
        observe(plain("sh".as_ref(), &["-c", &line]).env("FORKLESS_LIBRARY", &*LIBRARY))
    }

    /// A cgroup of version 1 or 2, whichever can be made here.
    fn make(name: &str) -> Option<Cgroup> {
        let made = Cgroup::try_to_make(name);
        if made.is_none() {
            println!(
                "skipped: no memory cgroup may be made here (root may, where the controller is passed on)"
            );
        }
        made
    }

    fn try_to_make(name: &str) -> Option<Cgroup> {
        let all = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = |mark: &str| all.lines().find_map(|l| Some(l.split_once(mark)?.1.trim_start_matches('/')));
        let kinds = [
            ("/sys/fs/cgroup/memory", ":memory:", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "0::", "memory.max"),
        ];
        kinds.into_iter().find_map(|(mount, mark, limit)| {
            let made = Cgroup(Path::new(mount).join(path(mark)?).join(name), limit);
            std::fs::create_dir(&made.0).ok()?;
            // Memory that is swapped out counts no longer, so with swap nobody is killed.
            for (file, none) in [("memory.swap.max", "0"), ("memory.swappiness", "0")] {
                let _ = std::fs::write(made.0.join(file), none);
            }
            made.0.join(limit).exists().then_some(made)
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The processes are gone, but the kernel may still hold the cgroup.
        wait_until(|| std::fs::remove_dir(&self.0).is_ok());
    }
}

/// Memory that a speculative child fetches is charged to its cgroup. Near the limit, the kernel
/// would kill the largest process: the parent. At all these limits it once did.
#[test]
fn memory_limit_kills_nobody_who_lives_without_forkless() {
    const LIMITS: [u64; 3] = [67, 70, 80];
    let Some(cgroup) = Cgroup::make(&format!("forkless-test-{}", std::process::id())) else { return };
    let program = compile("memory_limit.c", &[]);
    for limit in LIMITS {
        let case = format!("{} {} {}", program.display(), cgroup.limit().display(), limit << 20);
        let enter = |command: &str| cgroup.run(command);
        let without = enter(&case);
        assert_eq!(without.0, Some(0), "{limit} MiB: {without:?}");
        let run = format!("{FORKLESS} run --fork-minimum=1M --fork-always {PATIENT}");
        assert_eq!(without, enter(&format!("{run} -- {case}")), "{limit} MiB");
        // The collector is in the cgroup too, and takes the room that the lowest limit leaves.
        if limit == LIMITS[0] {
            continue;
        }
        let record = temporary(&format!("report.limit.{}", std::process::id()));
        let with = enter(&format!("{run} --json --report={} -- {case}", record.display()));
        assert_eq!(without, with, "{limit} MiB");
        let report = report_in(&record, &with);
        let why = if without_dispatch() { "NoDispatch" } else { "Budget" };
        assert_eq!(report.reasons(), [why; 4], "{limit} MiB");
        println!("{limit} MiB: {} pages fetched, {}", report.count("pages_fetched"), cgroup.1);
    }
}

/// Memory that a speculative child maps itself is charged beside what it fetches. And at the limit
/// the kernel ends the process with the most memory: plainly the child, whose memory counts its
/// parent's.
#[test]
fn memory_limit_of_new_memory_kills_whom_it_kills_without_forkless() {
    let Some(cgroup) = Cgroup::make(&format!("forkless-test-new-{}", std::process::id())) else { return };
    let program = compile("memory_limit_new.c", &[]);
    let record = temporary(&format!("report.limit-new.{}", std::process::id()));
    // The parent's MiB, what the child reads, what it takes, the limit; whether the child lives.
    for (size, read, new, limit, lives) in [(40, 4, 16, 68, true), (70, 0, 45, 100, false)] {
        let limit = limit << 20;
        let case = format!("{} {} {limit} {size} {read} {new}", program.display(), cgroup.limit().display());
        let without = cgroup.run(&case);
        let each = if lives { "status 0\n" } else { "status 9\n" };
        assert_eq!(without, (Some(0), each.repeat(3), String::new()), "{size}");
        let options =
            format!("--fork-minimum=1M --fork-always {PATIENT} --json --report={}", record.display());
        let with = cgroup.run(&format!("{FORKLESS} run {options} -- {case}"));
        assert_eq!(without, with, "{size}");
        let why = if without_dispatch() { "NoDispatch" } else { "Budget" };
        assert_eq!(report_in(&record, &with).reasons(), [why; 3], "{size}");
    }
}

/// Whom the kernel kills where so many KiB are left below the limit, and the child goes each `way`.
/// Without the library it is the child.
fn kills_the_child(test: &str, ways: &[(&str, usize)]) {
    let name = format!("forkless-test-{test}-{}", std::process::id());
    let Some(cgroup) = Cgroup::make(&name) else { return };
    let record = temporary(&format!("report.limit-{test}.{}", std::process::id()));
    // In memory. A program that is killed leaves it.
    let holes = format!("/dev/shm/forkless-test-holes-{test}.{}", std::process::id());
    let observed = |command: &str| {
        let seen = cgroup.run(command);
        let _ = std::fs::remove_file(&holes);
        seen
    };
    for (way, left) in ways {
        let (usage, limit) = (cgroup.usage(), cgroup.limit());
        let program = MEMORY_LIMIT.display();
        let case = format!("{program} {} {} {way} {left} {holes}", usage.display(), limit.display());
        let without = observed(&case);
        assert_eq!(without, (Some(0), "status 9\n".into(), String::new()), "{way}");
        let options =
            format!("--fork-minimum=1M --fork-always {PATIENT} --json --report={}", record.display());
        let with = observed(&format!("{FORKLESS} run {options} -- {case}"));
        assert_eq!(without, with, "{way}");
        let report = report_in(&record, &with);
        // All children before the last one execute their program.
        let forks = if *way == "l" { 6 } else { 2 };
        let why = if without_dispatch() { vec!["NoDispatch"; forks] } else { vec!["Budget"] };
        assert_eq!(report.reasons(), why, "{way}");
        assert_eq!(report.count("forks"), forks as u64, "{way}");
        // Copies on write are past counting in the child. The rest it asks for.
        let plain = u64::from("lmf".contains(way));
        if !without_dispatch() {
            assert_eq!([report.count("plain"), report.count("aborted")], [plain, 1 - plain], "{way}");
        }
    }
}

/// The kernel takes memory for a child by itself. In a speculative child that once killed the
/// parent each time.
///
/// Far below 3 MB the fork is plain at once, and that is another mechanism. The stack takes 8 MB,
/// the arguments take 6.2 MB.
#[test]
fn memory_limit_of_memory_that_the_kernel_takes_kills_whom_it_kills_without_forkless() {
    kills_the_child("kernel", &[("s", 6000), ("a", 4800), ("p", 8000)]);
}

/// What a speculative child shares with its parent is copied when it is written, past the library:
/// the memory of earlier children, small mappings, private mappings of files. And to read a file in
/// memory makes pages of its holes. Each once killed the parent each time.
#[test]
fn memory_limit_of_copies_on_write_kills_whom_it_kills_without_forkless() {
    kills_the_child("copies", &[("l", 7500), ("m", 7500), ("f", 7500), ("h", 7500)]);
}

/// A child that can't open the files of its limit once had none, and the parent was killed each
/// time.
#[test]
fn memory_limit_that_the_child_cannot_read_kills_whom_it_kills_without_forkless() {
    kills_the_child("unread", &[("n", 40000), ("e", 40000)]);
    if rustix::process::geteuid().is_root() {
        kills_the_child("root", &[("r", 40000)]);
    } else {
        println!("skipped: only root may change its root directory");
    }
}

/// Each of several processes below one limit took half of what was left, and the kernel killed
/// workers: in 13 of 32 runs.
#[test]
fn memory_limit_of_many_kills_nobody_who_lives_without_forkless() {
    let name = format!("forkless-test-many-{}", std::process::id());
    let Some(cgroup) = Cgroup::make(&name) else { return };
    let program = compile("memory_limit_of_many.c", &[]);
    let (usage, limit) = (cgroup.usage(), cgroup.limit());
    let case = format!("{} {} {} 30000000", program.display(), usage.display(), limit.display());
    let none = (Some(0), "0 workers and 0 children\n".to_owned(), String::new());
    assert_eq!(cgroup.run(&case), none);
    for _ in 0..4 {
        let run = format!("{FORKLESS} run --fork-minimum=1M --fork-always {PATIENT} -- {case}");
        assert_eq!(cgroup.run(&run), none);
    }
}

/// Another process may kill a child whose pid nobody has yet. That kill has no effect: the fork
/// returns a living child.
#[test]
fn a_speculative_child_that_is_killed_is_replaced() {
    if nothing_speculates() {
        return;
    }
    let (seen, report) = reported(&ALWAYS, &FORK_CASES, &["a_stranger_kills_the_child"]);
    assert_eq!((seen.0, seen.2.as_str()), (Some(0), ""));
    assert!(seen.1.ends_with("ended 0\nended 0\nended 0\nnothing left 1\n"), "{}", seen.1);
    assert_eq!(report.count("committed"), 0);
    assert!(report.reasons().iter().all(|r| r == "Died"), "{:?}", report.reasons());
}
