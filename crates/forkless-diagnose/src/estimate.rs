//! Figures with an interval: a figure without one is a guess.

use serde::Serialize;

/// So many samples make an estimate.
pub(crate) const REPETITIONS: usize = 7;

/// Whether the shortest samples of wall-clock times agree, so that they are undisturbed ones. On a
/// busy machine it takes many samples until a few have not waited for a processor.
pub(crate) fn agree(samples: &mut [f64]) -> bool {
    const FEW: usize = 3;
    const SPREAD: f64 = 1.5;
    samples.sort_by(f64::total_cmp);
    samples.len() >= REPETITIONS && samples[FEW - 1] <= samples[0] * SPREAD
}

/// A value in nanoseconds with the interval it is expected in.
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
    /// A value without an interval.
    pub(crate) const fn exact(value: f64) -> Self {
        Self { low: value, mid: value, high: value }
    }

    /// Median of samples with the values at one and nine tenths as the interval; zero without
    /// samples.
    pub(crate) fn of_samples(samples: &mut [f64]) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = samples.len().checked_sub(1)?;
            samples.get((last as f64 * share).round() as usize).copied()
        };
        Self { low: at(0.1).unwrap_or(0.0), mid: at(0.5).unwrap_or(0.0), high: at(0.9).unwrap_or(0.0) }
    }

    /// As [`of_samples`](Self::of_samples), for wall-clock times, which other work can only make
    /// longer. The figure is the lower quartile of the shortest samples, its interval the least
    /// value and their median.
    pub(crate) fn of_disturbed(samples: &mut [f64]) -> Self {
        samples.sort_by(f64::total_cmp);
        let samples = &samples[..samples.len().min(REPETITIONS)];
        let at =
            |part: usize| samples.get(samples.len().saturating_sub(1) * part / 4).copied().unwrap_or(0.0);
        Self { low: at(0), mid: at(1), high: at(2) }
    }

    /// Of samples that were taken at several times, which other work can only make longer. The
    /// figure is the lower quartile, and the interval from the least value to the upper quartile.
    /// It has a least width, for what other programs leave in the caches.
    pub(crate) fn of_calls(samples: &mut [f64]) -> Self {
        const LEAST: f64 = 0.05;
        samples.sort_by(f64::total_cmp);
        let at =
            |part: usize| samples.get(samples.len().saturating_sub(1) * part / 4).copied().unwrap_or(0.0);
        let (low, mid, high) = (at(0), at(1), at(3));
        Self { low: low.min(mid * (1.0 - LEAST)), mid, high: high.max(mid * (1.0 + LEAST)) }
    }

    /// Whether it has an interval to speak of. One observation has none, and that of a sum with it
    /// is no wider than the prices in it.
    #[must_use]
    pub fn has_interval(&self) -> bool {
        self.high - self.low > 0.01 * self.mid.abs()
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

    /// Sum of two whose errors have one cause.
    #[must_use]
    pub(crate) fn with(self, other: Self) -> Self {
        Self { low: self.low + other.low, mid: self.mid + other.mid, high: self.high + other.high }
    }

    /// One of two, and nobody can tell which.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            mid: f64::midpoint(self.mid, other.mid),
            high: self.high.max(other.high),
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

    /// Nothing above this.
    #[must_use]
    pub(crate) fn at_most(self, most: f64) -> Self {
        Self { low: self.low.min(most), mid: self.mid.min(most), high: self.high.min(most) }
    }
}

/// Count and mean of a stream, without keeping it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stream {
    pub(crate) count: u64,
    pub(crate) mean: f64,
}

impl Stream {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        self.mean += (value - self.mean) / self.count as f64;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let count = (self.count + other.count) as f64;
        self.mean += (other.mean - self.mean) * other.count as f64 / count;
        self.count += other.count;
    }
}

/// Wall-clock times. Their mean gives the total spent, their median the typical time of one.
/// Preemption makes the two differ: one fork preempted for 50 ms does not make forks slower.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    all: Stream,
    /// A sample of them, each equally likely (reservoir sampling).
    kept: Vec<f32>,
    random: u64,
}

/// Enough for a median within a fifth of the deviation; a group of creations has three such lists.
const KEPT: usize = 31;

impl Times {
    pub(crate) fn count(&self) -> u64 {
        self.all.count
    }

    pub(crate) fn mean(&self) -> f64 {
        self.all.mean
    }

    /// The least of a sample of them.
    pub(crate) fn least(&self) -> Option<f64> {
        self.kept.iter().copied().min_by(f32::total_cmp).map(f64::from)
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.all.add(value);
        if self.kept.len() < KEPT {
            self.kept.push(value as f32);
            return;
        }
        let at = self.random_below(self.all.count);
        if let Some(place) = usize::try_from(at).ok().and_then(|at| self.kept.get_mut(at)) {
            *place = value as f32;
        }
    }

