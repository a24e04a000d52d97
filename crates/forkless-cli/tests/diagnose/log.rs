//! `--log`: one line a creation, with the right system call, times and endings; and how a watch
//! ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{
    FORKLESS, alone, assert_near, bpf_maps, bpf_programs, diagnose, find, known_problem, settled, skip,
    trial, wait_for_program,
};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn()); 10] = [
        ("log::a_full_fork_is_timed_as_the_caller_times_it", full_fork),
        ("log::memory_counts_from_its_first_write_on", unwritten),
        ("log::vfork_and_posix_spawn_are_told_apart_by_their_flags", vfork_and_spawn),
        ("log::a_child_without_exec_has_none", snapshot),
        ("log::failed_execs_are_counted_and_named", failed_execs),
        ("log::the_arguments_of_a_shell_are_shown", shell),
        ("log::a_killed_child_shows_its_signal", killed),
        ("log::filters_leave_the_creations_that_pass_all_of_them", filters),
        ("log::a_pid_is_followed_until_it_ends", follow_pid),
        ("log::bad_targets_are_usage_errors", bad_targets),
    ];
    for (name, test) in tests {
        trials.push(trial(name, test));
    }
    trials.push(alone("log::sigint_ends_with_a_summary_and_unloads", sigint));
    trials.push(alone("log::sigkill_leaves_nothing_in_the_kernel", sigkill));
}

fn full_fork() {
    let (lines, truth, _) = diagnose(&["--log"], &["forkexec", "8", "128"]);
    assert_eq!(lines.len(), 8);
    let mut waited = 0.0;
    for line in &lines {
        assert_eq!(line["kind"], "full_fork");
        assert_eq!(line["exec_path"], "/bin/true");
        assert_eq!(line["end"], serde_json::json!({"how": "exited", "value": 0}));
        assert_near(
            "anonymous memory",
            line["memory"]["anon"].as_f64().expect("bytes"),
            f64::from(128 << 20),
            0.05,
        );
        assert!(line["copy_ns"].as_u64() <= line["caller_waited_ns"].as_u64());
        waited += line["caller_waited_ns"].as_f64().expect("the caller returned");
    }
    // The program's clock also counts the time that it does not run between the call and its two
    // readings. How near the two are, a quiet machine says (`times.rs`).
    let measured = waited / truth.ns("call_ns");
    assert!(
        measured > 0.0 && measured <= 1.05,
        "the log has {measured:.2} of the time that the program saw in fork()"
    );
}

/// A Buffer of zeros is memory that nobody has written, and a fork of it copies nothing.
fn unwritten() {
    if find("node").is_none() {
        return skip("no node");
    }
    let copied = |buffer: &str| {
        let script =
            format!("const b = {buffer}; require('child_process').execFileSync('/bin/true'); b[0] = 1");
        let output = Command::new(FORKLESS)
            .args(["diagnose", "--log", "--json", "--", "node", "-e", &script])
            .stdin(Stdio::null())
            .output()
            .expect("forkless runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let fork = lines.into_iter().find(|line| line["exec_path"] == "/bin/true");
        fork.unwrap_or_else(|| panic!("{text}"))["memory"]["anon"].as_u64().expect("bytes") >> 20
    };
    let (made, filled) = (copied("Buffer.alloc(128 << 20)"), copied("Buffer.alloc(128 << 20, 1)"));
    assert!(made < 64 && filled >= 128, "{made} MiB and {filled} MiB");
}

fn vfork_and_spawn() {
    let (lines, _, _) = diagnose(&["--log"], &["vfork", "5"]);
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line["call"] == "vfork" && line["kind"] == "vfork_like"));
    // The caller waited for the child's exec, at least.
    assert!(lines.iter().all(|line| line["caller_waited_ns"].as_u64() > line["copy_ns"].as_u64()));

    let (lines, _, _) = diagnose(&["--log"], &["spawn", "5"]);
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line["call"] != "vfork" && line["kind"] == "vfork_like"));
}

fn snapshot() {
    let (lines, _, _) = diagnose(&["--log"], &["snapshot", "2", "16"]);
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["exec_path"].is_null() && line["until_exec_ns"].is_null()));
    assert!(lines.iter().all(|line| line["lifetime_ns"].as_u64() >= Some(20_000_000)));
}

fn failed_execs() {
    let (lines, _, _) = diagnose(&["--log"], &["pathmiss", "4"]);
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line["exec_missing"] == 3 && line["exec_path"] == "/bin/true"));

    let (lines, _, _) = diagnose(&["--log"], &["missing", "4"]);
    assert_eq!(lines.len(), 4);
    for line in lines {
        assert_eq!(line["exec_failed_path"], "/nowhere/gone");
        assert_eq!(line["exec_errno"], 2);
        assert_eq!(line["end"]["value"], 127);
    }
}

fn shell() {
    let (lines, _, _) = diagnose(&["--log"], &["shell", "3"]);
    let shells: Vec<&Value> = lines.iter().filter(|line| line["exec_path"] == "/bin/sh").collect();
    assert_eq!(shells.len(), 3);
    assert!(shells.iter().all(|line| line["argv"] == serde_json::json!(["sh", "-c", "/bin/true a b"])));
}

