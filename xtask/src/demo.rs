//! `./x demo`: the product on this machine in under two minutes. It measures, lets the tool
//! explain, fixes, and closes with one table of before and after.
//!
//! Everything shown is measured here and now by the programs that users run; this module starts
//! them and lays out the result.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Flags of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Less memory and fewer runs: a check that everything works, in some ten seconds
    #[arg(long)]
    quick: bool,
}

/// The rows that tell the story; `forkless bench spawn` knows more.
const METHODS: &[&str] = &[
    "vfork_exec",
    "forkless",
    "forkless_nonblocking",
    "forkless_full",
    "forkless_system",
    "posix_spawn",
    "fork_exec",
    "system",
];

/// A label of the table, whether the server runs under `forkless run`, and the server's program.
const VARIANTS: [(&str, bool, &str); 3] = [
    ("as it is: std::process, which forks", false, "server-fork"),
    ("unchanged, under forkless run", true, "server-fork"),
    ("with the library: one `use` changed", false, "server-forkless"),
];

pub(crate) fn run(args: &Args) -> ExitCode {
    match show(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &Args) -> Result<()> {
    // `./x demo` builds this program in the profile of the others, beside them.
    let built = std::env::current_exe()?.parent().context("this program has no directory")?.to_owned();
    let forkless = built.join("forkless");
    let (memory, rounds, starts) = if args.quick { ("128M", 1, "3") } else { ("1G", 3, "5") };

    heading("Measure: what one start of a tiny program costs, in a process with no memory");
    let methods = known_methods(&forkless)?;
    spawn_table(&forkless, &methods, "0")?;
    heading(&format!("The same in a process that holds {memory}"));
    let mib = spawn_table(&forkless, &methods, memory)? >> 20;

    heading(&format!("Explain: a server that holds {mib} MiB starts a few programs"));
    explain(&forkless, &built.join("server-fork"), mib)?;

    heading("Fix: the same server three ways, timed from inside");
    let mut measured: [Vec<ServerTimes>; 3] = Default::default();
    // In turns, so that a machine that slows down meanwhile does not favour one.
    for _ in 0..rounds {
        for (which, (_, under_run, program)) in VARIANTS.iter().enumerate() {
            measured[which].push(timed_server(&forkless, &built.join(program), *under_run, mib, starts)?);
        }
    }
    summary(mib, &measured.map(|runs| ServerTimes::middle(&runs)));

    heading(
        "And what the articles behind it say: their claims about signal masks and passes after a fork, on this machine",
    );
    ledger(&forkless)?;
    next(&forkless);
    Ok(())
}

/// The same steps for the reader's own program.
fn next(forkless: &Path) {
    heading("Next: the same for a program of your own");
    // As it can be typed here.
    let here = std::env::current_dir().unwrap_or_default();
    let forkless = forkless.strip_prefix(&here).unwrap_or(forkless).display();
    for (arguments, about) in [
        ("diagnose -- PROGRAM ARGS...", "what process creation costs in it, and what a change would save"),
        ("run --report -- PROGRAM ARGS...", "the program as it is, without the cost of its forks"),
        ("sh --explain 'LINE'", "whether a line of system() or popen() needs its shell"),
        ("doctor", "what of all this works here"),
    ] {
        println!("{:<56} {about}", format!("{forkless} {arguments}"));
    }
    println!(
        "README.md and docs/guide say the rest; ./x install PREFIX puts the command and the libraries in place"
    );
}

/// The short form of the ledger, for the two experiments that take seconds.
fn ledger(forkless: &Path) -> Result<()> {
    let status = Command::new(forkless).args(["reproduce", "E1", "E4", "--quick", "--short"]).status()?;
    match status.code() {
        // 3: nothing could be decided here, and it has said why.
        Some(0 | 3) => Ok(()),
        _ => bail!("forkless reproduce: {status}"),
    }
}

fn heading(text: &str) {
    println!("\n== {text}\n");
}

/// Those of [`METHODS`] that this build of the bench knows, as its flag takes them.
fn known_methods(forkless: &Path) -> Result<String> {
    let output = Command::new(forkless).args(["bench", "spawn", "--methods", "list"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let known: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    Ok(METHODS.iter().copied().filter(|method| known.contains(method)).collect::<Vec<_>>().join(","))
}

/// Prints the table, and returns how many bytes the parent really held: less than asked for where
/// memory is short.
fn spawn_table(forkless: &Path, methods: &str, rss: &str) -> Result<u64> {
    let file = Scratch(std::env::temp_dir().join(format!("forkless-demo-{}.json", std::process::id())));
    let status = Command::new(forkless)
        .args(["bench", "spawn", "--quick", "--no-save", "--shrink", "--methods", methods, "--rss", rss])
        .arg("--json")
        .arg(&file.0)
        .status()?;
    if !status.success() {
        bail!("forkless bench spawn: {status}");
    }
    let results: Value =
        serde_json::from_slice(&std::fs::read(&file.0)?).context("the results of the bench")?;
    results["suites"][0]["rows"][0]["params"]["rss"].as_u64().context("the results of the bench name no rss")
}

/// A file that is gone when this goes.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Watches the server with the tool. If the tool may not watch, the demo says so and goes on.
fn explain(forkless: &Path, server: &Path, mib: u64) -> Result<()> {
    let status =
        Command::new(forkless).args(["diagnose", "--"]).arg(server).args([&mib.to_string(), "5"]).status()?;
    match status.code() {
        // 1: it found something, as it should.
        Some(0 | 1) => {}
        _ => println!("forkless diagnose cannot watch here ({status}); the rest goes on without it"),
    }
    Ok(())
}

/// The times that the server prints of itself, in microseconds.
#[derive(Debug, Clone, Copy)]
struct ServerTimes {
    start: f64,
    pass_before: f64,
    pass_after: f64,
}

impl ServerTimes {
    /// The median of each figure.
    fn middle(runs: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| {
            let mut figures: Vec<f64> = runs.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Self {
            start: middle(|run| run.start),
            pass_before: middle(|run| run.pass_before),
            pass_after: middle(|run| run.pass_after),
        }
    }
}

fn timed_server(
    forkless: &Path,
    program: &Path,
    under_run: bool,
    mib: u64,
    starts: &str,
) -> Result<ServerTimes> {
    let mut command = Command::new(if under_run { forkless } else { program });
    if under_run {
        command.args(["run", "--"]).arg(program);
    }
    let output = command.args(["--json", &mib.to_string(), starts]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{}: {}", program.display(), output.status);
    }
    let said: Value =
        serde_json::from_slice(&output.stdout).with_context(|| program.display().to_string())?;
    let figure =
        |name: &str| said[name].as_f64().with_context(|| format!("{}: no {name}", program.display()));
    Ok(ServerTimes {
        start: figure("start_us")?,
        pass_before: figure("pass_before_us")?,
        pass_after: figure("pass_after_us")?,
    })
}

fn summary(mib: u64, servers: &[ServerTimes; 3]) {
    let before = servers[0];
    println!("{mib} MiB held; medians, and how many times faster than as it is\n");
    println!("{:<38}{:>20}{:>32}", "", "start a program", "next pass over the memory");
    for ((label, ..), server) in VARIANTS.iter().zip(servers) {
        println!(
            "{label:<38}{:>12}{:>8}{:>24}{:>8}",
            milliseconds(server.start),
            times(before.start, server.start),
            milliseconds(server.pass_after),
            times(before.pass_after, server.pass_after),
        );
    }
    println!(
        "{:<38}{:>12}{:>8}{:>24}",
        "(a pass when nothing was started)",
        "",
        "",
        milliseconds(before.pass_before)
    );
}

fn milliseconds(us: f64) -> String {
    format!("{:.2} ms", us / 1e3)
}

/// Empty for the row the others are compared with.
fn times(before: f64, after: f64) -> String {
    if before == after { String::new() } else { format!("{:.1}x", before / after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It took a release build to find out.
    #[test]
    fn wrong_arguments_are_refused_in_a_line_before_anything_is_built() {
        let x = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("x");
        for (arguments, said) in [
            (&["demo", "--nope"][..], "./x: demo takes no argument but --quick\n"),
            (&["nope"], "./x: no command 'nope': `./x help` lists them\n"),
            (&["install", "relative"], "./x: install: relative: the prefix must be an absolute path\n"),
            (
                &["install", "/a b"],
                "./x: install: '/a b': the prefix must have no space, no colon and none of \\ $ # \" ' `\n",
            ),
            (&["uninstall"], "./x: uninstall takes one argument, the prefix: ./x uninstall /usr/local\n"),
            (&["release", "--nope"], "./x: release takes no option, but a directory and targets: --nope\n"),
            (
                &["kernels", "--nope"],
                "./x: kernels takes one argument at most, the directory of the report\n",
            ),
            (&["build", "--nope"], "./x: build takes no arguments\n"),
        ] {
            let output = Command::new(&x).args(arguments).output().unwrap();
            assert_eq!(
                (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
                (Some(2), said)
            );
        }
    }

    /// `release --help` took the option for a path.
    #[test]
    fn each_command_has_help() {
        let x = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("x");
        let usage = Command::new(&x).arg("help").output().unwrap().stdout;
        let listed = String::from_utf8(usage.clone()).unwrap();
        let commands = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        // `test` and `bench` give the help of what they call.
        let commands: Vec<_> = commands.filter(|name| !["", "test", "bench"].contains(name)).collect();
        assert!(commands.len() > 9, "{commands:?}");
        for command in commands {
            let output = Command::new(&x).args([command, "--help"]).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
            assert_eq!(output.stdout, usage, "{command}");
        }
    }

    #[test]
    fn the_middle_run_is_taken_figure_by_figure() {
        let run = |start, pass_after| ServerTimes { start, pass_before: 1.0, pass_after };
        let middle = ServerTimes::middle(&[run(3.0, 7.0), run(1.0, 9.0), run(2.0, 8.0)]);
        assert_eq!((middle.start, middle.pass_after), (2.0, 8.0));
    }
}
