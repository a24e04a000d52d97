//! `forkless bench`: the suites of `forkless-bench`, their flags, and how results reach the terminal and files.

mod machine;

use clap::Subcommand;

use crate::exit::Exit;

/// Flags of `forkless bench`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Print the record of this machine that every result carries.
    Machine(machine::Args),
}

/// Runs the chosen suite.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    match args.suite {
        Suite::Machine(args) => machine::run(&args),
    }
}
