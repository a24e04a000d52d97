//! The same measurement in a process under `forkless run`. The calling program starts itself once
//! more through `run`; this second process does the work of one `Arm` and returns its figures over
//! a pipe. So it takes its turns among the other arms of the same run. What it forks is libc's
//! `fork`, in a program that knows nothing of the library preloaded into it.
//!
//! The figures count only if the library was at work. When the process ends, the report of `run`
//! must show that the forks were speculated and committed; otherwise the results say so.
//!
//! This library cannot know how to start itself as a program; the caller gives the program, whose
//! `bench forker` must call [`serve`].

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{Arm, Turn};
use crate::error::Error;
use crate::forkless_run::{RunOptions, RunReport};
use crate::guard::Guard;
use crate::program::private_directory;
use crate::registry::Registry;

/// The program that has both `run` and `bench forker`: its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher(pub PathBuf);

/// How results name the method.
pub const METHOD: &str = "fork_exec_under_run";

const TALK: &str = "talk to the process under forkless run";

/// The first line to the second process: which suite's part it is, and what is to be built for it.
#[derive(Debug, Serialize, Deserialize)]
struct Beginning {
    suite: String,
    setup: Value,
}

/// A setup as the suite knows it.
///
/// # Errors
/// [`Error::Spec`] where it is that of another suite.
pub(crate) fn setup<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<T, Error> {
    T::deserialize(value).map_err(|error| Error::Spec(format!("not a setup of this suite: {error}")))
}

/// Answer to a request: figures, or what went wrong.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ready,
    Series(Vec<Vec<f64>>),
    Missing(String),
    Failed(String),
}

/// The request for a turn.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    settle: usize,
    counted: usize,
}

/// The second process, as its starter sees it.
#[derive(Debug)]
pub(crate) struct Forker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
}

impl Forker {
    /// Starts it and waits until it has its memory.
    pub(crate) fn start(
        launcher: &Launcher,
        suite: &str,
        setup: &impl Serialize,
        guard: Option<&mut Guard>,
    ) -> Result<Forker, Error> {
        let directory = private_directory(&std::env::temp_dir())?;
        let started = (|| {
            if let Some(guard) = guard {
                guard.remove_directory(&directory)?;
            }
            let complaints =
                File::create(directory.join("stderr")).map_err(Error::io("make a temporary file"))?;
            // A child that a busy machine runs late would be undone, and another mechanism be
            // measured.
            let patient = RunOptions { fork_limit_ms: Some(10_000), ..RunOptions::USUAL };
            let report = directory.join("report");
            let words = patient.before(&launcher.0, Some(&report));
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg(&launcher.0).args(["bench", "forker"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
            command.spawn().map_err(Error::io("start a process under forkless run"))
        })();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                return Err(error);
            }
        };
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let Some(answers) = answers.map(BufReader::new) else {
            return Err(Error::Missing("a process under forkless run has no output".into()));
        };
        let mut forker = Forker { child, requests, answers, directory };
        let setup = serde_json::to_value(setup).map_err(|error| Error::io(TALK)(error.into()))?;
        match forker.ask(&Beginning { suite: suite.to_owned(), setup })? {
            Answer::Ready => Ok(forker),
            other => Err(forker.unexpected(other)),
        }
    }

    /// One request, one answer.
    fn ask(&mut self, request: &impl Serialize) -> Result<Answer, Error> {
        let line = serde_json::to_string(request).map_err(|error| Error::io(TALK)(error.into()))?;
        let sent = self.requests.as_mut().map_or(Ok(()), |pipe| writeln!(pipe, "{line}"));
        let mut line = String::new();
        // A write fails with EPIPE where the process has ended, and only its complaint says why.
        let received = sent.and_then(|()| self.answers.read_line(&mut line));
        if !matches!(received, Ok(1..)) {
            let how =
                received.map_or_else(|error| format!("cannot be talked to ({error})"), |_| "ended".into());
            let complaint = self.complaint();
            return Err(Error::Missing(format!("the process under forkless run {how}: {complaint}")));
        }
        serde_json::from_str(&line).map_err(|error| Error::io(TALK)(error.into()))
    }

    fn unexpected(&self, answer: Answer) -> Error {
        match answer {
            Answer::Missing(why) => Error::Missing(why),
            Answer::Failed(why) => Error::Missing(format!("under forkless run: {why}")),
            Answer::Ready | Answer::Series(_) => Error::Missing("an answer out of turn".into()),
        }
    }

    /// What `run` or the process said on standard error, in one line.
    fn complaint(&self) -> String {
        let text = fs::read(self.directory.join("stderr")).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().trim_start_matches("forkless: ").replace('\n', "; ")
    }

