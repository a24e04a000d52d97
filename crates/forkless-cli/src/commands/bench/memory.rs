//! `forkless bench memory`: flags of the suite, translated into its specification.

use anyhow::Result;
use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;
use forkless_bench::suites::memory::{self, Spec};

use super::common::{Common, from_library};
use super::parent::Parent;
use super::suite;
use crate::args;

/// Flags of `forkless bench memory`.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Memory of the parent [default: 0,256M,512M,1G,2G; with --quick 0,64M,128M,256M].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = args::amount)]
    sizes: Vec<u64>,
    /// Percentages of it that are written.
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        default_value = "100",
        value_parser = clap::value_parser!(u64).range(0..=100)
    )]
    usage: Vec<u64>,
    #[command(flatten)]
    parent: Parent,
}

impl suite::Flags for Flags {
    const NAME: &'static str = "memory";

    fn measure(&self, common: &Common, guard: &mut Guard, progress: &mut dyn Observer) -> Result<Suite> {
        let defaults = Spec::default();
        let sizes: &[u64] = if common.is_quick() {
            &[0, 64 << 20, 128 << 20, 256 << 20]
        } else {
            &[0, 256 << 20, 512 << 20, 1 << 30, 2 << 30]
        };
        let (methods, under_run) = self.parent.methods(&defaults.methods, common)?;
        let spec = Spec {
            sizes: if self.sizes.is_empty() { sizes.to_vec() } else { self.sizes.clone() },
            usage: self.usage.clone(),
            pages: self.parent.pages()?,
            methods,
            under_run,
            schedule: common.plan(200)?,
        };
        memory::run(&spec, Some(guard), progress).map_err(from_library)
    }
}
