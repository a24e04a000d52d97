//! `forkless bench victims` from outside: its figures are of the mechanism under test, missing
//! programs are counted, and no program, file or setting outlives it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use library::LIBRARY;
use scratch::{Scratch, text, wait_until};

mod library;
mod scratch;

impl Scratch {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        command.args(["bench", "victims", "--no-save"]).args(arguments).stdin(Stdio::null());
        command.env("TMPDIR", self.0.join("tmp")).env("FORKLESS_LIBRARY", &*LIBRARY);
        command.env("FORKLESS_NO_INSTALL", "1");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Processes whose command line names something in the directory for temporary files.
    fn processes(&self) -> Vec<String> {
        self.processes_naming("tmp")
    }

    fn processes_naming(&self, name: &str) -> Vec<String> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let path = self.0.join(name).display().to_string();
        lines
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| line.contains(&path))
            .collect()
    }
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)))
}

/// Whether this architecture has no speculation. Then the test counts as skipped.
fn nothing_speculates() -> bool {
    let other = !cfg!(target_arch = "x86_64");
    if other {
        println!("skipped: forks are speculated on x86-64 only");
    }
    other
}

#[test]
fn figures_come_with_evidence_that_the_mechanism_was_at_work() {
    if nothing_speculates() {
        return;
    }
    let scratch = Scratch::new("figures");
    let filter =
        ["--quick", "--runs", "30", "--filter", "c-64M,swapcontext,localtime,worker,load", "--json", "-"];
    let output = scratch.run(&filter);
    let value = json(&output);
    assert!(output.status.success());

    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.schema.json");
    let schema = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{}", errors.join("; "));

    let suite = &value["suites"][0];
    let rows = suite["rows"].as_array().unwrap();
    for (victim, method) in [
        ("c-64M", "vfork"),
        ("c-64M", "run"),
        ("swapcontext", "plain"),
        ("worker", "plain"),
        ("load", "empty library"),
    ] {
        let found = rows.iter().find(|row| row["params"]["victim"] == victim && row["method"] == method);
        assert!(found.unwrap()["median"].as_f64() > Some(0.0), "{victim} {method}");
    }
    let checks = suite["checks"].as_array().unwrap();
    for (name, evidence) in [
        ("c-64M", "committed in"),
        ("swapcontext", "context switches in"),
        ("localtime", "TZ set by run"),
        ("worker", "aborted in"),
        ("worker", "left alone and"),
        ("load", "the library was in the program"),
    ] {
        let said = |check: &&serde_json::Value| check["evidence"].as_str().unwrap().contains(evidence);
        let check = checks.iter().filter(|check| check["name"] == name).find(said);
        let check = check.unwrap_or_else(|| panic!("{name}: no {evidence:?} in {checks:?}"));
        // A quiet machine tells how fast it was.
        let verdict = check["verdict"].as_str().unwrap();
        assert!(matches!(verdict, "shown" | "reached" | "missed" | "undecided"), "{check}");
        assert!(check["value"].is_f64() && check["ci95"].is_array(), "{check}");
    }
    // On any machine these two keep the users' limits by far. How far is the processor's business:
    // plain / run of swapcontext was 19 on one and 3 on another, where ldmxcsr takes 55 ns if it
    // changes a flag. The victim divides in one of its two contexts only.
    use forkless_bench::check::CheckVerdict::{Missed, Reached, Undecided};
    let judged = forkless_lab::acceptance::judge(&serde_json::from_value(value.clone()).unwrap()).unwrap();
    for name in ["swapcontext", "localtime"] {
        let check = checks.iter().find(|check| check["name"] == name).unwrap();
        assert_eq!((&check["verdict"], &check["limit"]), (&"reached".into(), &1.0.into()), "{check}");
        let accepted = judged.checks.iter().find(|check| check.name == name).unwrap();
        assert!(accepted.limit > Some(1.0), "{accepted:?}");
        assert!(matches!(accepted.verdict, Reached | Missed | Undecided), "{accepted:?}");
    }
    // What shows `run` beside something else than the plain program has no limit for users.
    let load = checks.iter().find(|check| check["name"] == "load").unwrap();
    assert!(load["verdict"] == "shown" && load.get("limit").is_none(), "{load}");
    assert_eq!(scratch.temporary_files(), 0);
    assert_eq!(scratch.processes(), Vec::<String>::new());
}