    /// The choice of samples need not be unpredictable, only unrelated to their values (upper bits
    /// of an LCG).
    fn random_below(&mut self, end: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end.max(1)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let before = self.all.count;
        self.all.merge(&other.all);
        if self.kept.len() + other.kept.len() <= KEPT {
            self.kept.extend(&other.kept);
            return;
        }
        // Each side keeps a share of the places as large as its share of all values.
        let mut from = [std::mem::take(&mut self.kept), other.kept.clone()];
        while self.kept.len() < KEPT && from.iter().any(|side| !side.is_empty()) {
            let wanted = usize::from(self.random_below(self.all.count) >= before);
            let side = if from[wanted].is_empty() { 1 - wanted } else { wanted };
            let at = self.random_below(from[side].len() as u64) as usize;
            self.kept.push(from[side].swap_remove(at));
        }
    }

    /// The median, and where it lies at about 95 % confidence: the order statistics a root of their
    /// number away from it.
    pub(crate) fn median(&self) -> Estimate {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f32::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return Estimate::default() };
        let (middle, margin) = (last as f64 / 2.0, (sorted.len() as f64).sqrt());
        let at = |place: f64| sorted.get(place.round() as usize).copied().map_or(0.0, f64::from);
        Estimate {
            low: at((middle - margin).max(0.0)),
            mid: f64::midpoint(at(middle.floor()), at(middle.ceil())),
            high: at((middle + margin).min(last as f64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "61.09 ms (61.09 ms to 61.09 ms)" was printed of one observation.
    #[test]
    fn one_observation_has_no_interval() {
        let one = Estimate::of_samples(&mut [61.09e6]);
        assert!(!one.has_interval() && !one.plus(Estimate { low: 1e3, mid: 2e3, high: 9e3 }).has_interval());
        assert!(Estimate::of_samples(&mut [60e6, 61e6, 62e6]).has_interval());
        assert!(!Estimate::default().has_interval());
    }

    #[test]
    fn samples_agree_when_a_few_are_undisturbed() {
        let mut samples = vec![31.0, 27.0, 32.0, 16.0, 40.0, 0.3, 28.0, 33.0];
        assert!(!agree(&mut samples));
        samples.extend([0.25, 0.35]);
        assert!(agree(&mut samples));
        assert_eq!(Estimate::of_disturbed(&mut samples), Estimate { low: 0.25, mid: 0.3, high: 16.0 });
        assert!(!agree(&mut [0.25, 0.3, 0.35]), "too few");
    }

    /// A price was "254 ns (254 ns to 254 ns)", and then 117: seven samples in a row were disturbed
    /// alike.
    #[test]
    fn a_price_of_calls_is_that_of_its_quiet_rounds_and_has_an_interval() {
        let mut samples = [vec![254.0; 10], vec![105.0, 106.0, 104.0, 105.0, 107.0, 105.0]].concat();
        let price = Estimate::of_calls(&mut samples);
        assert!(price.mid < 107.0 && price.low < 104.0 && price.high >= 254.0, "{price:?}");
        let alike = Estimate::of_calls(&mut [100.0; 16]);
        assert_eq!(alike, Estimate { low: 95.0, mid: 100.0, high: 105.0 });
        assert!(alike.has_interval());
    }

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
        assert_eq!(one.count, left.count);
    }

    #[test]
    fn a_median_is_not_moved_by_one_that_was_preempted() {
        let mut times = Times::default();
        for value in [5.0, 5.1, 4.9, 5.0, 500.0] {
            times.add(value);
        }
        assert!((times.median().mid - 5.0).abs() < 1e-6, "{:?}", times.median());
        assert!(times.mean() > 100.0);
        assert_eq!(Times::default().median(), Estimate::default());
    }

    #[test]
    fn kept_times_stand_for_all_of_them_in_a_merge_too() {
        let (mut many, mut few) = (Times::default(), Times::default());
        (0..10_000).for_each(|i| many.add(f64::from(i % 100)));
        (0..100).for_each(|_| few.add(1e6));
        few.merge(&many);
        assert_eq!((few.count(), few.kept.len()), (10_100, KEPT));
        let median = few.median();
        assert!((20.0..80.0).contains(&median.mid), "{median:?}");
        assert!(median.low <= median.mid && median.mid <= median.high);
    }

    #[test]
    fn intervals_grow_by_sums_and_differences() {
        let a = Estimate { low: 8.0, mid: 10.0, high: 12.0 };
        let difference = a.minus(Estimate { low: 3.0, mid: 4.0, high: 5.0 });
        assert!(difference.low < 4.0 && difference.high > 8.0 && difference.mid == 6.0);
        assert_eq!(Estimate::of_samples(&mut []), Estimate::default());
    }
}
