//! A trial's verdict: arithmetic on the figures of its rounds, and on the library's counts.

use forkless_run::{AbortKind, Counter, HugePages, Report, Settings};
use serde::Serialize;

use crate::check::Quantity;

/// Fewer rounds have no interval of 95 %: all of five equal pairs of runs fall on the same side
/// once in sixteen times.
pub const LEAST_ROUNDS: usize = 6;

/// A longer time by less than this share is said, and is no finding.
const LITTLE: f64 = 0.01;

/// How a run with the library compares with a plain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The whole interval says so.
    Faster,
    /// The whole interval says so.
    Slower,
    /// The whole interval says so, and it may be less than one hundredth.
    SlowerByLittle,
    /// The interval spans one.
    NoDifference,
    /// There are fewer than [`LEAST_ROUNDS`] rounds.
    TooFewRounds,
}

impl Comparison {
    /// Judges the ratio of a plain run's time to that of one with the library.
    #[must_use]
    pub fn of(ratio: Quantity, rounds: usize) -> Comparison {
        let [low, high] = ratio.ci95;
        match () {
            () if rounds < LEAST_ROUNDS => Comparison::TooFewRounds,
            () if low > 1.0 => Comparison::Faster,
            () if high < 1.0 / (1.0 + LITTLE) => Comparison::Slower,
            () if high < 1.0 => Comparison::SlowerByLittle,
            () => Comparison::NoDifference,
        }
    }
}

/// What the library did in the runs that had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// It spared something.
    Done,
    /// It was in no program.
    NotLoaded,
    /// There was nothing for it: no fork, and no shell that it could spare.
    NoForks,
    /// All forks were of processes with too little memory.
    OnlySmall,
    /// Forks stayed plain for other reasons.
    NoneCommitted,
    /// It was asked for something that leaves no count.
    Uncounted,
}

impl Work {
    /// What the library's counts show.
    #[must_use]
    pub fn of(report: &Report, settings: Settings) -> Work {
        const SPARED: [Counter; 6] = [
            Counter::Committed,
            Counter::Shells,
            Counter::ExecShells,
            Counter::Switches,
            Counter::Closes,
            Counter::Merged,
        ];
        let forks = report.count(Counter::Forks);
        let small: u64 = reasons_of(report, AbortKind::Small);
        // Switches of contexts are counted, getcontext alone is not.
        let leaves_no_count =
            settings.huge_pages != HugePages::Off || settings.time_zone || settings.fast_context;
        match () {
            () if SPARED.iter().any(|&counter| report.count(counter) > 0) => Work::Done,
            () if report.count(Counter::Processes) == 0 => Work::NotLoaded,
            () if leaves_no_count => Work::Uncounted,
            () if forks == 0 => Work::NoForks,
            () if small >= forks => Work::OnlySmall,
            () => Work::NoneCommitted,
        }
    }
}

fn reasons_of(report: &Report, kind: AbortKind) -> u64 {
    let reasons = report.sites.iter().flat_map(|site| &site.reasons);
    reasons.filter(|(reason, _)| reason.kind() == kind).map(|&(_, count)| u64::from(count)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use forkless_run::{AbortReason, RecordFile};

    use super::*;

    #[test]
    fn only_a_whole_interval_tells_and_a_little_is_no_finding() {
        let judged = |low: f64, high: f64, rounds| {
            Comparison::of(Quantity { value: f64::midpoint(low, high), ci95: [low, high] }, rounds)
        };
        assert_eq!(judged(1.1, 1.2, 10), Comparison::Faster);
        assert_eq!(judged(0.9, 1.2, 10), Comparison::NoDifference);
        assert_eq!(judged(0.8, 0.95, 10), Comparison::Slower);
        assert_eq!(judged(0.98, 0.995, 10), Comparison::SlowerByLittle);
        assert_eq!(judged(1.1, 1.2, LEAST_ROUNDS - 1), Comparison::TooFewRounds);
        assert_eq!(judged(1.1, 1.2, LEAST_ROUNDS), Comparison::Faster);
    }

    /// Counts and reasons of one call site.
    fn report(counts: &[(Counter, u64)], reasons: &[(AbortKind, u32)]) -> Report {
        let file = RecordFile::create().unwrap();
        for &(counter, count) in counts {
            file.record().add(counter, count);
        }
        let site = file.record().site(1, |_| 0).unwrap();
        for &(kind, count) in reasons {
            site.forks.fetch_add(u64::from(count), Relaxed);
            (0..count).for_each(|_| site.because(AbortReason::new(kind, 0)));
        }
        file.report()
    }

    #[test]
    fn the_counts_say_what_the_library_did() {
        use Counter::{Committed, Forks, Processes, Shells};
        let work = |counts: &[_], reasons: &[_]| Work::of(&report(counts, reasons), Settings::default());
        assert_eq!(work(&[], &[]), Work::NotLoaded);
        assert_eq!(work(&[(Processes, 1)], &[]), Work::NoForks);
        assert_eq!(work(&[(Processes, 1), (Shells, 2)], &[]), Work::Done);
        let forks = [(Processes, 1), (Forks, 3)];
        assert_eq!(work(&forks, &[(AbortKind::Small, 3)]), Work::OnlySmall);
        assert_eq!(work(&forks, &[(AbortKind::Small, 2), (AbortKind::Died, 1)]), Work::NoneCommitted);
        let some = [(Processes, 1), (Forks, 3), (Committed, 1)];
        assert_eq!(work(&some, &[(AbortKind::Small, 2)]), Work::Done);
        let huge = Settings { huge_pages: HugePages::Transparent, ..Settings::default() };
        assert_eq!(Work::of(&report(&forks, &[(AbortKind::Off, 3)]), huge), Work::Uncounted);
        assert_eq!(Work::of(&report(&some, &[]), huge), Work::Done);
        // Regression: getcontext alone took less time, and nothing was to explain it.
        let context = Settings { fast_context: true, ..Settings::default() };
        assert_eq!(Work::of(&report(&[(Processes, 1)], &[]), context), Work::Uncounted);
        assert_eq!(Work::of(&report(&[(Processes, 1), (Counter::Switches, 9)], &[]), context), Work::Done);
        assert_eq!(Work::of(&report(&[], &[]), huge), Work::NotLoaded);
    }
}
