//! Building the fixtures and the library once, running programs, reading reports.

use std::cell::Cell;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The command under test.
pub(crate) const FORKLESS: &str = env!("CARGO_BIN_EXE_forkless");

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A path in this build's directory, for a file of a test.
pub(crate) fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[path = "../library/mod.rs"]
mod library;
#[path = "../wait/mod.rs"]
mod wait;

pub(crate) use library::LIBRARY;
pub(crate) use wait::wait_until;

/// Whether this is one of the systems of `tests/kernels/run.sh`. There nothing is compiled, and
/// time passes slowly.
pub(crate) fn emulated() -> bool {
    std::env::var_os("FORKLESS_TEST_EMULATED").is_some()
}

/// Whether the running kernel is older than Linux MAJOR.MINOR. A trial call would not do: if a
/// facility is refused unexpectedly, tests must fail.
pub(crate) fn before_linux(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_str().expect("ASCII");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().expect("a number"));
    (numbers.next().expect("a version"), numbers.next().expect("a version")) < (major, minor)
}

/// Whether this kernel lacks syscall user dispatch: forks are left as they are.
pub(crate) fn without_dispatch() -> bool {
    before_linux(5, 11)
}

/// Whether this process is root. If not, the test counts as skipped.
pub(crate) fn root_to(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can {what}");
    }
    root
}

/// Whether root may do this in new namespaces: `unshare` with these options, and then this line.
/// The root of a container may lack the privilege. If so, the test counts as skipped.
pub(crate) fn root_in_namespace_to(what: &str, options: &[&str], line: &str) -> bool {
    if !root_to(what) {
        return false;
    }
    // An emulated system lacks the program, and no privilege.
    if emulated() {
        return true;
    }
    let tried = Command::new("unshare").args(options).args(["sh", "-c", line]).output();
    let why = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("unshare: {error}"),
    };
    println!("skipped: root may not {what} here: {why}");
    false
}

/// Whether children of this process may get a new PID namespace. If not, the test counts as
/// skipped.
pub(crate) fn may_make_pid_namespaces() -> bool {
    root_in_namespace_to("make a PID namespace", &["--pid"], ":")
}

/// Whether something may be mounted, in a mount namespace. If not, the test counts as skipped.
pub(crate) fn may_mount(what: &str) -> bool {
    root_in_namespace_to(what, &["--mount"], "mount -t tmpfs none /dev/shm")
}

/// For tests of speculation alone: whether this kernel has none. Then the test counts as skipped.
pub(crate) fn nothing_speculates() -> bool {
    if without_dispatch() {
        println!("skipped: without syscall user dispatch (Linux 5.11) nothing is speculated");
    }
    without_dispatch()
}

/// A time limit of so many seconds, where time passes as it seems.
pub(crate) fn seconds(n: u32) -> Duration {
    Duration::from_secs(u64::from(if emulated() { n * SLOWER } else { n }))
}

/// An emulator's processor, several tests at once.
const SLOWER: u32 = 20;

/// A fixture of `fixtures/run`, compiled with these flags.
pub(crate) fn compile(source: &str, flags: &[&str]) -> PathBuf {
    compile_as(source.trim_end_matches(".c"), source, flags)
}

/// The same under another name, beside the program that another test makes of this source.
pub(crate) fn compile_as(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let out = temporary(name);
    if emulated() {
        assert!(out.exists(), "{} was not brought along", out.display());
        return out;
    }
    let status = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-o"])
        .arg(&out)
        .arg(root().join("fixtures/run").join(source))
        .args(flags)
        .status()
        .expect("a C compiler (apt-get install gcc)");
    assert!(status.success(), "{source} does not compile");
    out
}

/// `fixtures/run/fork_cases.c`.
pub(crate) static FORK_CASES: LazyLock<PathBuf> =
    LazyLock::new(|| compile("fork_cases.c", &["-lpthread", "-ldl"]));

/// `fixtures/run/memory_cases.c`.
pub(crate) static MEMORY_CASES: LazyLock<PathBuf> =
    LazyLock::new(|| compile("memory_cases.c", &["-lpthread"]));

/// A child that an emulator or a busy machine runs late must not be undone for that: a minute.
pub(crate) const PATIENT: &str = "--fork-limit=60000";

thread_local! {
    /// Seconds after which a program of this test is taken to hang. A busy machine takes a hundred
    /// times as long as an idle one.
    static LIMIT: Cell<u32> = const { Cell::new(300) };
}

/// Lets the programs of the calling test take longer.
pub(crate) fn allow_seconds(seconds: u32) {
    LIMIT.set(seconds);
}

/// `timeout`, which ends what hangs.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "10"]).arg(seconds(LIMIT.get()).as_secs().to_string()).stdin(Stdio::null());
    // Some programs show their environment.
    command.env_remove("FORKLESS_TEST_LIBRARY");
    command
}

