//! Builds the program, runs the tool on it, and reads what both print.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError, RwLock};

use libtest_mimic::{Completion, Trial};
use serde_json::Value;

#[path = "../wait/mod.rs"]
mod wait;

pub(crate) use wait::wait_until;

pub(crate) const FORKLESS: &str = env!("CARGO_BIN_EXE_forkless");

/// The reason why these tests cannot run here, if there is one.
pub(crate) fn missing() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the BPF programs read x86-64 registers".into());
    }
    if known_problem().is_none() {
        return Some("no C compiler: install gcc or clang as cc".into());
    }
    // The tool itself names what it lacks.
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--log", "-d", "0.1", "--all"])
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    (output.status.code() == Some(3)).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The compiled program; `None` without a compiler.
pub(crate) fn known_problem() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let source =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/known_problem.c");
            let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("known_problem");
            // Without frame pointers, as distributions build. Stacks must be complete all the same.
            let status = Command::new("cc")
                .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fomit-frame-pointer", "-o"])
                .arg(&binary)
                .arg(source)
                .status();
            match status {
                Ok(status) => {
                    assert!(status.success(), "fixtures/diagnose/known_problem.c does not compile");
                    Some(binary)
                }
                Err(_) => None,
            }
        })
        .as_deref()
}

/// A program of `fixtures/diagnose`, compiled once: another test may be running it. `None` without
/// a compiler.
pub(crate) fn program(source: &str) -> Option<PathBuf> {
    static COMPILED: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = compiled.get_or_insert_default();
    if let Some(binary) = compiled.get(source) {
        return Some(binary.clone());
    }
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.strip_suffix(".c")?);
    let status = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fomit-frame-pointer", "-pthread", "-o"])
        .arg(&binary)
        .arg(fixture(source))
        .status()
        .ok()?;
    assert!(status.success(), "{source} does not compile");
    compiled.insert(source.to_owned(), binary.clone());
    Some(binary)
}

/// The last line of standard output that the program printed about itself.
pub(crate) struct Truth(pub(crate) Value);

impl Truth {
    pub(crate) fn ns(&self, name: &str) -> f64 {
        self.0[name].as_f64().expect("the program prints it")
    }
}

static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let schema = include_str!("../../../../docs/diagnose.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    jsonschema::validator_for(&schema).expect("a schema")
});

/// Whether an output is as docs/diagnose.schema.json describes it.
pub(crate) fn has_schema(value: &Value) -> bool {
    SCHEMA.is_valid(value)
}

/// Fails if an output is not as docs/diagnose.schema.json describes it.
#[track_caller]
pub(crate) fn check_against_schema(value: &Value) {
    let errors: Vec<String> =
        SCHEMA.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{}: {value}", errors.join("; "));
}

/// Runs `forkless diagnose FLAGS -- program ARGUMENTS` with JSON output, and checks its schema.
pub(crate) fn diagnose(flags: &[&str], arguments: &[&str]) -> (Vec<Value>, Truth, Output) {
    let output = Command::new(FORKLESS)
        .arg("diagnose")
        .arg("--json")
        .args(flags)
        .arg("--")
        .arg(known_problem().expect("checked before"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let mut values = Vec::new();
    let mut truth = None;
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if value.get("wall_ns").is_some() { truth = Some(Truth(value)) } else { values.push(value) }
    }
    values.iter().for_each(check_against_schema);
    let stderr = String::from_utf8_lossy(&output.stderr);
    (values, truth.unwrap_or_else(|| panic!("the program said nothing; {stderr}")), output)
}

/// `actual` within `share` of `expected`.
#[track_caller]
pub(crate) fn assert_near(what: &str, actual: f64, expected: f64, share: f64) {
    assert!(
        (actual - expected).abs() <= expected.abs() * share,
        "{what}: {actual} is not within {:.0} % of {expected}",
        share * 100.0
    );
}

/// Ids of the BPF programs in the kernel, by bpf(2) through the tool's own loader.
pub(crate) fn bpf_programs() -> Vec<u32> {
    let mut ids: Vec<u32> = aya::programs::loaded_programs().flatten().map(|info| info.id()).collect();
    ids.sort_unstable();
    ids
}

/// Ids of the BPF maps in the kernel.
pub(crate) fn bpf_maps() -> Vec<u32> {
    let mut ids: Vec<u32> = aya::maps::loaded_maps().flatten().map(|info| info.id()).collect();
    ids.sort_unstable();
    ids
}

/// A report for people without the breaks of its lines: what goes on begins farther in than labels.
pub(crate) fn unfolded(text: &str) -> String {
    let mut whole = String::new();
    for line in text.lines() {
        let goes_on = line.starts_with("  ") && line.as_bytes().get(3).is_none_or(|byte| *byte == b' ');
        let goes_on = goes_on || line.starts_with("  ") && !line.starts_with("   ");
        whole += if goes_on { " " } else { "\n" };
        whole += if goes_on { line.trim_start() } else { line };
    }
    whole.trim_start_matches('\n').to_owned() + "\n"
}

/// The report's only finding.
#[track_caller]
pub(crate) fn only(report: &Value, kind: &str) -> Value {
    let findings = report["findings"].as_array().expect("a list");
    let titles: Vec<&Value> = findings.iter().map(|finding| &finding["title"]).collect();
    assert_eq!(findings.len(), 1, "{titles:?}: {report}");
    assert_eq!(findings[0]["kind"], kind, "{titles:?}: {report}");
    findings[0].clone()
}

/// The report's finding of this kind, whatever else a busy machine makes the report find.
#[track_caller]
pub(crate) fn of_kind(report: &Value, kind: &str) -> Value {
    let findings = report["findings"].as_array().expect("a list");
    let finding = findings.iter().find(|finding| finding["kind"] == kind);
    finding.unwrap_or_else(|| panic!("no {kind}: {report}")).clone()
}

/// The value of a fact, if it is there.
pub(crate) fn fact<'f>(finding: &'f Value, what: &str) -> Option<&'f str> {
    let evidence = finding["evidence"].as_array().expect("a list");
    evidence.iter().find(|fact| fact["what"] == what).and_then(|fact| fact["value"].as_str())
}

