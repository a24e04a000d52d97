//! A finding's place is the user's line: programs of `fixtures/diagnose/sites`, whose forks come
//! from two functions. libc's place is the same for both.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{FORKLESS, add_needing, find, fixture, skip};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn(), &str); 30] = [
        ("lines::of_python", || both("python3", "sites.py"), "python3"),
        ("lines::of_python_without_a_file", without_file, "python3"),
        ("lines::of_perl", || both("perl", "sites.pl"), "perl"),
        ("lines::of_ruby", || both("ruby", "sites.rb"), "ruby"),
        ("lines::of_bash", || both("bash", "sites.bash"), "bash"),
        ("lines::of_c_inlined_or_not", || compiled("cc", &["-O2", "-g"], "sites.c"), "cc"),
        ("lines::of_c_with_its_library", || compiled("cc", &["-O2", "-g", "-static"], "sites.c"), "cc"),
        ("lines::of_c_by_old_dwarf", || compiled("cc", &["-O2", "-gdwarf-4", "-gz"], "sites.c"), "cc"),
        ("lines::of_c_by_clang", || compiled("clang", &["-O2", "-g"], "sites.c"), "clang"),
        ("lines::of_c_with_musl", || compiled("musl-gcc", &["-O2", "-g"], "sites.c"), "musl-gcc"),
        (
            "lines::of_c_with_musl_in_it",
            || compiled("musl-gcc", &["-O2", "-g", "-static"], "sites.c"),
            "musl-gcc",
        ),
        ("lines::of_cpp", || compiled("c++", &["-O2", "-g", "-std=c++17"], "sites.cpp"), "c++"),
        ("lines::of_rust", || compiled("rustc", &["-O", "-g"], "sites.rs"), "rustc"),
        ("lines::of_rust_by_their_counts", shares, "rustc"),
        ("lines::of_debug_information_apart", apart, "objcopy"),
        ("lines::of_a_program_behind_wrappers", behind_wrappers, "cc"),
        ("lines::of_a_script_behind_wrappers", script_behind_wrappers, "python3"),
        ("lines::of_a_program_in_a_container", in_a_container, "objcopy"),
        ("lines::of_a_script_in_a_container", script_in_a_container, "python3"),
        ("lines::by_perf_events", by_perf_events, "python3"),
        ("lines::that_take_turns_have_half_each", turns, "python3"),
        ("lines::of_a_fork_of_python_and_not_of_the_wait", || forks("python3", "forks.py"), "python3"),
        ("lines::of_a_fork_of_ruby_and_not_of_the_wait", || forks("ruby", "forks.rb"), "ruby"),
        ("lines::of_a_fork_of_perl_and_not_of_the_wait", || forks("perl", "forks.pl"), "perl"),
        ("lines::of_a_fork_deep_in_perl", deep, "perl"),
        ("lines::of_a_fork_of_php_and_not_of_the_wait", forks_of_php, "php"),
        ("lines::of_a_fork_without_a_wait", || both("python3", "unwaited.py"), "python3"),
        ("lines::of_the_first_fork_of_a_running_program", first_fork, "perl"),
        ("lines::of_java_by_its_perf_map", java, "jcmd"),
        ("lines::of_a_program_whose_file_was_replaced", replaced, "cc"),
    ];
    add_needing(trials, &tests);
}

/// Its code is an argument. The place was a function of the standard library's.
fn without_file() {
    let text = fs::read_to_string(source("sites.py")).expect("a fixture");
    let found = lines(&report(&[], &["python3".as_ref(), "-c".as_ref(), text.as_ref()]), "<string>");
    let marked = marked(&source("sites.py")).into_iter().map(|line| line.replace("sites.py", "<string>"));
    let mut marked: Vec<String> = marked.collect();
    marked.sort();
    assert_eq!(found, marked);
}

/// Another program is at its path by the time of its first fork.
fn replaced() {
    let program = compile("cc", &["-O2", "-g", "-fno-inline-functions"], "sites.c");
    let other = program.with_file_name("other");
    fs::copy(compile("cc", &["-O0", "-g"], "sites.c"), &other).expect("our own folder");
    let line = r#"exec 3<"$0"; mv "$1" "$0"; exec /proc/self/fd/3"#;
    let command = ["sh".as_ref(), "-c".as_ref(), line.as_ref(), program.as_os_str(), other.as_os_str()];
    check(&command, "sites.c");
}

