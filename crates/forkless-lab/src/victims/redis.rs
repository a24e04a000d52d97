//! redis's snapshots: the fork that BGSAVE makes, whose time redis itself gives as
//! `latest_fork_usec`.
//!
//! The child would write gigabytes to a disk; it is ended once its parent has noted the time, by
//! the signal that redis takes for that (SIGUSR1, `killRDBChild`).

#![expect(unsafe_code, reason = "pidfd_open and pidfd_send_signal")]

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::kept::{Counted, huge_pages};
use super::parents::size;
use super::server::{PATIENCE, Server, Service, mostly_huge};
use super::stage::{Asked, FORK, Stage, Subject, params};
use crate::install;
use forkless_bench::engine::{Arm, Turn};
use forkless_bench::error::Error;
use forkless_bench::memory;
use forkless_run::{HugePages, Settings};

/// The fork for a snapshot of 2 GB.
pub(super) fn bgsave(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, 2048);
    // Headers and dictionary, beside the values.
    memory::require(2 * (mib << 20) / 4 * 5)?;
    let redis = stage.need("redis-server", "redis-server")?;
    stage.note(format!("{name}: {}", install::version(&redis, "--version").unwrap_or_default()));
    let mut start = |settings: Option<Settings>| Redis::start(name, stage, &redis, settings, mib);
    // The one that comes last gets the memory that is cheaper to copy: let it be the plain one.
    let run = start(Some(huge_pages(HugePages::Transparent)))?;
    let plain = start(None)?;
    let params = params(name, mib);
    let subject = |method, redis| Subject {
        method,
        params: params.clone(),
        metrics: std::slice::from_ref(&FORK),
        arm: Box::new(Snapshot { redis }),
    };
    let series = stage.measure(vec![subject("plain", &plain), subject("run", &run)])?;
    let (plain, run) = (plain.into_inner(), run.into_inner());
    let evidence = match mostly_huge(plain.pid) {
        Ok(_) => Err("the plain one has huge pages, too".to_owned()),
        Err(_) => mostly_huge(run.pid),
    };
    plain.finish()?;
    run.finish()?;
    let figure = stage.ratio(&series[0][0], &series[1][0]);
    stage.check(&params, Asked::SPEEDUP, figure, evidence);
    Ok(())
}

/// A server, and a connection to it.
pub(crate) struct Redis {
    server: Server,
    stream: UnixStream,
    /// Where other clients find it.
    pub(crate) socket: PathBuf,
    pub(crate) pid: u32,
}

impl Redis {
    fn start(
        name: &str,
        stage: &mut Stage<'_>,
        program: &Path,
        settings: Option<Settings>,
        mib: u64,
    ) -> Result<RefCell<Redis>, Error> {
        let mut redis = Redis::empty(name, stage, program, settings)?;
        // Ten KiB a value, so that the dictionary is small beside them.
        redis.call(&format!("DEBUG POPULATE {} key 10240", mib * 100))?;
        Ok(RefCell::new(redis))
    }

    /// A server without values.
    pub(crate) fn empty(
        name: &str,
        stage: &mut Stage<'_>,
        program: &Path,
        settings: Option<Settings>,
    ) -> Result<Redis, Error> {
        let directory = stage.directory("redis")?;
        let socket = directory.join("s");
        let words = ["--port", "0", "--save", "", "--daemonize", "no", "--enable-debug-command", "yes"];
        let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        arguments.extend(["--unixsocket".into(), socket.clone().into()]);
        arguments.extend(["--dir".into(), directory.into()]);
        let connect = || UnixStream::connect(&socket).ok();
        let arguments = &arguments;
        // Its log is standard output.
        let service =
            Service { name, settings, program, arguments, variables: &[], log: None, patience: PATIENCE };
        let (server, stream) = Server::start(stage, service, connect)?;
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).map_err(Error::io("set a time limit on a socket"))?;
        let mut redis = Redis { server, stream, socket: socket.clone(), pid: 0 };
        redis.pid = redis.info("server", "process_id")?;
        Ok(redis)
    }

    /// Ends the server and says what the library has counted in it.
    pub(crate) fn finish(self) -> Result<Counted, Error> {
        self.server.finish()
    }

    /// Sends a line and reads the answer: a line, or as many bytes as the line says.
    pub(crate) fn call(&mut self, line: &str) -> Result<String, Error> {
        let answer = self.answer(line);
        let answer =
            answer.map_err(|error| self.server.failure(&format!("did not answer {line:?}: {error}")))?;
        if answer.starts_with('-') {
            return Err(self.server.failure(&format!("answered {line:?} with {answer:?}")));
        }
        Ok(answer)
    }

    fn answer(&mut self, line: &str) -> std::io::Result<String> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())?;
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(b"\r\n") {
            self.stream.read_exact(&mut byte)?;
            text.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&text).trim_end().to_owned();
        if let Some(length) = head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) {
            let mut body = vec![0; length + 2];
            self.stream.read_exact(&mut body)?;
            return Ok(String::from_utf8_lossy(&body).into_owned());
        }
        Ok(head)
    }

    pub(crate) fn info<T: std::str::FromStr>(&mut self, section: &str, field: &str) -> Result<T, Error> {
        let text = self.call(&format!("INFO {section}"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.ok_or_else(|| self.server.failure(&format!("has no {field} in its INFO {section}")))
    }

    /// One snapshot, as far as its fork; microseconds.
    fn fork(&mut self) -> Result<f64, Error> {
        self.call("BGSAVE")?;
        let took = self.info("stats", "latest_fork_usec")?;
        end_child(self.pid);
        let end = Instant::now() + Duration::from_secs(60);
        while self.info::<u32>("persistence", "rdb_bgsave_in_progress")? != 0 {
            if Instant::now() >= end {
                return Err(self.server.failure("did not end its snapshot within 60 s"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(took)
    }
}

/// Tells the one child of a redis server to end. The child is its parent's to reap, and the check
/// after the opening makes sure that the number still means it.
fn end_child(parent: u32) {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = || fs::read_to_string(&path).unwrap_or_default();
    let Some(child) = children().split_whitespace().next().and_then(|pid| pid.parse::<i32>().ok()) else {
        return;
    };
    // SAFETY: takes a pid and flags.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) };
    let Some(fd) = i32::try_from(fd).ok().filter(|&fd| fd >= 0) else { return };
    // SAFETY: a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if children().split_whitespace().any(|pid| pid.parse() == Ok(child)) {
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: a descriptor of a process, a signal, no information, no flags.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGUSR1, none, 0) };
    }
}

struct Snapshot<'a> {
    redis: &'a RefCell<Redis>,
}

impl Arm for Snapshot<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        for repetition in 0..settle + counted {
            let took = self.redis.borrow_mut().fork()?;
            if repetition >= settle {
                turn.add(0, took);
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        1
    }
}
