//! Runs every case in a process of its own. What a start leaves behind shows in the process's
//! descriptors, children, threads, mappings and masks, and other tests in the same process would
//! blur that. Some cases also close 0, install filters or ignore signals.
//!
//! The runner understands the usual arguments of `cargo test`: a filter, `--exact`, `--list`,
//! `--nocapture`. A case that cannot run here says so with [`skip`]; skips are counted and printed
//! with their reason.

pub mod filter;
pub mod guard;
pub mod report;
pub mod trace;

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Case {
    /// `theme::behaviour`.
    pub name: &'static str,
    /// Panics when the behaviour is not there.
    pub run: fn(),
    /// Whether a second run in the same process does the same: then mappings are counted, too.
    pub repeatable: bool,
}

/// A module's cases, by the names of its functions; those after `once` change their process for
/// good.
macro_rules! cases {
    ($($name:ident),* $(,)? $(; once $($once:ident),* $(,)?)?) => {
        pub const CASES: &[$crate::support::Case] = &[
            $($crate::support::Case {
                name: concat!(module_path!(), "::", stringify!($name)), run: $name, repeatable: true,
            },)*
            $($($crate::support::Case {
                name: concat!(module_path!(), "::", stringify!($once)), run: $once, repeatable: false,
            },)*)?
        ];
    };
}
pub(crate) use cases;

const SKIPPED: i32 = 77;

/// A limit that ends a hang, and that no busy machine reaches.
pub fn patience() -> Duration {
    Duration::from_secs(if emulated() { 3000 } else { 300 })
}

/// Waits until a condition holds that is sure to hold sooner or later.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let late = Instant::now() + patience();
    while !done() {
        assert!(Instant::now() < late, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// So many, a fifth of them in an emulator, where a start takes a tenth of a second.
pub fn many(number: usize) -> usize {
    if emulated() { number / 5 } else { number }
}

/// The number that a variable of the environment asks for, instead of a case's own.
pub fn asked_for(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|n| n.parse().expect("a number"))
}

/// The long form of the torture ends itself when nothing gets on.
fn limit() -> Duration {
    if std::env::var_os("FORKLESS_TORTURE").is_some() {
        Duration::from_secs(240 * 3600)
    } else {
        3 * patience()
    }
}

/// Ends the case as not run, with the reason.
pub fn skip(reason: &str) -> ! {
    println!("skipped: {reason}");
    let _ = std::io::stdout().flush();
    std::process::exit(SKIPPED)
}

/// Ends the case unless it runs as root.
pub fn need_root() {
    if forkless_sys::ids::geteuid() != 0 {
        skip("needs root");
    }
}

/// Ends the case where time passes too slowly for what it promises: `tests/kernels/library.sh` says
/// so to its emulated systems.
pub fn need_real_time() {
    if emulated() {
        skip("an emulator's times mean nothing");
    }
}

pub fn emulated() -> bool {
    std::env::var_os("FORKLESS_TEST_EMULATED").is_some()
}

/// The running kernel's version.
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().expect("a number"));
    (numbers.next().expect("a version"), numbers.next().expect("a version"))
}

/// This test's own program, with the arguments that make it play a role instead of testing.
pub fn me() -> std::path::PathBuf {
    std::env::current_exe().expect("the test knows its own path")
}

pub fn short_of(name: &str) -> &str {
    short(name)
}

fn short(name: &str) -> &str {
    name.strip_prefix("behaviour::").unwrap_or(name)
}

