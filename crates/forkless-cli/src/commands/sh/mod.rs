//! `forkless sh`: runs a line as `/bin/sh -c` would, without the shell where that makes no
//! difference; `--explain` shows the decision instead. The libraries decide.

mod explain;
mod explained_line;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;

use forkless_shell::ShellTraits;

use crate::exit::{Exit, Usage};

/// Flags of `forkless sh`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  forkless sh 'make 2>&1 | tee log'\n  forkless sh --explain 'rm -f *.o'\n\n\
    As with `exec sh -c LINE`, a shell, or a program that the shell would not wait for, takes the\n\
    place of this process.\n\n\
    Exit status: the line's own, 128 + n for an awaited program that ended by signal n; with\n\
    --explain 0."
)]
pub(crate) struct Args {
    /// Show how the line would run, or why it needs a shell, without running it.
    #[arg(long)]
    explain: bool,

    /// Print the explanation as JSON; implies --explain.
    #[arg(long)]
    json: bool,

    /// Explain as if /bin/sh were this shell.
    #[arg(long, value_enum, value_name = "SHELL")]
    shell: Option<Kind>,

    /// Give the line to /bin/sh in any case.
    #[arg(long, conflicts_with_all = ["explain", "json"])]
    always_shell: bool,

    /// The line, as for `sh -c`.
    #[arg(value_name = "LINE")]
    line: OsString,
}

/// A shell whose behaviour is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// dash 0.5.12.
    Dash,
    /// bash 5.2 as sh.
    Bash,
    /// busybox ash 1.35.
    Busybox,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.explain || args.json {
        let traits = args.shell.map_or_else(forkless::shell_traits, Kind::traits);
        let explained = explained_line::ExplainedLine::of(args.line.as_bytes(), &traits);
        return if args.json { explain::json(&explained) } else { explain::text(&explained) };
    }
    if args.shell.is_some() {
        return Err(
            Usage("--shell is for --explain: a line is run as this machine's /bin/sh would".into()).into()
        );
    }
    // The line's programs inherit the same signals and descriptors as from `sh -c`.
    crate::inherited::give_back();
    let status = forkless::shell(&args.line)
        .inherit_descriptors(true)
        .inherit_signals(true)
        .always_shell(args.always_shell)
        .reap_all(true)
        .exec()?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)))
}

impl Kind {
    fn traits(self) -> ShellTraits {
        match self {
            Kind::Dash => ShellTraits::DASH,
            Kind::Bash => ShellTraits::BASH,
            Kind::Busybox => ShellTraits::BUSYBOX,
        }
    }
}
