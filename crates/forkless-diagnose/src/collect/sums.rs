//! Sums for metrics. They are kept apart from the tables because tables forget, and a counter that
//! falls reads as a restart. The number of cgroups is bounded: the rest is summed up as `other`.

use std::collections::HashMap;

use super::Outcome;
use crate::creation::Creation;

/// What is counted of system calls and shells.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) signal_mask_unchanged: u64,
    pub(crate) localtime: u64,
    /// By [`Fate::name`](crate::shell::Fate::name).
    pub(crate) shells: HashMap<&'static str, u64>,
}

/// More cgroups than this share the label `other`.
const MAX_CGROUPS: usize = 200;
const OTHER: &str = "other";

/// Creations of one cgroup, by the number of their outcome in [`KINDS`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CgroupSums {
    pub(crate) creations: [u64; KINDS.len()],
    /// Of those whose time was measured.
    pub(crate) caller_ns: [Option<u64>; KINDS.len()],
}

/// Sums by cgroup.
#[derive(Debug, Default)]
pub(crate) struct ByCgroup(HashMap<String, CgroupSums>);

impl ByCgroup {
    pub(crate) fn add(&mut self, cgroup: Option<&str>, outcome: Outcome, creation: &Creation) {
        let sums = self.of(cgroup.unwrap_or(OTHER));
        let at = index(outcome);
        sums.creations[at] += 1;
        if let Some(ns) = creation.caller_waited_ns.or(creation.copy_ns) {
            *sums.caller_ns[at].get_or_insert(0) += ns;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &CgroupSums)> {
        self.0.iter()
    }

    fn of(&mut self, cgroup: &str) -> &mut CgroupSums {
        let name = if self.0.contains_key(cgroup) || self.0.len() < MAX_CGROUPS { cgroup } else { OTHER };
        self.0.entry(name.to_owned()).or_default()
    }
}

/// The outcomes as metrics call them.
pub(crate) const KINDS: [&str; 4] = ["full_fork_then_exec", "full_fork_alone", "shared_memory", "speculated"];

fn index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::ForkThenExec => 0,
        Outcome::ForkAlone => 1,
        Outcome::Shared => 2,
        Outcome::Speculated => 3,
    }
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
