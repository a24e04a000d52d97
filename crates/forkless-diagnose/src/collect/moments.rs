//! When creations happened: all of them in columns of time, and the costliest one by one.

use std::collections::HashSet;
use std::sync::Arc;

use super::origins::started;
use super::spent::Spent;
use super::{Outcome, procfs};
use crate::creation::Creation;

/// Columns of time. When a watch outgrows them, each gets twice as wide.
const COLUMNS: usize = 256;
/// The width of a column at first, nanoseconds.
const FIRST_WIDTH: u64 = 10_000_000;
/// Creations that are kept one by one. When there are twice as many, half of them go.
const KEPT: usize = 10_000;
/// Names that are kept once. More are kept with each of their creations.
const MAX_NAMES: usize = 4096;

/// One creation in time.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    /// Since the beginning of the watch, nanoseconds.
    pub(crate) at_ns: u64,
    pub(crate) program: Arc<str>,
    pub(crate) caller: u32,
    pub(crate) child: u32,
    pub(crate) outcome: Outcome,
    pub(crate) started: Option<Arc<str>>,
    pub(crate) spent: Spent,
    /// Decides between equally cheap ones.
    luck: u64,
}

/// The creations of a watch in time.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    began_ns: u64,
    width_ns: u64,
    columns: Vec<Spent>,
    kept: Vec<Moment>,
    left_out: u64,
    names: HashSet<Arc<str>>,
    added: u64,
}

impl Moments {
    /// Begins now.
    pub(super) fn new() -> Self {
        Self {
            began_ns: procfs::monotonic_ns(),
            width_ns: FIRST_WIDTH,
            columns: Vec::new(),
            kept: Vec::new(),
            left_out: 0,
            names: HashSet::new(),
            added: 0,
        }
    }

    pub(super) fn add(&mut self, program: &str, creation: &Creation, spent: &Spent) {
        let at_ns = creation.at_ns.saturating_sub(self.began_ns);
        self.add_to_column(at_ns, spent);
        if self.kept.len() >= 2 * KEPT {
            self.forget_the_cheap_half();
        }
        let moment = Moment {
            at_ns,
            program: self.name(program),
            caller: creation.caller,
            child: creation.child,
            outcome: Outcome::of(creation),
            started: started(creation).map(|name| self.name(name)),
            spent: *spent,
            // The golden ratio's bits spread consecutive numbers evenly.
            luck: self.added.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        self.added += 1;
        self.kept.push(moment);
    }

    fn add_to_column(&mut self, at_ns: u64, spent: &Spent) {
        while at_ns / self.width_ns >= COLUMNS as u64 {
            self.width_ns = self.width_ns.saturating_mul(2);
            let pairs = self.columns.chunks(2).map(|pair| {
                let mut both = pair[0];
                pair[1..].iter().for_each(|second| both.merge(second));
                both
            });
            self.columns = pairs.collect();
        }
        let at = (at_ns / self.width_ns) as usize;
        if self.columns.len() <= at {
            self.columns.resize(at + 1, Spent::default());
        }
        self.columns[at].merge(spent);
    }

    /// Of equally cheap ones those that stay are drawn by lot: a tier without times would lose one
    /// end of the watch.
    fn forget_the_cheap_half(&mut self) {
        let half = self.kept.len() / 2;
        let rank = |a: &Moment, b: &Moment| {
            b.spent.known_ns().total_cmp(&a.spent.known_ns()).then(b.luck.cmp(&a.luck))
        };
        self.kept.select_nth_unstable_by(half, rank);
        self.kept.truncate(half);
        self.left_out += half as u64;
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = Arc::from(name);
        if self.names.len() < MAX_NAMES {
            self.names.insert(Arc::clone(&name));
        }
        name
    }

    /// The width of a column, nanoseconds, and what was spent in each.
    pub(crate) fn columns(&self) -> (u64, &[Spent]) {
        (self.width_ns, &self.columns)
    }

    /// The creations that are kept, in no order.
    pub(crate) fn kept(&self) -> &[Moment] {
        &self.kept
    }

    /// How many creations are in the columns alone.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(at_ns: u64, copy_ns: u64) -> Creation {
        Creation { at_ns, copy_ns: Some(copy_ns), ..Creation::unseen() }
    }

    #[test]
    fn columns_widen_and_lose_nothing() {
        let mut moments = Moments::new();
        let began = moments.began_ns;
        for second in 0..1000 {
            let creation = fork(began + second * 1_000_000_000, 5);
            moments.add("sh", &creation, &Spent::of(&creation));
        }
        let (width, columns) = moments.columns();
        assert_eq!(width, FIRST_WIDTH << 9, "1,000 s in 256 columns of 5.12 s");
        assert!(columns.len() <= COLUMNS);
        assert_eq!(columns.iter().map(|spent| spent.creations).sum::<u64>(), 1000);
        // A watch that begins in the middle of a call sees an earlier time.
        let creation = fork(began.saturating_sub(7), 5);
        moments.add("sh", &creation, &Spent::of(&creation));
        assert_eq!(moments.kept().iter().filter(|moment| moment.at_ns == 0).count(), 2);
    }

    #[test]
    fn the_costliest_stay_and_equal_ones_stay_everywhere() {
        let mut moments = Moments::new();
        let began = moments.began_ns;
        let mut add = |at: u64, ns| {
            let creation = fork(began + at, ns);
            moments.add(&format!("p{at}"), &creation, &Spent::of(&creation));
        };
        add(0, 1_000_000);
        (1..100_000).for_each(|at| add(at, 7));
        assert!(moments.kept().len() <= 2 * KEPT && moments.names.len() <= MAX_NAMES);
        assert_eq!(moments.kept().len() as u64 + moments.left_out(), 100_000);
        assert!(moments.kept().iter().any(|moment| moment.at_ns == 0));
        for part in 0..10 {
            let range = part * 10_000..(part + 1) * 10_000;
            let there = moments.kept().iter().filter(|moment| range.contains(&moment.at_ns)).count();
            assert!(there > 100, "{there} of part {part}");
        }
    }
}
