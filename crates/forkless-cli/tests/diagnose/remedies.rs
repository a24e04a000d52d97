//! Remedies in the words of each language, applied: programs of `fixtures/diagnose/remedies`, which
//! say themselves what must be found. A remedy works if the forks that copied memory are gone; the
//! clock is not asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::library::LIBRARY;
use crate::support::{FORKLESS, add_needing, find, fixture, report_in, skip};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 22] = [
        ("remedies::python_with_a_preexec_fn", || by_word(&[PYTHON], "preexec.py"), PYTHON),
        ("remedies::python_with_options_of_the_package", python_options, PYTHON),
        ("remedies::python_that_forks_onto_a_terminal", python_terminal, PYTHON),
        ("remedies::python_workers", python_workers, PYTHON),
        ("remedies::python_that_forks_itself", || by_word(&[PYTHON], "fork.py"), PYTHON),
        ("remedies::python_before_vfork", python_old, PYTHON),
        ("remedies::ruby_as_root", ruby_as_root, "setpriv"),
        ("remedies::ruby_that_forks_itself", ruby_fork, "setpriv"),
        ("remedies::ruby_that_forks_itself_as_root", ruby_fork_as_root, "ruby"),
        ("remedies::ruby_beside_workers", ruby_beside_workers, "ruby"),
        ("remedies::perl", || by_word(&["perl"], "system.pl"), "perl"),
        ("remedies::lines_of_perl_that_holds_much", lines_of_much, "perl"),
        ("remedies::php", || by_word(&["php"], "proc_open.php"), "php"),
        ("remedies::node", || by_word(&["node"], "spawn_sync.js"), "node"),
        ("remedies::java", java, "javac"),
        ("remedies::bash_with_much_in_a_variable", || by_word(&["bash"], "variable.bash"), "bash"),
        ("remedies::programs_that_bash_replaces", || storm("bash", "builtins.bash", 0), "bash"),
        ("remedies::programs_that_any_shell_replaces", || storm("dash", "builtins.dash", 0), "dash"),
        ("remedies::make_with_another_shell", make, "make"),
        ("remedies::run_is_not_promised_where_it_does_nothing", not_promised, PYTHON),
        ("remedies::run_is_not_promised_beside_a_tracer", traced, "strace"),
        ("remedies::run_is_promised_for_shells_that_it_spares", kept_shells, "dash"),
    ];
    add_needing(trials, &tests);
}

/// Not one of PATH, which may be a script that starts others first.
const PYTHON: &str = "/usr/bin/python3";

/// A program, with what its first lines say that must be found.
struct Program {
    path: String,
    kind: String,
    remedy: String,
    /// Function and line of the place, where it is marked.
    place: Option<(String, u64)>,
}

impl Program {
    fn of(name: &str) -> Self {
        let path = fixture(&format!("remedies/{name}"));
        let text = fs::read_to_string(&path).expect("a fixture");
        let said = |what: &str| {
            let found = text.lines().find_map(|line| line.split_once(what));
            found.unwrap_or_else(|| panic!("{name} does not say its {what}")).1.trim().to_owned()
        };
        let place = text.lines().zip(1..).find_map(|(line, number)| {
            line.split_once(" @0 ").map(|(_, function)| (function.trim().to_owned(), number))
        });
        Self { kind: said("finding: "), remedy: said("remedy: "), place, path }
    }

    /// The report's finding about this program, with the remedy and the place that it says.
    #[track_caller]
    fn finding(&self, report: &Value) -> Value {
        let findings = report["findings"].as_array().expect("a list").iter();
        let own = findings.filter(|finding| finding["kind"] == self.kind.as_str());
        let own: Vec<&Value> = own.filter(|finding| self.is_place(finding)).collect();
        let [finding] = own.as_slice() else { panic!("{}: {report:#}", self.path) };
        assert!(finding["remedy"].to_string().contains(&self.remedy), "{finding:#}");
        let name = finding["process"]["name"].as_str().expect("text");
        assert!(self.path.ends_with(name.rsplit(' ').next().unwrap_or(name)) || name == "make", "{name}");
        (*finding).clone()
    }

