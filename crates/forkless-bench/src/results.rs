//! The results of a run, typed, and their JSON form. Every file names the schema
//! (`forkless.bench/1`), which `docs/` describes.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::machine::Machine;
pub use crate::noise::Noise;
pub use crate::params::{Param, Params};
use crate::stats::bootstrap::{Replicates, Resampler, Samples, within_rounds};
pub use crate::stats::{Histogram, Summary};

/// The name of the JSON schema, in every file.
pub const SCHEMA: &str = "forkless.bench/1";

/// Draws behind every interval.
pub const RESAMPLES: usize = 2000;

/// Everything one invocation measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of this library.
    pub version: String,
    /// When the run began, in seconds since 1970.
    pub created: u64,
    /// Where it was measured.
    pub machine: Machine,
    /// The suites, in the order run.
    pub suites: Vec<Suite>,
}

impl Results {
    /// Results that begin now, on this machine, without suites.
    #[must_use]
    pub fn begin() -> Results {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Results {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created,
            machine: Machine::observe(),
            suites: Vec::new(),
        }
    }

    /// Reads what [`to_json`](Results::to_json) wrote, here or in another build.
    ///
    /// # Errors
    /// Where the text is something else, or what no measurement writes.
    pub fn from_json(text: &[u8]) -> Result<Results, NoResults> {
        /// All that is read of another schema, which may lack or add anything else.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let other = |error: serde_json::Error| NoResults::Other(error.to_string());
        let Head { schema } = serde_json::from_slice(text).map_err(other)?;
        if schema != SCHEMA {
            return Err(NoResults::Schema(schema));
        }
        let results: Results = serde_json::from_slice(text).map_err(other)?;
        for suite in &results.suites {
            for row in &suite.rows {
                if let Some(fault) = row.contradiction() {
                    let row = format!("{} {} {}", suite.name, row.method, row.metric);
                    return Err(NoResults::Contradiction { row, fault });
                }
            }
        }
        Ok(results)
    }

    /// The results as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Serialising plain structures, strings and numbers into a string cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Why a text is no results: the end of a sentence that begins with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoResults {
    /// No JSON, or of another shape.
    Other(String),
    /// Results of another schema.
    Schema(String),
    /// A row that no measurement writes, and its fault.
    Contradiction {
        /// Suite, method and metric.
        row: String,
        /// What is wrong in it.
        fault: String,
    },
}

impl fmt::Display for NoResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoResults::Other(why) => write!(f, "is not a saved result: {why}"),
            NoResults::Schema(schema) => write!(f, "has the schema {schema:?}, not {SCHEMA:?}"),
            NoResults::Contradiction { row, fault } => {
                write!(f, "contradicts itself: of {row}, {fault}; measure again")
            }
        }
    }
}

/// One suite's rows and what is to be known about how they were taken.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Suite {
    /// `spawn`, `memory`, ...
    pub name: String,
    /// The seed of the interleaving and of the intervals.
    pub seed: u64,
    /// Rounds taken: in each, every method had one turn.
    pub rounds: usize,
    /// Wall time of the measurement in seconds.
    pub seconds: f64,
    /// Cost of one clock reading in nanoseconds; already subtracted from `wall`, `blocked` and
    /// `first`.
    pub clock_overhead_ns: f64,
    /// How quiet the machine was meanwhile.
    pub noise: Noise,
    /// Sentences a reader of the rows needs: what was skipped, scaled down, or looks disturbed.
    pub notes: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Lines fitted through rows of different sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<Fit>,
    /// Figures computed from several rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derived: Vec<Derived>,
    /// Figures with their evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

impl Suite {
    /// One suite of the rows of several runs of it under different parameters: rounds and seconds
    /// add up, the noise is the worst of them. A default suite for none.
    #[must_use]
    pub fn join(suites: Vec<Suite>) -> Suite {
        let mut suites = suites.into_iter();
        let Some(mut joined) = suites.next() else { return Suite::default() };
        for suite in suites {
            joined.rounds += suite.rounds;
            joined.seconds += suite.seconds;
            joined.noise = joined.noise.worst(&suite.noise);
            joined.rows.extend(suite.rows);
            joined.fits.extend(suite.fits);
            joined.derived.extend(suite.derived);
            joined.checks.extend(suite.checks);
            joined.take_notes(suite.notes);
        }
        joined
    }

