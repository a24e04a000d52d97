//! The checks that CI and contributors run, each by its name, and `ci`, which runs all and counts.
//!
//! It installs nothing (`./x` does). Its checks need only the tree and a built workspace.

mod book;
mod ci;
mod circles;
mod demo;
mod elsewhere;
mod engine;
mod examples;
mod installed;
mod layers;
mod msrv;
mod packages;
mod ratchet;
mod sbom;
mod source;
mod step;
mod symbols;
mod tally;
mod test_variables;
mod text;
mod tool_words;
mod tree;
mod width;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks of the forkless workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Everything, in the order that fails soonest; closes with "N passed, N failed, N skipped".
    Ci(ci::Args),
    /// What `./x demo` shows once everything is built.
    Demo(demo::Args),
    /// No tracked file names a place on somebody's machine.
    Paths,
    /// Relative links in the Markdown pages lead somewhere, and docs/SUMMARY.md names every page.
    Links,
    /// The book is built by mdBook, if that is installed, and all its links lead somewhere.
    Book,
    /// Crates and modules depend only downwards, libraries do not know the tool, one crate creates
    /// processes, and prose ends at column 100.
    Layers,
    /// Every public item of the crate forkless has an example that is run as a test.
    Examples,
    /// The built shared objects export, need and promise what was agreed (after ./x build).
    Symbols,
    /// `./x install` puts everything in place, and it can be used from there.
    Installed,
    /// One minimum Rust version everywhere, and the workspace compiles with it.
    Msrv,
    /// The libraries compile with the older Rust that they promise.
    MsrvLibraries,
    /// One version everywhere, and each crate has what its publication needs.
    Packages,
    /// Print what is built into a release, as CycloneDX.
    Sbom,
    /// Print the licences of what is built into a release, with their texts.
    Notices,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Ci(args) => return ci::run(&args),
        Task::Demo(args) => return demo::run(&args),
        Task::Paths => text::paths(),
        Task::Links => text::links(),
        Task::Book => book::check(),
        Task::Layers => layers::check(),
        Task::Examples => examples::check(),
        Task::Symbols => symbols::check(),
        Task::Installed => installed::check(),
        Task::Msrv => msrv::check(),
        Task::MsrvLibraries => msrv::libraries(),
        Task::Packages => packages::check(),
        Task::Sbom => sbom::print(),
        Task::Notices => sbom::notices(),
    };
    match outcome {
        Ok(note) => {
            println!("{note}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