/// `forkless run` with the library of this build.
pub(crate) fn run(options: &[&str], program: &Path, args: &[&str]) -> Command {
    let mut command = limited();
    command.arg(FORKLESS).arg("run").args(options);
    if !options.iter().any(|o| o.starts_with("--fork-limit")) {
        command.arg(PATIENT);
    }
    command.arg("--").arg(program).args(args);
    command.env("FORKLESS_LIBRARY", &*LIBRARY);
    command
}

/// The same program by itself.
pub(crate) fn plain(program: &Path, args: &[&str]) -> Command {
    let mut command = limited();
    command.arg(program).args(args);
    command
}

/// The status and the output of a run.
///
/// A process that the program left behind may hold its output open for ever. It is killed, and the
/// test fails.
pub(crate) fn observe(command: &mut Command) -> (Option<i32>, String, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let out = read_apart(child.stdout.take().expect("piped"));
    let err = read_apart(child.stderr.take().expect("piped"));
    // Ended by `timeout` at the latest.
    let status = child.wait().expect("a child of the test");
    let text = |(pipe, all): (PathBuf, Receiver<Vec<u8>>)| match all.recv_timeout(seconds(300)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => panic!("{command:?} ended ({status}), and left {:?} behind", kill_holders(&pipe)),
    };
    (status.code(), text(out), text(err))
}

/// The pipe's name in /proc, and a receiver of its contents.
fn read_apart(mut pipe: impl Read + AsRawFd + Send + 'static) -> (PathBuf, Receiver<Vec<u8>>) {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", pipe.as_raw_fd())).unwrap_or_default();
    let (tell, all) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = tell.send(bytes);
    });
    (name, all)
}

/// Kills the other processes that have a pipe open. Returns their command lines.
fn kill_holders(pipe: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut killed = Vec::new();
    for pid in pids.filter(|pid| pid.cast_unsigned() != std::process::id()) {
        let mut files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let holds = |file: std::fs::DirEntry| std::fs::read_link(file.path()).is_ok_and(|to| to == pipe);
        if files.any(holds) {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            killed.push(format!("{pid} {}", line.replace('\0', " ")));
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).expect("a process's number"),
                rustix::process::Signal::KILL,
            );
        }
    }
    killed
}

/// A report, as JSON.
pub(crate) struct Report(serde_json::Value);

impl Report {
    /// A counter.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.0["counters"][key].as_u64().unwrap_or_else(|| panic!("no counter {key} in {}", self.0))
    }

    /// The object of each call site, and how many forks it made, in the order of names.
    pub(crate) fn forks_by_object(&self) -> Vec<(String, u64)> {
        let sites = self.0["sites"].as_array().expect("sites");
        let mut all: Vec<_> = sites
            .iter()
            .map(|s| {
                let (object, _) = s["site"].as_str().and_then(|s| s.split_once('+')).expect("object+offset");
                (object.to_owned(), s["forks"].as_u64().expect("a number"))
            })
            .collect();
        all.sort();
        all
    }

    /// The reasons of all call sites, each as often as it occurred.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let sites = self.0["sites"].as_array().expect("sites");
        let mut all = Vec::new();
        for reason in sites.iter().flat_map(|s| s["reasons"].as_array().expect("reasons")) {
            for _ in 0..reason["count"].as_u64().expect("count") {
                all.push(reason["reason"].as_str().expect("text").to_owned());
            }
        }
        all.sort();
        all
    }
}

/// Runs under forkless and reads the report of the run.
pub(crate) fn reported(
    options: &[&str],
    program: &Path,
    args: &[&str],
) -> ((Option<i32>, String, String), Report) {
    reported_by(|more| run(&[more, options].concat(), program, args))
}

/// The same for a command that takes the options to report.
pub(crate) fn reported_by(
    command: impl FnOnce(&[&str]) -> Command,
) -> ((Option<i32>, String, String), Report) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let file = temporary(&format!("report.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let to = format!("--report={}", file.display());
    let seen = observe(&mut command(&["--json", to.as_str()]));
    let report = report_in(&file, &seen);
    (seen, report)
}

/// The report that a run leaves in a file, which is removed. `seen` is for the message that there
/// is none.
pub(crate) fn report_in(file: &Path, seen: &dyn std::fmt::Debug) -> Report {
    report_when(|_| true, file, seen)
}

/// The same for a run that may write several reports: the first that `is_last` accepts, or the one
/// that is there after the time limit.
pub(crate) fn report_when(
    is_last: impl Fn(&Report) -> bool,
    file: &Path,
    seen: &dyn std::fmt::Debug,
) -> Report {
    // The program waits a second for its report. On a busy machine the report may take longer.
    let (mut text, mut report) = (String::new(), None);
    wait_until(|| {
        text = std::fs::read_to_string(file).unwrap_or_default();
        report = text.ends_with('\n').then(|| serde_json::from_str(&text).ok()).flatten().map(Report);
        report.as_ref().is_some_and(&is_last)
    });
    let _ = std::fs::remove_file(file);
    report.unwrap_or_else(|| panic!("no report: {text:?}; {seen:?}"))
}