fn killed() {
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--log", "--json", "--", "sh", "-c", "sh -c 'kill -9 $$'; true"])
        .output()
        .expect("forkless runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert_eq!(lines[0]["end"], serde_json::json!({"how": "killed", "value": 9}));
}

fn filters() {
    let program = known_problem().expect("checked before").display();
    let line = format!("{program} forkexec 2 8; {program} missing 3; (sleep 0.1; exec true); exit 0");
    let log = |flags: &[&str]| {
        let output = Command::new(FORKLESS)
            .args(["diagnose", "--log", "--json"])
            .args(flags)
            .args(["--", "sh", "-c", &line])
            .stdin(Stdio::null())
            .output()
            .expect("forkless runs");
        let text = String::from_utf8_lossy(&output.stdout);
        // The program prints its own line, too.
        let values = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let lines: Vec<Value> = values.filter(|value: &Value| value.get("caller").is_some()).collect();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(&format!(", {} lines printed,", lines.len())), "{told}");
        lines
    };
    let own = rustix::process::getuid().as_raw();
    let (own, other) = (own.to_string(), (own + 1).to_string());

    let failed = log(&["--failed"]);
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(failed.iter().all(|line| line["exec_errno"] == 2 && line["execs"] == 0));
    // The caller's name, and the child's.
    assert_eq!(log(&["--comm", "known_prob"]).len(), 2 + 3 + 2);
    assert_eq!(log(&["--comm", "known_problem_of_a_long_name"]).len(), 0, "the kernel keeps 15 bytes");
    assert_eq!(log(&["--comm", "known_prob", "--failed", "--uid", &own]).len(), 3);
    assert_eq!(log(&["--uid", &other]).len(), 0);
    assert_eq!(log(&["--uid", &other, "--uid", &own, "--comm", "sleep"]).len(), 1);
    let slow = log(&["--slower", "100"]);
    assert!(slow.iter().any(|line| line["until_exec_ns"].as_u64() > Some(100_000_000)), "{slow:?}");
    let took = |line: &Value| line["until_exec_ns"].as_u64().max(line["caller_waited_ns"].as_u64());
    assert!(slow.iter().all(|line| took(line) > Some(100_000_000)), "{slow:?}");
}

fn follow_pid() {
    let mut process = Command::new(known_problem().expect("checked before"))
        .args(["forkexec", "20", "8"])
        .env("KNOWN_PROBLEM_WAIT", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut program_out = BufReader::new(process.stdout.take().expect("piped"));
    let mut first = String::new();
    program_out.read_line(&mut first).expect("the program is ready");

    let tool = Command::new(FORKLESS)
        .args(["diagnose", "--log", "--json", "-p", &process.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("forkless runs");
    wait_for_program(&tool, "on_sys_enter");
    rustix::process::kill_process(pid(&process), rustix::process::Signal::USR1)
        .expect("it waits for SIGUSR1");
    process.wait().expect("it ends");
    let output = tool.wait_with_output().expect("forkless ends with its target");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 20);
    assert!(String::from_utf8_lossy(&output.stderr).contains("the target ended"));
}

fn pid(child: &std::process::Child) -> rustix::process::Pid {
    rustix::process::Pid::from_child(child)
}

fn sigint() {
    let before = (bpf_programs(), bpf_maps());
    // Below nohup, and in the background of a script, SIGINT is ignored.
    let tool = Command::new("env")
        .args(["--default-signal=INT", FORKLESS, "diagnose", "--log", "--all"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("forkless runs");
    wait_for_program(&tool, "on_sys_enter");
    rustix::process::kill_process(pid(&tool), rustix::process::Signal::INT).expect("it runs");
    let output = tool.wait_with_output().expect("forkless ends");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    settled(&before);
}

fn sigkill() {
    let before = (bpf_programs(), bpf_maps());
    let mut tool = Command::new(FORKLESS)
        .args(["diagnose", "--log", "--all"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("forkless runs");
    wait_for_program(&tool, "on_sys_enter");
    assert_ne!(bpf_programs(), before.0);
    tool.kill().expect("it runs");
    tool.wait().expect("it ends");
    settled(&before);
}

fn bad_targets() {
    for (arguments, says) in [
        (&["-p", "8388608"][..], "8388608"),
        (&["--cgroup", "/etc"], "cgroup"),
        (&["-d", "nan", "--all"], "seconds"),
        (&["--", "/nowhere/gone"], "/nowhere/gone"),
        (&[], "--all"),
        (&["--all", "-p", "1"], "cannot be used with"),
        (&["--all", "--uid", "root"], "id -u"),
        (&["--all", "--comm", ""], "part of a name"),
        (&["--all", "--slower", "-1"], "milliseconds"),
    ] {
        let output = Command::new(FORKLESS)
            .arg("diagnose")
            .arg("--log")
            .args(arguments)
            .output()
            .expect("forkless runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
}
