//! Disturbances during a measurement: time stolen by a hypervisor, processor time used by other
//! processes, and the drift of a figure from the beginning to the end. A noisy run says so.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::clock::CpuTime;
use crate::stats::bootstrap::Samples;
use crate::stats::{Summary, median};

/// The disturbances of a measurement. A field the system does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Noise {
    /// Percentage of all processor time that a hypervisor gave to others.
    pub steal_percent: Option<f64>,
    /// Percentage of all processor time used by processes that are not part of the measurement.
    pub others_percent: Option<f64>,
    /// Percentage by which the most stable method's median differed between the first and the last
    /// half.
    pub drift_percent: Option<f64>,
    /// Relative interquartile range of the most stable method, in percent: the grain of this run.
    pub spread_percent: Option<f64>,
}

impl Noise {
    /// The larger of each figure of two.
    #[must_use]
    pub(crate) fn worst(&self, other: &Noise) -> Noise {
        let larger = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        Noise {
            steal_percent: larger(self.steal_percent, other.steal_percent),
            others_percent: larger(self.others_percent, other.others_percent),
            drift_percent: larger(self.drift_percent, other.drift_percent),
            spread_percent: larger(self.spread_percent, other.spread_percent),
        }
    }

    /// Sentences about what is beyond the usual; none when the machine was quiet.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |value: Option<f64>, limit: f64, text: &str| {
            if let Some(value) = value.filter(|&value| value > limit) {
                warnings.push(format!("noisy: {}", text.replace("{}", &format!("{value:.1} %"))));
            }
        };
        warn(self.steal_percent, 1.0, "{} of the processor time was stolen by the hypervisor");
        warn(self.others_percent, 10.0, "other processes used {} of the processor time");
        warn(
            self.drift_percent,
            10.0,
            "the most stable method drifted by {} from the first half to the second",
        );
        warn(
            self.spread_percent,
            40.0,
            "half of the samples of the most stable method spread over {} of its median",
        );
        warnings
    }
}

/// A snapshot to measure noise from.
#[derive(Debug, Clone, Copy)]
pub struct NoiseSnapshot {
    system: Option<SystemTime>,
    own: CpuTime,
}

impl NoiseSnapshot {
    /// Takes the snapshot.
    #[must_use]
    pub fn start() -> NoiseSnapshot {
        NoiseSnapshot { system: SystemTime::read(), own: CpuTime::of_self_and_children() }
    }

    /// The disturbances of the machine since the snapshot. `series` are the samples of one metric,
    /// one set a method.
    #[must_use]
    pub fn finish<'a>(self, series: impl IntoIterator<Item = &'a Samples>) -> Noise {
        let own = CpuTime::of_self_and_children().since(self.own).total() / 1e6;
        let mut noise = Noise::default();
        if let (Some(before), Some(after)) = (self.system, SystemTime::read()) {
            let total = after.total - before.total;
            if total > 0.0 {
                noise.steal_percent = Some(100.0 * (after.steal - before.steal) / total);
                noise.others_percent = Some((100.0 * (after.busy - before.busy - own) / total).max(0.0));
            }
        }
        let stable = series
            .into_iter()
            .filter(|samples| samples.values.len() >= 20)
            .map(|samples| (spread(samples), samples))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((spread, samples)) = stable {
            noise.spread_percent = Some(100.0 * spread);
            let (first, last) = samples.values.split_at(samples.values.len() / 2);
            noise.drift_percent = Some(100.0 * (median(last) / median(first) - 1.0).abs());
        }
        noise
    }
}

fn spread(samples: &Samples) -> f64 {
    let summary = Summary::of(&samples.values);
    if summary.median > 0.0 { (summary.p75 - summary.p25) / summary.median } else { f64::INFINITY }
}

/// Seconds of all processors together, from the first line of `/proc/stat`.
#[derive(Debug, Clone, Copy)]
struct SystemTime {
    busy: f64,
    steal: f64,
    total: f64,
}

impl SystemTime {
    fn read() -> Option<SystemTime> {
        SystemTime::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<SystemTime> {
        // proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice, in ticks
        // of 1/100 s; guest time is part of user time.
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let seconds: Vec<f64> =
            line.split_whitespace().filter_map(|word| Some(word.parse::<f64>().ok()? / 100.0)).collect();
        let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = seconds.as_slice() else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(SystemTime { busy, steal, total: busy + idle + iowait + steal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_line_is_split_into_busy_steal_and_total() {
        let time = SystemTime::parse("cpu  100 0 200 1000 100 0 50 50 7 0\ncpu0 1 2 3\n").unwrap();
        assert!((time.busy - 3.5).abs() < 1e-9);
        assert!((time.steal - 0.5).abs() < 1e-9);
        assert!((time.total - 15.0).abs() < 1e-9);
        assert!(SystemTime::parse("intr 1").is_none());
    }

    #[test]
    fn a_quiet_machine_is_not_accused_and_a_drifting_one_is() {
        assert!(Noise::default().warnings().is_empty());
        let steady = Samples::one_a_round(vec![10.0; 40]);
        let drifting = Samples::one_a_round((0..40).map(|i| if i < 20 { 10.0 } else { 13.0 }).collect());
        let drift = |samples: &Samples| NoiseSnapshot::start().finish([samples]).drift_percent.unwrap();
        assert!(drift(&steady) < 1e-9);
        assert!((drift(&drifting) - 30.0).abs() < 1e-9);
        let noise = Noise { drift_percent: Some(30.0), ..Noise::default() };
        assert_eq!(noise.warnings().len(), 1);
    }
}
