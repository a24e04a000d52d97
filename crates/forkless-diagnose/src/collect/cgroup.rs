//! Names of cgroups by their numbers, for creations whose caller had ended before /proc was read. A
//! service's shell lives for a millisecond and still belongs to the service.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::procfs::cgroup_roots;

/// Least time between two walks through the hierarchy for unknown numbers.
const EVERY: Duration = Duration::from_secs(10);
/// Larger hierarchies are not walked to their end.
const MAX_NAMES: usize = 16_384;

/// The known part of the unified hierarchy.
#[derive(Debug, Default)]
pub(super) struct CgroupNames {
    names: HashMap<u64, String>,
    walked: Option<Instant>,
}

impl CgroupNames {
    /// The name of cgroup `id`, which is the inode of its directory, or 0 if unknown. `told` is the
    /// name that /proc gives for the process.
    pub(super) fn name<'n>(&'n mut self, id: u64, told: Option<&'n str>) -> Option<&'n str> {
        if let Some(told) = told {
            // A process that has moved since its call was in another cgroup then.
            if id != 0 && self.names.len() < MAX_NAMES && !self.names.contains_key(&id) {
                self.learn_if_right(id, told);
            }
            return Some(told);
        }
        if id != 0 && !self.names.contains_key(&id) && self.walked.is_none_or(|at| at.elapsed() >= EVERY) {
            self.walked = Some(Instant::now());
            cgroup_roots().unwrap_or_default().iter().for_each(|root| self.walk(root));
        }
        self.names.get(&id).map(String::as_str)
    }

    fn learn_if_right(&mut self, id: u64, told: &str) {
        let directory = |root: &PathBuf| root.join(told.strip_prefix('/').unwrap_or(told));
        if cgroup_roots()
            .unwrap_or_default()
            .iter()
            .any(|root| fs::metadata(directory(root)).is_ok_and(|found| found.ino() == id))
        {
            self.names.insert(id, told.to_owned());
        }
    }

    fn walk(&mut self, root: &Path) {
        let mut next = vec![root.to_owned()];
        while let Some(directory) = next.pop() {
            if self.names.len() >= MAX_NAMES {
                return;
            }
            let Ok(found) = fs::metadata(&directory) else { continue };
            let below = directory.strip_prefix(root).unwrap_or(&directory).to_string_lossy();
            self.names.insert(found.ino(), format!("/{below}"));
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            next.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_is_gone_is_its_cgroups_all_the_same() {
        let Some(root) = cgroup_roots().unwrap_or_default().into_iter().next() else {
            return println!("skipped: no cgroup2 is mounted");
        };
        let id = fs::metadata(&root).expect("it is mounted").ino();
        let mut names = CgroupNames::default();
        assert_eq!(names.name(id, None), Some("/"));
        assert_eq!(names.name(0, None), None);
        assert_eq!(names.name(u64::MAX, Some("/told")), Some("/told"));
        assert_eq!(
            names.name(u64::MAX, None),
            None,
            "what /proc says of a process that was moved is not the number's name"
        );
        let mut names = CgroupNames::default();
        assert_eq!(names.name(id, Some("/")), Some("/"));
        assert_eq!(names.name(id, None), Some("/"));
        assert_eq!(names.walked, None, "it had been told");
    }
}
