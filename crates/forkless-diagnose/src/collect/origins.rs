//! Where creations come from: their costs by place, with what was started. Kept for all of them,
//! so that a picture of their origins is whole.

use std::collections::HashMap;
use std::sync::Arc;

use super::bounded::forget_the_least;
use super::line_counts::LineCounts;
use super::spent::Spent;
use super::{MAX_GROUPS, Outcome};
use crate::creation::{Creation, Place};
use crate::file_name::file_name;
use crate::stack::Frame;

/// Programs whose forgotten places are still counted by name.
const MAX_FORGOTTEN: usize = 1024;

/// Creations that one picture shows as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OriginKey {
    pub(crate) place: Place,
    pub(crate) outcome: Outcome,
    /// The file that was executed.
    pub(crate) started: Option<Arc<str>>,
}

impl OriginKey {
    pub(super) fn of(creation: &Creation) -> Self {
        Self {
            place: creation.place,
            outcome: Outcome::of(creation),
            started: started(creation).map(Arc::from),
        }
    }
}

/// The file's name of the program that a child executed or could not execute.
pub(super) fn started(creation: &Creation) -> Option<&str> {
    let path = creation.exec_path.as_deref().or(creation.exec_failed_path.as_deref())?;
    Some(file_name(path))
}

/// The creations of one key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    /// The program that created, as it was called then.
    pub(crate) program: String,
    pub(crate) spent: Spent,
    /// The user's lines, of the creations whose caller was read.
    pub(crate) lines: LineCounts,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Origins {
    by_place: HashMap<OriginKey, Origin>,
    /// Places that had no room, by program.
    forgotten: HashMap<String, Spent>,
}

impl Origins {
    pub(super) fn add(&mut self, key: OriginKey, program: &str, spent: &Spent) {
        if let Some(known) = self.by_place.get_mut(&key) {
            return known.spent.merge(spent);
        }
        if self.by_place.len() >= MAX_GROUPS {
            self.forget();
        }
        let origin = Origin { program: program.to_owned(), spent: *spent, lines: LineCounts::default() };
        self.by_place.insert(key, origin);
    }

    pub(super) fn read(&mut self, key: &OriginKey, lines: &[Frame], stands_for: u64) {
        if let Some(known) = self.by_place.get_mut(key) {
            known.lines.add(lines, stands_for);
        }
    }

    /// Makes room: of the cheapest places only the program is kept.
    pub(super) fn forget(&mut self) {
        for gone in forget_the_least(&mut self.by_place, |origin| origin.spent.known_ns()) {
            let has_room = self.forgotten.len() < MAX_FORGOTTEN || self.forgotten.contains_key(&gone.program);
            let program = if has_room { gone.program } else { String::new() };
            self.forgotten.entry(program).or_default().merge(&gone.spent);
        }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.by_place.keys().map(|key| &key.place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OriginKey, &Origin)> {
        self.by_place.iter()
    }

    /// Creations whose place had no room, by program.
    pub(crate) fn forgotten(&self) -> impl Iterator<Item = (&String, &Spent)> {
        self.forgotten.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_without_room_are_counted_by_program() {
        let mut origins = Origins::default();
        let fork = |ip| Creation {
            place: Place { pid: 1, nr: 0, ip, word: 0, image: 0 },
            copy_ns: Some(ip),
            ..Creation::unseen()
        };
        for ip in 0..3 * MAX_GROUPS as u64 {
            let creation = fork(ip);
            origins.add(OriginKey::of(&creation), &format!("p{}", ip % 5000), &Spent::of(&creation));
        }
        assert!(origins.by_place.len() <= MAX_GROUPS && origins.forgotten.len() <= MAX_FORGOTTEN + 1);
        let kept = origins.iter().map(|(_, origin)| origin.spent.creations).sum::<u64>();
        let forgotten = origins.forgotten().map(|(_, spent)| spent.creations).sum::<u64>();
        assert_eq!(kept + forgotten, 3 * MAX_GROUPS as u64);
        assert!(origins.iter().any(|(key, _)| key.place.ip == 3 * MAX_GROUPS as u64 - 1));
    }
}