/// The named functions of a finding's stack.
pub(crate) fn functions(finding: &Value) -> Vec<&str> {
    let frames = finding["stack"].as_array().expect("a list");
    frames.iter().filter_map(|frame| frame["function"].as_str()).collect()
}

/// A program of PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Waits until the last program of the tool's watch is attached. For the sake of pipes the tool
/// prints nothing when it begins. So the links that it holds are looked up: other watches on the
/// machine have programs of the same names. The programs that the tool loads first, to learn what
/// the kernel accepts, are not attached.
#[track_caller]
pub(crate) fn wait_for_program(tool: &Child, last: &str) {
    let attached = || attached_programs(tool.id()).iter().any(|name| name == last);
    assert!(wait_until(attached), "the programs never appeared");
}

/// The names of the programs to which a process holds links, by the `prog_id` of its descriptors in
/// /proc.
fn attached_programs(pid: u32) -> Vec<String> {
    let links: Vec<u32> = std::fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .filter(|info| info.contains("link_type:"))
        .filter_map(|info| info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect();
    let programs = aya::programs::loaded_programs().flatten().filter(|info| links.contains(&info.id()));
    programs.filter_map(|info| info.name_as_str().map(str::to_owned)).collect()
}

/// Waits until no program and no map is left that was not there before. The kernel frees programs
/// after a grace period, those of an earlier watch too.
#[track_caller]
pub(crate) fn settled(before: &(Vec<u32>, Vec<u32>)) {
    let (mut new_programs, mut new_maps) = (Vec::new(), Vec::new());
    let gone = wait_until(|| {
        new_programs = bpf_programs().into_iter().filter(|id| !before.0.contains(id)).collect();
        new_maps = bpf_maps().into_iter().filter(|id| !before.1.contains(id)).collect();
        new_programs.is_empty() && new_maps.is_empty()
    });
    assert!(gone, "left: programs {new_programs:?}, maps {new_maps:?}");
}

thread_local! {
    /// Why the test of this thread did not run, or not to its end.
    static SKIPS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Counts the test as ignored, since it does not run, or not to its end.
pub(crate) fn skip(why: impl std::fmt::Display) {
    let why = why.to_string().trim().replace('\n', " ");
    SKIPS.with_borrow_mut(|skips| skips.push(why));
}

/// Tests run beside each other, but for those of [`alone`].
static MACHINE: RwLock<()> = RwLock::new(());

/// A test that fails by a panic.
pub(crate) fn trial(name: &str, test: fn()) -> Trial {
    ignorable(name, move || {
        let _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        test();
    })
}

/// A test that no other one may run beside: it watches the whole machine, asks what the kernel
/// still holds, or goes by the clock.
pub(crate) fn alone(name: &str, test: fn()) -> Trial {
    ignorable(name, move || {
        let _own = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        test();
    })
}

/// A test that says afterwards whether it ran to its end.
fn ignorable(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || {
        SKIPS.take();
        test();
        let skips = SKIPS.take();
        Ok(if skips.is_empty() { Completion::Completed } else { Completion::ignored_with(skips.join("; ")) })
    })
}

/// Tests with what each of them needs on this machine.
pub(crate) fn add_needing(trials: &mut Vec<Trial>, tests: &[(&str, fn(), &str)]) {
    for &(name, test, needs) in tests {
        let missing = find(needs).is_none();
        if missing {
            eprintln!("{name}: ignored, no {needs}");
        }
        trials.push(trial(name, test).with_ignored_flag(missing));
    }
}

/// A file of `fixtures/diagnose`.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose").join(name);
    path.canonicalize().expect("it is there").to_string_lossy().into_owned()
}

/// The report of a tier about a command; `None`, and a skip, if this machine lacks the tier.
/// The least share is 0: on a busy machine a watch is long, and a finding is a small part of it.
#[track_caller]
pub(crate) fn report_in(tier: &str, command: &[&str]) -> Option<Value> {
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--min-share", "0", "--tier", tier, "--"])
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    if output.status.code() == Some(3) {
        skip(format!("no tier {tier} here"));
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let report = serde_json::from_str(last).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr));
    });
    check_against_schema(&report);
    Some(report)
}