/// Regression: std's code is the program's own, so that the three have one place. Their stacks were
/// those of the 1st, 2nd, 4th, 8th ... fork: 88 % for the first and 12 % for the last.
fn shares() {
    // Other flags than those of sites.rs: they name the compiled file.
    let program = compile("rustc", &["-Copt-level=2", "-g"], "shares.rs");
    let report = report(&[], &[program.as_os_str()]);
    let finding = crate::support::of_kind(&report, "full_fork_then_exec");
    let lines = finding["lines"].as_array().unwrap_or_else(|| panic!("{finding:#}"));
    let share = |function: &str| -> f64 {
        let own = lines.iter().filter(|line| line["place"].to_string().contains(function));
        own.map(|line| line["share"].as_f64().expect("a share")).sum()
    };
    // The last forks are drawn, and the first may have a place of its own.
    for (function, count) in [("often", 40.0), ("seldom", 20.0), ("last", 10.0)] {
        assert!((share(function) - count / 70.0).abs() < 0.1, "{function}: {lines:#?}");
    }
}

/// Methods have names, and no lines.
fn java() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sites-java");
    fs::create_dir_all(&folder).expect("our own folder");
    let compiler = Command::new("javac").arg("-d").arg(&folder).arg(source("Sites.java")).status();
    if !compiler.is_ok_and(|status| status.success()) {
        return skip("no javac");
    }
    let options = [
        // Its other ways share memory.
        "-Djdk.lang.Process.launchMechanism=FORK",
        "-XX:+PreserveFramePointer",
        // Everything is compiled, and fast.
        "-Xcomp",
        "-XX:TieredStopAtLevel=1",
        "-XX:CompileCommand=quiet",
        "-XX:CompileCommand=dontinline,Sites::*",
        "-cp",
    ];
    let java = [OsStr::new("java")].into_iter().chain(options.map(OsStr::new));
    let command: Vec<&OsStr> = java.chain([folder.as_ref(), "Sites".as_ref()]).collect();
    let report = report(&[], &command);
    let found = places(&report);
    // The JVM leaves its map behind.
    for map in found.iter().filter_map(|place| place.split_once("(")?.1.split_once(".map")) {
        let _ = fs::remove_file(format!("/tmp/{}.map", map.0));
    }
    for method in ["void Sites.first() (perf-", "void Sites.second() (perf-"] {
        assert!(found.iter().any(|place| place.starts_with(method)), "{found:?}: {report:#}");
    }
    assert!(!found.iter().any(|place| place.contains("ProcessBuilder")), "{found:?}: {report:#}");
}

/// Starts a program in each way that people do.
fn each_wrapper(program: &[&str], name: &str) {
    let (start, exec) = (fixture("start.sh"), format!("exec {}", program.join(" ")));
    let ways: [&[&str]; 4] =
        [&[&start], &["env", "A=1", "nohup"], &["su", "-s", "/bin/sh", "-c"], &["sudo", "-n"]];
    for way in ways {
        if find(way[0]).is_none() && way[0] != start {
            skip(format!("no {}", way[0]));
            continue;
        }
        let rest: &[&str] = if way.ends_with(&["-c"]) { &[&exec] } else { program };
        let command: Vec<&OsStr> = way.iter().chain(rest).map(OsStr::new).collect();
        check(&command, name);
    }
}

fn behind_wrappers() {
    let program = compile("cc", &["-O2", "-g"], "sites.c");
    each_wrapper(&[&program.to_string_lossy()], "sites.c");
}

fn script_behind_wrappers() {
    // su and sudo may have another PATH.
    let python = find("python3").expect("needed");
    each_wrapper(&[&python.to_string_lossy(), &source("sites.py").to_string_lossy()], "sites.py");
}

/// The symbols are in the container, where this machine's own root has none.
fn in_a_container() {
    let program = compile("cc", &["-O1", "-g", "-Wl,--build-id"], "sites.c");
    let (program, _) = strip(&program, "sites-container");
    check(&[fixture("container.sh").as_ref(), program.as_ref()], "sites.c");
}

fn script_in_a_container() {
    check(&[fixture("container.sh").as_ref(), "python3".as_ref(), source("sites.py").as_ref()], "sites.py");
}

