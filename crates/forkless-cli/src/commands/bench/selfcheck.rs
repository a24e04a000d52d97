//! `forkless bench selfcheck`: does the instrument find differences that are not there, or miss one
//! that is?

use forkless_bench::engine::Schedule;
use forkless_bench::spawn::Method;
use forkless_bench::spawn::selfcheck::{Spec, self_check};

use super::common::{self, from_library};
use super::progress::Progress;
use crate::args;
use crate::exit::Exit;
use crate::terminal;

/// Flags of `forkless bench selfcheck`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many interleaved runs to make.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    comparisons: u32,
    /// Counted repetitions of each method in a run.
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    runs: u32,
    /// The injected slowdown in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = args::percent_up_to::<1000>, allow_negative_numbers = true)]
    slowdown: f64,
    /// The method measured against itself.
    #[arg(long, value_name = "NAME", default_value = "vfork_exec")]
    method: String,
    /// Seed of the orders and the intervals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the check; a finding (exit code 1) where more than 5 % of the comparisons are false alarms
/// or fewer than 90 % find the slowdown.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let method: Method = args.method.parse().map_err(from_library)?;
    let schedule = Schedule { runs: args.runs as usize, seed: args.seed, ..Schedule::default() };
    let spec = Spec {
        method,
        comparisons: args.comparisons as usize,
        slowdown: args.slowdown / 100.0,
        confidence: 0.99,
        schedule,
    };
    let mut guard = common::guard()?;
    let mut progress = Progress::new("selfcheck");
    let verdict = self_check(&spec, Some(&mut guard), &mut progress).map_err(from_library)?;
    drop((progress, guard));
    terminal::print(&format!(
        "{method} against itself: a difference reported in {} of {} runs (99 % intervals, {:.2} % wide)\n\
         {method} slowed down by {:.1} %: found in {} of {} runs, measured as {:.2} %\n",
        verdict.false_alarms,
        verdict.comparisons,
        100.0 * verdict.width,
        args.slowdown,
        verdict.found,
        verdict.comparisons,
        100.0 * (verdict.measured - 1.0)
    ))?;
    let honest =
        verdict.false_alarms * 20 <= verdict.comparisons && verdict.found * 10 >= verdict.comparisons * 9;
    Ok(if honest { Exit::Fine } else { Exit::Finding })
}
