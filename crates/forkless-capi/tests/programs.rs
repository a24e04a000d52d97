//! C programs against the library, compiled by each compiler. Their text has the checks.

mod support;

use std::fs;
use std::process::Command;
use support::{CLANG, GCC, Link, c_sources, compile, compile_with, have, root, run, scratch, tiny};

/// Compiles with each compiler that is there, links in each way once, and runs.
fn everywhere(program: &str, args: &[&str]) {
    for (compiler, link) in [(GCC, Link::Shared), (CLANG, Link::Shared), (GCC, Link::Static)] {
        if have(compiler) {
            run(&compile(compiler, &c_sources().join(program), link), args);
        }
    }
}

#[test]
fn faults_end_in_their_documented_error_and_leave_nothing() {
    everywhere("faults.c", &[]);
}

#[test]
fn null_is_answered_as_documented() {
    everywhere("nulls.c", &[]);
}

#[test]
fn drop_ins_behave_as_libcs() {
    let tiny = tiny().to_str().expect("a path");
    everywhere("dropins.c", &[tiny]);
}

#[test]
fn popen_noshells_functions_behave_as_its_own() {
    everywhere("noshell.c", &[]);
}

/// The calls that create and execute, in one call of the library: strace's lines between the
/// program's two marks.
fn traced(what: &str) -> Option<Vec<String>> {
    if !have("strace") {
        return None;
    }
    let program = compile(GCC, &c_sources().join("mechanism.c"), Link::Shared);
    let trace = scratch().join(format!("trace-{what}"));
    let calls = "trace=clone,clone3,fork,vfork,execve,getsid,waitid,wait4";
    let done = Command::new("timeout")
        .args(["600", "strace", "-f", "-qq", "-e", calls, "-e", "signal=none", "-o"])
        .arg(&trace)
        .arg(program)
        .arg(what)
        .arg(tiny())
        .output()
        .expect("strace runs");
    let said = String::from_utf8_lossy(&done.stderr);
    if said.contains("Operation not permitted") {
        println!("skipped: strace may not trace here");
        return None;
    }
    assert!(done.status.success(), "{what}: {said}");
    let text = fs::read_to_string(trace).expect("trace");
    let marked: Vec<&str> = text.split("getsid(4242)").collect();
    assert_eq!(marked.len(), 3, "{text}");
    Some(marked[1].lines().map(str::to_owned).collect())
}

/// How often a call was made. Its beginnings are counted, since strace shows a call that another
/// process interrupts in two pieces.
fn count(lines: &[String], call: &str) -> usize {
    lines.iter().filter(|l| l.contains(call) && !l.contains("resumed")).count()
}

#[test]
fn a_simple_line_is_run_without_shell_and_without_fork() {
    for what in ["system", "popen", "popen-w"] {
        let Some(lines) = traced(what) else { return };
        let tiny = format!("execve(\"{}\"", tiny().display());
        assert_eq!(count(&lines, &tiny), 1, "{what}: {lines:#?}");
        assert_eq!(count(&lines, "execve("), 1, "{what}: {lines:#?}");
        assert_eq!(count(&lines, "CLONE_VM"), 1, "{what}: {lines:#?}");
        let made = count(&lines, "clone") + count(&lines, "fork(");
        assert_eq!(made, 1, "{what}: one child: {lines:#?}");
    }
}

#[test]
fn a_line_for_the_shell_starts_it_without_fork() {
    let Some(lines) = traced("shell") else { return };
    assert_eq!(count(&lines, "execve(\"/bin/sh\", [\"sh\", \"-c\""), 1, "{lines:#?}");
    assert_eq!(count(&lines, "CLONE_VM"), 1, "{lines:#?}");
}

#[test]
fn only_popen_noshells_debug_mode_forks() {
    for (mode, shares_memory) in [("noshell0", true), ("noshell1", false), ("noshell2", true)] {
        let Some(lines) = traced(mode) else { return };
        assert_eq!(count(&lines, "clone") + count(&lines, "fork("), 1, "{mode}: {lines:#?}");
        assert_eq!(count(&lines, "CLONE_VM") == 1, shares_memory, "{mode}: {lines:#?}");
        assert_eq!(count(&lines, "execve("), 1, "{mode}: {lines:#?}");
    }
}

#[test]
fn every_option_reaches_the_child() {
    everywhere("features.c", &[]);
}

