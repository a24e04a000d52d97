//! Figures with an interval, since a figure without one is a guess.

use serde::Serialize;

/// A value in nanoseconds with the interval it is expected in.
///
/// ```
/// let each = forkless_diagnose::Estimate { low: 8e3, mid: 1e4, high: 2e4 };
/// assert_eq!(serde_json::to_string(&each).unwrap(), r#"{"low":8000.0,"mid":10000.0,"high":20000.0}"#);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Lower end.
    pub low: f64,
    /// Best guess.
    pub mid: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// Median of samples with the values at one and nine tenths as the interval; zero without samples.
    pub(crate) fn of_samples(samples: &mut [f64]) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = samples.len().checked_sub(1)?;
            samples.get((last as f64 * share).round() as usize).copied()
        };
        Self { low: at(0.1).unwrap_or(0.0), mid: at(0.5).unwrap_or(0.0), high: at(0.9).unwrap_or(0.0) }
    }

    /// As [`of_samples`](Self::of_samples) for wall-clock times of something that other work can only make longer: the
    /// lower quartile, between the least and the median.
    pub(crate) fn of_disturbed(samples: &mut [f64]) -> Self {
        samples.sort_by(f64::total_cmp);
        let at =
            |part: usize| samples.get(samples.len().saturating_sub(1) * part / 4).copied().unwrap_or(0.0);
        Self { low: at(0), mid: at(1), high: at(2) }
    }

    /// A mean of `count` samples with a standard deviation, at about 95 % confidence.
    pub(crate) fn of_mean(mean: f64, deviation: f64, count: u64) -> Self {
        let margin = if count > 0 { 2.0 * deviation / (count as f64).sqrt() } else { 0.0 };
        Self { low: mean - margin, mid: mean, high: mean + margin }
    }

    /// Every end multiplied (by a factor that is not negative).
    #[must_use]
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, mid: self.mid * factor, high: self.high * factor }
    }

    /// Sum; the intervals are taken as independent.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let mid = self.mid + other.mid;
        Self {
            low: mid - (self.mid - self.low).hypot(other.mid - other.low),
            mid,
            high: mid + (self.high - self.mid).hypot(other.high - other.mid),
        }
    }

    /// Difference; the intervals are taken as independent.
    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self { low: -other.high, mid: -other.mid, high: -other.low })
    }

    /// Nothing below zero: a remedy that costs more saves nothing.
    #[must_use]
    pub(crate) fn at_least_zero(self) -> Self {
        Self { low: self.low.max(0.0), mid: self.mid.max(0.0), high: self.high.max(0.0) }
    }
}

/// Count, mean and deviation of a stream, without keeping it (Welford).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stream {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    squares: f64,
}

impl Stream {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let count = (self.count + other.count) as f64;
        let apart = other.mean - self.mean;
        self.squares += other.squares + apart * apart * self.count as f64 * other.count as f64 / count;
        self.mean += apart * other.count as f64 / count;
        self.count += other.count;
    }

    pub(crate) fn estimate(&self) -> Estimate {
        let deviation = if self.count > 1 { (self.squares / (self.count - 1) as f64).sqrt() } else { 0.0 };
        Estimate::of_mean(self.mean, deviation, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_streams_equal_one_stream() {
        let values = [3.0, 5.0, 8.0, 13.0, 21.0];
        let mut one = Stream::default();
        let (mut left, mut right) = (Stream::default(), Stream::default());
        for (i, value) in values.into_iter().enumerate() {
            one.add(value);
            if i < 2 { left.add(value) } else { right.add(value) }
        }
        left.merge(&right);
        assert!((one.mean - left.mean).abs() < 1e-9);
        assert!((one.squares - left.squares).abs() < 1e-9);
        assert_eq!(one.count, left.count);
    }

    #[test]
    fn intervals_grow_by_sums_and_differences() {
        let a = Estimate { low: 8.0, mid: 10.0, high: 12.0 };
        let difference = a.minus(Estimate { low: 3.0, mid: 4.0, high: 5.0 });
        assert!(difference.low < 4.0 && difference.high > 8.0 && difference.mid == 6.0);
        assert_eq!(Estimate::of_samples(&mut []), Estimate::default());
    }
}
