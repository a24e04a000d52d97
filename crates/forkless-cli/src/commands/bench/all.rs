//! `forkless bench all`: several suites one after the other, each with its own flags at their
//! defaults, as one result.

use forkless_bench::engine::Observer;
use forkless_bench::guard::Guard;
use forkless_bench::results::{Results, Suite};

#[cfg(target_os = "linux")]
use super::blockwrite;
use super::common::{self, Common};
use super::progress::Progress;
use super::suite::{self, Flags};
use super::{context, cow, memory, spawn, syscalls};
use crate::exit::{Exit, Filtered, Missing};

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

/// Measures with the flags that all suites share.
type Measure = fn(&Common, &mut Guard, &mut dyn Observer) -> anyhow::Result<Suite>;

impl Name {
    fn suite(self) -> (&'static str, Measure) {
        fn of<F: Flags>() -> (&'static str, Measure) {
            (F::NAME, suite::measure_by_default::<F>)
        }
        match self {
            Name::Spawn => of::<spawn::Flags>(),
            Name::Memory => of::<memory::Flags>(),
            Name::Cow => of::<cow::Flags>(),
            Name::Syscalls => of::<syscalls::Flags>(),
            Name::Context => of::<context::Flags>(),
            #[cfg(target_os = "linux")]
            Name::Blockwrite => of::<blockwrite::Flags>(),
        }
    }
}

/// Runs the suites. One that cannot be measured here at all is a note in the result, not the end of
/// the others. One that `--filter` leaves nothing of is left out.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let outputs = args.common.prepare()?;
    let mut restarts = Progress::new("all");
    let guard = common::guard()?;
    if let Some(results) = args.common.in_restarts(1, &Vec::new, &mut restarts)? {
        drop((restarts, guard));
        args.common.finish(&results, outputs)?;
        return Ok(Exit::Fine);
    }
    drop((restarts, guard));
    let mut results = Results::begin();
    let mut filtered = Vec::new();
    for (name, measure) in args.suites.iter().map(|suite| suite.suite()) {
        let mut guard = common::guard()?;
        let mut progress = Progress::new(name);
        let mut suite = match measure(&args.common, &mut guard, &mut progress) {
            Err(error) if error.is::<Missing>() => Suite {
                name: name.to_owned(),
                notes: vec![format!("skipped: {error:#}")],
                ..Suite::default()
            },
            // A word names what one suite has, and hardly ever what each has.
            Err(error) if error.is::<Filtered>() => {
                filtered.push(format!("{name}: {error}"));
                continue;
            }
            other => other?,
        };
        common::note_plain(&mut suite);
        results.suites.push(suite);
    }
    if results.suites.is_empty() {
        return Err(Filtered(filtered.join("; ")).into());
    }
    if results.suites.iter().all(|suite| suite.rows.is_empty()) {
        let notes: Vec<String> = results.suites.into_iter().flat_map(|suite| suite.notes).collect();
        return Err(Missing(common::skipped(&notes)).into());
    }
    args.common.finish(&results, outputs)?;
    Ok(Exit::Fine)
}
