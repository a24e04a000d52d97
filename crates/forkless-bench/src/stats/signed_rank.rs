//! Differences of pairs, by the signed-rank test and its interval (Wilcoxon 1945; Hodges and
//! Lehmann 1963).
//!
//! Two builds take turns in pairs of restarts, and a coin decides which of a pair is first. If the
//! builds are the same, then every difference could as well have had the other sign. That is all
//! the test needs: no distribution of the noise, no steady machine. So its rate of false alarms is
//! that of its name, in whatever company it is measured. A pair with a wild difference weighs no
//! more than its rank.

/// The centre of the differences, and the interval that holds it with `confidence` (0 to 1). `None`
/// for too few differences: [`fewest`] says how many are needed.
#[must_use]
pub fn centre(differences: &[f64], confidence: f64) -> Option<(f64, [f64; 2])> {
    let outside = most_left_out(differences.len(), confidence)?;
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (index, one) in differences.iter().enumerate() {
        means.extend(differences[index..].iter().map(|other| one.midpoint(*other)));
    }
    means.sort_unstable_by(f64::total_cmp);
    let interval = [means[outside], means[means.len() - 1 - outside]];
    Some((super::quantile_sorted(&means, 0.5), interval))
}

/// How many differences an interval of this confidence needs.
#[must_use]
pub fn fewest(confidence: f64) -> usize {
    (1..1000).find(|&count| most_left_out(count, confidence).is_some()).unwrap_or(1000)
}

/// How many of the ordered means may lie outside at either end. `None` where even the whole range
/// holds the centre less often.
fn most_left_out(count: usize, confidence: f64) -> Option<usize> {
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    let (mut sum, mut left_out) = (0.0, None);
    for (rank_sum, chance) in chances(count).into_iter().enumerate() {
        sum += chance;
        if sum > tail {
            break;
        }
        left_out = Some(rank_sum);
    }
    left_out
}

/// The chance of every sum of the ranks of positive differences, if each sign is a coin's.
fn chances(count: usize) -> Vec<f64> {
    let mut chances = vec![1.0];
    for rank in 1..=count {
        let mut with = vec![0.0; chances.len() + rank];
        for (sum, chance) in chances.into_iter().enumerate() {
            with[sum] += chance / 2.0;
            with[sum + rank] += chance / 2.0;
        }
        chances = with;
    }
    chances
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table of the signed-rank test, two-sided 5 %: the largest sum that rejects.
    #[test]
    fn the_interval_is_that_of_the_published_tables() {
        for (count, sum) in [(6, 0), (8, 3), (10, 8), (15, 25), (20, 52)] {
            assert_eq!(most_left_out(count, 0.95), Some(sum), "{count}");
        }
        assert_eq!(most_left_out(5, 0.95), None);
        assert_eq!((fewest(0.95), fewest(0.99)), (6, 8));
        // All signs alike are a chance of one in 2^11.
        assert_eq!(fewest(1.0 - 2.0_f64.powi(-10)), 11);
    }

    #[test]
    fn one_wild_difference_hardly_moves_the_centre() {
        let mut differences: Vec<f64> = (0..20).map(|i| 0.1 + 0.001 * f64::from(i - 10)).collect();
        let (centre_before, [low, high]) = centre(&differences, 0.99).unwrap();
        assert!(low < centre_before && centre_before < high && (centre_before - 0.0995).abs() < 1e-9);
        differences[3] = 50.0;
        let (centre_after, [low, high]) = centre(&differences, 0.99).unwrap();
        assert!((centre_after - centre_before).abs() < 0.002 && low > 0.09 && high < 0.12);
    }

    #[test]
    fn no_differences_have_no_centre() {
        assert_eq!(centre(&[], 0.95), None);
        assert_eq!(centre(&[1.0; 5], 0.95), None);
        assert_eq!(centre(&[1.0; 6], 0.95), Some((1.0, [1.0, 1.0])));
    }
}
