//! The suites beyond [`spawn`], one module each.

pub(crate) mod batch;
#[cfg(target_os = "linux")]
pub mod blobs;
#[cfg(target_os = "linux")]
pub mod blockwrite;
pub mod context;
pub mod cow;
pub mod memory;
pub mod syscalls;

use crate::engine::Observer;
use crate::registry::{Registration, Registry};
use crate::spawn;

/// The suites of this crate.
pub const ALL: &[Registration] = &[
    spawn::SUITE,
    memory::SUITE,
    cow::SUITE,
    syscalls::SUITE,
    context::SUITE,
    #[cfg(target_os = "linux")]
    blockwrite::SUITE,
];

/// The registry of these alone.
pub const SUITES: Registry = Registry(&[ALL]);

/// Makes one progress out of several runs of the engine, one after the other.
pub struct Stages<'a> {
    inner: &'a mut dyn Observer,
    stage: usize,
    stages: usize,
}

impl<'a> Stages<'a> {
    /// `stages` runs that `inner` is to hear of as one.
    pub fn new(inner: &'a mut dyn Observer, stages: usize) -> Stages<'a> {
        Stages { inner, stage: 0, stages }
    }

    /// The next run begins after this one.
    pub fn next(&mut self) {
        self.stage += 1;
    }
}

impl Observer for Stages<'_> {
    fn progress(&mut self, done: usize, total: usize) {
        self.inner.progress(self.stage * total + done, self.stages * total);
    }

    fn note(&mut self, text: &str) {
        self.inner.note(text);
    }
}
