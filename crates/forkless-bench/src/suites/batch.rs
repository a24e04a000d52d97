//! Work too short to time alone: a batch of calls between two clock readings, and its processor
//! time.

use std::hint::black_box;

use crate::clock::{CpuTime, now};
use crate::engine::{Arm, Turn};
use crate::error::Error;
use crate::results::Metric;

/// Metrics of a [`Batch`], each a call.
pub(crate) const METRICS: [Metric; 4] = [
    Metric { name: "real", unit: "ns", estimate: false },
    Metric { name: "cpu_total", unit: "ns", estimate: false },
    Metric { name: "cpu_user", unit: "ns", estimate: true },
    Metric { name: "cpu_system", unit: "ns", estimate: true },
];

/// Repeats something a number of times and returns how many nanoseconds that took, or `None` to
/// have it timed from outside.
type Work<'a> = Box<dyn FnMut(u64) -> Result<Option<f64>, Error> + 'a>;

/// A batch of calls as an arm of the engine.
pub(crate) struct Batch<'a> {
    work: Work<'a>,
    calls: u64,
    overhead: f64,
}

impl<'a> Batch<'a> {
    /// `work` makes as many calls as it is told.
    pub(crate) fn arm(
        calls: u64,
        overhead: f64,
        mut work: impl FnMut(u64) -> Result<(), Error> + 'a,
    ) -> Box<dyn Arm + 'a> {
        Box::new(Batch { work: Box::new(move |calls| work(calls).map(|()| None)), calls, overhead })
    }

    /// `work` times itself, because it runs elsewhere.
    #[cfg(target_os = "linux")]
    pub(crate) fn timed_arm(
        calls: u64,
        work: impl FnMut(u64) -> Result<f64, Error> + 'a,
    ) -> Box<dyn Arm + 'a> {
        let mut work = work;
        Box::new(Batch { work: Box::new(move |calls| work(calls).map(Some)), calls, overhead: 0.0 })
    }
}

impl Arm for Batch<'_> {
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds and counts of a batch")]
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        if settle > 0 {
            // Caches and predictors need a few calls, not a whole batch.
            (self.work)(self.calls.div_ceil(10))?;
        }
        for _ in 0..counted {
            let before = CpuTime::of_self_and_children();
            let start = now();
            let own = black_box((self.work)(black_box(self.calls))?);
            let end = now();
            let used = CpuTime::of_self_and_children().since(before);
            let calls = self.calls as f64;
            let elapsed = own.unwrap_or((end - start) as f64 - self.overhead).max(0.0);
            turn.add(0, elapsed / calls);
            turn.add(1, used.total() * 1e3 / calls);
            turn.add(2, used.user * 1e3 / calls);
            turn.add(3, used.system * 1e3 / calls);
        }
        Ok(())
    }

    fn series(&self) -> usize {
        METRICS.len()
    }
}
