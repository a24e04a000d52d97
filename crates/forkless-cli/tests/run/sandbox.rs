//! Programs that forbid themselves all system calls but those that they make: one test a case of
//! `sandbox_cases.c`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal};

use crate::support::{
    FORKLESS, LIBRARY, PATIENT, allow_seconds, compile, may_make_pid_namespaces, may_mount, observe, plain,
    report_when, reported, reported_by, root_in_namespace_to, run, temporary, wait_until, without_dispatch,
};

static CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("sandbox_cases.c", &["-lpthread"]));

static REFUSES: LazyLock<PathBuf> = LazyLock::new(|| compile("refuses_a_call.c", &[]));
static PRELOADED: LazyLock<PathBuf> = LazyLock::new(|| compile("preloaded_cases.c", &["-lpthread"]));
static BLOCKS: LazyLock<PathBuf> = LazyLock::new(|| compile("blocks_sigchld.c", &[]));

const WAYS: [&[&str]; 5] = [
    &["--fork-minimum=1M"],
    &["--fork-minimum=1M", "--fork=strict"],
    &["--fork-minimum=1M", "--fork=speculate"],
    &["--fork=off"],
    &["--fork-minimum=1M", "--huge-pages=thp", "--quiet"],
];

/// The program is first the root of its run and then another program's child, with a report and
/// without.
fn same_as_plain(case: &str) {
    let without = observe(&mut plain(&CASES, &[case]));
    assert!(matches!(without.0, Some(0..=8)), "{case}: the fixture itself failed: {without:?}");
    let shell = Path::new("/bin/sh");
    let line = format!("{} {case}; exit $?", CASES.display());
    for way in WAYS {
        assert_eq!(without, observe(&mut run(way, &CASES, &[case])), "{case} {way:?}");
        let (with, report) = reported(way, &CASES, &[case]);
        assert_eq!(without, with, "{case} {way:?}, with a report");
        assert!(report.count("processes") >= 1, "{case} {way:?}");
        let (with, report) = reported(way, shell, &["-c", &line]);
        assert_eq!(without, with, "{case} {way:?}, below a shell");
        assert!(report.count("processes") >= 2, "{case} {way:?}");
    }
}

macro_rules! cases {
    ($($name:ident;)*) => {
        $(#[test] fn $name() {
            same_as_plain(stringify!($name));
        })*
    };
}

cases! {
    forbids_twice;
    returns;
    exits;
    // Regression: the library called getpid at every exit, with a report and --fork=off, too.
    exits_at_once;
    exits_unwatched;
    exits_at_once_unwatched;
    is_killed_for_a_call_more;
    strict_mode;
    // Regression: the name of the call site was looked up by a system call, and huge pages asked
    // for the size of the process.
    forks_afterwards;
    // Regression: the child unmapped memory that its parent's speculations had shared.
    forks_after_speculations;
    forks_beside_a_thread;
    // Regression: a lock that makes system calls guarded the table of marks.
    marks_and_moves_memory;
    // Regression: functions that change the user asked for the present user.
    calls_what_is_interposed_watched;
    calls_what_is_interposed_unwatched;
    // Regression: a program that is executed under a filter did not know of it. It was killed at
    // its first fork, at its first line or, with a report, while it was loaded.
    executes_under_a_filter;
}

/// All programs of a container have its filter: forks speculate, and lines do without a shell. They
/// do not where a program of the tree has installed one more filter.
#[test]
fn a_filter_from_outside_is_worked_under() {
    for (case, sandboxed) in [("beneath_with_lines", false), ("executes_under_a_filter", true)] {
        let without = observe(&mut plain(&CASES, &[case]));
        let (with, report) = reported_by(|more| {
            let inner = run(&[more, &["--fork-minimum=1M"]].concat(), &CASES, &[case]);
            let mut outer = plain(&CASES, &["--filtered"]);
            outer.arg(inner.get_program()).args(inner.get_args());
            outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
            outer
        });
        assert_eq!(without, with, "{case}");
        assert_eq!(report.count("shells_skipped"), if sandboxed { 0 } else { 3 }, "{case}");
        let speculated = if without_dispatch() || sandboxed { 0 } else { 2 };
        assert_eq!(report.count("committed"), speculated, "{case}");
        let plainly = report.reasons().iter().filter(|reason| *reason == "Sandbox").count();
        assert_eq!(plainly, if sandboxed { 9 } else { 0 }, "{case}");
    }
}

