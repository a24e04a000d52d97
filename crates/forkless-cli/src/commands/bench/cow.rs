//! `forkless bench cow`: flags of the suite, translated into its specification.

use forkless_bench::engine::{Observer, Plan};
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;
use forkless_bench::suites::cow::{self, Spec};

use super::common::{Common, from_library};
use super::parent::Parent;
use crate::exit::Exit;

/// Flags of `forkless bench cow`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Base pages the parent holds and writes to.
    #[arg(long, value_name = "PAGES", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Write to every N-th of them; several values are measured one after the other.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    stride: Vec<u64>,
    /// Passes before and after the child.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    passes: u16,
    #[command(flatten)]
    parent: Parent,
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
    args.common.run("cow", 1, |guard, progress| measure(args, guard, progress))
}

/// Measures as the flags say.
pub(super) fn measure(args: &Args, guard: &mut Guard, progress: &mut dyn Observer) -> anyhow::Result<Suite> {
    let (methods, under_run) = args.parent.methods(&Spec::default().methods, &args.common)?;
    let spec = Spec {
        count: if args.common.is_quick() { args.count.div_ceil(4) } else { args.count },
        stride: args.stride.clone(),
        passes: usize::from(args.passes),
        pages: args.parent.pages()?,
        methods,
        under_run,
        plan: Plan { per_turn: 1, ..args.common.plan(if args.common.is_quick() { 50 } else { 10 })? },
    };
    cow::run(&spec, Some(guard), progress).map_err(from_library)
}
