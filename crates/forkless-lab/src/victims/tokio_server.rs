//! The program of the tokio victim: a server that holds much memory, answers requests with many
//! threads, and starts programs with a `pre_exec` function, for which std forks.
//!
//! It takes orders as the C victims do, and answers each with two numbers a repetition: the
//! nanoseconds that the call `spawn` took, and those until the child was awaited. Requests come
//! through a socket: eight bytes, answered by eight. For each the server writes to sixteen pages of
//! its memory, as one that keeps its sessions there.

#![expect(unsafe_code, reason = "pre_exec")]

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use forkless_bench::error::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::runtime::{Builder, Runtime};

/// Words a page.
const PAGE: usize = 4096 / 8;
/// Pages that a request writes to.
const WRITES: u64 = 16;

/// What to serve with.
#[derive(Debug)]
pub struct Setup {
    /// The socket's path, which must be free.
    pub socket: PathBuf,
    /// Memory to hold, in MiB.
    pub mib: usize,
    /// Threads of the runtime.
    pub threads: usize,
    /// The program to start.
    pub program: PathBuf,
}

type Memory = Arc<[AtomicU64]>;

/// Serves until standard input ends.
///
/// # Errors
/// When the socket, the runtime or a start fails, or an order cannot be understood.
pub fn main(setup: Setup) -> Result<(), Error> {
    let memory: Memory = (0..setup.mib << 17).map(|n| AtomicU64::new(n as u64)).collect();
    let runtime = Builder::new_multi_thread().worker_threads(setup.threads).enable_all().build();
    let runtime = runtime.map_err(Error::io("start a tokio runtime"))?;
    let listener = runtime.block_on(async { UnixListener::bind(&setup.socket) });
    let listener = listener.map_err(Error::io(format!("listen at {}", setup.socket.display())))?;
    runtime.spawn(accept(listener, memory));
    let mut output = std::io::stdout();
    let mut say = |line: String| writeln!(output, "{line}").map_err(Error::io("answer an order"));
    say("ready".to_owned())?;
    for order in std::io::stdin().lock().lines() {
        let order = order.map_err(Error::io("read an order"))?;
        let count = order.split_whitespace().nth(1).and_then(|count| count.parse().ok());
        let count: usize = count.ok_or_else(|| Error::Spec(format!("no order: {order:?}")))?;
        let mut times = Vec::with_capacity(2 * count);
        for _ in 0..count {
            times.extend(start(&runtime, &setup.program)?.map(|nanoseconds| nanoseconds.to_string()));
        }
        say(times.join(" "))?;
    }
    Ok(())
}

async fn accept(listener: UnixListener, memory: Memory) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, memory.clone()));
    }
}

async fn answer(mut stream: UnixStream, memory: Memory) {
    let pages = (memory.len() / PAGE).max(1) as u64;
    let mut key = [0; 8];
    // The end of the connection, or an error, ends the task.
    while stream.read_exact(&mut key).await.is_ok() {
        let mut place = u64::from_ne_bytes(key);
        for _ in 0..WRITES {
            // Knuth's multiplier (MMIX) spreads neighbouring keys.
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if let Some(word) = memory.get((place >> 16) as usize % pages as usize * PAGE) {
                word.store(place, Relaxed);
            }
        }
        if stream.write_all(&place.to_ne_bytes()).await.is_err() {
            return;
        }
    }
}

/// Starts the program in a task, on a thread of the runtime's.
fn start(runtime: &Runtime, program: &Path) -> Result<[u128; 2], Error> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the function does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    let task = runtime.spawn(async move {
        let begin = Instant::now();
        let mut child = command.spawn()?;
        let call = begin.elapsed();
        let status = child.wait().await?;
        if !status.success() {
            return Err(std::io::Error::other(format!("the child ended with {status}")));
        }
        Ok([call.as_nanos(), begin.elapsed().as_nanos()])
    });
    let done = runtime.block_on(task).map_err(std::io::Error::from);
    done.and_then(|started| started).map_err(Error::io(format!("start {}", program.display())))
}
