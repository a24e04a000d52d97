//! What creations have cost, as far as it was measured, and the amounts that are priced where it
//! was not.

use super::Outcome;
use crate::creation::Creation;
use crate::model::CostModel;

/// What some creations have cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    /// How many there were.
    pub(crate) creations: u64,
    /// Time in the caller, of the creations that were timed, nanoseconds.
    measured_ns: f64,
    /// How many of these times are of the copy alone.
    copies_timed: u64,
    /// The child's exec after a full fork, as far as it was timed.
    exec_ns: f64,
    /// Creations that share memory and were not timed.
    untimed_spawns: u64,
    /// Full forks that were not timed, and the 4 KiB pages of anonymous memory that they copied.
    untimed_forks: u64,
    untimed_pages: u64,
}

impl Spent {
    pub(crate) fn of(creation: &Creation) -> Self {
        let mut spent = Self { creations: 1, ..Self::default() };
        let is_shared = Outcome::of(creation) == Outcome::Shared;
        match creation.caller_waited_ns.or(creation.copy_ns) {
            Some(ns) => {
                spent.measured_ns = ns as f64;
                spent.copies_timed = u64::from(creation.caller_waited_ns.is_none());
            }
            None if is_shared => spent.untimed_spawns = 1,
            None => {
                spent.untimed_forks = 1;
                spent.untimed_pages = creation.memory.anon / 4096;
            }
        }
        // The caller of a vfork waits for the exec: it is in the time or the price of that.
        if !is_shared {
            spent.exec_ns = creation.exec_ns.unwrap_or(0) as f64;
        }
        spent
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.creations += other.creations;
        self.measured_ns += other.measured_ns;
        self.copies_timed += other.copies_timed;
        self.exec_ns += other.exec_ns;
        self.untimed_spawns += other.untimed_spawns;
        self.untimed_forks += other.untimed_forks;
        self.untimed_pages += other.untimed_pages;
    }

    /// The cost of all creations and execs, nanoseconds: measured where it was measured, else by
    /// the prices of this machine.
    pub(crate) fn cost_ns(&self, model: &CostModel) -> f64 {
        self.caller_ns(model) + self.exec_ns
    }

    /// The callers' part of it. Where they wait for the exec, as in a vfork, it is in there.
    pub(crate) fn caller_ns(&self, model: &CostModel) -> f64 {
        let forks = model.fork_fixed.mid * self.untimed_forks as f64
            + model.fork_per_entry.mid * self.untimed_pages as f64;
        self.measured_ns
            + model.create.mid * self.copies_timed as f64
            + model.spawn.mid * self.untimed_spawns as f64
            + forks
    }

    /// The measured cost, if the callers' time was measured.
    pub(super) fn measured_ns(&self) -> Option<f64> {
        (self.untimed_spawns + self.untimed_forks == 0).then_some(self.known_ns())
    }

    /// Whether most of the measured times are of the copy alone.
    pub(crate) fn copies_are_timed(&self) -> bool {
        2 * self.copies_timed > self.creations
    }

    /// The measured part, which is known before there are prices.
    pub(super) fn known_ns(&self) -> f64 {
        self.measured_ns + self.exec_ns
    }
}
