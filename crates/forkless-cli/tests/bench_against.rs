//! `forkless bench spawn --against`: two builds in turns, with another build that lies, fails,
//! hangs or is none. The other build is a script here. No verdict depends on a clock, because the
//! script gives figures that are a thousandth or a thousand times those of this machine.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use scratch::{Scratch, text, wait_until};

mod scratch;

const FORKLESS: &str = env!("CARGO_BIN_EXE_forkless");

impl Scratch {
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A build made of a shell script, whose `$FORKLESS` is the real one.
    fn script(&self, body: &str) -> String {
        let path = self.path("other");
        fs::write(&path, format!("#!/bin/sh\ncd '{}'\nFORKLESS='{FORKLESS}'\n{body}\n", self.0.display()))
            .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A build whose times are so many times those that this machine had once.
    fn scaled(&self, factor: f64) -> String {
        let once = Command::new(FORKLESS)
            .args(["bench", "spawn", "--no-save", "--json", "-", "--restarts", "1"])
            .args(SHORT)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(once.status.success(), "{}", text(&once.stderr));
        let mut value: serde_json::Value = serde_json::from_slice(&once.stdout).unwrap();
        for row in value["suites"][0]["rows"].as_array_mut().unwrap() {
            row["median"] = (row["median"].as_f64().unwrap() * factor).into();
            for sample in row["samples"].as_array_mut().unwrap() {
                *sample = (sample.as_f64().unwrap() * factor).into();
            }
        }
        fs::write(self.path("result"), value.to_string()).unwrap();
        self.script(&format!("{LISTS}\necho \"$@\" >>starts\ncat result"))
    }

    fn command(&self, other: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(FORKLESS);
        command.args(["bench", "spawn", "--against", other]).args(SHORT).args(arguments).stdin(Stdio::null());
        command.env("XDG_DATA_HOME", self.0.join("data")).env("TMPDIR", self.0.join("tmp"));
        command
    }

    fn run(&self, other: &str, arguments: &[&str]) -> Output {
        self.command(other, arguments).output().unwrap()
    }
}

const SHORT: [&str; 4] = ["--runs", "20", "--methods", "vfork_exec,posix_spawn"];

/// A line of a script that has the real build say which methods there are.
const LISTS: &str = "case \"$*\" in *list) exec \"$FORKLESS\" \"$@\";; esac";

#[test]
fn a_slower_build_is_exit_code_1_and_a_faster_one_is_not() {
    for (factor, code, verdict) in [(0.001, 1, "slower"), (1000.0, 0, "faster")] {
        let scratch = Scratch::new("against");
        let other = scratch.scaled(factor);
        let json = scratch.path("changes.json");
        let output =
            scratch.run(&other, &["--restarts", "10", "--fail-on-regression", "10", "--json", &json]);
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{said}{errors}");
        assert_eq!(errors.contains("10 % is not ruled out: vfork_exec"), code == 1, "{errors}");
        assert!(said.contains("this build") && said.contains(verdict), "{said}");
        let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/against.schema.json");
        let schema = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
        let refused = jsonschema::validate(&schema, &value).err().map(|error| error.to_string());
        assert_eq!(refused, None);
        let changes = value["changes"].as_array().unwrap();
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert!(
            changes
                .iter()
                .all(|change| change["comparison"] == "side_by_side" && change["verdict"] == verdict)
        );
        // Ten restarts on either side, each measured for its share of the runs.
        for side in ["a", "b"] {
            assert_eq!(value[side]["suites"][0]["rows"][0]["restarts"].as_array().unwrap().len(), 10);
        }
        let starts = fs::read_to_string(scratch.path("starts")).unwrap();
        assert_eq!(starts.lines().count(), 10);
        assert!(
            starts.lines().all(|line| line.contains("--runs 2 ") && line.contains("--restarts 1")),
            "{starts}"
        );
        // Neither side is a result of this build alone.
        assert!(!scratch.0.join("data").exists());
        assert_eq!(scratch.temporary_files(), 0);
    }
}

#[test]
fn without_a_limit_nothing_is_a_finding_and_markdown_is_for_a_pull_request() {
    let scratch = Scratch::new("against-markdown");
    let output = scratch.run(&scratch.scaled(0.001), &["--restarts", "9", "--markdown", "-"]);
    let said = text(&output.stdout);
    assert!(
        output.status.success() && said.contains("| spawn: method |") && said.contains("- A = `"),
        "{said}"
    );
}

#[test]
fn what_is_no_build_of_forkless_is_one_clear_line() {
    let scratch = Scratch::new("against-none");
    fs::write(scratch.path("text"), "no program").unwrap();
    let not_executable = scratch.path("text");
    let odd = "/nonexistent/\n\u{1b}[31mbuild";
    for (other, needle) in [
        ("/nonexistent/forkless", "--against: cannot start /nonexistent/forkless"),
        ("no-such-program-in-path", "cannot start no-such-program-in-path"),
        (&not_executable, "cannot start"),
        ("/bin/true", "name another build of forkless"),
        ("/bin/false", "/bin/false, --methods list: exit status 1"),
        ("", "cannot start"),
        (odd, "cannot start"),
    ] {
        let output = scratch.run(other, &[]);
        let errors = text(&output.stderr);
        let code = if other == "/bin/false" { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{other:?}: {errors}");
        assert!(errors.contains(needle), "{other:?}: {errors}");
        assert!(errors.lines().count() == 1 && !errors.contains('\u{1b}'), "{other:?}: {errors:?}");
    }
}

#[test]
fn another_versions_answers_are_told_from_results() {
    let scratch = Scratch::new("against-version");
    for (body, code, needle) in [
        ("echo '{\"schema\": \"forkless.bench/2\", \"suites\": 7}'", 2, "of schema forkless.bench/2"),
        (
            "\"$FORKLESS\" \"$@\" | sed 's|forkless.bench/1|forkless.bench/9|'",
            2,
            "writes results of schema forkless.bench/9",
        ),
        (
            "\"$FORKLESS\" \"$@\" | sed 's|\"samples\":.[0-9]|\"samples\":[-9|'",
            1,
            "restart 1 of 10: its result contradicts itself: of spawn vfork_exec",
        ),
        ("echo 'wall 17'", 1, "restart 1 of 10: its output is no result"),
        ("echo 'error: unexpected argument --json' >&2; exit 2", 2, "unexpected argument --json"),
        ("echo 'forkless: 9G is not safe' >&2; exit 3", 3, "9G is not safe"),
        (
            "echo x >>starts; [ $(wc -l <starts) -lt 3 ] && exec \"$FORKLESS\" \"$@\"; kill -9 $$",
            1,
            "restart 3 of 10: died of signal 9",
        ),
        ("exec \"$FORKLESS\" bench context --no-save --json - --filter localtime --runs 5", 1, "have no row"),
    ] {
        let other = scratch.script(&format!("{LISTS}\n{body}"));
        let output = scratch.run(&other, &["--restarts", "10"]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{body}: {errors}");
        assert!(errors.lines().count() == 1 && errors.contains(needle), "{body}: {errors}");
    }
}

#[test]
fn methods_that_the_other_build_lacks_are_left_out_and_named() {
    let scratch = Scratch::new("against-methods");
    let lists = "case \"$*\" in *list) echo 'vfork_exec the yardstick'; exit;; esac";
    let other = scratch.script(&format!("{lists}\nexec \"$FORKLESS\" \"$@\""));
    let output = scratch.run(&other, &["--restarts", "9"]);
    let said = text(&output.stdout);
    assert!(
        output.status.success() && said.contains("  has no method posix_spawn"),
        "{said}{}",
        text(&output.stderr)
    );
    let output =
        scratch.command(&other, &[]).args(["--restarts", "9", "--filter", "posix"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it has: vfork_exec"), "{}", text(&output.stderr));
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    let scratch = Scratch::new("against-flags");
    for (arguments, needle) in [
        (&["--restarts", "3"][..], "--restarts 3: too few to judge 2 rows"),
        (&["--csv", "-"], "not in --csv and --html"),
        (&["--html", "page.html"], "not in --csv and --html"),
        (&["--fail-on-regression", "x"], "must be 0 or more"),
    ] {
        let output = scratch.run(FORKLESS, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(needle), "{arguments:?}: {}", text(&output.stderr));
    }
    let output =
        Command::new(FORKLESS).args(["bench", "spawn", "--fail-on-regression", "10"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--against"), "{}", text(&output.stderr));
}

/// Whether a process of this argument is left.
fn is_left(argument: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line.split(|&byte| byte == 0).any(|word| word == argument.as_bytes()))
}

/// A number of seconds that only this test's `sleep` has.
fn seconds(salt: u32) -> String {
    format!("{}.{}", 100_000 + salt, std::process::id())
}

#[test]
fn a_build_that_hangs_is_ended_with_what_it_started() {
    let scratch = Scratch::new("against-hangs");
    let seconds = seconds(1);
    let other = scratch.script(&format!("sleep {seconds} & exec sleep {seconds}"));
    let output = scratch.run(&other, &[]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("--methods list: no end within 20 s; it was ended"), "{errors}");
    assert!(!is_left(&seconds));
}

#[test]
fn an_interrupted_or_killed_comparison_leaves_nothing() {
    for signal in ["INT", "TERM", "KILL"] {
        let scratch = Scratch::new("against-interrupted");
        let seconds = seconds(2);
        // A wrapper that does not execute the build, and would leave it behind.
        let measure = "\"$FORKLESS\" bench spawn --no-save --runs 10000000 --time 1000 --methods vfork_exec";
        let body = format!("{LISTS}\nsleep {seconds} &\n{measure}\nwait");
        let other = scratch.script(&body);
        let mut command = scratch.command(&other, &["--restarts", "10"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert!(
            wait_until(|| is_left(&seconds) && scratch.temporary_files() > 0),
            "the other build never began"
        );
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert!(!child.wait().unwrap().success());
        assert!(wait_until(|| !is_left(&seconds)), "SIG{signal} left a process");
        assert!(wait_until(|| scratch.temporary_files() == 0), "SIG{signal} left a file");
    }
}

#[test]
fn a_build_that_prints_without_end_is_ended() {
    let scratch = Scratch::new("against-prints");
    let output = scratch.run(&scratch.script("exec yes"), &[]);
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("printed more than 256 MiB"), "{errors}");
}

#[test]
fn a_figure_that_a_build_does_not_give_is_named_and_fails_the_gate_unless_it_is_new() {
    let scratch = Scratch::new("against-lost");
    let gate = |change: &str| {
        let other = scratch.script(&format!("{LISTS}\n\"$FORKLESS\" \"$@\" | sed '{change}'"));
        scratch.run(&other, &["--restarts", "10", "--fail-on-regression", "1000"])
    };
    // The other build names the method, and gives no figure of it.
    let output = gate("s|\"method\":\"posix_spawn\"|\"method\":\"gone\"|g");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("  gave no figure, or too few, of posix_spawn"), "{said}");
    // Its first row is of other descriptors than this build's: neither is judged.
    let output = gate("s|\"fds\":0|\"fds\":1|");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("not judged, because only "), "{errors}");
    assert!(errors.lines().count() == 1 && errors.contains(": vfork_exec; "), "{errors}");
}
