//! `forkless bench machine`: the description of this machine that every result carries.

use forkless_bench::machine::Machine;

use crate::exit::Exit;
use crate::terminal;

/// Flags of `forkless bench machine`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON, as in the `machine` object of a result.
    #[arg(long)]
    json: bool,
}

/// Prints the description.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let machine = Machine::observe();
    if args.json {
        terminal::print_json(&machine)?;
    } else {
        let lines = machine.lines();
        let lines = lines.into_iter().map(|(name, value)| format!("{name:<20} {value}\n"));
        terminal::print(&lines.collect::<String>())?;
    }
    Ok(Exit::Fine)
}
