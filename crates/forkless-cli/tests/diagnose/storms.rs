//! Storms of short programs: found with who starts them, and a remedy that fits and works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{add_needing, fixture, of_kind, report_in};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 13] = [
        ("storms::a_script_that_starts_date_for_each_line", script, "bash"),
        ("storms::xargs_with_one_argument_each", xargs, "xargs"),
        ("storms::find_with_one_file_each", find_exec, "find"),
        ("storms::another_line_of_find_has_the_same_output", lines_of_find, "find"),
        ("storms::another_line_of_xargs_has_the_same_output", lines_of_xargs, "xargs"),
        ("storms::no_other_line_is_none", without_another_line, "xargs"),
        ("storms::a_program_called_sh1_is_no_shell", no_shell, "sh"),
        ("storms::make_with_a_shell_for_each_line", make, "make"),
        ("storms::make_fails_as_before", make_that_fails, "make"),
        ("storms::other_arguments_have_no_builtin", no_builtin, "bash"),
        ("storms::a_shell_for_each_line_of_xargs", shells_of_xargs, "xargs"),
        ("storms::a_shell_for_each_file_of_find", shells_of_find, "find"),
        ("storms::what_starts_few_programs_or_by_spawn_is_no_storm", quiet, "sh"),
    ];
    add_needing(trials, &tests);
}

#[track_caller]
fn storm(report: &Value, programs: u64, starts: &str, remedy: &str) {
    let finding = of_kind(report, "start_storm");
    assert_eq!(finding["count"], programs, "{finding}");
    let text = |name: &str| finding[name].as_str().expect("text").to_owned();
    assert!(text("title").contains(starts), "{finding}");
    assert!(text("remedy").contains(remedy), "{finding}");
    assert!(finding["saving_each_ns"]["mid"].as_f64().is_some_and(|ns| ns > 0.0), "{finding}");
}

fn is_quiet(report: &Value) {
    let findings = report["findings"].as_array().expect("a list");
    assert!(!findings.iter().any(|finding| finding["kind"] == "start_storm"), "{report}");
}

/// A script with 2,000 `$(date)` was told to start programs with posix_spawn.
fn script() {
    for tier in ["tracepoints", "perf"] {
        let Some(found) = report_in(tier, &[&fixture("dates.sh")]) else { continue };
        storm(
            &found,
            600,
            "dates.sh starts 600 short programs",
            "printf '%(FORMAT)T\\n' -1 for date +FORMAT",
        );
        let told = found["findings"].to_string();
        assert!(!told.contains("posix_spawn"), "a shell cannot be changed: {told}");
        let finding = of_kind(&found, "start_storm");
        assert!(finding["remedy"].to_string().contains("${file##*/} for $(basename FILE)"), "{finding}");
        // The remedy, applied.
        let Some(mended) = report_in(tier, &[&fixture("dates_by_bash.sh")]) else { continue };
        assert_eq!(mended["starts"]["programs"], 0, "{mended}");
        is_quiet(&mended);
    }
}

fn xargs() {
    let run =
        |options: &str| report_in("tracepoints", &["sh", "-c", &format!("seq 200 | xargs {options} true")]);
    let Some(found) = run("-n1") else { return };
    storm(&found, 200, "xargs starts 200 short programs", "`xargs true`");
    let Some(mended) = run("") else { return };
    is_quiet(&mended);
}

fn find_exec() {
    // A directory with many files, which no other test changes.
    let run = |end: &str| {
        let line = format!("find /proc/self/ -maxdepth 1 -exec true {{}} {end}");
        report_in("tracepoints", &["sh", "-c", &line])
    };
    let Some(found) = run("\\;") else { return };
    let count = of_kind(&found, "start_storm")["count"].as_u64().expect("a count");
    storm(&found, count, "find starts ", "`-exec true {} +`");
    let Some(mended) = run("+") else { return };
    is_quiet(&mended);
}