    /// Ends the process and says what the library did in it.
    pub(crate) fn finish(mut self) -> Result<ForkCounts, Error> {
        drop(self.requests.take());
        self.child.wait().map_err(Error::io("wait for the process under forkless run"))?;
        // `run` has a collector write the report when the last process of the tree is gone: soon,
        // but later.
        let path = self.directory.join("report");
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(report) = RunReport::read(&path) {
                return Ok(ForkCounts::of(&report));
            }
            // Without a report, which `run` opens before it executes anything, the program ran
            // plainly.
            if !path.exists() || Instant::now() > end {
                return Err(Error::Missing(format!("forkless run did nothing: {}", self.complaint())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        // The end of its requests ends the process.
        drop(self.requests.take());
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What the library did, from the report of `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkCounts {
    /// Forks the library saw.
    pub(crate) forks: u64,
    /// Those of them whose child executed a program without the memory ever being copied.
    pub(crate) committed: u64,
    /// Why others were not, each once.
    pub(crate) reasons: Vec<String>,
}

impl ForkCounts {
    fn of(report: &RunReport) -> ForkCounts {
        ForkCounts {
            forks: report.count("forks"),
            committed: report.count("committed"),
            reasons: report.reasons(),
        }
    }

    /// Whether (all but a hundredth of) what was measured is what the row claims.
    pub(crate) fn speculated(&self) -> bool {
        self.forks > 0 && self.committed * 100 >= self.forks * 99
    }

    /// A sentence on forks that were not speculated; `None` when all were.
    pub fn note(&self) -> Option<String> {
        let reasons =
            if self.reasons.is_empty() { "no reason given".to_owned() } else { self.reasons.join(", ") };
        (self.committed < self.forks).then(|| {
            format!(
                "{METHOD}: {} of {} forks were speculated and committed ({reasons})",
                self.committed, self.forks
            )
        })
    }
}

/// The second process's turns as an arm of the first.
pub(crate) struct Remote<'a> {
    pub(crate) forker: &'a std::cell::RefCell<Forker>,
    pub(crate) series: usize,
}

impl Arm for Remote<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let mut forker = self.forker.borrow_mut();
        match forker.ask(&Request { settle, counted })? {
            Answer::Series(series) if series.len() == self.series => {
                for (index, values) in series.into_iter().enumerate() {
                    values.into_iter().for_each(|value| turn.add(index, value));
                }
                Ok(())
            }
            other => Err(forker.unexpected(other)),
        }
    }

    fn series(&self) -> usize {
        self.series
    }
}

/// The second process: builds what the first line asks for and repeats it as the following lines
/// ask, until there are none.
///
/// # Errors
/// When an answer cannot be written.
pub fn serve(input: impl BufRead, mut output: impl Write, registry: Registry) -> io::Result<()> {
    let mut answer = |answer: &Answer| -> io::Result<()> {
        serde_json::to_writer(&mut output, answer)?;
        output.write_all(b"\n")?;
        output.flush()
    };
    let mut lines = input.lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let Beginning { suite, setup } = serde_json::from_str(&first?)?;
    let mut host = |arm: &mut dyn Arm| -> io::Result<()> {
        answer(&Answer::Ready)?;
        for line in lines.by_ref() {
            let Request { settle, counted } = serde_json::from_str(&line?)?;
            let mut turn = Turn::with_series(arm.series());
            match arm.turn(settle, counted, &mut turn) {
                Ok(()) => answer(&Answer::Series(turn.into_series()))?,
                Err(error) => answer(&Answer::Failed(error.to_string()))?,
            }
        }
        Ok(())
    };
    let built = match registry.of(&suite).host {
        Some(build) => build(&setup, &mut host),
        None => Err(Error::Spec(format!("{suite}: no suite that has a part under forkless run"))),
    };
    match built {
        Ok(served) => served,
        Err(Error::Missing(why)) => answer(&Answer::Missing(why)),
        Err(error) => answer(&Answer::Failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_for_what_was_speculated_and_why_not() {
        let report = serde_json::json!({
            "counters": {"forks": 10, "committed": 4},
            "sites": [{"reasons": [{"detail": "more than one thread", "count": 6}]}],
        });
        let outcome = ForkCounts::of(&serde_json::from_value(report).unwrap());
        assert!(!outcome.speculated());
        assert!(outcome.note().unwrap().contains("4 of 10"), "{outcome:?}");
        let all = ForkCounts { forks: 10, committed: 10, reasons: vec![] };
        assert!(all.speculated() && all.note().is_none());
        let none = ForkCounts { forks: 0, committed: 0, reasons: vec![] };
        assert!(!none.speculated(), "a program the library was not in has not been speculated");
    }
}
