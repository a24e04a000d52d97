//! `forkless bench` from outside: its output, the files that it writes, its errors, and that
//! nothing stays behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use scratch::{Scratch, text, wait_until};

mod scratch;

impl Scratch {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        command.args(arguments).env("XDG_DATA_HOME", self.0.join("data")).env("TMPDIR", self.0.join("tmp"));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

const SPAWN: [&str; 6] = ["bench", "spawn", "--runs", "10", "--methods", "vfork_exec,posix_spawn"];

#[test]
fn json_goes_to_standard_output_alone_and_has_the_promised_shape() {
    let scratch = Scratch::new("json");
    let output = scratch.run(&[&SPAWN[..], &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], "forkless.bench/1");
    assert!(value["machine"]["fingerprint"].is_string());
    let suite = &value["suites"][0];
    assert_eq!(suite["name"], "spawn");
    let rows = suite["rows"].as_array().unwrap();
    for metric in ["wall", "blocked", "first", "cpu_total", "cpu_user", "cpu_system"] {
        let row = rows.iter().find(|row| row["method"] == "vfork_exec" && row["metric"] == metric).unwrap();
        assert_eq!(row["params"]["rss"], 0);
        assert_eq!(row["unit"], "us");
        assert!(
            row["p05"].as_f64() <= row["median"].as_f64() && row["median"].as_f64() <= row["p95"].as_f64()
        );
        let [low, high] = [0, 1].map(|index| row["ci95"][index].as_f64().unwrap());
        assert!(low <= high);
        assert!(!row["samples"].as_array().unwrap().is_empty());
    }
}

/// Regression: the command's handler for SIGXFSZ gave each line a shell, and the rows were "limited
/// by the kernel's work for clone, exec and exit".
#[test]
#[cfg(target_os = "linux")]
fn a_line_that_needs_no_shell_is_measured_without_one() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: no strace");
        return;
    }
    if fs::canonicalize("/bin/sh").ok() != fs::canonicalize("/bin/dash").ok() {
        println!("skipped: /bin/sh is not dash, which waits");
        return;
    }
    let scratch = Scratch::new("lines");
    let trace = scratch.0.join("trace");
    let methods = ["forkless_system", "forkless_popen"];
    for threads in ["1", "2"] {
        let output = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=execve", "-o"])
            .arg(&trace)
            .args([env!("CARGO_BIN_EXE_forkless"), "bench", "spawn", "--runs", "10", "--json", "-"])
            .args(["--methods", &methods.join(","), "--threads", threads, "--no-save"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let trace = fs::read_to_string(&trace).unwrap();
        // One shell in each process tells which shell it is.
        let of_child =
            || trace.lines().filter(|line| line.contains("execve(") && line.contains("forkless-bench-"));
        assert!(of_child().count() >= 20, "{trace}");
        assert_eq!(of_child().filter(|line| line.contains("/bin/sh")).count(), 0, "{trace}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for row in value["suites"][0]["rows"].as_array().unwrap() {
            let limit = row["limit"].as_str().unwrap();
            assert!(limit.starts_with("the kernel's work for clone, exec and exit"), "{row}");
        }
    }
}

#[test]
fn results_are_saved_by_default_and_not_with_no_save() {
    let scratch = Scratch::new("save");
    let saved = || fs::read_dir(scratch.0.join("data/forkless/bench")).map_or(0, |entries| entries.count());
    assert!(scratch.run(&[&SPAWN[..], &["--no-save"]].concat()).status.success());
    assert_eq!(saved(), 0);
    let output = scratch.run(&SPAWN);
    assert!(text(&output.stdout).contains("saved as"), "{}", text(&output.stdout));
    assert_eq!(saved(), 1);
    assert_eq!(scratch.temporary_files(), 0);
}

#[test]
fn a_home_that_cannot_be_written_costs_one_line_and_not_the_result() {
    let scratch = Scratch::new("readonly");
    let output = scratch.command(&SPAWN).env("XDG_DATA_HOME", "/proc/nowhere").output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("vfork_exec"));
    let errors = text(&output.stderr);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("not saved"), "{errors}");
}

