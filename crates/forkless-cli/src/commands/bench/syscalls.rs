//! `forkless bench syscalls`: flags of the suite, translated into its specification.

use std::path::PathBuf;

use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;
use forkless_bench::suites::syscalls::{self, Spec};

use super::common::{Common, from_library};
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

impl Args {
    /// Every flag of the suite's own at its default.
    pub(super) fn usual(common: &Common) -> Args {
        Args { common: common.clone(), ..super::all::defaults() }
    }
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    args.common.run("syscalls", 1, |guard, progress| measure(args, guard, progress))
}

/// Measures as the flags say.
pub(super) fn measure(args: &Args, guard: &mut Guard, progress: &mut dyn Observer) -> anyhow::Result<Suite> {
    let mut calls: Vec<String> = if args.calls.is_empty() {
        syscalls::offered().iter().map(|(name, _)| (*name).to_owned()).collect()
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
    syscalls::run(&spec, Some(guard), progress).map_err(from_library)
}
