//! `forkless doctor` from outside: it never fails, names every facility, and tells what a filter
//! above it refuses.

use std::process::Command;

fn doctor() -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_forkless")).args(["doctor", "--json"]).output().unwrap();
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

#[test]
fn the_table_names_the_path_in_use() {
    let output = Command::new(env!("CARGO_BIN_EXE_forkless")).arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("never with fork"), "{text}");
}
