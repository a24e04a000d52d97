//! `forkless reproduce` from outside: the shape of its result, that verdicts follow from the
//! figures beside them, how it fails, and that an interrupted run leaves nothing behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use library::LIBRARY;
use scratch::{Scratch, text, wait_until};

mod library;
mod scratch;

impl Scratch {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        command.arg("reproduce").args(arguments).env("TMPDIR", self.0.join("tmp"));
        // A test installs nothing: without its program, a claim is not run.
        command.env("FORKLESS_NO_INSTALL", "1").env("FORKLESS_LIBRARY", &*LIBRARY).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// Whether a figure's whole interval is on the right side of the bound.
fn met(figures: &BTreeMap<String, [f64; 2]>, bound: &Value) -> bool {
    let [low, high] = figures[bound["figure"].as_str().unwrap()];
    let value = bound["bound"].as_f64().unwrap();
    match bound["is"].as_str().unwrap() {
        "at_least" => low >= value,
        "at_most" => high <= value,
        other => panic!("{other}"),
    }
}

/// Judges the claims again, from the figures and bounds in the result alone.
fn check_verdicts(experiment: &Value) {
    let mut figures = BTreeMap::new();
    for figure in experiment["figures"].as_array().unwrap() {
        let value = figure["value"].as_f64().unwrap();
        let bounds = match figure["ci95"].as_array() {
            Some(ends) => [ends[0].as_f64().unwrap(), ends[1].as_f64().unwrap()],
            None => [value; 2],
        };
        assert!(bounds[0] <= value && value <= bounds[1], "{figure}");
        figures.insert(figure["name"].as_str().unwrap().to_owned(), bounds);
    }
    let claims = experiment["claims"].as_array().unwrap();
    assert!(!claims.is_empty());
    for claim in claims {
        let list = |name: &str| claim[name].as_array().unwrap().clone();
        let (holds, gone) = (list("holds_if"), list("gone_if"));
        let known = |bound: &Value| figures.contains_key(bound["figure"].as_str().unwrap());
        let expected = if !holds.iter().chain(&gone).all(known) {
            "not_run"
        } else if holds.iter().all(|bound| met(&figures, bound)) {
            "holds"
        } else if !gone.is_empty() && gone.iter().all(|bound| met(&figures, bound)) {
            "no_longer_holds"
        } else {
            "differs"
        };
        assert_eq!(claim["verdict"], expected, "{claim}");
        assert!(!claim["reason"].as_str().unwrap().is_empty(), "{claim}");
    }
}

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The parts of a result that `docs/reproduce.schema.json` does not permit.
fn against_the_schema(value: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema("reproduce.schema.json")).unwrap();
    let wrong = validator.iter_errors(value);
    wrong.map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Runs one experiment quickly and returns it.
fn quick(id: &str, claims: usize) -> Value {
    quick_with(id, &[], claims)
}

fn quick_with(id: &str, more: &[&str], claims: usize) -> Value {
    let scratch = Scratch::new(id);
    let json = scratch.0.join("result.json");
    let page = scratch.0.join("page.html");
    let files = ["--json", json.to_str().unwrap(), "--html", page.to_str().unwrap()];
    let output = scratch.run(&[&[id, "--quick", "--short"], &files[..], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(against_the_schema(&value), [""; 0]);
    let experiments = value["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 1);
    let experiment = experiments[0].clone();
    assert_eq!(experiment["id"], id);
    assert_eq!(experiment["quick"], true);
    assert!(!experiment["scaled"].as_array().unwrap().is_empty(), "a quick run says what it made smaller");
    assert_eq!(experiment["claims"].as_array().unwrap().len(), claims);
    for claim in experiment["claims"].as_array().unwrap() {
        let number = claim["id"].as_str().unwrap();
        assert!(said.contains(number), "{number} is not in: {said}");
    }
    check_verdicts(&experiment);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("</html>") && page.contains("<svg") && !page.contains("://"));
    assert_eq!(scratch.temporary_files(), 0);
    // The same result again, without measuring: each claim has the same verdict.
    let again =
        scratch.run(&["--with", json.to_str().unwrap(), "--expect", json.to_str().unwrap(), "--no-run"]);
    assert!(again.status.success());
    experiment
}

#[test]
fn the_signal_mask_experiment_counts_exactly_and_removes_the_calls() {
    let experiment = quick("E4", 4);
    let figure = |name: &str| {
        let figures = experiment["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).and_then(|figure| figure["value"].as_f64())
    };
    // Counts do not depend on how busy the machine is.
    assert_eq!(figure("sigprocmask.syscalls"), Some(1.0));
    assert_eq!(figure("clock_gettime.syscalls"), Some(0.0));
    if cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        assert_eq!(figure("ucontext.calls_per_switch"), Some(2.0));
        assert_eq!(figure("setjmp.calls_per_switch"), Some(0.0));
        assert_eq!(figure("run.calls_per_switch"), Some(0.0), "the same program, unmodified");
        // Where forkless diagnose may count system calls, it sees each call before the remedy, and
        // none after.
        match figure("mask.found") {
            Some(found) => {
                assert!((400_000.0..401_000.0).contains(&found), "{found}");
                assert_eq!(figure("mask.found_after"), Some(0.0));
            }
            None => eprintln!("skipped: forkless diagnose: {}", experiment["missing"]["mask.found"]),
        }
    }
    match figure("perl.calls") {
        Some(calls) => assert_eq!((calls, figure("perl.run_calls")), (1.0, Some(0.0))),
        None => eprintln!("skipped: Perl: {}", experiment["missing"]["perl.calls"]),
    }
}

#[test]
fn the_passes_after_a_fork_are_judged_by_their_figures() {
    let _turn = turn();
    let experiment = quick("E1", 5);
    assert!(experiment["picture"].as_str().unwrap().contains('*'));
}

#[test]
fn the_ways_to_start_a_program_are_judged_by_their_figures() {
    let experiment = quick("E5", 6);
    assert!(experiment["tables"].as_array().unwrap().len() >= 3);
}

#[test]
fn the_schema_fits_the_ledgers_that_are_kept_and_is_not_so_loose_that_everything_passes() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reproduction");
    let mut good = None;
    for entry in fs::read_dir(kept).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(against_the_schema(&value), [""; 0], "{}", path.display());
            good = Some(value);
        }
    }
    let good = good.expect("a ledger is kept in docs/reproduction");
    for (place, wrong) in [
        ("/schema", "forkless.reproduce/2".into()),
        ("/machine/cpus", 0.into()),
        ("/experiments/0/claims/0/verdict", "perhaps".into()),
        ("/experiments/0/claims/0/holds_if/0/is", "about".into()),
        ("/experiments/0/figures/0/ci95", serde_json::json!([1.0])),
        ("/experiments/0/plots/0/kind", "pie".into()),
        ("/experiments/0/tables/0/grid/lines/0/0", 1.into()),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(place).unwrap() = wrong;
        assert_eq!(against_the_schema(&bad).len(), 1, "{place}");
    }
    // Each of the two files can be used alone. Both describe the machine in the same words.
    let machine = |name: &str| schema(name)["properties"]["machine"].clone();
    assert_eq!(machine("reproduce.schema.json"), machine("bench.schema.json"));
}

