//! A victim that runs beside the bench. It announces itself with a line, then takes orders on its
//! standard input, one a line, and answers each with a line of numbers. At the end of the input it
//! ends, and what the library has counted in it can be read.

#![expect(unsafe_code, reason = "poll, so that a victim that hangs does not hang the suite")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::last_lines::last_words;
use forkless_bench::engine::{Arm, Turn};
use forkless_bench::error::Error;
use forkless_bench::quiet_pipe;
use forkless_run::Settings;

use super::kept::{Counted, Counts, KeptProcess};

/// How long a victim may take to hold its memory, or to carry out an order.
const PATIENCE: Duration = Duration::from_secs(100);

/// A victim's name, and which of its methods it is.
pub(super) fn who(name: &str, settings: Option<Settings>) -> String {
    format!("{name} ({})", if settings.is_some() { "run" } else { "plain" })
}

/// A running victim.
#[derive(Debug)]
pub(super) struct Coprocess {
    name: String,
    process: KeptProcess,
    output: ChildStdout,
    unread: Vec<u8>,
    errors: PathBuf,
    asked: BTreeMap<String, u64>,
    /// The order that it carries out, or carried out last.
    last: Option<String>,
}

impl Coprocess {
    /// Starts a [kept](super::kept::Kept) program and waits until the program says that it is
    /// ready. `errors` takes its standard error.
    pub(super) fn start(
        name: &str,
        settings: Option<Settings>,
        (mut command, counts): (Command, Counts),
        errors: PathBuf,
    ) -> Result<Coprocess, Error> {
        let file = File::create(&errors).map_err(Error::io(format!("create {}", errors.display())))?;
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .map_err(Error::io(format!("start the victim {name}")))?;
        let Some(output) = child.stdout.take() else {
            return Err(Error::Missing("no pipe to a victim".into()));
        };
        let name = who(name, settings);
        let mut started = Coprocess {
            name,
            process: KeptProcess::new(child, counts),
            output,
            unread: Vec::new(),
            errors,
            asked: BTreeMap::new(),
            last: None,
        };
        let line = started.line()?;
        if line.trim() != "ready" {
            return Err(started.failure(&format!("said {line:?} instead of being ready")));
        }
        Ok(started)
    }

    /// Has an order carried out `count` times; the numbers answered.
    pub(super) fn ask(&mut self, order: &str, count: usize) -> Result<Vec<f64>, Error> {
        let text = format!("{order} {count}\n");
        self.last = Some(text.trim_end().to_owned());
        let sent = self.process.input.as_mut().map(|input| quiet_pipe::write_all(input, text.as_bytes()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.failure("was gone"));
        }
        *self.asked.entry(order.to_owned()).or_default() += count as u64;
        let line = self.line()?;
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers {
            Ok(numbers) if !numbers.is_empty() && numbers.len().is_multiple_of(count) => Ok(numbers),
            _ => Err(self.failure(&format!("answered {line:?}"))),
        }
    }

    /// How many repetitions of an order were asked for so far.
    pub(super) fn asked(&self, order: &str) -> u64 {
        self.asked.get(order).copied().unwrap_or(0)
    }

    /// Ends the victim and says what the library has counted in it.
    pub(super) fn finish(mut self) -> Result<Counted, Error> {
        let status = self.process.end().map_err(Error::io("wait for a victim"))?;
        if !status.success() {
            return Err(self.failure(&format!("was told to end and ended with {status}")));
        }
        Ok(self.process.counted())
    }

    /// The next line it writes, waiting for it as long as it may take.
    fn line(&mut self) -> Result<String, Error> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=at).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            let left = end.saturating_duration_since(Instant::now());
            let mut watched = libc::pollfd { fd: self.output.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let milliseconds = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: one structure, as the length says.
            let ready = unsafe { libc::poll(&raw mut watched, 1, milliseconds) };
            if ready == 0 {
                return Err(self.failure(&format!("said nothing for {} s", PATIENCE.as_secs())));
            }
            let mut buffer = [0; 4096];
            match self.output.read(&mut buffer) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => self.unread.extend(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(format!("read from the victim {}", self.name))(error)),
            }
        }
    }

    /// Its output came to an end where an answer was due.
    fn ended(&mut self) -> Error {
        match self.process.end() {
            Ok(status) => self.failure(&format!("ended with {status} instead of an answer")),
            Err(_) => self.failure("ended instead of an answer"),
        }
    }

    /// The error that says how it failed, what it had been asked for, and what it said last.
    fn failure(&self, what: &str) -> Error {
        let order = self.last.as_ref().map_or("its start".to_owned(), |order| format!("the order {order:?}"));
        let last = last_words([self.errors.as_path()]);
        Error::Child { method: self.name.clone(), outcome: format!("{what}, after {order} ({last})") }
    }
}

/// Has C victims write their memory in turn, a little each. A fork's cost depends on where the
/// pages lie: of two equal processes, the one filled later took 43 % less, because its pages had
/// not been in use before.
pub(super) fn fill(victims: &[&RefCell<Coprocess>], mib: u64) -> Result<(), Error> {
    const PIECE: usize = 16;
    let mut left = usize::try_from(mib).unwrap_or(usize::MAX);
    let mut order = victims.to_vec();
    while left > 0 {
        for victim in &order {
            victim.borrow_mut().ask("touch", left.min(PIECE))?;
        }
        // Nobody is always first.
        order.rotate_left(1);
        left = left.saturating_sub(PIECE);
    }
    Ok(())
}

/// An order as an arm of the engine: nanoseconds come out in the unit wanted, in as many series as
/// the order has numbers.
pub(super) struct Order<'a> {
    process: &'a RefCell<Coprocess>,
    order: &'static str,
    series: usize,
    /// How many of the unit a nanosecond is.
    scale: f64,
}

impl<'a> Order<'a> {
    pub(super) fn arm(
        process: &'a RefCell<Coprocess>,
        order: &'static str,
        series: usize,
        scale: f64,
    ) -> Box<dyn Arm + 'a> {
        Box::new(Order { process, order, series, scale })
    }
}

impl Arm for Order<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let numbers = self.process.borrow_mut().ask(self.order, settle + counted)?;
        for repetition in numbers.chunks(self.series).skip(settle) {
            for (series, number) in repetition.iter().enumerate() {
                turn.add(series, number * self.scale);
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        self.series
    }
}
