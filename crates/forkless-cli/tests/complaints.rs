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

/// The one line of the message.
fn complaint(output: &Output) -> String {
    let said = text(&output.stderr);
    let mut lines = said.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    assert!(first.starts_with("forkless: "), "{said}");
    assert_eq!(lines.next(), None, "more than one line: {said}");
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
        (&["bench", "blockwrite", "--size", "0"], "leaves nothing to write"),
        (&["reproduce", "E1", "--memory", "1G"], "--memory is for E6"),
    ] {
        let output = forkless(&scratch, arguments).output().unwrap();
        let line = complaint(&output);
        assert!(line.contains(said), "{arguments:?}: {line}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
    }
}

/// Regression: some were measured after all, some took minutes, and two sums overflowed.
#[test]
fn an_absurd_size_time_or_count_is_usage() {
    let scratch = Scratch::new("complaints-absurd");
    const MOST: &str = "18446744073709551615";
    for (arguments, said) in [
        (&["reproduce", "E6", "--memory", "100T"][..], "more than 64T"),
        (&["reproduce", "E6", "--memory", "0"], "less than 16M"),
        (&["bench", "spawn", "--rss", "100T"], "more than 64T"),
        (&["bench", "spawn", "--rss", MOST, "--shrink"], "more than 64T"),
        (&["bench", "spawn", "--fds", MOST], "4294967295"),
        (&["bench", "spawn", "--time", "1e18"], "0 to 1e9"),
        (&["bench", "spawn", "--time", "nan"], "0 to 1e9"),
        (&["bench", "spawn", "--time", "-1"], "0 to 1e9"),
        (&["bench", "spawn", "--runs", "0"], "1..=4294967295"),
        (&["bench", "memory", "--sizes", "0,100T"], "more than 64T"),
        (&["bench", "cow", "--count", MOST], "17179869184"),
        (&["bench", "blockwrite", "--size", "100000T"], "more than 64T"),
        (&["bench", "blockwrite", "--bs", "100T"], "more than 64T"),
        (&["bench", "victims", "--rss", "100T"], "more than 64T"),
        (&["bench", "selfcheck", "--comparisons", "4294967295"], "1..=1000000"),
        (&["try", "--time", "1e10", "--", "true"], "at most 1e9"),
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
        (&["bench", "blockwrite", "--targets", "file", "--size", "60T"], "no room for a scratch file"),
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

/// Regression: `history` passed over what `compare latest` stumbled on, and a pipe hung both.
#[test]
fn every_reader_of_the_data_directory_passes_over_what_is_no_result() {
    let scratch = Scratch::new("complaints-rule");
    let result = result(&scratch);
    let kept = scratch.0.join("data/forkless/bench");
    fs::create_dir_all(&kept).unwrap();
    for name in ["20261122T000000Z-spawn-0.json", "20261123T000000Z-spawn-1.json"] {
        fs::copy(&result, kept.join(name)).unwrap();
    }
    let odd = ["99990101T000000Z-broken.json", "99990102T000000Z-other.json", "99990103T000000Z-folder.json"];
    fs::write(kept.join(odd[0]), "{").unwrap();
    fs::write(kept.join(odd[1]), r#"{"schema":"other/1"}"#).unwrap();
    fs::create_dir(kept.join(odd[2])).unwrap();
    let pipe = "99990104T000000Z-pipe.json";
    assert!(Command::new("mkfifo").arg(kept.join(pipe)).status().unwrap().success());
    fs::write(kept.join("notes.txt"), "no result's name").unwrap();
    for (arguments, code, shown) in [
        (&["history"][..], 0, "20261123T000000Z-spawn-1 "),
        (&["history", "--json"], 0, "20261123T000000Z-spawn-1.json"),
        (&["history", "latest"], 0, "vfork_exec"),
        (&["compare", "latest~1", "latest"], 2, "are the same run"),
        (&["history", "latest~2"], 2, "only 2 results in"),
    ] {
        let output = forkless(&scratch, arguments).output().unwrap();
        let errors = text(&output.stderr);
        for name in odd.iter().chain([&pipe]) {
            let named = errors.lines().filter(|line| line.contains(name) && line.contains("passed over: "));
            assert_eq!(named.count(), 1, "{arguments:?}: {name}: {errors}");
        }
        assert!(!errors.contains("notes.txt"), "{errors}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!((text(&output.stdout) + &errors).contains(shown), "{arguments:?}: {output:?}");
    }
    let named = forkless(&scratch, &["history", "99990101"]).output().unwrap();
    assert!(complaint(&named).contains("broken.json is not a saved result"), "its own fault: {named:?}");
}

/// Regression: it said that there are no results.
#[test]
fn a_data_directory_that_cannot_be_read_is_named_with_the_reason() {
    let scratch = Scratch::new("complaints-unreadable");
    fs::create_dir_all(scratch.0.join("data/forkless")).unwrap();
    fs::write(scratch.0.join("data/forkless/bench"), "no directory").unwrap();
    for arguments in [&["history"][..], &["history", "latest"], &["compare", "2026", "latest~1"]] {
        let output = forkless(&scratch, arguments).output().unwrap();
        let line = complaint(&output);
        assert!(line.contains("data/forkless/bench: Not a directory"), "{arguments:?}: {line}");
        assert!(line.contains("XDG_DATA_HOME"), "{arguments:?}: {line}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
    }
}

/// Regression: what followed the last `#` of a file's name was taken for a method.
#[test]
fn a_result_may_have_any_name_and_a_method_behind_it() {
    let scratch = Scratch::new("complaints-names");
    let result = result(&scratch);
    fs::create_dir(scratch.0.join("d#e")).unwrap();
    let odd: [&[u8]; 7] =
        [b"a#b.json", b"d#e/f", b"x@y:z ", b"#vfork_exec", b"\xff", b"new\nline", b"./-lead"];
    for name in odd {
        let path = scratch.0.join(OsStr::from_bytes(name));
        fs::copy(&result, &path).unwrap();
        for method in [&b""[..], b"#vfork_exec"] {
            let mut compare = forkless(&scratch, &["compare", "--relative", "published:solaris"]);
            let name = OsStr::from_bytes(&[name, method].concat()).to_owned();
            let output = compare.current_dir(&scratch.0).arg(&name).output().unwrap();
            let line = complaint(&output);
            // The result was read: it has no system call.
            assert!(line.contains("have no row in common"), "{name:?}: {line}");
        }
    }
    for (name, said) in [
        ("a#b.json#", "a method's name is missing after #; there are: vfork_exec"),
        ("a#b.json#popen", "a#b.json has no method popen"),
        ("nosuch#vfork_exec", "nosuch: no such file"),
    ] {
        let mut compare = forkless(&scratch, &["compare", name, "published"]);
        let line = complaint(&compare.current_dir(&scratch.0).output().unwrap());
        assert!(line.contains(said), "{name}: {line}");
    }
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
    each_output_fails("complaints-full", "No space left", |command| {
        command.stdout(full.try_clone().unwrap());
    });
}

/// Regression: the runtime opens /dev/null in its place, and reports were lost with exit code 0.
#[test]
fn a_closed_standard_output_is_said() {
    each_output_fails("complaints-closed", "Bad file descriptor", |command| {
        let mut closed = Command::new("sh");
        closed.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => closed.env(name, value),
                None => closed.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            closed.current_dir(folder);
        }
        *command = closed;
    });
}

/// Each subcommand says in one line that its output cannot be written, and ends with 1.
fn each_output_fails(name: &str, why: &str, spoil: impl Fn(&mut Command)) {
    let scratch = Scratch::new(name);
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
        &["diagnose", "--tier", "procfs", "--html", "--", "true"],
        &["diagnose", "compare", "report.json", "report.json"],
        &["bench", "spawn", "--runs", "2", "--methods", "vfork_exec", "--no-save"],
        &["bench", "spawn", "--runs", "2", "--methods", "vfork_exec", "--no-save", "--json", "-"],
    ] {
        let own = std::process::id().to_string();
        let arguments: Vec<&str> =
            arguments.iter().map(|&word| if word == "self" { &own } else { word }).collect();
        let mut command = forkless(&scratch, &arguments);
        spoil(&mut command);
        let output = command.output().unwrap();
        let line = complaint(&output);
        let expected = format!("cannot write to standard output: {why}");
        assert!(line.contains(&expected), "{arguments:?}: {line}");
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

/// Regression: it was killed by an overflow of its stack while it read the command line.
#[test]
fn a_stack_too_small_is_one_line() {
    let scratch = Scratch::new("complaints-stack");
    for (arguments, code) in [
        (&["doctor"][..], 3),
        (&["bench", "spawn"], 3),
        (&["history"], 3),
        (&["try", "--", "true"], 3),
        (&["sh", "-c", "true"], 3),
        (&["run", "--", "true"], 125),
    ] {
        let output = limited(&scratch, "-s 36", arguments);
        let line = complaint(&output);
        assert!(line.contains("the limit of the stack is 36 KiB") && line.contains("(ulimit -s)"), "{line}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn threads_without_room_name_both_limits() {
    let scratch = Scratch::new("complaints-threads");
    let line = ["bench", "spawn", "--quick", "--no-save", "--methods", "vfork_exec", "--threads", "100"];
    let output = limited(&scratch, "-v 150000", &line);
    let line = complaint(&output);
    assert!(line.contains("cannot start a thread") && line.contains("ulimit -v"), "{line}");
    assert_eq!(output.status.code(), Some(3), "{line}");
    assert!(wait_until(|| scratch.temporary_files() == 0));
}

/// Regression: Rust aborted with a trace of the stack.
#[test]
fn memory_that_is_refused_is_one_line_and_no_abort() {
    let scratch = Scratch::new("complaints-memory");
    fs::write(scratch.0.join("long"), format!("{{\"schema\": \"{}\"}}", "x".repeat(300_000))).unwrap();
    let mut refused = 0;
    // From less than the loader takes to more than the command does.
    for kib in (400..3000).step_by(50) {
        let output = limited(&scratch, &format!("-d {kib}"), &["history", "long"]);
        let errors = text(&output.stderr);
        match output.status.code() {
            // The shell's code of a process that was killed: by the kernel, before it began.
            Some(127 | 139) | None if !errors.starts_with("forkless: ") => {}
            Some(2) => assert!(errors.contains("has the schema"), "{errors}"),
            code => {
                assert_eq!(code, Some(3), "{kib}: {errors}");
                assert!(complaint(&output).contains("forkless: no memory: "), "{errors}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "no limit was between");
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
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
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

/// Regression: `bench context` waited for ever for a child that nobody traced, and `bench syscalls`
/// ended with "the program of system calls ended with exit status: 1".
#[test]
fn under_a_tracer_the_rest_is_measured_and_the_tracer_is_named() {
    let scratch = Scratch::new("complaints-traced");
    let strace = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).status();
    if !strace.is_ok_and(|status| status.success()) {
        println!("skipped: needs strace, and the right to trace");
        return;
    }
    let words = ["--quick", "--no-save", "--runs", "5"];
    for (suite, skipped) in [
        (&["syscalls", "--calls", "sigprocmask"][..], "skipped: sigprocmask (traced): "),
        (&["context"], "skipped: system calls: tracing is refused here"),
    ] {
        let mut command = Command::new("timeout");
        command.args(["600", "strace", "-f", "-o", "/dev/null", FORKLESS, "bench"]).args(suite).args(words);
        let output = command.env("TMPDIR", scratch.0.join("tmp")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = text(&output.stdout).replace("\n  ", " ");
        let notes: Vec<&str> = table.lines().filter(|line| line.starts_with("note: ")).collect();
        let refused: Vec<&&str> = notes.iter().filter(|note| note.contains(skipped)).collect();
        assert!(matches!(&refused[..], [one] if one.contains("traces this process already")), "{notes:#?}");
        assert!(notes.iter().any(|note| note.contains("noisy: strace (process ")), "{notes:#?}");
    }
}

/// Regression: a tracer that runs nothing seemed to cost nothing.
#[test]
fn what_is_no_tracer_is_left_out_with_what_it_said() {
    let scratch = Scratch::new("complaints-tracer");
    for (tracer, said) in [("true", "did not run the program"), ("false", "false ended with exit status: 1")]
    {
        let line = ["bench", "syscalls", "--quick", "--no-save", "--runs", "5", "--calls", "sigprocmask"];
        let output = forkless(&scratch, &[&line[..], &["--tracer", tracer]].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = text(&output.stdout).replace("\n  ", " ");
        assert!(
            table.contains("skipped: sigprocmask (traced): ") && table.contains(said),
            "{tracer}: {table}"
        );
        assert!(!table.contains("via traced"), "{table}");
    }
}
