//! The same measurement in a process with the preloaded library of `forkless-run` in it. The
//! calling program starts itself once more with that library. This second process does the work of
//! one `Arm` and returns its figures over a pipe. So it takes its turns among the other arms of the
//! same run. Its fork is libc's, in a program that knows nothing of the library preloaded into it.
//!
//! The figures count only if the library was at work. When the process has ended, the library's
//! record must show that the forks were speculated and committed; otherwise the results say so.
//!
//! This library cannot know how to start itself as a program; the caller gives the words, and the
//! program must call [`serve`].

#[cfg(not(target_os = "linux"))]
#[path = "under_run/elsewhere.rs"]
mod launch;
#[cfg(target_os = "linux")]
#[path = "under_run/linux.rs"]
mod launch;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{Arm, Turn};
use crate::error::Error;
use crate::guard::Guard;
use crate::private_directory::PrivateDirectory;
use crate::quiet_pipe;
use crate::registry::Registry;
use crate::results::Suite;

/// The words that start a program which calls [`serve`]: its path and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingProgram(pub Vec<OsString>);

/// How results name the method.
pub const METHOD: &str = "fork_exec_under_run";

const TALK: &str = "talk to the process with the preloaded library";

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

/// The reply to a request: figures, or what went wrong.
#[derive(Debug, Serialize, Deserialize)]
enum TurnReply {
    Ready,
    Series(Vec<Vec<f64>>),
    Missing(String),
    Failed(String),
}

/// The request for a turn.
#[derive(Debug, Serialize, Deserialize)]
struct TurnRequest {
    settle: usize,
    counted: usize,
}

/// The second process, as its starter sees it.
#[derive(Debug)]
pub(crate) struct Forker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    counts: launch::Counts,
    directory: PrivateDirectory,
}

impl Forker {
    /// Starts it and waits until it has its memory.
    fn start(
        program: &ServingProgram,
        suite: &str,
        setup: &impl Serialize,
        guard: Option<&mut Guard>,
    ) -> Result<Forker, Error> {
        // In memory where possible: a page of the record that is written back to a disk faults
        // again.
        let directory = PrivateDirectory::in_memory(PrivateDirectory::CLOSED, guard)?;
        let complaints =
            File::create(directory.path().join("stderr")).map_err(Error::io("make a temporary file"))?;
        let (mut command, counts) = launch::prepare(&program.0, directory.path())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
        let mut child = command.spawn().map_err(Error::io("start a process with the preloaded library"))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let Some(answers) = answers.map(BufReader::new) else {
            return Err(Error::Missing("a process with the preloaded library has no output".into()));
        };
        let mut forker = Forker { child, requests, answers, counts, directory };
        let setup = serde_json::to_value(setup).map_err(|error| Error::io(TALK)(error.into()))?;
        match forker.ask(&Beginning { suite: suite.to_owned(), setup })? {
            TurnReply::Ready => Ok(forker),
            other => Err(forker.unexpected(other)),
        }
    }

    /// Sends one request and waits for its reply.
    fn ask(&mut self, request: &impl Serialize) -> Result<TurnReply, Error> {
        let line = serde_json::to_string(request).map_err(|error| Error::io(TALK)(error.into()))?;
        let sent = self
            .requests
            .as_mut()
            .map_or(Ok(()), |pipe| quiet_pipe::write_all(pipe, format!("{line}\n").as_bytes()));
        let mut line = String::new();
        // A write fails with EPIPE where the process has ended, and only its complaint says why.
        let received = sent.and_then(|()| self.answers.read_line(&mut line));
        if !matches!(received, Ok(1..)) {
            let how =
                received.map_or_else(|error| format!("cannot be talked to ({error})"), |_| "ended".into());
            let complaint = self.complaint();
            return Err(Error::Missing(format!("the process with the preloaded library {how}: {complaint}")));
        }
        serde_json::from_str(&line).map_err(|error| Error::io(TALK)(error.into()))
    }

