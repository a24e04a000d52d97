//! With `--children=no` the library asks `/bin/sh` for its traits inside the program. It asks when
//! a line first depends on them, once, and the program sees nothing of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::support::{
    FORKLESS, LIBRARY, compile, emulated, observe, plain, reported, reported_by, temporary,
};

pub(crate) static ASKING: LazyLock<PathBuf> = LazyLock::new(|| compile("ask_shell_cases.c", &["-lpthread"]));

const ONLY_IT: &[&str] = &["--children=no"];

/// The paths that are executed under `forkless run --children=no`, in order. `None` where tracing
/// is refused.
fn executed(case: &str) -> Option<Vec<String>> {
    if emulated() || Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: no strace here (apt-get install strace)");
        return None;
    }
    let log = temporary(&format!("asking.{case}.{}", std::process::id()));
    let mut command =
        plain(Path::new("strace"), &["-f", "-qq", "-e", "trace=execve", "-e", "signal=none", "-o"]);
    command.arg(&log).args([FORKLESS, "run"]).args(ONLY_IT).arg("--").arg(&*ASKING).arg(case);
    let (status, _, said) = observe(command.env("FORKLESS_LIBRARY", &*LIBRARY));
    if said.contains("Operation not permitted") {
        println!("skipped: strace may not trace here");
        return None;
    }
    assert_eq!(status, Some(0), "{said}");
    let text = std::fs::read_to_string(&log).expect("a trace");
    let _ = std::fs::remove_file(&log);
    let path = |line: &str| Some(line.split_once("execve(\"")?.1.split_once('"')?.0.to_owned());
    Some(text.lines().filter_map(path).collect())
}

#[test]
fn a_shell_is_asked_when_a_line_first_depends_on_it() {
    let (forkless, program) = (FORKLESS, ASKING.to_str().expect("UTF-8"));
    let cases = [
        ("no_line", vec![]),
        // The shells of three lines, each of which needs one.
        ("lines_for_the_shell", vec!["/bin/sh"; 3]),
        ("three_lines", vec!["/bin/sh", "/bin/cat", "/bin/true", "/bin/true", "/bin/true"]),
        ("three_streams", vec!["/bin/sh", "/bin/cat", "/bin/echo", "/bin/echo", "/bin/echo"]),
    ];
    for (case, expected) in cases {
        let Some(seen) = executed(case) else { return };
        assert_eq!(seen, [vec![forkless, program], expected].concat(), "{case}");
    }
}

/// A case prints the same with and without the library. The numbers are the lines that ran without
/// and with a shell.
#[test]
fn asking_is_not_noticed() {
    let cases = [
        ("no_line", [0, 0]),
        ("three_lines", [3, 0]),
        ("three_streams", [3, 0]),
        ("lines_for_the_shell", [0, 3]),
        ("a_thread_that_waits_for_any_child", [3, 0]),
        ("adopts_orphans", [3, 0]),
        // A line with blocked signals runs without a shell only where no shell would wait: with
        // `exec`.
        ("signals_of_its_own", [1, 1]),
        ("all_closed", [2, 0]),
        ("children_ask", [4, 0]),
        // Regression: the program itself opened files, and so the lowest number was taken for a
        // moment. A terminal became its controlling terminal.
        ("a_thread_opens_meanwhile", [200, 3]),
        ("a_daemon_and_a_terminal", [0, 1]),
        ("a_file_that_is_missing", [0, 1]),
        // Regression: a second SIGCHLD came, from the process that could not execute the script.
        ("a_script_without_interpreter", [0, 1]),
        // Regression: from the 17th stream on, children had the earlier streams, and pclose waited
        // for ever.
        ("many_streams", [40, 0]),
        // Six of the streams are libc's.
        ("too_many_streams", [64, 0]),
        ("streams_that_fail", [3, 0]),
        ("a_stream_closed_behind_its_back", [2, 0]),
        ("a_lease_of_its_own", [0, 1]),
        // The namespace's first child has to be the line's shell.
        ("the_first_child_of_a_namespace", [0, 2]),
    ];
    for (case, [skipped, kept]) in cases {
        let without = observe(&mut plain(&ASKING, &[case]));
        if case == "the_first_child_of_a_namespace" && without.0 == Some(99) {
            println!("skipped: no PID namespace may be made here");
            continue;
        }
        assert_eq!(without.0, Some(0), "{case}: {without:?}");
        let (with, report) = reported(ONLY_IT, &ASKING, &[case]);
        assert_eq!(without, with, "{case}");
        let counts = [report.count("shells_skipped"), report.count("shells_kept")];
        assert_eq!(counts, [skipped, kept], "{case}");
    }
}

