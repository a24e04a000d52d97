//! `forkless bench context`: flags of the suite, translated into its specification.

use anyhow::Result;
use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;
use forkless_bench::suites::context::{self, Spec};

use super::common::{Common, from_library};
use super::suite;
use crate::exit::Filtered;

/// The suite has no flags of its own.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {}

impl suite::Flags for Flags {
    const NAME: &'static str = "context";

    fn measure(&self, common: &Common, _: &mut Guard, progress: &mut dyn Observer) -> Result<Suite> {
        let there = context::offered();
        if !there.iter().any(|name| common.selects(name)) {
            return Err(Filtered(format!("--filter leaves nothing; there are: {}", there.join(", "))).into());
        }
        let spec = Spec { filter: common.filter().to_vec(), schedule: common.plan(500)? };
        context::run(&spec, progress).map_err(from_library)
    }
}
