//! The top level of the command line. A subcommand's own flags live beside its code in
//! `commands/NAME`.

#[cfg(target_os = "linux")]
use std::env;
use std::io::{self, Write as _};
use std::process;

use clap::{Parser, Subcommand};

use crate::commands;

/// Measure, explain and remove the cost of starting processes.
#[derive(Debug, Parser)]
#[command(
    name = "forkless",
    version,
    arg_required_else_help = true,
    max_term_width = 110,
    after_help = "Examples:\n  forkless doctor\n  forkless bench spawn --rss 1G\n  forkless diagnose -- make\n  forkless try -- PROGRAM ARGS...\n  forkless run --report -- \
    PROGRAM ARGS...\n\nExit codes: 0 fine, 1 finding or regression, 2 usage, 3 missing privilege or facility; `run` and `sh` give the \
    program's own."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant a subcommand, in the order the help shows them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure process creation, memory, system calls and context switches on this machine.
    ///
    /// The methods of a suite take turns in rounds, and every figure is a median with its 95 %
    /// interval within that run. No suite needs root or a compiler. As root, some suites measure
    /// more kinds of pages and devices, and restore the settings that they change, even if they are
    /// killed. Results are kept in $XDG_DATA_HOME/forkless/bench (else below ~/.local/share), where
    /// `forkless history` lists them.
    Bench(commands::bench::Args),
    /// Find costly process creation: where, how much, why, and a remedy.
    ///
    /// Watches a command, a process with its descendants, a cgroup or the machine, and ranks its
    /// findings by the saving of their remedies. It finds forks of much memory, needless shells,
    /// searches along PATH, and system calls that do nothing. As root it watches by BPF. With fewer
    /// rights it sees less, and says so (`forkless doctor`).
    #[cfg(target_os = "linux")]
    Diagnose(commands::diagnose::Args),
    /// Compare saved results: faster, slower, or no difference shown.
    ///
    /// Two methods of one result were interleaved, and their ratios within rounds are tested. Two
    /// results are separate runs, and the machine may have changed between them. So each figure is
    /// divided by its own run's yardstick, and the interval of the ratio is widened by 5 %, or more
    /// if a result has fewer than three restarts.
    Compare(commands::compare::Args),
    /// List the saved results.
    History(commands::compare::HistoryArgs),
    /// Show which facilities of this machine each part of the tool can use, and what replaces the
    /// missing ones.
    #[cfg(target_os = "linux")]
    Doctor(commands::doctor::Args),
    /// Write manual pages or shell completions; for packagers.
    #[command(hide = true)]
    Generate(commands::generate::Args),
    /// Put a running process's memory into huge pages, so that its forks copy 512 times fewer
    /// entries.
    ///
    /// Calls process_madvise(MADV_COLLAPSE) in short calls, for a limited share of the time. Needs
    /// Linux 6.1, and root, or CAP_SYS_NICE for one's own processes. Leaves out memory that the
    /// program excluded, mappings of files, and huge pages that are mostly unused.
    #[cfg(target_os = "linux")]
    Repair(commands::repair::Args),
    /// Print what programs have counted into a record.
    ///
    /// Programs that load the library without `forkless run` count into FILE if their environment
    /// has FORKLESS_OPTIONS=record=FILE. The first of them creates FILE.
    #[cfg(target_os = "linux")]
    Report(commands::report::Args),
    /// Repeat the published experiments on this machine, and print a ledger of their claims.
    #[cfg(target_os = "linux")]
    Reproduce(commands::reproduce::Args),
    #[cfg(target_os = "linux")]
    Run(commands::run::Args),
    /// Run a shell line as /bin/sh would, without the shell if that makes no difference.
    #[cfg(target_os = "linux")]
    Sh(commands::sh::Args),
    #[cfg(target_os = "linux")]
    Try(Box<commands::trial::Args>),
}

impl Cli {
    /// Reads the command line. Help and errors end the process here.
    ///
    /// A program that `run` starts must notice no difference, in time either: for `run` the several
    /// hundred flags of the other subcommands are not built.
    pub(crate) fn read() -> Cli {
        #[cfg(target_os = "linux")]
        if env::args_os().nth(1).is_some_and(|word| word == "run") {
            let OnlyRun::Run(args) = RunCli::try_parse().unwrap_or_else(|answer| end_with(&answer)).command;
            return Cli { command: Command::Run(args) };
        }
        Cli::try_parse().unwrap_or_else(|answer| end_with(&answer))
    }
}

