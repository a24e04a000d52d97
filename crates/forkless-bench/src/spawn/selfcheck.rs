//! The instrument against itself: a method compared with itself must show no difference, and with
//! itself slowed down by a known share must show that difference. Both comparisons are made many
//! times, each an interleaved run of its own, and counted. The ratio looked at is the one within
//! rounds.

use crate::clock::{self, now};
use crate::engine::{self, Arm, Observer, Schedule, Silent, Turn};
use crate::error::Error;
use crate::guard::Guard;
use crate::program::{Kind, Program};
use crate::stats::bootstrap::{Resampler, Samples, within_rounds};

use super::method::Method;
use super::worker::{Lap, SpawnedProgram, Worker};
use super::{add_lap, worker};

/// What to check.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The method measured against itself.
    pub method: Method,
    /// How many runs to make.
    pub comparisons: usize,
    /// The injected slowdown, as a share: 0.03 for 3 %.
    pub slowdown: f64,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// Length of each run.
    pub schedule: Schedule,
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfChecked {
    /// Runs made.
    pub comparisons: usize,
    /// Runs in which the method was said to differ from itself.
    pub false_alarms: usize,
    /// Runs in which the slowed-down method was said to be slower.
    pub found: usize,
    /// Median over the runs of the interval's width of the ratio of a method to itself.
    pub width: f64,
    /// Median over the runs of the measured ratio of the slowed-down method: one plus the slowdown,
    /// if all is well.
    pub measured: f64,
}

/// Makes the runs.
///
/// # Errors
/// As [`run`](super::run).
pub fn self_check(
    spec: &Spec,
    guard: Option<&mut Guard>,
    observer: &mut dyn Observer,
) -> Result<SelfChecked, Error> {
    if spec.comparisons == 0 {
        return Err(Error::Spec("at least one comparison is needed".into()));
    }
    let program = Program::prepare(&Kind::Exit, guard)?;
    let target = SpawnedProgram::new(&program);
    let overhead = clock::overhead();

    let mut checked =
        SelfChecked { comparisons: spec.comparisons, false_alarms: 0, found: 0, width: 0.0, measured: 0.0 };
    let (mut widths, mut ratios) = (Vec::new(), Vec::new());
    for comparison in 0..spec.comparisons {
        let mut arms: Vec<Box<dyn Arm>> = Vec::new();
        for slowdown in [0.0, 0.0, spec.slowdown] {
            arms.push(Box::new(Slowed { worker: worker(spec.method, &target)?, overhead, slowdown }));
        }
        let seed = spec.schedule.seed.wrapping_add(comparison as u64);
        let outcome = engine::run(&mut arms, &Schedule { seed, ..spec.schedule }, &mut Silent)?;
        let series: Vec<&Samples> = outcome.series.iter().map(|series| &series[0]).collect();
        let Some(counted) = count([series[0], series[1], series[2]], spec.confidence, seed) else {
            return Err(Error::Spec("too few runs for an interval: ask for at least 100".into()));
        };
        checked.false_alarms += usize::from(counted.is_false_alarm);
        checked.found += usize::from(counted.is_found);
        widths.push(counted.width);
        ratios.push(counted.measured);
        observer.progress(comparison + 1, spec.comparisons);
    }
    checked.width = crate::stats::median(&widths);
    checked.measured = crate::stats::median(&ratios);
    Ok(checked)
}

/// What one run says.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counted {
    is_false_alarm: bool,
    is_found: bool,
    width: f64,
    measured: f64,
}

/// Judges a method, the same again, and the same slowed down. `None` for too few rounds.
fn count([one, again, slowed]: [&Samples; 3], confidence: f64, seed: u64) -> Option<Counted> {
    let against_first = |other: &Samples| {
        let ratios = within_rounds(other, one);
        Resampler::new([&ratios], 2000, seed).medians(&ratios).interval(confidence)
    };
    let ([low, high], [slow_low, _]) = (against_first(again)?, against_first(slowed)?);
    Some(Counted {
        is_false_alarm: low > 1.0 || high < 1.0,
        is_found: slow_low > 1.0,
        width: high - low,
        measured: crate::stats::median(&within_rounds(slowed, one).values),
    })
}

/// A method that takes longer by a share of its own time.
struct Slowed {
    worker: Box<dyn Worker>,
    overhead: f64,
    slowdown: f64,
}

impl Arm for Slowed {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        for repetition in 0..settle + counted {
            let lap = lengthened(self.worker.spawn()?, self.slowdown);
            if repetition >= settle {
                add_lap(turn, lap, self.overhead);
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        2
    }
}

/// Spends a share of the lap's time, and returns the lap with it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds of one spawn"
)]
fn lengthened(lap: Lap, slowdown: f64) -> Lap {
    if slowdown <= 0.0 {
        return lap;
    }
    let end = lap.reaped + (slowdown * (lap.reaped - lap.start) as f64) as u64;
    while now() < end {}
    Lap { reaped: now(), ..lap }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn every_run_is_made_and_counted() {
        let schedule = Schedule { runs: 100, ..Schedule::default() };
        let spec =
            Spec { method: Method::VforkExec, comparisons: 3, slowdown: 1.0, confidence: 0.99, schedule };
        let checked = self_check(&spec, None, &mut Silent).unwrap();
        // How many of them were found is the clock's business: see `forkless bench selfcheck`.
        assert_eq!(checked.comparisons, 3);
        assert!(checked.found <= 3 && checked.false_alarms <= 3 && checked.measured > 0.0, "{checked:?}");
        let none = Spec { comparisons: 0, ..spec };
        assert!(matches!(self_check(&none, None, &mut Silent), Err(Error::Spec(_))));
    }

    #[test]
    fn a_lap_is_lengthened_by_its_share_at_least() {
        let reaped = now();
        let lap = Lap { start: reaped - 1_000_000, returned: reaped, reaped };
        let longer = lengthened(lap, 0.25);
        assert!(longer.reaped - longer.start >= 1_250_000 && longer.returned == reaped, "{longer:?}");
        assert_eq!(lengthened(lap, 0.0).reaped, reaped);
    }

    #[test]
    fn a_slowdown_shows_in_the_measured_ratio() {
        // A machine that wanders, and noise of each method's own.
        let of = |factor: f64, salt: u64| {
            let [mut machine, mut own] = [1, 100 + salt].map(Xoshiro256PlusPlus::seed_from_u64);
            let mut value = |_| {
                let wandering = 60.0 * machine.random_range(1.0..1.2);
                wandering * factor * own.random_range(1.0..1.03)
            };
            Samples::one_a_round((0..200).map(&mut value).collect())
        };
        let (one, again) = (of(1.0, 1), of(1.0, 2));
        let counted = count([&one, &again, &of(1.03, 3)], 0.99, 1).unwrap();
        assert!(counted.is_found && !counted.is_false_alarm, "{counted:?}");
        assert!((counted.measured - 1.03).abs() < 0.01, "{counted:?}");
        let missed = count([&one, &again, &of(1.0, 3)], 0.99, 1).unwrap();
        assert!(!missed.is_found, "{missed:?}");
        assert_eq!(count([&Samples::default(); 3], 0.99, 1), None);
    }
}
