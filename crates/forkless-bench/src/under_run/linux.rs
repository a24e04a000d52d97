//! The second process, with the preloaded library in it and a record that it counts into.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use forkless_run::{Counter, EnvironmentEntries, Launcher, RecordFile, Report, SWITCH_VARIABLE, Settings};

use super::ForkCounts;
use crate::error::Error;
use crate::plain;

/// What the library counts in the process.
#[derive(Debug)]
pub(super) struct Counts(RecordFile);

/// The process's command, and what will be counted in it; the record is in `directory`.
pub(super) fn prepare(program: &[OsString], directory: &Path) -> Result<(Command, Counts), Error> {
    // A child that a busy machine runs late would be undone, and another mechanism be measured.
    let patient = Settings { limit_ms: 10_000, ..Settings::default() };
    let mut environment = EnvironmentEntries::current();
    if plain::is_in_every_program() {
        // Plain methods have it switched off.
        environment.remove(SWITCH_VARIABLE);
    }
    let launcher = Launcher::new(program.to_vec(), patient, environment);
    let launcher = launcher.map_err(Error::io("find the program of a second process"))?;
    let examined = launcher.examine();
    let examined =
        examined.map_err(|why| Error::Missing(format!("no preloaded library in a second process: {why}")))?;
    let record = RecordFile::create_in(directory);
    let record = record.map_err(|error| {
        let why = std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
        Error::Missing(format!("{error}{why}"))
    })?;
    let mut prepared = examined.prepare();
    prepared.count_into(&record);
    Ok((prepared.command(), Counts(record)))
}

impl Counts {
    /// What has been counted so far.
    pub(super) fn forks(&self) -> ForkCounts {
        ForkCounts::of(&self.0.report())
    }
}

impl ForkCounts {
    fn of(report: &Report) -> ForkCounts {
        let mut reasons: Vec<String> = Vec::new();
        for (reason, _) in report.sites.iter().flat_map(|site| &site.reasons) {
            let reason = reason.to_string();
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        let (forks, committed) = (report.count(Counter::Forks), report.count(Counter::Committed));
        ForkCounts { forks, committed, reasons }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use forkless_run::AbortKind;

    use super::*;

    #[test]
    fn a_record_is_read_for_what_was_speculated_and_why_not() {
        let counts = Counts(RecordFile::create().unwrap());
        let none = counts.forks();
        assert!(!none.speculated(), "a program the library was not in has not been speculated");
        counts.0.record().add(Counter::Forks, 10);
        counts.0.record().add(Counter::Committed, 4);
        for key in [1, 2] {
            let site = counts.0.record().site(key, |_| 0).unwrap();
            site.forks.fetch_add(3, Relaxed);
            site.because(AbortKind::Threads.into());
        }
        let some = counts.forks();
        assert!(!some.speculated());
        let note = some.note().unwrap();
        assert!(note.contains("4 of 10") && note.ends_with("(more than one thread)"), "{note}");
        counts.0.record().add(Counter::Committed, 6);
        let all = counts.forks();
        assert!(all.speculated() && all.note().is_none());
    }
}