#[test]
fn interpreters_are_also_measured_without_the_memory_and_no_limit_is_set_for_that() {
    if nothing_speculates() {
        return;
    }
    let scratch = Scratch::new("small");
    let file = scratch.0.join("result.json");
    let path = file.to_str().unwrap();
    let output = scratch.run(&[
        "--quick",
        "--runs",
        "10",
        "--filter",
        "perl,python,node",
        "--fail-on-miss",
        "--json",
        path,
        "--markdown",
        "-",
    ]);
    if output.status.code() == Some(3) {
        assert!(text(&output.stderr).contains("not installed"), "{}", text(&output.stderr));
        println!("skipped: {}", text(&output.stderr));
        return;
    }
    let value: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let suite = &value["suites"][0];
    let all = |list: &str| suite[list].as_array().cloned().unwrap_or_default();
    let (rows, derived, checks) = (all("rows"), all("derived"), all("checks"));
    let figure = |name: &str, what: &str| derived.iter().find(|one| one["name"] == format!("{name}: {what}"));
    // node-heap has no limit, so only a reason to have no figure makes it a check.
    let (heap, checks): (Vec<_>, Vec<_>) = checks.into_iter().partition(|check| check["name"] == "node-heap");
    let shown = figure("node-heap", "plain / run").is_some();
    assert_eq!(shown, heap.is_empty(), "{heap:?}");
    // Node.js is also measured beside another mode, where it is installed. That has no limit.
    let (beside, checks): (Vec<_>, Vec<_>) =
        checks.into_iter().partition(|check| check["figure"] == "run / speculate");
    let is_measured = |check: &&serde_json::Value| check["figure"] == "plain / run";
    let node = checks.iter().filter(is_measured).filter(|check| check["name"] == "node-spawnsync");
    assert_eq!(beside.len(), node.count(), "{beside:?}");
    assert!(beside.iter().all(|check| check.get("limit").is_none()), "{beside:?}");
    // Each victim has one check. A third way to measure it adds no limit, and only limits decide
    // the exit status.
    assert_eq!(checks.len(), 4, "{checks:?}");
    let missed = heap
        .iter()
        .chain(&checks)
        .chain(&beside)
        .any(|check| check["verdict"] == "missed" || check["verdict"] == "not_shown");
    assert_eq!(output.status.code(), Some(i32::from(missed)), "{}", text(&output.stderr));
    for check in &checks {
        let name = check["name"].as_str().unwrap();
        if check["verdict"] == "skipped" {
            println!("skipped: {name}: {}", check["evidence"]);
            continue;
        }
        assert_eq!(check["figure"], "plain / run", "{check}");
        let row = |method: &str| {
            let found = rows.iter().find(|row| row["params"]["victim"] == name && row["method"] == method);
            found.unwrap_or_else(|| panic!("{name}: no {method}"))
        };
        assert_eq!(row("small")["params"]["rss"], 1 << 20);
        let rounds = |method: &str| row(method)["per_round"].as_array().map(Vec::len);
        assert_eq!(rounds("small"), rounds("plain"), "{name}: not of the same rounds");
        let bound = figure(name, "plain / small").unwrap_or_else(|| panic!("{name}: {derived:?}"));
        assert!(bound["value"].as_f64() > Some(0.0), "{bound}");
        assert!(bound.get("limit").is_none() && bound.get("verdict").is_none(), "{bound}");
        // A figure of run needs the same evidence as the check.
        assert_eq!(figure(name, "run / small").is_some(), check["verdict"] != "not_shown", "{check}");
        assert!(text(&output.stdout).contains(&format!("- {name}: plain / small: ")));
    }
}

