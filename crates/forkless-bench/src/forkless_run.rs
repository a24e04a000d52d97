//! Running a program under `forkless run`: the one place that spells the command line, and that
//! reads the report (`--report=FILE --json`) that is the evidence behind every figure.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::Error;

/// What `run` is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunOptions {
    /// With forks.
    pub forks: Forks,
    /// With the program's memory.
    pub huge_pages: Option<HugePages>,
    /// Context switches without their system calls.
    pub fast_context: bool,
    /// Sets TZ, so that no local time asks for the file.
    pub time_zone: bool,
    /// Leaves the programs alone that this one starts.
    pub this_program_only: bool,
    /// How long a speculated child may take to execute something, in milliseconds.
    pub fork_limit_ms: Option<u32>,
    /// Says nothing of what it could not do.
    pub quiet: bool,
}

/// What becomes of forks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forks {
    /// As `run` decides.
    #[default]
    Usual,
    /// They stay as they are.
    Off,
    /// Speculated even where a program has threads.
    Speculate,
    /// Each is tried, as at a call site that is not known.
    Always,
    /// Speculated whatever size the parent has.
    OfAnySize,
}

/// Which huge pages memory is put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// Transparent ones.
    Transparent,
    /// Those of the pool.
    Pool,
}

impl RunOptions {
    /// Nothing but what `run` does by itself.
    pub const USUAL: RunOptions = RunOptions {
        forks: Forks::Usual,
        huge_pages: None,
        fast_context: false,
        time_zone: false,
        this_program_only: false,
        fork_limit_ms: None,
        quiet: false,
    };

    /// Forks stay as they are, and memory is put into huge pages.
    #[must_use]
    pub const fn huge_pages(kind: HugePages) -> RunOptions {
        RunOptions { forks: Forks::Off, huge_pages: Some(kind), ..RunOptions::USUAL }
    }

    /// The words to put before a program's; the report goes into a file, if one is given.
    #[must_use]
    pub fn before(&self, forkless: &Path, report: Option<&Path>) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![forkless.into(), "run".into()];
        words.extend(self.flags().into_iter().map(OsString::from));
        if let Some(report) = report {
            let mut flag = OsString::from("--report=");
            flag.push(report);
            words.extend(["--json".into(), flag]);
        }
        words.push("--".into());
        words
    }

    fn flags(&self) -> Vec<String> {
        let forks = match self.forks {
            Forks::Usual => None,
            Forks::Off => Some("--fork=off"),
            Forks::Speculate => Some("--fork=speculate"),
            Forks::Always => Some("--fork-always"),
            Forks::OfAnySize => Some("--fork-minimum=0"),
        };
        let huge_pages = self.huge_pages.map(|kind| match kind {
            HugePages::Transparent => "--huge-pages=thp",
            HugePages::Pool => "--huge-pages=hugetlb",
        });
        let plain = [
            forks,
            huge_pages,
            self.fast_context.then_some("--context=fast"),
            self.time_zone.then_some("--tz"),
            self.this_program_only.then_some("--children=no"),
            self.quiet.then_some("--quiet"),
        ];
        let limit = self.fork_limit_ms.map(|limit| format!("--fork-limit={limit}"));
        plain.into_iter().flatten().map(str::to_owned).chain(limit).collect()
    }
}

/// A report; without `run` an empty one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RunReport {
    counters: BTreeMap<String, u64>,
    sites: Vec<ReportedSite>,
}

#[derive(Debug, Default, Deserialize)]
struct ReportedSite {
    reasons: Vec<ReportedReason>,
}

#[derive(Debug, Deserialize)]
struct ReportedReason {
    detail: String,
    count: u64,
}

impl RunReport {
    /// Reads the file that the collector of `run` has written.
    ///
    /// # Errors
    /// When there is none, or it is no report.
    pub fn read(path: &Path) -> Result<RunReport, Error> {
        let text = fs::read_to_string(path).map_err(Error::io("read the report of forkless run"))?;
        serde_json::from_str(&text).map_err(|error| Error::Child {
            method: "forkless run".into(),
            outcome: format!("left a report that cannot be read ({error})"),
        })
    }

    /// A counter; 0 when there is none of that name.
    #[must_use]
    pub fn count(&self, counter: &str) -> u64 {
        self.counters.get(counter).copied().unwrap_or(0)
    }

    /// The commonest reason why forks were not committed.
    fn why(&self) -> String {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for reason in self.sites.iter().flat_map(|site| &site.reasons) {
            *counts.entry(&reason.detail).or_default() += reason.count;
        }
        let most = counts.into_iter().max_by_key(|&(_, count)| count);
        most.map_or_else(String::new, |(reason, count)| format!("; {count} times: {reason}"))
    }

    /// Why forks were not committed, each reason once.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for reason in self.sites.iter().flat_map(|site| &site.reasons) {
            if !reasons.contains(&reason.detail) {
                reasons.push(reason.detail.clone());
            }
        }
        reasons
    }

    /// Evidence that at least nine in ten of so many operations were counted. Time limits on a busy
    /// machine take a small share; a larger one would show in the median.
    ///
    /// # Errors
    /// The sentence that says how few they were, and why.
    pub fn most(&self, counter: &str, operations: u64) -> Result<String, String> {
        let count = self.count(counter);
        let words = counter.replace('_', " ");
        if operations > 0 && count * 10 >= operations * 9 {
            return Ok(format!("{count} {words} in {operations} operations"));
        }
        Err(format!("only {count} {words} in {operations} operations{}", self.why()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_needs_nearly_all_operations_and_names_the_reason_otherwise() {
        let text = r#"{"forkless_run":1,"counters":{"committed":95,"forks":100},"sites":[
            {"site":"x","reasons":[{"reason":"Threads","detail":"more than one thread","count":5}]}]}"#;
        let report: RunReport = serde_json::from_str(text).unwrap();
        assert_eq!(report.most("committed", 100), Ok("95 committed in 100 operations".into()));
        let why = report.most("committed", 200).unwrap_err();
        assert!(why.contains("only 95") && why.contains("5 times: more than one thread"), "{why}");
        // Nothing done proves nothing.
        assert!(RunReport::default().most("committed", 0).is_err());
    }
}
