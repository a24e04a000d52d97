//! Starting PROGRAM: exit statuses, programs that cannot be preloaded, and the environment that is
//! handed on.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use forkless_run::{Counter, EnvironmentEntries, Launcher, RecordFile, Settings};

use crate::support::{
    FORK_CASES, FORKLESS, LIBRARY, compile, compile_as, observe, plain, reported, run, wait_until,
    without_dispatch,
};

#[test]
fn the_status_is_the_programs() {
    let sh = Path::new("/bin/sh");
    assert_eq!(observe(&mut run(&[], sh, &["-c", "exit 7"])).0, Some(7));
    assert_eq!(observe(&mut run(&[], Path::new("no-such-program"), &[])).0, Some(127));
    let (status, _, text) = observe(&mut run(&[], Path::new("/etc/passwd"), &[]));
    assert_eq!(status, Some(126));
    assert!(text.contains("/etc/passwd") && text.lines().count() == 1, "{text}");
    assert_eq!(observe(&mut run(&["--no-such-option"], sh, &[])).0, Some(2));
}

#[test]
fn it_is_the_very_process() {
    let output = std::process::Command::new("sh")
        .args(["-c", "exec 9>/dev/null; \"$0\" run -- sh -c 'echo $$'; echo $!", FORKLESS])
        .output()
        .expect("starts");
    assert!(output.status.success());
    let mut child = run(&[], Path::new("/bin/sh"), &["-c", "echo $PPID"]);
    let (_, out, _) = observe(&mut child);
    // Its parent is `timeout`, which started forkless. No process stands between.
    let parent: u32 = out.trim().parse().expect("a pid");
    assert_ne!(parent, std::process::id());
}

/// Regression: libc exports `clone` and `sigaction` by a second name each, past the library.
#[test]
fn every_name_of_a_function_is_the_librarys() {
    // A child that calls these is only slower: its calls go by the signal, or a shell is started.
    const MERELY_SLOWER: [&str; 8] =
        ["_IO_fclose", "_IO_popen", "__close", "__open", "__open64", "__poll", "__select", "__setpgid"];
    let names = |file: &Path| -> Vec<(String, String)> {
        let output = std::process::Command::new("nm")
            .args(["--dynamic", "--defined-only"])
            .arg(file)
            .output()
            .expect("binutils: ./x test installs it");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("names");
        let of_line = |line: &str| {
            let mut fields = line.split_whitespace();
            let (address, name) = (fields.next()?, fields.nth(1)?);
            // What is private to libc no program is linked with.
            (!name.ends_with("GLIBC_PRIVATE"))
                .then(|| (address.to_owned(), name.split('@').next().expect("a name").to_owned()))
        };
        text.lines().filter_map(of_line).collect()
    };
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    let Some(libc) =
        maps.lines().find_map(|line| line.find('/').map(|at| &line[at..]).filter(|f| f.contains("/libc.so")))
    else {
        println!("skipped: this test is linked with a libc that is no shared object");
        return;
    };
    let libcs = names(Path::new(libc));
    let ours: Vec<String> = names(&LIBRARY).into_iter().map(|(_, name)| name).collect();
    let mut missing: Vec<&str> = libcs
        .iter()
        .filter(|(address, name)| {
            let is_ours = |other: &(String, String)| other.0 == *address && ours.contains(&other.1);
            !ours.contains(name) && libcs.iter().any(is_ours)
        })
        .map(|(_, name)| name.as_str())
        .collect();
    missing.retain(|name| !MERELY_SLOWER.contains(name));
    assert!(missing.is_empty(), "{missing:?}");
}

/// Regression: any user of the tree could cut the record of all, and its programs died of SIGBUS.
#[test]
fn a_program_of_another_user_counts_and_cannot_cut_the_record() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let line = "setpriv --reuid=65534 --clear-groups sh -c '
            record=${FORKLESS_RUN##*record=} record=${record%%,*}
            truncate --size=0 \"$record\" 2>/dev/null || echo kept
            true | true'
        sh -c 'true | true'";
    let (seen, report) = reported(&[], Path::new("/bin/sh"), &["-c", line]);
    assert_eq!(seen, (Some(0), "kept\n".into(), String::new()));
    // Those of root: the shell, setpriv, the last shell. Of nobody: the shell and truncate.
    assert!(report.count("processes") >= 5, "{:?}", report.reasons());
    // Of each user's shells, whatever shell this is.
    assert!(report.count("forks") >= 4, "{:?}", report.reasons());
}

