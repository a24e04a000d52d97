//! `forkless try`: what it says of commands that gain, that do not, that fail, that behave
//! differently, and that leave something behind. No test asserts a time.

#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use scratch::{Scratch, text, wait_until};
use serde_json::Value;

#[path = "library/mod.rs"]
mod library;
mod scratch;

/// A command that forks a process of 64 MB five times, if Perl is here. Its `system` forks.
const FORKS: [&str; 3] = [
    "perl",
    "-e",
    "my $memory = 'x' x 64_000_000; system('/bin/true') for 1 .. 5; system '/bin/true'; exit 0",
];

/// The command under test. Errors of a hang are seen: `timeout` ends it after ten minutes.
fn command(scratch: &Scratch) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "600", env!("CARGO_BIN_EXE_forkless"), "try"]);
    command.env("FORKLESS_LIBRARY", &*library::LIBRARY).env("TMPDIR", scratch.0.join("tmp"));
    command.env_remove("FORKLESS").stdin(Stdio::null());
    command
}

/// Tries a command with flags, and asserts that nothing is left behind.
fn tried<S: AsRef<OsStr>>(flags: &[&str], line: &[S]) -> Output {
    let scratch = Scratch::new("try");
    let output = command(&scratch).args(flags).arg("--").args(line).output().unwrap();
    assert_eq!(scratch.temporary_files(), 0, "{output:?}");
    output
}

fn said(output: &Output) -> String {
    assert_eq!(text(&output.stderr), "", "{output:?}");
    let said = text(&output.stdout);
    if said.starts_with('<') {
        return said;
    }
    // But for the command lines, which are to be copied.
    let mut sentences = said.lines().skip(1).filter(|line| !line.contains("forkless run "));
    assert!(sentences.all(|line| line.chars().count() <= 100), "{said}");
    said.replace("\n  ", " ")
}

/// The one line on standard error, where there is nothing on standard output.
fn error(output: &Output) -> String {
    let line = text(&output.stderr);
    assert!(output.stdout.is_empty() && line.lines().count() == 1, "{output:?}");
    assert!(line.starts_with("forkless: "), "{line}");
    line
}

fn json<S: AsRef<OsStr>>(flags: &[&str], line: &[S]) -> (Value, Option<i32>) {
    let output = tried(&[&["--json", "-"], flags].concat(), line);
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (value, output.status.code())
}

/// What a user reads last: the command line that has what was tried.
fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default().trim()
}

fn has_perl() -> bool {
    let found = Command::new("perl").arg("-v").output().is_ok();
    if !found {
        println!("skipped: there is no perl");
    }
    found
}

/// Whether forks are speculated on this machine.
fn speculates() -> bool {
    let speculates = forkless_run::SPECULATES && forkless_run::user_dispatch().is_ok();
    if !speculates {
        println!("skipped: forks are not speculated here");
    }
    speculates
}

