//! Figures with the evidence that the mechanism they are about was at work, held to a limit where
//! there is one. A figure whose interval spans its limit decides nothing, and one without evidence
//! proves nothing.

use serde::{Deserialize, Serialize};

use crate::params::Params;
use crate::stats::bootstrap::{Replicates, Resampler, Samples, within_rounds};
use crate::stats::median;

/// A figure, its evidence, and its limit if it has one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Of whom: the victim.
    pub name: String,
    /// Under which parameters.
    pub params: Params,
    /// What the figure is: `plain / run`.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// Which side of the limit is the right one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// The limit, in the figure's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The figure; `None` when it was not measured.
    pub value: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// The verdict.
    pub verdict: CheckVerdict,
    /// What shows that the intended mechanism ran, or why there is no figure.
    pub evidence: String,
}

impl Check {
    /// The same figure held to a limit; one that was not measured, or without evidence, is as it
    /// was.
    #[must_use]
    pub fn held_to(mut self, bound: Bound, limit: f64) -> Check {
        if let (Some(value), Some(ci95)) = (self.value, self.ci95) {
            self.verdict = Quantity { value, ci95 }.judge(bound, limit);
        }
        Check { bound: Some(bound), limit: Some(limit), ..self }
    }
}

/// The right side of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The figure should be as large as the limit or larger.
    AtLeast,
    /// The figure should be as small as the limit or smaller.
    AtMost,
}

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    /// A figure with its evidence; there is no limit.
    Shown,
    /// The whole interval is on the right side.
    Reached,
    /// The whole interval is on the wrong side.
    Missed,
    /// The limit lies inside the interval.
    Undecided,
    /// The mechanism did not run, so that the figure would be that of something else.
    NotShown,
    /// The machine has not got what it takes.
    Skipped,
}

impl CheckVerdict {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            CheckVerdict::Shown => "shown",
            CheckVerdict::Reached => "reached",
            CheckVerdict::Missed => "missed",
            CheckVerdict::Undecided => "undecided",
            CheckVerdict::NotShown => "not shown",
            CheckVerdict::Skipped => "skipped",
        }
    }
}

/// A figure with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The figure.
    pub value: f64,
    /// Its 95 % interval; the range of the rounds where these are too few for one.
    pub ci95: [f64; 2],
}

impl Quantity {
    /// The median of one value a round.
    #[must_use]
    pub fn of_rounds(rounds: &Samples, seed: u64) -> Option<Quantity> {
        if rounds.values.is_empty() {
            return None;
        }
        let range = |fold: fn(f64, f64) -> f64, from| rounds.values.iter().copied().fold(from, fold);
        let whole = [range(f64::min, f64::INFINITY), range(f64::max, f64::NEG_INFINITY)];
        let replicates = Resampler::new([rounds], 2000, seed).medians(rounds);
        Some(Quantity { value: median(&rounds.values), ci95: replicates.interval(0.95).unwrap_or(whole) })
    }

    /// One series divided by another of the same run, round by round.
    #[must_use]
    pub fn ratio(numerator: &Samples, denominator: &Samples, seed: u64) -> Option<Quantity> {
        Quantity::of_rounds(&within_rounds(numerator, denominator), seed)
    }

    /// A figure computed from several series, with the same of every draw of rounds.
    #[must_use]
    pub fn from_replicates(value: f64, replicates: &Replicates) -> Quantity {
        Quantity { value, ci95: replicates.interval(0.95).unwrap_or([value; 2]) }
    }

    /// On which side of a limit it is.
    #[must_use]
    pub fn judge(self, bound: Bound, limit: f64) -> CheckVerdict {
        let [low, high] = self.ci95;
        let (right, wrong) = match bound {
            Bound::AtLeast => (low >= limit, high < limit),
            Bound::AtMost => (high <= limit, low > limit),
        };
        match (right, wrong) {
            (true, _) => CheckVerdict::Reached,
            (_, true) => CheckVerdict::Missed,
            _ => CheckVerdict::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_interval_decides() {
        let figure = |low: f64, high: f64| Quantity { value: f64::midpoint(low, high), ci95: [low, high] };
        for (low, high, bound, verdict) in [
            (101.0, 120.0, Bound::AtLeast, CheckVerdict::Reached),
            (80.0, 99.0, Bound::AtLeast, CheckVerdict::Missed),
            (99.0, 120.0, Bound::AtLeast, CheckVerdict::Undecided),
            (80.0, 99.0, Bound::AtMost, CheckVerdict::Reached),
            (101.0, 120.0, Bound::AtMost, CheckVerdict::Missed),
            (99.0, 120.0, Bound::AtMost, CheckVerdict::Undecided),
        ] {
            assert_eq!(figure(low, high).judge(bound, 100.0), verdict, "{low} {high} {bound:?}");
        }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let rounds = |values: Vec<f64>| Samples::one_a_round(values);
        let figure = Quantity::ratio(&rounds(vec![20.0; 30]), &rounds(vec![4.0; 30]), 1).unwrap();
        assert!((figure.value - 5.0).abs() < 1e-9);
        assert!(figure.ci95[0] <= 5.0 && 5.0 <= figure.ci95[1]);
        // One round has no interval of its own, but still a figure.
        let single = Quantity::ratio(&rounds(vec![3.0]), &rounds(vec![1.0]), 1).unwrap();
        assert_eq!(single.ci95, [3.0, 3.0]);
        assert!(Quantity::ratio(&rounds(vec![]), &rounds(vec![]), 1).is_none());
    }
}