/// The report is written when the root ends, whichever process calls `exit` or `_exit` in its
/// memory or in a copy. It includes later events.
#[test]
fn the_report_is_of_the_roots_end() {
    for case in ["vforks", "copies_end", "shares_its_memory"] {
        let without = observe(&mut plain(&CASES, &[case]));
        let forks = if case == "copies_end" { 3 } else { 2 };
        let file = temporary(&format!("{case}.report.{}", std::process::id()));
        let to = format!("--report={}", file.display());
        let options = ["--json", &to, "--fork-minimum=1M", PATIENT];
        let with = observe(&mut run(&options, &CASES, &[case]));
        assert_eq!(without, with, "{case}");
        // `exit` in the root's memory runs the root's handlers, so nothing waits for the report of
        // the root's end.
        let report = report_when(|report| report.count("forks") == forks, &file, &with);
        assert_eq!(report.count("forks"), forks, "{case}");
        assert_eq!(report.count("committed"), if without_dispatch() { 0 } else { 2 }, "{case}");
    }
    // And it is written once, though nothing can be taken back.
    let seen = observe(&mut run(&["--report", "--fork-minimum=1M"], &CASES, &["vforks"]));
    assert_eq!(seen.2.matches("forkless run report").count(), 1, "{seen:?}");
}

/// Regression: a program whose end took more than a second after its announcement was taken for one
/// that lived on. There were two reports.
#[test]
fn a_slow_end_is_reported_once() {
    let library = compile("slow_end.c", &["-shared", "-fPIC"]);
    // Only into the root: its end comes after that of this library.
    let script = format!("LD_PRELOAD=$LD_PRELOAD:{} exec {} vforks", library.display(), CASES.display());
    let options = ["--report", "--fork-minimum=1M"];
    let (_, _, report) = observe(&mut run(&options, Path::new("/bin/sh"), &["-c", &script]));
    assert_eq!(report.matches("forkless run report").count(), 1, "{report}");
    assert!(report.contains("2  forks seen"), "{report}");
}

