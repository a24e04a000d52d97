//! Counts tests from the output of their runners.
//!
//! libtest and libtest-mimic close each binary with `test result: ok. 12 passed; 0 failed; ...`. A
//! test that cannot run on this machine prints a line that starts with `skipped:` and returns;
//! libtest calls that passed. With `--show-output` the line stands under the test's name, and the
//! test is counted here as skipped. A test of libtest-mimic says itself that it is `ignored`.
//!
//! Not cargo-nextest: CI would have to build it from source (minutes on two processors), it starts
//! a process for each test, and it does not know a test that skips itself.

use std::collections::{BTreeSet, HashMap};

/// Of a test that is ignored without a reason of its own.
const NO_REASON: &str = "runs on request, or its binary says above why not";

/// The counts so far, with the names for the closing summary.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Names of failures.
    pub(crate) failures: Vec<String>,
    /// Names of skipped checks, with their reasons.
    pub(crate) skips: Vec<String>,
}

impl Tally {
    /// Adds one check.
    pub(crate) fn check(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.failures.push(name.to_owned());
        }
    }

    /// Adds another tally.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
    }

    /// The line CI reads.
    pub(crate) fn closing(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Reads a runner's output line by line.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    tally: Tally,
    /// The passed test whose output is shown now.
    showing: Option<String>,
    /// The test whose name has been printed, and whose outcome has not.
    begun: Option<String>,
    /// Why a test will not run here, by its name.
    reasons: HashMap<String, String>,
    /// Inside the output of failed tests.
    failures: bool,
    /// Inside the output or the list of passed tests.
    successes: bool,
    /// `skipped:` lines outside the output of any test, since the last result line.
    loose: u64,
    /// Tests of this binary that printed `skipped:`.
    said_skipped: BTreeSet<String>,
    /// Binaries whose result line said FAILED, and the number that cargo gives.
    targets_seen: u64,
    targets_failed: u64,
    /// Result lines seen.
    results: u64,
}

/// Whether a line is worth showing while the tests run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Yes,
    No,
}

