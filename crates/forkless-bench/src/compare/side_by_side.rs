//! Two builds that were restarted in turns: the only comparison of two programs that sees a few
//! percent.
//!
//! Each pair of restarts gives one difference: the logarithm of the ratio of the two medians. The
//! difference holds all that varies from restart to restart, such as where a process's memory lies.
//! The machine's wandering cancels, because the two of a pair run one after the other.
//! [`signed_rank`] judges the differences.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Change, Comparison, Side, change, rows_of_both};
use crate::results::{Results, Row};
use crate::stats::bootstrap::round_medians;
use crate::stats::signed_rank;

/// Of all rows of a report together: one report in a hundred says of the same build that it
/// differs, at most.
pub(super) const CONFIDENCE: f64 = 0.99;

/// The judged metric.
const METRIC: &str = "wall";

/// How many pairs of restarts it takes to judge so many rows at once.
#[must_use]
pub fn fewest_pairs(rows: usize) -> usize {
    signed_rank::fewest(confidence(rows))
}

/// Each row shares the chance of a false alarm with the others (Bonferroni).
#[expect(clippy::cast_precision_loss, reason = "a number of rows")]
fn confidence(rows: usize) -> f64 {
    1.0 - (1.0 - CONFIDENCE) / rows.max(1) as f64
}

/// Whether the second build is the first to be restarted in the pair of this seed: a coin, on which
/// the test of the differences rests.
#[must_use]
pub fn is_other_first(seed: u64) -> bool {
    Xoshiro256PlusPlus::seed_from_u64(seed).random_bool(0.5)
}

/// Compares `wall` of two builds, restart by restart. Both results are of the same number of
/// restarts, put together by [`merge`](crate::restarts::merge). A row that a restart lacks is left
/// out. So is everything if there are fewer restarts than [`fewest_pairs`].
#[must_use]
pub fn side_by_side(a: &Results, b: &Results) -> Vec<Change> {
    let [a, b] = [a, b].map(|results| Side { results, method: None });
    let rows: Vec<_> = rows_of_both(&a, &b, None)
        .filter(|[(_, first), (_, second)]| {
            first.metric == METRIC && first.restarts.len() == second.restarts.len()
        })
        .collect();
    let confidence = confidence(rows.len());
    let judged = rows.into_iter().filter_map(|[(suite, first), (_, second)]| {
        let medians = |row: &Row| round_medians(&row.by_restart());
        let both = medians(first).into_iter().zip(medians(second));
        let differences: Vec<f64> =
            both.filter(|&(a, b)| a > 0.0 && b > 0.0).map(|(a, b)| (b / a).ln()).collect();
        let (centre, interval) = signed_rank::centre(&differences, confidence)?;
        let mut change = change(first, second);
        change.suite = suite.name.clone();
        change.comparison = Comparison::SideBySide;
        change.ratio = centre.exp();
        change.judge(interval.map(f64::exp));
        Some(change)
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Difference;
    use crate::results::{Metric, Params, Series, Suite, rows};
    use crate::stats::bootstrap::Samples;

    /// Restarts of rows named by number, each restart at one level.
    fn results(levels: &[Vec<f64>]) -> Results {
        let series = levels.iter().enumerate().map(|(index, levels)| {
            let mut samples = Samples::default();
            for level in levels {
                samples.push_round([level * 0.9, *level, level * 1.4]);
                samples.push_round([*level]);
            }
            let method = index.to_string();
            Series { method, params: Params::new(), metric: Metric::WALL, limit: None, samples }
        });
        let mut rows = rows(series.collect(), None, 1);
        for (row, levels) in rows.iter_mut().zip(levels) {
            row.restarts = vec![2; levels.len()];
        }
        Results { suites: vec![Suite { name: "spawn".into(), rows, ..Suite::default() }], ..Results::begin() }
    }

    #[test]
    fn a_machine_that_wanders_by_half_hides_nothing_that_pairs_show() {
        let wandering: Vec<f64> = (0..20).map(|i| 60.0 * (1.5 + f64::from(i).sin() / 2.0)).collect();
        let slowed = |by: f64| results(&[wandering.iter().map(|level| level * by).collect()]);
        let judge = |by| side_by_side(&slowed(1.0), &slowed(by)).remove(0);
        assert_eq!(judge(1.0).verdict, Difference::NoDifferenceShown);
        let slower = judge(1.1);
        assert!((slower.ratio - 1.1).abs() < 1e-3 && slower.is_regression(10.0), "{slower:?}");
        assert_eq!(judge(0.9).verdict, Difference::Faster);
    }

    #[test]
    fn either_build_is_first_about_as_often() {
        let first = (0..1000).filter(|&seed| is_other_first(seed)).count();
        assert!((400..=600).contains(&first), "{first}");
    }

    #[test]
    fn more_rows_ask_for_more_pairs_and_a_row_of_other_restarts_is_not_judged() {
        assert_eq!((fewest_pairs(1), fewest_pairs(10)), (8, 11));
        let steady = |count| vec![60.0; count];
        let [few, many] = [10, 11].map(|count| results(&vec![steady(count); 10]));
        assert_eq!(side_by_side(&few, &few), []);
        assert_eq!(side_by_side(&many, &many).len(), 10);
        let [one, other] = [[20, 20], [20, 19]].map(|counts| results(&counts.map(steady)));
        let judged = side_by_side(&one, &other);
        assert_eq!(judged.iter().map(|change| change.method.as_str()).collect::<Vec<_>>(), ["0"]);
    }
}