/// Regression: a late collector took the end of vfork's child, which had ended before, for the
/// root's end. There were two reports.
#[test]
fn a_collector_that_comes_late_is_not_misled() {
    let mut run = run(&["--report", "--fork-minimum=1M", PATIENT], &CASES, &["vforks_when_told"]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut timeout = run.spawn().expect("starts");
    let mut input = timeout.stdin.take().expect("a pipe");
    let mut output = BufReader::new(timeout.stdout.take().expect("a pipe"));
    // The collector has executed nothing. Its arguments are those of `forkless run`, before and
    // after the program runs.
    let own = format!("{}\0run\0", FORKLESS);
    let find_collector = || {
        let root = children_of(timeout.id()).into_iter().next()?;
        let is_program = std::fs::read_link(format!("/proc/{root}/exe")).is_ok_and(|exe| exe == *CASES);
        let all = std::fs::read_dir("/proc").ok()?.flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_it = |pid: &u32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            *pid != root && line.starts_with(&own) && line.contains("vforks_when_told")
        };
        is_program.then(|| pids.find(is_it)).flatten()
    };
    let mut collector = None;
    wait_until(|| {
        collector = find_collector();
        collector.is_some()
    });
    let collector = collector.expect("a collector starts");
    let signal = |signal| {
        let pid = Pid::from_raw(collector.cast_signed()).expect("a number");
        rustix::process::kill_process(pid, signal).expect("lives");
    };
    signal(Signal::STOP);
    input.write_all(b"\n").expect("is read");
    let mut text = String::new();
    output.read_line(&mut text).expect("a line");
    assert_eq!(text, "child reaped status 100\n");
    signal(Signal::CONT);
    // The collector sleeps between two looks.
    let first = sleeps_of(collector);
    assert!(wait_until(|| sleeps_of(collector) > first + 3), "the collector looks no more");
    input.write_all(b"\n").expect("is read");
    let rest = timeout.wait_with_output().expect("ends");
    let report = String::from_utf8_lossy(&rest.stderr);
    assert_eq!(report.matches("forkless run report").count(), 1, "{report}");
    assert!(report.contains("2  forks seen"), "{report}");
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// How often a process has gone to sleep.
fn sleeps_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Regression: two processes had the number 1, each in its own namespace. The report was written
/// when the first of them ended.
#[test]
fn a_process_of_another_namespace_does_not_end_the_report() {
    if !root_in_namespace_to("make a PID namespace", &["--pid", "--fork", "--mount-proc"], ":") {
        return;
    }
    let line = "unshare --pid --fork true; /bin/true; /bin/true; /bin/true; sleep 0.3";
    let (seen, report) = reported_by(|options| {
        let namespace = ["--pid", "--fork", "--mount-proc", FORKLESS, "run"];
        let all = [&namespace, options, &["--", "/bin/sh", "-c", line]].concat();
        let mut outer = plain("unshare".as_ref(), &all);
        outer.env("FORKLESS_LIBRARY", &*LIBRARY);
        outer
    });
    assert_eq!(seen.0, Some(0), "{seen:?}");
    // The shell, unshare, and the five programs after it.
    assert!(report.count("processes") >= 7, "{}", report.count("processes"));
}

/// The section about filters of the page for operators.
fn filters_section() -> &'static str {
    let page = include_str!("../../../../docs/guide/operate.md");
    let section = page.split("## System calls and filters").nth(1).expect("the section");
    section.split("\n## ").next().unwrap_or_default()
}

/// The calls that a paragraph of this section names, which begins with these words.
fn calls_of_paragraph(beginning: &str) -> BTreeSet<&'static str> {
    let paragraph = filters_section().split("\n\n").find(|text| text.trim_start().starts_with(beginning));
    let code = paragraph.expect("the paragraph").split('`').skip(1).step_by(2);
    code.filter(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'))
        .collect()
}

/// The page for operators and the list that `run` tries under a filter have every system call of
/// the built library. Its number stands before each `syscall` instruction, but where the library
/// makes the call of the program's child.
#[test]
#[cfg(target_arch = "x86_64")]
fn every_call_of_the_library_is_listed() {
    // These end a process, or pass on a child's brk.
    const OTHERS: [i64; 2] = [libc::SYS_exit_group, libc::SYS_brk];
    let rows = filters_section().lines().filter(|l| l.starts_with("| `"));
    let cells: String = rows.filter_map(|row| row.split('|').nth(1)).collect();
    let on_page: BTreeSet<&str> = cells.split('`').skip(1).step_by(2).collect();
    let listed: Vec<(&str, u32)> = forkless_run::library_calls().collect();
    assert_eq!(on_page, listed.iter().map(|(name, _)| *name).collect());

    let Ok(output) = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&*LIBRARY).output()
    else {
        println!("skipped: no objdump (apt-get install binutils)");
        return;
    };
    let text = String::from_utf8(output.stdout).expect("text");
    let (mut function, mut number, mut seen) = ("", None, 0);
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            (function, number) = (name, None);
            continue;
        }
        let instruction = line.split('\t').nth(1).unwrap_or_default().trim();
        if instruction != "syscall" {
            match instruction.rsplit_once(',') {
                Some((left, "%eax" | "%rax")) => {
                    let value =
                        left.split_once("mov").and_then(|(_, value)| value.trim().strip_prefix("$0x"));
                    number = value.and_then(|hex| i64::from_str_radix(hex, 16).ok());
                    number = if left.trim_end().ends_with("xor    %eax") { Some(0) } else { number };
                }
                _ if instruction.starts_with("call") => number = None,
                _ => {}
            }
            continue;
        }
        seen += 1;
        let is_listed = |nr: i64| OTHERS.contains(&nr) || listed.iter().any(|(_, n)| i64::from(*n) == nr);
        // The first six pass on a call of the program's. The last makes actions that no line has,
        // such as another root directory.
        const PASS_ON: [&str; 7] =
            ["on_sigsys", "judge", "commit", "stack4pass", "parent6resend", "kernel4pass", "9carry_out"];
        let passes_on = PASS_ON.iter().any(|name| function.contains(name));
        assert!(
            number.map_or(passes_on, |nr| passes_on || is_listed(nr)),
            "{number:?} in {function}\n{line}"
        );
        number = None;
    }
    assert!(seen > 200, "{seen}");
}

