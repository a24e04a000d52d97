//! gunicorn with threads (`gthread`), whose application starts programs with `preexec_fn`.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forkless_bench::engine::{Arm, Turn};
use forkless_bench::error::Error;
use forkless_bench::memory;
use forkless_bench::results::Metric;
use forkless_run::Settings;

use super::parents::size;
use super::server::{PATIENCE, Server, Service};
use super::stage::{Asked, Stage, Subject, US, params};
use crate::install;

/// Threads of the worker.
const THREADS: usize = 8;

/// A start by a request, 1 GB.
pub(super) fn gthread(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, 1024);
    memory::require(2 * (mib << 20))?;
    let program = stage.need("gunicorn", "gunicorn")?;
    stage.note(format!("{name}: {}", install::version(&program, "--version").unwrap_or_default()));
    let directory = stage.directory("gthread")?;
    let file = directory.join("gthread.py");
    let written = std::fs::write(&file, include_str!("programs/gthread.py"));
    written.map_err(Error::io(format!("write {}", file.display())))?;
    // The one that comes last gets the memory that is cheaper to copy: let it be the plain one.
    let run = Gunicorn::start(name, stage, &program, &directory, Some(Settings::default()), mib)?;
    let plain = Gunicorn::start(name, stage, &program, &directory, None, mib)?;
    let params = params(name, mib);
    let subject = |method, gunicorn| Subject {
        method,
        params: params.clone(),
        metrics: std::slice::from_ref(&Metric::WALL),
        arm: Box::new(Starts { gunicorn }),
    };
    let series = stage.measure(vec![subject("plain", &plain), subject("run", &run)])?;
    plain.into_inner().server.finish()?;
    let run = run.into_inner();
    let evidence = run.server.finish()?.commits(run.asked);
    let figure = stage.ratio(&series[0][0], &series[1][0]);
    stage.check(&params, Asked::SPEEDUP, figure, evidence);
    Ok(())
}

struct Gunicorn {
    server: Server,
    socket: PathBuf,
    asked: u64,
}

impl Gunicorn {
    fn start(
        name: &str,
        stage: &mut Stage<'_>,
        program: &Path,
        directory: &Path,
        settings: Option<Settings>,
        mib: u64,
    ) -> Result<RefCell<Gunicorn>, Error> {
        let socket = stage.file("socket");
        let threads = THREADS.to_string();
        let words = ["--workers", "1", "--worker-class", "gthread", "--threads", &threads, "--timeout", "0"];
        let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        let bind = [OsStr::new("unix:"), socket.as_os_str()].join(OsStr::new(""));
        arguments.extend(["--bind".into(), bind, "--pythonpath".into(), directory.into()]);
        arguments.push("gthread:application".into());
        let variables = [("VICTIM_MIB", mib.to_string().into()), ("VICTIM_PROGRAM", stage.child())];
        let (arguments, variables) = (arguments.as_slice(), variables.as_slice());
        // Its log is standard error.
        let service =
            Service { name, settings, program, arguments, variables, log: None, patience: PATIENCE };
        let (server, _) = Server::start(stage, service, || get(&socket, "/hold").ok())?;
        let gunicorn = Gunicorn { server, socket, asked: 0 };
        // The pool has its threads once so many requests were answered at a time.
        let held: io::Result<Vec<String>> = std::thread::scope(|scope| {
            let hold = |_| std::thread::Builder::new().spawn_scoped(scope, || get(&gunicorn.socket, "/hold"));
            let threads: Vec<_> = (0..THREADS).map(hold).collect();
            let panicked = |_| Err(io::Error::other("a client's thread panicked"));
            threads.into_iter().map(|thread| thread?.join().unwrap_or_else(panicked)).collect()
        });
        held.map_err(|error| gunicorn.server.failure(&format!("did not answer: {error}")))?;
        Ok(RefCell::new(gunicorn))
    }

    /// So many starts; microseconds.
    fn starts(&mut self, count: usize) -> Result<Vec<f64>, Error> {
        self.asked += count as u64;
        let answer = get(&self.socket, &format!("/start/{count}"));
        let answer = answer.map_err(|error| self.server.failure(&format!("did not answer: {error}")))?;
        let times: Option<Vec<f64>> = answer.split_whitespace().map(|time| time.parse().ok()).collect();
        let times = times.filter(|times| times.len() == count);
        times.ok_or_else(|| self.server.failure(&format!("answered {answer:?}")))
    }
}

/// The body of the answer to a request.
fn get(socket: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    // By the older version: the answer to HTTP/1.1 comes in pieces, each with its length.
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let is_good = answer.starts_with("HTTP/1.") && answer.get(8..13) == Some(" 200 ");
    let body = answer.split_once("\r\n\r\n").filter(|_| is_good).map(|(_, body)| body.to_owned());
    body.ok_or_else(|| io::Error::other(format!("said {:?}", answer.lines().next().unwrap_or_default())))
}

struct Starts<'a> {
    gunicorn: &'a RefCell<Gunicorn>,
}

impl Arm for Starts<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let times = self.gunicorn.borrow_mut().starts(settle + counted)?;
        times.iter().skip(settle).for_each(|time| turn.add(0, time * US));
        Ok(())
    }

    fn series(&self) -> usize {
        1
    }
}
