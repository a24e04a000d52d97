//! The totals of a watch as metrics, in the text format that monitoring systems scrape. Labels are
//! kinds and cgroups, never pids: their number is bounded.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::collect::{Collected, KINDS};
use crate::finding::Finding;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CreationLabels {
    kind: &'static str,
    cgroup: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

/// All metrics in the OpenMetrics text format. What was not measured is absent.
pub(crate) fn encode(collected: &Collected, findings: &[Finding], system_calls: bool) -> String {
    let mut registry = Registry::with_prefix("forkless");
    let creations = Family::<CreationLabels, Counter>::default();
    let seconds = Family::<CreationLabels, Counter<f64, std::sync::atomic::AtomicU64>>::default();
    for (cgroup, sums) in collected.by_cgroup.iter() {
        for (at, kind) in KINDS.iter().enumerate().filter(|(at, _)| sums.creations[*at] > 0) {
            let labels = CreationLabels { kind, cgroup: cgroup.clone() };
            creations.get_or_create(&labels).inc_by(sums.creations[at]);
            if let Some(ns) = sums.caller_ns[at] {
                seconds.get_or_create(&labels).inc_by(ns as f64 / 1e9);
            }
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

    // A 0 would say that none was made.
    if system_calls {
        let calls = Family::<KindLabel, Counter>::default();
        let sums = &collected.sums;
        for (kind, count) in
            [("signal_mask_unchanged", sums.signal_mask_unchanged), ("localtime", sums.localtime)]
        {
            calls.get_or_create(&KindLabel { kind: kind.to_owned() }).inc_by(count);
        }
        registry.register("needless_system_calls", "System calls that need not be made", calls);
    }

    let refused = collected.refused.count();
    if system_calls || refused > 0 {
        let counter = Counter::<u64>::default();
        counter.inc_by(refused);
        registry.register("refused_creations", "Processes and threads that the kernel refused", counter);
    }

    let lost = Counter::<u64>::default();
    lost.inc_by(collected.totals.lost());
    registry.register("events_lost", "Events missing from the other metrics", lost);

    let found = Family::<KindLabel, Gauge>::default();
    for finding in findings {
        found.get_or_create(&KindLabel { kind: finding.kind.name().to_owned() }).inc();
    }
    registry.register("findings", "Findings at present, by kind", found);

    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::creation::Creation;
    use crate::event::Event;

    /// A rule on a metric of another name would never fire. tests/fleet.sh runs the rules.
    #[test]
    fn the_fleets_files_name_metrics_that_are_served() {
        let fleet = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet");
        for file in ["forkless.rules.yml", "grafana-dashboard.json"] {
            let text = fs::read_to_string(fleet.join(file)).unwrap();
            let part_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            let words = text.split(|c| !part_of_a_name(c)).filter(|word| word.starts_with("forkless_"));
            let names: Vec<&str> = words.collect();
            assert!(names.len() >= 5, "{file}: {names:?}");
            for name in names {
                let family = name.trim_start_matches("forkless_").trim_end_matches("_total");
                let registered = include_str!("metrics.rs").split("#[cfg(test)]").next().unwrap();
                assert!(registered.contains(&format!("\"{family}\"")), "{file}: {name}");
            }
        }
    }

    /// A 0 read as "none was made".
    #[test]
    fn a_sum_that_was_not_measured_is_absent() {
        let mut collected = Collected::new();
        collected.event(Event::Created(Box::new(Creation::unseen())));
        let page = encode(&collected, &[], false);
        assert!(page.contains("forkless_process_creations_total{"), "{page}");
        assert!(!page.contains("forkless_creation_caller_seconds_total{"), "{page}");
        assert!(!page.contains("needless_system_calls"), "{page}");
        let timed = Creation { copy_ns: Some(7), ..Creation::unseen() };
        collected.event(Event::Created(Box::new(timed)));
        let page = encode(&collected, &[], true);
        assert!(page.contains("forkless_creation_caller_seconds_total{"), "{page}");
        assert!(page.contains("forkless_needless_system_calls_total{"), "{page}");
    }
}