/// `workers` are run by other cases only, with `--bare`.
pub fn main(themes: &[&[Case]], workers: &[&[Case]]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let all: Vec<Case> = themes.iter().flat_map(|t| t.iter().copied()).collect();
    if let [flag, name] = &args[..]
        && flag == "--run"
    {
        let case = all.iter().find(|c| short(c.name) == name).expect("a case of that name");
        // Descriptors that cargo and its callers leave open would show in the children.
        let _ = forkless_sys::fd::close_range(3, u32::MAX, 0);
        guard::around(case);
        return ExitCode::SUCCESS;
    }
    if let [flag, name] = &args[..]
        && flag == "--bare"
    {
        let workers = workers.iter().flat_map(|w| w.iter());
        (all.iter().chain(workers).find(|c| short(c.name) == name).expect("a case of that name").run)();
        return ExitCode::SUCCESS;
    }
    let exact = args.iter().any(|a| a == "--exact");
    let show = args.iter().any(|a| a == "--nocapture");
    let filters: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen: Vec<Case> = all
        .iter()
        .copied()
        .filter(|c| {
            filters.is_empty()
                || filters.iter().any(|f| {
                    if exact { short(c.name) == f.as_str() } else { short(c.name).contains(f.as_str()) }
                })
        })
        .collect();
    if args.iter().any(|a| a == "--list") {
        for c in &chosen {
            println!("{}: test", short(c.name));
        }
        return ExitCode::SUCCESS;
    }
    run_all(&chosen, show)
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

fn run_all(cases: &[Case], show: bool) -> ExitCode {
    let began = Instant::now();
    println!("\nrunning {} cases, a process each", cases.len());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(cases.len().max(1));
    std::thread::scope(|s| {
        for _ in 0..workers {
            s.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let outcome = run_one(case, show);
                    let word = match &outcome {
                        Outcome::Passed => String::from("ok"),
                        Outcome::Skipped(why) => format!("skipped ({why})"),
                        Outcome::Failed(_) => String::from("FAILED"),
                    };
                    let took = start.elapsed();
                    let slow =
                        if took > Duration::from_secs(2) { format!(" {took:.1?}") } else { String::new() };
                    println!("test {} ... {word}{slow}", short(case.name));
                    results.lock().expect("no worker panics").push((case.name, outcome));
                }
            });
        }
    });
    let results = results.into_inner().expect("no worker panics");
    for (name, outcome) in &results {
        if let Outcome::Failed(said) = outcome {
            println!("\n---- {} ----\n{}", short(name), said.trim_end());
        }
    }
    let count = |f: fn(&Outcome) -> bool| results.iter().filter(|r| f(&r.1)).count();
    let failed = count(|o| matches!(o, Outcome::Failed(_)));
    println!(
        "\ntest result: {}. {} passed; {failed} failed; {} skipped; finished in {:.2?}\n",
        if failed == 0 { "ok" } else { "FAILED" },
        count(|o| matches!(o, Outcome::Passed)),
        count(|o| matches!(o, Outcome::Skipped(_))),
        began.elapsed(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// Uses `std::process`: the library under test must not judge itself.
fn run_one(case: &Case, show: bool) -> Outcome {
    let mut child = Command::new(me())
        .args(["--run", short(case.name)])
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the test can start itself");
    let pid = child.id() as i32;
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (tell, done) = std::sync::mpsc::channel::<()>();
    let late = std::thread::spawn(move || {
        let late = done.recv_timeout(limit()) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if late {
            let stuck = std::fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
            println!("test took longer than {:?}; kernel stack of {pid}:\n{stuck}", limit());
            let _ = forkless_sys::process::kill(-pid, 9);
        }
        late
    });
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = err.read_to_end(&mut bytes);
        bytes
    });
    let mut said = Vec::new();
    let _ = out.read_to_end(&mut said);
    let status = child.wait().expect("our own child");
    let _ = tell.send(());
    said.extend(reading.join().unwrap_or_default());
    let late = late.join().unwrap_or(false);
    let text = String::from_utf8_lossy(&said).into_owned();
    if show {
        print!("{text}");
    }
    match status.code() {
        Some(0) => Outcome::Passed,
        Some(SKIPPED) => Outcome::Skipped(
            text.lines().find_map(|l| l.strip_prefix("skipped: ")).unwrap_or("no reason given").to_owned(),
        ),
        _ => Outcome::Failed(format!("{text}\n{status}{}", if late { ", took too long" } else { "" })),
    }
}