    /// A program in which a place was marked has no finding at another, but where its line could
    /// not be read.
    fn is_place(&self, finding: &Value) -> bool {
        let (Some((function, line)), Some(found)) = (&self.place, finding["stack"][0]["line"].as_u64())
        else {
            return true;
        };
        (finding["stack"][0]["function"].as_str(), found) == (Some(function), *line)
    }
}

fn watched(command: &[&str]) -> Option<Value> {
    report_in("tracepoints", command)
}

/// The forks that copied memory only to execute a program are gone, or the many programs. A helper
/// is started once.
#[track_caller]
fn is_mended(report: &Value, program: &Program) {
    let findings = report["findings"].as_array().expect("a list").iter();
    let of_kind = findings.filter(|finding| finding["kind"] == program.kind.as_str());
    let many = of_kind.filter(|finding| finding["count"].as_u64() >= Some(10));
    let titles: Vec<&Value> = many.map(|finding| &finding["title"]).collect();
    assert!(titles.is_empty(), "{}: {titles:?}", program.path);
}

/// The program alone is found. It is not found with the word behind it, nor with the command that
/// the finding prints.
fn by_word(interpreter: &[&str], name: &str) {
    let program = Program::of(name);
    let command = [interpreter, &[&program.path]].concat();
    let Some(found) = watched(&command) else { return };
    let finding = program.finding(&found);
    assert_eq!(finding["count"], 10, "{finding:#}");
    let Some(mended) = watched(&[&command[..], &["remedied"]].concat()) else { return };
    is_mended(&mended, &program);
    by_run(&command, &finding, &program);
}

/// By words each of a line's programs would be a copy of 192 MiB. Without the memory they are the
/// remedy.
fn lines_of_much() {
    let program = Program::of("lines.pl");
    let Some(found) = watched(&["perl", &program.path]) else { return };
    program.finding(&found);
    let Some(mended) = watched(&["perl", &program.path, "remedied"]) else { return };
    is_mended(&mended, &program);
    let small = "system '/bin/true; /bin/true' for 1 .. 80";
    let Some(found) = watched(&["perl", "-e", small]) else { return };
    let remedy = crate::support::of_kind(&found, &program.kind)["remedy"].to_string();
    assert!(remedy.contains("IPC::Run") && !remedy.contains("helper"), "{remedy}");
}

fn python_options() {
    with_package("options.py");
}

fn python_terminal() {
    with_package("terminal.py");
}

/// With the package, from the wheel that the tests of Python have built.
fn with_package(name: &str) {
    let program = Program::of(name);
    let Some(found) = watched(&[PYTHON, &program.path]) else { return };
    program.finding(&found);
    let wheels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python/built");
    let wheel = fs::read_dir(&wheels).into_iter().flatten().flatten().map(|file| file.path());
    let Some(wheel) = wheel.into_iter().find(|path| path.extension().is_some_and(|end| end == "whl")) else {
        return skip("no wheel of the Python package: ./x python builds it");
    };
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("remedies-{name}"));
    let unpacked = Command::new(PYTHON)
        .args(["-m", "zipfile", "-e"])
        .args([&wheel, &package])
        .status()
        .expect("it runs");
    assert!(unpacked.success(), "{}", wheel.display());
    let variable = format!("PYTHONPATH={}", package.display());
    let mended = watched(&["env", &variable, PYTHON, &program.path, "remedied"]);
    fs::remove_dir_all(&package).expect("its files go");
    let Some(mended) = mended else { return };
    is_mended(&mended, &program);
    assert_eq!(mended["creations"]["full_fork_then_exec"], 0, "{mended:#}");
}

