//! Sums of refused creations, by place and error.

use std::collections::HashMap;
use std::path::Path;

use super::MAX_NAMES;
use super::bounded::forget_the_least;
use super::line_counts::LineCounts;
use crate::event::RefusalCount;
use crate::refusal::{ReachedLimit, RefusalKey, RefusedCreation};
use crate::stack::Frame;

/// The refusals of one place with one error.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) count: u64,
    /// Those whose time is known.
    pub(crate) timed: u64,
    pub(crate) ns: u64,
    pub(crate) limit: ReachedLimit,
    pub(crate) comm: String,
    /// Anonymous memory of the caller, bytes.
    pub(crate) anon: u64,
    /// The user's lines, of interpreters that wait to try again.
    pub(crate) lines: LineCounts,
    /// The kernel side's sums at the last look. Its entry may be evicted and begin again at zero.
    seen: RefusalCount,
}

impl Refused {
    /// The same of no refusal yet, by this limit.
    pub(crate) fn without_counts(&self, limit: ReachedLimit) -> Self {
        Self { limit, count: 0, timed: 0, ns: 0, lines: LineCounts::default(), ..self.clone() }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.timed += other.timed;
        self.ns += other.ns;
        self.anon = self.anon.max(other.anon);
        self.lines.merge(&other.lines);
    }
}

#[cfg(test)]
impl Refused {
    /// One refusal, with the lines that were read of it.
    pub(crate) fn read_at(lines: LineCounts) -> Self {
        let limit = ReachedLimit::Unknown;
        Self {
            count: 1,
            timed: 0,
            ns: 0,
            limit,
            comm: "a".into(),
            anon: 0,
            lines,
            seen: RefusalCount::default(),
        }
    }
}

/// All refusals of a watch.
#[derive(Debug, Default)]
pub(crate) struct Refusals(HashMap<RefusalKey, Refused>);

impl Refusals {
    /// Takes one refusal in. Only some of them are reported one by one, so it is not counted here.
    pub(crate) fn met(&mut self, refused: RefusedCreation) {
        let RefusedCreation { key, comm, limit, anon, .. } = refused;
        if self.0.len() >= MAX_NAMES && !self.0.contains_key(&key) {
            forget_the_least(&mut self.0, |refused| refused.count as f64);
        }
        let new = || Refused {
            count: 0,
            timed: 0,
            ns: 0,
            limit: ReachedLimit::Unknown,
            comm,
            anon,
            lines: LineCounts::default(),
            seen: RefusalCount::default(),
        };
        let known = self.0.entry(key).or_insert_with(new);
        known.anon = known.anon.max(anon);
        // The limit that was reached last, as long as one is known, and with its directory.
        let is_gone = matches!(&limit, ReachedLimit::Cgroup { inode, directory: None, .. }
            if matches!(&known.limit, ReachedLimit::Cgroup { inode: of, .. } if of == inode));
        if limit != ReachedLimit::Unknown && !is_gone {
            known.limit = limit;
        }
    }

    /// Takes in the lines of a refusal.
    pub(super) fn read(&mut self, key: &RefusalKey, frames: &[Frame]) {
        if let Some(known) = self.0.get_mut(key) {
            known.lines.add(frames, 1);
        }
    }

    /// Takes over the kernel side's sums.
    pub(crate) fn follow(&mut self, counted: impl Iterator<Item = (RefusalKey, RefusalCount)>) {
        for (key, now) in counted {
            let Some(known) = self.0.get_mut(&key) else { continue };
            let seen = if now.count < known.seen.count { RefusalCount::default() } else { known.seen };
            known.count += now.count - seen.count;
            known.timed += now.timed.saturating_sub(seen.timed);
            known.ns += now.ns.saturating_sub(seen.ns);
            known.seen = now;
        }
    }

    /// The directory of a cgroup, if it was seen at any refusal: it may be gone at others.
    pub(crate) fn directory(&self, inode: u64) -> Option<&Path> {
        self.0.values().find_map(|refused| match &refused.limit {
            ReachedLimit::Cgroup { inode: of, directory: Some(known), .. } if *of == inode => Some(&**known),
            _ => None,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RefusalKey, &Refused)> {
        self.0.iter()
    }

    /// All refusals, of processes and of threads.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().map(|refused| refused.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation::Place;

    #[test]
    fn sums_that_began_again_are_added_up_and_a_known_limit_stays() {
        let place = Place { pid: 1, nr: 56, ip: 2, word: 3, image: 4 };
        let key = RefusalKey { place, errno: libc::EAGAIN, is_thread: false, shares_memory: false };
        let met = |limit| RefusedCreation { key, thread: 1, comm: "web".into(), cgroup: 0, limit, anon: 5 };
        let mut refusals = Refusals::default();
        let user = ReachedLimit::User { uid: 7, limit: 8 };
        refusals.met(met(user.clone()));
        refusals.met(met(ReachedLimit::Unknown));
        for (count, sum) in [(4, 4), (6, 6), (1, 7), (1, 7), (3, 9)] {
            refusals.follow(std::iter::once((key, RefusalCount { count, timed: 0, ns: 0 })));
            assert_eq!(refusals.count(), sum);
        }
        let other = RefusalKey { errno: libc::ENOMEM, ..key };
        refusals.follow(std::iter::once((other, RefusalCount { count: 9, timed: 0, ns: 0 })));
        assert_eq!(refusals.count(), 9, "what was not reported is nobody's");
        assert_eq!(refusals.iter().next().map(|(_, refused)| &refused.limit), Some(&user));
    }
}