/// The launcher of `small-*`: of several lines, one runs at a time.
#[test]
fn lines_run_in_turns() {
    let scratch = Scratch::new("turns");
    let program = scratch.0.join("in_turns");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../forkless-lab/src/victims/programs/in_turns.c");
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(compiled.success());
    let log = scratch.0.join("log");
    // Six times each line waits until the other has come as far. On a fast processor 2,000 letters
    // alone end within one turn. A line that never sees the other come gives up.
    let script = r#"
        n=0
        letter() { printf $0 >> "$1"; n=$((n+1)); [ $n -lt 1000000 ] || exit 9; }
        for step in 1 2 3 4 5 6; do
            : > "$1.$0$step"
            while [ ! -e "$1.$2$step" ]; do letter "$1"; done
        done
        while [ $n -lt 2000 ]; do letter "$1"; done
        exit $3"#;
    let turns = |first: &str, orders: &str| {
        let path = log.to_str().unwrap();
        let lines =
            [("a", "b"), ("b", "a")].map(|(own, other)| ["7", "/bin/sh", "-c", script, own, path, other]);
        let mut command = Command::new(&program);
        command.arg("5").args(lines[0]).arg(first).args(lines[1]).arg("0");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(orders.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let begun = Instant::now();
    let output = turns("0", "turns 2\n");
    let (all, said) = (begun.elapsed(), text(&output.stdout));
    let said: Vec<&str> = said.lines().collect();
    assert!(output.status.success() && said[0] == "ready" && said.len() == 2, "{said:?}");
    let times: Vec<f64> = said[1].split_whitespace().map(|time| time.parse().unwrap()).collect();
    assert_eq!(times.len(), 4);
    assert!(times.iter().all(|time| *time > 0.0) && times.iter().sum::<f64>() <= all.as_nanos() as f64);
    // Each line has done all its work, and in pieces: one after the other, the first would have
    // given up. Both at a time would be a change at nearly every letter.
    let letters = fs::read(&log).unwrap();
    for own in [b'a', b'b'] {
        assert!(letters.iter().filter(|letter| **letter == own).count() >= 4000);
    }
    let changes = letters.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((4..letters.len() / 4).contains(&changes), "{changes} changes of {}", letters.len());

    // A line that fails ends them all.
    let output = turns("7", "turns 1\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("/bin/sh ended with wait status 0x700"),
        "{}",
        text(&output.stderr)
    );
    assert!(
        wait_until(|| scratch.processes_naming("log").is_empty()),
        "{:?}",
        scratch.processes_naming("log")
    );
}

/// The server answers its requests while it starts programs, and programs are started by another
/// thread than the one that asks for them: so the library sees a process with threads.
#[test]
fn servers_with_threads_are_measured_with_their_requests() {
    if nothing_speculates() {
        return;
    }
    let scratch = Scratch::new("servers");
    let filter = ["--runs", "20", "--rss", "64M", "--threads", "4", "--filter", "tokio,gunicorn,ruby,java"];
    let output = scratch.run(&[&filter[..], &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value = json(&output);
    let suite = &value["suites"][0];
    let rows = suite["rows"].as_array().unwrap();
    for method in ["plain", "run"] {
        for metric in ["wall", "call", "p99"] {
            let found = rows.iter().find(|row| {
                (&row["params"]["victim"], &row["method"], &row["metric"])
                    == (&"tokio-preexec".into(), &method.into(), &metric.into())
            });
            let row = found.unwrap_or_else(|| panic!("no {method} {metric}"));
            assert!(row["median"].as_f64() > Some(0.0), "{row}");
            assert_eq!((&row["params"]["threads"], &row["params"]["rss"]), (&4.into(), &(64 << 20).into()));
        }
    }
    for check in suite["checks"].as_array().unwrap() {
        if check["verdict"] == "skipped" {
            println!("skipped: {}: {}", check["name"], check["evidence"]);
            continue;
        }
        // Either enough children committed, or the reason is named why not.
        let evidence = check["evidence"].as_str().unwrap();
        assert_eq!(evidence.starts_with("only "), check["verdict"] == "not_shown", "{check}");
        assert!(evidence.contains(" committed in "), "{check}");
    }
    assert_eq!(scratch.temporary_files(), 0);
    assert_eq!(scratch.processes(), Vec::<String>::new());
}

#[test]
fn what_is_missing_is_skipped_and_counted() {
    let scratch = Scratch::new("missing");
    // The directory has a compiler and the programs that it calls by name.
    let bin = scratch.0.join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, file) in [("cc", "/usr/bin/cc"), ("as", "/usr/bin/as"), ("ld", "/usr/bin/ld")] {
        symlink(file, bin.join(name)).unwrap();
    }
    let mut command =
        scratch.command(&["--quick", "--runs", "5", "--filter", "perl,localtime", "--json", "-"]);
    let output = command.env("PATH", &bin).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value = json(&output);
    let suite = &value["suites"][0];
    let check = &suite["checks"][0];
    assert_eq!((&check["name"], &check["verdict"]), (&"perl-system".into(), &"skipped".into()), "{check}");
    assert!(check["evidence"].as_str().unwrap().contains("apt-get install perl"), "{check}");
    let notes = suite["notes"].to_string();
    assert!(notes.contains("1 of the victims skipped"), "{notes}");

    let output = scratch.command(&["--quick", "--filter", "perl"]).env("PATH", &bin).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("perl is not installed"), "{}", text(&output.stderr));
}

/// The subreaper left orphans unreaped until the program had ended. Apache's mod_cgid waits six
/// seconds for the number of a CGI program to be free, and was killed after five.
#[test]
fn an_orphan_is_reaped_while_the_program_that_waits_for_its_number_ends() {
    let scratch = Scratch::new("orphan");
    let orphan = scratch.0.join("orphan");
    let script = "trap 'while kill -0 $(cat \"$0\") 2>/dev/null; do sleep 0.01; done; exit 9' TERM\n\
                  sh -c 'sleep 0.3 >/dev/null & echo $! >\"$0\"' \"$0\"\n\
                  echo ready; while :; do sleep 0.01; done";
    let mut subreaper = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .args(["bench", "keep", "--on-terminate", "--", "/bin/sh", "-c", script])
        .arg(&orphan)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(subreaper.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    drop(subreaper.stdin.take());
    let output = subreaper.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(9), String::new()));
}

#[test]
fn a_program_that_died_of_a_signal_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .args(["bench", "keep", "--on-input", "--", "/bin/sh", "-c", "kill -9 $$"])
        .stdin(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128 + 9));
    let said = text(&output.stderr);
    assert!(said.starts_with("forkless: /bin/sh: ") && said.contains("signal 9"), "{said}");
}