/// The server forks as often, and is another program, which has loaded nothing.
fn python_workers() {
    let program = Program::of("pool.py");
    let Some(found) = watched(&[PYTHON, &program.path]) else { return };
    let finding = program.finding(&found);
    assert_eq!(finding["count"], 10, "{finding:#}");
    let Some(mended) = watched(&[PYTHON, &program.path, "remedied"]) else { return };
    assert_eq!(mended["creations"]["full_fork_alone"], 10, "{mended:#}");
    let mut findings = mended["findings"].as_array().expect("a list").iter();
    let of_program = findings.any(|found| found["process"]["name"] == finding["process"]["name"]);
    assert!(!of_program, "{mended:#}");
}

/// A Python of that minor version, of PATH or of pyenv.
fn python(minor: u32) -> Option<PathBuf> {
    let name = format!("python3.{minor}");
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let mut all = versions.map(|version| version.path().join("bin").join(&name));
    all.find(|path| path.is_file())
        .or_else(|| find(&name).filter(|path| !path.ends_with(format!("shims/{name}"))))
}

fn python_old() {
    let program = Program::of("old.py");
    for minor in [8, 9] {
        let Some(old) = python(minor) else {
            skip(format!("no Python 3.{minor}"));
            continue;
        };
        let Some(found) = watched(&[&old.to_string_lossy(), &program.path]) else { return };
        let finding = program.finding(&found);
        let own = finding["remedy"].to_string().contains("from forkless import");
        assert_eq!(own, minor == 9, "the package is for 3.9 and later: {finding:#}");
    }
    let Some(mended) = watched(&[PYTHON, &program.path]) else { return };
    is_mended(&mended, &program);
    assert_eq!(mended["creations"]["full_fork_then_exec"], 0, "{mended:#}");
}

const NOBODY: [&str; 6] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ruby", "-W0"];

/// A fixture where other users can read it.
pub(crate) struct Readable(pub(crate) PathBuf);

