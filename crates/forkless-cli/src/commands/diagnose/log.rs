//! `forkless diagnose --log`: prints one line for each process creation, in the order of the
//! children's ends. A child that lives longer than [`SETTLE`] is printed as running, and again when
//! it ends.

use std::collections::HashSet;
use std::io::{self, StdoutLock, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use forkless_diagnose::{ChildEnd, Creation, CreationKind, Event, Watch};

use super::filter::Filter;
use super::{Args, EndReason, WatchEnd, classify};
use crate::exit::Exit;
use crate::terminal;

/// A child that lives this long is printed before it ends.
const SETTLE: Duration = Duration::from_secs(1);

pub(super) fn run(watch: &mut Watch, ending: &WatchEnd, begin: u64, args: &Args) -> anyhow::Result<Exit> {
    let out = terminal::open_stdout().context("cannot write to standard output")?;
    let mut log = Log { out, begin, filter: &args.filter, json: args.json, printed: 0 };
    let mut printed_running: HashSet<(u64, u32)> = HashSet::new();
    loop {
        // Ask before the drain, so that the drain still takes in the last events.
        let reason = ending.reached(watch.command_ended());
        drain(watch, &mut log, &mut printed_running)?;
        let living = watch.living().map_err(classify)?;
        printed_running.retain(|key| living.iter().any(|c| key_of(c) == *key));
        let now = now_ns();
        for creation in &living {
            let age = now.saturating_sub(creation.at_ns);
            let old = age >= SETTLE.as_nanos() as u64;
            if (old || reason.is_some())
                && args.filter.wants(creation, age)
                && printed_running.insert(key_of(creation))
            {
                log.print(creation)?;
            }
        }
        log.out.flush().context("cannot write to standard output")?;
        if let Some(reason) = reason {
            finish(watch, reason, &log)?;
            return Ok(Exit::Fine);
        }
    }
}

/// Where creations are printed, and which.
struct Log<'a> {
    out: StdoutLock<'static>,
    begin: u64,
    filter: &'a Filter,
    json: bool,
    printed: u64,
}

impl Log<'_> {
    fn print(&mut self, creation: &Creation) -> anyhow::Result<()> {
        self.printed += 1;
        let line = if self.json { serde_json::to_string(creation)? } else { line(creation, self.begin) };
        writeln!(self.out, "{line}").context("cannot write to standard output")
    }
}

fn drain(watch: &mut Watch, log: &mut Log<'_>, printed: &mut HashSet<(u64, u32)>) -> anyhow::Result<()> {
    let mut failed = None;
    watch
        .poll(Duration::from_millis(100), |event| {
            if let Event::Created(creation) = event {
                printed.remove(&key_of(&creation));
                if log.filter.wants(&creation, 0)
                    && let Err(error) = log.print(&creation)
                {
                    failed.get_or_insert(error);
                }
            }
        })
        .map_err(classify)?;
    failed.map_or(Ok(()), Err)
}

fn finish(watch: &Watch, reason: EndReason, log: &Log<'_>) -> anyhow::Result<()> {
    let totals = watch.totals().map_err(classify)?;
    let why = match reason {
        EndReason::Time => "",
        EndReason::Interrupted => ", interrupted",
        EndReason::TargetEnded => ", the target ended",
    };
    let printed =
        if log.filter.wants_all() { String::new() } else { format!(", {} lines printed", log.printed) };
    crate::terminal::complain!(
        "{}{printed}, {} lost, {} threads{why}",
        creations(totals.creations),
        totals.lost_ring + totals.lost_live,
        totals.threads.unwrap_or(0)
    );
    Ok(())
}

/// The key of a creation: a pid alone may be reused.
fn key_of(creation: &Creation) -> (u64, u32) {
    (creation.at_ns, creation.child)
}

pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `    1.234 s  clone(CHILD_SETTID|CHILD_CLEARTID) full fork  by 812/815 httpd  rss 478.1 MiB ...`
fn line(c: &Creation, begin: u64) -> String {
    let mut text = format!(
        "{:10.4} s  {}({}) {}  by {}/{} {}  rss {}",
        c.at_ns.saturating_sub(begin) as f64 / 1e9,
        c.call.name(),
        c.flags,
        match c.kind {
            CreationKind::FullFork if c.flags.is_speculated() => "speculated fork",
            CreationKind::FullFork => "full fork",
            CreationKind::VforkLike => "vfork-like",
            CreationKind::SharedMemory => "shared memory",
        },
        c.caller,
        c.caller_thread,
        quoted(&c.caller_comm),
        bytes(c.memory.resident()),
    );
    if c.memory.hugetlb > 0 {
        text += &format!(" + {} hugetlb", bytes(c.memory.hugetlb));
    }
    text += &format!(" tables {}", bytes(c.memory.page_tables));
    for (name, value) in
        [("copy", c.copy_ns), ("exec after", c.until_exec_ns), ("caller ran on after", c.caller_waited_ns)]
    {
        if let Some(ns) = value {
            text += &format!("  {name} {}", duration(ns));
        }
    }
    text += &format!("  -> {}", c.child);
    match (&c.exec_path, c.exec_failed_path.as_ref(), c.exec_errno) {
        (Some(path), _, _) => {
            text += &format!(" {}", quoted(path));
            if c.argv.len() > 1 {
                let arguments: Vec<String> = c.argv[1..].iter().map(|a| quoted(a)).collect();
                text += &format!(" {}{}", arguments.join(" "), if c.argv_cut { "..." } else { "" });
            }
        }
        (None, Some(path), Some(errno)) => {
            text += &format!(" exec of {} failed: {}", quoted(path), io::Error::from_raw_os_error(errno));
        }
        _ => text += " no exec",
    }
    let failed = c.exec_missing + c.exec_busy + c.exec_failed_otherwise;
    if c.exec_path.is_some() && failed > 0 {
        text += &format!(" after {failed} failed");
    }
    text += &match (c.end, c.lifetime_ns) {
        (ChildEnd::Running, _) | (_, None) => format!("  {}", c.end),
        (end, Some(ns)) => format!("  {end} after {}", duration(ns)),
    };
    text
}

/// Control characters would break the one line a creation has.
fn quoted(text: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || "_-+=/.,:@%".contains(c) || (!c.is_ascii() && !c.is_control());
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("{text:?}") }
}

pub(in crate::commands) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// A number of process creations.
pub(super) fn creations(count: u64) -> String {
    format!("{count} process creation{}", if count == 1 { "" } else { "s" })
}

pub(in crate::commands) fn duration(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns} ns"),
        1000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// The same of a measured or priced time, which may be below zero.
pub(in crate::commands) fn duration_ns(ns: f64) -> String {
    duration(ns.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_cannot_break_the_line() {
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted("/bin/true"), "/bin/true");
    }

    #[test]
    fn units_change_at_their_borders() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1 << 30), "1.00 GiB");
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_500_000), "1.50 ms");
    }
}
