//! Programs started, by the program that started them. Kept for all creations, so that a report can
//! say what they cost in all where nothing is worth a finding.

use std::collections::HashMap;

use super::bounded::{TopNames, forget_the_least};
use super::spent::Spent;
use super::start::UNKNOWN;
use crate::builtin::{self, Builtin};
use crate::creation::{Creation, ProgramKey};
use crate::estimate::{Estimate, Stream, Times};
use crate::file_name::file_name;
use crate::model::CostModel;

/// More starters than this are summed up as others.
const MAX_STARTERS: usize = 1024;
/// A program that lives no longer is short: its start is a large part of it. Nanoseconds. On a busy
/// machine it mostly waits for a processor, and that does not count.
const SHORT: u64 = 100_000_000;
/// Files of programs whose times are kept of one starter.
const MOST_FILES: usize = 16;

/// What one program has started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starter {
    /// Programs: creations whose child executed one.
    pub(crate) programs: u64,
    /// Creations whose child tried to execute a program, and could not.
    pub(crate) exec_failed: u64,
    /// Programs that ended within [`SHORT`].
    pub(crate) short: u64,
    /// Times that another process of this name started a program than the one before it.
    pub(crate) turns: u64,
    /// The process that started the last one.
    pub(crate) program: Option<ProgramKey>,
    /// The programs' lives.
    lives: Stream,
    /// The same without their waits for a processor.
    busy: Stream,
    /// The same by the program's file; of a bounded number of files.
    busy_of: HashMap<String, Times>,
    /// The execs of the programs, as far as they were timed.
    execs: Stream,
    /// The most frequent programs, by their file.
    pub(crate) started: TopNames,
    /// By the file of a program for which a shell has a builtin: starts with arguments for which it
    /// does the same, and starts with others. Arguments that were not seen are in neither.
    builtins: HashMap<&'static str, [u64; 2]>,
    spent: Spent,
}

impl Starter {
    fn add(&mut self, creation: &Creation) {
        self.spent.merge(&Spent::of(creation));
        self.exec_failed += u64::from(!creation.execed() && creation.exec_errno.is_some());
        if creation.execed() {
            self.programs += 1;
            let path = creation.exec_path.as_deref().unwrap_or(UNKNOWN);
            self.started.add(file_name(path));
            if let Some(builtin) = builtin::of(file_name(path)).filter(|_| !creation.argv.is_empty()) {
                let is_other = creation.argv_cut || !builtin.is_for(&creation.argv);
                self.builtins.entry(builtin.program).or_default()[usize::from(is_other)] += 1;
            }
            if let Some(ns) = creation.lifetime_ns {
                let busy = ns.saturating_sub(creation.processor_wait_ns);
                self.short += u64::from(busy <= SHORT);
                self.lives.add(ns as f64);
                self.busy.add(busy as f64);
                if let Some(times) = self.busy_of(file_name(path)) {
                    times.add(busy as f64);
                }
            }
            if let Some(ns) = creation.exec_ns {
                self.execs.add(ns as f64);
            }
            let program = Some(creation.place.program());
            self.turns += u64::from(self.program != program);
            self.program = program;
        }
    }

    /// The times of a program's file, if there is room.
    fn busy_of(&mut self, file: &str) -> Option<&mut Times> {
        if self.busy_of.len() < MOST_FILES && !self.busy_of.contains_key(file) {
            self.busy_of.insert(file.to_owned(), Times::default());
        }
        self.busy_of.get_mut(file)
    }

    fn merge(&mut self, other: &Self) {
        for (file, times) in &other.busy_of {
            if let Some(known) = self.busy_of(file) {
                known.merge(times);
            }
        }
        self.programs += other.programs;
        self.exec_failed += other.exec_failed;
        self.short += other.short;
        self.turns += other.turns;
        self.lives.merge(&other.lives);
        self.busy.merge(&other.busy);
        self.execs.merge(&other.execs);
        self.started.merge(&other.started);
        for (program, [own, others]) in &other.builtins {
            let known = self.builtins.entry(program).or_default();
            *known = [known[0] + own, known[1] + others];
        }
        self.spent.merge(&other.spent);
    }

