//! The load on the store: an open loop of GET and SET over unix sockets.
//!
//! Requests have a time of their own, drawn beforehand, and are sent at that time whatever the
//! store has answered until then. A request's latency counts from that time. So a stall of 30 ms
//! delays every request that falls into it, as it would delay the requests of many clients. A
//! closed loop, which waits for each answer, would see such a stall once (coordinated omission).
//!
//! One thread sends and receives. It runs with real-time priority where it may: clients are on
//! other machines, and do not wait for the store's processors.

#![expect(unsafe_code, reason = "ppoll, and the priority of a thread")]

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use forkless_bench::clock::now;
use forkless_bench::error::Error;

/// Bytes of a value. All of them are the same letter: a snapshot compresses them, so that it is the
/// memory that is measured and not a disk.
pub(super) const VALUE: usize = 1024;

/// Connections, which take turns.
const CONNECTIONS: usize = 16;

/// The longest that the store may leave a request without an answer.
const PATIENCE_NS: u64 = 60_000_000_000;

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All alike.
    Uniform,
    /// A few often, most seldom: Zipf's law with the exponent 0.99, as YCSB has it.
    Skewed,
}

/// What is asked of the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) pattern: Pattern,
    /// Keys `key:0` to `key:(keys - 1)`.
    pub(super) keys: u64,
    /// Requests a second, half of them SET. Their distances are exponential (a Poisson process).
    pub(super) rate: f64,
    pub(super) seed: u64,
}

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// When it was due.
    pub(super) due: u64,
    /// Nanoseconds from then to its answer.
    pub(super) took: u64,
}

/// A load under way.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Answered>, Error>>>,
}

