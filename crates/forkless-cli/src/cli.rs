//! The top level of the command line. A subcommand's own flags live beside its code in `commands/NAME`.

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
