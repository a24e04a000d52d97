//! A trial for the terminal, and the table that the page has, too.

use std::fmt::Write as _;

use forkless_bench::render::{Grid, folded};
use forkless_bench::results::Row;
use forkless_bench::trial::{End, Method, OutputComparison, Trial};

use super::{Shown, words};

/// Everything a user reads after a trial.
pub(super) fn of(shown: &Shown<'_>, width: u16) -> String {
    let trial = shown.trial;
    let mut text = String::new();
    if !trial.suite.rows.is_empty() {
        let legend = folded(&legend(trial), width);
        let _ = writeln!(text, "{}\n{}\n{legend}", shown.command, table(trial).to_terminal(width));
    }
    for line in facts(trial) {
        let _ = writeln!(text, "{}", folded(&line, width));
    }
    for note in &trial.suite.notes {
        let _ = writeln!(text, "{}", folded(&format!("note: {note}"), width));
    }
    let _ = writeln!(text, "\n{}", folded(&shown.verdict, width));
    if words::recommends(trial) {
        // A command line stays one, to be copied.
        let _ = writeln!(text, "\n  {}", shown.under_run);
    }
    text
}

/// Both methods, a line for each metric.
pub(super) fn table(trial: &Trial) -> Grid {
    let metrics = [("wall", "wall time"), ("cpu_total", "processor time"), ("memory", "peak memory")];
    let mut lines: Vec<Vec<String>> =
        metrics.iter().filter_map(|(metric, name)| line(trial, metric, name)).collect();
    let [plain, run] = [Method::Plain, Method::Run].map(|method| words::row(trial, method, "wall"));
    if let (Some(plain), Some(run)) = (plain, run) {
        let range = |row: &Row| {
            let [least, most] =
                [row.summary.min, row.summary.max].map(|value| words::scaled(value, &row.unit));
            format!("{least} to {most}")
        };
        lines.insert(1, vec!["range".to_owned(), range(plain), range(run), String::new()]);
    }
    let heads = ["", "plain", "run", "plain / run"];
    Grid { heads: heads.map(str::to_owned).to_vec(), lines, text_columns: 1 }
}

fn line(trial: &Trial, metric: &str, name: &str) -> Option<Vec<String>> {
    let [plain, run] = [Method::Plain, Method::Run].map(|method| words::row(trial, method, metric));
    let (plain, run) = (plain?, run?);
    let median = |row: &Row| {
        let median = words::scaled(row.summary.median, &row.unit);
        match row.ci95 {
            [low, high] if low < high => {
                format!("{median} ± {}", words::scaled((high - low) / 2.0, &row.unit))
            }
            _ => median,
        }
    };
    Some(vec![
        name.to_owned(),
        median(plain),
        median(run),
        words::ratio(trial, metric).map(words::figure).unwrap_or_default(),
    ])
}

/// One line on how the figures came about.
pub(super) fn legend(trial: &Trial) -> String {
    let suite = &trial.suite;
    let rounds = words::plural(&suite.rounds.to_string(), "round", "rounds");
    format!(
        "medians ± half the 95 % interval within this trial; {rounds}, each of a plain run and one under run, in {:.1} s, after one \
         that warmed up; seed {}",
        suite.seconds, suite.seed
    )
}

/// What a reader needs beside the figures and the notes.
pub(super) fn facts(trial: &Trial) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(counted) = words::counted(trial) {
        lines.push(format!("in an average run: {counted}"));
    }
    if let Some(reasons) = words::plain_forks(trial) {
        lines.push(format!("forks that stayed plain: {reasons}"));
    }
    let [plain, run] = [&trial.plain, &trial.run].map(words::ends);
    if trial.plain.iter().chain(&trial.run).any(|(end, _)| *end != End::Exit(0)) {
        lines.push(format!("ended plainly with {plain}; under run with {run}"));
    }
    match &trial.output {
        OutputComparison::Same { bytes } => {
            lines.push(format!("standard output is the same: {bytes} bytes each time"));
        }
        OutputComparison::PlainVaries(difference) => lines.push(format!(
            "standard output cannot be compared: plain runs differ among themselves, first in line {}",
            difference.line
        )),
        OutputComparison::NotCompared | OutputComparison::Differs(_) => {}
    }
    if trial.interrupted.is_some() {
        lines.push(words::interrupted(trial));
    }
    lines
}
