//! `forkless bench context`: flags of the suite, translated into its specification.

use forkless_bench::results::Results;
use forkless_bench::suites::context::{self, Spec};

use super::common::{Common, from_library};
use super::progress::Progress;
use crate::exit::Exit;

/// Flags of `forkless bench context`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec { filter: args.common.filter().to_vec(), plan: args.common.plan(500)? };
    let outputs = args.common.prepare()?;
    let mut results = Results::begin();
    let mut progress = Progress::new("context");
    let suite = context::run(&spec, &mut progress).map_err(from_library)?;
    drop(progress);
    results.suites.push(suite);
    args.common.finish(&results, outputs)?;
    Ok(Exit::Fine)
}