impl Load {
    /// Begins to ask.
    pub(super) fn start(socket: &Path, demand: Demand) -> Result<Load, Error> {
        let connect = || -> std::io::Result<UnixStream> {
            let stream = UnixStream::connect(socket)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let connections = (0..CONNECTIONS)
            .map(|_| connect().map(Connection::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::io("connect to redis"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("load".into())
            .spawn(move || ask(connections, &Requests::new(demand), demand, &stopped))
            .map_err(Error::no_thread)?;
        Ok(Load { stop, thread: Some(thread) })
    }

    /// Ends it, and returns all answered requests in the order of their answers.
    pub(super) fn finish(mut self) -> Result<Vec<Answered>, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(JoinHandle::join);
        joined.and_then(Result::ok).unwrap_or_else(|| Err(Error::Missing("the load's thread failed".into())))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The keys, by their popularity.
struct Requests {
    keys: u64,
    /// Of Zipf's law, the constants of the method of Gray and others (SIGMOD 1994, "Quickly
    /// generating billion-record synthetic databases").
    zipf: Option<[f64; 3]>,
}

const THETA: f64 = 0.99;

impl Requests {
    #[expect(clippy::cast_precision_loss, reason = "numbers of keys")]
    fn new(demand: Demand) -> Requests {
        let zipf = (demand.pattern == Pattern::Skewed).then(|| {
            let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
            let all = zeta(demand.keys);
            let alpha = 1.0 / (1.0 - THETA);
            let eta = (1.0 - (2.0 / demand.keys as f64).powf(1.0 - THETA)) / (1.0 - zeta(2) / all);
            [all, alpha, eta]
        });
        Requests { keys: demand.keys, zipf }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank below the number of keys"
    )]
    fn key(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let Some([all, alpha, eta]) = self.zipf else { return random.random_range(0..self.keys) };
        let u: f64 = random.random();
        let rank = if u * all < 1.0 {
            0
        } else if u * all < 1.0 + 0.5_f64.powf(THETA) {
            1
        } else {
            (self.keys as f64 * (eta * u - eta + 1.0).powf(alpha)) as u64
        };
        // Popular keys lie apart: a number that shares no factor with a power of two, and hardly
        // one with another number, spreads the ranks.
        rank.min(self.keys - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.keys
    }
}

/// One connection: what is yet to be sent, and the requests that wait for their answers.
struct Connection {
    stream: UnixStream,
    unsent: Vec<u8>,
    waiting: VecDeque<u64>,
    answer: Answer,
}

impl Connection {
    fn new(stream: UnixStream) -> Connection {
        Connection { stream, unsent: Vec::new(), waiting: VecDeque::new(), answer: Answer::default() }
    }

    fn send(&mut self) -> std::io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, answered: &mut Vec<Answered>) -> Result<(), Error> {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Error::Missing("redis closed a connection".into())),
                Ok(n) => {
                    let time = now();
                    for _ in 0..self.answer.take(&buffer[..n])? {
                        let Some(due) = self.waiting.pop_front() else {
                            return Err(Error::Missing("redis answered what nobody had asked".into()));
                        };
                        answered.push(Answered { due, took: time.saturating_sub(due) });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read from redis")(error)),
            }
        }
    }
}

/// What has come of an answer: of its first line, or of the bytes that the line announced.
#[derive(Debug, Default)]
struct Answer {
    line: Vec<u8>,
    /// Bytes to come of a value and the line end behind it.
    rest: usize,
}

impl Answer {
    /// Takes bytes, and returns how many answers end in them.
    fn take(&mut self, mut bytes: &[u8]) -> Result<usize, Error> {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.rest > 0 {
                let n = self.rest.min(bytes.len());
                self.rest -= n;
                bytes = &bytes[n..];
                ended += usize::from(self.rest == 0);
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end..];
            if !self.line.ends_with(b"\n") {
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
            self.line.clear();
            match (line.chars().next(), line.get(1..).and_then(|number| number.parse::<i64>().ok())) {
                (Some('$'), Some(length @ 0..)) => self.rest = usize::try_from(length).unwrap_or(0) + 2,
                (Some('+'), _) | (Some('$'), Some(_)) => ended += 1,
                _ => return Err(Error::Missing(format!("redis answered {line:?}"))),
            }
        }
        Ok(ended)
    }
}

/// Sends each request when it is due, and takes the answers that come.
fn ask(
    mut connections: Vec<Connection>,
    requests: &Requests,
    demand: Demand,
    stop: &AtomicBool,
) -> Result<Vec<Answered>, Error> {
    take_priority();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(demand.seed);
    let value = "x".repeat(VALUE);
    let mut answered = Vec::new();
    let mut due = now();
    let mut turn = 0;
    loop {
        let time = now();
        let stopped = stop.load(Ordering::Relaxed);
        while !stopped && due <= time {
            let connection = &mut connections[turn];
            turn = (turn + 1) % CONNECTIONS;
            let key = format!("key:{}", requests.key(&mut random));
            if random.random() {
                let _ = write!(connection.unsent, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
            } else {
                let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE}\r\n", key.len());
                connection.unsent.extend([head.as_bytes(), value.as_bytes(), b"\r\n"].concat());
            }
            connection.waiting.push_back(due);
            connection.send().map_err(Error::io("write to redis"))?;
            due += distance(random.random(), demand.rate);
        }
        let oldest = connections.iter().filter_map(|connection| connection.waiting.front()).min();
        match oldest {
            None if stopped => return Ok(answered),
            Some(&oldest) if time.saturating_sub(oldest) > PATIENCE_NS => {
                return Err(Error::Missing("redis left a request without an answer for 60 s".into()));
            }
            _ => {}
        }
        let until = if stopped { 1_000_000 } else { due.saturating_sub(now()).min(100_000_000) };
        for (index, ready) in ready(&connections, until).into_iter().enumerate() {
            let connection = &mut connections[index];
            if ready & !libc::POLLOUT != 0 {
                connection.receive(&mut answered)?;
            }
            if ready & libc::POLLOUT != 0 {
                connection.send().map_err(Error::io("write to redis"))?;
            }
        }
    }
}

/// Waits until a connection can be read, or written if it has something to send, for at most so
/// many nanoseconds.
fn ready(connections: &[Connection], nanoseconds: u64) -> [i16; CONNECTIONS] {
    let mut asked = [libc::pollfd { fd: -1, events: 0, revents: 0 }; CONNECTIONS];
    for (asked, connection) in asked.iter_mut().zip(connections) {
        let output = if connection.unsent.is_empty() { 0 } else { libc::POLLOUT };
        *asked =
            libc::pollfd { fd: connection.stream.as_raw_fd(), events: libc::POLLIN | output, revents: 0 };
    }
    // The callers give less than a second.
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999_999).cast_signed() };
    // SAFETY: an array of so many entries, and a time; no mask. An interrupted wait leaves no
    // events.
    unsafe {
        libc::ppoll(asked.as_mut_ptr(), CONNECTIONS as libc::nfds_t, &raw const time, std::ptr::null())
    };
    asked.map(|asked| asked.revents)
}

/// Nanoseconds to the next request: exponential, by a uniform number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
fn distance(uniform: f64, rate: f64) -> u64 {
    (-(1.0 - uniform).ln() / rate * 1e9) as u64
}

/// Real-time priority, and timers without slack, for this thread; as far as that is permitted.
fn take_priority() {
    // SAFETY: numbers alone, more of them with musl.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    // SAFETY: 0 is the calling thread; the structure is read.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const priority) };
    // SAFETY: takes a number of nanoseconds.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_are_counted_however_they_are_cut() {
        let text = b"+OK\r\n$3\r\na\nb\r\n$-1\r\n$0\r\n\r\n+OK\r\n";
        for size in 1..text.len() {
            let mut answer = Answer::default();
            let count: usize = text.chunks(size).map(|part| answer.take(part).unwrap()).sum();
            assert_eq!(count, 5, "in pieces of {size}");
        }
        let error = Answer::default().take(b"-OOM command not allowed\r\n").unwrap_err();
        assert!(error.to_string().contains("OOM"), "{error}");
    }

