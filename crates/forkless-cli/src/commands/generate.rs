//! `forkless generate`: the manual pages and shell completions, made from the flags themselves, so that they cannot be out of date.
//! For packagers; `./x install` calls it.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{CommandFactory as _, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Exit;

/// Write the manual pages, or completions for shells, into a directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to write.
    what: What,

    /// Where to; it is made if it does not exist.
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// One page for the command and one for each subcommand: forkless.1, forkless-bench.1, ...
    Man,
    /// For bash, zsh and fish: forkless.bash, _forkless, forkless.fish.
    Completions,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(&args.directory).with_context(|| format!("make {}", args.directory.display()))?;
    let cannot = || format!("write into {}", args.directory.display());
    match args.what {
        What::Man => clap_mangen::generate_to(Cli::command(), &args.directory).with_context(cannot)?,
        What::Completions => {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut Cli::command(), "forkless", &args.directory)
                    .with_context(cannot)?;
            }
        }
    }
    Ok(Exit::Fine)
}
