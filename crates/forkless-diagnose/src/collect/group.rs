//! Sums of the creations of one place with one outcome.

use std::collections::HashMap;

use serde::Serialize;

use super::bounded::TopNames;
use super::line_counts::LineCounts;
use crate::creation::{CallerMemory, ChildEnd, Creation, CreationKind, Place};
use crate::estimate::{Stream, Times};
use crate::reach::ANSWERED_CLOSE_NS;

/// What a creation led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Outcome {
    /// Page tables copied, then thrown away by an exec.
    #[serde(rename = "full_fork_then_exec")]
    ForkThenExec,
    /// Page tables copied and used: a snapshot, a worker, a subshell.
    #[serde(rename = "full_fork_alone")]
    ForkAlone,
    /// Memory shared.
    #[serde(rename = "shared_memory")]
    Shared,
    /// A speculated fork: most of the memory was kept out of the copy.
    #[serde(rename = "speculated")]
    Speculated,
}

impl Outcome {
    pub(crate) fn of(creation: &Creation) -> Self {
        match (creation.kind, creation.execed() || creation.exec_errno.is_some()) {
            (CreationKind::FullFork, _) if creation.flags.is_speculated() => Self::Speculated,
            (CreationKind::FullFork, true) => Self::ForkThenExec,
            (CreationKind::FullFork, false) => Self::ForkAlone,
            _ => Self::Shared,
        }
    }
}

/// The creations of one place with one outcome.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) count: u64,
    /// Time in the caller: the whole call if it was timed, else the copy alone.
    pub(crate) caller: Times,
    /// How many of these times are of the copy alone.
    pub(crate) copies_timed: u64,
    /// From the child's existence to its exec, or to its end without one.
    pub(crate) child: Times,
    /// The exec itself, which takes the copied page tables down.
    pub(crate) exec: Times,
    /// The shortest time that a child took before its exec, in nanoseconds. Only children whose
    /// exec was timed count.
    pub(crate) least_before_exec: Option<u64>,
    /// The same with the preloaded library's answers in place of a loop of closes.
    pub(crate) least_with_answers: Option<u64>,
    /// The sum of their time in such loops, nanoseconds.
    pub(crate) closing_ns: u64,
    pub(crate) anon: Stream,
    pub(crate) swap: Stream,
    pub(crate) resident: Stream,
    pub(crate) hugetlb: Stream,
    pub(crate) page_tables: Stream,
    pub(crate) child_faults: u64,
    /// Creations whose child's exec failed, and which executed nothing else.
    pub(crate) exec_failed: u64,
    /// Creations whose child created threads or processes before its exec.
    pub(crate) made: u64,
    pub(crate) still_running: u64,
    /// Creations for which other threads of the caller waited.
    pub(crate) stalling: u64,
    /// These threads, at all creations and at the worst.
    pub(crate) stalled: u64,
    pub(crate) most_stalled: u64,
    /// The sum of their waits, nanoseconds.
    pub(crate) stalled_ns: u64,
    /// Programs the children became, the most frequent few.
    pub(crate) programs: TopNames,
    pub(crate) comm: String,
    /// The user's lines, of the creations whose caller was read.
    pub(crate) lines: LineCounts,
}

