//! `forkless bench machine`: what a result will say about where it was measured.

use std::io::Write as _;

use forkless_bench::machine::Machine;

use crate::exit::Exit;

/// Flags of `forkless bench machine`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON, as in the `machine` object of a result.
    #[arg(long)]
    json: bool,
}

/// Prints the record.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let machine = Machine::observe();
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &machine)?;
        writeln!(out)?;
    } else {
        for (name, value) in machine.lines() {
            writeln!(out, "{name:<20} {value}")?;
        }
    }
    Ok(Exit::Fine)
}
