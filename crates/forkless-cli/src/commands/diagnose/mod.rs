//! `forkless diagnose`: flags, the loop that drains a watch, and where its output goes. The library
//! `forkless-diagnose` judges.

mod compare;
mod filter;
mod folded;
mod html;
mod json;
mod live;
mod log;
mod origins;
mod pictures;
mod pprof;
mod remedy;
mod serve;
mod text;

use log::creations;
pub(super) use log::{bytes, duration, duration_ns};

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forkless_diagnose::{
    CostModel, Diagnosis, Thresholds, Tier, Watch, WatchError, WatchOptions, WatchTarget, WatchedCommand,
    probe_tiers,
};

use crate::exit::{Exit, Missing, Usage};
use crate::output_file::OutputFile;
use crate::terminal;

/// Find costly process creation: where, how much, why, and a remedy.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("target").required(true).args(["pid", "all", "cgroup", "command"])),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "forkless diagnose [OPTIONS] -- <CMD> [ARGS]...\n       \
    forkless diagnose [OPTIONS] --pid <PID> | --all | --cgroup <PATH>\n       \
    forkless diagnose compare [OPTIONS] <BEFORE> <AFTER>",
    after_help = "Examples:\n  forkless diagnose -- make\n  forkless diagnose -p 4711 -d 30\n  forkless diagnose --all -d 60 --json \
    -o report.json\n  forkless diagnose --log -- ./configure\n  forkless diagnose --log --all \
    --comm java --slower 10\n\nExit codes: 0 nothing was found (with --log: always), 1 something was found, or \
    the report could not be written (then standard error says so); 2 usage; 3 this machine or user lacks a facility or a right. The status of CMD is not part of it."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// Watch this process and its descendants.
    #[arg(short, long, value_name = "PID", value_parser = pid, allow_negative_numbers = true)]
    pid: Option<u32>,

    /// Watch every process of the machine.
    #[arg(short, long)]
    all: bool,

    /// Watch a cgroup (v2), given as a directory or as /proc/PID/cgroup names it.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,

    /// Stop after this many seconds [default: when interrupted, or when CMD ends].
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,

    /// Print a line for each process creation, as it happens, instead of findings.
    #[arg(long)]
    log: bool,

    #[command(flatten)]
    filter: filter::Filter,

    /// Print the evidence, the stack and the reason of each finding, and why no better tier is
    /// used.
    #[arg(short, long, conflicts_with_all = ["json", "html"])]
    verbose: bool,

    /// Print JSON: one report, or with --log one object a line.
    #[arg(long)]
    json: bool,

    /// Print the report as a page of HTML.
    #[arg(long, conflicts_with_all = ["json", "log"])]
    html: bool,

    /// Print a line for each call stack that creates processes, with its cost in microseconds,
    /// instead of the report; for flame graph tools.
    #[arg(long, conflicts_with_all = ["json", "html", "log", "verbose"])]
    folded: bool,

    /// Write the same as a profile that pprof and speedscope read (profile.proto, gzipped).
    #[arg(long, conflicts_with_all = ["json", "html", "folded", "log", "verbose"])]
    pprof: bool,

    /// Write the report to this file instead of standard output, which CMD may use itself.
    #[arg(short, long, value_name = "FILE", conflicts_with = "log")]
    output: Option<PathBuf>,

    /// Serve the totals as metrics at http://ADDR/metrics while watching (such as 127.0.0.1:9469;
    /// port 0 picks a free port).
    #[arg(long, value_name = "ADDR", conflicts_with = "log", value_parser = address)]
    prometheus: Option<SocketAddr>,

    /// Count system calls, too, for findings about them. This costs every system call of the
    /// machine some 110 ns [default: yes, but no with --all].
    #[arg(long, value_name = "yes|no", conflicts_with = "log", value_parser = yes_or_no)]
    system_calls: Option<bool>,

    /// Use this tier and no other [default: the best that works].
    #[arg(long, value_name = "fentry|tracepoints|perf|procfs", value_parser = tier)]
    tier: Option<Tier>,

    /// Report only findings that save at least this share of one CPU, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, conflicts_with = "log", value_parser = crate::args::percent, allow_negative_numbers = true)]
    min_share: f64,

    /// Run this command, and watch it and all that it starts.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What else `diagnose` does than to watch.
#[derive(Debug, clap::Subcommand)]
enum Action {
    Compare(compare::Args),
}