impl Reader {
    /// Takes one line of output.
    pub(crate) fn line(&mut self, line: &str) -> Show {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.result(counts);
            return Show::Yes;
        }
        if let Some(rest) = line.strip_prefix("error: ")
            && let Some((number, _)) = rest.split_once(" target")
            && rest.ends_with("failed:")
        {
            self.targets_failed += number.parse::<u64>().unwrap_or(1);
            return Show::Yes;
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.split(" stdout ----").next()) {
            self.showing = Some(name.to_owned());
            return if self.failures { Show::Yes } else { Show::No };
        }
        match line {
            "successes:" => {
                self.showing = None;
                self.failures = false;
                self.successes = true;
                return Show::No;
            }
            "failures:" => {
                self.showing = None;
                self.failures = true;
                self.successes = false;
                return Show::Yes;
            }
            _ => {}
        }
        if line.starts_with("skipped:") {
            match (&self.showing, self.failures) {
                (Some(name), false) => {
                    self.tally.skips.push(format!("{name}: {}", line.trim_start_matches("skipped:").trim()));
                    self.said_skipped.insert(name.clone());
                }
                (None, false) => {
                    self.tally.skips.push(line.trim_start_matches("skipped:").trim().to_owned());
                    self.loose += 1;
                }
                (_, true) => {}
            }
            return Show::Yes;
        }
        // A test of libtest-mimic that is known beforehand not to run here: its reason comes before
        // the tests begin, since "ignored" has none then.
        if let Some((name, why)) = line.split_once(": ignored, ")
            && !name.contains(' ')
        {
            self.reasons.insert(name.to_owned(), why.to_owned());
            return Show::Yes;
        }
        // Output that is not captured stands between the test's name and its outcome.
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.trim_end().strip_suffix(" ...")) {
            self.begun = Some(name.trim_end().to_owned());
            return Show::Yes;
        }
        if line == "FAILED"
            && let Some(name) = self.begun.take()
        {
            self.tally.failures.push(name);
            return Show::Yes;
        }
        if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, outcome)) = rest.rsplit_once(" ... ")
        {
            let name = name.trim_end();
            if outcome.starts_with("FAILED") {
                self.tally.failures.push(name.to_owned());
                return Show::Yes;
            }
            if let Some(why) = outcome.strip_prefix("ignored").or_else(|| outcome.strip_prefix("skipped")) {
                let why = why.trim_start_matches([',', ':', ' ']);
                let why = why.strip_prefix('(').and_then(|why| why.strip_suffix(')')).unwrap_or(why);
                let known = self.reasons.get(name).map_or(NO_REASON, String::as_str);
                let why = if why.is_empty() { known } else { why };
                self.tally.skips.push(format!("{name}: {why}"));
                return Show::Yes;
            }
            return if outcome.starts_with("ok") { Show::No } else { Show::Yes };
        }
        if self.successes || line.is_empty() { Show::No } else { Show::Yes }
    }

    fn result(&mut self, counts: &str) {
        let mut of = [0u64; 3];
        let mut words = counts.split([' ', ';']).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let (Ok(number), Some(kind)) = (word.parse::<u64>(), words.peek()) else { continue };
            match *kind {
                "passed" => of[0] = number,
                "failed" => of[1] = number,
                "ignored" | "skipped" => of[2] += number,
                _ => {}
            }
        }
        let said = (self.said_skipped.len() as u64).min(of[0]);
        self.tally.passed += of[0] - said;
        self.tally.failed += of[1];
        self.tally.skipped += of[2] + said;
        // The project's own harness counts the skips that it prints; libtest does not.
        if !counts.contains("skipped") {
            self.tally.skipped += self.loose;
        }
        self.loose = 0;
        self.results += 1;
        self.targets_seen += u64::from(of[1] > 0);
        self.said_skipped.clear();
        self.showing = None;
        self.failures = false;
        self.successes = false;
    }

    /// Ends the count. The step also fails where a binary died before its result line, the runner
    /// failed without naming a test, or no test ran.
    pub(crate) fn finish(mut self, step: &str, succeeded: bool) -> Tally {
        self.tally.skipped += self.loose;
        let died = self.targets_failed.saturating_sub(self.targets_seen);
        for _ in 0..died {
            self.tally.check(&format!("{step}: a test program ended without a result"), false);
        }
        if !succeeded && self.tally.failed == 0 {
            self.tally.check(&format!("{step}: failed"), false);
        }
        if succeeded && self.results == 0 {
            self.tally.check(&format!("{step}: no test ran"), false);
        }
        self.tally
    }

    /// [`Self::finish`] for a step that was stopped: one more failure, because the remaining tests
    /// did not run.
    pub(crate) fn cut_short(self, step: &str) -> Tally {
        let mut tally = self.finish(step, true);
        tally.check(step, false);
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(output: &str, succeeded: bool) -> Tally {
        let mut reader = Reader::default();
        for line in output.lines() {
            reader.line(line);
        }
        reader.finish("step", succeeded)
    }

    fn closing(output: &str, succeeded: bool) -> String {
        count(output, succeeded).closing()
    }

    #[test]
    fn results_of_several_binaries_are_added() {
        let output = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                      test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(closing(output, true), "7 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_step_that_is_cut_short_says_so_beside_its_failures() {
        let mut reader = Reader::default();
        reader.line("test a ... FAILED");
        reader.line(
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        let tally = reader.cut_short("tests: still running after 9 s");
        assert!(
            tally.failures.contains(&"tests: still running after 9 s".to_owned()),
            "{:?}",
            tally.failures
        );
        assert_eq!(tally.closing(), "2 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn a_passed_test_that_says_skipped_is_skipped_once() {
        let output = "test a ... ok\ntest b ... ok\n\nsuccesses:\n\n---- a stdout ----\nskipped: no clang\n\
                      skipped: no gdb\n\n---- b stdout ----\nfine\n\nsuccesses:\n    a\n    b\n\n\
                      test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        let tally = count(output, true);
        assert_eq!(tally.closing(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skips, ["a: no clang", "a: no gdb"]);
    }

    #[test]
    fn a_failed_test_that_says_skipped_stays_failed() {
        let output = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nskipped: half of it\n\nfailures:\n    a\n\n\
                      test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\nerror: 1 target failed:";
        let tally = count(output, false);
        assert_eq!(tally.closing(), "0 passed, 1 failed, 0 skipped");
        assert_eq!(tally.failures, ["a"]);
    }

    #[test]
    fn a_test_of_libtest_mimic_that_could_not_run_is_skipped_with_its_reason() {
        let output = "test of_the_log ... ok\ntest of_fentry ... ignored (the kernel refuses it)\n\n\
                      test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1.2s";
        let tally = count(output, true);
        assert_eq!(tally.closing(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skips, ["of_fentry: the kernel refuses it"]);
    }

    #[test]
    fn a_test_that_is_known_not_to_run_here_has_the_reason_that_was_given_before() {
        let output = "of_php: ignored, no php\n\ntest of_php ... ignored\ntest by_the_clock ... ignored\n\n\
                      test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.2s";
        let tally = count(output, true);
        assert_eq!(tally.skips, ["of_php: no php".to_owned(), format!("by_the_clock: {NO_REASON}")]);
    }

    #[test]
    fn a_skip_outside_any_test_counts() {
        assert_eq!(
            closing("skipped: no musl\ntest result: ok. 1 passed; 0 failed", true),
            "1 passed, 0 failed, 1 skipped"
        );
    }

    #[test]
    fn a_skip_that_its_harness_counts_is_not_counted_again() {
        let output =
            "test a ... skipped: no root\nskipped: no root\ntest result: ok. 1 passed; 0 failed; 1 skipped";
        assert_eq!(closing(output, true), "1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn what_failed_tests_printed_is_shown_and_what_passed_ones_printed_is_not() {
        let mut reader = Reader::default();
        let shown: Vec<Show> =
            ["successes:", "---- a stdout ----", "noise", "failures:", "---- b stdout ----", "why"]
                .iter()
                .map(|line| reader.line(line))
                .collect();
        assert_eq!(shown, [Show::No, Show::No, Show::No, Show::Yes, Show::Yes, Show::Yes]);
    }

    #[test]
    fn a_failed_test_that_printed_before_its_outcome_is_named() {
        let output =
            "test a::b    ... \npanicked\nFAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored";
        assert_eq!(count(output, false).failures, ["a::b"]);
    }

    #[test]
    fn a_binary_that_died_beside_one_that_failed_is_counted() {
        let output = "test result: FAILED. 1 passed; 2 failed; 0 ignored\nerror: 2 targets failed:";
        assert_eq!(closing(output, false), "1 passed, 3 failed, 0 skipped");
    }

    #[test]
    fn a_runner_that_fails_before_any_test_is_one_failure() {
        assert_eq!(closing("error: could not compile `x`", false), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_runner_that_ran_nothing_has_not_passed() {
        assert_eq!(closing("", true), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn the_words_of_another_harness_are_read_too() {
        assert_eq!(
            closing("test result: 30 passed; 0 failed; 12 skipped", true),
            "30 passed, 0 failed, 12 skipped"
        );
    }
}
