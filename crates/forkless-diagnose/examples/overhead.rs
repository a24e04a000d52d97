//! What watching costs the watched machine: `cargo run --release -p forkless-diagnose --example
//! overhead`.
//!
//! Needs root, cc and an idle machine; takes about five minutes. It runs each load without a watch,
//! with a watch of the whole machine, and with system calls counted as well, interleaved. It prints
//! three figures: the median of each; the median ratio to the first of the same round, with the
//! middle half; and the watch's own CPU time, its start included, as a share of one CPU. The loads
//! are spawns of the cheapest program, one after the other, and getppid in a loop. A watch does
//! most of its work for the first creations of a place, so there are two rows of spawns: from the
//! first on, and after 20,000.

use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forkless_diagnose::{CostModel, Diagnosis, Thresholds, WatchOptions, WatchTarget};

const ROUNDS: usize = 15;
const SPAWNS: u32 = 5000;
const EARLIER: &str = "20000";
const CALLS: u32 = 3_000_000;

#[derive(Debug, Clone, Copy)]
enum Watching {
    Nothing,
    All,
    AllAndSystemCalls,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["spawns", program, earlier] => spawns(program, earlier.parse()?),
        ["calls"] => calls(),
        [] => compare(),
        _ => Err("usage: overhead (without arguments)".into()),
    }
}

fn compare() -> Result<(), Box<dyn Error>> {
    let tiny = std::env::temp_dir().join(format!("forkless-tiny-{}", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/diagnose/tiny.c");
    let built =
        Command::new("cc").args(["-O1", "-static", "-nostdlib", "-o"]).arg(&tiny).arg(source).status()?;
    if !built.success() {
        return Err("cc cannot build fixtures/diagnose/tiny.c".into());
    }
    let outcome = compare_with(&tiny.to_string_lossy());
    std::fs::remove_file(&tiny)?;
    outcome
}

fn compare_with(tiny: &str) -> Result<(), Box<dyn Error>> {
    let configurations = [Watching::Nothing, Watching::All, Watching::AllAndSystemCalls];
    let loads = [
        ("first spawns", "us", vec!["spawns", tiny, "0"]),
        ("later spawns", "us", vec!["spawns", tiny, EARLIER]),
        ("getppid", "ns", vec!["calls"]),
    ];
    for (name, unit, load) in loads {
        let mut results = vec![(Vec::new(), Vec::new()); configurations.len()];
        for _ in 0..ROUNDS {
            for (at, watching) in configurations.iter().enumerate() {
                let (began, cpu) = (Instant::now(), own_cpu_time());
                let each = under(*watching, || run_load(&load))?;
                results[at].0.push(each);
                results[at].1.push((own_cpu_time() - cpu) / began.elapsed().as_secs_f64());
            }
        }
        let base = results[0].0.clone();
        for (watching, (each, own)) in configurations.iter().zip(&mut results) {
            let against = |f: fn(f64, f64) -> f64| {
                let mut values: Vec<f64> = each.iter().zip(&base).map(|(e, b)| f(*e, *b)).collect();
                values.sort_by(f64::total_cmp);
                [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
            };
            let ([low, ratio, high], [_, more, _]) = (against(|e, b| e / b), against(|e, b| e - b));
            println!(
                "{name:12} {watching:?}: {:.1} {unit} each, ratio {ratio:.3} ({low:.3} to {high:.3}), {more:+.1} {unit}; \
                 the watch itself {:.1} % of a CPU",
                median(each),
                median(own) * 100.0,
            );
        }
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs `load` while a watch goes on in this process, as the command does it.
fn under<T>(
    watching: Watching,
    load: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let mut options = WatchOptions::new(WatchTarget::All);
    options.faults = false;
    options.system_calls = match watching {
        Watching::Nothing => return load(),
        Watching::All => false,
        Watching::AllAndSystemCalls => true,
    };
    let mut diagnosis = Diagnosis::start(&options, CostModel::default(), Thresholds::default())?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                diagnosis.poll(Duration::from_millis(100))?;
            }
            diagnosis.report()
        });
        let result = load();
        over.store(true, Ordering::Relaxed);
        let report = poller.join().map_err(|_| "the watch panicked")??;
        if report.totals.lost() > 0 {
            println!("lost {} events: {:?}", report.totals.lost(), report.totals);
        }
        result
    })
}

/// The load's own figure.
fn run_load(arguments: &[&str]) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).args(arguments).stderr(Stdio::inherit()).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// CPU time of this process, its ended threads included, in seconds.
fn own_cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn spawns(program: &str, earlier: u32) -> Result<(), Box<dyn Error>> {
    for _ in 0..earlier {
        Command::new(program).status()?;
    }
    let begin = Instant::now();
    for _ in 0..SPAWNS {
        Command::new(program).status()?;
    }
    println!("{}", begin.elapsed().as_secs_f64() * 1e6 / f64::from(SPAWNS));
    Ok(())
}

fn calls() -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    for _ in 0..CALLS {
        std::hint::black_box(rustix::process::getppid());
    }
    println!("{}", begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
    Ok(())
}