impl Readable {
    pub(crate) fn copy(path: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let file = Path::new(path).file_name().expect("a name").to_string_lossy().into_owned();
        let copy = std::env::temp_dir().join(format!("forkless-{}-{file}", std::process::id()));
        fs::copy(path, &copy).expect("a copy");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).expect("its mode");
        Self(copy)
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn ruby_as_root() {
    if find("ruby").is_none() {
        return skip("no ruby");
    }
    let program = Program::of("system.rb");
    let command = ["ruby", &program.path];
    let Some(found) = watched(&command) else { return };
    by_run(&command, &program.finding(&found), &program);
    let copy = Readable::copy(&program.path);
    let Some(mended) = watched(&[&NOBODY[..], &[&copy.0.to_string_lossy()]].concat()) else { return };
    is_mended(&mended, &program);
    assert_eq!(mended["creations"]["full_fork_then_exec"], 0, "{mended:#}");
}

/// As another user, who is not told to become one.
fn ruby_fork() {
    if find("ruby").is_none() {
        return skip("no ruby");
    }
    let mut program = Program::of("fork.rb");
    let copy = Readable::copy(&program.path);
    program.path = copy.0.to_string_lossy().into_owned();
    let command = [&NOBODY[..], &[&program.path]].concat();
    let Some(found) = watched(&command) else { return };
    let finding = program.finding(&found);
    assert!(!finding["remedy"].to_string().contains("root"), "{finding:#}");
    let Some(mended) = watched(&[&command[..], &["remedied"]].concat()) else { return };
    is_mended(&mended, &program);
    assert_eq!(mended["creations"]["full_fork_then_exec"], 0, "{mended:#}");
}

fn ruby_fork_as_root() {
    let program = Program::of("fork.rb");
    let command = ["ruby", &program.path];
    let Some(found) = watched(&command) else { return };
    by_run(&command, &program.finding(&found), &program);
}

/// The forks of libruby are several places for the preloaded library, and must be for the watch.
fn ruby_beside_workers() {
    let program = Program::of("workers.rb");
    let command = ["ruby", &program.path];
    let Some(found) = watched(&command) else { return };
    let finding = program.finding(&found);
    assert_eq!(finding["count"], 40, "{finding:#}");
    by_run(&command, &finding, &program);
}

fn java() {
    let program = Program::of("Launch.java");
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("remedies-java");
    let status = Command::new("javac").arg("-d").arg(&classes).arg(&program.path).status().expect("it runs");
    assert!(status.success(), "{} does not compile", program.path);
    let classes = classes.to_string_lossy();
    let java = ["java", "-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch", "-cp", &classes];
    let forks = [&java[..], &["-Djdk.lang.Process.launchMechanism=FORK", "Launch"]].concat();
    let Some(found) = watched(&forks) else { return };
    let finding = crate::support::of_kind(&found, &program.kind);
    assert!(finding["remedy"].to_string().contains(&program.remedy), "{finding:#}");
    assert_eq!(finding["process"]["name"], "java Launch", "{finding:#}");
    let Some(mended) = watched(&[&java[..], &["Launch"]].concat()) else { return };
    is_mended(&mended, &program);
    assert_eq!(mended["creations"]["full_fork_then_exec"], 0, "{mended:#}");
}

/// The programs that the remedy names are not started any more; `left` are.
fn storm(shell: &str, name: &str, left: u64) {
    let program = Program::of(name);
    let Some(found) = watched(&[shell, &program.path]) else { return };
    let finding = program.finding(&found);
    assert!(finding["saving_each_ns"]["mid"].as_f64().is_some_and(|ns| ns > 0.0), "{finding:#}");
    let Some(mended) = watched(&[shell, &program.path, "remedied"]) else { return };
    is_mended(&mended, &program);
    assert_eq!(mended["starts"]["programs"], left, "{mended:#}");
}

fn make() {
    let program = Program::of("shell.mk");
    let Some(found) = watched(&["make", "-f", &program.path]) else { return };
    program.finding(&found);
    let Some(mended) = watched(&["make", "-f", &program.path, "SHELL=/bin/sh"]) else { return };
    is_mended(&mended, &program);
    let started = mended["starts"]["starters"][0]["started"].to_string();
    assert!(started.contains(r#"["true",60]"#) && !started.contains("sh"), "{started}");
}

/// What `forkless run` leaves as it is by its own rules is not predicted to be saved by it, and the
/// finding says why.
fn not_promised() {
    let library = library();
    let run = ["env", &library, FORKLESS, "run", "--fork=off", "--"];
    let expected = [
        (vec![PYTHON, "slow.py"], ""),
        (vec![PYTHON, "works.py"], ""),
        (vec![PYTHON, "threads.py"], ""),
        (vec!["env", "FORKLESS=off", PYTHON, "preexec.py"], "FORKLESS is off in the environment"),
        (vec!["env", "-i", PYTHON, "preexec.py"], "the command cleared the environment before this program"),
        (vec!["env", "-u", "LD_PRELOAD", PYTHON, "preexec.py"], "the command removes or replaces LD_PRELOAD"),
        ([&run[..], &[PYTHON, "preexec.py"]].concat(), "the program has it already"),
    ];
    for (mut command, why) in expected {
        let program = Program::of(command.pop().expect("a program"));
        command.push(&program.path);
        let Some(found) = watched(&command) else { return };
        let finding = crate::support::of_kind(&found, &program.kind);
        let remedy = finding["remedy"].as_str().expect("text");
        let because = finding["why_not_run"].as_str().unwrap_or_default();
        assert!(
            remedy.contains("(`forkless run` does not help here: ") && because.contains(why),
            "{finding:#}"
        );
        if why.is_empty() {
            assert!(remedy.contains(&program.remedy), "{finding:#}");
        }
        let command = finding["command"].as_str().expect("text");
        assert!(command.starts_with("forkless diagnose -- "), "{command}");
    }
    // A static program, as a command and as the program itself.
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/known_problem.c");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("known_problem_static");
    let mut built = Command::new("cc");
    built.args(["-O1", "-static", "-o"]).arg(&binary).arg(known).stderr(Stdio::null());
    if !built.status().is_ok_and(|status| status.success()) {
        return skip("no static C library");
    }
    let binary = binary.to_string_lossy();
    let Some(found) = watched(&[&binary, "forkexec", "10", "48"]) else { return };
    let finding = crate::support::of_kind(&found, "full_fork_then_exec");
    assert!(finding["why_not_run"].to_string().contains("it is statically linked"), "{finding:#}");
}

fn traced() {
    let program = Program::of("preexec.py");
    let Some(found) = watched(&["strace", "-f", "-o", "/dev/null", PYTHON, &program.path]) else { return };
    let finding = crate::support::of_kind(&found, &program.kind);
    assert!(finding["why_not_run"].to_string().contains("a debugger or tracer watches it"), "{finding:#}");
}

/// The shells of system() that `run` spares, and those that it leaves.
fn kept_shells() {
    if fs::canonicalize("/bin/sh").ok() != fs::canonicalize("/bin/dash").ok() {
        return skip("/bin/sh is not dash, which waits");
    }
    let program = crate::support::known_problem().expect("checked before").to_string_lossy();
    for (mode, why) in [
        ("shell", ""),
        ("shell-handled", "the program handles or blocks signals that would end a waiting shell"),
        ("shell-pipe", "the line is more than a command"),
    ] {
        let command = [&program, mode, "50"];
        let Some(found) = watched(&command) else { return };
        let finding = crate::support::of_kind(&found, "needless_shell");
        assert_eq!(finding["why_not_run"].as_str().unwrap_or_default(), why, "{finding:#}");
        let names_run =
            finding["remedy"].as_str().is_some_and(|remedy| remedy.contains("under `forkless run`"));
        assert_eq!(names_run, why.is_empty(), "{finding:#}");
        let skipped = if why.is_empty() { 50 } else { 0 };
        assert_eq!(under_run(&command)["counters"]["shells_skipped"], skipped, "{mode}");
    }
}

/// The command of a finding, as it is printed: each of its forks commits, and the watch of the
/// remedied program has no finding.
#[track_caller]
fn by_run(command: &[&str], finding: &Value, program: &Program) {
    let line = finding["command"].as_str().expect("text");
    let rest = line.strip_prefix("forkless run -- ").unwrap_or_else(|| panic!("{finding:#}"));
    assert_eq!(rest, command.join(" "));
    committed(command, finding["count"].as_u64().expect("a count"));
    let library = library();
    let run = ["env", &library, FORKLESS, "run", PATIENT, "--"];
    let Some(mended) = watched(&[&run[..], command].concat()) else { return };
    is_mended(&mended, program);
}

/// On a busy machine a child may take longer than `forkless run` lets one take.
const PATIENT: &str = "--fork-limit=60000";

/// For env(1): where the library is.
fn library() -> String {
    format!("FORKLESS_LIBRARY={}", LIBRARY.display())
}

/// Under `forkless run` as many forks of the command commit, by the library's own report.
#[track_caller]
fn committed(command: &[&str], count: u64) {
    let report = under_run(command);
    let committed = &report["counters"]["committed"];
    assert!(committed.as_u64().is_some_and(|committed| committed >= count), "{command:?}: {report:#}");
}

/// The library's own report of a command.
#[track_caller]
pub(crate) fn under_run(command: &[&str]) -> Value {
    let program = Path::new(command[command.len() - 1]).file_name().expect("a name").to_string_lossy();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("remedies-{program}.json"));
    let status = Command::new(FORKLESS)
        .args(["run", PATIENT, "--json"])
        .arg(format!("--report={}", file.display()))
        .arg("--")
        .args(command)
        .env("FORKLESS_LIBRARY", &*LIBRARY)
        .stdin(Stdio::null())
        .status()
        .expect("forkless runs");
    assert!(status.success(), "{command:?}");
    let text = fs::read_to_string(&file).expect("a report");
    fs::remove_file(&file).expect("it was there");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
