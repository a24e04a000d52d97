//! `diagnose compare`: what a remedy changed, for people and for CI, and what is no report.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::support::{FORKLESS, check_against_schema, diagnose, of_kind, report_in, trial};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn()); 2] = [
        ("compare::a_remedy_and_a_regression_are_told_apart", remedy),
        ("compare::what_is_no_report_is_said_in_a_line", no_report),
    ];
    for (name, test) in tests {
        trials.push(trial(name, test));
    }
}

/// Files of one test, removed at its end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("our own folder");
        Self(folder)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).expect("our own folder");
        file
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compare(flags: &[&str], before: &Path, after: &Path) -> Output {
    let mut command = Command::new(FORKLESS);
    command.args(["diagnose", "compare"]).args(flags).args([before, after]);
    command.output().expect("forkless runs")
}

fn remedy() {
    let files = Files::new("compare-remedy");
    let (values, ..) = diagnose(&[], &["forkexec", "20", "128"]);
    let report = values.first().expect("a report").clone();
    let title = of_kind(&report, "full_fork_then_exec")["title"].as_str().expect("a title").to_owned();
    let before = files.write("before.json", report.to_string());
    let judged = |flags: &[&str], other: &Value, turned: bool| {
        let other = files.write("other.json", other.to_string());
        let (first, second) = if turned { (&other, &before) } else { (&before, &other) };
        let output = compare(flags, first, second);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        (output.status.code(), text)
    };

    let (code, text) = judged(&[], &report, false);
    assert!(code == Some(0) && text.contains("No regression."), "{text}");
    assert!(text.contains(&format!("no difference shown: {title}")), "{text}");

    let mut applied = report.clone();
    applied["findings"] = json!([]);
    let (code, text) = judged(&[], &applied, false);
    assert!(code == Some(0) && text.contains(&format!("gone: {title}")), "{text}");
    let (code, text) = judged(&[], &applied, true);
    assert!(code == Some(1) && text.contains(&format!("NEW: {title}")), "{text}");

    let mut twice = report.clone();
    for finding in twice["findings"].as_array_mut().expect("a list") {
        finding["count"] = json!(finding["count"].as_u64().expect("a count") * 2);
    }
    let (code, text) = judged(&["--json"], &twice, false);
    let comparison: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(comparison["findings"][0]["verdict"], "more_often", "{text}");
    check_against_schema(&comparison);
    let (code, _) = judged(&["--fail-on-regression", "150"], &twice, false);
    assert_eq!(code, Some(0));

    // As forkless once wrote it.
    let mut old = report.clone();
    for field in ["starts", "origins", "timeline", "command"] {
        old.as_object_mut().expect("an object").remove(field);
    }
    for finding in old["findings"].as_array_mut().expect("a list") {
        finding["process"].as_object_mut().expect("an object").remove("name");
        finding.as_object_mut().expect("an object").remove("place");
    }
    let (code, text) = judged(&[], &old, true);
    assert!(code == Some(0) && text.contains("the report before is of an older forkless"), "{text}");
}

fn no_report() {
    let files = Files::new("compare-no-report");
    let other = files.write("other.json", "{}");
    for (name, text, says) in [
        ("empty.json", &b""[..], "EOF"),
        ("object.json", b"{}", "schema"),
        ("list.json", b"[1, 2]", "schema"),
        ("new.json", br#"{"schema": 2}"#, "schema 2"),
        ("fields.json", br#"{"schema": 1, "tier": "perf"}"#, "missing field"),
        ("log.json", b"{\"call\":\"fork\"}\n{\"call\":\"fork\"}\n", "--log"),
        ("bytes.json", b"\xff\xfe\x00", "expected"),
        ("deep.json", &[b'['; 100_000], "recursion"),
    ] {
        let output = compare(&[], &files.write(name, text), &other);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(stderr.contains(says) && stderr.contains(name), "{name}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{name}: {stderr}");
    }
    // Regression: "-0.0 s", and no regression.
    let mut report = report_in("procfs", &["true"]).expect("the lowest tier");
    report["window_ns"] = json!(-5);
    let output = compare(&[], &files.write("negative.json", report.to_string()), &other);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("negative.json is no report: a watch of -5 ns is none"), "{stderr}");
    for (path, says) in [(files.0.join("gone.json"), "gone.json"), (files.0.clone(), "directory")] {
        let output = compare(&[], &path, &other);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(says) && stderr.lines().count() == 1, "{stderr}");
    }
}