    /// What it cost.
    pub(crate) fn spent(&self) -> Spent {
        self.spent
    }

    /// All creations.
    pub(crate) fn creations(&self) -> u64 {
        self.spent.creations
    }

    /// The cost of all creations and execs, nanoseconds: measured where it was measured, else by
    /// the prices of this machine.
    pub(crate) fn cost_ns(&self, model: &CostModel) -> f64 {
        self.spent.cost_ns(model)
    }

    /// The callers' part of it. Where they wait for the exec, as in a vfork, it is in there.
    pub(crate) fn caller_ns(&self, model: &CostModel) -> f64 {
        self.spent.caller_ns(model)
    }
}

impl Starter {
    /// The mean life of its programs.
    pub(crate) fn mean_life_ns(&self) -> f64 {
        self.lives.mean
    }

    /// The same without their waits for a processor.
    pub(crate) fn mean_busy_ns(&self) -> f64 {
        self.busy.mean
    }

    /// From the creation of a program to its end, without its waits for a processor; `None` if none
    /// of its kind was seen to end.
    pub(crate) fn busy_ns(&self, file: &str) -> Option<Estimate> {
        self.busy_of.get(file).map(Times::median)
    }

    /// What a shell does itself in place of a program: of each start whose arguments were seen.
    pub(crate) fn builtin(&self, file: &str) -> Option<&'static Builtin> {
        builtin::of(file)
            .filter(|_| self.builtins.get(file).is_some_and(|[own, others]| *own > 0 && *others == 0))
    }

    /// The mean time of the execs, if they were timed.
    pub(crate) fn mean_exec_ns(&self) -> Option<f64> {
        (self.execs.count > 0).then_some(self.execs.mean)
    }
}

/// All starters, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starters {
    by_name: HashMap<String, Starter>,
    /// Starters that had no room.
    pub(crate) others: Starter,
}

