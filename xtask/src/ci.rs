//! Every check that a change must pass, cheapest first, and one closing line with the counts of the
//! checks that ran.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::step::{self, Counted};
use crate::tally::Tally;
use crate::{book, elsewhere, examples, installed, layers, msrv, packages, symbols, text, tree};

/// Flags of `cargo xtask ci`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only the steps whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the names of the steps and stop
    #[arg(long)]
    list: bool,
}

/// One step: a check of this program, or a command line relative to the root.
enum Work {
    Check(fn() -> anyhow::Result<String>),
    Once(&'static [&'static str]),
    Tests(&'static [&'static str]),
}

/// The seconds are a limit that ends a hang. A busy machine takes several times as long as an idle
/// one.
///
/// The preloaded library, a `no_std` shared object without unwinding, has no test harness. Steps of
/// its own build and lint it.
const STEPS: &[(&str, u64, Work)] = &[
    ("format", 60, Work::Once(&["cargo", "fmt", "--all", "--check"])),
    ("paths", 60, Work::Check(text::paths)),
    ("links", 60, Work::Check(text::links)),
    ("book", 60, Work::Check(book::check)),
    ("layers", 60, Work::Check(layers::check)),
    ("examples", 60, Work::Check(examples::check)),
    ("packages", 60, Work::Check(packages::check)),
    ("bpf objects are fresh", 120, Work::Once(&["bpf/build.sh", "--check"])),
    ("build", 2700, Work::Once(&["./x", "build"])),
    ("shared objects", 60, Work::Check(symbols::check)),
    ("installed", 900, Work::Check(installed::check)),
    ("msrv", 1800, Work::Check(msrv::check)),
    ("msrv of the libraries", 900, Work::Check(msrv::libraries)),
    ("other systems", 900, Work::Check(elsewhere::systems)),
    ("other architecture", 900, Work::Check(elsewhere::architecture)),
    ("other targets of a release", 900, Work::Check(elsewhere::release)),
    (
        "clippy",
        1800,
        Work::Once(&[
            "cargo",
            "clippy",
            "--workspace",
            "--exclude=forkless-preload",
            "--all-targets",
            "--features=forkless/tokio",
            "--locked",
            "--",
            "-Dwarnings",
        ]),
    ),
    (
        "clippy of the preloaded library",
        900,
        Work::Once(&[
            "cargo",
            "clippy",
            "--profile=preload",
            "--package=forkless-preload",
            "--locked",
            "--",
            "-Dwarnings",
        ]),
    ),
    (
        "tests",
        3600,
        Work::Tests(&[
            "cargo",
            "test",
            "--workspace",
            "--exclude=forkless-preload",
            "--features=forkless/tokio",
            "--locked",
            "--no-fail-fast",
            "--",
            "--show-output",
        ]),
    ),
    // The wheel with the command in it, from a fresh virtual environment; the newest interpreter
    // here.
    ("python", 1800, Work::Tests(&["./x", "python", "--or-skip"])),
    ("demo", 900, Work::Once(&["./x", "demo", "--quick"])),
    (
        "documentation",
        900,
        Work::Once(&[
            "cargo",
            "doc",
            "--workspace",
            "--exclude=forkless-preload",
            "--features=forkless/tokio",
            "--no-deps",
            "--locked",
        ]),
    ),
];

pub(crate) fn run(args: &Args) -> ExitCode {
    let begun = Instant::now();
    let mut tally = Tally::default();
    for (name, seconds, work) in STEPS {
        if args.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        if args.list {
            println!("{name}");
            continue;
        }
        println!("== {name}");
        let since = Instant::now();
        match take(name, *seconds, work) {
            Ok(counted) => tally.add(counted),
            Err(error) => {
                // Interrupted, or a command is missing: the next steps would fail in the same way.
                eprintln!("xtask: {error:#}");
                tally.check(name, false);
                break;
            }
        }
        println!("== {name}: {:.0} s", since.elapsed().as_secs_f64());
    }
    if args.list {
        return ExitCode::SUCCESS;
    }
    println!("\nall of it: {:.0} s", begun.elapsed().as_secs_f64());
    for skip in &tally.skips {
        println!("not run: {skip}");
    }
    for failure in &tally.failures {
        println!("FAILED: {failure}");
    }
    println!("{}", tally.closing());
    if tally.failed == 0 && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn take(name: &str, seconds: u64, work: &Work) -> anyhow::Result<Tally> {
    let (line, counted) = match work {
        Work::Check(check) => return Ok(in_process(name, *check)),
        Work::Once(line) => (line, Counted::Once),
        Work::Tests(line) => (line, Counted::Tests),
    };
    let mut command = Command::new(line[0]);
    command
        .args(&line[1..])
        .current_dir(tree::root())
        .env("RUSTDOCFLAGS", "-Dwarnings")
        .env("CARGO_TERM_COLOR", "never")
        // `cargo run` sets these for this package. Build scripts and tests of other packages must
        // not see them.
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_PKG_NAME");
    step::run(name, &mut command, counted, Duration::from_secs(seconds))
}

fn in_process(name: &str, check: fn() -> anyhow::Result<String>) -> Tally {
    let mut tally = Tally::default();
    match check() {
        Ok(note) => {
            println!("{note}");
            if let Some(why) = note.strip_prefix("skipped:") {
                tally.skipped += 1;
                tally.skips.push(format!("{name}: {}", why.trim()));
            } else {
                tally.check(name, true);
            }
        }
        Err(error) => {
            println!("{error:#}");
            tally.check(name, false);
        }
    }
    tally
}
