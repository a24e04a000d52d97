//! Several restarts of the same run put together as one result.

use crate::registry::Registry;
use crate::results::{Derived, Metric, Results, Row, Series, Suite, rows};

/// Puts the results of several restarts of the same run together: one row for each that all have,
/// its samples one restart after the other. `None` for no results.
#[must_use]
pub fn merge(parts: Vec<Results>, registry: Registry) -> Option<Results> {
    let mut parts = parts.into_iter();
    let mut merged = parts.next()?;
    let rest: Vec<Results> = parts.collect();
    for (index, suite) in merged.suites.iter_mut().enumerate() {
        let others: Vec<&Suite> = rest.iter().filter_map(|part| part.suites.get(index)).collect();
        let baseline = suite.rows.iter().find_map(|row| Some(row.ratio.as_ref()?.to.clone()));
        let mut series = Vec::new();
        let mut restarts = Vec::new();
        for row in std::mem::take(&mut suite.rows) {
            let mut samples = row.grouped();
            let mut counts = vec![count(&row.per_round)];
            for other in &others {
                let same = |found: &&Row| {
                    (&found.method, &found.params, &found.metric) == (&row.method, &row.params, &row.metric)
                };
                if let Some(found) = other.rows.iter().find(same) {
                    samples.values.extend(&found.samples);
                    samples.rounds.extend(&found.per_round);
                    counts.push(count(&found.per_round));
                }
            }
            restarts.push((counts, row.unit, row.metric, row.estimate));
            let metric = Metric { name: "", unit: "", estimate: row.estimate };
            series.push(Series { method: row.method, params: row.params, metric, limit: row.limit, samples });
        }
        suite.rows = merged_rows(series, restarts, baseline.as_deref(), suite.seed);
        for other in others {
            suite.rounds += other.rounds;
            suite.seconds += other.seconds;
            suite.noise = suite.noise.worst(&other.noise);
            suite.take_notes(other.notes.clone());
            merge_derived(&mut suite.derived, &other.derived);
        }
        if let Some(fits) = registry.of(&suite.name).fits {
            suite.fits = fits(&suite.rows, suite.seed);
        }
        for one in &mut suite.derived {
            // The sum of one value from each restart that had it: the mean.
            one.value /= f64::from(u32::try_from(1 + rest.len()).unwrap_or(1));
        }
    }
    Some(merged)
}

/// Adds up the figures of restarts; the interval becomes the hull of theirs, for restarts differ by
/// more than rounds do.
fn merge_derived(into: &mut Vec<Derived>, others: &[Derived]) {
    into.retain_mut(|one| {
        let Some(other) = others.iter().find(|other| other.name == one.name) else { return false };
        one.value += other.value;
        one.ci95 = [one.ci95[0].min(other.ci95[0]), one.ci95[1].max(other.ci95[1])];
        true
    });
}

fn count(per_round: &[u32]) -> u32 {
    u32::try_from(per_round.len()).unwrap_or(u32::MAX)
}

/// [`rows`] for metrics known only by name: they are taken one metric at a time.
fn merged_rows(
    series: Vec<Series>,
    names: Vec<(Vec<u32>, String, String, bool)>,
    baseline: Option<&str>,
    seed: u64,
) -> Vec<Row> {
    let mut order: Vec<(usize, Row)> = Vec::new();
    let mut metrics: Vec<&String> = names.iter().map(|(_, _, metric, _)| metric).collect();
    metrics.sort();
    metrics.dedup();
    for metric in metrics {
        let indices: Vec<usize> = (0..names.len()).filter(|&index| names[index].2 == *metric).collect();
        let group = indices.iter().map(|&index| series[index].clone()).collect();
        for (index, mut row) in indices.into_iter().zip(rows(group, baseline, seed)) {
            (row.restarts, row.unit, row.metric, row.estimate) = names[index].clone();
            order.push((index, row));
        }
    }
    order.sort_by_key(|(index, _)| *index);
    order.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::series;
    use crate::suites::SUITES;

    #[test]
    fn restarts_are_merged_and_remembered() {
        let part = |scale| {
            let all =
                rows(vec![series("vfork_exec", scale), series("system", 2.0 * scale)], Some("vfork_exec"), 1);
            let suite = Suite { name: "spawn".into(), rows: all, ..Suite::default() };
            Results { suites: vec![suite], ..Results::begin() }
        };
        let merged = merge(vec![part(1.0), part(1.1), part(1.2)], SUITES).unwrap();
        let row = &merged.suites[0].rows[1];
        assert_eq!((row.method.as_str(), row.metric.as_str(), row.unit.as_str()), ("system", "wall", "us"));
        assert_eq!(row.restarts, [60, 60, 60]);
        assert_eq!(row.samples.len(), 180);
        assert!((row.ratio.as_ref().unwrap().within_rounds - 2.0).abs() < 1e-6);
        assert!(merge(vec![], SUITES).is_none());
    }
}