/// Regression: with room for one of the collector's two forks, the report was empty, and the record
/// stayed.
#[test]
fn without_room_for_the_collector_nothing_runs_and_nothing_stays() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    const USER: u32 = 54321;
    let records = || {
        let all = std::fs::read_dir("/dev/shm").expect("a directory").flatten();
        all.filter(|entry| entry.metadata().is_ok_and(|about| about.uid() == USER)).count()
    };
    for (processes, expected) in [(1, 125), (2, 125), (3, 0)] {
        let limit = format!("--nproc={processes}");
        let user = format!("--reuid={USER}");
        let setpriv = [&user, "--clear-groups", "prlimit", &limit, FORKLESS, "run", "--report", "true"];
        let mut command = plain(Path::new("setpriv"), &setpriv);
        let (status, _, text) = observe(command.env("FORKLESS_LIBRARY", &*LIBRARY));
        if status == Some(126) {
            println!("skipped: user {USER} may not execute the command: {text}");
            return;
        }
        assert_eq!(status, Some(expected), "{processes}: {text}");
        if expected == 125 {
            assert_eq!(text.lines().count(), 1, "{processes}: {text}");
            assert!(text.contains("Resource temporarily unavailable"), "{text}");
        }
        assert!(wait_until(|| records() == 0), "{processes} processes");
    }
}

#[test]
fn a_static_program_runs_plainly_and_says_so() {
    let program = compile("static.c", &["-static"]);
    let (status, out, text) = observe(&mut run(&[], &program, &[]));
    assert_eq!((status, out.as_str()), (Some(0), "static\n"));
    assert!(text.contains("statically linked") && text.lines().count() == 1, "{text}");
    let (status, _, text) = observe(&mut run(&["--quiet"], &program, &[]));
    assert_eq!((status, text.as_str()), (Some(0), ""));
}

/// A sanitizer's runtime ends the program if another library comes before it, unless an option
/// permits that.
#[test]
fn a_sanitized_program_runs_with_the_library() {
    let program = compile_as("sanitized", "static.c", &["-fsanitize=address"]);
    let mut with = run(&["--report"], &program, &[]);
    with.env("ASAN_OPTIONS", "detect_leaks=0");
    let (status, out, text) = observe(&mut with);
    assert_eq!((status, out.as_str()), (Some(0), "static\n"), "{text}");
    assert!(text.contains("forks seen"), "{text}");
}

#[test]
fn children_inherit_the_library_only_when_told() {
    let script = "echo ${LD_PRELOAD:+set} ${FORKLESS_RUN:+set}; env | grep -c ^LD_PRELOAD=.*forkless_preload";
    let sh = Path::new("/bin/sh");
    assert_eq!(observe(&mut run(&[], sh, &["-c", script])).1, "set set\n1\n");
    assert_eq!(observe(&mut run(&["--children=no"], sh, &["-c", script])).1, "set\n0\n");
    let mut rest = run(&["--children=no"], sh, &["-c", "echo $FORKLESS_RUN"]);
    assert_eq!(observe(&mut rest).1, "fork=off\n", "for a library that comes by another way");
    let mut with_other = run(&["--children=no"], sh, &["-c", "echo $LD_PRELOAD"]);
    with_other.env("LD_PRELOAD", "libc.so.6");
    assert_eq!(observe(&mut with_other).1, "libc.so.6\n");
}

#[test]
fn a_dispositions_and_closed_descriptors_are_handed_on() {
    let script = "grep SigIgn /proc/self/status; ls -l /proc/self/fd | grep -c null";
    for setup in ["trap '' PIPE;", "", "exec 0<&-;"] {
        let line = |start: &str| format!("{setup} {start} sh -c \"{script}\"");
        let sh = Path::new("/bin/sh");
        let without = observe(&mut plain(sh, &["-c", &line("exec")]));
        let with_line = line(&format!("exec {FORKLESS} run --quiet --"));
        let mut with = plain(sh, &["-c", &with_line]);
        with.env("FORKLESS_LIBRARY", &*LIBRARY);
        assert_eq!(without, observe(&mut with), "{setup}");
    }
    // A shell gives its children SIGCHLD's default action.
    let ignoring = |starter: &[&str]| {
        let all = [&["--ignore-signal=CHLD"], starter, &["grep", "SigIgn", "/proc/self/status"]].concat();
        observe(plain(Path::new("/usr/bin/env"), &all).env("FORKLESS_LIBRARY", &*LIBRARY))
    };
    assert_eq!(ignoring(&[]), ignoring(&[FORKLESS, "run", "--quiet", "--"]));
}

#[test]
fn the_report_comes_when_the_program_is_killed() {
    let file = std::env::temp_dir().join(format!("forkless-killed.{}", std::process::id()));
    let to = format!("--report={}", file.display());
    let (status, ..) = observe(&mut run(&["--json", &to], Path::new("/bin/sh"), &["-c", "kill -KILL $$"]));
    assert_eq!(status, None, "killed, as `timeout` passes on");
    let mut text = String::new();
    wait_until(|| {
        text = std::fs::read_to_string(&file).unwrap_or_default();
        text.ends_with('\n')
    });
    let _ = std::fs::remove_file(&file);
    assert!(text.contains("\"processes\":"), "{text:?}");
}

#[test]
fn a_nested_run_works() {
    let (seen, report) = reported(
        &["--fork-minimum=1M"],
        Path::new(FORKLESS),
        &["run", "--fork-minimum=1M", "--", FORK_CASES.to_str().expect("UTF-8"), "redirect_and_exec"],
    );
    assert_eq!(seen, observe(&mut plain(&FORK_CASES, &["redirect_and_exec"])));
    assert_eq!(
        report.count("processes"),
        3,
        "forkless itself, the program it becomes, and the echo it executes"
    );
    assert_eq!(report.count("committed"), u64::from(!without_dispatch()), "{:?}", report.reasons());
}

