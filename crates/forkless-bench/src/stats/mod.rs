//! Statistics of a set of timings: quantiles show where most of them lie, outliers are counted and
//! kept, and intervals from [resampling](bootstrap) show how far the figures can be trusted.

pub mod bootstrap;
pub mod line;
pub mod signed_rank;

use serde::{Deserialize, Serialize};

/// Order statistics of one series.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Smallest sample.
    pub min: f64,
    /// 5 % of the samples are smaller.
    pub p05: f64,
    /// First quartile.
    pub p25: f64,
    /// Half of the samples are smaller.
    pub median: f64,
    /// Third quartile.
    pub p75: f64,
    /// 90 % are smaller.
    pub p90: f64,
    /// 95 % are smaller.
    pub p95: f64,
    /// 99 % are smaller.
    pub p99: f64,
    /// 99.9 % are smaller.
    pub p999: f64,
    /// Largest sample.
    pub max: f64,
    /// Arithmetic mean, outliers included.
    pub mean: f64,
    /// Samples further than three interquartile ranges outside the quartiles (Tukey's outer
    /// fences). They are part of every figure above.
    pub outliers: usize,
}

impl Summary {
    /// Summarises samples in any order; all zero for none.
    #[must_use]
    pub(crate) fn of(samples: &[f64]) -> Summary {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |p| quantile_sorted(&sorted, p);
        let (low, high) = (at(0.25), at(0.75));
        let fence = 3.0 * (high - low);
        let outliers = sorted.iter().filter(|&&x| x < low - fence || x > high + fence).count();
        Summary {
            n: sorted.len(),
            min: at(0.0),
            p05: at(0.05),
            p25: low,
            median: at(0.5),
            p75: high,
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            mean: mean(&sorted),
            outliers,
        }
    }
}

/// The arithmetic mean; 0 for no samples.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sample counts are far below 2^52")]
pub(crate) fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

/// The `p` quantile of ascending samples, interpolated between neighbours (Hyndman and Fan's type
/// 7, the default of R and NumPy); 0 for no samples.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index into the samples, made from a position between 0 and their count"
)]
pub fn quantile_sorted(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = p.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let share = position - below as f64;
    sorted[below] + (sorted[above] - sorted[below]) * share
}

/// The median of samples in any order; 0 for none.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile_sorted(&sorted, 0.5)
}

/// Counts in logarithmic bins: what a reader needs to see two humps or a long tail.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Lower edge of each bin, ascending; a bin ends where the next begins.
    pub edges: Vec<f64>,
    /// Samples in each bin.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// At most `bins` bins of equal ratio between the smallest and the largest positive sample;
    /// samples that are not positive are counted in the first bin.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bin numbers are small and not negative"
    )]
    pub(crate) fn of(samples: &[f64], bins: usize) -> Histogram {
        let positive = || samples.iter().copied().filter(|&x| x > 0.0);
        let low = positive().fold(f64::INFINITY, f64::min);
        let high = positive().fold(0.0, f64::max);
        if bins == 0 || high <= 0.0 {
            return Histogram::default();
        }
        let ratio = (high / low).ln().max(1e-9) / bins as f64;
        let mut counts = vec![0; bins];
        for &sample in samples {
            let bin = if sample > low { ((sample / low).ln() / ratio) as usize } else { 0 };
            counts[bin.min(bins - 1)] += 1;
        }
        let edges = (0..bins).map(|bin| low * (ratio * bin as f64).exp()).collect();
        Histogram { edges, counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_as_r_and_numpy_do() {
        let samples = [1.0, 2.0, 3.0, 4.0];
        // numpy.quantile([1,2,3,4], [0, .05, .25, .5, .99, 1])
        for (p, expected) in [(0.0, 1.0), (0.05, 1.15), (0.25, 1.75), (0.5, 2.5), (0.99, 3.97), (1.0, 4.0)] {
            assert!((quantile_sorted(&samples, p) - expected).abs() < 1e-12, "{p}");
        }
        assert!(quantile_sorted(&[], 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn outliers_are_counted_and_stay_in_the_figures() {
        let mut samples: Vec<f64> = (0..100).map(f64::from).collect();
        samples.push(10_000.0);
        let summary = Summary::of(&samples);
        assert_eq!(summary.outliers, 1);
        assert_eq!(summary.n, 101);
        assert!((summary.max - 10_000.0).abs() < f64::EPSILON);
        assert!(summary.mean > 140.0);
    }

    #[test]
    fn a_histogram_loses_no_sample() {
        let samples = [1.0, 1.0, 2.0, 10.0, 1000.0, 0.0];
        let histogram = Histogram::of(&samples, 30);
        assert_eq!(histogram.counts.iter().sum::<u64>(), 6);
        assert_eq!(histogram.edges.len(), 30);
        assert_eq!(*histogram.counts.last().unwrap(), 1);
        let same = Histogram::of(&[5.0; 4], 3);
        assert_eq!(same.counts, [4, 0, 0]);
    }
}