fn by_perf_events() {
    let program = compile("cc", &["-O2", "-g"], "sites.c");
    check_in(&["--tier", "perf"], &[program.as_os_str()], "sites.c");
    for (interpreter, name) in [("python3", "sites.py"), ("perl", "sites.pl"), ("bash", "sites.bash")] {
        if find(interpreter).is_none() {
            skip(format!("no {interpreter}"));
            continue;
        }
        check_in(&["--tier", "perf"], &[interpreter.as_ref(), source(name).as_os_str()], name);
    }
}

/// Regression: the callers of the creations 1, 2, 4, 8 and so on were read. Of two lines that take
/// turns, that is one line nearly always.
fn turns() {
    let report = report(&[], &["python3".as_ref(), source("turns.py").as_ref()]);
    // A wrapper script of Python's has forks of its own.
    let of_turns = |finding: &&Value| {
        finding["kind"] == "full_fork_then_exec"
            && finding["place"].as_str().is_some_and(|at| at.contains("turns.py"))
    };
    let mut found = report["findings"].as_array().expect("a list").iter().filter(of_turns);
    let (Some(finding), None) = (found.next(), found.next()) else { panic!("not one: {report:#}") };
    let share_of = |begin: &str| {
        finding["lines"].as_array().expect("two lines").iter().find_map(|line| {
            line["place"].as_str()?.starts_with(begin).then(|| line["share"].as_f64().expect("a number"))
        })
    };
    // On a busy machine the interpreter is found late.
    let known = 1.0 - share_of("not known").unwrap_or(0.0);
    for function in ["first", "second"] {
        let share = share_of(function).map(|share| share / known);
        // Some callers may have gone on before they are read. Chance misses this once in thousands.
        assert!(share.is_some_and(|share| (0.25..=0.75).contains(&share)), "{function}: {report:#}");
    }
}

/// Regression: the line was that of the wait. Where no more than the wait is known, the place says
/// so: at a program's only fork, and by perf events.
fn forks(interpreter: &str, name: &str) {
    both(interpreter, name);
    let program = source(name);
    let command = [interpreter.as_ref(), program.as_os_str()];
    let wait = if name.ends_with(".py") { "waits at wait (" } else { "waits at await (" };
    let all_wait = |report: &Value| {
        let found = lines(report, name);
        assert!(found.iter().all(|line| line.starts_with(wait)), "{found:?}: {report:#}");
        for finding in report["findings"].as_array().expect("a list") {
            let place = finding["place"].as_str().unwrap_or_default();
            if place.contains(name) {
                assert!(place.starts_with(wait) && finding["stack"][0]["waits"] == true, "{finding:#}");
            }
        }
        found.len()
    };
    let by_perf = report(&["--tier", "perf"], &command);
    if by_perf["tier"] == "perf" {
        assert_eq!(all_wait(&by_perf), 1, "{by_perf:#}");
    }
    let once = [&command[..], &["1".as_ref()]].concat();
    // Its two forks are the thread's first and second. The second one's line is known. The first
    // one's is, too, where a script that starts the interpreter has forked before.
    let found = lines(&report(&[], &once), name);
    let is_right = |line: &String| ["first (", "second (", wait].iter().any(|own| line.starts_with(own));
    assert!(found.iter().all(is_right), "{found:?}");
}

/// Perl has its frames from the outermost one on. From the thirtieth on the innermost ones were not
/// copied, and the fork's line was lost.
fn deep() {
    let script = "my $memory = 'x' x (32 << 20);\n\
                  sub one { my $pid = fork;\n\
                  exec 'true' if !$pid; waitpid $pid, 0 }\n\
                  sub deeper { my $left = shift; $left ? deeper($left - 1) : one() }\n\
                  deeper(200) for 1 .. 40;\n";
    let report = report(&[], &["perl".as_ref(), "-e".as_ref(), script.as_ref()]);
    if report["tier"].as_str().is_some_and(|tier| tier == "perf" || tier == "procfs") {
        return skip("no BPF here");
    }
    // The line of a wait would say so.
    assert_eq!(lines(&report, "-e"), ["one (-e:2)"], "{report:#}");
}

fn forks_of_php() {
    let command = Command::new("php").args(["-r", "exit(function_exists('pcntl_fork') ? 0 : 1);"]).status();
    if !command.is_ok_and(|status| status.success()) {
        return skip("php without pcntl");
    }
    forks("php", "forks.php");
}

