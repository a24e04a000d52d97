//! Intervals by resampling rounds.
//!
//! Samples taken in one round share the state of the machine, and neighbouring rounds share much of
//! it; treating every sample as independent gives intervals that are too narrow. Therefore whole
//! *rounds* are drawn with replacement, in blocks of neighbouring rounds (a circular block
//! bootstrap, Politis and Romano 1992). The length of a block follows the dependence of the rounds.
//! Every method of the run gets the same draw: a disturbance that slowed one method in a round
//! slowed the others too, and cancels in their ratio.
//!
//! Intervals are percentile intervals. For a median the bias and acceleration of BCa add only
//! noise: its jackknife is inconsistent for quantiles (Efron and Tibshirani 1993, section 11.6).
//! The tests below measure how often the percentile interval covers the true value.

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

/// Samples of one method, in the order taken, grouped by round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// The values, round after round.
    pub values: Vec<f64>,
    /// How many values each round gave; sums to the number of values.
    pub rounds: Vec<u32>,
}

impl Samples {
    /// Samples with one value a round.
    #[must_use]
    pub fn one_a_round(values: Vec<f64>) -> Samples {
        let rounds = vec![1; values.len()];
        Samples { values, rounds }
    }

    /// Appends a round.
    pub(crate) fn push_round(&mut self, values: impl IntoIterator<Item = f64>) {
        let before = self.values.len();
        self.values.extend(values);
        self.rounds.push(u32::try_from(self.values.len() - before).unwrap_or(u32::MAX));
    }
}

/// One series against another *within* rounds: the ratio of their medians in each round, one value
/// a round.
///
/// The median of these values says how the two compare with what both suffered cancelled before it
/// can widen anything. In interleaved runs of a spawn against itself on a busy virtual machine it
/// scattered by a quarter of what the ratio of the two overall medians did.
#[must_use]
pub fn within_rounds(numerator: &Samples, denominator: &Samples) -> Samples {
    let pairs = round_medians(numerator).into_iter().zip(round_medians(denominator));
    Samples::one_a_round(pairs.filter(|&(_, d)| d > 0.0).map(|(n, d)| n / d).collect())
}

/// The draws of rounds shared by all series of one run.
#[derive(Debug, Clone)]
pub struct Resampler {
    rounds: usize,
    block: usize,
    /// How often each round was drawn, one row a draw.
    weights: Vec<u16>,
}

impl Resampler {
    /// Draws `resamples` times as many rounds as the series have, in blocks long enough for the
    /// most dependent of them.
    #[must_use]
    pub fn new<'a>(series: impl IntoIterator<Item = &'a Samples>, resamples: usize, seed: u64) -> Resampler {
        let medians: Vec<Vec<f64>> = series.into_iter().map(round_medians).collect();
        let rounds = medians.iter().map(Vec::len).max().unwrap_or(0);
        let dependence = medians.iter().map(|medians| autocorrelation(medians)).fold(0.0, f64::max);
        Resampler::with_blocks(rounds, block_length(rounds, dependence), resamples, seed)
    }

    /// Draws rounds one by one: for units that are independent of each other, such as restarts.
    #[must_use]
    pub(crate) fn independent(series: &Samples, resamples: usize, seed: u64) -> Resampler {
        Resampler::with_blocks(series.rounds.len(), 1, resamples, seed)
    }

    fn with_blocks(rounds: usize, block: usize, resamples: usize, seed: u64) -> Resampler {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut weights = vec![0_u16; rounds * resamples];
        for row in weights.chunks_exact_mut(rounds.max(1)) {
            let mut drawn = 0;
            while drawn < rounds {
                let start = rng.random_range(0..rounds);
                let length = block.min(rounds - drawn);
                for offset in 0..length {
                    row[(start + offset) % rounds] += 1;
                }
                drawn += length;
            }
        }
        Resampler { rounds, block, weights }
    }

    /// The median of each draw. A series of another number of rounds than the draws gives nothing.
    #[must_use]
    pub fn medians(&self, samples: &Samples) -> Replicates {
        if samples.rounds.len() != self.rounds || samples.values.is_empty() {
            return Replicates::default();
        }
        let rounds = samples.rounds.iter().enumerate();
        let labels = rounds.flat_map(|(round, &count)| std::iter::repeat_n(round, count as usize));
        let mut sorted: Vec<(f64, usize)> = samples.values.iter().copied().zip(labels).collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let values = self
            .weights
            .chunks_exact(self.rounds)
            .filter_map(|weights| weighted_median(&sorted, weights, &samples.rounds))
            .collect();
        Replicates { values, blocks: self.rounds.div_ceil(self.block) }
    }
}

/// A figure computed from each draw.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Replicates {
    /// The figure for each draw.
    pub values: Vec<f64>,
    /// Independent units behind each draw.
    pub blocks: usize,
}

