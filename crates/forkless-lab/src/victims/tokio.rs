//! A tokio server that starts programs with `pre_exec`: how long a start takes, and how long the
//! requests wait meanwhile that its other threads answer.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forkless_bench::check::Bound;
use forkless_bench::engine::{Arm, Turn};
use forkless_bench::error::Error;
use forkless_bench::memory;
use forkless_bench::results::{Metric, Param};
use forkless_bench::stats::quantile_sorted;
use forkless_run::Settings;

use super::coprocess::Coprocess;
use super::parents::size;
use super::stage::{Asked, Stage, Subject, US, params};

const CALL: Metric = Metric { name: "call", unit: "us", estimate: false };
const P99: Metric = Metric { name: "p99", unit: "us", estimate: false };

/// Clients at a time, each with a connection of its own.
const CLIENTS: u64 = 4;
/// A client's requests are due at this distance. A request that has to wait for the one before it
/// has waited since it was due: a server that hangs would hide most of them otherwise.
const DISTANCE: Duration = Duration::from_millis(1);
/// How long a request may wait for its answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A start by 32 threads and 8 GB, and the requests meanwhile.
pub(super) fn pre_exec(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, 8192);
    memory::require(2 * (mib << 20))?;
    let threads = stage.spec.threads;
    // The one that comes last gets the memory that is cheaper to copy: let it be the plain one.
    let run = Server::start(name, stage, Some(Settings::default()), mib, threads)?;
    let plain = Server::start(name, stage, None, mib, threads)?;
    let mut params = params(name, mib);
    params.insert("threads".to_owned(), Param::Number(threads as u64));
    let subject = |method, server| Subject {
        method,
        params: params.clone(),
        metrics: &[Metric::WALL, CALL, P99],
        arm: Box::new(Starts { server }),
    };
    let series = stage.measure(vec![subject("plain", &plain), subject("run", &run)])?;
    let run = run.into_inner();
    let asked = run.process.asked("start");
    let evidence = run.process.finish()?.commits(asked);
    let wall = stage.ratio(&series[0][0], &series[1][0]);
    stage.check(&params, Asked::SPEEDUP, wall, evidence.clone());
    let waits = stage.ratio(&series[1][2], &series[0][2]);
    let asked = Asked::beyond_one("p99 of requests meanwhile: run / plain", Bound::AtMost);
    stage.check(&params, asked, waits, evidence.clone());
    if evidence.is_ok() {
        stage.derive(name, "the call alone: plain / run", &series[0][1], &series[1][1]);
    }
    Ok(())
}

/// The server, and the clients' connections to it.
struct Server {
    process: Coprocess,
    clients: Vec<UnixStream>,
}

impl Server {
    fn start(
        name: &str,
        stage: &mut Stage<'_>,
        settings: Option<Settings>,
        mib: u64,
        threads: usize,
    ) -> Result<RefCell<Server>, Error> {
        let socket = stage.file("socket");
        let words = ["bench", "tokio-server"].map(OsString::from);
        let mut arguments = words.to_vec();
        arguments.extend([socket.clone().into(), mib.to_string().into(), threads.to_string().into()]);
        arguments.push(stage.child());
        let program = stage.forkless().as_os_str().to_owned();
        let process = stage.start(name, settings, &program, &arguments)?.into_inner();
        let clients = (0..CLIENTS).map(|_| connect(&socket)).collect::<Result<_, _>>()?;
        Ok(RefCell::new(Server { process, clients }))
    }

    /// So many starts, the requests due meanwhile, and how long these waited, in nanoseconds.
    fn starts(&mut self, count: usize) -> Result<(Vec<f64>, Vec<f64>), Error> {
        let Server { process, clients } = self;
        let end = OnceLock::new();
        std::thread::scope(|scope| {
            let ask = |(number, stream)| {
                let end = &end;
                let thread = std::thread::Builder::new();
                thread.spawn_scoped(scope, move || requests(stream, number, end)).map_err(Error::no_thread)
            };
            let threads: Vec<_> = (0..).zip(clients.iter_mut()).map(ask).collect();
            // Without one of its clients it would be another measurement.
            let times =
                if threads.iter().all(Result::is_ok) { process.ask("start", count) } else { Ok(Vec::new()) };
            let _ = end.set(Instant::now());
            let mut waits = Vec::new();
            for thread in threads.into_iter().collect::<Result<Vec<_>, _>>()? {
                let done = thread.join().map_err(|_| Error::Missing("a client's thread panicked".into()))?;
                waits.extend(done.map_err(Error::io("ask the tokio server"))?);
            }
            Ok((times?, waits))
        })
    }
}

fn connect(socket: &Path) -> Result<UnixStream, Error> {
    let stream =
        UnixStream::connect(socket).map_err(Error::io(format!("connect to {}", socket.display())))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(Error::io("set a time limit on a socket"))?;
    Ok(stream)
}

/// Sends every request that is due before the end; how long each took from then on.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
fn requests(stream: &mut UnixStream, number: u64, end: &OnceLock<Instant>) -> std::io::Result<Vec<f64>> {
    let mut waits = Vec::new();
    // The clients' requests are spread over the distance.
    let mut due = Instant::now() + DISTANCE * number as u32 / CLIENTS as u32;
    loop {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if end.get().is_some_and(|end| due > *end) {
            return Ok(waits);
        }
        let key = number << 32 | waits.len() as u64;
        stream.write_all(&key.to_ne_bytes())?;
        stream.read_exact(&mut [0; 8])?;
        waits.push(due.elapsed().as_nanos() as f64);
        due += DISTANCE;
    }
}

struct Starts<'a> {
    server: &'a RefCell<Server>,
}

impl Arm for Starts<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let mut server = self.server.borrow_mut();
        if settle > 0 {
            server.process.ask("start", settle)?;
        }
        let (times, mut waits) = server.starts(counted)?;
        for start in times.chunks_exact(2) {
            turn.add(0, start[1] * US);
            turn.add(1, start[0] * US);
        }
        waits.sort_unstable_by(f64::total_cmp);
        turn.add(2, quantile_sorted(&waits, 0.99) * US);
        Ok(())
    }

    fn series(&self) -> usize {
        3
    }
}
