//! Findings: each program has its own one, with exact counts, and nothing else is found in it.

use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{FORKLESS, Truth, diagnose, functions, of_kind, only, skip, trial, unfolded};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn()); 22] = [
        ("findings::full_forks_that_exec", full_forks),
        ("findings::the_saving_of_huge_pages_is_predicted", predicted_huge_pages),
        ("findings::huge_pages_already_in_use_are_no_finding", huge_already),
        ("findings::memory_kept_out_of_huge_pages_is_no_finding", excluded_from_huge_pages),
        ("findings::who_refuses_huge_pages_is_told_so", refused_huge_pages),
        ("findings::forks_of_many_mappings", many_mappings),
        ("findings::spawns_are_no_finding", healthy),
        ("findings::shells_for_simple_lines", shells),
        ("findings::shells_that_are_needed_are_no_finding", needed_shells),
        ("findings::mask_calls_of_swapcontext", swapcontext),
        ("findings::mask_calls_of_sigsetjmp", sigsetjmp),
        ("findings::localtime_lookups", localtime),
        ("findings::constant_results", constant),
        ("findings::partial_writes_to_a_device_and_the_reads_they_cost", block_writes),
        ("findings::close_loops_and_failing_execs", loops),
        ("findings::the_text_is_short_and_has_the_evidence_on_request", text),
        ("findings::a_number_that_was_not_measured_is_absent", absent),
        ("findings::a_summary_says_who_started_what_where_nothing_is_found", summary),
        ("findings::messages_and_guide_name_the_same_capabilities", capabilities),
        ("findings::the_command_starts_as_its_user_would_start_it", started_alike),
        ("findings::in_another_pid_namespace_perf_events_take_over", pid_namespace),
        ("findings::an_unprivileged_user_gets_a_partial_report", unprivileged),
    ];
    for (name, test) in tests {
        trials.push(trial(name, test));
    }
}

/// What is found whatever its share. On a busy machine the watch takes longer, and the saving is a
/// smaller share of it.
fn report(program: &[&str]) -> (Value, Truth) {
    report_with(&["--min-share", "0"], program)
}

/// What is worth a finding.
fn report_by_default(program: &[&str]) -> (Value, Truth) {
    report_with(&[], program)
}

fn report_with(options: &[&str], program: &[&str]) -> (Value, Truth) {
    let (mut values, truth, output) = diagnose(options, program);
    assert_eq!(values.len(), 1);
    let report = values.remove(0);
    let found = !report["findings"].as_array().expect("a list").is_empty();
    assert_eq!(output.status.code(), Some(i32::from(found)));
    assert_eq!(report["totals"]["lost_ring"], 0);
    assert_eq!(report["totals"]["lost_live"], 0);
    // Regression: a watch that began after its command was shorter than that.
    let window = report["window_ns"].as_f64().expect("ns");
    assert!(window >= truth.ns("wall_ns"), "{window} ns of {}", truth.0);
    (report, truth)
}

#[track_caller]
fn nothing(report: &Value) {
    let titles: Vec<&Value> =
        report["findings"].as_array().expect("a list").iter().map(|f| &f["title"]).collect();
    assert!(titles.is_empty(), "{titles:?}");
}

/// The command of a finding about a program that was started with these arguments.
#[track_caller]
fn starts_again(finding: &Value, before: &str, arguments: &str) {
    let program = crate::support::known_problem().expect("checked before").to_string_lossy();
    assert_eq!(finding["command"], format!("{before}{program} {arguments}"), "{finding:#}");
}

fn full_forks() {
    // Much memory: on a busy machine a copy of little costs no more than the prices measured there.
    let (report, truth) = report(&["forkexec", "20", "512"]);
    let finding = only(&report, "full_fork_then_exec");
    starts_again(&finding, "forkless run -- ", "forkexec 20 512");
    let remedy = finding["remedy"].as_str().expect("text");
    assert!(remedy.ends_with(", or run the program unchanged under `forkless run`."), "{remedy}");
    assert_eq!(finding["count"], 20);
    assert_eq!(report["creations"]["full_fork_then_exec"], 20);
    // The copy is a part of the call. How large a part is for a quiet machine to say (`times.rs`).
    let share = finding["cost"]["caller_ns"].as_f64().expect("ns") / truth.ns("call_ns");
    assert!(share > 0.0 && share < 1.05, "{share} of the time that the program saw");
    assert!(functions(&finding).contains(&"fork_for_exec"), "{:?}", functions(&finding));
    assert!(
        functions(&finding).contains(&"main"),
        "unwound without frame pointers: {:?}",
        functions(&finding)
    );
    assert_saves(&finding["saving_in_caller_ns"]);
}

