//! The command's errors: one line that names the thing, the exit code of its kind, and no panic.
//! The texts of `run` are tested with `run`, those about settings and limits in `bench_adversity`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use scratch::{Scratch, text, wait_until};

mod scratch;

const FORKLESS: &str = env!("CARGO_BIN_EXE_forkless");

/// The command in a directory without results of its own.
fn forkless(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["600", FORKLESS]).args(arguments).current_dir(&scratch.0);
    command.env("XDG_DATA_HOME", scratch.0.join("data")).env("TMPDIR", scratch.0.join("tmp"));
    command
}

/// The one line of the message. clap prints several: its first.
fn complaint(output: &Output) -> String {
    let said = text(&output.stderr);
    let mut lines = said.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    if first.starts_with("forkless: ") {
        assert_eq!(lines.next(), None, "more than one line: {said}");
    } else {
        assert!(first.starts_with("error: "), "{said}");
    }
    first
}

/// Results of one run, for the commands that compare them.
fn result(scratch: &Scratch) -> String {
    let line = ["bench", "spawn", "--quick", "--methods", "vfork_exec", "--runs", "5", "--no-save", "--json"];
    let output = forkless(scratch, &[&line[..], &["result.json"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    scratch.0.join("result.json").display().to_string()
}

#[test]
fn what_cannot_be_read_or_compared_is_usage_and_named() {
    let scratch = Scratch::new("complaints-usage");
    let result = result(&scratch);
    let method = format!("{result}#popen");
    for (arguments, said) in [
        (&["compare", "/", &result][..], "cannot read /: Is a directory"),
        (&["compare", "/etc/passwd/x", &result], "cannot read /etc/passwd/x: Not a directory"),
        (&["compare", "", &result], "an empty name is no result"),
        (&["compare", &result, "published", "--metric", "wal"], "have no metric wal in common; there are:"),
        (&["compare", &method, &result], "has no method popen; there are: vfork_exec"),
        (
            &["compare", &result, "published:macosx"],
            "(spawn) and published:macosx (syscalls) have no row in common",
        ),
        (&["compare", &result, &result, "--fail-on-regression", "nan"], "must be 0 or more"),
        (&["compare", &result, &result, "--fail-on-regression", "-1"], "must be 0 or more"),
        (&["reproduce", "--no-run", "--with", "/nonexistent"], "cannot read /nonexistent: No such file"),
        (&["reproduce", "--no-run", "--with", &result], "is not a result of forkless reproduce"),
        (&["bench", "blockwrite", "--bs", "0"], "from 1 to 4194304 bytes"),
        (&["bench", "victims", "--restarts", "2"], "--restarts is not for victims"),
        (&["bench", "selfcheck", "--slowdown", "-1"], "must be above 0"),
        (&["diagnose", "-o", "/nonexistent/x", "--", "true"], "cannot write the report to /nonexistent/x"),
    ] {
        let output = forkless(&scratch, arguments).output().unwrap();
        let line = complaint(&output);
        assert!(line.contains(said), "{arguments:?}: {line}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
    }
}

#[test]
fn what_the_machine_has_not_got_is_missing_and_named() {
    let scratch = Scratch::new("complaints-missing");
    for (arguments, said) in [
        (
            &["bench", "spawn", "--quick", "--rss", "1M", "--pages", "hugetlb-4k"][..],
            "no hugetlb-4k pages: it offers base",
        ),
        (&["bench", "blockwrite", "--targets", "file", "--size", "100000T"], "no room for a scratch file"),
        (&["bench", "spawn", "--quick", "--pin", "1000"], "cannot run on processor 1000"),
    ] {
        let output = forkless(&scratch, arguments).output().unwrap();
        let line = complaint(&output);
        assert!(line.contains(said), "{arguments:?}: {line}");
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {line}");
    }
    assert!(wait_until(|| scratch.temporary_files() == 0));
}

#[test]
fn without_a_home_no_file_around_passes_for_a_saved_result() {
    let scratch = Scratch::new("complaints-home");
    let result = result(&scratch);
    for (arguments, code) in
        [(&["history", "latest"][..], 3), (&["history", "re"], 3), (&["history", &result], 0)]
    {
        let mut command = forkless(&scratch, arguments);
        let output = command.env_remove("XDG_DATA_HOME").env_remove("HOME").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        if code == 3 {
            assert!(complaint(&output).contains("neither XDG_DATA_HOME nor HOME"), "{arguments:?}");
        }
    }
}

#[test]
fn an_empty_history_says_where_results_would_be() {
    let scratch = Scratch::new("complaints-history");
    let output = forkless(&scratch, &["history"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    assert!(complaint(&output).contains("data/forkless/bench: `forkless bench` keeps them there"));
}

/// A file that takes no byte. If there is none, prints that the test is skipped.
fn full_disk() -> Option<File> {
    let full = File::create("/dev/full").ok();
    if full.is_none() {
        println!("skipped: no /dev/full");
    }
    full
}

#[test]
fn a_full_disk_behind_standard_output_is_said_and_no_panic() {
    let Some(full) = full_disk() else { return };
    let scratch = Scratch::new("complaints-full");
    let result = result(&scratch);
    let watch = ["diagnose", "--tier", "procfs", "--json", "-o", "report.json", "--", "true"];
    assert_ne!(forkless(&scratch, &watch).output().unwrap().status.code(), Some(2));
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["bench", "spawn", "--methods", "list"],
        &["bench", "victims", "--list"],
        &["bench", "machine"],
        &["bench", "machine", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["history", &result],
        &["compare", &result, "published"],
        &["sh", "--explain", "true"],
        &["sh", "--json", "true"],
        &["repair", "--dry-run", "--pid", "self"],
        &["diagnose", "--tier", "procfs", "--", "true"],
        &["diagnose", "--tier", "procfs", "--json", "--", "true"],
        &["diagnose", "compare", "report.json", "report.json"],
    ] {
        let own = std::process::id().to_string();
        let arguments: Vec<&str> =
            arguments.iter().map(|&word| if word == "self" { &own } else { word }).collect();
        let output = forkless(&scratch, &arguments).stdout(full.try_clone().unwrap()).output().unwrap();
        let line = complaint(&output);
        assert!(line.contains("cannot write to standard output: No space left"), "{arguments:?}: {line}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {line}");
    }
}

#[test]
fn a_thread_of_the_kernel_has_no_memory_to_repair() {
    let is_thread = fs::read_to_string("/proc/2/status").is_ok_and(|status| !status.contains("VmSize"));
    if !is_thread {
        println!("skipped: process 2 is no thread of the kernel here");
        return;
    }
    let scratch = Scratch::new("complaints-kernel");
    let output = forkless(&scratch, &["repair", "--pid", "2"]).output().unwrap();
    let line = complaint(&output);
    // Another user's smaps are refused before the report speaks of its memory.
    if line.contains("Permission denied") {
        println!("skipped: needs root");
        return;
    }
    assert!(line.contains("process 2 has no memory of its own"), "{line}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn results_are_kept_and_read_whatever_bytes_their_path_has() {
    let scratch = Scratch::new("complaints-bytes");
    let result = result(&scratch);
    let data = scratch.0.join(OsStr::from_bytes(b"d\xff"));
    let kept = data.join("forkless/bench");
    fs::create_dir_all(&kept).unwrap();
    fs::copy(&result, kept.join("20261122T000000Z-spawn-0.json")).unwrap();
    let listed = forkless(&scratch, &["history"]).env("XDG_DATA_HOME", &data).output().unwrap();
    assert_eq!((listed.status.code(), text(&listed.stderr).as_str()), (Some(0), ""));
    assert!(text(&listed.stdout).starts_with("20261122T000000Z-spawn-0 "), "{}", text(&listed.stdout));
    let mut compare = forkless(&scratch, &["compare", "published"]);
    let output = compare.arg(kept.join("20261122T000000Z-spawn-0.json")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_full_disk_behind_standard_error_changes_no_exit_code() {
    let Some(full) = full_disk() else { return };
    let scratch = Scratch::new("complaints-stderr");
    // Whatever the reason for which `run` runs a program plainly, the program runs.
    for (arguments, library, code) in [
        (&["compare", "a", "b"][..], None, 2),
        (&["bench", "spawn", "--quick", "--rss", "1T"], None, 3),
        (&["run", "--", "sh", "-c", "exit 7"], Some("/nonexistent"), 7),
        (&["run", "--", "/nonexistent"], None, 127),
        (&["run", "--", ""], None, 127),
    ] {
        let mut command = forkless(&scratch, arguments);
        command.envs(library.map(|library| ("FORKLESS_LIBRARY", library)));
        let status = command.stderr(full.try_clone().unwrap()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn an_address_space_too_small_is_memory_missing() {
    let scratch = Scratch::new("complaints-limit");
    let mut command = Command::new("sh");
    let line = "ulimit -v 500000; exec \"$0\" bench spawn --quick --no-save --methods vfork_exec --rss 600M --shrink";
    let output = command.args(["-c", line, FORKLESS]).env("TMPDIR", scratch.0.join("tmp")).output().unwrap();
    let line = complaint(&output);
    assert!(line.contains("ask for less, or raise the limit"), "{line}");
    assert_eq!(output.status.code(), Some(3));
}

/// Regression: it reported each fork of another user's process as harmless, and ended with 0.
#[test]
fn without_privilege_another_users_process_is_not_watched() {
    let scratch = Scratch::new("complaints-others");
    let mut command = forkless(&scratch, &["diagnose", "--json", "--tier", "procfs", "-d", "0.1", "-p", "1"]);
    if fs::read_link("/proc/1/exe").is_ok() {
        command.uid(65534).gid(65534);
    }
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("skipped: another user may not execute {FORKLESS}");
            return;
        }
        output => output.unwrap(),
    };
    let line = complaint(&output);
    assert!(line.contains("process 1 may not be looked at"), "{line}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn without_proc_that_is_what_is_missing() {
    let bare = "umount -l /proc && exec \"$@\"";
    let may = Command::new("unshare").args(["--mount", "sh", "-c", bare, "sh", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs root and the right to mount");
        return;
    }
    let scratch = Scratch::new("complaints-proc");
    for arguments in [
        &["bench", "spawn", "--quick", "--methods", "vfork_exec"][..],
        &["bench", "spawn", "--restarts", "2", "--methods", "vfork_exec"],
        &["bench", "victims", "--filter", "system"],
        &["diagnose", "--pid", "1"],
        &["repair", "--pid", "1"],
        &["reproduce", "E4", "--quick"],
    ] {
        let mut command = Command::new("timeout");
        command.args(["600", "unshare", "--mount", "sh", "-c", bare, "sh", FORKLESS]).args(arguments);
        let output = command.env("XDG_DATA_HOME", scratch.0.join("data")).output().unwrap();
        let line = complaint(&output);
        assert!(line.contains("/proc is needed"), "{arguments:?}: {line}");
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {line}");
    }
    assert!(!Path::new(&scratch.0).join("data").exists());
}

/// Regression: `repair` asked for a newer kernel, and `diagnose` watched nothing.
#[test]
fn a_thread_is_not_taken_for_a_process() {
    let scratch = Scratch::new("complaints-thread");
    // Of the test harness: this test does not run in the first thread.
    let own = std::process::id();
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let number = thread.to_string();
    if thread == own {
        println!("skipped: the harness runs its tests in its first thread");
        return;
    }
    for way in [&["doctor"][..], &["repair", "--dry-run"], &["diagnose", "--duration", "0.1"]] {
        let arguments = [way, &["--pid", &number]].concat();
        let output = forkless(&scratch, &arguments).output().unwrap();
        let line = complaint(&output);
        assert!(line.contains(&format!("{thread} is a thread of process {own} (")), "{way:?}: {line}");
        assert_eq!(output.status.code(), Some(2), "{way:?}: {line}");
    }
}

/// Regression: `doctor -p` and `repair` took the number in one namespace and the memory in another.
#[test]
fn a_proc_of_another_pid_namespace_is_what_is_missing() {
    let scratch = Scratch::new("complaints-foreign-proc");
    // Its numbers for us are others, or we are not in it at all.
    let inside = ["--pid", "--fork", "sh", "-c", "exec \"$@\""];
    let outside = ["--mount", "sh", "-c", "unshare --pid --fork mount -t proc proc /proc && exec \"$@\""];
    for way in [&inside[..], &outside] {
        let may = Command::new("unshare").args(way).args(["sh", "true"]).output();
        if !may.is_ok_and(|output| output.status.success()) {
            println!("skipped: needs root and the right to make a pid namespace");
            return;
        }
        for arguments in [
            &["doctor", "--pid", "1"][..],
            &["repair", "--pid", "1", "--dry-run"],
            &["diagnose", "--pid", "1", "--duration", "0.1"],
            // No number in that /proc.
            &["diagnose", "--pid", "4194304", "--duration", "0.1"],
            &["diagnose", "--all", "--duration", "0.1"],
            &["diagnose", "--log", "--", "true"],
            &["diagnose", "--tier", "procfs", "--", "true"],
        ] {
            let mut command = Command::new("timeout");
            command.args(["600", "unshare"]).args(way).args(["sh", FORKLESS]).args(arguments);
            let output = command.env("XDG_DATA_HOME", scratch.0.join("data")).output().unwrap();
            let line = complaint(&output);
            let said = "/proc shows the processes of another pid namespace";
            assert!(line.contains(said), "{way:?} {arguments:?}: {line}");
            assert_eq!(output.status.code(), Some(3), "{way:?} {arguments:?}: {line}");
        }
    }
}

/// The command below a shell's limit.
fn limited(scratch: &Scratch, limit: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\""), FORKLESS]).args(arguments);
    command.current_dir(&scratch.0).env("XDG_DATA_HOME", scratch.0.join("data"));
    command.env("TMPDIR", scratch.0.join("tmp")).output().unwrap()
}

/// Regression: SIGXFSZ ended the command without a word. The table was lost, and a part of a file
/// stayed.
#[test]
fn a_limit_of_files_loses_no_table_and_leaves_no_part_of_a_file() {
    let scratch = Scratch::new("complaints-fsize");
    let line = ["bench", "spawn", "--quick", "--methods", "vfork_exec,fork_exec", "--runs", "500"];
    let saved = limited(&scratch, "-f 2", &line);
    assert!(saved.status.success(), "{}", text(&saved.stderr));
    let said = complaint(&saved);
    assert!(said.contains("results not saved: ") && said.contains("(ulimit -f)"), "{said}");
    assert!(text(&saved.stdout).contains("vfork_exec"));
    assert_eq!(fs::read_dir(scratch.0.join("data/forkless/bench")).unwrap().count(), 0);
    for old in [None, Some("what was there")] {
        let file = scratch.0.join("result.json");
        if let Some(old) = old {
            fs::write(&file, old).unwrap();
        }
        let output =
            limited(&scratch, "-f 2", &[&line[..], &["--no-save", "--json", "result.json"]].concat());
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write result.json: File too large"), "{said}");
        assert!(text(&output.stdout).contains("vfork_exec"), "the table is there all the same");
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), old);
    }
    let output = limited(
        &scratch,
        "-f 0",
        &["bench", "blockwrite", "--quick", "--no-save", "--targets", "file", "--size", "1M"],
    );
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("raise the limit of a file's size (ulimit -f)"), "{said}");
    let output = limited(&scratch, "-n 5", &line);
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("raise the limit of descriptors (ulimit -n)"), "{said}");
    assert!(wait_until(|| scratch.temporary_files() == 0));
}

/// A disk that is full has no room for a longer file, and keeps the shorter one.
#[test]
fn a_full_disk_keeps_the_file_that_was_there() {
    let scratch = Scratch::new("complaints-kept");
    let script = r#"mount -t tmpfs -o size=8k none "$1" || exit 77
echo old >"$1/kept.json"
"$0" bench spawn --quick --methods vfork_exec --runs 2000 --no-save --json "$1/kept.json" >/dev/null
echo $?
cat "$1/kept.json""#;
    let folder = scratch.0.join("small");
    fs::create_dir(&folder).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, FORKLESS]).arg(&folder);
    let output = command.env("TMPDIR", scratch.0.join("tmp")).output().unwrap();
    if output.status.code() == Some(77) || text(&output.stderr).contains("unshare") {
        println!("skipped: no mount namespace may be made here: {}", text(&output.stderr).trim());
        return;
    }
    assert_eq!(text(&output.stdout), "1\nold\n", "{}", text(&output.stderr));
    assert!(complaint(&output).contains("kept.json: No space left on device"));
}

#[test]
fn a_file_is_made_with_its_result_and_one_form_has_one_file() {
    let scratch = Scratch::new("complaints-made");
    let file = scratch.0.join("new.json");
    let line = ["bench", "spawn", "--runs", "100000000", "--no-save", "--json", "new.json"];
    let mut child = forkless(&scratch, &line);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(wait_until(|| scratch.temporary_files() > 0), "it never began");
    assert!(!file.exists());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap();
    assert!(wait_until(|| scratch.temporary_files() == 0));
    assert!(!file.exists());
    fs::write(scratch.0.join("old"), "").unwrap();
    for (json, csv) in [("a", "a"), ("a", "./a"), ("old", "old"), ("old", "./old")] {
        let output = forkless(&scratch, &["bench", "spawn", "--quick", "--json", json, "--csv", csv])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint(&output).contains("is named for two forms of the result"));
    }
    assert!(!scratch.0.join("a").exists());
}

/// Regression: `bench all` measured for seconds, and then failed because one suite had no
/// such name.
#[test]
fn a_filter_that_leaves_one_suite_nothing_leaves_it_out() {
    let scratch = Scratch::new("complaints-filter");
    let all = |filter: &str| {
        let line = ["bench", "all", "--suites", "cow,context", "--quick", "--no-save", "--runs", "5"];
        forkless(&scratch, &[&line[..], &["--json", "-", "--filter", filter]].concat()).output().unwrap()
    };
    let output = all("swap");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let suites = result["suites"].as_array().unwrap();
    assert_eq!((suites.len(), suites[0]["name"].as_str()), (1, Some("context")));
    let output = all("no-such-name");
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cow: --filter leaves no method; `forkless bench spawn --methods list`"), "{said}");
    assert!(said.contains("context: --filter leaves nothing; there are: "), "{said}");
}

#[test]
fn a_name_cannot_steer_the_terminal_or_begin_a_line() {
    let scratch = Scratch::new("complaints-names");
    let name = "no\n\u{1b}[31mfile";
    for arguments in [
        &["compare", name, "published"][..],
        &["history", name],
        &["reproduce", "--no-run", "--with", name],
        &["bench", "spawn", "--json", "/nonexistent/\n\u{1b}[31m"],
    ] {
        let output = forkless(&scratch, arguments).output().unwrap();
        let said = complaint(&output);
        assert!(said.contains("\\n\\u{1b}[31m"), "{said:?}");
    }
}
