//! A finding's place is the user's line: programs of `fixtures/diagnose/sites`, whose forks come
//! from two functions. libc's place is the same for both.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{FORKLESS, add_needing};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn(), &str); 10] = [
        ("lines::of_python", || both("python3", "sites.py"), "python3"),
        ("lines::of_perl", || both("perl", "sites.pl"), "perl"),
        ("lines::of_ruby", || both("ruby", "sites.rb"), "ruby"),
        ("lines::of_bash", || both("bash", "sites.bash"), "bash"),
        ("lines::of_c_inlined_or_not", || compiled("cc", &["-O2", "-g"], "sites.c"), "cc"),
        ("lines::of_c_by_old_dwarf", || compiled("cc", &["-O2", "-gdwarf-4", "-gz"], "sites.c"), "cc"),
        ("lines::of_c_by_clang", || compiled("clang", &["-O2", "-g"], "sites.c"), "clang"),
        ("lines::of_cpp", || compiled("c++", &["-O2", "-g", "-std=c++17"], "sites.cpp"), "c++"),
        ("lines::of_rust", || compiled("rustc", &["-O", "-g"], "sites.rs"), "rustc"),
        ("lines::of_debug_information_apart", apart, "objcopy"),
    ];
    add_needing(trials, &tests);
}

/// A program of these fixtures.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/sites").join(name)
}

/// Compiles a program into a folder of its own.
fn compile(compiler: &str, options: &[&str], name: &str) -> PathBuf {
    let folder = format!("sites-{compiler}-{}", options.join(""));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).expect("our own folder");
    let program = folder.join("sites");
    let status = Command::new(compiler)
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(source(name))
        .status()
        .expect("found");
    assert!(status.success(), "{name} does not compile");
    program
}

fn compiled(compiler: &str, options: &[&str], name: &str) {
    check(&[compile(compiler, options, name).as_os_str()], name);
}

/// Debug information in a file of its own, found by its name, and then by the build id. Without
/// it, the finding says so.
fn apart() {
    let program = compile("cc", &["-O2", "-g", "-Wl,--build-id"], "sites.c");
    let debug = program.with_extension("debug");
    let objcopy = |options: &[&OsStr]| {
        let status = Command::new("objcopy").args(options).status().expect("found");
        assert!(status.success(), "objcopy {options:?}");
    };
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--only-keep-debug".as_ref(), program.as_ref(), debug.as_ref()]);
    objcopy(&["--strip-all".as_ref(), link.as_ref(), program.as_ref()]);
    check(&[program.as_os_str()], "sites.c");

    // The file of another program: its build id is not this one's.
    let other = compile("cc", &["-O1", "-g", "-Wl,--build-id"], "sites.c");
    fs::copy(other, &debug).expect("our own folder");
    let report = report(&[program.as_os_str()]);
    let found = lines(&report, "sites.c");
    assert_eq!(found, Vec::<String>::new(), "{report:#}");
    let said = report.to_string();
    assert!(said.contains("no debug information: build it with -g"), "{report:#}");
}

/// The lines that are marked, as a finding shows them.
fn marked(program: &Path) -> Vec<String> {
    let text = fs::read_to_string(program).expect("a fixture");
    let file = program.file_name().expect("a name").to_string_lossy();
    let lines = text.lines().zip(1..).filter_map(|(line, number)| {
        let (_, function) = line.split_once(" @0 ")?;
        let function = function.trim_end_matches(" */");
        Some(format!("{function} ({file}:{number})"))
    });
    lines.collect()
}

fn both(interpreter: &str, name: &str) {
    check(&[interpreter.as_ref(), source(name).as_os_str()], name);
}

fn report(command: &[&OsStr]) -> Value {
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--min-share", "0"])
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).expect(&messages)
}

/// The lines of a file that a report has found.
fn lines(report: &Value, name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for finding in report["findings"].as_array().expect("a list") {
        let place = finding["place"].as_str().unwrap_or_default();
        found.push(place.to_owned());
        for evidence in finding["evidence"].as_array().expect("a list") {
            if evidence["what"].as_str().is_some_and(|what| what.starts_with("lines of the user's code, by "))
            {
                let lines = evidence["value"].as_str().expect("text").split(", ");
                found.extend(lines.map(|line| line.rsplit_once(' ').expect("a count").0.to_owned()));
            }
        }
    }
    // A wrapper script's own forks are found as well, with their lines.
    found.retain(|line| line.contains(&format!("({name}:")));
    found.sort();
    found.dedup();
    found
}

fn check(command: &[&OsStr], name: &str) {
    let report = report(command);
    let (marked, found) = (marked(&source(name)), lines(&report, name));
    let wrong: Vec<&String> = found.iter().filter(|line| !marked.contains(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report:#}");
    // What is started once may end before its caller is read.
    let missing = marked.iter().filter(|line| !line.starts_with("main ") && !found.contains(line));
    assert_eq!(missing.count(), 0, "{found:?} {marked:?}: {report:#}");
}
