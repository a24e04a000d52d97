//! `forkless bench victims`: flags of the suite, translated into its specification.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use forkless_bench::check::CheckVerdict;
use forkless_bench::results::{Results, Suite};
use forkless_lab::subreaper::{self, StopCue};
use forkless_lab::victims::{self, Spec, tokio_server};

use super::common::{self, Common, from_library};
use super::progress::Progress;
use crate::args;
use crate::exit::{Exit, Missing, Usage};
use crate::terminal;

/// Flags of `forkless bench victims`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "As root, missing programs are installed with apt-get; FORKLESS_NO_INSTALL=1 forbids it. \
    Victims without their program are skipped. --runs and --time apply to each victim."
)]
pub(crate) struct Args {
    /// Print the victims.
    #[arg(long)]
    list: bool,
    /// Limit the memory of parents, for example to 2G. This makes the gains smaller.
    #[arg(long, value_name = "SIZE", value_parser = args::amount)]
    rss: Option<u64>,
    /// Threads of the tokio server.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: u16,
    /// Exit with 1 if a program was slower with `run`, or a mechanism was not at work.
    #[arg(long)]
    fail_on_miss: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.list {
        let lines = victims::list().into_iter().map(|(name, about)| format!("{name:<16} {about}\n"));
        terminal::print(&lines.collect::<String>())?;
        return Ok(Exit::Fine);
    }
    if args.common.has_restarts() {
        return Err(Usage(
            "--restarts is not for victims: they are started anew for each of their runs".into(),
        )
        .into());
    }
    crate::commands::need_proc()?;
    let spec = Spec {
        filter: args.common.filter().to_vec(),
        schedule: args.common.plan_within(1000, if args.common.is_quick() { 2 } else { 10 })?,
        // By its path: victims are started by other programs, for which /proc/self/exe is another.
        forkless: std::env::current_exe().context("cannot find the forkless executable")?,
        install: common::may_install(),
        quick: args.common.is_quick(),
        rss: args.rss,
        threads: usize::from(args.threads),
    };
    let outputs = args.common.prepare()?;
    let mut guard = common::guard()?;
    let mut results = Results::begin();
    let mut progress = Progress::new("victims");
    let suite = victims::run(&spec, &mut guard, &mut progress).map_err(from_library)?;
    drop((progress, guard));
    if suite.rows.is_empty() {
        return Err(Missing(suite.notes.join("; ")).into());
    }
    let missed = misses(&suite);
    results.suites.push(suite);
    args.common.finish(&results, outputs)?;
    Ok(if args.fail_on_miss && missed { Exit::Finding } else { Exit::Fine })
}

/// Whether a program was slower with `run`, or nothing shows that `run` was at work. Figures
/// without a limit have no say.
fn misses(suite: &Suite) -> bool {
    suite.checks.iter().any(|check| matches!(check.verdict, CheckVerdict::Missed | CheckVerdict::NotShown))
}

/// Flags of `forkless bench keep`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeepArgs {
    /// The program reads the pipe, and ends with it.
    #[arg(long, conflicts_with = "on_terminate")]
    on_input: bool,
    /// The program is told to end by SIGTERM.
    #[arg(long)]
    on_terminate: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs a program that is to end with the bench.
pub(crate) fn keep(args: &KeepArgs) -> Exit {
    let ending = if args.on_terminate { StopCue::Terminate } else { StopCue::Input };
    let (program, arguments) = args.command.split_first().unwrap_or((&args.command[0], &[]));
    Exit::Code(subreaper::keep(ending, program, arguments))
}

/// Flags of `forkless bench tokio-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct TokioServerArgs {
    /// The path of the socket.
    socket: PathBuf,
    /// Memory to hold, in MiB.
    mib: usize,
    /// Threads of the runtime.
    threads: usize,
    /// The program to start.
    program: PathBuf,
}

/// Runs the server until its input ends.
pub(crate) fn serve_tokio(args: TokioServerArgs) -> anyhow::Result<Exit> {
    let TokioServerArgs { socket, mib, threads, program } = args;
    tokio_server::main(tokio_server::Setup { socket, mib, threads, program }).map_err(from_library)?;
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_figures_with_a_limit_can_miss() {
        let derived =
            r#"{"name": "perl-system: plain / small", "unit": "times", "value": 0.5, "ci95": [0.4, 0.6]}"#;
        let slow = Suite { derived: vec![serde_json::from_str(derived).unwrap()], ..Suite::default() };
        assert!(!misses(&slow));
        for (verdict, missed) in [
            ("shown", false),
            ("reached", false),
            ("undecided", false),
            ("skipped", false),
            ("missed", true),
            ("not_shown", true),
        ] {
            let check = serde_json::json!({
                "name": "perl-system", "params": {}, "figure": "plain / run", "unit": "times", "bound": "at_least",
                "limit": 1.0, "value": null, "ci95": null, "verdict": verdict, "evidence": "",
            });
            let suite = Suite { checks: vec![serde_json::from_value(check).unwrap()], ..slow.clone() };
            assert_eq!(misses(&suite), missed, "{verdict}");
        }
    }
}
