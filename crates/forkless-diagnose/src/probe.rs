//! Tries which tiers this kernel and our privileges allow.

use aya::Btf;
use serde::Serialize;

use crate::error::WatchError;
use crate::tier::Tier;
use crate::{load, perf};

/// One tier, and whether it works here.
#[derive(Debug, Clone, Serialize)]
pub struct TierProbe {
    /// The tier.
    pub tier: Tier,
    /// Why it does not work; `None` if it works.
    pub refused: Option<String>,
}

/// Tries each tier. Loads and unloads small BPF programs; needs the same privileges as a watch.
pub fn probe_tiers() -> Vec<TierProbe> {
    let types = load::kernel_types().map_err(|error| error.to_string());
    let attempt = |tier, try_it: fn(&Btf) -> Result<(), WatchError>| {
        let tried = types.as_ref().map_err(String::clone);
        let outcome = tried.and_then(|types| try_it(types).map_err(|error| error.to_string()));
        TierProbe { tier, refused: outcome.err() }
    };
    let tracepoints = attempt(Tier::BpfTracepoints, load::try_tracepoint);
    let mut fentry = attempt(Tier::BpfFentry, load::try_fentry);
    // fentry only times the programs of the tracepoint tier in another way.
    fentry.refused = fentry.refused.or_else(|| tracepoints.refused.clone());
    vec![
        fentry,
        tracepoints,
        TierProbe { tier: Tier::Perf, refused: perf::refused() },
        TierProbe { tier: Tier::Procfs, refused: procfs_refused() },
    ]
}

fn procfs_refused() -> Option<String> {
    let children = format!("/proc/self/task/{}/children", rustix::thread::gettid().as_raw_nonzero());
    std::fs::read(&children).err().map(|e| format!("{children}: {e} (needs /proc and CONFIG_PROC_CHILDREN)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `doctor` names the first that works.
    #[test]
    fn tiers_are_tried_and_listed_best_first() {
        let probes = probe_tiers();
        assert!(probes.is_sorted_by_key(|probe| probe.tier));
        assert_eq!(probes.len(), 4);
    }
}
