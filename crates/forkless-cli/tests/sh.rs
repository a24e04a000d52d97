//! `forkless sh` from outside.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};

fn forkless_sh(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forkless"))
        .arg("sh")
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("not.valid", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_line_runs_with_its_own_status_and_output() {
    for (line, code, stdout) in [
        ("cat /dev/null; exit 7", 7, ""),
        ("expr 1 + 1 | cat && ls -d /", 0, "2\n/\n"),
        ("echo by shell", 0, "by shell\n"),
        ("no-such-program 2>/dev/null", 127, ""),
        ("sh -c 'kill -TERM $$' 2>/dev/null; exit", 143, ""),
    ] {
        for extra in [&[][..], &["--always-shell"]] {
            let out = forkless_sh(&[extra, &[line]].concat());
            assert_eq!((out.status.code(), said(&out).as_str()), (Some(code), stdout), "{extra:?} {line}");
        }
    }
}

#[test]
fn direct_lines_have_no_shell_between() {
    let parent = |arguments: &[&str]| {
        let parents_file = "/bin/sh -c 'readlink /proc/$PPID/exe'; true";
        let said = said(&forkless_sh(&[arguments, &[parents_file]].concat()));
        std::fs::canonicalize(said.trim()).unwrap()
    };
    let file = |path: &str| std::fs::canonicalize(path).unwrap();
    assert_eq!(parent(&[]), file(env!("CARGO_BIN_EXE_forkless")));
    assert_eq!(parent(&["--always-shell"]), file("/bin/sh"));
}

/// As pid 1 of a container, for example: signals reach the shell, or the program that replaces it.
#[test]
fn shells_and_programs_that_replace_them_take_the_place_of_the_command() {
    let lines = [
        "echo $$",
        "exec /bin/sh -c 'echo $$'",
        "true && exec 2>&1 /bin/sh -c 'echo $$ >&2'",
        "cd / && echo $$",
    ];
    for line in lines {
        for extra in [&[][..], &["--always-shell"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
            command.arg("sh").args(extra).arg(line).stdin(Stdio::null()).stdout(Stdio::piped());
            let child = command.spawn().unwrap();
            let own = child.id().to_string();
            let output = child.wait_with_output().unwrap();
            assert_eq!(said(&output).trim(), own, "{extra:?} {line}");
        }
    }
    let killed = forkless_sh(&["exec /bin/sh -c 'kill -KILL $$'"]);
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
}

/// A script without `#!` cannot be executed: the shell runs it, and opens the line's files again.
#[test]
fn a_program_that_cannot_take_the_place_leaves_its_descriptors_to_the_shell() {
    let scratch = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sh-in-place");
    std::fs::create_dir_all(&scratch).unwrap();
    let (script, out) = (scratch.join("script"), scratch.join("out"));
    std::fs::write(&script, "echo out; echo error >&2; cat <&5").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |way: &[&str]| {
        let line = format!("exec {} 3>&1 >{} 2>&3 5<&0 0<&-", script.display(), out.display());
        let mut command = Command::new("sh");
        command.args(["-c", "echo in | \"$@\"", "sh"]).args(way).arg(line);
        let output = command.output().unwrap();
        (output.status.code(), said(&output), std::fs::read_to_string(&out).unwrap())
    };
    let by_shell = run(&["sh", "-c"]);
    assert_eq!(by_shell, (Some(0), "error\n".to_owned(), "out\nin\n".to_owned()));
    assert_eq!(run(&[env!("CARGO_BIN_EXE_forkless"), "sh"]), by_shell);
    std::fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn an_explanation_runs_nothing_and_marks_the_cause() {
    let out = forkless_sh(&["--explain", "--shell", "dash", "touch /nonexistent/x; rm *.o"]);
    assert!(out.status.success());
    assert_eq!(
        said(&out),
        "shell: byte 25: unquoted `*`, `?` and `[` are matched against file names\n  \
         touch /nonexistent/x; rm *.o\n                           ^\n\
         would run: /bin/sh -c LINE (/bin/sh is dash)\n"
    );
}

#[test]
fn an_explanation_lists_programs_redirections_and_environment() {
    let out = forkless_sh(&["--explain", "--shell", "dash", "cd / && A=1 sort -u <in 2>&1 || exit 3"]);
    assert_eq!(
        said(&out),
        "direct: cd / && A=1 sort -u 0<in 2>&1 || exit 3\nas dash would:\n  \
           1. change directory to \"/\"\n  \
           2. run \"sort\" \"-u\"   if the status is 0\n     \
              descriptor 0: reads \"in\"\n     \
              descriptor 2: what 1 is by then\n     \
              environment: A=1\n     \
              environment: OLDPWD="
            .to_owned()
            + &std::env::current_dir().unwrap().display().to_string()
            + "\n     environment: PWD=/\n     environment: without not.valid\n  \
               3. end with status 3   if the status is not 0\n"
    );
}

#[test]
fn json_has_the_decision_and_the_place() {
    let out = forkless_sh(&["--json", "--shell", "bash", "ls {a,b}"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["schema"], "forkless.sh/1");
    assert_eq!(json["decision"], "shell");
    assert_eq!(json["reason"]["code"], "brace_expansion");
    assert_eq!((json["reason"]["start"].as_u64(), json["reason"]["end"].as_u64()), (Some(3), Some(8)));
    let out = forkless_sh(&["--json", "--shell", "bash", "A=b ls | wc -l >f"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["decision"], "direct");
    let commands = &json["pipelines"][0]["commands"];
    assert_eq!(commands[0]["assignments"][0], "A=b");
    assert_eq!(commands[0]["environment"]["set"]["SHLVL"], "1");
    assert_eq!(commands[1]["argv"][1], "-l");
    assert_eq!(commands[1]["redirections"][0]["target"], "f");
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    let out = forkless_sh(&["--shell", "dash", "ls"]);
    assert_eq!(out.status.code(), Some(2));
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_eq!(forkless_sh(&[]).status.code(), Some(2));
}

/// Rust's runtime opens /dev/null in place of standard descriptors that are closed, and ignores
/// SIGPIPE.
#[test]
fn a_line_meets_closed_descriptors_and_an_ignored_sigpipe_as_under_a_shell() {
    let outcome = |starter: &str, around: &str, line: &str| {
        let script = format!("trap '' PIPE; {starter} \"$1\" {around}");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_forkless"), line])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), said(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (around, line) in [
        (">&-", "/bin/echo to nobody"),
        ("<&-", "cat"),
        (">&-", "/bin/echo through a pipe | cat >&2"),
        ("", "grep SigIgn /proc/self/status"),
    ] {
        assert_eq!(outcome("\"$0\" sh", around, line), outcome("sh -c", around, line), "{line} {around}");
    }
}

/// Regression: a shell gives up an effective id that differs from the real one, and the line kept
/// it.
#[test]
fn ids_that_differ_are_given_up_as_by_the_shell() {
    let with_ids = |real: &str, effective: &str, sh: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--ruid", real, "--euid", effective]).args(sh).arg("id -u").stdin(Stdio::null());
        command.output()
    };
    let ours = [env!("CARGO_BIN_EXE_forkless"), "sh"];
    for (real, effective) in [("1000", "0"), ("0", "1000")] {
        let Ok(by_shell) = with_ids(real, effective, &["sh", "-c"]) else {
            println!("skipped: setpriv is not installed");
            return;
        };
        if !by_shell.status.success() {
            println!("skipped: only root can take other ids");
            return;
        }
        assert_eq!(said(&by_shell).trim(), real);
        let direct = with_ids(real, effective, &ours).unwrap();
        // That user may not enter the directory of the build.
        if direct.status.code() == Some(127) || said(&direct).is_empty() {
            println!("skipped: user {effective} may not execute the command: {direct:?}");
            continue;
        }
        assert_eq!(said(&direct), said(&by_shell), "real {real}, effective {effective}");
    }
}

/// Runs `sh -c LINE`, and then `forkless sh LINE` in its place, with this shell as `/bin/sh`. None
/// if this process may not replace it.
fn both_ways(shell: &str, before: &[&str], line: &str) -> Option<[(u32, Output); 2]> {
    let bind = "mount --bind \"$0\" /bin/sh && exec \"$@\"";
    let run = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "sh", "-c", bind, shell]).args(before);
        command.args(way).arg(line).env("LC_ALL", "C").stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (child.id(), child.wait_with_output().unwrap())
    };
    let may = Command::new("unshare").args(["--mount", "mount", "--bind", shell, "/bin/sh"]).output();
    if !may.is_ok_and(|may| may.status.success()) {
        println!("skipped: {shell} cannot be made /bin/sh here");
        return None;
    }
    Some([run(&["/bin/sh", "-c"]), run(&[env!("CARGO_BIN_EXE_forkless"), "sh"])])
}

fn seen((_, output): &(u32, Output)) -> (Option<i32>, String, String) {
    (output.status.code(), said(output), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// dash and busybox give their programs SIGCHLD at its default, bash gives it unblocked.
/// Regression: a line's program had it ignored or blocked, and so lost the ends of its children.
#[test]
fn a_line_of_a_caller_that_ignores_or_blocks_sigchld_has_the_shells_signals() {
    for shell in ["/bin/dash", "/bin/bash", "/bin/busybox"] {
        for caller in ["--ignore-signal=CHLD", "--block-signal=CHLD"] {
            for line in [
                "/bin/grep 'Sig[BI]' /proc/self/status",
                "exec /bin/grep 'Sig[BI]' /proc/self/status",
                "/bin/grep 'Sig[BI]' /proc/self/status | /bin/cat",
                "/bin/true && exec /bin/grep 'Sig[BI]' /proc/self/status",
                // A status that the line acts by, and the words about a death.
                "/bin/false || exit 3",
                "/bin/sh -c 'kill -KILL $$'; exit",
            ] {
                let Some(ran) = both_ways(shell, &["env", caller], line) else { return };
                assert_eq!(seen(&ran[1]), seen(&ran[0]), "{shell} {caller} {line}");
            }
        }
    }
}

/// busybox executes a line's last program in its own place, with SIGQUIT ignored. Regression:
/// `forkless sh` waited for it, so a signal to a container's pid 1 did not reach the program.
#[test]
fn a_program_takes_the_place_of_the_command_where_busybox_is_the_shell() {
    let scratch = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sh-busybox");
    std::fs::create_dir_all(&scratch).unwrap();
    // It cannot be executed, so the shell runs it, and must not find SIGQUIT ignored.
    let script = scratch.join("script");
    std::fs::write(&script, "/bin/grep SigIgn /proc/self/status; :").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    for line in ["/bin/readlink /proc/self", "/bin/true && /bin/readlink /proc/self"] {
        let Some(ran) = both_ways("/bin/busybox", &[], line) else { return };
        for (pid, output) in &ran {
            assert_eq!(said(output).trim(), pid.to_string(), "{line} {output:?}");
        }
    }
    for line in ["/bin/grep SigIgn /proc/self/status", script.to_str().unwrap()] {
        let Some(ran) = both_ways("/bin/busybox", &[], line) else { return };
        assert_eq!(seen(&ran[1]), seen(&ran[0]), "{line}");
    }
    std::fs::remove_dir_all(&scratch).unwrap();
}

/// A waiting shell reaps every child, such as the orphans of a container's pid 1. Regression: those
/// stayed zombies.
#[test]
fn children_from_before_are_reaped_while_a_line_runs() {
    // The kernel finds an older child first, so its end is taken before that of the line's program.
    let until_it_has_ended = "/bin/sh -c 'kill -9 $OLDER; while grep -q \"^State:.[^Z]\" /proc/$OLDER/status 2>/dev/null; do :; done'";
    let is_gone = "/bin/sh -c 'test ! -e /proc/$OLDER'; exit";
    for between in [";", "| cat;"] {
        let line = format!("{until_it_has_ended} {between} {is_gone}");
        for way in [&["/bin/sh", "-c"], &[env!("CARGO_BIN_EXE_forkless"), "sh"]] {
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 60 & export OLDER=$!; exec \"$@\"", "sh"]).args(way).arg(&line);
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{way:?} {line} {output:?}");
        }
    }
}

/// Regression: the shell's words need a descriptor in `forkless sh`, and were lost without one.
#[test]
fn a_death_is_told_though_no_descriptor_is_left() {
    for limit in ["4", "5"] {
        let run = |way: &[&str]| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]).args(way);
            let output = command.arg("/bin/sh -c 'kill -KILL $$'; exit").output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        assert_eq!(run(&[env!("CARGO_BIN_EXE_forkless"), "sh"]), run(&["sh", "-c"]), "{limit}");
    }
}
