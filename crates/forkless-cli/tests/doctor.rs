//! `forkless doctor` from outside: it never fails, names every facility, and tells what a filter
//! above it refuses.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use library::LIBRARY;

mod library;

/// Whether the library is found would depend on what was built before.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.arg("doctor").args(arguments).env("FORKLESS_LIBRARY", &*LIBRARY);
    command
}

fn doctor() -> serde_json::Value {
    let output = command(&["--json"]).output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn entry<'a>(report: &'a serde_json::Value, section: &str, name: &str) -> &'a serde_json::Value {
    let sections = report["sections"].as_array().unwrap();
    let section = sections.iter().find(|one| one["name"] == section).unwrap();
    section["entries"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()
}

#[test]
fn every_section_is_there_and_every_facility_says_what_it_is_for() {
    let report = doctor();
    assert_eq!(report["schema"], "forkless.doctor/1");
    for (section, name) in [
        ("spawn", "clone3"),
        ("spawn", "CLONE_PIDFD"),
        ("spawn", "CLOSE_RANGE_UNSHARE"),
        ("run", "syscall user dispatch"),
        ("run", "PROCMAP_QUERY"),
        ("diagnose", "kernel type information"),
        ("memory", "hugetlb pools"),
    ] {
        let entry = entry(&report, section, name);
        assert!(!entry["used_for"].as_str().unwrap().is_empty(), "{name}");
        assert!(["works", "missing", "info"].contains(&entry["state"].as_str().unwrap()), "{name}");
    }
    for section in report["sections"].as_array().unwrap() {
        assert!(!section["path"].as_str().unwrap().is_empty());
    }
}

fn text(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// It filled four screens, and whether anything works was to be read out of tables.
#[test]
fn it_begins_with_a_verdict_for_each_part_and_fits_on_a_screen() {
    let text = text(&[]);
    assert!(text.lines().count() < 24, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let verdicts: Vec<Vec<&str>> = text
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty() && !line.starts_with([' ', '-']))
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    let parts: Vec<&str> = verdicts.iter().map(|verdict| verdict[0]).collect();
    assert_eq!(parts, ["spawn", "run", "diagnose", "memory"], "{text}");
    assert!(verdicts.iter().all(|verdict| ["yes", "partly", "no"].contains(&verdict[1])), "{text}");
}

#[test]
fn the_tables_are_printed_on_request() {
    let text = text(&["--verbose"]);
    assert!(text.contains("never with fork") && text.contains("without it"), "{text}");
}

#[test]
fn a_process_is_told_what_its_forks_cost() {
    let memory = std::hint::black_box(vec![1u8; 64 << 20]);
    let pid = std::process::id().to_string();
    let said = text(&["-p", &pid]);
    assert!(said.contains(&format!("(pid {pid}): ")), "{said}");
    assert!(said.contains("A fork of this process costs about "), "{said}");
    assert!(said.contains("   under run   ") && said.contains("   huge pages  "), "{said}");

    let json: serde_json::Value = serde_json::from_str(&text(&["--json", "-p", &pid])).unwrap();
    let process = &json["process"];
    assert!(process["anon"].as_u64().unwrap() >= memory.len() as u64, "{process}");
    assert!(process["now"]["mid"].as_f64().unwrap() > 0.0, "{process}");
    for remedy in ["under_run", "with_huge_pages"] {
        assert!(process[remedy]["cost"].is_null() != process[remedy]["why_not"].is_null(), "{process}");
    }
    drop(memory);

    // A process whose forks `run` leaves alone is promised nothing.
    let mut small = Command::new("sleep").arg("60").spawn().unwrap();
    let said = text(&["-p", &small.id().to_string()]);
    small.kill().unwrap();
    small.wait().unwrap();
    assert!(said.contains("under run   no change: it has less than 8 MiB of anonymous memory"), "{said}");

    // Regression: children of a caller that ignores SIGCHLD leave no status.
    let mut ignoring = Command::new("env");
    ignoring.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_forkless"), "doctor", "-p", &pid]);
    let output = ignoring.output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let gone = command(&["-p", "8388608"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no process 8388608"));
}

/// The line of a part, in words.
fn verdict(text: &str, part: &str) -> String {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(part)).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn it_says_that_run_is_switched_off() {
    let of = |value: &str| {
        let output = command(&[]).env("FORKLESS", value).output().unwrap();
        verdict(&String::from_utf8(output.stdout).unwrap(), "run")
    };
    assert_eq!(of("off"), "run no it is switched off: FORKLESS is off in the environment");
    assert!(!of("on").contains("switched off"));
    let pid = std::process::id().to_string();
    let output = command(&["-p", &pid]).env("FORKLESS", "0").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("under run   no change: it is switched off: FORKLESS is off"), "{said}");
}

/// It promised a repair to a user whom the kernel refuses one.
#[test]
fn who_may_not_repair_is_not_promised_it() {
    let mut command = command(&[]);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("skipped: another user may not execute the command");
            return;
        }
        output => output.unwrap(),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let memory = verdict(&text, "memory");
    assert!(!memory.contains("a running process"), "{text}");
    assert!(text.contains("no process_madvise(MADV_COLLAPSE): "), "{text}");
}

/// Regression: it ended by SIGABRT, since the reader of the kernel's types had no memory.
#[test]
fn with_little_room_a_tier_that_needs_more_is_missing() {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        println!("skipped: this kernel has no type information");
        return;
    }
    let limited = "ulimit -v 50000; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_forkless"), "doctor", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for tier in ["BPF with fentry", "BPF with tracepoints (tp_btf)"] {
        let tier = entry(&report, "diagnose", tier);
        assert_eq!(tier["state"], "missing");
        assert!(tier["detail"].as_str().unwrap().contains("ulimit -v"), "{tier}");
    }
}

