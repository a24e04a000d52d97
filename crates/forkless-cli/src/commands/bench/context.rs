//! `forkless bench context`: flags of the suite, translated into its specification.

use forkless_bench::engine::Observer;
use forkless_bench::results::Suite;
use forkless_bench::suites::context::{self, Spec};

use super::common::{Common, from_library};
use crate::exit::Exit;

/// Flags of `forkless bench context`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
}

impl Args {
    /// The suite has no flags of its own.
    pub(super) fn usual(common: &Common) -> Args {
        Args { common: common.clone() }
    }
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    args.common.run("context", 1, |_, progress| measure(args, progress))
}

/// Measures as the flags say.
pub(super) fn measure(args: &Args, progress: &mut dyn Observer) -> anyhow::Result<Suite> {
    let spec = Spec { filter: args.common.filter().to_vec(), plan: args.common.plan(500)? };
    context::run(&spec, progress).map_err(from_library)
}
