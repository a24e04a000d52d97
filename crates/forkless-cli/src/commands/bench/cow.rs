//! `forkless bench cow`: flags of the suite, translated into its specification.

use anyhow::Result;
use forkless_bench::engine::{Observer, Schedule};
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;
use forkless_bench::suites::cow::{self, Spec};

use super::common::{Common, from_library};
use super::parent::Parent;
use super::suite;

/// As many of 4 KiB as 64 TiB hold, which no machine has.
const MOST_PAGES: u64 = 1 << 34;

/// Flags of `forkless bench cow`.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Base pages the parent holds and writes to.
    #[arg(long, value_name = "PAGES", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=MOST_PAGES))]
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
}

impl suite::Flags for Flags {
    const NAME: &'static str = "cow";

    fn measure(&self, common: &Common, guard: &mut Guard, progress: &mut dyn Observer) -> Result<Suite> {
        let (methods, under_run) = self.parent.methods(&Spec::default().methods, common)?;
        let spec = Spec {
            count: if common.is_quick() { self.count.div_ceil(4) } else { self.count },
            stride: self.stride.clone(),
            passes: usize::from(self.passes),
            pages: self.parent.pages()?,
            methods,
            under_run,
            schedule: Schedule { per_turn: 1, ..common.plan(if common.is_quick() { 50 } else { 10 })? },
        };
        cow::run(&spec, Some(guard), progress).map_err(from_library)
    }
}