/// What a filter does that kills for one call: nothing that it would not do to the plain program.
/// systemd's filters kill, and its set of services' calls has no mincore.
#[test]
fn a_filter_that_kills_for_a_call_of_the_library_kills_nobody() {
    let refuse = &*REFUSES;
    let cases = &*PRELOADED;
    let number = |name: &str| {
        let of = forkless_run::library_calls().find(|(call, _)| *call == name);
        of.expect("a call of the library").1.to_string()
    };
    let under = |how: &str, call: &str, command: &Command| {
        let mut outer = plain(refuse, &[how, &number(call)]);
        outer.arg(command.get_program()).args(command.get_args());
        outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer
    };
    let speculates = !without_dispatch();
    // The call, what is done, and whether forks speculate and lines do without a shell.
    for (how, call, forks, lines) in [
        ("kill", "mincore", false, false),
        ("error", "mincore", true, true),
        ("kill", "process_vm_readv", false, false),
        ("kill", "setfsuid", true, false),
        ("error", "setfsuid", true, false),
    ] {
        for case in ["alone", "beside_a_thread", "lines"] {
            let without = observe(&mut under(how, call, &plain(cases, &[case])));
            assert_eq!(without.0, Some(0), "{how} {call} {case}");
            for way in WAYS {
                let quiet: &[&str] = if way.contains(&"--quiet") { &[] } else { &["--quiet"] };
                let with = run(&[way, quiet].concat(), cases, &[case]);
                let with = observe(&mut under(how, call, &with));
                assert_eq!(without, with, "{how} {call} {case} {way:?}");
            }
            let (with, report) = reported_by(|more| {
                under(
                    how,
                    call,
                    &run(&[more, &["--quiet", "--fork-minimum=1M", PATIENT]].concat(), cases, &[case]),
                )
            });
            assert_eq!(without, with, "{how} {call} {case}, with a report");
            let committed = if case != "lines" && forks && speculates { 3 } else { 0 };
            assert_eq!(report.count("committed"), committed, "{how} {call} {case}");
            let skipped = if case == "lines" && lines { 12 } else { 0 };
            assert_eq!(report.count("shells_skipped"), skipped, "{how} {call} {case}");
        }
    }
    let said = observe(&mut under("kill", "mincore", &run(&[], cases, &["alone"]))).2;
    assert!(said.contains("kills for mincore") && said.contains("SystemCallFilter=mincore"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    // Where nothing needs the calls, nobody is asked to change a unit.
    let needless = run(&["--fork=off", "--shell=off"], cases, &["alone"]);
    assert_eq!(observe(&mut under("kill", "mincore", &needless)).2, "");
    // Nested, it is said once.
    let inner: Vec<_> = run(&[], cases, &["alone"]).get_args().map(ToOwned::to_owned).collect();
    let mut nested = run(&[], Path::new("timeout"), &[]);
    nested.args(&inner);
    let said = observe(&mut under("kill", "mincore", &nested)).2;
    assert_eq!(said.matches("kills for mincore").count(), 1, "{said}");
}

/// Every call of the library, under a filter that kills for it. The calls that kill the plain
/// program are passed by.
/// Regression: a filter that kills for `prctl` had the trial begin again without end.
#[test]
fn a_filter_that_kills_for_any_call_kills_no_program_that_ends_without_run() {
    // `run` makes these itself, before the trial or for it.
    let of_the_command = calls_of_paragraph("The command itself makes");
    // Only a hang takes so long.
    allow_seconds(120);
    let refuse = &*REFUSES;
    let cases = &*PRELOADED;
    let mut compared = 0;
    for (call, number) in forkless_run::library_calls().filter(|(call, _)| !of_the_command.contains(call)) {
        let under = |command: &Command| {
            let mut outer = plain(refuse, &["kill", &number.to_string()]);
            outer.arg(command.get_program()).args(command.get_args());
            outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            outer
        };
        for case in ["alone", "beside_a_thread", "lines"] {
            let without = observe(plain(refuse, &["kill", &number.to_string()]).arg(cases).arg(case));
            if without.0 != Some(0) {
                continue;
            }
            // No `timeout` under the filter: it makes calls itself.
            let mut inner = Command::new(FORKLESS);
            // malloc's calls are the program's, and it makes them for the command's sake.
            let huge = if case == "alone" { "--huge-pages=thp" } else { "--huge-pages=off" };
            inner.args(["run", "--quiet", huge, "--fork-minimum=1M", PATIENT, "--"]).arg(cases).arg(case);
            inner.env("FORKLESS_LIBRARY", &*LIBRARY);
            assert_eq!(without, observe(&mut under(&inner)), "{call} {case}");
            compared += 1;
        }
    }
    assert!(compared > 90, "{compared}");
}

/// Every system call, under a filter that kills for it. The command is killed for those alone that
/// the page for operators names. A report is refused for its own calls, and leaves no file.
/// Regression: the command was killed for the calls of a report, with its record made, and for
/// those of the line that names the calls.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_filter_kills_the_command_for_the_calls_alone_that_the_page_names() {
    if !may_mount("mount a /dev/shm that no other test uses") {
        return;
    }
    let refuse = &*REFUSES;
    let cases = &*PRELOADED;
    let named = |beginning: &str| -> BTreeSet<i64> {
        calls_of_paragraph(beginning).into_iter().map(|name| number_of(name).expect(name)).collect()
    };
    let of_the_command = named("The command itself makes");
    let of_reports = named("With `--report`");
    let tried: BTreeSet<i64> = forkless_run::report_calls().map(|(_, nr)| nr.into()).collect();
    assert_eq!(tried, of_reports);
    // A killed collector leaves its folder for ever, and one that goes on removes it.
    let script = "mount -t tmpfs none /dev/shm || exit 99; unset PWD; \"$@\"; status=$?; tries=0; \
        while [ \"$(ls /dev/shm)\" ] && [ $tries -lt 600 ]; do sleep 0.05; tries=$((tries + 1)); done; \
        ls /dev/shm; exit $status";
    let filter =
        |number: i64| [refuse.to_str().expect("a name").to_owned(), "kill".to_owned(), number.to_string()];
    let with = |number: i64, options: &[&str]| {
        let mut outer = plain(Path::new("unshare"), &["--mount", "sh", "-c", script, "sh"]);
        outer
            .args(filter(number))
            .arg(FORKLESS)
            .arg("run")
            .args(options)
            .args(["--fork-minimum=1M", PATIENT]);
        observe(outer.arg("--").arg(cases).arg("alone").env("FORKLESS_LIBRARY", &*LIBRARY))
    };
    // `None`: the filter kills the plain program, too.
    let is_refused = |number: i64| -> Option<bool> {
        let [program, how, call] = filter(number);
        let mut alone = plain(Path::new(&program), &[&how, &call]);
        // With PWD a shell makes fewer calls.
        let without = observe(alone.arg(cases).arg("alone").env_remove("PWD"));
        if without.0 != Some(0) {
            return None;
        }
        let (mut status, mut output, mut said) = with(number, &["--report=/dev/null"]);
        let refused = status == Some(125);
        if refused {
            assert_eq!(output, "", "{number}: {said}");
            assert!(said.contains("no report can be written: a seccomp filter kills for "), "{said}");
            assert!(of_reports.contains(&number), "{number}: {said}");
            (status, output, said) = with(number, &[]);
        }
        assert_eq!((without.0, without.1), (status, output), "{number}: {said}");
        Some(refused)
    };
    let numbers: Vec<i64> =
        (0..335).chain(424..470).filter(|number| !of_the_command.contains(number)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        // Only a hang takes so long.
        allow_seconds(120);
        let mut seen = Vec::new();
        while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            seen.extend(is_refused(*number));
        }
        seen
    };
    // The programs wait most of the time.
    let seen: Vec<bool> = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(work));
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread of the test")).collect()
    });
    let refused = seen.iter().filter(|refused| **refused).count();
    let same = seen.len() - refused;
    assert!(same > 250 && refused > 10, "{same} the same, {refused} refused");
}

