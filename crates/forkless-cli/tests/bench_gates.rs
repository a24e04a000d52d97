//! Gates that have nothing to judge: each says so in one line, and none passes. The files are made
//! of one result, so no verdict depends on a clock.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use scratch::{Scratch, text, wait_until};

mod scratch;

impl Scratch {
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        command.args(arguments).current_dir(&self.0).env("XDG_DATA_HOME", self.0.join("data"));
        command.env("TMPDIR", self.0.join("tmp"));
        command.output().unwrap()
    }

    /// Measures two methods, and keeps the result as `one.json`.
    fn measure(&self) -> Value {
        let line = ["bench", "spawn", "--no-save", "--methods", "vfork_exec,forkless", "--runs", "40"];
        let output = self.run(&[&line[..], &["--restarts", "1", "--json", "one.json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(wait_until(|| self.temporary_files() == 0));
        serde_json::from_str(&fs::read_to_string(self.0.join("one.json")).unwrap()).unwrap()
    }

    fn write(&self, name: &str, value: &Value) {
        fs::write(self.0.join(name), value.to_string()).unwrap();
    }

    /// The exit code and the standard error of a gate between `one.json` and another.
    fn gate(&self, other: &str, more: &[&str]) -> (Option<i32>, String) {
        let line = ["compare", "one.json", other, "--fail-on-regression", "10"];
        let output = self.run(&[&line[..], more].concat());
        let errors = text(&output.stderr);
        (output.status.code(), errors)
    }
}

fn rows(value: &mut Value) -> &mut Vec<Value> {
    value["suites"][0]["rows"].as_array_mut().unwrap()
}

/// Multiplies a method's figures.
fn scale(value: &mut Value, method: &str, factor: f64) {
    for row in rows(value).iter_mut().filter(|row| row["method"] == method) {
        row["median"] = (row["median"].as_f64().unwrap() * factor).into();
        for sample in row["samples"].as_array_mut().unwrap() {
            *sample = (sample.as_f64().unwrap() * factor).into();
        }
    }
}

#[test]
fn figures_without_a_verdict_are_refused_before_a_gate_passes_them() {
    let scratch = Scratch::new("gates-worlds");
    let mut slower = scratch.measure();
    scale(&mut slower, "forkless", 3.0);
    scratch.write("slower.json", &slower);
    let (code, errors) = scratch.gate("slower.json", &[]);
    assert_eq!(code, Some(1), "{errors}");
    slower["machine"]["emulator"] = "qemu TCG".into();
    scratch.write("emulated.json", &slower);
    for (other, whose) in [("emulated.json", "of an emulator"), ("published:linux", "of another machine")] {
        let (code, errors) = scratch.gate(other, &[]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(&format!("the figures of {other} are {whose}")), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(scratch.run(&["compare", "one.json", other]).status.success());
    }
}

#[test]
fn a_figure_that_is_gone_is_named_and_fails_the_gate() {
    let scratch = Scratch::new("gates-gone");
    let mut fewer = scratch.measure();
    rows(&mut fewer).retain(|row| row["method"] != "forkless");
    scratch.write("fewer.json", &fewer);
    let (code, errors) = scratch.gate("fewer.json", &[]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("fewer.json lacks figures of one.json: forkless (blocked, "), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    // What is new is not gone, and what was not asked for neither.
    let new = scratch.run(&["compare", "fewer.json", "one.json", "--fail-on-regression", "10"]);
    assert_eq!((new.status.code(), text(&new.stderr)), (Some(0), String::new()));
    let mut unmetered =
        serde_json::from_str(&fs::read_to_string(scratch.0.join("one.json")).unwrap()).unwrap();
    rows(&mut unmetered).retain(|row| row["metric"] != "blocked");
    scratch.write("unmetered.json", &unmetered);
    assert_eq!(scratch.gate("unmetered.json", &[]).0, Some(1));
    assert_eq!(scratch.gate("unmetered.json", &["--metric", "wall"]), (Some(0), String::new()));
    // Without a gate it is a remark of the table, and beside JSON a line.
    let table = scratch.run(&["compare", "one.json", "fewer.json"]);
    let said = text(&table.stdout);
    assert!(table.status.success() && said.contains("  lacks figures of A: forkless ("), "{said}");
    assert_eq!(text(&table.stderr), "");
    let json = scratch.run(&["compare", "one.json", "fewer.json", "--json"]);
    assert!(json.status.success() && text(&json.stderr).contains("fewer.json lacks figures of one.json"));
}

#[test]
fn a_figure_without_an_interval_fails_the_gate() {
    let scratch = Scratch::new("gates-interval");
    let one = scratch.measure();
    let mut single = one.clone();
    for row in rows(&mut single) {
        let first = row["samples"][0].clone();
        (row["per_round"], row["median"]) = (serde_json::json!([1]), first.clone());
        row["samples"] = serde_json::json!([first]);
        row.as_object_mut().unwrap().remove("restarts");
    }
    scratch.write("single.json", &single);
    let (code, errors) = scratch.gate("single.json", &["--metric", "wall"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(
        errors.contains("there are too few rounds: vfork_exec wall in single.json, forkless"),
        "{errors}"
    );
    let mut zero = one;
    scale(&mut zero, "forkless", 0.0);
    scratch.write("zero.json", &zero);
    let (code, errors) = scratch.gate("zero.json", &["--metric", "wall"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("because one side is 0: forkless wall in zero.json; "), "{errors}");
}

#[test]
fn a_file_that_contradicts_itself_is_no_result() {
    let scratch = Scratch::new("gates-contradiction");
    let one = scratch.measure();
    let faults: [(&str, Value, &str); 4] = [
        ("samples", serde_json::json!([]), "there is no sample"),
        ("samples", serde_json::json!([-1.0]), "a sample is -1.0"),
        ("per_round", serde_json::json!([7]), "the rounds have 7 samples"),
        ("median", 1e9.into(), "the median is 1000000000.0"),
    ];
    for (field, value, fault) in faults {
        let mut wrong = one.clone();
        rows(&mut wrong)[0][field] = value;
        scratch.write("wrong.json", &wrong);
        let (code, errors) = scratch.gate("wrong.json", &[]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.starts_with("forkless: wrong.json contradicts itself: of spawn "), "{errors}");
        assert!(errors.contains(fault) && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn figures_of_any_size_keep_the_table_narrow() {
    let scratch = Scratch::new("gates-huge");
    let mut huge = scratch.measure();
    scale(&mut huge, "forkless", 1e298);
    scratch.write("huge.json", &huge);
    for arguments in [&["compare", "one.json", "huge.json"][..], &["history", "huge.json"]] {
        let output = scratch.run(arguments);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
    }
}
