//! Sums about starting programs: failed execs, and shells by the fate of their line.

use std::collections::HashMap;

use super::bounded::TopNames;
use crate::creation::Place;
use crate::estimate::Times;

/// Failed execs of one process's children, or of the process itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailedExecs {
    pub(crate) creations: u64,
    /// Failed for a missing file before one that succeeded: a search along PATH.
    pub(crate) searched: u64,
    pub(crate) searching_creations: u64,
    /// Never succeeded: the file is missing.
    pub(crate) missing: u64,
    pub(crate) missing_paths: TopNames,
    pub(crate) busy: u64,
    pub(crate) busy_paths: TopNames,
    pub(crate) comm: String,
}

impl FailedExecs {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.creations += other.creations;
        self.searched += other.searched;
        self.searching_creations += other.searching_creations;
        self.missing += other.missing;
        self.missing_paths.merge(&other.missing_paths);
        self.busy += other.busy;
        self.busy_paths.merge(&other.busy_paths);
    }
}

/// Shells started by one process name for lines of one fate.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShellGroup {
    pub(crate) count: u64,
    /// The shell's life less its programs' lives.
    pub(crate) overhead: Times,
    pub(crate) lines: TopNames,
    pub(crate) sites: HashMap<Place, u64>,
    pub(crate) comm: String,
}