#[test]
fn bad_input_is_one_clear_line_with_the_documented_exit_code() {
    let scratch = Scratch::new("bad");
    let nonsense = scratch.0.join("nonsense.json");
    fs::write(&nonsense, "{}").unwrap();
    for (arguments, needle) in [
        (&["E9"][..], "E1, E2, E3, E4, E5 and E6"),
        (&["E4", "--json", "-", "--html", "-"], "only one of"),
        (&["E4", "--json", "/nonexistent/x.json"], "/nonexistent/x.json"),
        (&["E4", "--with", "/nonexistent/x.json"], "/nonexistent/x.json"),
        (&["E4", "--expect", nonsense.to_str().unwrap()], "not a result of forkless reproduce"),
    ] {
        let output = scratch.run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(needle), "{arguments:?}: {errors}");
    }
    assert_eq!(scratch.temporary_files(), 0);
}

/// The server's experiment with a tenth of its virtual hosts. Configuration, tracer, load
/// generator, profile and pool are as at full size.
#[test]
fn the_server_experiment_measures_a_real_server_and_leaves_the_settings_as_they_were() {
    let _turn = turn();
    let before = SETTINGS.map(setting);
    let experiment = quick("E3", 7);
    assert_eq!(SETTINGS.map(setting), before);
    let figures = experiment["figures"].as_array().unwrap();
    let figure =
        |name: &str| figures.iter().find(|one| one["name"] == name).and_then(|one| one["value"].as_f64());
    if cfg!(target_arch = "x86_64") {
        let bytes = figure("entry.bytes").unwrap();
        assert!((7.9..8.5).contains(&bytes), "{bytes}");
    }
    assert!(figure("clone.r2").is_some() && figure("clone.ns_per_entry").is_some_and(|ns| ns > 0.0));
    let missing = |name: &str| experiment["missing"].get(name);
    let known = |name: &str| figure(name).unwrap_or_else(|| panic!("{name}: {experiment}"));
    for (gain, sides) in [
        ("clone.gain", ["clone.before_ms", "clone.after_ms"]),
        ("requests.gain", ["requests.before", "requests.after"]),
    ] {
        match missing(gain) {
            // Apache is missing, or the machine was so busy that it did not answer in time.
            Some(why) => eprintln!("skipped: {gain}: {why}"),
            None => assert!(sides.iter().all(|side| known(side) > 0.0), "{experiment}"),
        }
    }
    for name in ["profile.copy_percent_of_clone", "rss.after_percent", "pool.sigbus", "gigantic.serves"] {
        if let Some(why) = missing(name) {
            eprintln!("skipped: {name}: {why}");
        }
    }
}

