//! One result against another, with a test that fits how they were taken, and words for what it
//! shows.
//!
//! - Two methods of one file were *interleaved*: the ratio within rounds is tested, which cancels
//!   what both suffered.
//! - Two files are *separate runs*: their machine may have changed in between, which no number of
//!   samples inside a run can show. Whole restarts are resampled. The interval is widened by
//!   [`SITTING`], for changes that restarts made in one sitting do not see. A file of fewer than
//!   three restarts says so and gets [`SINGLE`] instead.
//! - *Published* tables are of other machines, and an *emulator*'s clock is that of no machine.
//!   Only figures relative to each side's own yardstick are compared (`relative.rs`), and no
//!   difference is called faster or slower.

mod relative;

use serde::Serialize;

pub(crate) use self::relative::{published, published_on};
use crate::registry::Registry;
use crate::results::{Params, Results, Row};
use crate::stats::bootstrap::{Replicates, Resampler, Samples, within_rounds};
use crate::stats::median;

/// How far two sittings on a shared machine differ beyond the differences between restarts of one
/// sitting. The share is added to each side of a ratio's interval.
pub const SITTING: f64 = 0.05;

/// The same where a file has too few restarts to resample: absolute times on shared machines move
/// by 20 % and more.
pub const SINGLE: f64 = 0.25;

/// How the two sides were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// Side by side in one run.
    Interleaved,
    /// Two runs of several restarts each.
    Restarts,
    /// Two runs, at least one of fewer than three restarts.
    SingleRestart,
    /// With figures of another machine.
    Published,
    /// With figures taken in an emulator.
    Emulated,
    /// As the reader asked: each side's figures relative to a figure of its own.
    Relative,
}

impl Comparison {
    /// One sentence for the report.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Comparison::Interleaved => "interleaved in one run: the ratios within rounds are resampled",
            Comparison::Restarts => {
                "separate runs: whole restarts are resampled, and 5 % added for what a sitting cannot show"
            }
            Comparison::SingleRestart => {
                "separate runs with fewer than three restarts: the interval is widened by 25 %; five restarts give a sharper one"
            }
            Comparison::Published => {
                "published figures of another machine: relative to each table's own yardstick, without a verdict"
            }
            Comparison::Relative => "relative to each side's own yardstick, without a verdict",
            Comparison::Emulated => {
                "taken in an emulator, whose absolute times are meaningless: relative to each side's own yardstick, without a verdict"
            }
        }
    }
}

/// What a comparison shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The whole interval is on the better side.
    Faster,
    /// The whole interval is on the worse side.
    Slower,
    /// The interval holds "the same".
    NoDifferenceShown,
    /// Nothing can be said.
    None,
}

impl Difference {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Difference::Faster => "faster",
            Difference::Slower => "slower",
            Difference::NoDifferenceShown => "no difference shown",
            Difference::None => "",
        }
    }
}

/// One row of one result against the same row of another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Suite, method, parameters and metric of the row.
    pub suite: String,
    /// The method, or both where they differ.
    pub method: String,
    /// The parameters of the first side.
    pub params: Params,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Median of the first side.
    pub a: f64,
    /// Median of the second side.
    pub b: f64,
    /// Second over first; not finite where the first is zero.
    pub ratio: f64,
    /// 95 % interval of the ratio; equal ends where there is none.
    pub ci95: [f64; 2],
    /// How the sides were taken.
    pub comparison: Comparison,
    /// What it shows.
    pub verdict: Difference,
}

impl Change {
    /// Whether the second side is worse by more than `percent`, with the whole interval.
    #[must_use]
    pub fn is_regression(&self, percent: f64) -> bool {
        let [low, high] = self.ci95;
        match self.comparison {
            Comparison::Published | Comparison::Emulated | Comparison::Relative => false,
            _ if higher_is_better(&self.metric) => high < 1.0 - percent / 100.0,
            _ => low > 1.0 + percent / 100.0,
        }
    }
}

fn higher_is_better(metric: &str) -> bool {
    matches!(metric, "rate" | "throughput" | "w/s" | "wsec/s")
}

/// A result, and possibly the one method of it that is meant.
#[derive(Debug, Clone)]
pub struct Side<'a> {
    /// The file's content.
    pub results: &'a Results,
    /// Only this method, which then is compared with whatever method the other side names.
    pub method: Option<&'a str>,
}

/// Whether a result's absolute figures are of another world: published, or taken in an emulator.
#[must_use]
pub fn is_of_another_world(results: &Results) -> bool {
    results.machine.os == "published" || results.machine.emulator.is_some()
}