/// It is found before the fork where the program has its frames.
fn first_fork() {
    let line = "my $m = 'x' x (32 << 20); $| = 1; print qq(ready\\n); <STDIN>;\n\
                if (!fork) { exec 'true' }\n\
                wait;";
    let mut program = Command::new("perl")
        .args(["-e", line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("found");
    let mut ready = String::new();
    let mut out = BufReader::new(program.stdout.take().expect("piped"));
    out.read_line(&mut ready).expect("it is ready");
    let mut watch = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--min-share", "0", "-p", &program.id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("forkless runs");
    let mut said = String::new();
    let mut messages = BufReader::new(watch.stderr.take().expect("piped"));
    while !said.contains("the watch has begun") && messages.read_line(&mut said).expect("text") > 0 {}
    drop(program.stdin.take());
    let output = watch.wait_with_output().expect("it ends with the program");
    program.wait().expect("our own child");
    let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let found = lines(&report, "-e");
    if report["tier"].as_str().is_some_and(|tier| tier == "perf" || tier == "procfs") {
        return skip("no BPF here");
    }
    assert_eq!(found, ["main (-e:2)"], "{report:#}");
}

/// A program of these fixtures.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/sites").join(name)
}

/// Compiles a program into a folder of its own, once: another test may be running it.
fn compile(compiler: &str, options: &[&str], name: &str) -> PathBuf {
    static COMPILED: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = format!("sites-{compiler}-{}", options.join(""));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).expect("our own folder");
    let program = folder.join("sites");
    if !compiled.get_or_insert_default().insert(program.clone()) {
        return program;
    }
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

/// A copy of a program in this folder, with its debug information in the other file.
fn strip(program: &Path, folder: &str) -> (PathBuf, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).expect("our own folder");
    let copy = folder.join("sites");
    fs::copy(program, &copy).expect("our own folder");
    let debug = copy.with_extension("debug");
    let objcopy = |options: &[&OsStr]| {
        let status = Command::new("objcopy").args(options).status().expect("found");
        assert!(status.success(), "objcopy {options:?}");
    };
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--only-keep-debug".as_ref(), copy.as_ref(), debug.as_ref()]);
    objcopy(&["--strip-all".as_ref(), link.as_ref(), copy.as_ref()]);
    (copy, debug)
}

/// Debug information in a file of its own, found by its name. Without it, the finding says so.
fn apart() {
    let program = compile("cc", &["-O2", "-g", "-Wl,--build-id"], "sites.c");
    let (program, debug) = strip(&program, "sites-apart");
    check(&[program.as_os_str()], "sites.c");

    // The file of another program: its build id is not this one's.
    let other = compile("cc", &["-O1", "-g", "-Wl,--build-id"], "sites.c");
    fs::copy(other, &debug).expect("our own folder");
    let report = report(&[], &[program.as_os_str()]);
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

/// Reads a program's file once. Where the file is not in memory, a short program ends before its
/// symbols are read, and its lines are not known.
fn warm(program: &OsStr) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let file = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    if let Some(file) = file {
        fs::read(file).expect("a readable program");
    }
}

fn report(flags: &[&str], command: &[&OsStr]) -> Value {
    command.first().copied().into_iter().for_each(warm);
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "--min-share", "0"])
        .args(flags)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).expect(&messages)
}

/// All places that a report names.
fn places(report: &Value) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for finding in report["findings"].as_array().expect("a list") {
        let place = finding["place"].as_str().unwrap_or_default();
        found.push(place.to_owned());
        for line in finding["lines"].as_array().into_iter().flatten() {
            found.push(line["place"].as_str().expect("text").to_owned());
        }
    }
    found
}

/// The lines of a file that a report has found.
fn lines(report: &Value, name: &str) -> Vec<String> {
    let mut found = places(report);
    // A wrapper script's own forks are found as well, with their lines.
    found.retain(|line| line.contains(&format!("({name}:")));
    found.sort();
    found.dedup();
    found
}

fn check(command: &[&OsStr], name: &str) {
    check_in(&[], command, name);
}

fn check_in(flags: &[&str], command: &[&OsStr], name: &str) {
    let report = report(flags, command);
    let (marked, found) = (marked(&source(name)), lines(&report, name));
    let wrong: Vec<&String> = found.iter().filter(|line| !marked.contains(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report:#}");
    // What is started once may end before its caller is read.
    let missing = marked.iter().filter(|line| !line.starts_with("main ") && !found.contains(line));
    assert_eq!(missing.count(), 0, "{found:?} {marked:?}: {report:#}");
}