/// The launcher of `forkless-run`, called by another program than the command. The caller reads the
/// child's record.
#[test]
fn a_caller_without_the_command_gets_the_same() {
    let case = "redirect_and_exec";
    let argv = vec![FORK_CASES.clone().into_os_string(), case.into()];
    let settings = Settings { minimum: 1 << 20, limit_ms: 20_000, ..Settings::default() };
    let launcher =
        Launcher::new(argv, settings, EnvironmentEntries::current()).expect("the fixture is there");
    let launcher = launcher.preloading(LIBRARY.clone());
    let mut prepared = launcher.examine().expect("dynamically linked").prepare();
    assert_eq!(prepared.warnings(), []);
    let record = RecordFile::create().expect("a record");
    prepared.count_into(&record);
    let mut command = prepared.command();
    assert_eq!(observe(command.stdin(Stdio::null())), observe(&mut plain(&FORK_CASES, &[case])));
    let report = record.report();
    assert_eq!(report.count(Counter::Processes), 2, "the program, and the echo it executes: {report:?}");
    assert_eq!(report.count(Counter::Committed), u64::from(!without_dispatch()), "{report:?}");
}

/// Until the library has read its options, forks are plain. After that they speculate.
#[test]
fn libraries_may_fork_while_they_are_loaded_and_unloaded() {
    let library = compile("constructor.c", &["-shared", "-fPIC"]).display().to_string();
    let program = format!("{} redirect_and_exec", FORK_CASES.display());
    let sh = Path::new("/bin/sh");
    // It must not be preloaded into `timeout` and the shell, whose constructors would run first.
    let without = observe(&mut plain(sh, &["-c", &format!("LD_PRELOAD={library} exec {program}")]));
    assert!(
        without.1.starts_with("executed by a constructor\nstatus 0\nworker of a constructor"),
        "{without:?}"
    );
    assert!(without.1.ends_with("executed by a destructor\nstatus 0\n"), "{without:?}");
    for order in [format!("{library}:$LD_PRELOAD"), format!("$LD_PRELOAD:{library}")] {
        let script = format!("LD_PRELOAD={order} exec {program}");
        let (with, report) = reported(&["--fork-minimum=1M", "--fork-always"], sh, &["-c", &script]);
        assert_eq!(without, with, "{order}");
        let speculated = report.count("committed") >= 1;
        assert_eq!(speculated, !without_dispatch(), "{order}: {:?}", report.reasons());
    }
}

/// The functions that programs call at their start, at a fork and at their end lie in the first ten
/// pages (layout.ld; `xtask symbols` checks their size). Each page behind them that is asked for
/// costs a fault. Whether one happens depends on where the library lies, since a fault maps up to
/// sixteen pages. So the program takes the other pages away, and is told of each that it needs.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_most_programs_call_lies_together() {
    let program = compile("near_pages.c", &["-lpthread"]);
    for options in [&[][..], &["--fork-minimum=1G"]] {
        assert_eq!(
            observe(&mut run(options, &program, &["10"])),
            (Some(0), String::new(), String::new()),
            "{options:?}"
        );
    }
    let fewer = observe(&mut run(&[], &program, &["8"]));
    assert_eq!(fewer.0, Some(0), "{fewer:?}");
    assert!(fewer.1.contains(" in fork\n"), "nothing was taken away: {fewer:?}");
}

/// The library keeps the names of call sites, since the loader takes long to find them. It must not
/// keep a name after another object was mapped at that address.
#[test]
fn call_sites_of_objects_that_replace_each_other() {
    let flags = ["-shared", "-fPIC"];
    let [first, second] =
        ["first_plugin", "second_plugin"].map(|name| compile_as(name, "replaced_plugin.c", &flags));
    let program = compile_as("loads_replaced", "replaced_plugin.c", &["-DPROGRAM", "-ldl"]);
    let plugins = [&first, &second, &first].map(|p| p.to_str().expect("a path of ours"));
    let without = observe(&mut plain(&program, &plugins));
    assert_eq!(without.1.matches("in its place").count(), 2, "{without:?}");
    let (with, report) = reported(&[], &program, &plugins);
    assert_eq!(without, with);
    let name = |path: &Path| path.file_name().expect("a file").to_string_lossy().into_owned();
    assert_eq!(report.forks_by_object(), [(name(&first), 6), (name(&second), 3)]);
}

#[test]
fn nothing_is_left_behind() {
    let before = records();
    reported(&[], Path::new("/bin/true"), &[]);
    // Records of other runs stay for as long as those runs take.
    let new: Vec<String> = records().difference(&before).cloned().collect();
    assert!(wait_until(|| new.iter().all(|n| !records().contains(n))), "a record stayed: {new:?}");
}

fn records() -> std::collections::BTreeSet<String> {
    std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.len() == 41 && n.starts_with("forkless-"))
        .collect()
}
