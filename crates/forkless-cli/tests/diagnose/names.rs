//! Findings are under the name that users know: each program with its own, exec by exec.

use std::process::Command;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{FORKLESS, add_needing, fixture, functions, known_problem, of_kind, report_in, skip};

/// Each gets at a process's name in its own way.
const TIERS: [&str; 4] = ["fentry", "tracepoints", "perf", "procfs"];

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 14] = [
        ("names::a_program_behind_a_script_that_started_something_first", behind_a_script, "sh"),
        ("names::a_script_by_its_own_name_and_behind_env_and_nohup", scripts, "python3"),
        ("names::a_title_that_a_program_gives_itself", titled, "perl"),
        ("names::a_title_of_node_that_comes_between_two_forks", title_of_node, "node"),
        ("names::a_title_of_ruby_that_comes_between_two_forks", title_of_ruby, "ruby"),
        ("names::a_title_of_perl_that_comes_between_two_forks", title_of_perl, "perl"),
        ("names::a_server_that_php_has_built_in", php_server, "php"),
        ("names::a_program_behind_su", behind_su, "su"),
        ("names::a_program_behind_sudo", behind_sudo, "sudo"),
        ("names::a_program_in_namespaces_of_its_own", in_namespaces, "unshare"),
        ("names::a_process_that_renames_itself_at_each_fork", renamed, "perl"),
        ("names::a_remedy_for_a_watched_command_starts_that_command", commands, "sh"),
        ("names::of_system_calls_before_an_exec_are_the_programs_before", calls_before_an_exec, "perl"),
        ("names::a_name_of_any_bytes_breaks_nothing", any_bytes, "bash"),
    ];
    add_needing(trials, &tests);
}

/// The findings about forks of much memory to start /bin/true.
fn forks(report: &Value) -> Vec<&Value> {
    let findings = report["findings"].as_array().expect("a list").iter();
    findings
        .filter(|finding| finding["kind"] == "full_fork_then_exec")
        .filter(|finding| finding["title"].as_str().is_some_and(|title| title.contains(" to start true: ")))
        .collect()
}

/// Every tier that sees the forks gives them to the program of this name.
#[track_caller]
fn is_called(command: &[&str], name: &str) {
    is_called_in(&TIERS, command, name);
}

#[track_caller]
fn is_called_in(tiers: &[&str], command: &[&str], name: &str) {
    for tier in tiers {
        let Some(report) = report_in(tier, command) else { continue };
        let found = forks(&report);
        if found.is_empty() && *tier == "procfs" {
            // Between fork and exec there is so little time that a sampler may never be there.
            skip(format!("the sampler met no child of {name} between its fork and its exec"));
            continue;
        }
        let names: Vec<&Value> = found.iter().map(|finding| &finding["process"]["name"]).collect();
        assert_eq!(names, [name], "{tier}: {report}");
        let title = found[0]["title"].as_str().expect("text");
        assert!(title.starts_with(&format!("{name} forks ")), "{tier}: {title}");
    }
}

/// Regression: the shell's name was kept when the process became another program, and users read
/// "bash forks 1.01 GiB to start tiny".
fn behind_a_script() {
    let program = known_problem().expect("checked before").to_string_lossy();
    let start = fixture("start.sh");
    is_called_in(&["tracepoints"], &[&start, &program, "forkexec", "10", "64"], "known_problem");
    is_called(&[&start, &start, &program, "forkexec", "10", "64"], "known_problem");
}

fn scripts() {
    let (start, forks) = (fixture("start.sh"), fixture("forks.py"));
    // Its first line asks env(1) for python3.
    for command in [&["python3", &forks][..], &[&forks], &[&start, "python3", &forks]] {
        is_called_in(&["tracepoints"], command, "python3 forks.py");
    }
    is_called(&["env", "A=1", "nohup", "python3", &forks], "python3 forks.py");
}

fn titled() {
    is_called_in(&["tracepoints"], &[&fixture("titled.pl")], "shopworker");
    is_called(&[&fixture("start.sh"), "perl", &fixture("titled.pl")], "shopworker");
}

/// Regression: a title of one word was taken for the name by which the interpreter was started, and
/// the findings were called `node`, `ruby3.1`, and `perl` with blanks.
#[track_caller]
fn is_titled(command: &[&str]) {
    for tier in ["tracepoints", "perf"] {
        let Some(report) = report_in(tier, command) else { continue };
        let found = forks(&report);
        // Two places may be two findings.
        let mut names: Vec<&Value> = found.iter().map(|finding| &finding["process"]["name"]).collect();
        names.dedup();
        assert_eq!(names, ["shopworker"], "{tier}: {report}");
    }
}

fn title_of_node() {
    let line = "const m = Buffer.alloc(64 << 20, 1), start = require('child_process').spawnSync; start('true'); \
                process.title = 'shopworker'; for (let i = 0; i < 8; i++) start('true'); m.length";
    is_titled(&["node", "-e", line]);
}

fn title_of_ruby() {
    let line = "m = 'x' * (64 << 20); f = proc { Process.wait(fork { exec 'true' }) }; f.call; \
                $0 = 'shopworker'; 8.times(&f); m.size";
    is_titled(&["ruby", "-e", line]);
}

fn title_of_perl() {
    let line = "$m = 'x' x (64 << 20); sub f { exec '/bin/true' if !fork; wait } f(); \
                $0 = 'shopworker'; f() for 1 .. 8";
    // Blanks are written over the rest of the arguments.
    is_titled(&["perl", "-e", line, "and more"]);
}

