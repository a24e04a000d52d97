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
use crate::error::Error;
use crate::noise::NoiseSnapshot;
use crate::registry::{Registration, Registry};
use crate::results::Suite;
use crate::spawn;
use crate::stats::bootstrap::Samples;

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

/// Fills `suite` by measuring its stages one after the other. `measure` gives the samples that show
/// how steady the machine was. A stage that this machine does not give is a note, in the words of
/// `name`.
///
/// # Errors
/// The first error of `measure` but [`Error::Missing`].
pub(crate) fn in_stages<T>(
    mut suite: Suite,
    stages: &[T],
    observer: &mut dyn Observer,
    name: impl Fn(&T) -> String,
    mut measure: impl FnMut(&T, &mut Stages<'_>, &mut Suite) -> Result<Option<Samples>, Error>,
) -> Result<Suite, Error> {
    let watch = NoiseSnapshot::start();
    let mut progress = Stages::new(observer, stages.len());
    let mut steady = None;
    for stage in stages {
        match measure(stage, &mut progress, &mut suite) {
            Ok(samples) => steady = steady.or(samples),
            Err(Error::Missing(why)) => suite.notes.push(format!("skipped: {}: {why}", name(stage))),
            Err(error) => return Err(error),
        }
        progress.next();
    }
    // Every stage may have said the same.
    let notes = std::mem::take(&mut suite.notes);
    suite.take_notes(notes);
    suite.noise = watch.finish(&steady);
    suite.notes.extend(suite.noise.warnings());
    Ok(suite)
}

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
