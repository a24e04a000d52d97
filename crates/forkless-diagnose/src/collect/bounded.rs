//! Tables of bounded size, for watches of any length.

use std::collections::HashMap;

/// Counts by name, of a bounded number of names.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopNames {
    counts: HashMap<String, u64>,
    others: u64,
}

const MOST_NAMES: usize = 32;

/// Counts of the latest processes: of 16,384 at least, if there were so many.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatestCounts {
    latest: HashMap<u32, u64>,
    before: HashMap<u32, u64>,
}

impl LatestCounts {
    const MOST: usize = 16_384;

    pub(crate) fn add(&mut self, pid: u32, count: u64) {
        if self.latest.len() >= Self::MOST {
            self.before = std::mem::take(&mut self.latest);
        }
        *self.latest.entry(pid).or_default() += count;
    }

    pub(crate) fn of(&self, pid: u32) -> u64 {
        let count = |counts: &HashMap<u32, u64>| counts.get(&pid).copied().unwrap_or(0);
        count(&self.latest) + count(&self.before)
    }
}

impl TopNames {
    pub(crate) fn add(&mut self, name: &str) {
        self.add_many(name, 1);
    }

    fn add_many(&mut self, name: &str, count: u64) {
        if let Some(known) = self.counts.get_mut(name) {
            *known += count;
        } else if self.counts.len() < MOST_NAMES {
            self.counts.insert(name.to_owned(), count);
        } else {
            self.others += count;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            self.add_many(name, *count);
        }
        self.others += other.others;
    }

    /// Those that had no room for their names.
    pub(crate) fn others(&self) -> u64 {
        self.others
    }

    /// All that have a name, the most frequent first.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        self.top(MOST_NAMES)
    }

    /// The most frequent names with their counts.
    pub(crate) fn top(&self, names: usize) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> =
            self.counts.iter().map(|(name, count)| (name.clone(), *count)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(names);
        all
    }
}

/// Makes room in a full table: removes the half with the least weight. So a watch of any length
/// still sees the entries that matter.
pub(super) fn forget_the_least<K: Clone + Eq + std::hash::Hash, V>(
    table: &mut HashMap<K, V>,
    weight: impl Fn(&V) -> f64,
) -> Vec<V> {
    forget_the_least_of(table, |_, _| true, weight)
}

/// The same among the entries that may go: removes half of them.
pub(super) fn forget_the_least_of<K: Clone + Eq + std::hash::Hash, V>(
    table: &mut HashMap<K, V>,
    may_go: impl Fn(&K, &V) -> bool,
    weight: impl Fn(&V) -> f64,
) -> Vec<V> {
    let going = table.iter().filter(|(key, value)| may_go(key, value));
    let mut keys: Vec<(f64, K)> = going.map(|(key, value)| (weight(value), key.clone())).collect();
    keys.sort_by(|a, b| a.0.total_cmp(&b.0));
    keys.truncate(keys.len().div_ceil(2));
    keys.iter().filter_map(|(_, key)| table.remove(key)).collect()
}
