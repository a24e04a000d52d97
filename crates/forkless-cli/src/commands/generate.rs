//! `forkless generate`: the manual pages and shell completions, made from the flags themselves, so
//! that they cannot be out of date. For packagers; `./x install` calls it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::exit::{Exit, Usage};

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

/// Writes what is asked for about `whole`, the command with all its subcommands.
pub(crate) fn run(args: &Args, whole: &Command) -> anyhow::Result<Exit> {
    let directory = &args.directory;
    let cannot = |error: io::Error| Usage(format!("cannot write into {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    match args.what {
        What::Man => {
            let mut all = whole.clone().disable_help_subcommand(true);
            all.build();
            pages(&all, &[], &[], directory).map_err(cannot)?;
        }
        What::Completions => {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut whole.clone(), "forkless", directory)
                    .map_err(cannot)?;
            }
        }
    }
    Ok(Exit::Fine)
}

/// Writes the page of a command and those of its subcommands. `above` names the commands it belongs
/// to, `beside` the other subcommands of the last of those: its page refers to both.
fn pages(command: &Command, above: &[String], beside: &[String], directory: &Path) -> io::Result<()> {
    let below: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    let names: Vec<String> = below.iter().map(|sub| name(sub)).collect();
    let chain = [above, &[name(command)]].concat();
    for sub in below {
        pages(sub, &chain, &names, directory)?;
    }
    let mut file = std::fs::File::create(directory.join(format!("{}.1", name(command))))?;
    file.write_all(&page(command, &[above, beside].concat())?)
}

fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command, related: &[String]) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone())
        .title(name(command))
        .source(concat!("forkless ", env!("CARGO_PKG_VERSION")))
        .manual("Forkless");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let mut roff = Roff::default();
    roff.control("SH", ["SYNOPSIS"]);
    let usage = command.clone().render_usage().to_string();
    for line in usage.trim_start_matches("Usage:").lines() {
        roff.text([roman(line.trim())]).control("br", []);
    }
    roff.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::default();
    let help = command.get_after_long_help().or(command.get_after_help());
    for paragraph in help.map(ToString::to_string).unwrap_or_default().split("\n\n") {
        section(&mut roff, paragraph);
    }
    let others: Vec<String> =
        related.iter().filter(|other| **other != name(command)).map(|other| format!("{other}(1)")).collect();
    if !others.is_empty() {
        roff.control("SH", ["SEE ALSO"]).text([roman(others.join(", "))]);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// A paragraph below the options in the help is a section of the page, by how it begins.
fn section(roff: &mut Roff, paragraph: &str) {
    let (head, text) = match paragraph.split_once(':') {
        Some(("Exit codes" | "Exit status", text)) => ("EXIT STATUS", text.trim()),
        Some(("Examples", text)) => ("EXAMPLES", text.trim_matches('\n')),
        _ => ("NOTES", paragraph.trim()),
    };
    if text.is_empty() {
        return;
    }
    roff.control("SH", [head]);
    if head == "EXAMPLES" {
        roff.control("nf", []);
    }
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    if head == "EXAMPLES" {
        roff.control("fi", []);
    }
}
