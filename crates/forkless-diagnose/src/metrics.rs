//! The totals of a watch as metrics, for engines that watch fleets. Labels are kinds and cgroups, never pids, and the
//! number of cgroups is bounded: the rest is summed up as `other`.

use std::collections::HashMap;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::collect::{Collected, Outcome};
use crate::creation::Creation;
use crate::finding::Finding;

/// More cgroups than this share the label `other`.
const MAX_CGROUPS: usize = 200;
const OTHER: &str = "other";

/// Sums of one cgroup. They only grow: a counter that fell would read as a restart.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// By outcome: fork then exec, fork alone, shared, speculated.
    creations: [u64; 4],
    caller_ns: [u64; 4],
}

/// Sums by cgroup.
#[derive(Debug, Default)]
pub(crate) struct ByCgroup(HashMap<String, Sums>);

impl ByCgroup {
    pub(crate) fn add(&mut self, cgroup: Option<&str>, outcome: Outcome, creation: &Creation) {
        let sums = self.of(cgroup.unwrap_or(OTHER));
        let at = index(outcome);
        sums.creations[at] += 1;
        sums.caller_ns[at] += creation.caller_waited_ns.or(creation.copy_ns).unwrap_or(0);
    }

    fn of(&mut self, cgroup: &str) -> &mut Sums {
        let name = if self.0.contains_key(cgroup) || self.0.len() < MAX_CGROUPS { cgroup } else { OTHER };
        self.0.entry(name.to_owned()).or_default()
    }
}

fn index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::ForkThenExec => 0,
        Outcome::ForkAlone => 1,
        Outcome::Shared => 2,
        Outcome::Speculated => 3,
    }
}

const KINDS: [&str; 4] = ["full_fork_then_exec", "full_fork_alone", "shared_memory", "speculated"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CreationLabels {
    kind: &'static str,
    cgroup: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

/// All metrics in the OpenMetrics text format.
pub(crate) fn encode(collected: &Collected, by_cgroup: &ByCgroup, findings: &[Finding]) -> String {
    let mut registry = Registry::with_prefix("forkless");
    let creations = Family::<CreationLabels, Counter>::default();
    let seconds = Family::<CreationLabels, Counter<f64, std::sync::atomic::AtomicU64>>::default();
    for (cgroup, sums) in &by_cgroup.0 {
        for (at, kind) in KINDS.iter().enumerate().filter(|(at, _)| sums.creations[*at] > 0) {
            let labels = CreationLabels { kind, cgroup: cgroup.clone() };
            creations.get_or_create(&labels).inc_by(sums.creations[at]);
            seconds.get_or_create(&labels).inc_by(sums.caller_ns[at] as f64 / 1e9);
        }
    }
    registry.register("process_creations", "Processes created whose children have ended", creations);
    registry.register(
        "creation_caller_seconds",
        "Time in the creating calls, as far as it was measured",
        seconds,
    );

    let shells = Family::<KindLabel, Counter>::default();
    for (fate, count) in &collected.sums.shells {
        shells.get_or_create(&KindLabel { kind: (*fate).to_owned() }).inc_by(*count);
    }
    registry.register("shells", "Shells started for one line, by whether the line needs one", shells);

    let calls = Family::<KindLabel, Counter>::default();
    let sums = &collected.sums;
    for (kind, count) in
        [("signal_mask_unchanged", sums.signal_mask_unchanged), ("localtime", sums.localtime)]
    {
        calls.get_or_create(&KindLabel { kind: kind.to_owned() }).inc_by(count);
    }
    registry.register("needless_system_calls", "System calls that need not be made", calls);

    let lost = Counter::<u64>::default();
    lost.inc_by(collected.totals.lost());
    registry.register("events_lost", "Events missing from the other metrics", lost);

    let found = Family::<KindLabel, Gauge>::default();
    for finding in findings {
        found.get_or_create(&KindLabel { kind: finding.kind.name() }).inc();
    }
    registry.register("findings", "Findings at present, by kind", found);

    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_beyond_the_bound_are_summed_up() {
        let mut sums = ByCgroup::default();
        for i in 0..10_000 {
            sums.of(&format!("/c{i}")).creations[0] += 1;
        }
        assert_eq!(sums.0.len(), MAX_CGROUPS + 1);
        assert_eq!(sums.0[OTHER].creations[0], 10_000 - MAX_CGROUPS as u64);
    }
}