/// The number of a system call that the command or the library makes.
#[cfg(target_arch = "x86_64")]
fn number_of(name: &str) -> Option<i64> {
    let mut listed = forkless_run::library_calls().chain(forkless_run::report_calls());
    let others = [("poll", libc::SYS_poll), ("sched_getaffinity", libc::SYS_sched_getaffinity)];
    let listed = listed.find(|(call, _)| *call == name).map(|(_, number)| number.into());
    listed.or_else(|| others.into_iter().find(|(call, _)| *call == name).map(|(_, number)| number))
}

/// Regression: a program that blocks SIGCHLD from its start found one pending, of a process that
/// `run` had started.
#[test]
fn no_process_of_the_command_leaves_a_signal_pending() {
    let program = &*BLOCKS;
    let refuse = &*REFUSES;
    let mincore = libc::SYS_mincore.to_string();
    let outer = |command: Command, is_filtered: bool| {
        let mut outer = plain(program, &[]);
        if is_filtered {
            outer.arg(refuse).args(["kill", &mincore]);
        }
        outer.arg(FORKLESS).args(command.get_args().skip_while(|arg| *arg != "run"));
        outer.env("FORKLESS_LIBRARY", &*LIBRARY);
        outer
    };
    let expected = (Some(0), "pending: 0, forks: 3\n".to_owned(), String::new());
    for is_filtered in [false, true] {
        let with = observe(&mut outer(run(&["--quiet"], program, &[]), is_filtered));
        assert_eq!(with, expected, "filter: {is_filtered}");
        let (with, _) =
            reported_by(|more| outer(run(&[more, &["--quiet"]].concat(), program, &[]), is_filtered));
        assert_eq!(with, expected, "filter: {is_filtered}, with a report");
    }
}