impl Starters {
    pub(crate) fn add(&mut self, name: &str, creation: &Creation) {
        if let Some(known) = self.by_name.get_mut(name) {
            return known.add(creation);
        }
        if self.by_name.len() >= MAX_STARTERS {
            for gone in forget_the_least(&mut self.by_name, |starter| starter.creations() as f64) {
                self.others.merge(&gone);
            }
        }
        self.by_name.entry(name.to_owned()).or_default().add(creation);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Starter)> {
        self.by_name.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation::{CloneFlags, CreationKind};
    use crate::estimate::Estimate;

    fn fork(copy_ns: Option<u64>) -> Creation {
        let flags = CloneFlags(0);
        Creation { flags, kind: CreationKind::FullFork, copy_ns, ..Creation::unseen() }
    }

    #[test]
    fn what_was_measured_is_not_priced_again() {
        let price = Estimate::exact;
        let model = CostModel {
            create: price(10.0),
            spawn: price(1000.0),
            fork_fixed: price(100.0),
            ..CostModel::default()
        };
        let execed = |creation: Creation| Creation {
            execs: 1,
            exec_path: Some("/bin/true".into()),
            exec_ns: Some(7),
            ..creation
        };
        let mut starter = Starter::default();
        starter.add(&execed(fork(Some(500))));
        assert_eq!(starter.cost_ns(&model), 517.0, "the copy, the rest of the call, the exec");
        starter.add(&fork(None));
        assert_eq!(starter.cost_ns(&model), 617.0);
        starter.add(&execed(Creation::unseen()));
        assert_eq!(starter.cost_ns(&model), 1617.0, "a spawn's price has its exec");
        assert_eq!((starter.programs, starter.creations()), (2, 3));
        assert_eq!(starter.started.top(2), [("true".to_owned(), 2)]);
        starter.add(&Creation { exec_errno: Some(2), ..fork(None) });
        starter.add(&Creation { exec_errno: Some(2), ..execed(fork(None)) });
        let mut merged = Starter::default();
        merged.merge(&starter);
        assert_eq!((merged.programs, merged.exec_failed), (3, 1), "a search along PATH has succeeded");
    }

    /// Regression: beside 24 busy processes each program lived longer than 100 ms, and no storm was
    /// found.
    #[test]
    fn a_program_without_a_processor_is_short() {
        let mut starter = Starter::default();
        for (lifetime_ns, processor_wait_ns) in [(SHORT * 5, SHORT * 4), (SHORT * 5, SHORT * 3)] {
            let lifetime_ns = Some(lifetime_ns);
            starter.add(&Creation { execs: 1, lifetime_ns, processor_wait_ns, ..fork(None) });
        }
        assert_eq!((starter.programs, starter.short), (2, 1));
    }

    #[test]
    fn the_times_of_each_program_are_kept_apart() {
        let mut starter = Starter::default();
        for (path, lifetime_ns) in [("/bin/date", 1_000), ("/bin/date", 3_000), ("/usr/bin/gcc", 90_000)] {
            let (exec_path, lifetime_ns) = (Some(path.to_owned()), Some(lifetime_ns));
            let creation = fork(None);
            starter.add(&Creation { execs: 1, exec_path, lifetime_ns, processor_wait_ns: 500, ..creation });
        }
        let mut merged = Starter::default();
        merged.merge(&starter);
        let of = |file| merged.busy_ns(file).map(|times| times.mid);
        assert_eq!([of("date"), of("gcc"), of("cat")], [Some(1_500.0), Some(89_500.0), None]);
        for file in 0..100 {
            starter.busy_of(&file.to_string());
        }
        assert_eq!(starter.busy_of.len(), MOST_FILES);
    }

    /// Regression: `expr a = b` was to be written `$((a = b))`, which assigns.
    #[test]
    fn a_builtin_is_for_all_arguments_that_were_seen() {
        let starter = |lines: &[&str]| {
            let mut starter = Starter::default();
            for line in lines {
                let argv = line.split_whitespace().map(str::to_owned).collect();
                let exec_path = Some("/usr/bin/expr".to_owned());
                starter.add(&Creation { execs: 1, exec_path, argv, ..fork(None) });
            }
            starter
        };
        let is_for = |starter: &Starter| starter.builtin("expr").is_some();
        assert!(is_for(&starter(&["expr 1 + 2", "expr 2 + 2", ""])), "the last was not seen");
        assert!(!is_for(&starter(&["expr 1 + 2", "expr a = b"])));
        assert!(!is_for(&starter(&[""])) && !is_for(&Starter::default()));
        let mut merged = starter(&["expr 1 + 2"]);
        merged.merge(&starter(&["expr 2 + 2"]));
        assert!(is_for(&merged));
        merged.merge(&starter(&["expr 08 + 2"]));
        assert!(!is_for(&merged));
        let mut cut = starter(&[]);
        let argv = ["expr", "1", "+", "2"].map(str::to_owned).to_vec();
        let exec_path = Some("/usr/bin/expr".to_owned());
        cut.add(&Creation { execs: 1, exec_path, argv, argv_cut: true, ..fork(None) });
        assert!(!is_for(&cut));
    }

    #[test]
    fn starters_without_room_are_counted_with_the_others() {
        let mut starters = Starters::default();
        (0..5000).for_each(|i| starters.add(&format!("s{i}"), &fork(None)));
        let named: u64 = starters.iter().map(|(_, starter)| starter.creations()).sum();
        assert_eq!(named + starters.others.creations(), 5000);
        assert!(starters.by_name.len() <= MAX_STARTERS);
    }
}
