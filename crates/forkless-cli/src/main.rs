//! The `forkless` command: parse, dispatch, turn the outcome into an exit code. It decides nothing about
//! processes itself; each subcommand is a module of [`commands`] that glues a library to the terminal.

mod cli;
mod commands;
mod exit;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    exit::restore_sigpipe();
    let outcome = match Cli::parse().command {
        Command::Bench(args) => commands::bench::run(args),
        Command::Diagnose(args) => commands::diagnose::run(args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::History(args) => commands::compare::history(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Generate(args) => commands::generate::run(&args),
        Command::Repair(args) => commands::repair::run(args),
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Run(args) => commands::run::run(args),
        Command::Sh(args) => commands::sh::run(&args),
    };
    exit::report(outcome)
}