/// Compares all rows that both sides have. Estimates are left out: they are no ground for a
/// verdict. With `relative` every figure is taken relative to its own side's yardstick, as it
/// always is where one side is of another world.
#[must_use]
pub fn compare(a: &Side<'_>, b: &Side<'_>, relative: bool, seed: u64, registry: Registry) -> Vec<Change> {
    let either = |is: fn(&Results) -> bool| is(a.results) || is(b.results);
    let by_yardstick = if either(|results| results.machine.os == "published") {
        Some(Comparison::Published)
    } else if either(|results| results.machine.emulator.is_some()) && a.results != b.results {
        Some(Comparison::Emulated)
    } else {
        relative.then_some(Comparison::Relative)
    };
    let same_run = std::ptr::eq(a.results, b.results) || a.results == b.results;
    let mut changes = Vec::new();
    for suite in &a.results.suites {
        let others = b.results.suites.iter().filter(|other| other.name == suite.name);
        for other in others {
            for first in suite.rows.iter().filter(|row| !row.estimate && selected(row, a)) {
                let partner = other.rows.iter().find(|row| is_partner(first, row, b, by_yardstick));
                let Some(second) = partner else { continue };
                if same_run && first == second {
                    continue;
                }
                let change = match by_yardstick {
                    Some(kind) => relative::change(
                        registry.of(&suite.name),
                        first,
                        second,
                        &suite.rows,
                        &other.rows,
                        kind,
                    ),
                    None => Some(measured(first, second, same_run, seed)),
                };
                changes.extend(change.map(|change| Change { suite: suite.name.clone(), ..change }));
            }
        }
    }
    changes
}

fn selected(row: &Row, side: &Side<'_>) -> bool {
    side.method.is_none_or(|method| row.method == method)
}

fn is_partner(first: &Row, row: &Row, side: &Side<'_>, by_yardstick: Option<Comparison>) -> bool {
    let method = side.method.map_or(row.method == first.method, |method| row.method == method);
    let params = match by_yardstick {
        // Published tables know nothing of most parameters; what they know must agree.
        Some(Comparison::Published) => {
            let (few, many) = if first.params.len() < row.params.len() {
                (&first.params, &row.params)
            } else {
                (&row.params, &first.params)
            };
            few.iter().all(|(name, value)| many.get(name) == Some(value))
        }
        _ => row.params == first.params,
    };
    method && row.metric == first.metric && row.unit == first.unit && params
}

fn name(first: &Row, second: &Row) -> String {
    if first.method == second.method {
        first.method.clone()
    } else {
        format!("{} -> {}", first.method, second.method)
    }
}

fn change(first: &Row, second: &Row) -> Change {
    Change {
        suite: String::new(),
        method: name(first, second),
        params: first.params.clone(),
        metric: first.metric.clone(),
        unit: first.unit.clone(),
        a: first.summary.median,
        b: second.summary.median,
        ratio: second.summary.median / first.summary.median,
        ci95: [0.0; 2],
        comparison: Comparison::Published,
        verdict: Difference::None,
    }
}

fn measured(first: &Row, second: &Row, same_run: bool, seed: u64) -> Change {
    let mut change = change(first, second);
    let restarts = first.restarts.len().min(second.restarts.len());
    let interval = if same_run {
        change.comparison = Comparison::Interleaved;
        let ratios = within_rounds(&second.grouped(), &first.grouped());
        change.ratio = median(&ratios.values);
        Resampler::new([&ratios], 2000, seed).medians(&ratios).interval(0.95)
    } else {
        let (one, other) = if restarts >= 3 {
            change.comparison = Comparison::Restarts;
            (restart_replicates(first, seed), restart_replicates(second, seed.wrapping_add(1)))
        } else {
            change.comparison = Comparison::SingleRestart;
            (round_replicates(first, seed), round_replicates(second, seed.wrapping_add(1)))
        };
        let extra = if restarts >= 3 { SITTING } else { SINGLE };
        other.ratio(&one).interval(0.95).map(|[low, high]| [low * (1.0 - extra), high * (1.0 + extra)])
    };
    if change.a == 0.0 || change.b == 0.0 {
        // Faults where there are none, times below the clock's grain: equal or not, but no ratio.
        change.verdict = if change.a == change.b { Difference::NoDifferenceShown } else { Difference::None };
        return change;
    }
    let Some(ci95) = interval else { return change };
    change.ci95 = ci95;
    let better_below = !higher_is_better(&change.metric);
    change.verdict = match ci95 {
        [low, _] if low > 1.0 && better_below => Difference::Slower,
        [low, _] if low > 1.0 => Difference::Faster,
        [_, high] if high < 1.0 && better_below => Difference::Faster,
        [_, high] if high < 1.0 => Difference::Slower,
        _ => Difference::NoDifferenceShown,
    };
    change
}