/// Whether the prices know a huge page's. Without it nothing is predicted of huge pages.
pub(crate) fn knows_huge_pages(report: &Value) -> bool {
    let knows = report["model"]["fork_per_huge_page"].is_object();
    if !knows {
        skip("no huge page could be had for a try");
    }
    knows
}

fn predicted_huge_pages() {
    let (report, _) = report(&["snapshot", "10", "256"]);
    if !knows_huge_pages(&report) {
        return nothing(&report);
    }
    let finding = only(&report, "fork_of_small_pages");
    // The program has ended: it can only be started again.
    starts_again(&finding, "forkless run --huge-pages=thp -- ", "snapshot 10 256");
    assert_saves(&finding["saving_each_ns"]);
}

/// A saving, with its bounds in order. How near the truth is, a quiet machine says (`times.rs`,
/// `real.rs`).
#[track_caller]
fn assert_saves(saving: &Value) {
    let at = |name: &str| saving[name].as_f64().expect("ns");
    assert!(0.0 < at("mid") && at("low") <= at("mid") && at("mid") <= at("high"), "{saving}");
}

/// Whether the kernel had huge pages to give. If not, the rest of the test is skipped.
pub(crate) fn has_huge_pages(truth: &Truth, mib: u32) -> bool {
    let has = truth.ns("huge_kib") > 0.9 * 1024.0 * f64::from(mib);
    if !has {
        skip("the program was given no huge pages: memory is in pieces");
    }
    has
}

/// Regression: huge pages were predicted for memory that the program keeps out of them.
fn excluded_from_huge_pages() {
    nothing(&report(&["snapshot-excluded", "10", "256"]).0);
}

/// Neither `run` nor `repair` changes what the program has refused. It can itself.
fn refused_huge_pages() {
    let (report, _) = report(&["snapshot-refusing", "10", "256"]);
    if !knows_huge_pages(&report) {
        return nothing(&report);
    }
    let finding = only(&report, "fork_of_small_pages");
    let why = finding["why_not_run"].as_str().expect("a reason");
    assert!(why.contains("turned transparent huge pages off for itself"), "{finding:#}");
    assert!(!finding["command"].as_str().expect("a command").contains("huge-pages"), "{finding:#}");
    assert_saves(&finding["saving_each_ns"]);
}

/// Regression: forks of 40 ms were no finding, or were explained by the page-table entries alone,
/// whose copy takes 1.5 ms.
fn many_mappings() {
    // Of less memory than the page kinds are read of (16 MiB): the forks' time has them read.
    const PAIRS: u64 = 3_000;
    // So many that the program still runs when its mappings have been read.
    const FORKS: u64 = 60;
    let Some(program) = crate::support::program("many_mappings.c") else { return skip("no compiler") };
    let program = program.to_string_lossy();
    let found = |how: &str, kind: &str| {
        let report = crate::support::report_in(
            "tracepoints",
            &[&*program, how, &PAIRS.to_string(), &FORKS.to_string()],
        )?;
        let price = |name: &str| report["model"][name]["mid"].as_f64().expect("a price");
        assert!(price("fork_per_mapping") > 0.0 && price("fork_per_written_mapping") > 0.0);
        Some(of_kind(&report, kind))
    };
    let Some(alone) = found("exit", "fork_of_many_mappings") else { return };
    let Some(execs) = found("exec", "full_fork_then_exec") else { return };
    for finding in [&alone, &execs] {
        assert_eq!(finding["count"], FORKS, "{finding:#}");
        let fact = crate::support::fact(finding, "mappings copied each time").expect("it is told");
        let mut counts = fact.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
        let (all, written): (u64, u64) = (counts.next().expect("all"), counts.next().expect("written"));
        assert!((2 * PAIRS..2 * PAIRS + 100).contains(&all), "{fact}");
        assert!((PAIRS..PAIRS + 100).contains(&written), "{fact}");
        assert!(finding["reason"].to_string().contains(&format!("{all} mappings")), "{finding:#}");
        assert_saves(&finding["saving_each_ns"]);
    }
    assert!(alone["remedy"].to_string().contains("fewer, larger mappings"), "{alone:#}");
    // `run` copies mappings, too.
    assert!(execs["command"].to_string().contains("forkless diagnose -- "), "{execs:#}");
}

