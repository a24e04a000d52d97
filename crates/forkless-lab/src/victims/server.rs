//! Victims that are servers: started with a configuration of the suite's own, told to end by
//! SIGTERM, talked to over sockets.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forkless_bench::error::Error;
use forkless_run::Settings;

use super::coprocess::who;
use super::kept::{Counted, KeptProcess};
use super::stage::Stage;
use crate::last_lines::last_words;

/// How long a server may take until it answers.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    process: KeptProcess,
    /// Standard output and standard error, and the server's own log.
    words: Vec<PathBuf>,
}

/// A server to start.
pub(super) struct Service<'a> {
    /// The victim's name.
    pub(super) name: &'a str,
    pub(super) settings: Option<Settings>,
    pub(super) program: &'a Path,
    pub(super) arguments: &'a [OsString],
    pub(super) variables: &'a [(&'a str, OsString)],
    /// The file that the server writes its complaints to, where that is not standard error or
    /// standard output.
    pub(super) log: Option<PathBuf>,
    /// How long it may take until it answers.
    pub(super) patience: Duration,
}

impl Server {
    /// Starts a server and asks `answers` until it does.
    pub(super) fn start<T>(
        stage: &mut Stage<'_>,
        service: Service<'_>,
        mut answers: impl FnMut() -> Option<T>,
    ) -> Result<(Server, T), Error> {
        let Service { name, settings, program, arguments, variables, log, patience } = service;
        let errors = stage.file("errors");
        let name = who(name, settings);
        let made = File::create(&errors).and_then(|file| Ok((file.try_clone()?, file)));
        let (output, error) = made.map_err(Error::io(format!("create {}", errors.display())))?;
        let (mut command, counts) =
            stage.keep("--on-terminate", settings, program.as_os_str(), arguments, variables)?;
        let child = command
            // redis complains there.
            .stdout(output)
            .stderr(error)
            .spawn()
            .map_err(Error::io(format!("start the server {name}")))?;
        let words = std::iter::once(errors).chain(log).collect();
        let mut server = Server { name, process: KeptProcess::new(child, counts), words };
        let end = Instant::now() + patience;
        loop {
            if let Some(answer) = answers() {
                return Ok((server, answer));
            }
            if let Ok(Some(status)) = server.process.child.try_wait() {
                return Err(server.failure(&format!("ended with {status} before it answered")));
            }
            if Instant::now() >= end {
                return Err(server.failure(&format!("did not answer for {} s", patience.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the server and says what the library has counted in it.
    pub(super) fn finish(mut self) -> Result<Counted, Error> {
        let status = self.process.end().map_err(Error::io("wait for a server"))?;
        if !status.success() {
            return Err(self.failure(&format!("was told to end by SIGTERM and ended with {status}")));
        }
        Ok(self.process.counted())
    }

    /// The error that says how the server failed, and what it said last.
    pub(crate) fn failure(&self, what: &str) -> Error {
        let last = last_words(self.words.iter().map(PathBuf::as_path));
        Error::Child { method: self.name.clone(), outcome: format!("{what} ({last})") }
    }
}

/// A process's memory in KiB: what lies in transparent huge pages, what comes from a pool, and all
/// of it.
pub(crate) fn huge(pid: u32) -> Option<[u64; 3]> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let field = |name: &str| {
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let pool = field("Private_Hugetlb") + field("Shared_Hugetlb");
    Some([field("AnonHugePages"), pool, field("Anonymous") + pool])
}

/// Evidence that most of a process's memory lies in huge pages, and in which.
pub(super) fn mostly_huge(pid: u32) -> Result<String, String> {
    mostly(pid, |transparent, pool| transparent + pool)
}

/// Evidence that most of a process's memory lies in huge pages of the pool.
pub(super) fn mostly_pool(pid: u32) -> Result<String, String> {
    mostly(pid, |_, pool| pool)
}

fn mostly(pid: u32, counts: impl Fn(u64, u64) -> u64) -> Result<String, String> {
    let Some([transparent, pool, all]) = huge(pid) else { return Err("its pages cannot be seen".to_owned()) };
    let words = format!(
        "{} of {} MiB in transparent huge pages, {} from the pool",
        transparent >> 10,
        all >> 10,
        pool >> 10
    );
    if all > 0 && counts(transparent, pool) * 2 > all { Ok(words) } else { Err(format!("only {words}")) }
}
