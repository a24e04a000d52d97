//! A finding's place is the user's line: programs of `fixtures/diagnose/sites`, whose forks come
//! from two functions. libc's place is the same for both.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{FORKLESS, add_needing};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn(), &str); 4] = [
        ("lines::of_python", || both("python3", "sites.py"), "python3"),
        ("lines::of_perl", || both("perl", "sites.pl"), "perl"),
        ("lines::of_ruby", || both("ruby", "sites.rb"), "ruby"),
        ("lines::of_bash", || both("bash", "sites.bash"), "bash"),
    ];
    add_needing(trials, &tests);
}

/// The lines that are marked, as a finding shows them.
fn marked(program: &Path) -> Vec<String> {
    let text = fs::read_to_string(program).expect("a fixture");
    let file = program.file_name().expect("a name").to_string_lossy();
    let lines = text.lines().zip(1..).filter_map(|(line, number)| {
        let (_, function) = line.split_once(" @0 ")?;
        Some(format!("{function} ({file}:{number})"))
    });
    lines.collect()
}

fn both(interpreter: &str, name: &str) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/sites").join(name);
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--min-share", "0"])
        .arg("--")
        .args([interpreter.as_ref(), program.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect(&messages);
    let marked = marked(&program);
    let mut found: Vec<String> = Vec::new();
    for finding in report["findings"].as_array().expect("a list") {
        let site = &finding["call_site"][0];
        if let Some(line) = site["line"].as_u64() {
            let file = site["module"].as_str().expect("a script").rsplit('/').next().expect("a name");
            found.push(format!("{} ({file}:{line})", site["function"].as_str().expect("a name")));
        }
        for evidence in finding["evidence"].as_array().expect("a list") {
            if evidence["what"] == "lines of the user's code, by readings" {
                let lines = evidence["value"].as_str().expect("text").split(", ");
                found.extend(lines.map(|line| line.rsplit_once(' ').expect("a count").0.to_owned()));
            }
        }
    }
    // A wrapper script's own forks are found as well, with their lines.
    found.retain(|line| line.contains(&format!("({name}:")));
    found.sort();
    found.dedup();
    let wrong: Vec<&String> = found.iter().filter(|line| !marked.contains(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report:#}");
    // What is started once may end before its caller is read.
    let missing = marked.iter().filter(|line| !line.starts_with("main ") && !found.contains(line));
    assert_eq!(missing.count(), 0, "{found:?} {marked:?}: {report:#}");
}