/// If the library cannot ask the shell, the shell gets the lines. They then fail as they do without
/// the library.
#[test]
fn a_shell_that_cannot_be_asked_gets_the_lines() {
    for (case, lines) in [
        ("no_descriptor_left", 2),
        ("a_descriptor_left", 2),
        ("descriptors_for_itself", 2),
        ("no_process_left", 1),
        ("a_process_left", 1),
        ("two_processes_left", 1),
    ] {
        let without = observe(&mut plain(&ASKING, &[case]));
        if without.0 == Some(99) {
            println!("skipped: {case}: the user cannot be changed here");
            continue;
        }
        assert_eq!(without.0, Some(0), "{case}: {without:?}");
        let (with, report) = reported(ONLY_IT, &ASKING, &[case]);
        assert_eq!(without, with, "{case}");
        assert_eq!((report.count("shells_skipped"), report.count("shells_kept")), (0, lines), "{case}");
    }
}

/// A command in a mount namespace that has this shell as `/bin/sh`.
pub(crate) fn with_shell(shell: &Path, command: &[&str]) -> Command {
    let bind = r#"mount --bind "$0" /bin/sh && exec "$@""#;
    let mut all = plain("unshare".as_ref(), &["--mount", "--propagation=private", "sh", "-c", bind]);
    all.arg(shell).args(command).env("FORKLESS_LIBRARY", &*LIBRARY);
    // bash complains of a locale that is not there, for every line. So it gets every line.
    all.env("LC_ALL", "C");
    all
}

/// Whether a shell is a busybox that runs commands from within itself: it gets their lines.
pub(crate) fn runs_its_own_commands(shell: &Path) -> bool {
    let mut by_itself = Command::new(shell);
    by_itself.args(["sh", "-c", "cat /dev/null"]).env("PATH", "/nonexistent");
    shell.ends_with("busybox") && observe(&mut by_itself).0 != Some(127)
}

/// bash executes a lone command in its own place. busybox is asked whether it runs names by itself,
/// as Debian's does.
#[test]
fn other_shells_are_asked_too() {
    let program = ASKING.to_str().expect("UTF-8");
    for name in ["bash", "busybox"] {
        let shell = Path::new("/bin").join(name);
        let without = observe(&mut with_shell(&shell, &[program, "three_lines"]));
        if without.0 != Some(0) {
            println!("skipped: {name} cannot be made /bin/sh here: {}", without.2.trim());
            continue;
        }
        let names = if runs_its_own_commands(&shell) { 0 } else { 3 };
        for (case, skipped) in [("three_lines", 3), ("three_dispositions", 3), ("three_names", names)] {
            let without = observe(&mut with_shell(&shell, &[program, case]));
            for children in ["--children=follow", "--children=no"] {
                let (with, report) = reported_by(|options| {
                    let run = [&[FORKLESS, "run", children], options, &["--", program, case]].concat();
                    with_shell(&shell, &run)
                });
                assert_eq!(without, with, "{name} {case} {children}");
                let counts = ["shells_skipped", "shells_kept"].map(|counter| report.count(counter));
                assert_eq!(counts, [skipped, 3 - skipped], "{name} {case} {children}");
            }
        }
    }
}

/// Threads that run a line while another thread asks do not wait for the answer.
#[test]
fn threads_ask_once() {
    let case = ["threads_that_ask_together"];
    let without = observe(&mut plain(&ASKING, &case));
    let (with, report) = reported(ONLY_IT, &ASKING, &case);
    assert_eq!(without, with);
    let [skipped, kept] = ["shells_skipped", "shells_kept"].map(|name| report.count(name));
    assert_eq!(skipped + kept, 250);
    assert!(skipped > 0);
    if let Some(executed) = executed(case[0]) {
        assert_eq!(executed.iter().filter(|path| *path == "/bin/cat").count(), 1, "{executed:?}");
    }
}