fn php_server() {
    let line = "$m = str_repeat('x', 64 << 20); for ($i = 0; $i < 8; $i++) shell_exec('true');";
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("php-server");
    std::fs::create_dir_all(&folder).expect("our own folder");
    std::fs::write(folder.join("index.php"), format!("<?php {line}")).expect("our own file");
    // The port of an earlier run would be read before the server has written its own.
    let _ = std::fs::remove_file(folder.join("log"));
    let folder = folder.to_string_lossy();
    // It answers one request, and is ended.
    let serve = "php -d memory_limit=1G -S 127.0.0.1:0 -t \"$0\" 2>\"$0/log\" & \
                 until port=$(sed -n 's/.*:\\([0-9]*\\)) started/\\1/p' \"$0/log\") && [ -n \"$port\" ]; do sleep 0.1; done; \
                 php -r 'file_get_contents(\"http://127.0.0.1:$argv[1]/\");' \"$port\"; kill $!";
    let Some(report) = report_in("tracepoints", &["sh", "-c", serve, &folder]) else { return };
    let finding = of_kind(&report, "needless_shell");
    assert_eq!(finding["process"]["name"], "php -S 127.0.0.1:0", "{finding}");
}

fn behind_su() {
    let program = known_problem().expect("checked before").to_string_lossy();
    is_called(&["su", "-s", "/bin/sh", "-c", &format!("exec {program} forkexec 10 64")], "known_problem");
}

fn behind_sudo() {
    let program = known_problem().expect("checked before").to_string_lossy();
    is_called(&["sudo", "-n", &program, "forkexec", "10", "64"], "known_problem");
}

/// As in a container, the program is in namespaces of processes and mounts of its own.
fn in_namespaces() {
    let program = known_problem().expect("checked before").to_string_lossy();
    let inside = ["unshare", "--pid", "--fork", "--mount-proc", &program, "forkexec", "10", "64"];
    let Some(report) = report_in("tracepoints", &inside) else { return };
    let found = forks(&report);
    assert_eq!(found.len(), 1, "{report}");
    assert_eq!(found[0]["process"]["name"], "known_problem", "{report}");
}

/// The name is the last one, and all forks are one finding.
fn renamed() {
    let line = "$m = 'x' x (64 << 20); for (1 .. 10) { $0 = qq(worker: job $_); \
                $c = fork // die; exec '/bin/true' if !$c; waitpid $c, 0 }";
    for tier in ["tracepoints", "perf"] {
        let Some(report) = report_in(tier, &["perl", "-e", line]) else { continue };
        let found = forks(&report);
        let names: Vec<&Value> = found.iter().map(|finding| &finding["process"]["name"]).collect();
        assert_eq!(names, ["worker"], "{tier}: {report}");
    }
}

/// Regression: they were those of the last program. Before its exec a child's calls are its
/// creator's, of the program that the creator was then.
fn calls_before_an_exec() {
    let container = fixture("container.sh");
    // So many last until a busy machine has looked at the process. After its exec that is another.
    let (calls, exec) = ("POSIX::close(999) for 1 .. 1000000;", "exec 'sh', '-c', 'sleep 0; sleep 0'");
    let lines = [
        format!("use POSIX; {calls} {exec}"),
        format!("use POSIX; if (!fork) {{ {calls} exec 'true' }} wait; {exec}"),
    ];
    for line in lines {
        for around in [&[][..], &[container.as_str()]] {
            let command = [around, &["perl", "-e", line.as_str()]].concat();
            let Some(report) = report_in("tracepoints", &command) else { return };
            let finding = of_kind(&report, "close_loop");
            assert_eq!(finding["process"]["name"], "perl -e", "{finding}");
            assert!(functions(&finding).iter().any(|name| name.starts_with("Perl_")), "{finding}");
        }
    }
}

/// The command printed for a watched CMD was sometimes that of a watch of the whole machine.
fn commands() {
    let program = known_problem().expect("checked before").to_string_lossy();
    let start = fixture("start.sh");
    for (mode, before) in [("forkexec", "forkless run -- "), ("getppid", "forkless diagnose -- ")] {
        let count = if mode == "getppid" { "1000000" } else { "10" };
        let Some(report) = report_in("tracepoints", &[&start, &program, mode, count, "64"]) else { return };
        let findings = report["findings"].as_array().expect("a list");
        let finding = findings.iter().find(|finding| finding["process"]["name"] == "known_problem");
        let finding = finding.unwrap_or_else(|| panic!("{report}"));
        assert_eq!(finding["command"], format!("{before}{start} {program} {mode} {count} 64"));
        let all: Vec<&Value> = findings.iter().map(|finding| &finding["command"]).collect();
        assert!(!all.iter().any(|command| command.to_string().contains("--all")), "{all:?}");
    }
}

/// A name holds a newline, an escape and bytes that are no text.
fn any_bytes() {
    let program = known_problem().expect("checked before").to_string_lossy();
    let line = format!("exec -a $'\\e[2J\\n\\xff: x' {program} forkexec 10 64");
    for tier in ["tracepoints", "perf"] {
        let output = Command::new(FORKLESS)
            .args(["diagnose", "--tier", tier, "--", "bash", "-c", &line])
            .output()
            .expect("forkless runs");
        if output.status.code() == Some(3) {
            skip(format!("no tier {tier} here"));
            continue;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains('\u{1b}') && text.contains(" forks "), "{tier}: {text}");
    }
    let page = Command::new(FORKLESS)
        .args(["diagnose", "--html", "--", "bash", "-c", &line])
        .output()
        .expect("forkless runs");
    assert!(page.stdout.len() > 500 && !page.stdout.contains(&0x1b), "a page on a terminal");
}