    /// Adds notes that are not there yet.
    pub fn take_notes(&mut self, notes: Vec<String>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// A figure computed from the medians of several rows of one interleaved run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// What of what.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The figure.
    pub value: f64,
    /// Its 95 % interval.
    pub ci95: [f64; 2],
}

/// Time as a constant and a growth with memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// What was measured.
    pub method: String,
    /// On which pages.
    pub pages: String,
    /// Which time.
    pub metric: String,
    /// Microseconds with no memory.
    pub constant_us: f64,
    /// Its 95 % interval.
    pub constant_us_ci95: [f64; 2],
    /// Milliseconds for each GiB used.
    pub per_gib_ms: f64,
    /// Its 95 % interval.
    pub per_gib_ms_ci95: [f64; 2],
    /// Share of the differences between sizes that the line explains.
    pub r2: f64,
}

/// One method's figures for one metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub method: String,
    /// Under which parameters.
    pub params: Params,
    /// `wall`, `blocked`, `first`, `cpu_total`, `cpu_user`, `cpu_system`, `rate`, ...
    pub metric: String,
    /// `us`, `ns`, `ms`, `1/s`, ...
    pub unit: String,
    /// Whether the metric is an estimate by its nature, as tick-sampled user and system times are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimate: bool,
    /// What mostly bounds the figure, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Order statistics: `median`, `p05`, `p95` and the others.
    #[serde(flatten)]
    pub summary: Summary,
    /// 95 % interval of the median.
    pub ci95: [f64; 2],
    /// The median against another method's, if there is one to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Counts in logarithmic bins.
    pub histogram: Histogram,
    /// How many samples each round gave; the samples follow each other in this grouping.
    pub per_round: Vec<u32>,
    /// How many rounds each restart of the measuring process gave, where there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<u32>,
    /// The samples in the order taken.
    pub samples: Vec<f64>,
}

impl Row {
    /// The samples with their grouping.
    #[must_use]
    pub fn grouped(&self) -> Samples {
        Samples { values: self.samples.clone(), rounds: self.per_round.clone() }
    }

    /// What no measurement writes: a comparison would judge such a row wrongly, or pass it by. Of a
    /// row that a person has changed, the samples and the median differ.
    fn contradiction(&self) -> Option<String> {
        /// Samples are rounded to six digits after the median was taken.
        const ROUNDING: f64 = 1e-4;
        let sum = |counts: &[u32]| counts.iter().map(|&count| count as usize).sum::<usize>();
        let median = self.summary.median;
        let of_samples = crate::stats::median(&self.samples);
        if self.samples.is_empty() {
            Some("there is no sample".to_owned())
        } else if let Some(sample) = self.samples.iter().find(|sample| !sample.is_finite() || **sample < 0.0)
        {
            Some(format!("a sample is {sample:?}"))
        } else if sum(&self.per_round) != self.samples.len() {
            Some(format!("the rounds have {} samples, not {}", sum(&self.per_round), self.samples.len()))
        } else if !self.restarts.is_empty() && sum(&self.restarts) != self.per_round.len() {
            Some(format!("the restarts have {} rounds, not {}", sum(&self.restarts), self.per_round.len()))
        } else if (median - of_samples).abs() > ROUNDING * of_samples {
            Some(format!("the median is {median:?}, and that of the samples {of_samples:?}"))
        } else {
            None
        }
    }

