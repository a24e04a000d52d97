//! The remedies besides speculative fork: shells, contexts, time zones, huge pages.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::support::{LIBRARY, compile, observe, plain, reported, reported_by, run};

static SHELL_CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("shell_cases.c", &[]));
static CONTEXT_CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("context_cases.c", &["-lm"]));
static LOCALTIME: LazyLock<PathBuf> = LazyLock::new(|| compile("localtime.c", &[]));

/// Lines, and whether they run without a shell where the shell traits are known. Each is run by
/// system() and by popen().
const LINES: &[(&str, [bool; 2])] = &[
    ("/bin/echo hello", [true; 2]),
    // A builtin, which behaves in other ways than the program of its name.
    ("echo hello", [false; 2]),
    ("/bin/true", [true; 2]),
    ("sleep 0.01 > /dev/null", [true; 2]),
    ("LC_ALL=C ls -d /", [true; 2]),
    ("cat < /etc/hostname", [true; 2]),
    ("grep SigIgn /proc/self/status", [true; 2]),
    ("grep SigBlk /proc/self/status", [true; 2]),
    ("ls /proc/self/fd", [true; 2]),
    ("sh -c 'kill -TERM $$'", [true; 2]),
    ("sh -c 'exit 77'", [true; 2]),
    // The message about the signal belongs to the redirected stream, which popen could not deliver.
    ("sh -c 'kill -TERM $$' 2> /dev/null", [true, false]),
    ("ls /nonexistent 2>&1", [true, false]),
    ("no-such-program-here", [false; 2]),
    ("false", [false; 2]),
    ("exit 3", [false; 2]),
    ("printf '%s\\n' b a | sort", [false; 2]),
    ("echo *", [false; 2]),
    ("kill -9 $$", [false; 2]),
    // A program of that name.
    ("exec A=1 /bin/true", [false; 2]),
    // Options of the shell, unless libc ends them.
    ("-x", [false; 2]),
    ("+x", [false; 2]),
];

/// Text that differs between runs: buffers in core files, the library's own variables.
fn comparable((status, out, err): (Option<i32>, String, String)) -> (Option<i32>, String, String) {
    (status, out, err.lines().filter(|l| !l.starts_with("forkless")).map(|l| format!("{l}\n")).collect())
}

#[test]
fn lines_do_without_a_shell_what_they_do_with_it() {
    let lines: Vec<&str> = LINES.iter().map(|(line, _)| *line).collect();
    let without = comparable(observe(&mut plain(&SHELL_CASES, &lines)));
    assert_eq!(without.0, Some(0));
    // Each case also writes to `cat` through popen.
    let spared: usize = LINES.iter().map(|(_, both)| both.iter().filter(|b| **b).count() + 1).sum();
    let kept = 3 * LINES.len() - spared;
    // Either the command or the library learns the shell traits.
    for children in ["--children=follow", "--children=no"] {
        let (with, report) = reported(&[children], &SHELL_CASES, &lines);
        assert_eq!(without, comparable(with), "{children}");
        let counts = (report.count("shells_skipped"), report.count("shells_kept"));
        assert_eq!(counts, (spared as u64, kept as u64), "{children}");
    }
}

/// As in a container with Docker's filter, which cannot look into the arguments of clone3.
/// Regression: no line ran at all.
#[test]
fn lines_do_without_a_shell_where_clone3_is_refused() {
    let filter = compile("without_call.c", &[]);
    let clone3 = libc::SYS_clone3.to_string();
    let mut args = vec![clone3.as_str(), SHELL_CASES.to_str().expect("a path of ours")];
    args.extend(LINES.iter().map(|(line, _)| *line));
    let without = comparable(observe(&mut plain(&filter, &args)));
    assert_eq!(without.0, Some(0));
    for children in ["--children=follow", "--children=no"] {
        // Another program installs the filter, so that `forkless run` is under it, too.
        let (with, report) = reported_by(|more| {
            let run = run(&[more, &[children]].concat(), &SHELL_CASES, &args[2..]);
            let mut command = plain(&filter, &[&clone3]);
            command.args(run_of(&run)).env("FORKLESS_LIBRARY", &*LIBRARY);
            command
        });
        assert_eq!(without, comparable(with), "{children}");
        assert!(report.count("shells_skipped") > LINES.len() as u64, "{children}");
    }
}