/// Medians of draws of whole restarts: every restart is one round to the resampler.
fn restart_replicates(row: &Row, seed: u64) -> Replicates {
    let mut samples = Samples { values: row.samples.clone(), rounds: Vec::new() };
    let mut rounds = row.per_round.iter();
    for &restart in &row.restarts {
        samples.rounds.push(rounds.by_ref().take(restart as usize).sum());
    }
    Resampler::independent(&samples, 2000, seed).medians(&samples)
}

fn round_replicates(row: &Row, seed: u64) -> Replicates {
    let samples = row.grouped();
    Resampler::new([&samples], 2000, seed).medians(&samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Metric, Series, Suite, rows};
    use crate::suites::SUITES;

    /// Five restarts of twenty rounds around `level`, each restart at a level of its own.
    fn results(level: f64, salt: u64, restarts: usize) -> Results {
        let mut samples = Samples::default();
        for restart in 0..restarts {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let mood = 1.0 + 0.01 * (((salt + restart as u64) * 7919 % 13) as f64 - 6.0) / 6.0;
            for round in 0..20_u32 {
                samples.push_round([level * mood * (1.0 + f64::from(round % 5) * 0.01)]);
            }
        }
        let series =
            Series { method: "m".into(), params: Params::new(), metric: Metric::WALL, limit: None, samples };
        let mut rows = rows(vec![series], None, 1);
        rows[0].restarts = vec![20; restarts];
        let suite = Suite { name: "spawn".into(), rows, ..Suite::default() };
        Results { suites: vec![suite], ..Results::begin() }
    }

    fn one(a: &Results, b: &Results) -> Change {
        let side = |results| Side { results, method: None };
        compare(&side(a), &side(b), false, 1, SUITES).pop().unwrap()
    }

    #[test]
    fn saved_runs_of_the_same_thing_show_no_difference() {
        for salt in 0..40 {
            let change = one(&results(60.0, salt, 5), &results(60.0, salt + 100, 5));
            assert_eq!(change.comparison, Comparison::Restarts);
            assert_eq!(change.verdict, Difference::NoDifferenceShown, "{change:?}");
        }
    }

    #[test]
    fn a_large_slowdown_is_a_regression_and_a_gain_is_not() {
        let slower = one(&results(60.0, 1, 5), &results(90.0, 2, 5));
        assert_eq!(slower.verdict, Difference::Slower);
        assert!(slower.is_regression(20.0) && !slower.is_regression(60.0));
        let faster = one(&results(90.0, 1, 5), &results(60.0, 2, 5));
        assert_eq!(faster.verdict, Difference::Faster);
        assert!(!faster.is_regression(0.0));
    }

    #[test]
    fn a_single_restart_is_said_and_asks_for_a_larger_difference() {
        let change = one(&results(60.0, 1, 1), &results(66.0, 2, 1));
        assert_eq!(change.comparison, Comparison::SingleRestart);
        assert_eq!(change.verdict, Difference::NoDifferenceShown);
    }

    #[test]
    fn what_an_emulator_measured_is_compared_relative_to_its_yardstick_without_a_verdict() {
        let real = results(60.0, 1, 5);
        let mut emulated = results(6000.0, 2, 5);
        emulated.machine.emulator = Some("qemu TCG".into());
        let add_yardstick = |results: &mut Results, factor: f64| {
            let mut row = results.suites[0].rows[0].clone();
            row.summary.median *= factor;
            row.method = "vfork_exec".into();
            results.suites[0].rows.push(row);
        };
        let mut real = real;
        add_yardstick(&mut real, 0.5);
        add_yardstick(&mut emulated, 0.25);
        let side = |results| Side { results, method: Some("m") };
        let change = compare(&side(&real), &side(&emulated), false, 1, SUITES).pop().unwrap();
        assert_eq!((change.comparison, change.verdict), (Comparison::Emulated, Difference::None));
        assert!((change.a - 2.0).abs() < 1e-9 && (change.b - 4.0).abs() < 1e-9, "{change:?}");
        assert!(!change.is_regression(0.0));
    }

    #[test]
    fn published_figures_are_compared_relative_to_their_yardstick() {
        let published = published();
        let side = |method| Side { results: &published, method: Some(method) };
        let all = compare(&side("vfork_exec"), &side("system"), false, 1, SUITES);
        let change = all.iter().find(|change| change.suite == "spawn").unwrap();
        assert!((change.b - 115.4 / 9.0).abs() < 1e-9);
        assert_eq!(change.verdict, Difference::None);
        assert!(!change.is_regression(0.0));
    }
}