pub(super) fn pid(text: &str) -> Result<u32, String> {
    // The kernel's own limit is 2^22; its numbers are positive ints.
    text.parse::<i32>()
        .ok()
        .filter(|pid| *pid > 0)
        .map(i32::cast_unsigned)
        .ok_or_else(|| "not the number of a process; see `ps -e`".to_owned())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "must be an IP address and a port, such as 127.0.0.1:9469 or [::1]:9469".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(seconds > 0.0 && seconds <= 1e9) {
        return Err("must be more than 0 and at most 1e9 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn tier(text: &str) -> Result<Tier, String> {
    match text {
        "fentry" => Ok(Tier::BpfFentry),
        "tracepoints" => Ok(Tier::BpfTracepoints),
        "perf" => Ok(Tier::Perf),
        "procfs" => Ok(Tier::Procfs),
        _ => Err("must be fentry, tracepoints, perf or procfs".to_owned()),
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("must be yes or no".to_owned()),
    }
}

impl Args {
    fn target(&self) -> WatchTarget {
        match (&self.cgroup, self.pid) {
            _ if self.all => WatchTarget::All,
            (Some(path), _) => WatchTarget::Cgroup(path.clone()),
            (None, Some(pid)) => WatchTarget::Pid(pid),
            (None, None) => {
                let prepare = crate::inherited::hand_on;
                WatchTarget::Command(WatchedCommand { argv: self.command.clone(), prepare })
            }
        }
    }
}

/// Gives a library error the exit code of its cause.
fn classify(error: WatchError) -> anyhow::Error {
    let text = match &error {
        WatchError::TierTooWeak => format!("{error}; leave --tier out"),
        _ => error.to_string(),
    };
    if error.is_missing_facility() {
        Missing(text).into()
    } else if matches!(error, WatchError::Wait(_)) {
        error.into()
    } else {
        Usage(text).into()
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(Action::Compare(args)) = &args.action {
        return compare::run(args);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let ends = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    // Whoever started this may have it ignore them, and the command with it, as nohup does.
    for signal in ends.into_iter().filter(|signal| !crate::inherited::is_ignored(*signal)) {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle SIGINT and SIGTERM")?;
    }
    if args.pid.is_some() {
        super::need_proc()?;
    }
    if args.log { run_log(&args, stop) } else { run_findings(&args, stop) }
}

fn run_log(args: &Args, stop: Arc<AtomicBool>) -> anyhow::Result<Exit> {
    let mut options = WatchOptions::new(args.target());
    options.system_calls = false;
    options.exact_times = true;
    options.tier = args.tier;
    options.faults = false;
    if args.verbose {
        print_tiers();
    }
    let begin = log::now_ns();
    let mut watch = Watch::start(&options).map_err(classify)?;
    let ending = WatchEnd::new(args, stop);
    log::run(&mut watch, &ending, begin, args)
}

fn run_findings(args: &Args, stop: Arc<AtomicBool>) -> anyhow::Result<Exit> {
    let mut options = WatchOptions::new(args.target());
    options.system_calls = args.system_calls.unwrap_or(!args.all);
    options.tier = args.tier;
    // Otherwise every page fault of the machine would cost more, for a fork that may never come.
    options.faults = !args.all;
    let thresholds = Thresholds::of(args.min_share / 100.0);
    // A wrong pid or path fails before the calibration makes the user wait.
    options.target.resolve().map_err(classify)?;
    if args.pprof && args.output.is_none() && std::io::stdout().is_terminal() {
        return Err(Usage("a profile is no text for a terminal; give --output FILE".to_owned()).into());
    }
    let file = match &args.output {
        Some(path) => {
            let file = OutputFile::open(path).map_err(|error| {
                Usage(format!(
                    "cannot write the report to {}: {error}; give another --output",
                    path.display()
                ))
            })?;
            Some((file, path))
        }
        None => None,
    };
    let page = serve::Page::default();
    if let Some(address) = args.prometheus {
        let bound = serve::start(address, page.clone())?;
        crate::terminal::complain!("metrics at http://{bound}/metrics");
    }
    if args.verbose {
        print_tiers();
    }
    let model = CostModel::calibrate().map_err(|error| {
        Missing(format!("cannot calibrate: memory or a child process cannot be had: {error}"))
    })?;
    let mut diagnosis = Diagnosis::start(&options, model, thresholds).map_err(classify)?;
    let ending = WatchEnd::new(args, stop);
    // The live view would draw over the command's own output.
    let for_people = !(args.json || args.html || args.folded || args.pprof);
    let live = terminal::can_redraw() && for_people && args.command.is_empty();
    // A script that starts the load needs to know. A command's start says it by itself.
    if !live && args.command.is_empty() {
        crate::terminal::complain!("the watch has begun");
    }
    let reason = watch_until(&mut diagnosis, &ending, |diagnosis| {
        if live || args.prometheus.is_some() {
            let report = diagnosis.report_so_far().map_err(classify)?;
            page.set(diagnosis.metrics(&report));
            if live {
                live::draw(&mut std::io::stdout().lock(), &report)?;
            }
        }
        Ok(())
    })?;
    let report = diagnosis.report().map_err(classify)?;
    if live {
        live::clear(&mut std::io::stdout().lock())?;
    }
    let mut text = Vec::new();
    if args.json {
        json::print(&mut text, &report, reason)?;
    } else if args.html {
        html::print(&mut text, &report, reason)?;
    } else if args.folded {
        folded::print(&mut text, &report)?;
    } else if args.pprof {
        pprof::print(&mut text, &report)?;
    } else {
        let width = if file.is_some() { terminal::WIDE } else { terminal::width() };
        text::print(&mut text, &report, reason, args.verbose, width)?;
    }
    match file {
        Some((file, path)) => {
            file.write(&text).with_context(|| format!("cannot write the report to {}", path.display()))?;
        }
        None => terminal::print_bytes(&text)?,
    }
    // An exporter that is asked to stop has told its findings as metrics. As a service it would be
    // a failed one.
    let told = args.prometheus.is_some() && reason == EndReason::Interrupted;
    Ok(if told || report.findings.is_empty() { Exit::Fine } else { Exit::Finding })
}

/// Takes events in until the end, and calls `each_second` about once a second.
fn watch_until(
    diagnosis: &mut Diagnosis,
    ending: &WatchEnd,
    mut each_second: impl FnMut(&mut Diagnosis) -> anyhow::Result<()>,
) -> anyhow::Result<EndReason> {
    let mut next = Instant::now();
    loop {
        // Ask before the poll, so that the poll still takes in the last events.
        let reason = ending.reached(diagnosis.command_ended());
        diagnosis.poll(Duration::from_millis(100)).map_err(classify)?;
        if let Some(reason) = reason {
            return Ok(reason);
        }
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_secs(1);
            each_second(diagnosis)?;
        }
    }
}

fn print_tiers() {
    for probe in probe_tiers() {
        match probe.refused {
            None => crate::terminal::complain!("tier: {}: works", probe.tier),
            Some(why) => crate::terminal::complain!("tier: {}: not here: {why}", probe.tier),
        }
    }
}

/// When a watch is over.
struct WatchEnd {
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
    target: Option<Watched>,
}

impl WatchEnd {
    fn new(args: &Args, stop: Arc<AtomicBool>) -> Self {
        let until = args.duration.map(|d| Instant::now() + d);
        Self { until, stop, target: args.pid.map(Watched::new) }
    }

    /// Why the watch is over, if it is.
    fn reached(&self, command_ended: bool) -> Option<EndReason> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(EndReason::Interrupted);
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Some(EndReason::Time);
        }
        if command_ended {
            return Some(EndReason::TargetEnded);
        }
        if self.target.as_ref().is_some_and(Watched::has_ended) {
            return Some(EndReason::TargetEnded);
        }
        None
    }
}

/// The process of `--pid`. /proc alone would not do: a zombie keeps its directory, and a pid may be
/// reused.
enum Watched {
    Handle(rustix::fd::OwnedFd),
    /// Before Linux 5.3, or where a policy refuses pidfd_open.
    Number(u32),
    Gone,
}

impl Watched {
    fn new(pid: u32) -> Self {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Self::Gone };
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(handle) => Self::Handle(handle),
            Err(rustix::io::Errno::SRCH) => Self::Gone,
            Err(_) => Self::Number(pid),
        }
    }

    fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        match self {
            Self::Gone => true,
            Self::Number(pid) => !PathBuf::from(format!("/proc/{pid}")).exists(),
            Self::Handle(handle) => {
                let mut fds = [PollFd::new(handle, PollFlags::IN)];
                poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
            }
        }
    }
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    Time,
    Interrupted,
    TargetEnded,
}