fn huge_already() {
    // The program writes to its memory after the fork, which splits its huge pages. On a busy
    // machine diagnose may look at them only then, and find small ones.
    const TRIES: u32 = 5;
    for left in (0..TRIES).rev() {
        let (report, truth) = report_by_default(&["snapshot-huge", "1", "128"]);
        if !has_huge_pages(&truth, 128) {
            return;
        }
        assert_eq!(report["creations"]["full_fork_alone"], 1);
        let has_findings = report["findings"].as_array().is_some_and(|findings| !findings.is_empty());
        if left == 0 || !has_findings {
            nothing(&report);
            return;
        }
    }
}

fn healthy() {
    let (vforks, _) = report_by_default(&["vfork", "100", "64"]);
    nothing(&vforks);
    assert_eq!(vforks["creations"]["shared_memory"], 100);
    let (spawns, _) = report_by_default(&["spawn", "100", "64"]);
    nothing(&spawns);
    let (speculated, _) = report_by_default(&["speculated", "20", "64"]);
    nothing(&speculated);
    assert_eq!(speculated["creations"]["speculated"], 20);
    let (idle, _) = report_by_default(&["nothing", "300"]);
    nothing(&idle);
}

fn shells() {
    let (report, _) = report(&["shell", "50"]);
    let finding = only(&report, "needless_shell");
    assert_eq!(finding["count"], 50);
    assert!(functions(&finding).contains(&"one_shell"), "{:?}", functions(&finding));
    starts_again(&finding, "forkless run -- ", "shell 50");
}

fn needed_shells() {
    let (report, _) = report_by_default(&["hard-shell", "20"]);
    nothing(&report);
}

