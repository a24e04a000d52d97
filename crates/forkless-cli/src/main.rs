//! The `forkless` command: it reads flags, calls a library, and turns the outcome into words and an
//! exit code. The libraries decide about processes; each subcommand is a module of [`commands`].
//! The subcommands that measure and compare are for FreeBSD and macOS, too.

#[cfg(target_os = "linux")]
mod allocator;
mod args;
mod cli;
mod commands;
mod exit;
#[cfg(target_os = "linux")]
mod inherited;
mod output_file;
mod terminal;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = exit::small_stack() {
        return code;
    }
    exit::restore_signals();
    let command = Cli::read().command;
    // A program or a line that takes this process's place must notice no difference.
    #[cfg(target_os = "linux")]
    let measures = !matches!(command, Command::Run(_) | Command::Sh(_));
    #[cfg(target_os = "linux")]
    if !measures {
        allocator::end_as_run_does();
    }
    #[cfg(not(target_os = "linux"))]
    let measures = true;
    if measures {
        exit::survive_file_limit();
    }
    let outcome = match command {
        Command::Bench(args) => commands::bench::run(args),
        #[cfg(target_os = "linux")]
        Command::Diagnose(args) => commands::diagnose::run(args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::History(args) => commands::compare::history(&args),
        #[cfg(target_os = "linux")]
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Generate(args) => commands::generate::run(&args, &Cli::command()),
        #[cfg(target_os = "linux")]
        Command::Repair(args) => commands::repair::run(args),
        #[cfg(target_os = "linux")]
        Command::Report(args) => commands::report::run(&args),
        #[cfg(target_os = "linux")]
        Command::Reproduce(args) => commands::reproduce::run(&args),
        #[cfg(target_os = "linux")]
        Command::Run(args) => commands::run::run(args),
        #[cfg(target_os = "linux")]
        Command::Sh(args) => commands::sh::run(&args),
        #[cfg(target_os = "linux")]
        Command::Try(args) => commands::trial::run(&args),
    };
    exit::report(outcome)
}
