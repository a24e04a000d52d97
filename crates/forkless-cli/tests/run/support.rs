//! Building the fixtures and the library once, running programs, reading reports.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The command under test.
pub(crate) const FORKLESS: &str = env!("CARGO_BIN_EXE_forkless");

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A place of this build's for a file of a test.
pub(crate) fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[path = "../library/mod.rs"]
mod library;

pub(crate) use library::LIBRARY;

/// A fixture of `fixtures/run`, compiled with these flags.
pub(crate) fn compile(source: &str, flags: &[&str]) -> PathBuf {
    compile_as(source.trim_end_matches(".c"), source, flags)
}

/// The same under a name of its own, beside the one that another test makes of the same source.
pub(crate) fn compile_as(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let out = temporary(name);
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
pub(crate) static FORK_CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("fork_cases.c", &["-lpthread"]));

thread_local! {
    /// Seconds a program of this test may take.
    static LIMIT: Cell<u32> = const { Cell::new(30) };
}

/// Lets the programs of the calling test take longer.
pub(crate) fn allow_seconds(seconds: u32) {
    LIMIT.set(seconds);
}

/// `timeout`, which ends what hangs.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT.get().to_string()).stdin(Stdio::null());
    command
}

/// `forkless run` with the library of this build.
pub(crate) fn run(options: &[&str], program: &Path, args: &[&str]) -> Command {
    let mut command = limited();
    command.arg(FORKLESS).arg("run").args(options).arg("--").arg(program).args(args);
    command.env("FORKLESS_LIBRARY", &*LIBRARY);
    command
}

/// The same program by itself.
pub(crate) fn plain(program: &Path, args: &[&str]) -> Command {
    let mut command = limited();
    command.arg(program).args(args);
    command
}

/// What an observer sees of a run.
pub(crate) fn observe(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("starts");
    (
        status.code(),
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// A report, as JSON.
pub(crate) struct Report(serde_json::Value);

impl Report {
    /// A counter.
    pub(crate) fn count(&self, key: &str) -> u64 {
        self.0["counters"][key].as_u64().unwrap_or_else(|| panic!("no counter {key} in {}", self.0))
    }

    /// All reasons of all call sites, each as often as it occurred.
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

/// Runs under forkless and reads the report the run leaves.
pub(crate) fn reported(
    options: &[&str],
    program: &Path,
    args: &[&str],
) -> ((Option<i32>, String, String), Report) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let file = temporary(&format!("report.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let to = format!("--report={}", file.display());
    let mut all = vec!["--json", to.as_str()];
    all.extend(options);
    let seen = observe(&mut run(&all, program, args));
    // The program waits a second for its report; on a busy machine it may take longer.
    let end = Instant::now() + Duration::from_secs(20);
    let text = loop {
        let text = std::fs::read_to_string(&file);
        if text.as_ref().is_ok_and(|t| t.ends_with('\n')) || Instant::now() > end {
            break text.unwrap_or_else(|e| panic!("no report: {e}; {seen:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let _ = std::fs::remove_file(&file);
    (seen, Report(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"))))
}
