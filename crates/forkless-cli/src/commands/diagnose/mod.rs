//! `forkless diagnose`: flags, the loop that drains a watch, and where its output goes. The judgement is in the
//! `forkless-diagnose` library.

mod log;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forkless_diagnose::{Target, Watch, WatchError, WatchOptions, probe};

use crate::exit::{Exit, Missing, Usage};

/// Find out who pays for process creation here, how much, and why.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("target").required(true).args(["pid", "all", "cgroup", "command"])))]
pub(crate) struct Args {
    /// Watch this process and its descendants.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Watch every process of the machine.
    #[arg(short, long)]
    all: bool,

    /// Watch a cgroup (v2), given as a directory or as /proc/PID/cgroup names it.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,

    /// Stop after this many seconds [default: until interrupted, or until CMD ends].
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// Print each process creation as it happens, one line each.
    #[arg(long, required = true)]
    log: bool,

    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,

    /// Run this command and watch it with all that it starts.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(seconds > 0.0 && seconds <= 1e9) {
        return Err("must be more than 0 and at most 1e9 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl Args {
    fn target(&self) -> Target {
        match (&self.cgroup, self.pid) {
            _ if self.all => Target::All,
            (Some(path), _) => Target::Cgroup(path.clone()),
            (None, Some(pid)) => Target::Pid(pid),
            (None, None) => Target::Command(self.command.clone()),
        }
    }
}

/// Sorts a library error into the exit code its cause deserves.
fn classify(error: WatchError) -> anyhow::Error {
    let text = error.to_string();
    if error.is_missing_facility() {
        Missing(text).into()
    } else if matches!(error, WatchError::Wait(_)) {
        error.into()
    } else {
        Usage(text).into()
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle SIGINT and SIGTERM")?;
    }
    let mut options = WatchOptions::new(args.target());
    options.system_calls = !args.log;
    print_tiers();
    let begin = log::now_ns();
    let mut watch = Watch::start(&options).map_err(classify)?;
    let ending = Ending { until: args.duration.map(|d| Instant::now() + d), stop, pid: args.pid };
    log::run(&mut watch, &ending, begin, args.json)
}

/// On a terminal only: a log that is piped on starts with its first line.
fn print_tiers() {
    if !std::io::stderr().is_terminal() {
        return;
    }
    for probe in probe() {
        match probe.refused {
            None => eprintln!("tier: {}: works", probe.tier),
            Some(why) => eprintln!("tier: {}: not here: {why}", probe.tier),
        }
    }
}

/// When a watch is over.
struct Ending {
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
    pid: Option<u32>,
}

impl Ending {
    /// Why the watch is over, if it is.
    fn reached(&self, watch: &mut Watch) -> anyhow::Result<Option<Reason>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Some(Reason::Interrupted));
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Ok(Some(Reason::Time));
        }
        if let Some(child) = watch.command()
            && child.try_wait().context("waiting for the command")?.is_some()
        {
            return Ok(Some(Reason::TargetEnded));
        }
        if self.pid.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            return Ok(Some(Reason::TargetEnded));
        }
        Ok(None)
    }
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Time,
    Interrupted,
    TargetEnded,
}