/// Prints help or an error and ends with its exit code. Unlike [`clap::Error::exit`] it fails where
/// the text could not be printed.
fn end_with(answer: &clap::Error) -> ! {
    let text = answer.to_string();
    // Without a subcommand it is the help.
    if let Some(said) = text.strip_prefix("error: ").filter(|_| answer.use_stderr()) {
        let is_value = answer.kind() == clap::error::ErrorKind::ValueValidation;
        crate::terminal::complain!("forkless: {}", crate::terminal::plain(&complaint(said, is_value)));
        process::exit(answer.exit_code());
    }
    let there = crate::terminal::open_stdout().map(drop);
    let printed = there.and_then(|()| answer.print()).and_then(|()| io::stdout().flush());
    let code = match printed {
        Err(error) if !answer.use_stderr() => {
            crate::terminal::complain!("forkless: cannot write to standard output: {error}");
            1
        }
        _ => answer.exit_code(),
    };
    process::exit(code);
}

/// What clap says of a wrong command line, in one line, as other errors are. It says it in
/// paragraphs: the fault, perhaps tips, the usage, and where help is.
fn complaint(said: &str, is_value: bool) -> String {
    let paragraphs = said.split("\n\n").map(|paragraph| {
        // A value may hold a newline itself.
        if is_value { crate::terminal::in_line(paragraph.trim_end()) } else { words(paragraph) }
    });
    // The message about a value names its flag and what it takes.
    let most = if is_value { 1 } else { usize::MAX };
    let is_told = |paragraph: &String| {
        let skipped = ["Usage:", "For more information"];
        !paragraph.is_empty() && !skipped.iter().any(|begin| paragraph.starts_with(begin))
    };
    let mut told: Vec<String> = paragraphs.filter(is_told).take(most).collect();
    if !is_value {
        told.push("see --help".to_owned());
    }
    told.join("; ")
}

/// The words of a paragraph with one blank between them.
fn words(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The top level with one subcommand.
#[cfg(target_os = "linux")]
#[derive(Debug, Parser)]
#[command(name = "forkless", max_term_width = 110)]
struct RunCli {
    #[command(subcommand)]
    command: OnlyRun,
}

#[cfg(target_os = "linux")]
#[derive(Debug, Subcommand)]
enum OnlyRun {
    Run(commands::run::Args),
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, RunCli};

    #[test]
    fn a_wrong_command_line_is_told_in_one_line() {
        let said = |line: &[&str]| {
            let error = Cli::command().try_get_matches_from(line).expect_err("it is wrong").to_string();
            super::complaint(error.strip_prefix("error: ").expect("an error"), false)
        };
        let both = said(&["forkless", "diagnose", "--json", "--html", "--", "true"]);
        assert_eq!(both, "the argument '--json' cannot be used with '--html'; see --help");
        let unknown = said(&["forkless", "diagnose", "--jso", "--", "true"]);
        assert!(unknown.starts_with("unexpected argument '--jso' found; tip: "), "{unknown}");
        assert!(unknown.contains("'--json'") && !unknown.contains('\n'), "{unknown}");
        assert!(said(&["forkless", "try"]).contains("not provided: <CMD>"), "{}", said(&["forkless", "try"]));
    }

    #[test]
    fn run_by_itself_reads_as_among_the_others() {
        let help = |mut all: clap::Command| {
            all.build();
            all.find_subcommand_mut("run").expect("run").render_long_help().to_string()
        };
        assert_eq!(help(RunCli::command()), help(Cli::command()));
        for line in [
            &["forkless", "run"][..],
            &["forkless", "run", "--fork=never", "--", "x"],
            &["forkless", "run", "--forc", "x"],
        ] {
            let [one, other] = [RunCli::command(), Cli::command()]
                .map(|all| all.try_get_matches_from(line).unwrap_err().to_string());
            assert_eq!(one, other);
        }
    }
}