impl Replicates {
    /// The interval that holds the figure with `confidence` (0 to 1); `None` for fewer than two
    /// replicates or blocks.
    ///
    /// Percentiles of replicates are too narrow for few units, by the square root of (n - 1) / n
    /// and by taking the normal distribution for Student's. The percentiles are moved outward by
    /// both (the expanded percentile interval: Hesterberg, The American Statistician 69(4), 2015).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of blocks")]
    pub fn interval(&self, confidence: f64) -> Option<[f64; 2]> {
        let n = self.blocks as f64;
        if self.values.len() < 2 || self.blocks < 2 {
            return None;
        }
        let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
        let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(1.0 - tail);
        let tail = Normal::standard().cdf(-student * (n / (n - 1.0)).sqrt());
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        Some([super::quantile_sorted(&sorted, tail), super::quantile_sorted(&sorted, 1.0 - tail)])
    }

    /// This figure divided by another, draw by draw; both from the same [`Resampler`].
    #[must_use]
    pub fn ratio(&self, denominator: &Replicates) -> Replicates {
        let pairs = self.values.iter().zip(&denominator.values);
        let values = pairs.filter(|&(_, &d)| d > 0.0).map(|(n, d)| n / d).collect();
        Replicates { values, blocks: self.blocks.min(denominator.blocks) }
    }
}

/// The median of each round.
#[must_use]
pub fn round_medians(samples: &Samples) -> Vec<f64> {
    let mut rest = samples.values.as_slice();
    let mut medians = Vec::with_capacity(samples.rounds.len());
    for &count in &samples.rounds {
        let (round, after) = rest.split_at((count as usize).min(rest.len()));
        medians.push(super::median(round));
        rest = after;
    }
    medians
}

/// How much a round tells of the next: the correlation of ranks, which a few outliers do not hide
/// as they would hide that of the values.
#[expect(clippy::cast_precision_loss, reason = "ranks are far below 2^52")]
fn autocorrelation(values: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    for (rank, &index) in order.iter().enumerate() {
        ranks[index] = rank as f64;
    }
    let mean = super::mean(&ranks);
    let variance: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    let products: f64 = ranks.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if variance > 0.0 { (products / variance).clamp(0.0, 0.95) } else { 0.0 }
}

/// The block length that is best for the variance of a mean under first-order dependence (Carlstein
/// 1986), and never so long that fewer than eight blocks are drawn. At least the square root of the
/// number of rounds. A slow change of the machine hides behind the noise of single rounds, so their
/// correlation shows too little of it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a length between 1 and the number of rounds"
)]
fn block_length(rounds: usize, dependence: f64) -> usize {
    let rounds = rounds as f64;
    let carlstein = (2.0 * dependence / (1.0 - dependence * dependence)).powf(2.0 / 3.0) * rounds.cbrt();
    (carlstein.max(rounds.sqrt()).min(rounds / 8.0).round() as usize).max(1)
}