    fn unexpected(&self, answer: TurnReply) -> Error {
        match answer {
            TurnReply::Missing(why) => Error::Missing(why),
            TurnReply::Failed(why) => Error::Missing(format!("with the preloaded library: {why}")),
            TurnReply::Ready | TurnReply::Series(_) => Error::Missing("an answer out of turn".into()),
        }
    }

    /// What the process said on standard error, in one line.
    fn complaint(&self) -> String {
        let text = fs::read(self.directory.path().join("stderr")).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().replace('\n', "; ")
    }

    /// Ends the process and says what the library did in it.
    fn finish(mut self) -> Result<ForkCounts, Error> {
        drop(self.requests.take());
        self.child.wait().map_err(Error::io("wait for the process with the preloaded library"))?;
        Ok(self.counts.forks())
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        // The end of its requests ends the process.
        drop(self.requests.take());
        let _ = self.child.wait();
    }
}

/// What the library did, by its record.
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

/// The program of the second process if it fits into memory; else the suite has a note. `state`:
/// that of the parent, as in "with 5 MiB of base pages".
pub(crate) fn if_it_fits<'a>(
    program: Option<&'a ServingProgram>,
    fits: bool,
    state: &str,
    suite: &mut Suite,
) -> Option<&'a ServingProgram> {
    let fitting = program.filter(|_| fits);
    if fitting.is_none() && program.is_some() {
        suite.notes.push(format!("skipped: {METHOD}{state}: a second process does not fit into memory"));
    }
    fitting
}

/// Starts the second process where there is a program for it. If it cannot be had, the suite has a
/// note.
pub(crate) fn start(
    program: Option<&ServingProgram>,
    setup: &impl Serialize,
    guard: Option<&mut Guard>,
    suite: &mut Suite,
) -> Result<Option<RefCell<Forker>>, Error> {
    let forker = program.map(|program| Forker::start(program, &suite.name, setup, guard)).transpose();
    Ok(or_note(forker, suite)?.flatten().map(RefCell::new))
}

/// Ends the second process. `None` where there was none, or it cannot tell: then the suite has a
/// note.
pub(crate) fn finish(
    forker: Option<RefCell<Forker>>,
    suite: &mut Suite,
) -> Result<Option<ForkCounts>, Error> {
    let done = forker.map(|forker| forker.into_inner().finish()).transpose();
    Ok(or_note(done, suite)?.flatten())
}

fn or_note<T>(result: Result<T, Error>, suite: &mut Suite) -> Result<Option<T>, Error> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(Error::Missing(why)) => {
            suite.notes.push(format!("skipped: {METHOD}: {why}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The second process's turns as an arm of the first.
pub(crate) struct Remote<'a> {
    pub(crate) forker: &'a RefCell<Forker>,
    pub(crate) series: usize,
}

impl Arm for Remote<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let mut forker = self.forker.borrow_mut();
        match forker.ask(&TurnRequest { settle, counted })? {
            TurnReply::Series(series) if series.len() == self.series => {
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
    let mut answer = |answer: &TurnReply| -> io::Result<()> {
        serde_json::to_writer(&mut output, answer)?;
        output.write_all(b"\n")?;
        output.flush()
    };
    let mut lines = input.lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let Beginning { suite, setup } = serde_json::from_str(&first?)?;
    let mut host = |arm: &mut dyn Arm| -> io::Result<()> {
        answer(&TurnReply::Ready)?;
        for line in lines.by_ref() {
            let TurnRequest { settle, counted } = serde_json::from_str(&line?)?;
            let mut turn = Turn::with_series(arm.series());
            match arm.turn(settle, counted, &mut turn) {
                Ok(()) => answer(&TurnReply::Series(turn.into_series()))?,
                Err(error) => answer(&TurnReply::Failed(error.to_string()))?,
            }
        }
        Ok(())
    };
    let built = match registry.of(&suite).host {
        Some(build) => build(&setup, &mut host),
        None => Err(Error::Spec(format!("{suite}: no suite that has a part in a second process"))),
    };
    match built {
        Ok(served) => served,
        Err(Error::Missing(why)) => answer(&TurnReply::Missing(why)),
        Err(error) => answer(&TurnReply::Failed(error.to_string())),
    }
}
