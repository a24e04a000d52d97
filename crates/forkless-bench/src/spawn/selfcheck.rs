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
use super::worker::{SpawnedProgram, Worker};
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
        let against_first = |index: usize| {
            let ratios = within_rounds(series[index], series[0]);
            Resampler::new([&ratios], 2000, seed).medians(&ratios).interval(spec.confidence)
        };
        let (Some([low, high]), Some([slow_low, _])) = (against_first(1), against_first(2)) else {
            return Err(Error::Spec("too few runs for an interval: ask for at least 100".into()));
        };
        checked.false_alarms += usize::from(low > 1.0 || high < 1.0);
        checked.found += usize::from(slow_low > 1.0);
        widths.push(high - low);
        ratios.push(crate::stats::median(&within_rounds(series[2], series[0]).values));
        observer.progress(comparison + 1, spec.comparisons);
    }
    checked.width = crate::stats::median(&widths);
    checked.measured = crate::stats::median(&ratios);
    Ok(checked)
}

/// A method that takes longer by a share of its own time.
struct Slowed {
    worker: Box<dyn Worker>,
    overhead: f64,
    slowdown: f64,
}

impl Arm for Slowed {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "nanoseconds of one spawn"
    )]
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        for repetition in 0..settle + counted {
            let mut lap = self.worker.spawn()?;
            if self.slowdown > 0.0 {
                let end = lap.reaped + (self.slowdown * (lap.reaped - lap.start) as f64) as u64;
                while now() < end {}
                lap.reaped = now();
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_shows_in_the_measured_ratio() {
        let schedule = Schedule { runs: 200, ..Schedule::default() };
        let spec =
            Spec { method: Method::VforkExec, comparisons: 3, slowdown: 1.0, confidence: 0.99, schedule };
        let checked = self_check(&spec, None, &mut Silent).unwrap();
        assert_eq!(checked.comparisons, 3);
        // Twice the time is found however noisy the machine the tests run on.
        assert_eq!(checked.found, 3, "{checked:?}");
        assert!(checked.measured > 1.3, "{checked:?}");
    }
}
