//! Failures around a watch: refusals, targets that end or hide, floods. Each gives a clear line, or
//! a report that says what is missing. That none leaves anything in the kernel, `left.rs` shows.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::findings::knows_huge_pages;
use crate::support::{
    FORKLESS, diagnose, find, functions, known_problem, of_kind, only, skip, trial, wait_for_program,
    wait_until,
};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), Option<&'static str>);
    let no_capsh = find("capsh").is_none().then_some("no capsh: apt-get install libcap2-bin");
    let no_m32 =
        (!can_build_32_bit()).then_some("no 32-bit compiler: apt-get install libc6-dev-i386 lib32gcc-12-dev");
    let no_faults = cfg!(not(target_arch = "x86_64")).then_some("no tracepoint tells write-protect faults");
    let tests: [Test; 16] = [
        ("robust::without_any_capability_the_line_says_what_to_do", no_capability, no_capsh),
        ("robust::a_kernel_that_refuses_bpf_leaves_perf_events", refused_bpf, None),
        ("robust::a_target_that_is_killed_midway_ends_the_watch_with_a_report", killed_midway, None),
        ("robust::a_target_that_nobody_waits_for_ends_the_watch_of_every_tier", unreaped, None),
        ("robust::a_program_whose_name_is_no_text_has_its_memory_all_the_same", odd_name, None),
        ("robust::a_target_in_a_container_shows_its_own_files_functions", container, None),
        ("robust::a_32_bit_program_is_timed_and_counted", compat, no_m32),
        ("robust::a_pid_that_is_used_again_is_another_process", pid_reuse, None),
        ("robust::a_program_that_is_gone_in_milliseconds_has_its_frames_named", short_lived, None),
        ("robust::ten_thousand_processes_are_counted", many_processes, None),
        ("robust::what_a_full_ring_loses_is_counted_and_shown", ring_overflow, None),
        ("robust::threads_that_call_from_a_new_place_at_once_are_all_counted", first_calls_at_once, None),
        (
            "robust::faults_that_copy_nothing_are_told_though_pages_are_allocated_between_them",
            reused_pages,
            no_faults,
        ),
        ("robust::a_command_that_leaves_a_daemon_is_watched_in_part", daemon, None),
        ("robust::sigint_gives_a_partial_report_and_unloads", sigint, None),
        ("robust::a_reader_that_has_gone_ends_it_without_a_word", no_reader, None),
    ];
    for (name, test, missing) in tests {
        if let Some(why) = missing {
            eprintln!("{name}: ignored, {why}");
        }
        trials.push(trial(name, test).with_ignored_flag(missing.is_some()));
    }
}

/// Regression: the watch of a program that goes on in the background said "Nothing found" alone.
fn daemon() {
    // It ends by itself if an assertion fails.
    let line = "sleep 60 >/dev/null 2>&1 </dev/null &";
    let Some(report) = crate::support::report_in("tracepoints", &["sh", "-c", line]) else { return };
    let [left] = &report["still_running"].as_array().expect("a list")[..] else { panic!("{report}") };
    let end = |pid: i32| {
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    };
    end(left.as_i64().expect("a pid") as i32);
    // Regression: the page said nothing of it.
    let mut tool = Command::new(FORKLESS);
    tool.args(["diagnose", "--html", "--tier", "tracepoints", "--", "sh", "-c", line]).stdin(Stdio::null());
    let page = String::from_utf8(tool.output().expect("forkless runs").stdout).expect("text");
    const SAID: &str = "<b>Partial:</b> 1 descendant still runs; watch it by `forkless diagnose -p ";
    let (_, left) = page.split_once(SAID).unwrap_or_else(|| panic!("{page}"));
    end(left.split('`').next().and_then(|pid| pid.parse().ok()).expect("a pid"));
    // Nobody is left of this one.
    let Some(report) = crate::support::report_in("tracepoints", &["sh", "-c", "sleep 0; :"]) else { return };
    assert_eq!(report["still_running"], serde_json::json!([]), "{report}");
}

