//! `forkless report`: reads a record that programs without a launcher count into.

use std::path::PathBuf;

use anyhow::Context as _;
use forkless_run::Report;

use super::run::report;
use crate::exit::Exit;
use crate::terminal;

/// Flags of `forkless report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// The file that FORKLESS_OPTIONS=record=FILE names.
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let read = Report::read(&args.file);
    let found = read.with_context(|| format!("cannot read the record {}", args.file.display()))?;
    if args.json {
        terminal::print_bytes(report::json(&found).as_bytes())?;
    } else {
        terminal::print(&report::text(&found))?;
    }
    Ok(Exit::Fine)
}