    /// The parameter of this name, if it is a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.params.get(name) {
            Some(&Param::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// The samples, each restart as one round.
    pub(crate) fn by_restart(&self) -> Samples {
        let mut rounds = self.per_round.iter();
        let of_restart = |&restart: &u32| rounds.by_ref().take(restart as usize).sum();
        Samples { values: self.samples.clone(), rounds: self.restarts.iter().map(of_restart).collect() }
    }
}

/// Two methods of one interleaved run against each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The method in the denominator.
    pub to: String,
    /// The ratio of the two medians.
    pub value: f64,
    /// Its 95 % interval.
    pub ci95: [f64; 2],
    /// The median of the ratios within rounds: the sharper of the two on a machine that wanders.
    pub within_rounds: f64,
    /// Its 95 % interval.
    pub within_rounds_ci95: [f64; 2],
}

/// A metric: name, unit, and whether it is an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name in the results.
    pub name: &'static str,
    /// Unit in the results.
    pub unit: &'static str,
    /// See [`Row::estimate`].
    pub estimate: bool,
}

impl Metric {
    /// Time on the clock.
    pub const WALL: Metric = Metric { name: "wall", unit: "us", estimate: false };
    /// Starts or requests in a second.
    pub const RATE: Metric = Metric { name: "rate", unit: "1/s", estimate: false };
}

/// A series on its way to become a row.
#[derive(Debug, Clone)]
pub struct Series {
    /// See [`Row::method`].
    pub method: String,
    /// See [`Row::params`].
    pub params: Params,
    /// What the samples measure.
    pub metric: Metric,
    /// See [`Row::limit`].
    pub limit: Option<String>,
    /// The samples.
    pub samples: Samples,
}

/// Makes rows of series taken in one interleaved run. Each is compared with the series of the same
/// metric and parameters whose method is `baseline`, with draws common to all.
#[must_use]
pub fn rows(series: Vec<Series>, baseline: Option<&str>, seed: u64) -> Vec<Row> {
    let resampler = Resampler::new(series.iter().map(|one| &one.samples), RESAMPLES, seed);
    let replicates: Vec<Replicates> = series.iter().map(|one| resampler.medians(&one.samples)).collect();
    let base = |of: &Series| {
        let found = series.iter().position(|one| {
            Some(one.method.as_str()) == baseline && one.metric == of.metric && one.params == of.params
        })?;
        Some((found, crate::stats::median(&series[found].samples.values)))
    };
    let ratios: Vec<Option<Ratio>> = series
        .iter()
        .enumerate()
        .map(|(index, one)| {
            let (found, denominator) = base(one).filter(|&(found, _)| found != index)?;
            let ci95 = replicates[index].ratio(&replicates[found]).interval(0.95)?;
            let pairs = within_rounds(&one.samples, &series[found].samples);
            let within = Resampler::new([&pairs], RESAMPLES, seed).medians(&pairs);
            let ratio = Ratio {
                to: baseline.unwrap_or_default().to_owned(),
                value: crate::stats::median(&one.samples.values) / denominator,
                ci95,
                within_rounds: crate::stats::median(&pairs.values),
                within_rounds_ci95: within.interval(0.95)?,
            };
            Some(ratio).filter(|_| denominator > 0.0)
        })
        .collect();
    series
        .into_iter()
        .zip(replicates)
        .zip(ratios)
        .map(|((one, replicates), ratio)| {
            let summary = Summary::of(&one.samples.values);
            Row {
                method: one.method,
                params: one.params,
                metric: one.metric.name.to_owned(),
                unit: one.metric.unit.to_owned(),
                estimate: one.metric.estimate,
                limit: one.limit,
                summary,
                ci95: replicates.interval(0.95).unwrap_or([summary.median; 2]),
                ratio,
                histogram: Histogram::of(&one.samples.values, 24),
                per_round: one.samples.rounds,
                restarts: Vec::new(),
                samples: one.samples.values.into_iter().map(six_digits).collect(),
            }
        })
        .collect()
}

