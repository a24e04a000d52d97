//! `forkless repair`: a running process's next forks are cheaper, and nothing else happens to it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{FORKLESS, alone, known_problem, skip, trial};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn()); 6] = [
        ("repair::forks_of_a_repaired_process_are_cheaper", cheaper),
        ("repair::a_dry_run_changes_nothing", dry_run),
        ("repair::what_the_program_excludes_is_left_alone", excluded),
        ("repair::doctor_promises_what_a_repair_would_merge", promised),
        ("repair::who_may_not_is_told_what_it_takes", not_permitted),
        ("repair::a_process_that_is_not_there_is_a_usage_error", no_process),
    ];
    for (name, test) in tests {
        trials.push(trial(name, test));
    }
    // By the clock, and so for a quiet machine, as `times.rs`.
    let name = "repair::forks_of_a_repaired_process_take_a_third_of_the_time";
    trials.push(alone(name, faster).with_ignored_flag(true));
}

/// A program that has its memory and waits for SIGUSR1.
struct Waiting {
    process: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Waiting {
    fn start(mode: &str, count: &str, mib: &str) -> Self {
        Self::of(&mut Command::new(known_problem().expect("checked before")), mode, count, mib)
    }

    fn of(program: &mut Command, mode: &str, count: &str, mib: &str) -> Self {
        let mut process = program
            .args([mode, count, mib])
            .env("KNOWN_PROBLEM_WAIT", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut ready = String::new();
        out.read_line(&mut ready).expect("the program is ready");
        Self { process, out }
    }

    /// Lets it work. Returns the line that it prints about itself.
    fn finish(mut self) -> Value {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).expect("it waits for SIGUSR1");
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("it speaks UTF-8");
        assert!(self.process.wait().expect("it ends").success());
        serde_json::from_str(&text).expect("JSON")
    }
}

fn repair(program: &Waiting, flags: &[&str]) -> Value {
    let output = Command::new(FORKLESS)
        .args(["repair", "--json", "-p", &program.process.id().to_string()])
        .args(flags)
        .output()
        .expect("forkless runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A process is repaired and then forks five times. Returns its line about itself, and the report
/// of the repair.
fn repaired() -> (Value, Value) {
    let program = Waiting::start("forkexec-plain", "5", "256");
    let report = repair(&program, &[]);
    (program.finish(), report)
}

/// A page table entry of a huge page stands for 512 of small ones.
fn cheaper() {
    let (_, report) = repaired();
    assert!(report["after"]["anon_huge"].as_u64() >= Some(240 << 20), "{report}");
    assert!(report["stopped"].is_null(), "{report}");
    // Six huge pages a call, by the aim of 50 ms, however fast they were.
    let largest = report["largest_call"].as_u64().expect("bytes");
    assert!((2 << 20..=12 << 20).contains(&largest), "{report}");
}

fn faster() {
    let before = Waiting::start("forkexec-plain", "5", "256").finish();
    let (after, report) = repaired();
    let times = before["call_ns"].as_f64().expect("ns") / after["call_ns"].as_f64().expect("ns");
    assert!(times > 3.0, "only {times:.1} times cheaper: {report}");
    // The probe says the same before the program forks.
    let probe = |name: &str| report[name]["fork"]["mid"].as_f64().expect("ns");
    assert!(probe("fork_before") > 3.0 * probe("fork_after"), "{report}");
}

fn dry_run() {
    let program = Waiting::start("forkexec-plain", "1", "64");
    let report = repair(&program, &["--dry-run"]);
    assert_eq!(report["calls"], 0);
    assert!(report["asked"].as_u64() >= Some(60 << 20), "{report}");
    assert_eq!(report["before"], report["after"]);
    program.finish();
}

fn excluded() {
    let program = Waiting::start("forkexec", "1", "64");
    let report = repair(&program, &["--no-probe"]);
    assert!(report["excluded"].as_u64() >= Some(64 << 20), "{report}");
    assert_eq!(report["after"]["anon_huge"], 0);
    program.finish();
}

/// The reason that a forecast gives where the system's setting forbids huge pages.
const NONE_HERE: &str = "none could be had here for a try";

/// It promised the figure of huge pages to memory that the program keeps out of them.
fn promised() {
    let forecast = |mode: &str| {
        let program = Waiting::start(mode, "1", "64");
        let pid = program.process.id().to_string();
        let output = Command::new(FORKLESS).args(["doctor", "--json", "-p", &pid]).output();
        program.finish();
        let report: Value = serde_json::from_slice(&output.expect("forkless runs").stdout).expect("JSON");
        report["process"].clone()
    };
    let excluded = forecast("forkexec");
    let huge = &excluded["with_huge_pages"];
    assert!(huge["cost"].is_null(), "{excluded}");
    assert!(huge["why_not"].as_str().is_some_and(|why| why.contains("MADV_NOHUGEPAGE")), "{excluded}");
    let plain = forecast("forkexec-plain");
    if plain["with_huge_pages"]["why_not"] == NONE_HERE {
        return skip("this machine gives no huge pages");
    }
    let ns = |cost: &Value| cost["mid"].as_f64().expect("ns");
    assert!(ns(&plain["with_huge_pages"]["cost"]) < ns(&plain["now"]), "{plain}");
}

/// An owner was told to get CAP_SYS_PTRACE, and lacked CAP_SYS_NICE.
fn not_permitted() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to become another user");
    }
    let mut program = Command::new(known_problem().expect("checked before"));
    let program = Waiting::of(program.uid(65534).gid(65534), "forkexec-plain", "1", "64");
    let by_owner = |arguments: &[&str]| {
        let pid = program.process.id().to_string();
        let mut command = Command::new(FORKLESS);
        command.args(arguments).args(["-p", &pid]).uid(65534).gid(65534);
        command.output()
    };
    let (refused, forecast) = match (by_owner(&["repair"]), by_owner(&["doctor"])) {
        (Ok(refused), Ok(forecast)) => (refused, forecast),
        _ => return skip("another user may not execute the command"),
    };
    program.finish();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.ends_with("; run as root, or as its owner with CAP_SYS_NICE\n"), "{said}");
    assert_eq!(refused.status.code(), Some(3));
    let said = String::from_utf8_lossy(&forecast.stdout);
    if said.contains(NONE_HERE) {
        return skip("this machine gives no huge pages");
    }
    assert!(
        said.lines().any(|line| line.starts_with("   huge pages") && line.ends_with(" (as root)")),
        "{said}"
    );
}

fn no_process() {
    let output = Command::new(FORKLESS).args(["repair", "-p", "8388608"]).output().expect("forkless runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("8388608"));
}