/// Regression: the command of a batch process had the ordinary policy, SIGINT, SIGTERM and SIGPIPE
/// that the caller ignores were not ignored, and /dev/null was open where the caller has no
/// standard input.
fn started_alike() {
    let shows =
        "grep -E '^Sig(Blk|Ign)' /proc/self/status; chrt -p $$; readlink /proc/$$/fd/0 || echo closed";
    let seen = |by: &[&str]| {
        let mut command = Command::new("chrt");
        command.args(["-b", "0", "sh", "-c", r#"trap '' INT TERM PIPE; "$@" <&-"#, "sh"]).args(by);
        let output = command.args(["sh", "-c", shows]).stdin(Stdio::null()).output().expect("chrt runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter(|line| !line.contains("priority"));
        lines.map(|line| line.rsplit(':').next().expect("a word").trim().to_owned()).collect::<Vec<_>>()
    };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("started-alike");
    let report = directory.to_string_lossy();
    let (plainly, watched) = (seen(&[]), seen(&[FORKLESS, "diagnose", "-o", &report, "--"]));
    std::fs::remove_file(&directory).expect("the report");
    // glibc's posix_spawn has a program ignore two signals of libc's own.
    const OF_LIBC: u64 = 0b11 << 31;
    let ignored = |set: &str| u64::from_str_radix(set, 16).expect("a set") & !OF_LIBC;
    assert_eq!(plainly.last().map(String::as_str), Some("closed"), "{plainly:?}");
    assert_eq!((&watched[0], &watched[2..]), (&plainly[0], &plainly[2..]), "{watched:?}");
    assert_eq!(ignored(&watched[1]), ignored(&plainly[1]), "{watched:?}");

    // A shell gives its children SIGCHLD's default action. While it was ignored in the watch, no
    // wait for a child was heard of.
    let ignoring = |by: &[&str]| {
        let mut command = Command::new("env");
        command.arg("--ignore-signal=CHLD").args(by).args(["grep", "SigIgn", "/proc/self/status"]);
        let output = command.output().expect("env runs");
        assert!(output.status.success(), "{output:?}");
        ignored(String::from_utf8_lossy(&output.stdout).trim_start_matches("SigIgn:").trim())
    };
    let plainly = ignoring(&[]);
    assert_ne!(plainly & 1 << (libc::SIGCHLD - 1), 0);
    for tier in ["--system-calls=no", "--tier=perf", "--tier=procfs"] {
        let watched = ignoring(&[FORKLESS, "diagnose", tier, "-o", &report, "--"]);
        std::fs::remove_file(&directory).expect("the report");
        assert_eq!(watched, plainly, "{tier}");
    }
}

fn swapcontext() {
    let (report, _) = report(&["swapcontext", "500000"]);
    let finding = only(&report, "needless_signal_mask");
    // Two calls for each switch there and back, and the two that set up the contexts.
    assert!(
        (1_000_000..=1_000_004).contains(&finding["count"].as_u64().expect("a count")),
        "{}",
        finding["count"]
    );
    assert_eq!(functions(&finding).first(), Some(&"swapcontext"));
    starts_again(&finding, "forkless run --context=fast -- ", "swapcontext 500000");
}

fn sigsetjmp() {
    let (report, _) = report(&["sigsetjmp", "500000"]);
    let finding = only(&report, "needless_signal_mask");
    assert!(
        (500_000..=500_004).contains(&finding["count"].as_u64().expect("a count")),
        "{}",
        finding["count"]
    );
    assert!(functions(&finding).contains(&"one_sigsetjmp"), "{:?}", functions(&finding));
}

fn localtime() {
    let (report, _) = report(&["localtime", "200000"]);
    let finding = only(&report, "localtime_lookups");
    // One lookup for each call, and those that load the zone.
    assert!(
        (200_000..=200_008).contains(&finding["count"].as_u64().expect("a count")),
        "{}",
        finding["count"]
    );
    assert!(functions(&finding).contains(&"one_localtime"), "{:?}", functions(&finding));
    starts_again(&finding, "TZ=:/etc/localtime ", "localtime 200000");
}

fn constant() {
    let (report, _) = report(&["getppid", "1000000"]);
    let finding = only(&report, "constant_system_call");
    assert_eq!(finding["count"], 1_000_000);
    assert!(functions(&finding).contains(&"one_getppid"), "{:?}", functions(&finding));
    assert!(finding["cost"].get("child_ns").is_none(), "not measured, and no 0: {finding}");
    assert_eq!(report["totals"]["lost_calls"], 0);
    starts_again(&finding, "forkless diagnose -- ", "getppid 1000000");

    // Regression: a call that looks a path up was priced as one that does nothing.
    let line = "my $n = 0; while ($n++ < 60000) { stat '/usr/lib/no/such/file' }";
    let Some(report) = crate::support::report_in("tracepoints", &["/usr/bin/perl", "-e", line]) else {
        return;
    };
    let finding = of_kind(&report, "constant_system_call");
    let price = |name: &str| report["model"][name]["mid"].as_f64().expect("a price");
    let own = &finding["saving_each_ns"]["mid"];
    assert_eq!(own.as_f64(), Some(price("missing_stat")), "{finding:#}");
    assert!(price("missing_stat") > 0.0, "{}", report["model"]);
    let measured = crate::support::fact(&finding, "each costs (stat of a missing file, measured here)");
    assert!(measured.is_some(), "{finding:#}");
    clock_by_call();
}

/// Regression: a program that calls syscall() was told to choose another clock source, and had one
/// that the vDSO reads.
fn clock_by_call() {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = std::fs::read_to_string(source).unwrap_or_default();
    let line = format!(
        "my $time = ' ' x 16; my $n = 0; while ($n++ < 500000) {{ syscall({}, 1, $time) }}",
        libc::SYS_clock_gettime
    );
    let Some(report) = crate::support::report_in("tracepoints", &["/usr/bin/perl", "-e", &line]) else {
        return;
    };
    let finding = of_kind(&report, "constant_system_call");
    // A call's share of the process's time may be less than its price.
    let own = finding["saving_each_ns"]["mid"].as_f64().expect("a number");
    let price = report["model"]["clock_call"]["mid"].as_f64().expect("a price");
    assert!(0.0 < own && own <= price, "{own} of {price}: {finding:#}");
    let remedy = finding["remedy"].as_str().expect("text");
    if ["tsc", "kvm-clock"].contains(&source.trim()) {
        let expected = format!("the clock source ({}) has a vDSO", source.trim());
        assert!(remedy.contains("and not syscall()") && remedy.contains(&expected), "{remedy}");
        assert!(!finding["command"].to_string().contains("current_clocksource"), "{finding:#}");
    } else {
        assert!(remedy.contains("clock source"), "{remedy}");
    }
}

/// A loop device on a file, taken away again when dropped.
pub(crate) struct LoopDevice {
    pub(crate) path: String,
    file: std::path::PathBuf,
}

impl LoopDevice {
    pub(crate) fn new(bytes: u64) -> Result<Self, String> {
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("loop.img");
        // Written, not sparse: the reads must reach a disk.
        std::fs::write(&file, vec![1u8; bytes as usize]).map_err(|e| e.to_string())?;
        let run = |flags: &[&str]| {
            let output =
                Command::new("losetup").args(flags).arg(&file).output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if output.status.success() {
                Ok(text)
            } else {
                Err(String::from_utf8_lossy(&output.stderr).into_owned())
            }
        };
        match run(&["--direct-io=on", "--find", "--show"]).or_else(|_| run(&["--find", "--show"])) {
            Ok(path) => Ok(Self { path, file }),
            Err(why) => {
                std::fs::remove_file(&file).map_err(|e| e.to_string())?;
                Err(why)
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A failed test unwinds through here, and has its message before this.
        let _ = Command::new("losetup").args(["-d", &self.path]).status();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Eight writes of 512 bytes a block: the first reads the block, and the writer waits for it.
fn block_writes() {
    let device = match LoopDevice::new(8 << 20) {
        Ok(device) => device,
        Err(why) => return skip(format!("no loop device: {why}")),
    };
    let (report, _) = report(&["blockwrite", "8000", "0", &device.path]);
    let finding = only(&report, "partial_block_writes");
    assert_eq!(finding["count"], 8000);
    let reads = finding["evidence"].to_string();
    assert!(reads.contains("1000, 0.12 a write") || reads.contains("1000, 0.13 a write"), "{reads}");
    assert_saves(&finding["saving_each_ns"]);
    let (whole, _) = report_by_default(&["blockwrite-whole", "1000", "0", &device.path]);
    nothing(&whole);
}

fn loops() {
    let (close_loop, _) = report(&["closeloop", "100"]);
    // Descriptors that the test's own parents left open are closed for real.
    let count = of_kind(&close_loop, "close_loop")["count"].as_u64().expect("a count");
    assert!((95_000..=100_000).contains(&count), "{count}");

    // One start is a large share of a short command, and no finding by default.
    let (once, _) = report_by_default(&["pathmiss", "1"]);
    assert_eq!(once["creations"]["shared_memory"], 1, "{once}");
    nothing(&once);

    let (search, _) = report(&["pathmiss", "200"]);
    let finding = of_kind(&search, "path_search");
    assert_eq!(finding["count"], 600);
    starts_again(&finding, "forkless diagnose --log -- ", "pathmiss 200");

    let (missing, _) = report(&["missing", "50"]);
    let finding = of_kind(&missing, "missing_program");
    assert_eq!(finding["count"], 50);
    assert!(finding["title"].as_str().expect("text").contains("/nowhere/gone"));
    assert_eq!(finding["command"], "ls -l /nowhere/gone");
    // Regression: they were full forks that exec and processes without a program.
    let starts = &missing["starts"];
    let told = [&starts["programs"], &starts["without_program"], &starts["exec_failed"]];
    assert_eq!(told, [&Value::from(0), &50.into(), &50.into()], "{starts}");
    let (text, _) = text_of(&[], &["missing", "50"]);
    let text = unfolded(&text);
    assert!(text.contains("full forks that exec or try to, 0 that do not"), "{text}");
    assert!(text.contains("50 processes ran no program of their own, as their execs failed"), "{text}");

    // Regression: where failed execs are not seen, a 0 said that none had failed.
    for tier in ["perf", "procfs"] {
        let Some(unseen) = crate::support::report_in(tier, &["sh", "-c", "/nowhere/a; :"]) else { continue };
        assert!(unseen["starts"]["programs"].is_u64(), "{tier}: {unseen:#}");
        assert_eq!(unseen["starts"].get("exec_failed"), None, "{tier}: {unseen:#}");
    }

    // Regression: one of several was named, and counted alone.
    let line = "for i in $(seq 30); do /nowhere/a; /nowhere/b; forkless-is-nowhere-else; done; :";
    let Some(several) = crate::support::report_in("tracepoints", &["sh", "-c", line]) else { return };
    let finding = of_kind(&several, "missing_program");
    let named = crate::support::fact(&finding, "programs that do not exist").expect("a list");
    for program in ["/nowhere/a (30)", "/nowhere/b (30)"] {
        assert!(named.contains(program), "{named}");
    }
}

fn text_of(options: &[&str], program: &[&str]) -> (String, String) {
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--min-share", "0"])
        .args(options)
        .arg("--")
        .arg(crate::support::known_problem().expect("checked before"))
        .args(program)
        .output()
        .expect("forkless runs");
    assert_eq!(output.status.code(), Some(1));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Regression: a finding took thirty lines with the remedy near the end, behind four lines about
/// tiers.
fn text() {
    let forks = ["forkexec", "10", "512"];
    let (raw, stderr) = text_of(&[], &forks);
    let text = unfolded(&raw);
    for part in ["fork_for_exec (known_problem.c:", "remedy", "saves", "forkless run", "0 events lost"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert_eq!(stderr, "", "a tier that works needs no introduction");
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("1. ")).collect();
    assert!((1..=8).contains(&lines.len()), "{text}");
    let mut report = raw.lines().skip_while(|line| !line.starts_with("1. "));
    assert!(report.all(|line| line.chars().count() <= 100 || line.starts_with("   command  ")), "{raw}");
    assert!(!text.contains("evidence"), "{text}");

    let (text, stderr) = text_of(&["--verbose"], &forks);
    let text = unfolded(&text);
    for part in
        ["   evidence fork() each time", "   from     ", "   because  ", "   who      pid ", "   where    "]
    {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(stderr.contains("tier: BPF with tracepoints (tp_btf): works"), "{stderr}");

    // What a tier cannot see is one line, and what it does not count is not a 0.
    let (text, stderr) = text_of(&["--tier", "perf"], &forks);
    let text = unfolded(&text);
    assert_eq!(text.lines().filter(|line| line.starts_with("LIMITED")).count(), 1, "{text}");
    assert_eq!(stderr, "");
    assert!(!text.contains("in faults") && text.contains("0 threads"), "{text}");
}

/// What was not measured is absent from JSON, and not 0.
fn absent() {
    let (values, ..) = diagnose(&["--tier", "procfs"], &["snapshot", "2", "16"]);
    assert!(values[0]["totals"].get("threads").is_none(), "{}", values[0]["totals"]);
    let (values, ..) = diagnose(&["--tier", "perf"], &["forkexec", "20", "64"]);
    let cost = &of_kind(&values[0], "full_fork_then_exec")["cost"];
    assert!(cost.get("faults_ns").is_none() && cost.get("caller_ns").is_some(), "{cost}");
    assert!(values[0]["totals"].get("lost_calls").is_none(), "{}", values[0]["totals"]);
}

/// `make` with 400 recipes got "Nothing found" and no word on what its starts cost.
fn summary() {
    for tier in ["tracepoints", "perf"] {
        let options = ["--tier", tier, "--min-share", "99"];
        let (values, _, output) = diagnose(&options, &["vfork", "100", "64"]);
        assert_eq!(output.status.code(), Some(0), "{}", values[0]);
        let starts = &values[0]["starts"];
        assert_eq!((&starts["programs"], &starts["without_program"]), (&100.into(), &0.into()), "{starts}");
        assert!(starts["cost_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{starts}");
        let starter = &starts["starters"][0];
        assert_eq!(
            (&starter["name"], &starter["programs"]),
            (&"known_problem".into(), &100.into()),
            "{starts}"
        );
        assert_eq!(starter["started"], serde_json::json!([["true", 100]]), "{starts}");
    }
    let text = Command::new(FORKLESS)
        .args(["diagnose", "--", "sh", "-c", "/bin/true; (:); /bin/true"])
        .output()
        .expect("forkless runs");
    let text = unfolded(&String::from_utf8_lossy(&text.stdout));
    let said = "2 programs were started: 2 by sh (true 2); 1 process ran no program of its own. Creating and executing them took some ";
    assert!(text.contains(said), "{text}");
    let text = Command::new(FORKLESS).args(["diagnose", "--", "true"]).output().expect("forkless runs");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.ends_with("No program was started.\nNothing found.\n"), "{text}");
}

/// The capabilities were three in messages and four in the guide.
fn capabilities() {
    let guide = include_str!("../../../../docs/guide/diagnose.md");
    let named = forkless_diagnose::CAPABILITIES;
    assert!(guide.contains(named), "the guide does not name {named}");
    // A repair takes a right of its own.
    let named = format!("{named} {}", forkless_diagnose::repair_privilege());
    for word in guide.split(|c: char| !(c.is_ascii_uppercase() || c == '_')) {
        assert!(!word.starts_with("CAP_") || named.contains(word), "the guide alone names {word}");
    }
}

/// In a container's pid namespace the kernel's pids are others. BPF says so, and perf events show
/// the namespace's own processes.
fn pid_namespace() {
    let inside = |arguments: &[&str]| {
        Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", FORKLESS, "diagnose"])
            .args(arguments)
            .output()
            .expect("unshare runs")
    };
    let log = inside(&["--all", "--log", "-d", "0.5"]);
    let stderr = String::from_utf8_lossy(&log.stderr);
    assert_eq!(log.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("--pid=host"), "{stderr}");

    // Without --mount-proc: /proc would answer for other processes of these numbers.
    let foreign = Command::new("unshare")
        .args(["--pid", "--fork", FORKLESS, "diagnose", "--tier", "perf", "--", "true"])
        .output()
        .expect("unshare runs");
    let stderr = String::from_utf8_lossy(&foreign.stderr);
    assert_eq!(foreign.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("mount -t proc proc /proc"), "{stderr}");

    let program = crate::support::known_problem().expect("checked before").to_string_lossy().into_owned();
    let watched = inside(&["--json", "--", &program, "forkexec", "10", "32"]);
    let text = String::from_utf8_lossy(&watched.stdout);
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    if report["tier"] == "procfs" {
        return skip(format!("no perf events here: {}", report["refused"]));
    }
    assert_eq!(report["tier"], "perf", "{report}");
    assert!(report["refused"].to_string().contains("--pid=host"), "{report}");
    assert_eq!(report["totals"]["creations"], 10, "{report}");
}

/// As an unprivileged user, without and with perf events. Needs root only to become one.
fn unprivileged() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;

    let directory = std::env::temp_dir().join(format!("forkless-unprivileged-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory that others can read");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let (tool, program) = (directory.join("forkless"), directory.join("known_problem"));
    std::fs::copy(FORKLESS, &tool).expect("a copy that others can reach");
    std::fs::copy(crate::support::known_problem().expect("checked before"), &program).expect("a copy");
    let run = |arguments: &[&str]| {
        Command::new(&tool).args(arguments).uid(65534).gid(65534).output().expect("forkless runs")
    };
    let program = program.to_string_lossy().into_owned();
    let best = run(&["diagnose", "--json", "--", &program, "forkexec", "20", "256"]);
    let sampled = run(&["diagnose", "--json", "--tier", "procfs", "--", &program, "forkexec", "40", "512"]);
    let all = run(&["diagnose", "--all", "-d", "1"]);
    let removed = std::fs::remove_dir_all(&directory);

    let report = |output: &std::process::Output| -> Value {
        let text = String::from_utf8_lossy(&output.stdout);
        let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
        assert!(!report["limits"].as_array().expect("a list").is_empty());
        report
    };
    let best = report(&best);
    if best["tier"] == "perf" {
        assert_eq!(best["totals"]["creations"], 20, "{best}");
        of_kind(&best, "full_fork_then_exec");
    } else {
        skip(format!("perf events are not for users here: {}", best["refused"]));
    }
    let sampled = report(&sampled);
    assert_eq!(sampled["tier"], "procfs", "{sampled}");
    if sampled["findings"].as_array().expect("a list").is_empty() {
        // Between fork and exec there is so little time that a sampler may never be there.
        skip("the sampler met none of 40 children between its fork and its exec");
    } else {
        let finding = only(&sampled, "full_fork_then_exec");
        // The sampler sees some of them, never more.
        assert!((1..=40).contains(&finding["count"].as_u64().expect("a count")), "{finding}");
    }

    assert_eq!(all.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&all.stderr);
    assert!(stderr.lines().last().is_some_and(|line| line.contains("run as root")), "{stderr}");
    removed.expect("nothing is left");
}