/// Settings that experiments change.
const SETTINGS: [&str; 2] = ["transparent_hugepage/enabled", "hugepages/hugepages-2048kB/nr_hugepages"];

/// The settings are the system's: the tests whose experiments change them take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn setting(name: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/kernel/mm/{name}")).ok()
}

#[test]
fn an_interrupted_run_leaves_no_file_no_child_and_no_setting() {
    let _turn = turn();
    let before = SETTINGS.map(setting);
    let scratch = Scratch::new("interrupt");
    let mut child = scratch.command(&["E1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It has temporary files once it measures.
    wait_until(|| scratch.temporary_files() > 0);
    thread::sleep(Duration::from_millis(700));
    let pid = i32::try_from(child.id()).unwrap();
    // The experiment measures system(3), which ignores SIGINT while it waits: a SIGINT of that
    // moment is lost. The standard library cannot send SIGINT; kill(1) can.
    wait_until(|| {
        assert!(Command::new("/bin/kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
        child.try_wait().unwrap().is_some()
    });
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(2), "{status}");
    // The guard is another process, and ends a little later.
    wait_until(|| scratch.temporary_files() == 0 && SETTINGS.map(setting) == before);
    assert_eq!(scratch.temporary_files(), 0);
    assert_eq!(SETTINGS.map(setting), before);
}

/// A small store, for the shape of the result. How long anything takes here says nothing.
#[test]
fn the_snapshot_experiment_measures_a_real_redis_and_leaves_no_server_behind() {
    let _turn = turn();
    if !Path::new("/usr/bin/redis-server").exists() {
        let output = Scratch::new("no-redis").run(&["E6", "--quick"]);
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output.stderr).contains("redis-server is not installed"), "{}", text(&output.stderr));
        println!("skipped: redis-server is not installed");
        return;
    }
    let before = SETTINGS.map(setting);
    let experiment = quick_with("E6", &["--memory", "64M"], 4);
    assert_eq!(SETTINGS.map(setting), before);
    let figures = experiment["figures"].as_array().unwrap();
    let figure =
        |name: &str| figures.iter().find(|one| one["name"] == name).and_then(|one| one["value"].as_f64());
    for pattern in ["uniform", "skewed"] {
        for metric in ["p50", "p99", "p999", "max", "between_p999", "fork_ms", "copied_mib", "resident_mib"] {
            let name = format!("{pattern}.plain.{metric}");
            assert!(figure(&name).is_some_and(|value| value > 0.0), "{name}: {experiment}");
        }
        let rank = |name: &str| figure(&format!("{pattern}.plain.{name}")).unwrap();
        assert!(rank("p50") <= rank("p99") && rank("p99") <= rank("p999") && rank("p999") <= rank("max"));
    }
    match experiment["missing"].get("uniform.gain") {
        Some(why) => eprintln!("skipped: uniform.gain: {why}"),
        // A write copies small pages, with huge pages as without.
        None => assert!(figure("uniform.copied").is_some_and(|ratio| ratio < 4.0), "{experiment}"),
    }
}

/// The ledger of a machine that is kept in the guide.
fn ledger() -> Value {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction");
    let mut files = fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path());
    let whole = files.find_map(|path| {
        let value: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
        (value["experiments"].as_array()?.len() > 1).then_some(value)
    });
    whole.expect("a ledger of several experiments is kept")
}

