//! `forkless compare` and `forkless history`: results kept, and one against another.

use std::io::Write as _;

use forkless_bench::compare::{Change, Side, compare, is_of_another_world};
use forkless_bench::html;
use forkless_bench::render::{self, Grid};
use forkless_bench::results::Results;
use forkless_bench::store::{Store, timestamp};

use crate::commands::bench::from_library;
use crate::exit::{Exit, Usage};
use crate::terminal;

/// Flags of `forkless compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Results: a file, the beginning of a saved name, latest, latest~1, published or published:SYSTEM (macosx, linux,
    /// solaris); #METHOD picks one method. The first is what the others are compared with.
    #[arg(required = true, num_args = 2..=26, value_name = "RESULT")]
    results: Vec<String>,
    /// Exit with 1 when a whole interval is worse by more than this percentage.
    #[arg(long, value_name = "PCT")]
    fail_on_regression: Option<f64>,
    /// Compare every figure relative to its own side's yardstick, without a verdict; so it always is beside published figures
    /// and those taken in an emulator.
    #[arg(long, conflicts_with = "fail_on_regression")]
    relative: bool,
    /// Only these metrics.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    metric: Vec<String>,
    /// Print GitHub-flavoured Markdown.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Seed of the intervals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Flags of `forkless history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// Show this result instead: a file, the beginning of a saved name, latest, latest~1.
    #[arg(value_name = "RESULT")]
    result: Option<String>,
    /// In which form to show it.
    #[arg(long, value_enum, default_value = "table", requires = "result")]
    format: Format,
    /// Print the list as JSON, one object a line.
    #[arg(long, conflicts_with = "result")]
    json: bool,
}

/// Forms of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For a terminal.
    Table,
    /// As it was saved.
    Json,
    /// One line a row.
    Csv,
    /// GitHub-flavoured.
    Markdown,
    /// A page with plots, all in one file.
    Html,
}

/// Compares every result with the first.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let store = Store::open().unwrap_or_else(|_| Store::at("."));
    let mut sides: Vec<(String, Results, Option<String>)> = Vec::new();
    for name in &args.results {
        let (file, method) = match name.rsplit_once('#') {
            Some((file, method)) => (file, Some(method.to_owned())),
            None => (name.as_str(), None),
        };
        sides.push((name.clone(), store.load(file).map_err(from_library)?, method));
    }
    let Some(((base_name, base, base_method), others)) = sides.split_first() else {
        return Err(Usage("two results are needed".into()).into());
    };
    // One table has one measure: where one of several sides has no absolute figures, none has.
    let relative = args.relative || sides.iter().any(|(_, results, _)| is_of_another_world(results));
    let mut all: Vec<Vec<Change>> = Vec::new();
    for (name, results, method) in others {
        let first = Side { results: base, method: base_method.as_deref() };
        let second = Side { results, method: method.as_deref() };
        let mut changes = compare(&first, &second, relative, args.seed);
        changes.retain(|change| args.metric.is_empty() || args.metric.contains(&change.metric));
        if changes.is_empty() && base == results && base_method == method {
            return Err(Usage(format!(
                "{base_name} and {name} are the same run: to compare two methods of it, name them: FILE#METHOD FILE#METHOD"
            ))
            .into());
        }
        if changes.is_empty() {
            return Err(Usage(format!(
                "{base_name} and {name} have no row in common: the same suite, method, parameters and metric are needed"
            ))
            .into());
        }
        all.push(changes);
    }
    if args.json {
        let mut out = std::io::stdout().lock();
        for changes in &all {
            serde_json::to_writer(&mut out, changes)?;
            writeln!(out)?;
        }
    } else {
        print(args, &sides, &all)?;
    }
    let mut regressions = Vec::new();
    if let Some(percent) = args.fail_on_regression {
        for (changes, (name, ..)) in all.iter().zip(others) {
            let worse = changes.iter().filter(|change| change.is_regression(percent));
            regressions.extend(worse.map(|change| format!("{} {} in {name}", change.method, change.metric)));
        }
    }
    if regressions.is_empty() {
        return Ok(Exit::Fine);
    }
    eprintln!(
        "forkless: worse by more than {} %: {}",
        args.fail_on_regression.unwrap_or(0.0),
        regressions.join(", ")
    );
    Ok(Exit::Finding)
}