/// Regression: it promised `run` under a filter for which `run` leaves all alone.
#[test]
fn a_filter_that_kills_for_a_call_of_run_is_tried_as_run_tries_it() {
    let filter = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refuses_a_call_above_doctor");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/run/refuses_a_call.c");
    let compiled = Command::new("cc").arg("-o").arg(&filter).arg(source).status();
    assert!(compiled.expect("a C compiler (apt-get install gcc)").success());
    let under = |how: &str, call: &str, arguments: &[&str]| {
        let number = forkless_run::library_calls().find(|(name, _)| *name == call).unwrap().1;
        let doctor = command(arguments);
        let mut outer = Command::new(&filter);
        outer.args([how, &number.to_string()]).arg(doctor.get_program()).args(doctor.get_args());
        let output = outer.env("FORKLESS_LIBRARY", &*LIBRARY).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    const PERMISSION: &str = "permission for calls";
    for (call, answer, without) in [
        ("mincore", "no", "forks, lines and memory are left alone"),
        ("setfsuid", "partly", "every line goes to the shell"),
    ] {
        let report: serde_json::Value = serde_json::from_str(&under("kill", call, &["--json"])).unwrap();
        let run = report["sections"].as_array().unwrap().iter().find(|one| one["name"] == "run").unwrap();
        assert_eq!(run["verdict"]["answer"], answer, "{run}");
        let permission = entry(&report, "run", PERMISSION);
        assert_eq!((&permission["state"], &permission["without"]), (&"missing".into(), &without.into()));
        let said = permission["detail"].as_str().unwrap();
        assert!(said.starts_with(&format!("a seccomp filter kills for {call}: ")), "{said}");
        assert_eq!(entry(&report, "run", "/bin/sh")["state"], "missing");
        assert!(under("kill", call, &[]).lines().all(|line| line.chars().count() <= 80));
    }
    let report: serde_json::Value = serde_json::from_str(&under("error", "mincore", &["--json"])).unwrap();
    assert_eq!(entry(&report, "run", PERMISSION)["state"], "works");
    assert_eq!(entry(&report, "run", "/bin/sh")["state"], entry(&doctor(), "run", "/bin/sh")["state"]);
}
