//! A suite as the command sees it: flags of its own beside the flags that all suites have, and a
//! measurement.

use anyhow::Result;
use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;

use super::common::Common;
use crate::exit::Exit;

/// The flags of one suite alone.
pub(super) trait Flags: clap::Args {
    /// The suite's name.
    const NAME: &'static str;
    /// How many processes share the runs where `--restarts` does not say.
    const RESTARTS: u16 = 1;

    /// What each restart's command line has besides: what must be the same in all of them.
    fn for_restarts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Measures as the flags say.
    fn measure(&self, common: &Common, guard: &mut Guard, progress: &mut dyn Observer) -> Result<Suite>;
}

/// All flags of a suite's command.
#[derive(Debug, clap::Args)]
pub(super) struct Args<F: Flags> {
    #[command(flatten)]
    pub(super) flags: F,
    #[command(flatten)]
    common: Common,
}

impl<F: Flags> Args<F> {
    /// The flags that all suites have.
    #[cfg(target_os = "linux")]
    pub(super) fn common(&self) -> &Common {
        &self.common
    }
}

/// Runs a suite by itself.
pub(super) fn run<F: Flags>(args: &Args<F>) -> Result<Exit> {
    let measure =
        |guard: &mut Guard, progress: &mut dyn Observer| args.flags.measure(&args.common, guard, progress);
    args.common.run(F::NAME, (F::RESTARTS, &|| args.flags.for_restarts()), measure)
}

/// Measures with the suite's own flags at their defaults.
pub(super) fn measure_by_default<F: Flags>(
    common: &Common,
    guard: &mut Guard,
    progress: &mut dyn Observer,
) -> Result<Suite> {
    #[derive(clap::Parser)]
    struct Alone<F: clap::Args> {
        #[command(flatten)]
        flags: F,
    }
    <Alone<F> as clap::Parser>::parse_from(["bench"]).flags.measure(common, guard, progress)
}