/// One table of all results against the first, under what each letter stands for and how it was compared.
fn print(
    args: &Args,
    sides: &[(String, Results, Option<String>)],
    all: &[Vec<Change>],
) -> anyhow::Result<()> {
    let mut text = String::new();
    let quote = if args.markdown { "`" } else { "" };
    for (letter, (index, (name, results, _))) in ('A'..='Z').zip(sides.iter().enumerate()) {
        let machine = &results.machine;
        let emulator =
            machine.emulator.as_ref().map_or_else(String::new, |emulator| format!(", in {emulator}"));
        let system = format!("{} {}{emulator}", machine.os, machine.kernel);
        // Different ways side by side in one result are each said.
        let mut kinds: Vec<&str> = Vec::new();
        for change in index.checked_sub(1).and_then(|index| all.get(index)).into_iter().flatten() {
            if !kinds.contains(&change.comparison.about()) {
                kinds.push(change.comparison.about());
            }
        }
        let bullet = if args.markdown { "- " } else { "" };
        text.push_str(&format!("{bullet}{letter} = {quote}{name}{quote} ({system})"));
        if !kinds.is_empty() {
            text.push_str(&format!(": {}", kinds.join("; ")));
        }
        if sides[0].1.machine.fingerprint != machine.fingerprint {
            text.push_str("; another machine or system than A");
        }
        text.push('\n');
    }
    let grid = Grid::of_changes(all);
    let table =
        if args.markdown { format!("\n{}", grid.to_markdown()) } else { grid.to_terminal(terminal::width()) };
    text.push_str(&table);
    writeln!(std::io::stdout().lock(), "{}", text.trim_end())?;
    Ok(())
}

/// Lists the saved results, oldest first, or shows one.
pub(crate) fn history(args: &HistoryArgs) -> anyhow::Result<Exit> {
    if let Some(name) = &args.result {
        // A file can be shown without a place where results are kept.
        let store = Store::open().unwrap_or_else(|_| Store::at("."));
        let results = store.load(name).map_err(from_library)?;
        let text = match args.format {
            Format::Table => render::terminal(&results, terminal::width()),
            Format::Json => results.to_json() + "\n",
            Format::Csv => render::csv(&results),
            Format::Markdown => render::markdown(&results),
            Format::Html => html::page(&results),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        return Ok(Exit::Fine);
    }
    let store = Store::open().map_err(from_library)?;
    let mut out = std::io::stdout().lock();
    for path in store.list() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let results = match store.load(&path.to_string_lossy()) {
            Ok(results) => results,
            Err(error) => {
                eprintln!("forkless: {error}");
                continue;
            }
        };
        let suites: Vec<&str> = results.suites.iter().map(|suite| suite.name.as_str()).collect();
        if args.json {
            let line = serde_json::json!({
                "file": path, "created": results.created, "suites": suites, "machine": results.machine.fingerprint,
            });
            writeln!(out, "{line}")?;
            continue;
        }
        let wall = results.suites.iter().flat_map(|suite| &suite.rows).find(|row| row.metric == "wall");
        let figure = wall.map_or_else(String::new, |row| {
            format!("{} {} {:.1} {}", row.method, row.metric, row.summary.median, row.unit)
        });
        writeln!(
            out,
            "{name:<44} {} {:<16} {} {} {figure}",
            timestamp(results.created),
            suites.join("+"),
            results.machine.os,
            results.machine.kernel
        )?;
    }
    Ok(Exit::Fine)
}
