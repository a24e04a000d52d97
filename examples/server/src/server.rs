// The server. Both programs include this file, and import the `Command` and `Stdio` that it uses.
//
// The server holds memory that it has written, like a cache or a heap. Now and then it starts a
// helper, in another directory and as another user. It times the start, and the next pass over its
// memory, since a fork leaves every page write-protected.

use std::process::ExitCode;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn main() -> ExitCode {
    let mut json = false;
    let mut numbers = Vec::new();
    for arg in std::env::args().skip(1) {
        match (arg.as_str(), arg.parse::<usize>()) {
            ("--json", _) => json = true,
            (_, Ok(number)) if number > 0 && numbers.len() < 2 => numbers.push(number),
            _ => {
                eprintln!("usage: {} [--json] [MIB [STARTS]]", env!("CARGO_BIN_NAME"));
                return ExitCode::from(2);
            }
        }
    }
    let mib = numbers.first().copied().unwrap_or(1024);
    let starts = numbers.get(1).copied().unwrap_or(20);
    match serve(mib, starts) {
        Ok(served) => {
            if json {
                println!("{}", served.json());
            } else {
                println!("{}", served.text());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", env!("CARGO_BIN_NAME"));
            ExitCode::FAILURE
        }
    }
}

/// The times measured: one for each start, and one for each pass over the memory.
struct Served {
    mib: usize,
    starts: Vec<Duration>,
    passes_before: Vec<Duration>,
    passes_after: Vec<Duration>,
}

fn serve(mib: usize, starts: usize) -> Result<Served, String> {
    let Some(bytes) = mib.checked_mul(1 << 20) else { return Err(format!("{mib} MiB is more than can be addressed")) };
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|e| format!("{mib} MiB: {e}"))?;
    memory.resize(bytes, 1_u8);

    let mut served =
        Served { mib, starts: Vec::new(), passes_before: Vec::new(), passes_after: Vec::new() };
    for _ in 0..5 {
        served.passes_before.push(pass(&mut memory));
    }
    for _ in 0..starts {
        let since = Instant::now();
        start()?;
        served.starts.push(since.elapsed());
        served.passes_after.push(pass(&mut memory));
    }
    Ok(served)
}

/// Starts the helper and waits for it. The helper has no privileges, nothing on its standard
/// streams, and the root as its directory.
fn start() -> Result<(), String> {
    // Only root may change to another user. Asking for the own user takes the same path in both
    // libraries.
    let (uid, gid) = match rustix::process::geteuid().as_raw() {
        0 => (65534, 65534),
        own => (own, rustix::process::getegid().as_raw()),
    };
    let status = Command::new("/bin/true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .gid(gid)
        .uid(uid)
        .status()
        .map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("/bin/true: {status}")) }
}

/// Writes once to each page, like the work between two starts.
fn pass(memory: &mut [u8]) -> Duration {
    let since = Instant::now();
    for byte in memory.iter_mut().step_by(PAGE) {
        *byte = byte.wrapping_add(1);
    }
    std::hint::black_box(memory);
    since.elapsed()
}

fn median_us(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

impl Served {
    fn json(&self) -> String {
        format!(
            "{{\"mib\":{},\"starts\":{},\"start_us\":{:.1},\"pass_before_us\":{:.1},\"pass_after_us\":{:.1}}}",
            self.mib,
            self.starts.len(),
            median_us(&self.starts),
            median_us(&self.passes_before),
            median_us(&self.passes_after)
        )
    }

    fn text(&self) -> String {
        format!(
            "{} MiB held, {} programs started; medians:\n  a start, until the program ended  {:>9.2} ms\n  a pass over \
             the memory before    {:>9.2} ms\n  a pass over the memory after it   {:>9.2} ms",
            self.mib,
            self.starts.len(),
            median_us(&self.starts) / 1e3,
            median_us(&self.passes_before) / 1e3,
            median_us(&self.passes_after) / 1e3
        )
    }
}