#[test]
fn bad_input_is_one_clear_line_with_the_documented_exit_code() {
    let scratch = Scratch::new("bad");
    for (arguments, code, needle) in [
        (&["--methods", "vfork"][..], 2, "there are: vfork_exec"),
        (&["--filter", "nothing"], 2, "leaves no method"),
        (&["--json", "-", "--csv", "-"], 2, "only one of"),
        (&["--json", "/nonexistent/x.json"], 2, "/nonexistent/x.json"),
        (&["--child", "relative"], 2, "absolute path"),
        (&["--child", "/bin/false"], 2, "must exit with 0"),
        (&["--child", "/nonexistent/program"], 2, "cannot run the child program /nonexistent/program"),
        (&["--rss", "60T"], 3, "ask for at most"),
        (&["--rss", "900T"], 2, "more than 64T"),
        (&["--fds", "100000000"], 3, "hard limit"),
        (&["--pin", "4000"], 2, "no processor 4000"),
        (&["--time", "nan"], 2, "not a number of seconds"),
    ] {
        let output = scratch.run(&[&["bench", "spawn"][..], arguments].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
        assert!(errors.contains(needle), "{arguments:?}: {errors}");
    }
    assert_eq!(scratch.temporary_files(), 0);
}

#[test]
fn a_killed_or_interrupted_run_leaves_no_file_behind() {
    for signal in ["KILL", "INT", "TERM"] {
        let scratch = Scratch::new(&format!("kill-{signal}"));
        let mut child = scratch
            .command(&["bench", "spawn", "--runs", "10000000", "--methods", "vfork_exec"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(wait_until(|| scratch.temporary_files() > 0), "the child program was never written");
        let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(status.success());
        assert!(!child.wait().unwrap().success());
        assert!(
            wait_until(|| scratch.temporary_files() == 0),
            "SIG{signal} left {}",
            list(&scratch.0.join("tmp"))
        );
    }
}

fn list(directory: &Path) -> String {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    names.collect::<Vec<_>>().join(", ")
}

#[test]
fn threads_and_descriptors_are_parameters_of_the_rows() {
    let scratch = Scratch::new("threads");
    let output = scratch.run(&[&SPAWN[..], &["--threads", "2", "--fds", "100", "--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = value["suites"][0]["rows"].as_array().unwrap();
    let rate = rows.iter().find(|row| row["metric"] == "rate").unwrap();
    assert_eq!(rate["unit"], "1/s");
    assert_eq!((&rate["params"]["threads"], &rate["params"]["fds"]), (&2.into(), &100.into()));
}

#[test]
fn several_threads_and_children_are_measured_one_after_the_other() {
    let scratch = Scratch::new("sweep");
    let sweep = ["--threads", "1,3", "--child", "exit,/bin/true", "--json", "-"];
    let output = scratch.run(&[&SPAWN[..], &sweep].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = value["suites"][0]["rows"].as_array().unwrap();
    for threads in [1, 3] {
        for child in ["exit", "/bin/true"] {
            let found = rows.iter().filter(|row| {
                row["metric"] == "wall"
                    && row["params"]["threads"] == threads
                    && row["params"]["child"] == child
            });
            assert_eq!(found.count(), 2, "{threads} threads, {child}");
        }
    }
}

#[test]
fn restarts_of_any_suite_are_merged_with_their_fits() {
    let scratch = Scratch::new("restarts");
    let memory =
        ["bench", "memory", "--sizes", "0,4M,8M", "--pages", "base", "--runs", "30", "--restarts", "3"];
    let output = scratch.run(&[&memory[..], &["--methods", "vfork_exec,fork_exec", "--json", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let suite = &value["suites"][0];
    assert_eq!(suite["rows"][0]["restarts"].as_array().unwrap().len(), 3);
    // A parent of 8 MiB is compared with itself, not with a parent without memory.
    let ratio = |used: u64| {
        let rows = suite["rows"].as_array().unwrap();
        let of = |method: &str| {
            let found = rows.iter().find(|row| {
                row["method"] == method && row["metric"] == "wall" && row["params"]["used"] == used
            });
            found.unwrap()
        };
        let expected =
            of("fork_exec")["median"].as_f64().unwrap() / of("vfork_exec")["median"].as_f64().unwrap();
        (of("fork_exec")["ratio"]["value"].as_f64().unwrap(), expected)
    };
    for used in [0, 8 << 20] {
        let (found, expected) = ratio(used);
        assert!((found / expected - 1.0).abs() < 1e-3, "{used}: {found} {expected}");
    }
    let fits = suite["fits"].as_array().unwrap();
    assert!(fits.iter().any(|fit| fit["method"] == "fork_exec" && fit["metric"] == "wall"), "{fits:?}");
}

#[test]
fn several_results_are_compared_in_one_table() {
    let scratch = Scratch::new("several");
    let path = |name: &str| scratch.0.join(name).display().to_string();
    let files = ["a", "b", "c"].map(path);
    for file in &files {
        assert!(scratch.run(&[&SPAWN[..], &["--json", file]].concat()).status.success());
    }
    let output = scratch.run(&["compare", &files[0], &files[1], &files[2], "--metric", "wall", "--markdown"]);
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let head = table.lines().find(|line| line.starts_with("| spawn: method")).unwrap_or_default();
    assert!(head.contains("B / A") && head.contains("C / A"), "{table}");
    // The head, its rule, and a line for each of the two methods.
    assert_eq!(table.lines().filter(|line| line.starts_with('|')).count(), 4, "{table}");
    let output = scratch.run(&["compare", "published", "published:solaris"]);
    assert!(text(&output.stdout).contains("yardstick"), "{}", text(&output.stderr));
    assert_eq!(scratch.run(&["compare", "published", "published:plan9"]).status.code(), Some(2));
}

#[test]
fn a_result_is_compared_with_the_published_tables_call_by_call() {
    let scratch = Scratch::new("published");
    let file = scratch.0.join("calls.json").display().to_string();
    let calls = ["--calls", "vfork,fork,fstat,vfork+execve", "--runs", "20", "--no-save"];
    let output = scratch.run(&[&["bench", "syscalls", "--json", &file], &calls[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (system, version) in [("published", "Linux 2.6.32"), ("published:macosx", "Mac OS X 10.7.5")] {
        let output = scratch.run(&["compare", &file, system]);
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains(version), "{said}{}", text(&output.stderr));
        let output = scratch.run(&["compare", &file, system, "--json"]);
        let changes: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut methods: Vec<&str> =
            changes.as_array().unwrap().iter().map(|change| change["method"].as_str().unwrap()).collect();
        methods.sort_unstable();
        methods.dedup();
        assert_eq!(methods, ["fork", "fstat", "vfork", "vfork+execve"]);
    }
}

#[test]
fn results_can_be_compared_listed_and_judged() {
    let scratch = Scratch::new("compare");
    let save = |path: &str| {
        let output = scratch.run(&[&SPAWN[..], &["--restarts", "3", "--json", path]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let path = |name: &str| scratch.0.join(name).display().to_string();
    let (a, b) = (path("a.json"), path("b.json"));
    save(&a);
    save(&b);

    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&a).unwrap()).unwrap();
    assert_eq!(value["suites"][0]["rows"][0]["restarts"].as_array().unwrap().len(), 3);

    let output = scratch.run(&["compare", &a, &b]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("whole restarts"), "{}", text(&output.stdout));

    // The facts that a run records about its machine are not lost on the way.
    let mut noisy = value;
    noisy["created"] = 1.into();
    noisy["suites"][0]["notes"] =
        serde_json::json!(["noisy: other processes used 88.7 % of the processor time", "a note"]);
    let file = path("noisy.json");
    fs::write(&file, noisy.to_string()).unwrap();
    let output = scratch.run(&["compare", &b, &file]);
    let shown = text(&output.stdout);
    let noisy = "  noisy: other processes used 88.7 % of the processor time";
    assert!(shown.lines().skip_while(|line| !line.starts_with("B = ")).any(|line| line == noisy), "{shown}");
    // Through a pipe nothing is wider than a page of code, but the name of a file may be.
    let name = scratch.0.display().to_string();
    let long = shown.lines().find(|line| line.chars().count() > 100 && !line.contains(&name));
    assert_eq!(long, None, "{shown}");

    // Two methods of one file were interleaved.
    let methods = [format!("{a}#vfork_exec"), format!("{a}#posix_spawn")];
    let output = scratch.run(&["compare", &methods[0], &methods[1], "--json"]);
    let changes: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(changes.as_array().unwrap().iter().all(|change| change["comparison"] == "interleaved"));

    let output = scratch.run(&["compare", "published", &a, "--markdown"]);
    assert!(text(&output.stdout).contains("yardstick"), "{}", text(&output.stdout));

    let output = scratch.run(&["history"]);
    assert_eq!(text(&output.stdout).lines().count(), 2, "{}", text(&output.stdout));
    for (form, beginning) in [("csv", "suite,method"), ("html", "<!doctype html>"), ("markdown", "### spawn")]
    {
        let output = scratch.run(&["history", &a, "--format", form]);
        assert!(text(&output.stdout).starts_with(beginning), "{form}: {}", text(&output.stderr));
    }
    let output = scratch.run(&["history", "latest", "--format", "json"]);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["schema"],
        "forkless.bench/1"
    );
    let output = scratch.run(&["compare", "latest", "nothing-begins-so"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    let output = scratch.run(&["compare", &a, &a]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("are the same run"), "{}", text(&output.stderr));
}

#[test]
fn a_regression_beyond_the_limit_is_exit_code_1() {
    let scratch = Scratch::new("regression");
    let path = |name: &str| scratch.0.join(name).display().to_string();
    let (a, b) = (path("a.json"), path("b.json"));
    let arguments =
        ["bench", "spawn", "--runs", "90", "--methods", "vfork_exec", "--restarts", "3", "--json", &a];
    assert!(scratch.run(&arguments).status.success());
    // A steady result, and the same five times slower. A result measured beside other tests may be
    // too noisy to tell.
    let mut value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&a).unwrap()).unwrap();
    for (path, factor) in [(&a, 1.0), (&b, 5.0)] {
        for row in value["suites"][0]["rows"].as_array_mut().unwrap() {
            let samples = row["samples"].as_array_mut().unwrap();
            for (i, figure) in samples.iter_mut().enumerate() {
                *figure = (f64::from(80 + i as u32 % 10) * factor).into();
            }
            let mut sorted: Vec<f64> = samples.iter().map(|sample| sample.as_f64().unwrap()).collect();
            sorted.sort_unstable_by(f64::total_cmp);
            row["median"] = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]).into();
        }
        fs::write(path, value.to_string()).unwrap();
    }
    let compare = |first: &str, second: &str| {
        scratch
            .run(&["compare", first, second, "--metric", "wall", "--fail-on-regression", "50"])
            .status
            .code()
    };
    assert_eq!(compare(&a, &b), Some(1));
    assert_eq!(compare(&b, &a), Some(0));
}

fn schema_in_docs() -> jsonschema::Validator {
    let schema =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.schema.json")).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap()
}

/// Runs a suite. If it cannot run here, prints one line with the reason.
fn writes_what_the_schema_describes(suite: &[&str]) -> Result<(), String> {
    let scratch = Scratch::new("schema");
    let page = scratch.0.join("page.html").display().to_string();
    let output =
        scratch.run(&[&["bench"], suite, &["--runs", "20", "--json", "-", "--html", &page]].concat());
    let stderr = text(&output.stderr);
    if output.status.code() == Some(3) {
        return Err(stderr);
    }
    assert!(output.status.success(), "{suite:?}: {stderr}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors: Vec<String> = schema_in_docs()
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{suite:?}: {}", errors.join("; "));
    assert!(fs::read_to_string(&page).unwrap().contains("</html>"));
    Ok(())
}

#[test]
fn every_suite_writes_what_the_schema_in_docs_describes() {
    for suite in [
        &["spawn", "--methods", "vfork_exec,fork_exec", "--restarts", "2"][..],
        &["memory", "--sizes", "0,4M,8M", "--pages", "base", "--methods", "vfork_exec,fork_exec"],
        &["cow", "--count", "500", "--pages", "base"],
        &["syscalls", "--calls", "getpid,fork,vfork,execve,fork+execve,vfork+execve"],
        &["context", "--filter", "localtime"],
        &["all", "--suites", "syscalls,context", "--filter", "getpid,localtime_r"],
    ] {
        assert_eq!(writes_what_the_schema_describes(suite), Ok(()));
    }
    // The schema must also reject something.
    assert!(!schema_in_docs().is_valid(&serde_json::json!({"schema": "forkless.bench/1", "suites": [{}]})));
}

/// A container's root is an overlay, whose reads no block device counts: there is nothing to
/// measure.
#[test]
fn writes_by_size_are_what_the_schema_in_docs_describes() {
    let suite = ["blockwrite", "--targets", "file", "--bs", "512,4096", "--size", "64K"];
    if let Err(why) = writes_what_the_schema_describes(&suite) {
        assert!(why.contains("is not on one block device"), "{why}");
        println!("skipped: {}", why.trim());
    }
}
