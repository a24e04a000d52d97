//! One result against another, with a test that fits how they were taken, and words for what it
//! shows.
//!
//! - Two methods of one file were *interleaved*: the ratio within rounds is tested, which cancels
//!   what both suffered.
//! - Two builds that were restarted in turns stand *side by side*: pairs of restarts are tested
//!   (`side_by_side.rs`).
//! - Two files are *separate runs*: their machine may have changed in between, which no number of
//!   samples inside a run can show. So a figure is first divided by its own run's yardstick, round
//!   by round, and a slowdown of both cancels. Whole restarts are resampled. The interval is
//!   widened by `Widening`, because restarts of one run do not show how a machine changes between
//!   runs.
//! - *Published* tables are of other machines, and an *emulator*'s clock is that of no machine.
//!   Only figures relative to each side's own yardstick are compared (`relative.rs`), and no
//!   difference is called faster or slower.

mod relative;
mod side_by_side;

use serde::Serialize;

pub(crate) use self::relative::{published, published_on};
pub use self::side_by_side::{fewest_pairs, is_other_first, side_by_side};
use crate::registry::Registry;
use crate::results::{Params, Results, Row, Suite};
use crate::stats::bootstrap::{Replicates, Resampler, within_rounds};
use crate::stats::{Summary, median};

/// How much a shared machine changes between two runs, beyond the changes that one run shows. This
/// share is added to each side of a ratio's interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Widening {
    /// Where whole restarts are resampled.
    restarts: f64,
    /// Where there are too few of them.
    single: f64,
}

/// Of times on the clock: on shared machines they move by 20 % and more.
const CLOCK: Widening = Widening { restarts: 0.05, single: 0.25 };

/// Of times divided by their own run's yardstick.
const DIVIDED: Widening = Widening { restarts: 0.05, single: 0.10 };

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
    /// Two runs of several restarts each, every figure divided by its own run's yardstick.
    ByYardstick,
    /// The same, at least one of fewer than three restarts.
    ByYardstickSingleRestart,
    /// Two builds, restarted in turns.
    SideBySide,
    /// With figures of another machine.
    Published,
    /// With figures taken in an emulator.
    Emulated,
    /// As the reader asked: each side's figures relative to a figure of its own.
    Relative,
}

impl Comparison {
    /// The confidence of its intervals, in percent.
    #[must_use]
    pub fn confidence(self) -> f64 {
        100.0 * if self == Comparison::SideBySide { side_by_side::CONFIDENCE } else { 0.95 }
    }

    /// One sentence for the report.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Comparison::Interleaved => "interleaved in one run: the ratios within rounds are resampled",
            Comparison::Restarts => {
                "separate runs: whole restarts are resampled, and the interval is widened by 5 %, because a machine changes between runs"
            }
            Comparison::SingleRestart => {
                "separate runs with fewer than three restarts: the interval is widened by 25 %; five restarts give a sharper one"
            }
            Comparison::Published => {
                "published figures of another machine: relative to each table's own yardstick, without a verdict"
            }
            Comparison::ByYardstick => {
                "separate runs: each figure is divided by its own run's yardstick, whole restarts are resampled, and the interval is widened by 5 %, because a machine changes between runs"
            }
            Comparison::ByYardstickSingleRestart => {
                "separate runs with fewer than three restarts: each figure is divided by its own run's yardstick, and the interval is widened by 10 %; five restarts give a sharper one"
            }
            Comparison::SideBySide => {
                "restarted in turns: the differences of pairs are ranked, and the intervals are of all rows together"
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
    /// Interval of the ratio: 95 %, or 99 % of all rows together if the builds stand side by side.
    /// Equal ends where there is none.
    pub ci95: [f64; 2],
    /// How the sides were taken.
    pub comparison: Comparison,
    /// What it shows.
    pub verdict: Difference,
}

impl Change {
    /// Whether the second side is shown to be slower, and a slowdown of `percent` lies within the
    /// interval or below it. A limit that the whole interval had to pass would let half of all
    /// slowdowns of just that size pass, and on a noisy machine almost every one.
    #[must_use]
    pub fn is_regression(&self, percent: f64) -> bool {
        self.verdict == Difference::Slower && self.may_be_slower_by(percent)
    }