/// Regression: after `unshare --pid`, a process that `run` had started was the init of the new
/// namespace, and ended it. Every fork of the program failed (ENOMEM).
#[test]
fn the_first_child_in_a_new_namespace_is_the_programs() {
    if !may_make_pid_namespaces() {
        return;
    }
    let program = &*BLOCKS;
    let refuse = &*REFUSES;
    let mincore = libc::SYS_mincore.to_string();
    let within = |options: &[&str], filter: &[&str]| {
        let mut outer = plain(Path::new("unshare"), &["--pid"]);
        outer.args(filter).arg(FORKLESS).arg("run").args(options).arg("--").arg(program);
        outer.env("FORKLESS_LIBRARY", &*LIBRARY);
        observe(&mut outer)
    };
    let filter = [refuse.to_str().expect("a name"), "kill", &mincore];
    let expected = (Some(0), "pending: 0, forks: 3\n".to_owned(), String::new());
    assert_eq!(within(&[], &[]), expected);
    let (status, output, said) = within(&[], &filter);
    assert_eq!((status, output), (expected.0, expected.1));
    assert!(said.contains("a filter could not be tried: forks"), "{said}");
    let (status, _, said) = within(&["--report=/dev/null"], &[]);
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("children get a new PID namespace"), "{said}");
}