/// What the shell meets on its own account, which is not there: ids it gives up, what befalls it
/// when it says that a program was killed, signals of the whole group. Regression: the calling
/// program had it instead, or nobody.
#[test]
fn lines_end_as_by_libcs_functions() {
    let source = root().join("fixtures/run/shell_ends.c");
    let plain = compile_with(GCC, &source, Link::Shared, &["-DPLAIN"]);
    let ours = compile_with(GCC, &source, Link::Shared, &["-DWITH_FORKLESS"]);
    let place = |name: &str| scratch().join(name).to_str().expect("UTF-8").to_owned();
    let (full, errors, other) = (place("full"), place("errors"), place("other"));
    let (dies, waits) = ("sh -c 'kill -TERM $$'", "/bin/sh -c 'echo >&9; exec 9>&-; exec sleep 20'");
    let killed = format!("{} die", plain.display());
    let mut cases: Vec<Vec<&str>> = vec![
        vec!["no_reader", dies],
        vec!["no_reader", dies, "ignored"],
        vec!["limit", dies, &full],
        vec!["limit", dies, &full, "ignored"],
        vec!["moved", dies],
        vec!["moved", dies, &errors, &other],
        vec!["group", waits, "15", "1", "0"],
        vec!["group", waits, "15", "1", "1"],
        vec!["group", waits, "3", "0", "0"],
        vec!["group", waits, "2", "1", "0"],
        vec!["blocked", waits, "15", "0", "0"],
        vec!["environment", "/usr/bin/env", "PATH=/usr/bin:/bin", "PWD=/x", "PWD=/"],
        vec!["unheard", dies, &errors],
        vec!["unheard", "/bin/sh -c 'kill -TERM $$' 3>&1", &errors],
        vec!["stream_as_errors", dies, &errors],
        vec!["remade", dies, &errors],
        vec!["flushing"],
        vec!["odd"],
        vec!["said_late", &killed],
        vec!["environment", "A=3 /usr/bin/env", "PATH=/usr/bin:/bin", "A=1", "A=2"],
    ];
    let mounted = place("mounted");
    fs::create_dir_all(&mounted).expect("a folder");
    let held_file = place("rights");
    let writes = format!("/bin/echo text >{held_file}");
    let in_namespace = "/bin/sh -c 'echo $$; kill -TERM $$; echo alive'";
    let held = scratch().join("held");
    // What a failed run has left.
    let _ = fs::remove_dir_all(&held);
    fs::create_dir_all(&held).expect("a folder");
    let made = held.join("file").to_str().expect("UTF-8").to_owned();
    let creates = format!("/bin/true > {made}");
    if std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        cases.extend([
            vec!["ids", "id -u", "1000", "0", "0", "0", "0", "0"],
            vec!["ids", "id -u", "0", "1000", "0", "0", "0", "0"],
            vec!["ids", "id -g", "0", "0", "0", "1000", "0", "0"],
            vec!["thread_ids", "id -u"],
            vec!["file_ids", &creates, &made],
            vec!["capabilities", &creates],
            vec!["rights", &writes, "less", &held_file],
            vec!["rights", &writes, "bound", &held_file],
            vec!["rights", &writes, "group", &held_file],
            vec!["rights", &writes, "half ambient", &held_file],
            vec!["rights", &writes, "ambient", &held_file],
            vec!["unreachable", "/usr/bin/printenv PWD", &mounted],
            // What popen says then is each one's own.
            vec!["shell_refused", "/bin/echo ran", "system"],
            vec!["namespaces", in_namespace, "unshare"],
            vec!["namespaces", in_namespace, "unshare", "stream"],
            vec!["namespaces", in_namespace, "setns"],
            vec!["namespaces", in_namespace, "after"],
        ]);
    } else {
        println!("skipped: only root can take other ids");
    }
    for case in cases {
        let seen = |program: &std::path::Path| {
            let done = Command::new("timeout").arg("600").arg(program).args(&case).output().expect("runs");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (done.status.code(), text(&done.stdout), text(&done.stderr))
        };
        let expected = seen(&plain);
        assert_eq!(expected.0, Some(0), "{case:?}: {expected:?}");
        assert_eq!(seen(&ours), expected, "{case:?}");
        assert!(!fs::exists(&made).expect("looked for"), "{case:?}");
    }
}