/// A directory of 60 files, and what a line prints in it.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("in")).expect("a directory");
        for number in 0..60 {
            fs::write(path.join(format!("in/f{number}.txt")), format!("x {number}\ny\n")).expect("a file");
        }
        Self(path)
    }

    fn line(&self, line: &str) -> String {
        format!("cd {} && {{ {line}; }}", self.0.display())
    }

    fn printed(&self, line: &str) -> String {
        let output = Command::new("sh").args(["-c", &self.line(line)]).output().expect("sh runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn report(&self, line: &str) -> Option<Value> {
        report_in("tracepoints", &["sh", "-c", &format!("{} >/dev/null", self.line(line))])
    }

    /// The other line is in the remedy's words, and does the same with few programs.
    #[track_caller]
    fn is_remedied(&self, line: &str, remedy: &str, other: &str) {
        let Some(found) = self.report(line) else { return };
        storm(&found, 60, " starts 60 short programs", remedy);
        let printed = self.printed(line);
        assert!(!printed.is_empty(), "{line}");
        assert_eq!(self.printed(other), printed, "{other}");
        let Some(mended) = self.report(other) else { return };
        is_quiet(&mended);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Regression: each was told to end with `{} +`, which is an error or silently does something else.
fn lines_of_find() {
    let files = Files::new("storms-find");
    for (each, remedy, many) in [
        ("chmod 600 {}", "`-exec chmod 600 {} +`; find then fails where chmod fails", "chmod 600 {} +"),
        (
            "sh -c 'echo \"$1\"' _ {}",
            "sh -c 'for f do ...; done; :' _ {} +`",
            "sh -c 'for f do echo \"$f\"; done; :' _ {} +",
        ),
        ("basename {} .txt", "basename -s .txt {} +", "basename -s .txt {} +"),
        ("grep x {}", "grep -h x {} +`; find then fails where grep finds nothing", "grep -h x {} +"),
        ("head -n 1 {}", "head -n 1 -q {} +", "head -n 1 -q {} +"),
        ("echo {}", "printf '%s\\n' {} +", "printf '%s\\n' {} +"),
        ("cp {} to", "cp -t to {} +", "cp -t to {} +"),
    ] {
        let line = |action: &str| {
            format!("rm -rf to && mkdir to && find in -type f -exec {action} && stat -c '%n %a %s' in/* to/*")
        };
        // Something is there for stat.
        let line = |action: &str| line(action).replace("mkdir to &&", "mkdir to && : >to/any &&");
        files.is_remedied(&line(&format!("{each} \\;")), remedy, &line(many));
    }
}

/// Regression: each was told to leave -n1 out.
fn lines_of_xargs() {
    let files = Files::new("storms-xargs");
    for (each, remedy, many) in [
        ("-n1 cat", "`xargs cat --`", "cat --"),
        ("-n1", "`xargs printf '%s\\n'`", "printf '%s\\n'"),
        ("-n1 basename", "`xargs basename -a --`", "basename -a --"),
        (
            "-n1 sh -c 'echo \"$0\"'",
            "sh -c 's=0; for f do { ...; } || s=1; done; exit $s' _`, with $f in place of $0",
            "sh -c 's=0; for f do { echo \"$f\"; } || s=1; done; exit $s' _",
        ),
        ("-I{} cksum {}", "`xargs -d '\\n' -r cksum --`", "-d '\\n' -r cksum --"),
    ] {
        let line = |options: &str| format!("printf '%s\\n' in/* | xargs {options}");
        files.is_remedied(&line(each), remedy, &line(many));
    }
}

/// Regression: pairs that were compared were to be given to one cmp.
fn without_another_line() {
    let files = Files::new("storms-none");
    for line in [
        "printf '%s\\n' in/* in/* | sort | xargs -n2 cmp",
        "find in -type f -exec cmp {} {} \\;",
        "find in -type f -exec date \\;",
        "printf '%s\\n' in/* | xargs -I{} cmp {} in/{}",
    ] {
        let Some(found) = files.report(&format!("{line} 2>&1 || :")) else { return };
        assert!(found["starts"]["programs"].as_u64().is_some_and(|programs| programs >= 60), "{found}");
        is_quiet(&found);
    }
}

/// The remedy removes shells, as many as a recipe has further lines.
fn make() {
    let recipes = fixture("recipes.mk");
    let shells = |report: &Value| -> u64 {
        let starters = report["starts"]["starters"].as_array().expect("a list").iter();
        let make = starters.filter(|starter| starter["name"] == "make");
        let started = make.flat_map(|starter| starter["started"].as_array().expect("a list").clone());
        started.filter(|one| one[0] == "sh").map(|one| one[1].as_u64().expect("a count")).sum()
    };
    let Some(found) = report_in("tracepoints", &["make", "-f", &recipes]) else { return };
    assert_eq!(shells(&found), 180, "{}", found["starts"]);
    let finding = of_kind(&found, "start_storm");
    assert!(finding["remedy"].to_string().contains("join them with &&, if each line"), "{finding}");
    let Some(mended) = report_in("tracepoints", &["make", "-f", &recipes, "ONE=1"]) else { return };
    assert_eq!(shells(&mended), 60, "{}", mended["starts"]);
    // Regression: what one shell for each recipe of one line was to save.
    let files = Files::new("storms-make");
    let lines = "all: $(addprefix x,$(shell seq 1 80))\nx%:\n\t@true && echo $@ >/dev/null\n";
    for (name, line) in [("Makefile", "make"), ("other.mk", "make -f other.mk")] {
        fs::write(files.0.join(name), lines).expect("a file");
        let Some(single) = files.report(line) else { return };
        assert_eq!(shells(&single), 80, "{}", single["starts"]);
        is_quiet(&single);
        fs::remove_file(files.0.join(name)).expect("it was there");
    }
}

/// Regression: with .ONESHELL: a build that failed succeeded, or one failed that had not.
fn make_that_fails() {
    let files = Files::new("storms-make-fails");
    let ended = |lines: &[&str], between: &str| {
        let recipe = format!("all:\n\t{}\n", lines.join(between));
        fs::write(files.0.join("Makefile"), recipe).expect("a file");
        let made = Command::new("make").arg("-s").current_dir(&files.0).output().expect("it runs");
        (made.status.code(), String::from_utf8(made.stdout).expect("UTF-8"))
    };
    let (apart, joined) = ("\n\t", " && \\\n\t");
    for lines in [
        ["echo 1", "false", "echo 3"],
        ["echo 1", "test -f none", "echo 3"],
        ["echo 1", "true", "echo 3"],
        ["echo 1 | tr 1 2", "! true", "echo 3"],
        ["echo 1 >out", "! false", "cat out"],
    ] {
        assert_eq!(ended(&lines, joined), ended(&lines, apart), "{lines:?}");
    }
    // Why the remedy has its conditions.
    for lines in [
        ["false", "test -f none || true", "echo 3"],
        ["false", "echo 2; echo 2", "echo 3"],
        ["echo 1", "@echo 2", "echo 3"],
        ["echo 1", "-false", "echo 3"],
        ["echo 1", "sleep 0 &", "echo 3"],
        ["echo 1", "false # why", "echo 3"],
        ["echo 1", "cd /", "pwd"],
        ["echo 1", "exit 0", "echo 3"],
    ] {
        assert_ne!(ended(&lines, joined), ended(&lines, apart), "{lines:?}");
    }
}

/// Regression: a loop that sleeps was to `read -t`, `expr a = b` to be `$((a = b))`, and the text
/// of a file to be executed.
fn no_builtin() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("storms-builtins");
    fs::create_dir_all(&folder).expect("a directory");
    let file = folder.join("own.sh");
    for line in
        ["sleep 0.001", "expr a = b", "expr 08 + 1", "basename -s .c a.c", "date -u", "/bin/echo -n a b"]
    {
        fs::write(&file, format!("for i in $(seq 80); do {line}; done >/dev/null; :\n")).expect("a file");
        let Some(found) = report_in("tracepoints", &["bash", &file.to_string_lossy()]) else { return };
        assert!(found["starts"]["programs"].as_u64().is_some_and(|programs| programs >= 80), "{found}");
        is_quiet(&found);
    }
    // Of one that also has other arguments nothing is told.
    fs::write(&file, "for i in $(seq 80); do expr $i + 1; /bin/echo $i; done >/dev/null; expr 08 + 1\n")
        .expect("a file");
    if let Some(found) = report_in("tracepoints", &["bash", &file.to_string_lossy()]) {
        let remedy = of_kind(&found, "start_storm")["remedy"].to_string();
        assert!(remedy.contains("for /bin/echo TEXT") && !remedy.contains("expr"), "{remedy}");
    }
    fs::remove_dir_all(&folder).expect("its files go");
}

/// Regression: a line of a shell was to be called with an argument vector. With -d in the place of
/// -0 the loop was for the first file alone.
fn shells_of_xargs() {
    let files = Files::new("storms-xargs-shells");
    let line = |options: &str| format!("printf '%s\\0' in/* | xargs -0 {options}");
    let plain = line("-I{} sh -c \"head -n1 {} 2>&1\"");
    let Some(found) = files.report(&plain) else { return };
    let finding = of_kind(&found, "needless_shell");
    let remedy = finding["remedy"].as_str().expect("text");
    for (part, other) in [
        ("`xargs ... head ...`", "-I{} head -n1 {}"),
        (
            "`xargs -0 -r sh -c 's=0; for f do { ...; } || s=1; done; exit $s' _`",
            "-r sh -c 's=0; for f do { head -n1 \"$f\" 2>&1; } || s=1; done; exit $s' _",
        ),
    ] {
        assert!(remedy.contains(part), "{finding}");
        assert_eq!(files.printed(&line(other)), files.printed(&plain));
    }
}

/// Regression: one shell for many files was advised whatever stands behind. With -delete the files
/// were gone before they were copied, and so were the copies.
fn shells_of_find() {
    let files = Files::new("storms-find-shells");
    let line = |rest: &str| format!("rm -rf fd bk; cp -r in fd; mkdir bk; find fd -type f -exec {rest}");
    let copy = |behind: &str| line(&format!("sh -c 'cp {{}} bk' \\; {behind}; ls bk"));
    for (behind, has_loop) in [("", true), ("-delete", false), ("-print", false)] {
        let Some(found) = files.report(&copy(behind)) else { return };
        let finding = of_kind(&found, "needless_shell");
        let remedy = finding["remedy"].as_str().expect("text");
        assert!(remedy.contains("`-exec cp ... {} \\;`"), "{finding}");
        assert_eq!(remedy.contains("for f do ...; done; :' _ {} +`"), has_loop, "{finding}");
        let by_words = line(&format!("cp {{}} bk \\; {behind}; ls bk"));
        assert_eq!(files.printed(&by_words), files.printed(&copy(behind)));
    }
    let by_loop = line("sh -c 'for f do cp \"$f\" bk; done; :' _ {} +; ls bk");
    assert_eq!(files.printed(&by_loop), files.printed(&copy("")));
}

/// Regression: a C program that calls system() had advice for scripts, because of its name.
fn no_shell() {
    let program = crate::support::known_problem().expect("checked before");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("storms-names");
    fs::create_dir_all(&folder).expect("a directory");
    for name in ["sh1", "make2", "perl5"] {
        let own = folder.join(name);
        fs::copy(program, &own).expect("a program");
        let found = report_in("tracepoints", &[&own.to_string_lossy(), "shell", "60"]);
        fs::remove_file(&own).expect("it was there");
        let Some(found) = found else { return };
        is_quiet(&found);
        let finding = of_kind(&found, "needless_shell");
        assert_eq!(finding["process"]["name"], name, "{finding}");
        assert_eq!(finding["count"], 60, "{finding}");
    }
}

fn quiet() {
    let program = crate::support::known_problem().expect("checked before").to_string_lossy();
    for command in [
        &["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done"][..],
        &[&program, "spawn", "300", "16"],
        &[&program, "vfork", "300", "16"],
    ] {
        let Some(found) = report_in("tracepoints", command) else { return };
        is_quiet(&found);
    }
}
