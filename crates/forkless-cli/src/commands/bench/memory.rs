//! `forkless bench memory`: flags of the suite, translated into its specification.

use forkless_bench::pages::Pages;
use forkless_bench::results::Results;
use forkless_bench::suites::memory::{self, Spec};

use super::common::{self, Common, from_library};
use super::progress::Progress;
use super::{size, spawn};
use crate::exit::{Exit, Missing, Usage};

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
    /// Pages behind it: base, thp, thp-64k, hugetlb-2m, hugetlb-1g, or all that this kernel offers.
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_value = "base,thp")]
    pages: Vec<String>,
    /// The methods to measure; `forkless bench spawn --methods list` prints their names.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    methods: Vec<String>,
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
    let spec = Spec {
        sizes: if args.sizes.is_empty() { sizes.to_vec() } else { args.sizes.clone() },
        usage: args.usage.clone(),
        pages: pages(&args.pages)?,
        methods: spawn::methods(&args.methods, &defaults.methods, &args.common)?,
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

/// Kinds by name; `all` stands for whatever the kernel offers.
pub(crate) fn pages(names: &[String]) -> anyhow::Result<Vec<Pages>> {
    let mut kinds: Vec<Pages> = Vec::new();
    for name in names {
        let more = if name == "all" { Pages::offered() } else { vec![name.parse().map_err(from_library)?] };
        for kind in more {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    if kinds.is_empty() {
        return Err(Usage("--pages names no kind of pages".into()).into());
    }
    Ok(kinds)
}