/// The median where the sample of round `r` counts `weights[r]` times; `None` where every weight is
/// zero.
fn weighted_median(sorted: &[(f64, usize)], weights: &[u16], counts: &[u32]) -> Option<f64> {
    let total: u64 = weights.iter().zip(counts).map(|(&w, &c)| u64::from(w) * u64::from(c)).sum();
    let mut seen = 0;
    let mut iter = sorted.iter();
    for &(value, round) in iter.by_ref() {
        seen += u64::from(weights[round]);
        if 2 * seen > total {
            return Some(value);
        }
        if 2 * seen == total && total > 0 {
            // An even number of samples, split exactly here: the middle of this one and the next
            // that counts.
            let next = iter.find(|&&(_, round)| weights[round] > 0).map_or(value, |&(next, _)| next);
            return Some(value.midpoint(next));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log-normal timing with a heavy tail, on a machine whose speed wanders from round to round.
    struct Timer {
        rng: Xoshiro256PlusPlus,
        mood: f64,
    }

    impl Timer {
        fn new(seed: u64) -> Timer {
            Timer { rng: Xoshiro256PlusPlus::seed_from_u64(seed), mood: 0.0 }
        }

        fn normal(&mut self) -> f64 {
            // The sum of twelve uniform numbers is close enough to normal for timings.
            (0..12).map(|_| self.rng.random_range(0.0..1.0)).sum::<f64>() - 6.0
        }

        fn next_round(&mut self) {
            self.mood = 0.8 * self.mood + 0.02 * self.normal();
        }

        fn sample(&mut self, scale: f64) -> f64 {
            let noise = (self.mood + 0.08 * self.normal()).exp();
            let tail = if self.rng.random_range(0..50) == 0 { 3.0 } else { 1.0 };
            60.0 * scale * noise * tail
        }
    }

    /// One interleaved run of two methods, the second slower by `slowdown`.
    fn run(seed: u64, rounds: usize, each: usize, slowdown: f64) -> (Samples, Samples) {
        let mut timer = Timer::new(seed);
        let (mut a, mut b) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            timer.next_round();
            let first: Vec<f64> = (0..each).map(|_| timer.sample(1.0)).collect();
            let second: Vec<f64> = (0..each).map(|_| timer.sample(slowdown)).collect();
            a.push_round(first);
            b.push_round(second);
        }
        (a, b)
    }

    fn excludes_one(run: &(Samples, Samples), seed: u64, confidence: f64) -> bool {
        let resampler = Resampler::new([&run.0, &run.1], 1000, seed);
        let ratio = resampler.medians(&run.1).ratio(&resampler.medians(&run.0));
        let [low, high] = ratio.interval(confidence).unwrap();
        low > 1.0 || high < 1.0
    }

    fn excludes_one_within_rounds(run: &(Samples, Samples), seed: u64, confidence: f64) -> bool {
        let ratios = within_rounds(&run.1, &run.0);
        let replicates = Resampler::new([&ratios], 1000, seed).medians(&ratios);
        let [low, high] = replicates.interval(confidence).unwrap();
        low > 1.0 || high < 1.0
    }

    #[test]
    fn a_method_against_itself_is_found_different_in_at_most_ten_of_two_hundred_runs() {
        for method in [excludes_one, excludes_one_within_rounds] {
            let found = (0..200).filter(|&seed| method(&run(seed, 100, 5, 1.0), seed, 0.99)).count();
            assert!(found <= 10, "{found} of 200");
        }
    }

    #[test]
    fn a_slowdown_of_three_percent_is_found_in_ninety_percent_of_full_runs() {
        for method in [excludes_one, excludes_one_within_rounds] {
            let found = (0..100).filter(|&seed| method(&run(seed, 200, 5, 1.03), seed, 0.99)).count();
            assert!(found >= 90, "{found} of 100");
        }
    }

    #[test]
    fn the_interval_of_a_median_covers_the_truth_about_as_often_as_it_says() {
        // exp is monotonic and the tail is rare: the true median of sample(1.0) lies a little above
        // 60.
        let truth = {
            let mut timer = Timer::new(99);
            let samples: Vec<f64> = (0..200_000)
                .map(|_| {
                    timer.next_round();
                    timer.sample(1.0)
                })
                .collect();
            super::super::median(&samples)
        };
        let covered = (1000..1200)
            .filter(|&seed| {
                let (a, _) = run(seed, 150, 4, 1.0);
                let resampler = Resampler::new([&a], 1000, seed);
                let [low, high] = resampler.medians(&a).interval(0.95).unwrap();
                low <= truth && truth <= high
            })
            .count();
        assert!((170..=199).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn the_weighted_median_is_the_median_of_the_repeated_samples() {
        let sorted = [(1.0, 0), (2.0, 1), (3.0, 2), (4.0, 3)];
        let counts = [1, 1, 1, 1];
        assert_eq!(weighted_median(&sorted, &[1, 1, 1, 1], &counts), Some(2.5));
        assert_eq!(weighted_median(&sorted, &[0, 3, 0, 1], &counts), Some(2.0));
        assert_eq!(weighted_median(&sorted, &[2, 0, 0, 2], &counts), Some(2.5));
        assert_eq!(weighted_median(&sorted, &[0, 0, 0, 0], &counts), None);
    }

    #[test]
    fn every_draw_draws_as_many_rounds_as_there_are_and_the_seed_decides_which() {
        for rounds in [1, 2, 7, 200] {
            let resampler = Resampler::with_blocks(rounds, 3, 50, 1);
            for row in resampler.weights.chunks_exact(rounds) {
                assert_eq!(row.iter().map(|&w| usize::from(w)).sum::<usize>(), rounds);
            }
        }
        let weights = |seed| Resampler::with_blocks(50, 3, 10, seed).weights;
        assert_eq!(weights(7), weights(7));
        assert_ne!(weights(7), weights(8));
    }

    #[test]
    fn dependent_rounds_are_drawn_in_longer_blocks() {
        assert_eq!(block_length(200, 0.0), 14);
        assert_eq!(block_length(200, 0.8), 16);
        assert_eq!(block_length(200, 0.95), 25);
        assert_eq!(block_length(3, 0.5), 1);
        let wave: Vec<f64> = (0..100).map(|i| (f64::from(i) / 10.0).sin()).collect();
        assert!(autocorrelation(&wave) > 0.9);
        assert!(autocorrelation(&[1.0, 2.0, 1.0, 2.0]) < 0.01);
    }

    #[test]
    fn a_constant_series_has_an_interval_of_no_width() {
        let samples = Samples::one_a_round(vec![5.0; 30]);
        let resampler = Resampler::new([&samples], 200, 3);
        assert_eq!(resampler.medians(&samples).interval(0.95), Some([5.0, 5.0]));
    }
}
