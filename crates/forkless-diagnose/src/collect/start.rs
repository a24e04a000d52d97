//! Sums about starting programs: failed execs, and shells by the fate of their line.

use std::collections::HashMap;

use super::bounded::TopNames;
use super::line_counts::LineCounts;
use crate::creation::{CallerMemory, Creation, CreationKind, Place};
use crate::estimate::{Stream, Times};

/// In place of a program's name that was not told.
pub(crate) const UNKNOWN: &str = "name not known";

/// Failed execs of one process's children, or of the process itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailedExecs {
    pub(crate) creations: u64,
    /// Failed for a missing file before one that succeeded: a search along PATH.
    pub(crate) searched: u64,
    pub(crate) searching_creations: u64,
    /// Where these children were created.
    pub(crate) searching_places: Places,
    /// Failed execs of children that could execute nothing: the file is missing.
    pub(crate) missing: u64,
    /// These children, by the one file that they tried.
    pub(crate) missing_paths: TopNames,
    /// The others, by the name of the file that they tried last. Each tried several paths, as a
    /// search along PATH does.
    pub(crate) sought: TopNames,
    /// How many paths these tried.
    pub(crate) sought_paths: u64,
    pub(crate) missing_places: Places,
    pub(crate) busy: u64,
    pub(crate) busy_paths: TopNames,
    pub(crate) busy_places: Places,
    pub(crate) comm: String,
}

/// Places from which one process creates children, and how often.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places(HashMap<Place, u64>);

const MAX_PLACES: usize = 64;

impl Places {
    pub(crate) fn add(&mut self, place: Place, count: u64) {
        if self.0.len() < MAX_PLACES || self.0.contains_key(&place) {
            *self.0.entry(place).or_default() += count;
        }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&Place, u64)> {
        self.0.iter().map(|(place, count)| (place, *count))
    }
}

impl FailedExecs {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.creations += other.creations;
        self.searched += other.searched;
        self.searching_creations += other.searching_creations;
        self.missing += other.missing;
        self.missing_paths.merge(&other.missing_paths);
        self.sought.merge(&other.sought);
        self.sought_paths += other.sought_paths;
        self.busy += other.busy;
        self.busy_paths.merge(&other.busy_paths);
        for (mine, theirs) in [
            (&mut self.searching_places, &other.searching_places),
            (&mut self.missing_places, &other.missing_places),
            (&mut self.busy_places, &other.busy_places),
        ] {
            theirs.each().for_each(|(place, count)| mine.add(*place, count));
        }
    }

    /// Where all the children were created.
    pub(super) fn places(&self) -> impl Iterator<Item = (&Place, u64)> {
        let each = [&self.searching_places, &self.missing_places, &self.busy_places];
        each.into_iter().flat_map(Places::each)
    }
}

/// Shells started by one process name for lines of one fate.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShellGroup {
    pub(crate) count: u64,
    /// The shell's life from its exec on, less its programs' lives.
    pub(crate) overhead: Times,
    pub(crate) lines: TopNames,
    pub(crate) places: Places,
    pub(crate) comm: String,
    /// The user's lines that were read at these shells, and at no other creation.
    pub(crate) read: LineCounts,
    /// How many of them were started by a fork that copied their caller's memory.
    pub(crate) forked: u64,
    /// Their caller's anonymous memory, bytes.
    pub(crate) anon: Stream,
}

impl ShellGroup {
    /// Adds what is known of the caller.
    pub(super) fn add_caller(&mut self, creation: &Creation) {
        let copies = creation.kind == CreationKind::FullFork && !creation.flags.is_speculated();
        self.forked += u64::from(copies);
        // As of a `Group`: zero means unknown.
        if creation.memory != CallerMemory::default() {
            self.anon.add(creation.memory.anon as f64);
        }
    }
}
