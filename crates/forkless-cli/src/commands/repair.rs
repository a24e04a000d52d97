//! `forkless repair`: flags, progress and the summary of a repair. The library `forkless-diagnose`
//! decides which memory to repair, and how gently.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use forkless_diagnose::{ForkProbe, PageKinds, RepairOptions, RepairReport, probe_fork, repair};

use super::diagnose::{bytes, duration, duration_ns};
use crate::args;
use crate::exit::{Exit, Missing, Usage};
use crate::terminal;

/// Put a running process's memory into huge pages, so that its forks copy 512 times fewer entries.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  forkless repair -p 4711 --dry-run\n  forkless repair -p 4711 --duty 10\n\nExit codes: 0 done; 2 no such \
    process, or one of the kernel's; 3 not permitted, or unknown to this kernel."
)]
pub(crate) struct Args {
    /// The process, by its number.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// Aim for calls to the kernel of at most this length.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 50.0, value_parser = positive)]
    longest_call: f64,

    /// Share of the time to work, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 25.0, value_parser = args::percent_up_to::<100>)]
    duty: f64,

    /// Merge a huge page if at least this share of it is in use; the rest is new memory.
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0, value_parser = args::percent_up_to::<100>)]
    populated: f64,

    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,

    /// Do not measure forks of the same shape before and after.
    #[arg(long)]
    no_probe: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| *value > 0.0 && *value <= 60_000.0)
        .ok_or_else(|| "must be above 0 and at most 60000".to_owned())
}

#[derive(serde::Serialize)]
struct Output<'o> {
    #[serde(flatten)]
    report: &'o RepairReport,
    fork_before: Option<ForkProbe>,
    fork_after: Option<ForkProbe>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    super::need_proc()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle SIGINT and SIGTERM")?;
    }
    let options = RepairOptions {
        longest_call: Duration::from_secs_f64(args.longest_call / 1e3),
        duty: args.duty / 100.0,
        populated: args.populated / 100.0,
        dry_run: args.dry_run,
    };
    let live = std::io::stderr().is_terminal() && !args.json;
    let report = repair(args.pid, &options, |done, all| {
        if live {
            eprint!("\r{} of {}", bytes(done), bytes(all));
        }
        !stop.load(Ordering::Relaxed)
    })
    .map_err(|error| -> anyhow::Error {
        if error.is_missing_facility() {
            Missing(error.to_string()).into()
        } else {
            Usage(error.to_string()).into()
        }
    })?;
    if live {
        crate::terminal::complain!();
    }
    // Measured in this process, with memory of the same shape: the target cannot be made to fork.
    let probe = |kinds: &PageKinds| -> anyhow::Result<Option<ForkProbe>> {
        if args.no_probe || args.dry_run {
            return Ok(None);
        }
        let small = kinds.anon.saturating_sub(kinds.anon_huge);
        Ok(Some(
            probe_fork(small, kinds.anon_huge)
                .context("cannot measure a fork of the same shape (--no-probe leaves it out)")?,
        ))
    };
    let output =
        Output { fork_before: probe(&report.before)?, fork_after: probe(&report.after)?, report: &report };
    let mut text = Vec::new();
    if args.json {
        serde_json::to_writer(&mut text, &output)?;
        text.push(b'\n');
        terminal::print_bytes(&text)?;
    } else {
        print(&mut text, &args, &output)?;
        terminal::print(&String::from_utf8_lossy(&text))?;
    }
    Ok(Exit::Fine)
}

fn print(out: &mut impl std::io::Write, args: &Args, output: &Output<'_>) -> std::io::Result<()> {
    let r = output.report;
    let kinds = |k: &PageKinds| {
        format!("{} anonymous, {:.0} % of it in huge pages", bytes(k.anon), k.huge_share() * 100.0)
    };
    writeln!(out, "process {}", args.pid)?;
    writeln!(out, "   before   {}", kinds(&r.before))?;
    if args.dry_run {
        writeln!(out, "   would ask for {}", bytes(r.asked))?;
    } else {
        writeln!(out, "   after    {}", kinds(&r.after))?;
        writeln!(
            out,
            "   work     {} in {} calls, {} of CPU time over {}, longest call {}",
            bytes(r.collapsed),
            r.calls,
            duration(r.busy_ns),
            duration(r.elapsed_ns),
            duration(r.longest_call_ns)
        )?;
    }
    for (what, amount) in [
        ("the kernel refused for now", r.refused),
        ("excluded by the program itself", r.excluded),
        ("left out, too little of it in use", r.sparse),
        // Each process has some.
        ("left out, its mappings being too small for a huge page, or of files", r.unfit >> 21 << 21),
    ] {
        if amount > 0 {
            writeln!(out, "   not      {} {what}", bytes(amount))?;
        }
    }
    if let (Some(before), Some(after)) = (&output.fork_before, &output.fork_after) {
        let show = |p: &ForkProbe| {
            let note = if p.scale < 1.0 { " (extrapolated)" } else { "" };
            format!(
                "{} ({} to {}){note}",
                duration_ns(p.fork.mid),
                duration_ns(p.fork.low),
                duration_ns(p.fork.high)
            )
        };
        writeln!(out, "   fork     of this shape before: {}", show(before))?;
        writeln!(out, "            of this shape after:  {}", show(after))?;
    }
    if let Some(why) = &r.stopped {
        writeln!(out, "   PARTIAL  stopped: {why}")?;
    }
    Ok(())
}