/// A server's standard output went nowhere, and redis complains there.
#[test]
fn a_victim_that_fails_says_which_one_how_and_why() {
    let scratch = Scratch::new("fails");
    let redis = scratch.0.join("redis-server");
    let script =
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho out of luck; echo and of paper >&2; exit 3\n";
    fs::write(&redis, script).unwrap();
    fs::set_permissions(&redis, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", scratch.0.display(), std::env::var("PATH").unwrap());
    let mut command = scratch.command(&["--quick", "--runs", "3", "--filter", "redis"]);
    let output = command.env("PATH", path).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let words =
        ["redis-bgsave (run)", "ended with exit status: 3 before it answered", "out of luck | and of paper"];
    for words in words {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn bad_input_and_a_missing_library_are_one_clear_line() {
    let scratch = Scratch::new("bad");
    let output = scratch.run(&["--filter", "nobody"]);
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 1));
    assert!(text(&output.stderr).contains("--list"), "{}", text(&output.stderr));

    let mut command = scratch.command(&["--filter", "localtime"]);
    let output = command.env("FORKLESS_LIBRARY", "/nonexistent").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(3), 1));
    assert!(text(&output.stderr).contains("/nonexistent"), "{}", text(&output.stderr));

    let output = scratch.run(&["--list"]);
    for name in ["c-8G", "apache-cgid", "redis-bgsave", "small-git", "break-even"] {
        assert!(text(&output.stdout).contains(name), "{name}");
    }
    assert_eq!(scratch.temporary_files(), 0);
}

#[test]
fn an_interrupted_or_killed_run_leaves_no_process_and_no_file() {
    LazyLock::force(&LIBRARY);
    for signal in ["INT", "KILL"] {
        let scratch = Scratch::new(&format!("signal-{signal}"));
        let mut child = scratch
            .command(&["--runs", "1000000", "--time", "100", "--filter", "c-64M"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Two subreapers and the two they keep, one of them through forkless run.
        assert!(wait_until(|| scratch.processes().len() >= 4), "the victims never started");
        let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(status.success());
        assert!(!child.wait().unwrap().success());
        assert!(wait_until(|| scratch.processes().is_empty()), "SIG{signal}: {:?}", scratch.processes());
        assert!(wait_until(|| scratch.temporary_files() == 0), "SIG{signal} left files");
    }
}
