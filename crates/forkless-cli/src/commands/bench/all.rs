//! `forkless bench all`: several suites one after the other, each with its own flags at their defaults, as one result.

use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::{Results, Suite};

#[cfg(target_os = "linux")]
use super::blockwrite;
use super::common::{self, Common};
use super::progress::Progress;
use super::{context, cow, memory, spawn, syscalls};
use crate::exit::{Exit, Missing};

/// The suites that this system has.
const USUAL: &str = if cfg!(target_os = "linux") {
    "spawn,memory,cow,syscalls,context,blockwrite"
} else {
    "spawn,memory,cow,syscalls,context"
};

/// Flags of `forkless bench all`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The suites, in this order.
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        value_delimiter = ',',
        default_value = USUAL
    )]
    suites: Vec<Name>,
    #[command(flatten)]
    common: Common,
}

/// The suites that measure by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    Spawn,
    Memory,
    Cow,
    Syscalls,
    Context,
    #[cfg(target_os = "linux")]
    Blockwrite,
}

impl Name {
    fn as_str(self) -> &'static str {
        match self {
            Name::Spawn => "spawn",
            Name::Memory => "memory",
            Name::Cow => "cow",
            Name::Syscalls => "syscalls",
            Name::Context => "context",
            #[cfg(target_os = "linux")]
            Name::Blockwrite => "blockwrite",
        }
    }

    fn measure(
        self,
        common: &Common,
        guard: &mut Guard,
        progress: &mut dyn Observer,
    ) -> anyhow::Result<Suite> {
        match self {
            Name::Spawn => spawn::measure(&spawn::Args::usual(common), guard, progress),
            Name::Memory => memory::measure(&memory::Args::usual(common), guard, progress),
            Name::Cow => cow::measure(&cow::Args::usual(common), guard, progress),
            Name::Syscalls => syscalls::measure(&syscalls::Args::usual(common), guard, progress),
            Name::Context => context::measure(&context::Args::usual(common), progress),
            #[cfg(target_os = "linux")]
            Name::Blockwrite => blockwrite::measure(&blockwrite::Args::usual(common), guard, progress),
        }
    }
}

/// A suite's flags as its own command line without any would give them.
pub(super) fn defaults<A: clap::Args>() -> A {
    #[derive(clap::Parser)]
    struct Alone<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    <Alone<A> as clap::Parser>::parse_from(["bench"]).args
}

/// Runs the suites. One that cannot be measured here at all is a note in the result, not the end of the others.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let outputs = args.common.prepare()?;
    let mut restarts = Progress::new("all");
    if let Some(results) = args.common.in_restarts(1, &mut restarts)? {
        drop(restarts);
        args.common.finish(&results, outputs)?;
        return Ok(Exit::Fine);
    }
    drop(restarts);
    let mut results = Results::begin();
    for name in &args.suites {
        let mut guard = common::guard()?;
        let mut progress = Progress::new(name.as_str());
        let suite = match name.measure(&args.common, &mut guard, &mut progress) {
            Err(error) if error.is::<Missing>() => Suite {
                name: name.as_str().to_owned(),
                notes: vec![format!("skipped: {error:#}")],
                ..Suite::default()
            },
            other => other?,
        };
        results.suites.push(suite);
    }
    if results.suites.iter().all(|suite| suite.rows.is_empty()) {
        let notes: Vec<String> = results.suites.into_iter().flat_map(|suite| suite.notes).collect();
        return Err(Missing(notes.join("; ")).into());
    }
    args.common.finish(&results, outputs)?;
    Ok(Exit::Fine)
}
