//! Straight lines through medians, with intervals by resampling.

use serde::{Deserialize, Serialize};

use super::bootstrap::{Replicates, Resampler, Samples};
use super::{mean, median};

/// A straight line fitted by least squares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Value at zero.
    pub intercept: f64,
    /// Growth per unit.
    pub slope: f64,
    /// Share of the variance the line explains, 0 to 1.
    pub r2: f64,
}

/// Through points; `None` for fewer than two different abscissae.
fn fit_line(points: &[(f64, f64)]) -> Option<Line> {
    let x_mean = mean(&points.iter().map(|p| p.0).collect::<Vec<_>>());
    let y_mean = mean(&points.iter().map(|p| p.1).collect::<Vec<_>>());
    let sxx: f64 = points.iter().map(|p| (p.0 - x_mean).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - x_mean) * (p.1 - y_mean)).sum();
    let syy: f64 = points.iter().map(|p| (p.1 - y_mean).powi(2)).sum();
    if sxx <= 0.0 {
        return None;
    }
    let slope = sxy / sxx;
    // A flat line through equal values explains all there is to explain.
    let r2 = if syy > 0.0 { sxy * sxy / (sxx * syy) } else { 1.0 };
    Some(Line { intercept: y_mean - slope * x_mean, slope, r2 })
}

/// A line through the medians of several series, with 95 % intervals; `None` where there are too
/// few rounds for one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    /// The line through the medians.
    pub line: Line,
    /// Of its value at zero.
    pub intercept: Option<[f64; 2]>,
    /// Of its growth.
    pub slope: Option<[f64; 2]>,
    /// Of the share of variance that it explains.
    pub r2: Option<[f64; 2]>,
}

/// Fits a line through the medians of series at several abscissae, and again through those of
/// resampled rounds.
///
/// Not the median of lines through single rounds: one disturbed turn makes a round's points no line
/// at all, which says much about the machine and nothing about the series.
#[must_use]
pub fn fit_medians(series: &[(f64, Samples)], resamples: usize, seed: u64) -> Option<Fitted> {
    let points: Vec<(f64, f64)> = series.iter().map(|(x, samples)| (*x, median(&samples.values))).collect();
    let line = fit_line(&points)?;
    let replicates: Vec<Replicates> = series
        .iter()
        .map(|(_, samples)| Resampler::new([samples], resamples, seed).medians(samples))
        .collect();
    let draws = replicates.iter().map(|one| one.values.len()).min()?;
    let blocks = replicates.iter().map(|one| one.blocks).min()?;
    let lines: Vec<Line> = (0..draws)
        .filter_map(|draw| {
            let points: Vec<(f64, f64)> =
                points.iter().zip(&replicates).map(|(&(x, _), one)| (x, one.values[draw])).collect();
            fit_line(&points)
        })
        .collect();
    let interval = |figure: fn(&Line) -> f64| {
        Replicates { values: lines.iter().map(figure).collect(), blocks }.interval(0.95)
    };
    Some(Fitted {
        line,
        intercept: interval(|line| line.intercept),
        slope: interval(|line| line.slope),
        r2: interval(|line| line.r2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_recovered_and_flat_data_is_flat() {
        let line = fit_line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12);
        assert!((line.intercept - 1.0).abs() < 1e-12);
        assert!((line.r2 - 1.0).abs() < 1e-12);
        assert!(fit_line(&[(1.0, 1.0), (1.0, 2.0)]).is_none());
    }

    #[test]
    fn a_disturbed_turn_in_each_round_does_not_bend_the_line_through_the_medians() {
        // Six sizes, twelve rounds; in each round another size takes three times as long.
        let series: Vec<(f64, Samples)> = (1..=6_u32)
            .map(|size| {
                let time = |round: u32| {
                    let jitter = 1.0 + 0.001 * f64::from(round % 5);
                    let disturbed = if round % 6 == size - 1 { 3.0 } else { 1.0 };
                    (1.0 + 2.0 * f64::from(size)) * jitter * disturbed
                };
                (f64::from(size), Samples::one_a_round((0..12).map(time).collect()))
            })
            .collect();
        let fitted = fit_medians(&series, 500, 1).unwrap();
        assert!((fitted.line.slope - 2.0).abs() < 0.02 && fitted.line.r2 > 0.999, "{fitted:?}");
        let [low, high] = fitted.slope.unwrap();
        assert!(low <= fitted.line.slope && fitted.line.slope <= high, "{fitted:?}");
        assert!(fit_medians(&series[..1], 500, 1).is_none());
    }
}