impl Group {
    pub(super) fn add(&mut self, creation: &Creation) {
        self.count += 1;
        if let Some(ns) = creation.caller_waited_ns.or(creation.copy_ns) {
            self.caller.add(ns as f64);
            self.copies_timed += u64::from(creation.caller_waited_ns.is_none());
        }
        let child_ns = match creation.kind {
            // The copy is over; what follows is the child's own work, its exec, and the teardown of
            // the copy.
            CreationKind::FullFork => creation.until_exec_ns.or(creation.lifetime_ns),
            _ => creation.until_exec_ns,
        };
        let child_ns = child_ns.map(|ns| ns.saturating_sub(creation.copy_ns.unwrap_or(0)));
        if let Some(ns) = child_ns {
            self.child.add(ns as f64);
        }
        if let Some(ns) = creation.exec_ns {
            self.exec.add(ns as f64);
            let before = child_ns.map(|all| all.saturating_sub(ns));
            self.least_before_exec = self.least_before_exec.into_iter().chain(before).min();
            // On a busy machine the loop's time is mostly waits, which no answer shortens by a
            // factor: their number tells what is left.
            let answers = creation.closes.saturating_mul(ANSWERED_CLOSE_NS);
            let saved = creation.closing_ns.saturating_sub(answers);
            let before = before.map(|all| all.saturating_sub(saved));
            self.least_with_answers = self.least_with_answers.into_iter().chain(before).min();
        }
        // Without BPF the memory is read from /proc, where the caller may be gone. Zero then means
        // unknown.
        if creation.memory != CallerMemory::default() {
            self.anon.add(creation.memory.anon as f64);
            self.swap.add(creation.memory.swap as f64);
            self.resident.add(creation.memory.resident() as f64);
            self.hugetlb.add(creation.memory.hugetlb as f64);
            self.page_tables.add(creation.memory.page_tables as f64);
        }
        self.child_faults += creation.child_copied + creation.child_reused;
        self.exec_failed += u64::from(creation.exec_errno.is_some() && !creation.execed());
        self.made += u64::from(creation.child_made > 0 && creation.execed());
        self.closing_ns += creation.closing_ns;
        self.stalling += u64::from(creation.stalled > 0);
        self.stalled += creation.stalled;
        self.most_stalled = self.most_stalled.max(creation.stalled);
        self.stalled_ns += creation.stalled_ns;
        self.still_running += u64::from(creation.end == ChildEnd::Running);
        if let Some(path) = creation.exec_path.as_ref().or(creation.exec_failed_path.as_ref()) {
            self.programs.add(path);
        }
        if self.comm.is_empty() {
            self.comm.clone_from(&creation.caller_comm);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.copies_timed += other.copies_timed;
        for (mine, theirs) in [
            (&mut self.caller, &other.caller),
            (&mut self.child, &other.child),
            (&mut self.exec, &other.exec),
        ] {
            mine.merge(theirs);
        }
        let least = self.least_before_exec.into_iter().chain(other.least_before_exec).min();
        self.least_before_exec = least;
        let least = self.least_with_answers.into_iter().chain(other.least_with_answers).min();
        self.least_with_answers = least;
        for (mine, theirs) in [
            (&mut self.anon, &other.anon),
            (&mut self.swap, &other.swap),
            (&mut self.resident, &other.resident),
            (&mut self.hugetlb, &other.hugetlb),
            (&mut self.page_tables, &other.page_tables),
        ] {
            mine.merge(theirs);
        }
        self.child_faults += other.child_faults;
        self.exec_failed += other.exec_failed;
        self.made += other.made;
        self.closing_ns += other.closing_ns;
        self.still_running += other.still_running;
        self.stalling += other.stalling;
        self.stalled += other.stalled;
        self.most_stalled = self.most_stalled.max(other.most_stalled);
        self.stalled_ns += other.stalled_ns;
        self.programs.merge(&other.programs);
        self.lines.merge(&other.lines);
        if self.comm.is_empty() {
            self.comm.clone_from(&other.comm);
        }
    }
}

/// perf samples places, so some creations have none. They are counted at the most frequent
/// place of the same process and outcome.
pub(super) fn place_the_unplaced(groups: &mut HashMap<(Place, Outcome), Group>) {
    let unplaced: Vec<(Place, Outcome)> = groups.keys().filter(|(place, _)| place.ip == 0).copied().collect();
    for key in unplaced {
        let known = groups
            .iter()
            .filter(|((place, outcome), _)| {
                (place.program(), *outcome) == (key.0.program(), key.1) && place.ip != 0
            })
            .max_by_key(|(place, group)| (group.count, place.0))
            .map(|(place, _)| *place);
        if let Some(known) = known
            && let Some(group) = groups.remove(&key)
            && let Some(place) = groups.get_mut(&known)
        {
            place.merge(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a program's last fork was read after the program's end, and lowered the mean.
    #[test]
    fn memory_that_could_not_be_read_is_not_averaged() {
        let mut group = Group::default();
        let memory =
            CallerMemory { anon: 64 << 20, file: 1 << 20, page_tables: 1 << 17, ..Default::default() };
        group.add(&Creation { memory, ..Creation::unseen() });
        group.add(&Creation::unseen());
        assert_eq!(group.count, 2);
        assert_eq!(group.anon.mean, f64::from(64 << 20));
    }

    /// Regression: a thirtieth of the loop's waits for a processor was left, which the library's
    /// limit of time does not count.
    #[test]
    fn the_answers_to_a_loop_are_priced_by_their_number() {
        let mut group = Group::default();
        group.add(&Creation {
            kind: CreationKind::FullFork,
            until_exec_ns: Some(9_000_000_000),
            exec_ns: Some(1_000_000),
            closing_ns: 8_990_000_000,
            closes: 100_000,
            ..Creation::unseen()
        });
        assert_eq!(group.least_before_exec, Some(8_999_000_000));
        assert_eq!(group.least_with_answers, Some(9_000_000 + 100_000 * ANSWERED_CLOSE_NS));
    }

    #[test]
    fn a_creation_without_a_place_joins_its_processs_most_frequent_one() {
        let place = |pid, ip| Place { pid, nr: 0, ip, word: 0, image: 0 };
        let group = |count| Group { count, ..Group::default() };
        let mut groups = HashMap::from([
            ((place(1, 0x10), Outcome::ForkAlone), group(5)),
            ((place(1, 0x20), Outcome::ForkAlone), group(7)),
            ((place(1, 0), Outcome::ForkAlone), group(2)),
            ((place(1, 0), Outcome::Shared), group(3)),
            ((place(2, 0), Outcome::ForkAlone), group(4)),
        ]);
        place_the_unplaced(&mut groups);
        let count = |pid, ip, outcome| groups.get(&(place(pid, ip), outcome)).map(|group| group.count);
        assert_eq!(count(1, 0x20, Outcome::ForkAlone), Some(9));
        assert_eq!(count(1, 0x10, Outcome::ForkAlone), Some(5));
        assert_eq!(count(1, 0, Outcome::ForkAlone), None);
        // Another outcome, another process: nothing is known of them.
        assert_eq!(count(1, 0, Outcome::Shared), Some(3));
        assert_eq!(count(2, 0, Outcome::ForkAlone), Some(4));
    }
}
