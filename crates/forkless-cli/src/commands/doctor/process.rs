//! `forkless doctor -p PID`: what a fork of a running process costs, and with which remedy less.

use std::fmt::Write as _;

use forkless_diagnose::{Alternative, Estimate, ForecastError, ForkForecast, probe_repair};
use serde::Serialize;

use crate::commands::diagnose::{bytes, duration_ns};
use crate::exit::{Exit, Missing, Usage};
use crate::terminal::{self, in_line};

#[derive(Serialize)]
struct ProcessReport<'r> {
    schema: &'static str,
    process: &'r ForkForecast,
}

pub(super) fn run(pid: u32, json: bool) -> anyhow::Result<Exit> {
    let forecast = ForkForecast::of(pid, super::run::is_installed()).map_err(|error| -> anyhow::Error {
        match error {
            ForecastError::NoProcess { .. } | ForecastError::Thread(_) | ForecastError::NoMemory { .. } => {
                Usage(error.to_string()).into()
            }
            error => Missing(error.to_string()).into(),
        }
    })?;
    if json {
        terminal::print_json(&ProcessReport { schema: "forkless.doctor/1", process: &forecast })?;
    } else {
        terminal::print(&text(&forecast))?;
    }
    Ok(Exit::Fine)
}

fn text(forecast: &ForkForecast) -> String {
    let threads = match forecast.threads {
        Some(threads) if threads > 1 => format!(", {threads} threads"),
        _ => String::new(),
    };
    let huge = match forecast.anon_huge {
        None => ", huge pages not to be seen by this user".to_owned(),
        Some(0) => String::new(),
        Some(huge) => format!(", {} of it in huge pages", bytes(huge)),
    };
    let mut text = format!(
        "{} (pid {}): {} of memory{huge}, {} page-table entries{threads}\n",
        in_line(&forecast.process.name),
        forecast.pid,
        bytes(forecast.anon),
        forecast.entries,
    );
    let now = forecast.now;
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "A fork of this process costs about {} now ({} to {}).",
        duration_ns(now.mid),
        duration_ns(now.low),
        duration_ns(now.high)
    );
    let line = forecast.program.line("forkless run -- ");
    alternative(&mut text, "under run", &forecast.under_run, "if it only leads to an exec", &line);
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    let who = if probe_repair().is_err_and(refused) { " (as root)" } else { "" };
    let line = format!("forkless repair -p {}{who}", forecast.pid);
    alternative(&mut text, "huge pages", &forecast.with_huge_pages, "whatever the child does", &line);
    text
}

fn alternative(text: &mut String, name: &str, found: &Alternative, when: &str, command: &str) {
    let Alternative { cost, why_not } = found;
    let said = match (cost, why_not) {
        (Some(Estimate { mid, .. }), _) => format!("about {}, {when}: {command}", duration_ns(*mid)),
        (None, why) => format!("no change: {}", why.as_deref().unwrap_or("not known")),
    };
    let _ = writeln!(text, "   {name:11} {}", in_line(&said));
}
