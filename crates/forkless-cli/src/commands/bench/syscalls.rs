//! `forkless bench syscalls`: flags of the suite, translated into its specification.

use std::path::PathBuf;

use forkless_bench::results::Results;
use forkless_bench::suites::syscalls::{self, CALLS, Spec};

use super::common::{self, Common, from_library};
use super::progress::Progress;
use crate::exit::{Exit, Usage};

/// Flags of `forkless bench syscalls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The calls to measure, for example getpid,fork,execve; all by default.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    calls: Vec<String>,
    /// A tracer to show the cost of, run as `TRACER -o /dev/null PROGRAM` [default: strace, if it is in PATH].
    #[arg(long, value_name = "TRACER")]
    tracer: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut calls: Vec<String> = if args.calls.is_empty() {
        CALLS.iter().map(|(name, _)| (*name).to_owned()).collect()
    } else {
        args.calls.clone()
    };
    calls.retain(|name| args.common.selects(name));
    if calls.is_empty() {
        return Err(Usage("--filter leaves no call".into()).into());
    }
    let strace = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|directory| directory.join("strace"))
        .find(|path| path.is_file());
    let spec = Spec { calls, tracer: args.tracer.clone().or(strace), plan: args.common.plan(200)? };
    let outputs = args.common.prepare()?;
    let mut guard = common::guard()?;
    let mut results = Results::begin();
    let mut progress = Progress::new("syscalls");
    let suite = syscalls::run(&spec, Some(&mut guard), &mut progress).map_err(from_library)?;
    drop((progress, guard));
    results.suites.push(suite);
    args.common.finish(&results, outputs)?;
    Ok(Exit::Fine)
}