    /// Whether the interval leaves room for a slowdown of `percent`. Where the second side is not
    /// shown to be slower, the measurement was not sharp enough to tell.
    #[must_use]
    pub fn may_be_slower_by(&self, percent: f64) -> bool {
        let [low, high] = self.ci95;
        match self.verdict {
            Difference::None => false,
            _ if higher_is_better(&self.metric) => low <= 1.0 - percent / 100.0,
            _ => high >= 1.0 + percent / 100.0,
        }
    }

    /// Sets the interval, and the verdict that follows from it.
    fn judge(&mut self, interval: [f64; 2]) {
        self.ci95 = interval;
        let better_below = !higher_is_better(&self.metric);
        self.verdict = match interval {
            [low, _] if low > 1.0 && better_below => Difference::Slower,
            [low, _] if low > 1.0 => Difference::Faster,
            [_, high] if high < 1.0 && better_below => Difference::Faster,
            [_, high] if high < 1.0 => Difference::Slower,
            _ => Difference::NoDifferenceShown,
        };
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

/// By which figures separate runs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By the ratios to each run's yardstick where both runs have it, and the yardstick itself by
    /// the clock.
    Ratios,
    /// By the clock alone.
    Clock,
    /// Relative to each run's yardstick, without a verdict. So it always is where one side is of
    /// another world.
    OtherSystems,
}

/// Compares all rows that both sides have. Estimates are left out: they are no ground for a
/// verdict.
#[must_use]
pub fn compare(a: &Side<'_>, b: &Side<'_>, by: By, seed: u64, registry: Registry) -> Vec<Change> {
    let either = |is: fn(&Results) -> bool| is(a.results) || is(b.results);
    let by_yardstick = if either(|results| results.machine.os == "published") {
        Some(Comparison::Published)
    } else if either(|results| results.machine.emulator.is_some()) && a.results != b.results {
        Some(Comparison::Emulated)
    } else {
        (by == By::OtherSystems).then_some(Comparison::Relative)
    };
    let same_run = std::ptr::eq(a.results, b.results) || a.results == b.results;
    let changes = rows_of_both(a, b, by_yardstick).filter_map(|[(suite, first), (other, second)]| {
        if same_run && first == second {
            return None;
        }
        let yardstick = registry.of(&suite.name).yardstick;
        let yardsticks = yardstick(&suite.rows, first).zip(yardstick(&other.rows, second));
        let change = match by_yardstick {
            Some(kind) => relative::change([first, second], yardsticks?, kind)?,
            None if same_run => interleaved(first, second, seed),
            None => separate([first, second], yardsticks.filter(|_| by == By::Ratios), seed),
        };
        Some(Change { suite: suite.name.clone(), ..change })
    });
    changes.collect()
}

/// Each selected row of the first side with its partner on the second, both with their suites.
/// Estimates are left out.
fn rows_of_both<'r>(
    a: &'r Side<'_>,
    b: &'r Side<'_>,
    by_yardstick: Option<Comparison>,
) -> impl Iterator<Item = [(&'r Suite, &'r Row); 2]> {
    let suites = a.results.suites.iter().flat_map(|suite| {
        let others = b.results.suites.iter().filter(|other| other.name == suite.name);
        others.map(move |other| (suite, other))
    });
    suites.flat_map(move |(suite, other)| {
        let firsts = suite.rows.iter().filter(|row| !row.estimate && selected(row, a));
        firsts.filter_map(move |first| {
            let second = other.rows.iter().find(|row| is_partner(first, row, b, by_yardstick))?;
            Some([(suite, first), (other, second)])
        })
    })
}

/// The rows of the first side that have no partner on the second, estimates left out: no comparison
/// shows them.
#[must_use]
pub fn lacking<'r>(a: &'r Side<'_>, b: &Side<'_>) -> Vec<(&'r Suite, &'r Row)> {
    let has_partner = |suite: &Suite, first: &Row| {
        let others = b.results.suites.iter().filter(|other| other.name == suite.name);
        others.flat_map(|other| &other.rows).any(|row| is_partner(first, row, b, None))
    };
    let rows = a.results.suites.iter().flat_map(|suite| suite.rows.iter().map(move |row| (suite, row)));
    rows.filter(|(suite, row)| !row.estimate && selected(row, a) && !has_partner(suite, row)).collect()
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

/// Two methods that took turns in one run.
fn interleaved(first: &Row, second: &Row, seed: u64) -> Change {
    let mut change = change(first, second);
    change.comparison = Comparison::Interleaved;
    let ratios = within_rounds(&second.grouped(), &first.grouped());
    change.ratio = median(&ratios.values);
    let interval = Resampler::new([&ratios], 2000, seed).medians(&ratios).interval(0.95);
    judged(change, interval)
}

/// Rows of two runs, each with the yardstick of its own run if that can be used.
fn separate([first, second]: [&Row; 2], yardsticks: Option<(&Row, &Row)>, seed: u64) -> Change {
    let divided = yardsticks.and_then(|(a, b)| Some([divided(first, a)?, divided(second, b)?]));
    let widening = if divided.is_some() { DIVIDED } else { CLOCK };
    let [first, second] = divided.as_ref().map_or([first, second], |[first, second]| [first, second]);
    let mut change = change(first, second);
    let has_restarts = first.restarts.len().min(second.restarts.len()) >= 3;
    let replicates = if has_restarts { restart_replicates } else { round_replicates };
    change.comparison = match (divided.is_some(), has_restarts) {
        (true, true) => Comparison::ByYardstick,
        (true, false) => Comparison::ByYardstickSingleRestart,
        (false, true) => Comparison::Restarts,
        (false, false) => Comparison::SingleRestart,
    };
    let extra = if has_restarts { widening.restarts } else { widening.single };
    let ratio = replicates(second, seed.wrapping_add(1)).ratio(&replicates(first, seed));
    let interval = ratio.interval(0.95).map(|[low, high]| [low * (1.0 - extra), high * (1.0 + extra)]);
    judged(change, interval)
}

/// A row divided, round by round, by the yardstick of its run. `None` for the yardstick itself, and
/// where a round has no figure to divide by.
fn divided(row: &Row, yardstick: &Row) -> Option<Row> {
    let of_itself = (&row.method, &row.params) == (&yardstick.method, &yardstick.params);
    let same_rounds = row.per_round.len() == yardstick.per_round.len() && row.restarts == yardstick.restarts;
    let ratios = within_rounds(&row.grouped(), &yardstick.grouped());
    let is_usable = !of_itself && same_rounds && ratios.values.len() == row.per_round.len();
    is_usable.then(|| Row {
        method: row.method.clone(),
        params: row.params.clone(),
        metric: row.metric.clone(),
        unit: format!("x {}", yardstick.method),
        summary: Summary { median: median(&ratios.values), ..Summary::default() },
        per_round: ratios.rounds,
        samples: ratios.values,
        restarts: row.restarts.clone(),
        ..Row::default()
    })
}

/// A comparison of two figures, with its verdict.
fn judged(mut change: Change, interval: Option<[f64; 2]>) -> Change {
    if change.a == 0.0 || change.b == 0.0 {
        // Faults where there are none, times below the clock's grain: equal or not, but no ratio.
        change.verdict = if change.a == change.b { Difference::NoDifferenceShown } else { Difference::None };
        return change;
    }
    if let Some(interval) = interval {
        change.judge(interval);
    }
    change
}

/// Medians of draws of whole restarts.
fn restart_replicates(row: &Row, seed: u64) -> Replicates {
    let samples = row.by_restart();
    Resampler::independent(&samples, 2000, seed).medians(&samples)
}

fn round_replicates(row: &Row, seed: u64) -> Replicates {
    let samples = row.grouped();
    Resampler::new([&samples], 2000, seed).medians(&samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Metric, Series, rows};
    use crate::stats::bootstrap::Samples;
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
        compare(&side(a), &side(b), By::Ratios, 1, SUITES).pop().unwrap()
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

    /// A run of vfork and of a method of so many times its time, on a machine of this speed.
    fn beside_a_yardstick(speed: f64, times: f64, salt: u64, restarts: usize) -> Results {
        let mut both = results(speed * 60.0, salt, restarts);
        let mut row = results(speed * 60.0 * times, salt, restarts).suites.remove(0).rows.remove(0);
        both.suites[0].rows[0].method = "vfork_exec".into();
        row.method = "m".into();
        both.suites[0].rows.push(row);
        both
    }

    #[test]
    fn a_machine_of_another_speed_hides_no_slowdown_and_feigns_none() {
        let before = beside_a_yardstick(1.0, 1.5, 1, 5);
        for speed in [0.7, 1.0, 1.6] {
            let of = |times| {
                let after = beside_a_yardstick(speed, times, 2, 5);
                let side = |results| Side { results, method: Some("m") };
                let changes = compare(&side(&before), &side(&after), By::Ratios, 1, SUITES);
                assert_eq!(changes.len(), 1);
                changes[0].clone()
            };
            let same = of(1.5);
            assert_eq!((same.comparison, same.unit.as_str()), (Comparison::ByYardstick, "x vfork_exec"));
            assert_eq!(same.verdict, Difference::NoDifferenceShown, "{same:?}");
            let slower = of(1.5 * 1.15);
            assert!((slower.ratio - 1.15).abs() < 0.01, "{slower:?}");
            assert!(slower.is_regression(10.0) && !slower.is_regression(30.0), "{slower:?}");
        }
    }

    #[test]
    fn the_yardstick_itself_is_compared_by_the_clock_and_so_is_everything_if_asked() {
        let (one, other) = (beside_a_yardstick(1.0, 1.5, 1, 5), beside_a_yardstick(2.0, 1.5, 2, 5));
        let side = |results| Side { results, method: None };
        let kinds = |by| {
            let changes = compare(&side(&one), &side(&other), by, 1, SUITES);
            changes.iter().map(|change| (change.comparison, change.verdict)).collect::<Vec<_>>()
        };
        let slower = (Comparison::Restarts, Difference::Slower);
        assert_eq!(kinds(By::Ratios), [slower, (Comparison::ByYardstick, Difference::NoDifferenceShown)]);
        assert_eq!(kinds(By::Clock), [slower, slower]);
        let single = beside_a_yardstick(2.0, 1.5, 2, 1);
        let changes = compare(&side(&one), &side(&single), By::Ratios, 1, SUITES);
        assert_eq!(changes[1].comparison, Comparison::ByYardstickSingleRestart);
    }

    #[test]
    fn a_limit_fires_for_what_is_slower_and_not_shown_to_be_below_it() {
        let shown = |interval| {
            let mut change = change(&Row { metric: "wall".into(), ..Row::default() }, &Row::default());
            change.judge(interval);
            [5.0, 10.0, 30.0].map(|limit| change.is_regression(limit))
        };
        assert_eq!(shown([1.08, 1.12]), [true, true, false]);
        assert_eq!(shown([1.20, 1.50]), [true, true, true]);
        assert_eq!(shown([1.01, 1.04]), [false, false, false]);
        assert_eq!(shown([0.95, 1.40]), [false, false, false]);
        assert_eq!(shown([0.80, 0.90]), [false, false, false]);
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
        let change = compare(&side(&real), &side(&emulated), By::Ratios, 1, SUITES).pop().unwrap();
        assert_eq!((change.comparison, change.verdict), (Comparison::Emulated, Difference::None));
        assert!((change.a - 2.0).abs() < 1e-9 && (change.b - 4.0).abs() < 1e-9, "{change:?}");
        assert!(!change.is_regression(0.0));
    }

    #[test]
    fn published_figures_are_compared_relative_to_their_yardstick() {
        let published = published();
        let side = |method| Side { results: &published, method: Some(method) };
        let all = compare(&side("vfork_exec"), &side("system"), By::Ratios, 1, SUITES);
        let change = all.iter().find(|change| change.suite == "spawn").unwrap();
        assert!((change.b - 115.4 / 9.0).abs() < 1e-9);
        assert_eq!(change.verdict, Difference::None);
        assert!(!change.is_regression(0.0));
    }
}
