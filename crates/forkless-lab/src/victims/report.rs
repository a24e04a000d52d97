//! What `forkless run` says it did (`--report=FILE --json`): the evidence behind every figure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use forkless_bench::error::Error;
use serde::Deserialize;

/// A report; without `run` an empty one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Report {
    counters: BTreeMap<String, u64>,
    sites: Vec<Site>,
}

#[derive(Debug, Default, Deserialize)]
struct Site {
    reasons: Vec<Reason>,
}

#[derive(Debug, Deserialize)]
struct Reason {
    detail: String,
    count: u64,
}

impl Report {
    /// Reads the file that the collector of `run` has written.
    pub(super) fn read(path: &Path) -> Result<Report, Error> {
        let text = fs::read_to_string(path).map_err(Error::io("read the report of forkless run"))?;
        serde_json::from_str(&text).map_err(|error| Error::Child {
            method: "forkless run".into(),
            outcome: format!("left a report that cannot be read ({error})"),
        })
    }

    /// A counter; 0 when there is none of that name.
    pub(super) fn count(&self, counter: &str) -> u64 {
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

    /// Evidence that at least nine in ten of so many operations were counted: the share a busy machine may take by time
    /// limits is small, and anything larger would show in the median.
    pub(super) fn most(&self, counter: &str, operations: u64) -> Result<String, String> {
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
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!(report.most("committed", 100), Ok("95 committed in 100 operations".into()));
        let why = report.most("committed", 200).unwrap_err();
        assert!(why.contains("only 95") && why.contains("5 times: more than one thread"), "{why}");
        // Nothing done proves nothing.
        assert!(Report::default().most("committed", 0).is_err());
    }
}