/// Six significant digits: more than any clock here gives, and half the bytes in a file.
#[expect(clippy::cast_possible_truncation, reason = "the exponent of a timing is between -12 and 12")]
fn six_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(5 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn series(method: &str, scale: f64) -> Series {
        let values = (0..60).map(|i| scale * (10.0 + f64::from(i % 7))).collect();
        Series {
            method: method.to_owned(),
            params: Params::from([("rss".to_owned(), Param::Number(0))]),
            metric: Metric::WALL,
            limit: None,
            samples: Samples::one_a_round(values),
        }
    }

    #[test]
    fn rows_carry_the_ratio_to_the_baseline_with_its_interval() {
        let rows = rows(vec![series("vfork_exec", 1.0), series("fork_exec", 3.0)], Some("vfork_exec"), 1);
        assert_eq!(rows[0].ratio, None);
        let ratio = rows[1].ratio.as_ref().unwrap();
        assert!((ratio.value - 3.0).abs() < 1e-9);
        assert!(ratio.ci95[0] <= 3.0 + 1e-9 && 3.0 <= ratio.ci95[1] + 1e-9);
        assert!(rows[1].ci95[0] <= rows[1].summary.median && rows[1].summary.median <= rows[1].ci95[1]);
    }

    #[test]
    fn a_row_that_no_measurement_gave_is_told_by_its_fault() {
        let mut results = Results::begin();
        results.suites.push(Suite {
            name: "spawn".into(),
            rows: rows(vec![series("forkless", 1.0)], None, 1),
            ..Suite::default()
        });
        let read = |change: &dyn Fn(&mut Row)| {
            let mut results = results.clone();
            change(&mut results.suites[0].rows[0]);
            Results::from_json(results.to_json().as_bytes())
        };
        assert_eq!(read(&|_| {}).unwrap(), results);
        let fails = |change: &dyn Fn(&mut Row), fault: &str| {
            let row = "spawn forkless wall".to_owned();
            assert_eq!(read(change).unwrap_err(), NoResults::Contradiction { row, fault: fault.to_owned() });
        };
        fails(&|row| row.samples.clear(), "there is no sample");
        fails(&|row| row.samples[3] = -1.0, "a sample is -1.0");
        fails(&|row| row.per_round[0] = 2, "the rounds have 61 samples, not 60");
        fails(&|row| row.restarts = vec![59], "the restarts have 59 rounds, not 60");
        fails(&|row| row.summary.median *= 3.0, "the median is 39.0, and that of the samples 13.0");
        fails(&|row| row.samples.fill(0.0), "the median is 13.0, and that of the samples 0.0");
        let error = Results::from_json(br#"{"schema": "forkless.bench/9"}"#).unwrap_err();
        assert_eq!(error, NoResults::Schema("forkless.bench/9".into()));
    }

    #[test]
    fn samples_keep_six_digits() {
        assert!((six_digits(63.123_456_789) - 63.1235).abs() < 1e-12);
        assert!((six_digits(123_456_789.0) - 123_457_000.0).abs() < 1e-3);
        assert!(six_digits(0.0).abs() < f64::EPSILON);
    }

    #[test]
    fn json_has_the_published_shape_and_reads_back() {
        let mut results = Results::begin();
        results.suites.push(Suite {
            name: "spawn".into(),
            seed: 1,
            rounds: 60,
            seconds: 0.1,
            clock_overhead_ns: 20.0,
            noise: Noise::default(),
            notes: vec![],
            rows: rows(vec![series("vfork_exec", 1.0)], None, 1),
            fits: vec![],
            derived: vec![],
            checks: vec![],
        });
        let json = results.to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["schema"], "forkless.bench/1");
        let row = &value["suites"][0]["rows"][0];
        assert_eq!(row["method"], "vfork_exec");
        assert_eq!(row["params"]["rss"], 0);
        for field in ["median", "p05", "p95"] {
            assert!(row[field].is_f64(), "{field}");
        }
        assert_eq!(row["ci95"].as_array().unwrap().len(), 2);
        assert_eq!(row["samples"].as_array().unwrap().len(), 60);
        let back: Results = serde_json::from_str(&json).unwrap();
        assert_eq!(back, results);
    }
}