fn write(scratch: &Scratch, name: &str, value: &Value) {
    fs::write(scratch.0.join(name), value.to_string()).unwrap();
}

#[test]
fn an_expected_verdict_is_the_one_that_was_written() {
    let scratch = Scratch::new("gates-expect");
    let whole = ledger();
    write(&scratch, "whole.json", &whole);
    let expect = |with: &str, expected: &str| {
        let output = scratch
            .command(&["--no-run", "--short", "--with", with, "--expect", expected])
            .current_dir(&scratch.0)
            .output()
            .unwrap();
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(expect("whole.json", "whole.json"), (Some(0), String::new()));
    let claims = whole["experiments"][0]["claims"].as_array().unwrap();
    let (index, claim) =
        claims.iter().enumerate().find(|(_, claim)| claim["verdict"] == "holds").expect("a claim holds");
    let mut other = whole.clone();
    other["experiments"][0]["claims"][index]["verdict"] = "differs".into();
    write(&scratch, "other.json", &other);
    let said = format!("forkless: {}: holds, was: differs\n", claim["id"].as_str().unwrap());
    assert_eq!(expect("whole.json", "other.json"), (Some(1), said));
}

#[test]
fn nothing_in_common_with_what_is_expected_is_refused() {
    let scratch = Scratch::new("gates-common");
    let whole = ledger();
    let experiments = whole["experiments"].as_array().unwrap();
    for (name, at) in [("first.json", 0), ("second.json", 1)] {
        let mut one = whole.clone();
        one["experiments"] = serde_json::json!([experiments[at]]);
        write(&scratch, name, &one);
    }
    let line = ["--no-run", "--with", "first.json", "--expect", "second.json"];
    let output = scratch.command(&line).current_dir(&scratch.0).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    let (one, other) = (experiments[0]["id"].as_str().unwrap(), experiments[1]["id"].as_str().unwrap());
    let said = format!("no verdict of {one} in it, so nothing would be compared; it has: {other}");
    assert!(errors.contains(&said) && errors.lines().count() == 1, "{errors}");
}

/// Regression: the ledger was 113 columns wide, and a table of flags 111.
#[test]
fn a_piped_article_is_a_hundred_columns_wide_and_leaves_nothing_out() {
    let scratch = Scratch::new("reproduce-width");
    let kept =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction/2026-11-22-linux-6.18-x86_64.json");
    for short in [false, true] {
        let mut command = scratch.command(&["--no-run", "--with", kept]);
        let output = command.args(short.then_some("--short")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let article = text(&output.stdout);
        let wide: Vec<&str> = article.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(!article.contains("left out here"), "{article}");
        if !short {
            assert!(article.contains("CLONE_CLEAR_SIGHAND") && article.contains("and why"), "{article}");
        }
    }
}
