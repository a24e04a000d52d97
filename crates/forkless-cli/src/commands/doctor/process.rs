//! `forkless doctor -p PID`: what a fork of a running process costs, and with which remedy less.

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
    /// Fewer are not worth a word.
    const MANY: u64 = 1000;
    let mappings = forecast.mappings.filter(|mappings| mappings.all > MANY);
    let mappings = mappings.map(|mappings| format!(", {} mappings", mappings.all)).unwrap_or_default();
    let width = usize::from(terminal::width());
    let whole = format!(
        "{} (pid {}): {} of memory{huge}, {} page-table entries{mappings}{threads}",
        in_line(&forecast.process.name),
        forecast.pid,
        bytes(forecast.anon),
        forecast.entries,
    );
    let mut text = terminal::fold("", &whole, width);
    let now = forecast.now;
    let cost = format!(
        "A fork of this process costs about {} now ({} to {}).",
        duration_ns(now.mid),
        duration_ns(now.low),
        duration_ns(now.high)
    );
    text += &terminal::fold("", &cost, width);
    let line = forecast.program.line("forkless run -- ");
    let under_run = ("under run", "if it only leads to an exec");
    text += &alternative(under_run, &forecast.under_run, &line, width);
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    let who = if probe_repair().is_err_and(refused) { " (as root)" } else { "" };
    let line = format!("forkless repair -p {}{who}", forecast.pid);
    let with_huge_pages = ("huge pages", "whatever the child does");
    text + &alternative(with_huge_pages, &forecast.with_huge_pages, &line, width)
}

/// A remedy by its name and when it holds, with its cost and command or why it changes nothing. A
/// command line stays one, to be copied.
fn alternative((name, when): (&str, &str), found: &Alternative, command: &str, width: usize) -> String {
    let Alternative { cost, why_not } = found;
    let head = format!("   {name:11} ");
    let Some(Estimate { mid, .. }) = cost else {
        let why = why_not.as_deref().unwrap_or("not known");
        return terminal::fold(&head, &in_line(&format!("no change: {why}")), width);
    };
    let said = format!("about {}, {when}:", duration_ns(*mid));
    let command = in_line(command);
    let line = format!("{head}{said} {command}");
    if line.chars().count() <= width {
        return line + "\n";
    }
    terminal::fold(&head, &said, width) + &format!("{:1$}{command}\n", "", head.len())
}
