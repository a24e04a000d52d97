//! `forkless bench memory`: flags of the suite, translated into its specification.

use forkless_bench::results::Results;
use forkless_bench::suites::memory::{self, Spec};

use super::common::{self, Common, from_library};
use super::parent::Parent;
use super::progress::Progress;
use super::size;
use crate::exit::{Exit, Missing};

/// Flags of `forkless bench memory`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Memory of the parent [default: 0,256M,512M,1G,2G; with --quick 0,64M,128M,256M].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size::parse)]
    sizes: Vec<u64>,
    /// Percentages of it that were written.
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
    #[command(flatten)]
    common: Common,
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let defaults = Spec::default();
    let sizes: &[u64] = if args.common.is_quick() {
        &[0, 64 << 20, 128 << 20, 256 << 20]
    } else {
        &[0, 256 << 20, 512 << 20, 1 << 30, 2 << 30]
    };
    let (methods, under_run) = args.parent.methods(&defaults.methods, &args.common)?;
    let spec = Spec {
        sizes: if args.sizes.is_empty() { sizes.to_vec() } else { args.sizes.clone() },
        usage: args.usage.clone(),
        pages: args.parent.pages()?,
        methods,
        under_run,
        plan: args.common.plan(200)?,
    };
    let outputs = args.common.prepare()?;
    let mut guard = common::guard()?;
    let mut results = Results::begin();
    let mut progress = Progress::new("memory");
    let suite = memory::run(&spec, Some(&mut guard), &mut progress).map_err(from_library)?;
    drop((progress, guard));
    if suite.rows.is_empty() {
        return Err(Missing(suite.notes.join("; ")).into());
    }
    results.suites.push(suite);
    args.common.finish(&results, outputs)?;
    Ok(Exit::Fine)
}
