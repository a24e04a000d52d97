//! `forkless bench syscalls`: flags of the suite, translated into its specification.

use std::path::PathBuf;

use anyhow::Result;
use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;
use forkless_bench::suites::syscalls::{self, Spec};

use super::common::{Common, from_library};
use super::suite;
use crate::exit::Filtered;

/// Flags of `forkless bench syscalls`.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// The calls to measure, for example getpid,fork,execve; all by default.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    calls: Vec<String>,
    /// A tracer to show the cost of, run as `TRACER -o /dev/null PROGRAM` [default: strace, if it
    /// is in PATH].
    #[arg(long, value_name = "TRACER")]
    tracer: Option<PathBuf>,
}

impl suite::Flags for Flags {
    const NAME: &'static str = "syscalls";

    fn measure(&self, common: &Common, guard: &mut Guard, progress: &mut dyn Observer) -> Result<Suite> {
        let mut calls: Vec<String> = if self.calls.is_empty() {
            syscalls::offered().iter().map(|(name, _)| (*name).to_owned()).collect()
        } else {
            self.calls.clone()
        };
        let there = calls.join(", ");
        calls.retain(|name| common.selects(name));
        if calls.is_empty() {
            return Err(Filtered(format!("--filter leaves no call; there are: {there}")).into());
        }
        let strace = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|directory| directory.join("strace"))
            .find(|path| path.is_file());
        let spec = Spec { calls, tracer: self.tracer.clone().or(strace), schedule: common.plan(200)? };
        syscalls::run(&spec, Some(guard), progress).map_err(from_library)
    }
}