/// The words of a command.
fn run_of(command: &Command) -> Vec<&OsStr> {
    std::iter::once(command.get_program()).chain(command.get_args()).collect()
}

/// glibc's fclose waits for the program of a popen stream. Regression: the program stayed as a
/// zombie. Later programs were started without the descriptor that had taken the stream's number.
#[test]
fn fclose_ends_a_stream_of_popen() {
    for line in ["ls /proc/self/fd", "sh -c 'exit 77'"] {
        let args = ["--fclose", line];
        let without = observe(&mut plain(&SHELL_CASES, &args));
        let (with, report) = reported(&[], &SHELL_CASES, &args);
        assert_eq!(without, with, "{line}");
        assert_eq!(report.count("shells_skipped"), 40, "{line}");
    }
}

/// Regression: one stream that could not be opened for want of a process left all later streams to
/// libc.
#[test]
fn a_refused_stream_leaves_the_later_ones_as_they_were() {
    let args = ["--refused", "/bin/echo hello"];
    let without = observe(&mut plain(&SHELL_CASES, &args));
    assert!(without.1.starts_with("refused: 1, "), "{without:?}");
    let (with, report) = reported(&[], &SHELL_CASES, &args);
    assert_eq!(without, with);
    assert_eq!(report.count("shells_skipped"), 3);
}

#[test]
fn shell_off_leaves_every_line_to_libc() {
    let (seen, report) = reported(&["--shell=off"], &SHELL_CASES, &["echo hello"]);
    assert_eq!(seen.0, Some(0));
    assert_eq!((report.count("shells_skipped"), report.count("shells_kept")), (0, 0));
}

#[test]
fn contexts_switch_as_before_but_for_the_mask() {
    let without = observe(&mut plain(&CONTEXT_CASES, &[]));
    let (with, report) = reported(&["--context=fast"], &CONTEXT_CASES, &[]);
    assert_eq!(without, with);
    assert!(report.count("context_switches") >= 2000);
    let (with, report) = reported(&[], &CONTEXT_CASES, &[]);
    assert_eq!(without, with);
    assert_eq!(report.count("context_switches"), 0);
}

#[test]
fn tz_is_set_only_where_it_is_unset() {
    let without = observe(plain(&LOCALTIME, &[]).env_remove("TZ"));
    assert_eq!(without, observe(run(&["--tz"], &LOCALTIME, &[]).env_remove("TZ")));
    let sh = Path::new("/bin/sh");
    let show = ["-c", "echo ${TZ-unset}"];
    let (_, set, _) = observe(run(&["--tz"], sh, &show).env_remove("TZ"));
    assert!(matches!(set.trim(), ":/etc/localtime" | "UTC0"), "{set}");
    assert_eq!(observe(run(&["--tz"], sh, &show).env("TZ", "Asia/Tokyo")).1, "Asia/Tokyo\n");
    assert_eq!(observe(run(&[], sh, &show).env_remove("TZ")).1, "unset\n");
}

#[test]
fn thp_settings_join_those_that_are_there() {
    let sh = Path::new("/bin/sh");
    let show = ["-c", "echo $GLIBC_TUNABLES; echo $MALLOC_CONF"];
    let mut command = run(&["--huge-pages=thp", "--quiet"], sh, &show);
    command.env("GLIBC_TUNABLES", "glibc.malloc.check=0").env("MALLOC_CONF", "narenas:1");
    let (_, out, _) = observe(&mut command);
    let mut lines = out.lines();
    let tunables = lines.next().unwrap_or_default();
    assert!(tunables.starts_with("glibc.malloc.check=0:glibc.malloc.hugetlb=1"), "{out}");
    assert_eq!(lines.next(), Some("narenas:1,thp:always"));
}