    #[test]
    fn skewed_keys_repeat_and_uniform_ones_hardly() {
        let most = |pattern| {
            let demand = Demand { pattern, keys: 10_000, rate: 1.0, seed: 1 };
            let requests = Requests::new(demand);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut counts = vec![0_u32; 10_000];
            for _ in 0..20_000 {
                counts[usize::try_from(requests.key(&mut random)).unwrap()] += 1;
            }
            *counts.iter().max().unwrap()
        };
        assert!(most(Pattern::Uniform) < 30);
        // A tenth of the requests, by the law.
        assert!((1000..4000).contains(&most(Pattern::Skewed)));
    }

    #[test]
    fn distances_have_the_mean_that_the_rate_asks_for() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let sum: u64 = (0..10_000).map(|_| distance(random.random(), 1000.0)).sum();
        assert!((9_000_000_000..11_000_000_000).contains(&sum), "{sum}");
    }

    /// The stall of a server delays all requests that fall into it, not only one of each
    /// connection.
    #[test]
    fn a_stall_is_seen_by_every_request_that_falls_into_it() {
        let directory = std::env::temp_dir().join(format!("forkless-load-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let socket = directory.join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let load =
            Load::start(&socket, Demand { pattern: Pattern::Uniform, keys: 10, rate: 2000.0, seed: 1 })
                .unwrap();
        let mut clients: Vec<UnixStream> = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
        // It answers nothing for a quarter of a second.
        thread::sleep(Duration::from_millis(250));
        load.stop.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        for client in &mut clients {
            client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut text = Vec::new();
            let _ = client.read_to_end(&mut text);
            let text = String::from_utf8_lossy(&text).into_owned();
            let sets = text.matches("SET\r\n").count();
            let gets = text.matches("GET\r\n").count();
            client.write_all(b"+OK\r\n".repeat(sets).as_slice()).unwrap();
            client.write_all(b"$-1\r\n".repeat(gets).as_slice()).unwrap();
        }
        let answered = load.finish().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        // Half a thousand are due in that time, more than ten for each connection.
        assert!(answered.len() > 10 * CONNECTIONS, "{}", answered.len());
        assert!(answered.iter().all(|one| one.took >= 10_000_000));
    }
}
