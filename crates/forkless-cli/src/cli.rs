//! The top level of the command line. A subcommand's own flags live beside its code in `commands/NAME`.

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
    after_help = "Exit codes: 0 fine, 1 finding or regression, 2 usage, 3 missing privilege or facility."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant a subcommand, in the order the help shows them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure process creation, memory, system calls and context switches on this machine.
    Bench(commands::bench::Args),
    /// Find out who pays for process creation here, how much, and why.
    #[cfg(target_os = "linux")]
    Diagnose(commands::diagnose::Args),
    /// Compare saved results: faster, slower, or no difference shown.
    Compare(commands::compare::Args),
    /// List the saved results.
    History(commands::compare::HistoryArgs),
    /// Show what this machine lets each part of the tool use, and what is done without.
    #[cfg(target_os = "linux")]
    Doctor(commands::doctor::Args),
    /// Write manual pages or shell completions; for packagers.
    #[command(hide = true)]
    Generate(commands::generate::Args),
    /// Put a running process's memory into huge pages, so that its forks copy 512 times fewer entries.
    #[cfg(target_os = "linux")]
    Repair(commands::repair::Args),
    /// Execute the published experiments on this machine and close with a ledger of their claims.
    #[cfg(target_os = "linux")]
    Reproduce(commands::reproduce::Args),
    /// Run a program unmodified, without the cost of its forks.
    #[cfg(target_os = "linux")]
    Run(commands::run::Args),
    /// Run a command line as /bin/sh would, without the shell where that makes no difference.
    #[cfg(target_os = "linux")]
    Sh(commands::sh::Args),
}

impl Cli {
    /// What was asked for; ends the process with help or an error where that is the answer.
    ///
    /// `run` stands before programs that are to notice nothing, the clock included: for it the flags of the others, several hundred, are
    /// not even built.
    pub(crate) fn read() -> Cli {
        #[cfg(target_os = "linux")]
        if env::args_os().nth(1).is_some_and(|word| word == "run") {
            let OnlyRun::Run(args) = RunCli::try_parse().unwrap_or_else(|answer| end_with(&answer)).command;
            return Cli { command: Command::Run(args) };
        }
        Cli::try_parse().unwrap_or_else(|answer| end_with(&answer))
    }
}

/// Prints help or an error and ends with its exit code; unlike [`clap::Error::exit`] not with success where it could not be printed.
fn end_with(answer: &clap::Error) -> ! {
    let printed = answer.print().and_then(|()| io::stdout().flush());
    let code = match printed {
        Err(error) if !answer.use_stderr() => {
            eprintln!("forkless: cannot write to standard output: {error}");
            1
        }
        _ => answer.exit_code(),
    };
    process::exit(code);
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
    /// Run a program unmodified, without the cost of its forks.
    Run(commands::run::Args),
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, RunCli};

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
