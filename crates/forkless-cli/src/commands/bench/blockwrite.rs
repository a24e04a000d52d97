//! `forkless bench blockwrite`: flags of the suite, translated into its specification.

use std::path::PathBuf;

use anyhow::Result;
use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::Suite;
use forkless_bench::suites::blockwrite::{self, Mode, Spec, TargetKind};

use super::common::{Common, from_library};
use super::suite;
use crate::args;
use crate::exit::Filtered;

/// Flags of `forkless bench blockwrite`.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// What to write to: file, and as root loop, loop-4k (sectors of 4096 bytes) and mapper (a
    /// linear volume over a loop device); made and removed by the suite. It never writes to an
    /// existing device [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    targets: Vec<String>,
    /// Bytes a write [default: 256 to 1M, and 6144].
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = args::amount)]
    bs: Vec<u64>,
    /// Bytes a repetition writes, and the size of the targets [default: 4M; with --quick 1M].
    #[arg(long, value_name = "SIZE", value_parser = args::amount)]
    size: Option<u64>,
    /// Where the scratch file is made [default: the first of $TMPDIR, /var/tmp, /tmp and . that is
    /// on a block device].
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl suite::Flags for Flags {
    const NAME: &'static str = "blockwrite";

    // `--filter` chooses between buffered and direct.
    fn measure(&self, common: &Common, guard: &mut Guard, progress: &mut dyn Observer) -> Result<Suite> {
        let usual = Spec::default();
        let targets: Result<Vec<TargetKind>, _> = self.targets.iter().map(|name| name.parse()).collect();
        let targets = targets.map_err(from_library)?;
        let modes: Vec<Mode> = Mode::ALL.into_iter().filter(|mode| common.selects(mode.name())).collect();
        if modes.is_empty() {
            return Err(Filtered("--filter leaves neither buffered nor direct".into()).into());
        }
        let quick = if common.is_quick() { 1 << 20 } else { usual.size };
        let spec = Spec {
            targets: if targets.is_empty() { usual.targets } else { targets },
            bs: if self.bs.is_empty() { usual.bs } else { self.bs.clone() },
            size: self.size.unwrap_or(quick),
            directory: self.directory.clone(),
            modes,
            schedule: common.plan(if common.is_quick() { 50 } else { 20 })?,
        };
        blockwrite::run(&spec, Some(guard), progress).map_err(from_library)
    }
}
