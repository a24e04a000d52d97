//! Runs one command of the checks. Shows its output at once, counts its tests, and limits its time.
//! At its end, or after Ctrl-C, every process that it started is gone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::tally::{Reader, Show, Tally};

/// How a step counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// As one check.
    Once,
    /// As the tests that it ran.
    Tests,
}

/// SIGINT, SIGTERM and SIGHUP set it. Each step has its own process group, so the terminal's signal
/// reaches this process alone.
fn interrupted() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            // It fails only for signals that cannot be caught.
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        flag
    })
}

/// Runs `command` for at most `limit`, and counts its tests or itself.
pub(crate) fn run(name: &str, command: &mut Command, counted: Counted, limit: Duration) -> Result<Tally> {
    let interrupted = interrupted();
    let (reading, writing) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writing.try_clone()?)
        .stderr(writing)
        .process_group(0)
        .spawn()
        .with_context(|| format!("{:?}", command.get_program()))?;
    // `command` keeps copies of the pipe's writing end, and the reader below would never see its
    // end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the child has no pid")?;

    let reader = thread::spawn(move || {
        let mut reader = Reader::default();
        let mut lines = BufReader::new(reading);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            let shown = counted == Counted::Once || reader.line(text.trim_end_matches('\n')) == Show::Yes;
            if shown {
                let _ = std::io::stdout().write_all(text.as_bytes());
            }
            line.clear();
        }
        reader
    });

    let deadline = Instant::now() + limit;
    let mut note = None;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if note.is_none() {
            if interrupted.load(Ordering::Relaxed) {
                note = Some("interrupted".to_owned());
            } else if Instant::now() > deadline {
                note = Some(format!("still running after {} s", limit.as_secs()));
            }
            if note.is_some() {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        thread::sleep(Duration::from_millis(20));
    };
    // No process of the step may live on: it would hold the pipe, and it is a defect. Orphans that
    // are about to end get two seconds.
    let grace = Instant::now() + Duration::from_secs(2);
    while test_kill_process_group(group).is_ok() {
        if note.is_some() || Instant::now() > grace {
            note.get_or_insert_with(|| format!("left behind: {}", members(group).join(", ")));
            let _ = kill_process_group(group, Signal::KILL);
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let reader = reader.join().map_err(|_| anyhow::anyhow!("{name}: the reader of its output panicked"))?;

    let was_cut = note.is_some();
    let succeeded = status.success() && !was_cut;
    let label = note.map_or_else(|| name.to_owned(), |note| format!("{name}: {note}"));
    if interrupted.load(Ordering::Relaxed) {
        anyhow::bail!("{label}");
    }
    Ok(match counted {
        Counted::Tests if was_cut => reader.cut_short(&label),
        Counted::Tests => reader.finish(&label, succeeded),
        Counted::Once => {
            let mut tally = Tally::default();
            tally.check(&label, succeeded);
            tally
        }
    })
}

/// The processes of a group as `name (pid)`, for a message. Incomplete where /proc is.
fn members(group: Pid) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|process| {
            let pid = process.file_name().into_string().ok()?;
            let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
            // pid (comm) state ppid pgrp: comm may hold any character, so the fields begin after
            // the last parenthesis.
            let (before, after) = stat.rsplit_once(')')?;
            let of = after.split_whitespace().nth(2)?.parse::<i32>().ok()?;
            (of == group.as_raw_nonzero().get())
                .then(|| format!("{} ({pid})", before.split_once('(').unwrap_or(("", "?")).1))
        })
        .collect()
}