fn script(scratch: &Scratch, name: &str, lines: &str) -> String {
    let path = scratch.0.join(name);
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn forks_that_commit_are_the_evidence_and_the_result_has_its_schema() {
    if !has_perl() || !speculates() {
        return;
    }
    let (value, code) = json(&["--runs", "7", "--fork-minimum", "1M", "--fork-limit", "10000"], &FORKS);
    assert!(matches!(code, Some(0 | 1)), "{value}");
    let validator = jsonschema::validator_for(&schema("try.schema.json")).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{}", errors.join("; "));
    let shared = |name: &str, place: &str| schema(name).pointer(place).cloned();
    for place in ["/properties/machine", "/$defs/row", "/$defs/interval"] {
        assert_eq!(shared("try.schema.json", place), shared("bench.schema.json", place), "{place}");
    }
    assert_eq!(value["verdict"]["work"], "done", "{value}");
    let counters = &value["report"]["counters"];
    // Seven runs of six forks; the warm-up's are not counted.
    assert_eq!(counters["forks"], 42, "{counters}");
    assert_eq!(counters["committed"], 42, "{counters}");
    assert_eq!(value["rounds"], 7);
    let rows = value["rows"].as_array().unwrap();
    for method in ["plain", "run"] {
        for metric in ["wall", "cpu_total", "memory"] {
            let row = rows.iter().find(|row| row["method"] == method && row["metric"] == metric);
            let row = row.unwrap_or_else(|| panic!("no {metric} of {method}"));
            assert_eq!(row["samples"].as_array().unwrap().len(), 7, "{row}");
        }
    }
    let ends = serde_json::json!([{ "exit_status": 0, "runs": 8 }]);
    assert_eq!((&value["ends"]["plain"], &value["ends"]["run"]), (&ends, &ends));
    let under_run = value["under_run"].as_str().unwrap();
    assert!(
        under_run.starts_with("forkless run --fork-minimum=1048576 --fork-limit=10000 -- perl -e '"),
        "{under_run}"
    );
}

#[test]
fn a_command_without_forks_gives_run_nothing_to_do() {
    let output = tried(&["--runs", "6"], &["/bin/true"]);
    let said = said(&output);
    assert!(
        said.contains("run has nothing to do here: no fork, and no shell that could be skipped"),
        "{said}"
    );
    assert!(said.contains("6 rounds, each of a plain run and one under run"), "{said}");
    // Regression: the last line was the command under `run`, which has nothing to do.
    assert!(!said.contains("forkless run -- /bin/true"), "{said}");
}

/// Regression: getcontext alone took less time, and "run did nothing that explains it".
#[test]
fn what_run_does_not_count_is_told_from_nothing() {
    let (value, _) = json(&["--runs", "6", "--context=fast"], &["/bin/true"]);
    assert_eq!(value["report"]["counters"]["context_switches"], 0, "{value}");
    assert_eq!(value["verdict"]["work"], "uncounted", "{value}");
    let sentence = value["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("does not count: huge pages, TZ, or getcontext"), "{sentence}");
}

#[test]
fn forks_of_small_processes_are_told_from_no_forks() {
    if !speculates() {
        return;
    }
    let (value, _) = json(&["--runs", "6"], &["sh", "-c", "/bin/true; /bin/true"]);
    // dash uses vfork for simple commands, where it is built so.
    if value["report"]["counters"]["forks"] == 0 {
        println!("skipped: this shell does not fork for a simple command");
        return;
    }
    assert_eq!(value["verdict"]["work"], "only_small", "{value}");
    let sentence = value["verdict"]["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("no fork of a process above the minimum of 8.00 MiB (2 below it)"),
        "{sentence}"
    );
}

#[test]
fn fewer_rounds_than_an_interval_takes_decide_nothing() {
    let output = tried(&["--runs", "2"], &["true"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(said(&output).contains("too few rounds for a verdict"), "{output:?}");
}

#[test]
fn without_a_number_of_rounds_there_are_as_many_as_an_interval_takes() {
    let (value, _) = json(&["--time", "0.001"], &["true"]);
    assert_eq!(value["rounds"], 6, "{value}");
}

#[test]
fn what_cannot_be_executed_has_the_codes_of_a_shell() {
    let missing = tried(&[], &["/nonexistent/program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(error(&missing).contains("cannot run /nonexistent/program"), "{missing:?}");
    let scratch = Scratch::new("try-codes");
    let file = scratch.0.join("text");
    fs::write(&file, "no program").unwrap();
    assert_eq!(tried(&[], &[&file]).status.code(), Some(126));
    // Executable, and nothing that the kernel knows.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let unknown = tried(&[], &[&file]);
    assert_eq!(unknown.status.code(), Some(126));
    error(&unknown);
    assert_eq!(tried(&["--runs", "0"], &["true"]).status.code(), Some(2));
    let none = command(&scratch).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn a_command_that_fails_plainly_is_named_and_can_be_tried_all_the_same() {
    let failing = ["sh", "-c", "exit 3"];
    let output = tried(&[], &failing);
    assert_eq!(output.status.code(), Some(125));
    let line = error(&output);
    assert!(
        line.contains("ended with exit status 3 by itself") && line.contains("--ignore-failure"),
        "{line}"
    );
    let (value, code) = json(&["--ignore-failure", "--runs", "6"], &failing);
    assert!(matches!(code, Some(0 | 1)), "{value}");
    assert_eq!(value["verdict"]["differs"], false);
    assert_eq!(value["ends"]["run"], serde_json::json!([{ "exit_status": 3, "runs": 7 }]));
    let killed = tried(&[], &["sh", "-c", "kill -9 $$"]);
    assert!(error(&killed).contains("ended with signal 9 by itself"), "{killed:?}");
}

#[test]
fn an_end_that_no_plain_run_had_is_a_finding() {
    let line = ["sh", "-c", "test -z \"$FORKLESS_RUN\" || exit 7"];
    let output = tried(&["--runs", "6"], &line);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    let expected = "behaves differently: under run it ended with exit status 7 in 7 (of 7 runs); plain runs with exit status 0 in 7";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn standard_output_is_compared_byte_for_byte() {
    let line = |text: &str| ["sh".to_owned(), "-c".to_owned(), text.to_owned()];
    let compared = |text: &str| {
        let (value, code) = json(&["--same-output", "--runs", "6"], &line(text));
        (value["output"].clone(), value["verdict"]["differs"] == true, code)
    };
    let (output, differs, code) = compared("printf 'one\\0two\\n'");
    assert_eq!(output, serde_json::json!({ "outcome": "same", "bytes": 8 }));
    assert!(!differs && matches!(code, Some(0 | 1)));
    let (output, differs, code) = compared("echo one; echo ${FORKLESS_RUN:+two}");
    let expected = serde_json::json!({ "outcome": "differs", "line": 2, "expected": "", "found": "two" });
    assert_eq!((output, differs, code), (expected, true, Some(1)));
    let (output, differs, _) = compared("echo $$");
    assert_eq!((&output["outcome"], differs), (&"plain_varies".into(), false));
}

#[test]
fn each_run_is_prepared_and_reads_its_input_from_the_beginning() {
    let scratch = Scratch::new("try-prepare");
    let path = |name: &str| scratch.0.join(name).display().to_string();
    fs::write(path("input"), "a line\n").unwrap();
    let prepare = format!("echo x >> {}; touch {}", path("prepared"), path("fresh"));
    let line = format!("read -r text && test \"$text\" = 'a line' && rm {}", path("fresh"));
    let input = path("input");
    let flags = ["--prepare", &prepare, "--input", &input, "--runs", "6"];
    let output = tried(&flags, &["sh", "-c", &line]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    said(&output);
    // The warm-up's two, and two a round.
    assert_eq!(fs::read_to_string(path("prepared")).unwrap().lines().count(), 14);
    let output = tried(&["--prepare", "exit 4"], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(error(&output).contains("--prepare 'exit 4': ended with exit status 4"), "{output:?}");
    for bad in ["/nonexistent/input", "/"] {
        let output = tried(&["--input", bad], &["true"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(error(&output).contains("--input: "), "{output:?}");
    }
}

#[test]
fn input_is_empty_and_output_goes_nowhere_unless_asked_for() {
    let line = ["sh", "-c", "cat; echo spoken; echo complained >&2"];
    let quiet = tried(&["--runs", "1"], &line);
    let said = said(&quiet);
    assert!(!said.contains("spoken\n"), "{said}");
    let shown = tried(&["--runs", "1", "--show-output"], &line);
    // Two runs warm up, and two are counted.
    assert_eq!(text(&shown.stdout).matches("spoken\n").count(), 4, "{shown:?}");
    assert_eq!(text(&shown.stderr), "complained\n".repeat(4));
}

/// Regression: the file was empty from the start of a trial on, also of one without a result.
#[test]
fn an_earlier_result_stays_until_there_is_another() {
    let scratch = Scratch::new("try-earlier");
    let file = scratch.0.join("result");
    fs::write(&file, "longer than nothing").unwrap();
    let name = file.to_string_lossy();
    tried(&["--json", &name], &["/nonexistent"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "longer than nothing");
    tried(&["--runs", "1", "--json", &name], &["/bin/true"]);
    let result: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(result["command"][0], "/bin/true");
}

/// Regression: the command blocked SIGHUP, SIGINT, SIGTERM and SIGCHLD, as `try` does. Its children
/// could not be ended, and `run` left each of its lines to a shell.
#[test]
fn the_command_blocks_and_ignores_no_signal_that_its_user_does_not() {
    let line = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let plainly = Command::new(line[0]).args(&line[1..]).output().unwrap();
    let output = tried(&["--runs", "2", "--show-output"], &line);
    // Of `run`'s program, glibc's posix_spawn ignored the two signals of libc itself: `try` starts
    // it. They are ignored in `plainly` as well.
    let each = text(&plainly.stdout);
    let said = said(&output);
    assert!(
        said.starts_with(&each.repeat(6)) && said.matches("SigBlk:").count() == 6,
        "three rounds: {said}"
    );
}

/// Regression: the command had SIGPIPE's default action where its user has it ignored, as a systemd
/// unit does. SIGCHLD is at its default in the trial alone.
#[test]
fn the_command_ignores_the_signals_of_the_trial_where_its_user_does() {
    let scratch = Scratch::new("try-sigpipe");
    let mut trial = Command::new("env");
    trial.args(["--ignore-signal=PIPE,CHLD", env!("CARGO_BIN_EXE_forkless"), "try"]).stdin(Stdio::null());
    trial.env("FORKLESS_LIBRARY", &*library::LIBRARY).env("TMPDIR", scratch.0.join("tmp"));
    trial.args(["--runs", "1", "--prepare", "grep SigIgn /proc/self/status", "--show-output", "--"]);
    let said = said(&trial.args(["grep", "SigIgn", "/proc/self/status"]).output().unwrap());
    let sets: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("SigIgn:\t")).collect();
    assert_eq!(sets.len(), 8, "two rounds, each run prepared: {said}");
    let ignoring = |signal: i32| {
        let has = |set: &&&str| u64::from_str_radix(set, 16).unwrap() & 1 << (signal - 1) != 0;
        sets.iter().filter(has).count()
    };
    // The shell of a preparation gives its children SIGCHLD's default action.
    assert_eq!((ignoring(libc::SIGPIPE), ignoring(libc::SIGCHLD)), (8, 4), "{said}");
}

#[test]
fn what_is_compared_lies_in_the_temporary_directory_alone() {
    let scratch = Scratch::new("try-temporary");
    let mut trial = command(&scratch);
    trial.env("TMPDIR", "/nonexistent").current_dir(&scratch.0);
    let output = trial.args(["--runs", "1", "--same-output", "--", "true"]).output().unwrap();
    // Of the machine, and not of the command: 125 is a command that fails.
    assert_eq!(output.status.code(), Some(3));
    assert!(error(&output).contains("create a directory in /nonexistent"), "{output:?}");
}

#[test]
fn the_page_shows_verdict_table_and_plots_and_escapes_the_command() {
    let output = tried(&["--runs", "6", "--html", "-"], &["echo", "<script>alert(1)</script>"]);
    let page = said(&output);
    assert!(page.contains("run has nothing to do here") && page.contains("<svg"), "{page}");
    assert!(page.contains("wall time") && page.contains("plain / run"), "{page}");
    assert!(!page.contains("<script>alert"), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
}

#[test]
fn results_go_to_files_and_one_form_to_standard_output() {
    let scratch = Scratch::new("try-files");
    let (json, html) = (scratch.0.join("try.json"), scratch.0.join("try.html"));
    let flags = ["--runs", "1", "--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let output = tried(&flags, &["true"]);
    assert_eq!(last_line(&said(&output)), "forkless run -- true");
    let value: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(value["schema"], "forkless.try/1");
    assert!(fs::read_to_string(html).unwrap().starts_with("<!doctype html>"));
    assert_eq!(tried(&["--json", "-", "--html", "-"], &["true"]).status.code(), Some(2));
    assert_eq!(tried(&["--json", "-", "--show-output"], &["true"]).status.code(), Some(2));
    let unwritable = tried(&["--json", "/nonexistent/file"], &["true"]);
    assert_eq!(unwritable.status.code(), Some(2));
    error(&unwritable);
}

#[test]
fn odd_names_come_out_as_a_shell_reads_them() {
    let words = [OsStr::new("printf"), OsStr::new("a b"), OsStr::from_bytes(b"\xff\n\x1b[2J")];
    let output = tried(&["--runs", "1"], &words);
    let said = said(&output);
    assert_eq!(last_line(&said), r"forkless run -- printf 'a b' $'\xff\n\x1b[2J'");
    let (value, _) = json(&["--runs", "1"], &words);
    assert_eq!(value["command"][2], "\u{fffd}\n\u{1b}[2J");
}

#[test]
fn a_library_that_is_switched_off_or_missing_is_a_missing_facility() {
    let scratch = Scratch::new("try-missing");
    let output = command(&scratch).env("FORKLESS", "off").args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(error(&output).contains("FORKLESS is off in the environment"), "{output:?}");
    let output =
        command(&scratch).env("FORKLESS_LIBRARY", "/nonexistent").args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(error(&output).contains("FORKLESS_LIBRARY names no file"), "{output:?}");
}

#[test]
fn a_program_that_no_library_can_be_in_is_not_run() {
    let scratch = Scratch::new("try-static");
    let source = scratch.0.join("static.c");
    let program = scratch.0.join("static");
    fs::write(&source, "int main(void) { return 9; }\n").unwrap();
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        println!("skipped: no static program can be built here");
        return;
    }
    let output = tried(&[], &[&program]);
    assert_eq!(output.status.code(), Some(0));
    let said = said(&output);
    assert!(said.contains("run has nothing to do here: it is statically linked"), "{said}");
    let (value, _) = json(&[], &[&program]);
    assert!(value["verdict"]["unloadable"].is_string() && value["rows"] == serde_json::json!([]), "{value}");
}

#[test]
fn plain_runs_are_plain_inside_of_a_run() {
    let scratch = Scratch::new("try-nested");
    // Under `run`, the trial itself has the library.
    let mut outer = Command::new("timeout");
    outer.args(["--foreground", "600", env!("CARGO_BIN_EXE_forkless"), "run", "--quiet", "--"]);
    outer.args([env!("CARGO_BIN_EXE_forkless"), "try", "--runs", "1", "--json", "-", "--"]);
    outer.args(["sh", "-c", "case $LD_PRELOAD in *forkless*) exit 5;; esac"]);
    outer.env("FORKLESS_LIBRARY", &*library::LIBRARY).env("TMPDIR", scratch.0.join("tmp"));
    let output = outer.stdin(Stdio::null()).output().unwrap();
    let value: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(value["ends"]["plain"], serde_json::json!([{ "exit_status": 0, "runs": 2 }]));
    assert_eq!(value["ends"]["run"], serde_json::json!([{ "exit_status": 5, "runs": 2 }]));
}

/// A script that writes its number, and that of what it leaves running, into files.
fn lingering(scratch: &Scratch, waits: &str) -> String {
    let folder = scratch.0.display();
    script(
        scratch,
        "lingering",
        &format!("sleep 3000 & echo $! >> {folder}/left\necho $$ >> {folder}/own\n{waits}"),
    )
}

fn numbers(scratch: &Scratch, name: &str) -> Vec<String> {
    let text = fs::read_to_string(scratch.0.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_running(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

#[test]
fn what_the_command_leaves_running_is_ended_after_each_run_and_named() {
    let scratch = Scratch::new("try-left");
    let program = lingering(&scratch, "");
    let output = command(&scratch).args(["--runs", "1", "--", &program]).output().unwrap();
    let said = said(&output);
    assert!(said.contains("left running were ended after each run: sleep"), "{said}");
    let left = numbers(&scratch, "left");
    assert_eq!(left.len(), 4);
    assert!(!left.iter().any(|pid| is_running(pid)), "{left:?}");
}

/// Starts a trial in a process group of its own, and waits until its second round runs.
fn under_way(scratch: &Scratch) -> Child {
    // The warm-up's two runs and a round's end at once.
    let folder = scratch.0.display();
    let program = lingering(scratch, &format!("test $(wc -l < {folder}/own) -lt 5 || exec sleep 3000"));
    let mut trial = command(scratch);
    trial
        .args(["--runs", "100", "--", &program])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let child = trial.spawn().unwrap();
    assert!(wait_until(|| numbers(scratch, "own").len() >= 5), "the second round did not begin");
    child
}

#[test]
fn an_interrupted_trial_reports_its_whole_rounds_and_leaves_nothing() {
    for signal in ["INT", "TERM"] {
        let scratch = Scratch::new("try-interrupted");
        let child = under_way(&scratch);
        // As the terminal sends it: to the whole group.
        let group = format!("-{}", child.id());
        let sent = Command::new("kill").args(["-s", signal, "--", &group]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stdout);
        assert!(said.contains("interrupted after 1 round"), "SIG{signal}: {output:?}");
        assert!(said.contains("too few rounds for a verdict"), "SIG{signal}: {said}");
        for pid in [numbers(&scratch, "own"), numbers(&scratch, "left")].concat() {
            assert!(wait_until(|| !is_running(&pid)), "SIG{signal}: {pid} is left");
        }
        assert!(wait_until(|| scratch.temporary_files() == 0));
    }
}

/// Regression: SIGQUIT ended `try` alone, without a report, and the command ran on.
#[test]
fn a_signal_to_the_trial_alone_ends_the_command_too() {
    for signal in ["QUIT", "HUP"] {
        let scratch = Scratch::new("try-alone");
        let child = under_way(&scratch);
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stdout);
        assert!(said.contains("interrupted after 1 round"), "SIG{signal}: {output:?}");
        for pid in [numbers(&scratch, "own"), numbers(&scratch, "left")].concat() {
            assert!(wait_until(|| !is_running(&pid)), "SIG{signal}: {pid} is left");
        }
    }
}

/// Regression: the time of the stop was the run's.
#[test]
fn a_run_during_which_the_trial_was_stopped_is_made_again() {
    let scratch = Scratch::new("try-stopped");
    let folder = scratch.0.display();
    // The fifth run, of the second round, lasts until the trial is stopped.
    let waits = format!("while [ ! -e {folder}/go ]; do sleep 0.01; done");
    let line = format!("echo $$ >> {folder}/own\ntest $(wc -l < {folder}/own) -ne 5 || {waits}");
    let program = script(&scratch, "stopped", &line);
    let mut trial = command(&scratch);
    trial.args(["--runs", "2", "--", &program]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = trial.spawn().unwrap();
    assert!(wait_until(|| numbers(&scratch, "own").len() == 5), "the fifth run did not begin");
    let trial = parent_of(&numbers(&scratch, "own")[4]).unwrap();
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &trial]).status().unwrap();
        assert!(sent.success());
    };
    signal("STOP");
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{trial}/stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    // A SIGCONT before that takes the SIGSTOP back.
    assert!(wait_until(is_stopped), "SIGSTOP");
    fs::write(scratch.0.join("go"), "").unwrap();
    signal("CONT");
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("a run was made again: this process was stopped meanwhile"), "{output:?}");
    assert_eq!(numbers(&scratch, "own").len(), 7, "a warm-up, two rounds and the run again: {said}");
}

#[test]
fn a_trial_interrupted_before_a_round_has_measured_nothing() {
    let scratch = Scratch::new("try-at-once");
    let program = lingering(&scratch, "trap '' INT TERM; while :; do sleep 0.1; done");
    let mut trial = command(&scratch);
    trial.args(["--", &program]).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = trial.spawn().unwrap();
    assert!(wait_until(|| !numbers(&scratch, "own").is_empty()));
    // A command that does not end by SIGINT is killed.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-s", "INT", "--", &group]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(error(&output).contains("no round was finished"), "{output:?}");
    for pid in [numbers(&scratch, "own"), numbers(&scratch, "left")].concat() {
        assert!(wait_until(|| !is_running(&pid)), "{pid} is left");
    }
}

#[test]
fn a_trial_that_is_killed_leaves_no_record() {
    let scratch = Scratch::new("try-killed");
    let records = || {
        let all = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        all.filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // The directory is named after the process that made it.
            let maker = name
                .strip_prefix("forkless-bench-")
                .and_then(|rest| rest.split('-').next().map(str::to_owned));
            maker.is_some_and(|pid| {
                numbers(&scratch, "own").iter().any(|own| parent_of(own) == Some(pid.clone()))
            })
        })
        .map(|entry| entry.path())
        .collect::<Vec<_>>()
    };
    let mut child = under_way(&scratch);
    let found = records();
    if found.is_empty() {
        println!("skipped: records are not in /dev/shm here");
    }
    let own = numbers(&scratch, "own").pop().unwrap();
    let trial = parent_of(&own).unwrap();
    assert!(Command::new("kill").args(["-s", "KILL", &trial]).status().unwrap().success());
    child.wait().unwrap();
    for record in found {
        assert!(wait_until(|| !record.exists()), "{} is left", record.display());
    }
    // Nobody else is to end the command now.
    for pid in [numbers(&scratch, "own"), numbers(&scratch, "left")].concat() {
        let _ = Command::new("kill").args(["-s", "KILL", &pid]).stderr(Stdio::null()).status();
    }
}

fn parent_of(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1).map(str::to_owned)
}

#[test]
fn a_user_without_privileges_tries_what_is_his() {
    let scratch = Scratch::new("try-nobody");
    for directory in [scratch.0.clone(), scratch.0.join("tmp")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    // Neither the build's directory nor the library there need be open to others.
    let forkless = scratch.0.join("forkless");
    fs::copy(env!("CARGO_BIN_EXE_forkless"), &forkless).unwrap();
    let library = scratch.0.join(forkless_run::LIBRARY_NAME);
    fs::copy(&*library::LIBRARY, &library).unwrap();
    fs::set_permissions(&library, fs::Permissions::from_mode(0o644)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "timeout", "--foreground", "600"])
        .arg(&forkless)
        .args(["try", "--runs", "6", "--same-output", "--", "sh", "-c", "id -u"])
        .env("TMPDIR", scratch.0.join("tmp"))
        .env_remove("FORKLESS_LIBRARY")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = said(&output);
    assert!(said.contains("standard output is the same: 6 bytes each time"), "{said}");
    assert_eq!(scratch.temporary_files(), 0);
}

/// Regression: the command was said to have failed by itself.
#[test]
fn output_without_room_is_not_the_commands_failure() {
    let scratch = Scratch::new("try-room");
    let line = ["--runs", "2", "--same-output", "--", "seq", "1", "10000"];
    let within = |setup: &str| {
        let mut limited = Command::new("sh");
        let plain = command(&scratch);
        limited.args(["-euc", &format!("{setup}; exec \"$@\""), "sh"]).arg(plain.get_program());
        limited.args(plain.get_args()).args(line);
        limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        limited.stdin(Stdio::null()).output().unwrap()
    };
    let output = within("ulimit -f 4");
    let said = error(&output);
    assert!(said.contains("no room for the command's output") && said.contains("ulimit -f"), "{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(scratch.temporary_files(), 0);

    let may_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        println!("skipped: a full directory: needs root and the right to mount");
        return;
    }
    let mount = "mount -t tmpfs -o size=16k none \"$TMPDIR\"";
    let output = within(&format!("exec unshare --mount sh -euc '{mount}; exec \"$@\"' sh \"$@\""));
    let said = error(&output);
    assert!(said.contains("No space left on device") && said.contains("by TMPDIR"), "{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
}

#[test]
fn a_directory_for_temporary_files_that_is_none_is_named() {
    for bad in ["/nonexistent", "/proc/version"] {
        let scratch = Scratch::new("try-tmpdir");
        let mut command = command(&scratch);
        let output = command.env("TMPDIR", bad).args(["--same-output", "--", "true"]).output().unwrap();
        let said = error(&output);
        assert!(said.contains(bad) && said.contains("by TMPDIR"), "{said}");
        assert_eq!(output.status.code(), Some(3), "{said}");
    }
}