/// As under `| head -1`, but for certain: the reader is gone before the first line. Whatever the
/// tool inherits, each form of output ends it by SIGPIPE.
fn no_reader() {
    use std::os::unix::process::ExitStatusExt as _;
    let forms: [&[&str]; 8] = [
        &[],
        &["-v"],
        &["--json"],
        &["--html"],
        &["--folded"],
        &["--pprof"],
        &["--log"],
        &["--log", "--json"],
    ];
    for (form, inherited) in forms.into_iter().flat_map(|form| [(form, ""), (form, "trap '' PIPE; ")]) {
        let mut tool = Command::new("sh")
            .args(["-c", &format!("{inherited}exec \"$@\""), "sh", FORKLESS, "diagnose"])
            .args(form)
            .args(["--", "sh", "-c", "for i in 1 2 3; do /bin/true; done"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh runs");
        drop(tool.stdout.take());
        let output = tool.wait_with_output().expect("our own child");
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{form:?} {inherited}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let beside_tiers = said.lines().filter(|line| !line.starts_with("tier: "));
        assert_eq!(beside_tiers.count(), 0, "{form:?}: {said}");
    }
}

fn known_problem_path() -> String {
    known_problem().expect("checked before").to_string_lossy().into_owned()
}

fn report_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {last}\n{stderr}"))
}

/// Regression: a zombie keeps its directory in /proc, and perf events of an ended thread are hung
/// up. Either kept a watch from its end.
fn unreaped() {
    for tier in ["tracepoints", "perf", "procfs"] {
        let mut target = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat runs");
        let pid = target.id().to_string();
        let mut tool = Command::new("timeout")
            .args(["-k", "1", "300", FORKLESS, "diagnose", "--json", "--tier", tier, "-p", &pid])
            .args(["--prometheus", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("timeout runs");
        // There are metrics once the watch has begun.
        let address = crate::outputs::address_of_metrics(tool.stderr.as_mut().expect("piped"));
        while !crate::outputs::get(address, "/metrics").starts_with("HTTP/1.1 200") {
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(tool.try_wait().expect("a child").is_none(), "{tier}: the watch has ended");
        }
        drop(target.stdin.take());
        let output = tool.wait_with_output().expect("timeout ends");
        let report = report_of(&output);
        assert_eq!(output.status.code(), Some(0), "{tier}: {report}");
        assert!(report["partial"].is_null(), "{tier}: {report}");
        target.wait().expect("it ended");
    }
}

/// Regression: a thread's name is any 15 bytes, and stands among its process's figures in /proc.
/// The figures were not read, so no memory was known, and nothing was found.
fn odd_name() {
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--tier", "perf", "--", &known_problem_path(), "forkexec", "10", "256"])
        .env("KNOWN_PROBLEM_NAME", "")
        .output()
        .expect("forkless runs");
    let report = report_of(&output);
    let finding = of_kind(&report, "full_fork_then_exec");
    // A busy machine may lose the samples of some.
    assert!((1..=10).contains(&finding["count"].as_u64().expect("a count")), "{finding}");
    let title = finding["title"].as_str().expect("a text");
    assert!(title.starts_with("known_problem forks 2"), "{title}");
}

/// Root without any capability, which may look at its own processes alone.
fn no_capability() {
    let drop_all = |command: &str| {
        Command::new("capsh").args(["--drop=all", "--", "-c", command]).output().expect("capsh runs")
    };
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim().parse::<i32>().is_ok_and(|level| level < 0) {
        return skip(format!("kernel.perf_event_paranoid is {}: nothing is refused", paranoid.trim()));
    }
    for target in ["--all -d 0.3", "--all --log -d 0.3"] {
        let output = drop_all(&format!("exec {FORKLESS} diagnose {target}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{target}: {stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("forkless: ") && last.contains("refused"), "{target}: {stderr}");
    }
}

/// bpf(2) answers EPERM, as under lockdown or a container's seccomp policy.
fn refused_bpf() {
    let output = without_bpf(&["diagnose", "--json", "--", &known_problem_path(), "forkexec", "10", "32"]);
    let report = report_of(&output);
    assert_eq!(report["tier"], "perf", "{report}");
    assert_eq!(report["refused"][0]["tier"], "bpf_tracepoints", "{report}");
    assert_eq!(report["totals"]["creations"], 10);
    let log = without_bpf(&["diagnose", "--log", "--all", "-d", "0.3"]);
    assert_eq!(log.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&log.stderr);
    assert!(stderr.contains("forbids it"), "{stderr}");
}

/// Runs the tool with a seccomp filter that refuses bpf(2).
#[expect(unsafe_code, reason = "a seccomp filter is installed between fork and exec")]
fn without_bpf(arguments: &[&str]) -> Output {
    use std::os::unix::process::CommandExt as _;
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS, offset 0 of struct seccomp_data
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let filter = [
        libc::sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: JUMP_EQUAL, jt: 0, jf: 1, k: libc::SYS_bpf as u32 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let mut command = Command::new(FORKLESS);
    command.args(arguments).stdin(Stdio::null());
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the program and its filter live until the call returns; the kernel copies and
        // does not write them.
        let outcome =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes one system call and touches nothing but its own copy of the filter.
    unsafe { command.pre_exec(install) };
    command.output().expect("forkless runs")
}

/// Attaches the tool to a program by pid. Returns the tool's output.
fn attached(program: &mut std::process::Child, work: impl FnOnce(&mut std::process::Child)) -> Output {
    let mut ready = String::new();
    BufReader::new(program.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("it is ready");
    let tool = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--min-share", "0", "-p", &program.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("forkless runs");
    wait_for_program(&tool, "on_page_alloc");
    work(program);
    tool.wait_with_output().expect("forkless ends with its target")
}

fn begin(program: &std::process::Child) {
    rustix::process::kill_process(rustix::process::Pid::from_child(program), rustix::process::Signal::USR1)
        .expect("it waits for SIGUSR1");
}

fn waiting(mut command: Command, arguments: &[&str]) -> std::process::Child {
    command
        .args(arguments)
        .env("KNOWN_PROBLEM_WAIT", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

fn killed_midway() {
    let mut process = waiting(Command::new(known_problem_path()), &["forkexec", "100000", "256"]);
    let output = attached(&mut process, |program| {
        begin(program);
        // With the fourth child, three have executed and ended.
        let mut children = BTreeSet::new();
        let path = format!("/proc/{0}/task/{0}/children", program.id());
        let forked = wait_until(|| {
            children.extend(
                std::fs::read_to_string(&path).unwrap_or_default().split_whitespace().map(str::to_owned),
            );
            children.len() > 3
        });
        assert!(forked, "it does not fork");
        program.kill().expect("it runs");
        program.wait().expect("it ends");
    });
    let report = report_of(&output);
    assert!(report["partial"].is_null(), "the target's end is the watch's: {report}");
    // The last child may not have come to its exec, which makes another finding.
    assert!(of_kind(&report, "full_fork_then_exec")["count"].as_u64() > Some(1), "{report}");
}

/// In a pid and a mount namespace, with the program on a file system that is mounted there alone.
fn container() {
    let directory = std::env::temp_dir().join(format!("forkless-container-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let place = directory.display();
    let script = format!(
        "mount -t tmpfs none {place} && cp {} {place}/inside && exec {place}/inside \"$@\"",
        known_problem_path()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", &script, "sh"]);
    let mut process = waiting(command, &["forkexec", "15", "256"]);
    let output = attached(&mut process, |unshare| {
        // The program is unshare's child; its number outside is found by its name.
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let inside: i32 =
            std::fs::read_to_string(children).expect("/proc").trim().parse().expect("one child");
        let inside = rustix::process::Pid::from_raw(inside).expect("a pid");
        rustix::process::kill_process(inside, rustix::process::Signal::USR1).expect("it waits for SIGUSR1");
        unshare.wait().expect("it ends");
    });
    std::fs::remove_dir(&directory).expect("nothing was left in it");
    let finding = only(&report_of(&output), "full_fork_then_exec");
    assert_eq!(finding["count"], 15, "{finding}");
    assert!(functions(&finding).contains(&"fork_for_exec"), "{:?}", functions(&finding));
}

fn binary_32_bit() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("known_problem_32")
}

fn can_build_32_bit() -> bool {
    let source =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/known_problem.c");
    Command::new("cc")
        // The headers of the 64-bit packages are used. gcc-multilib links them, and conflicts with
        // cross compilers.
        .args(["-m32", "-O1", "-idirafter", "/usr/include/x86_64-linux-gnu", "-o"])
        .args([binary_32_bit(), source])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn compat() {
    let binary = binary_32_bit().to_string_lossy().into_owned();
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--", &binary, "forkexec", "12", "256"])
        .output()
        .expect("forkless runs");
    let report = report_of(&output);
    let finding = only(&report, "full_fork_then_exec");
    assert_eq!(finding["count"], 12, "{finding}");
    assert_eq!(report["totals"]["lost_live"], 0);
    let log = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--log", "--", &binary, "vfork", "3"])
        .output()
        .expect("forkless runs");
    let text = String::from_utf8_lossy(&log.stdout);
    let vforks = text.lines().filter(|line| line.contains("\"kind\":\"vfork_like\"")).count();
    assert_eq!(vforks, 3, "{text}");
}

/// Every child gets the same number, by ns_last_pid in a pid namespace of the test's own.
fn pid_reuse() {
    let script =
        "for i in 1 2 3 4 5 6; do echo 4999 > /proc/sys/kernel/ns_last_pid || exit 9; /bin/true a; done";
    let output = Command::new(FORKLESS)
        .args([
            "diagnose",
            "--json",
            "--log",
            "--",
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "sh",
            "-c",
            script,
        ])
        .output()
        .expect("forkless runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let trues: Vec<&Value> = lines.iter().filter(|line| line["exec_path"] == "/bin/true").collect();
    assert_eq!(trues.len(), 6, "{text}");
    assert!(trues.iter().all(|line| line["end"]["how"] == "exited" && line["execs"] == 1), "{text}");

    // The perf tier sees the namespace's own numbers: the same number six times.
    let inner = format!("{FORKLESS} diagnose --json --tier perf -- sh -c '{script}'");
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", &inner])
        .output()
        .expect("unshare runs");
    let report = report_of(&output);
    assert_eq!(report["totals"]["creations"], 6, "{report}");
    assert_eq!(
        report["creations"]["full_fork_then_exec"]
            .as_u64()
            .zip(report["creations"]["shared_memory"].as_u64())
            .map(|(forks, others)| forks + others),
        Some(6),
        "{report}"
    );
}

/// Each process has its libraries at other addresses, which to the tool are other libraries.
fn short_lived() {
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do {} forkexec 1 32 >/dev/null; done",
        known_problem_path()
    );
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--min-share", "0", "--", "sh", "-c", &script])
        .output()
        .expect("forkless runs");
    let report = report_of(&output);
    let findings = report["findings"].as_array().expect("a list").iter();
    let of_programs = findings.filter(|finding| finding["kind"] == "full_fork_then_exec");
    let (mut named, mut all) = (0, 0);
    for finding in of_programs {
        let count = finding["count"].as_u64().expect("a count");
        all += count;
        named += if functions(finding).contains(&"fork_for_exec") { count } else { 0 };
    }
    // On a busy machine a process may be gone before the tool has run.
    println!("{named} of {all} forks are named");
    assert!(all >= 20 && named > 0, "{named} of {all}: {report}");
}

fn many_processes() {
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--system-calls", "no", "--", &known_problem_path(), "vfork", "10000"])
        .output()
        .expect("forkless runs");
    let report = report_of(&output);
    let lost = ["lost_ring", "lost_live"].map(|name| report["totals"][name].as_u64().expect("a count"));
    assert_eq!(report["totals"]["creations"], 10_000, "{report}");
    // Lost events are counted, so the sum is right on a busy machine, too.
    let shared = report["creations"]["shared_memory"].as_u64().expect("a count");
    assert_eq!(shared + lost.iter().sum::<u64>(), 10_000, "{report}");
}

/// The tool is stopped while more is recorded than the ring holds.
fn ring_overflow() {
    let mut process = waiting(Command::new(known_problem_path()), &["vfork", "12000"]);
    let mut ready = String::new();
    BufReader::new(process.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("it is ready");
    let tool = Command::new(FORKLESS)
        .args(["diagnose", "--system-calls", "no", "-p", &process.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("forkless runs");
    wait_for_program(&tool, "on_page_alloc");
    let pid = rustix::process::Pid::from_child(&tool);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
    begin(&process);
    process.wait().expect("it ends");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is stopped");
    let output = tool.wait_with_output().expect("forkless ends with its target");
    let text = String::from_utf8_lossy(&output.stdout);
    let lost = text
        .split(" events lost")
        .next()
        .and_then(|head| head.rsplit(' ').next())
        .and_then(|number| number.parse::<u64>().ok());
    assert!(lost > Some(0), "{text}");
    assert!(text.contains(": 12000 process creations"), "counted all the same: {text}");
}

fn sigint() {
    // Below nohup, and in the background of a script, SIGINT is ignored.
    let tool = Command::new("env")
        .args(["--default-signal=INT", FORKLESS])
        .args(["diagnose", "--json", "--all", "--system-calls", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("forkless runs");
    wait_for_program(&tool, "on_newtask");
    rustix::process::kill_process(rustix::process::Pid::from_child(&tool), rustix::process::Signal::INT)
        .expect("it runs");
    let output = tool.wait_with_output().expect("forkless ends");
    assert_eq!(report_of(&output)["partial"], "interrupted");
}

/// Regression: two threads found no entry for their place, and both made one. The slower thread's
/// call was lost.
fn first_calls_at_once() {
    let (reports, _, _) = diagnose(&["--system-calls", "yes"], &["race", "300"]);
    let totals = &reports[0]["totals"];
    assert_eq!((&totals["creations"], &totals["lost_calls"]), (&300.into(), &0.into()), "{totals}");
}

/// Regression: a page allocated for a system call was taken for the copy of the page that had
/// faulted before.
fn reused_pages() {
    // On a busy machine the watch takes longer, and the saving is a smaller share of it.
    let (reports, _, _) = diagnose(&["--min-share", "0"], &["reuse", "2", "32"]);
    if !knows_huge_pages(&reports[0]) {
        return;
    }
    let finding = of_kind(&reports[0], "fork_of_small_pages");
    let faults = finding["evidence"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["value"].as_str())
        .find(|value| value.contains("copied a page"))
        .expect("faults are counted");
    let numbers: Vec<u64> = faults.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [copied, reused] = numbers[..] else { panic!("{faults}") };
    assert!(reused > 16_000 && copied < reused / 20, "{faults}");
}
