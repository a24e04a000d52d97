//! `forkless compare` and `forkless history`: saved results, compared and listed.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use forkless_bench::compare::{By, Change, Difference, Side, compare, is_of_another_world, lacking};
use forkless_bench::error::Error;
use forkless_bench::figure;
use forkless_bench::html;
use forkless_bench::render;
use forkless_bench::results::{Results, Row, Suite};
use forkless_bench::store::Store;
use forkless_lab::SUITES;

use crate::args;
use crate::commands::bench::{BENCH, from_library};
use crate::exit::{Exit, Usage};
use crate::terminal;

/// Flags of `forkless compare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  forkless compare latest~1 latest --fail-on-regression 10\n  forkless compare run.json#vfork_exec \
    run.json#forkless\n  forkless compare latest published\n\nExit codes: 0 no regression beyond the limit, or none was set; 1 a \
    regression, or a figure of the first result that cannot be judged; 2 usage."
)]
pub(crate) struct Args {
    /// Results: a file, the beginning of a saved name, latest, latest~1, published or
    /// published:SYSTEM (macosx, linux, solaris); #METHOD picks one method. The others are compared
    /// with the first.
    #[arg(required = true, num_args = 2..=26, value_name = "RESULT")]
    results: Vec<OsString>,
    /// Exit with 1 if a figure is shown to be worse, and a change of this many percent is not ruled
    /// out; also if a figure of the first result cannot be judged. Two runs of different times show
    /// a slowdown of some 20 %. `forkless bench spawn --against COMMAND` shows 10 %.
    #[arg(long, value_name = "PERCENT", value_parser = args::percent, allow_negative_numbers = true)]
    fail_on_regression: Option<f64>,
    /// Compare every figure relative to its own side's yardstick, without a verdict. Published
    /// figures and results from an emulator are always compared in this way.
    #[arg(long, conflicts_with = "fail_on_regression")]
    relative: bool,
    /// Compare separate runs by the clock, not by the ratios to each run's yardstick. A difference
    /// may then come from the machine.
    #[arg(long, conflicts_with = "relative")]
    absolute: bool,
    /// Compare only these metrics.
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
#[command(
    after_help = "Examples:\n  forkless history\n  forkless history latest --format html > latest.html"
)]
pub(crate) struct HistoryArgs {
    /// Show this result instead: a file, the beginning of a saved name, latest, latest~1.
    #[arg(value_name = "RESULT")]
    result: Option<OsString>,
    /// The form of the result.
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
    /// A figure of a result of the suite memory: milliseconds by memory, light and dark.
    Svg,
}

/// Reads a result. A file can be shown without a place where results are kept.
fn load(name: &OsStr, told: &mut Told) -> anyhow::Result<Results> {
    // No saved name: those are all of ASCII.
    let Some(name) = name.to_str() else { return Store::read(Path::new(name)).map_err(from_library) };
    let store = match Store::open() {
        Ok(store) => store,
        Err(_) if name.starts_with("published") || Path::new(name).exists() => Store::at(""),
        Err(nowhere) => return Err(from_library(nowhere)),
    };
    store.load(name, &mut |error| told.passed_over(error)).map_err(|error| match error {
        // In `compare` it is split off before.
        Error::NotSaved(_) if name.contains('#') => {
            Usage(format!("{error}; #METHOD is for `forkless compare`")).into()
        }
        Error::NotSaved(_) => Usage(format!("{error}; `forkless history` lists them")).into(),
        error => from_library(error),
    })
}

/// A result and its method: `RESULT#METHOD`. A file with a `#` in its name is meant by its name,
/// whatever follows there.
fn parted(name: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = name.as_bytes();
    let is_there = |file: &OsStr| Path::new(file).exists();
    if is_there(name) {
        return (name, None);
    }
    let split = |at: usize| (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + 1..])));
    let marks = || (0..bytes.len()).rev().filter(|&at| bytes[at] == b'#').map(split);
    marks().find(|(file, _)| is_there(file)).or_else(|| marks().next()).unwrap_or((name, None))
}

/// What a reader of the data directory leaves out, each said once.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    fn passed_over(&mut self, error: &Error) {
        let line = terminal::plain(&terminal::in_line(&error.to_string()));
        if self.0.insert(line.clone()) {
            terminal::complain!("forkless: passed over: {line}");
        }
    }
}

/// The names of a side's rows, for messages that say which names there are.
fn names<'a>(rows: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = rows.collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn suites(results: &Results) -> String {
    results.suites.iter().map(|suite| suite.name.as_str()).collect::<Vec<_>>().join("+")
}

fn rows(results: &Results) -> impl Iterator<Item = &Row> {
    results.suites.iter().flat_map(|suite| &suite.rows)
}

/// Compares every result with the first.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut sides: Vec<(String, Results, Option<String>)> = Vec::new();
    let mut told = Told::default();
    for name in &args.results {
        let (file, method) = parted(name);
        let method = method.map(|method| method.to_string_lossy().into_owned());
        let results = load(file, &mut told)?;
        let (name, file) = (name.to_string_lossy().into_owned(), file.to_string_lossy());
        if let Some(method) = &method
            && !rows(&results).any(|row| row.method == *method)
        {
            let there = names(rows(&results).map(|row| row.method.as_str()));
            if method.is_empty() {
                return Err(
                    Usage(format!("{name}: a method's name is missing after #; there are: {there}")).into()
                );
            }
            return Err(Usage(format!("{file} has no method {method}; there are: {there}")).into());
        }
        sides.push((name, results, method));
    }
    let Some(((base_name, base, base_method), others)) = sides.split_first() else {
        return Err(Usage("two results are needed".into()).into());
    };
    // One table has one measure: where one side has no absolute figures, all are compared by
    // relative ones.
    let relative = args.relative || sides.iter().any(|(_, results, _)| is_of_another_world(results));
    let by = match (relative, args.absolute) {
        (true, _) => By::OtherSystems,
        (false, true) => By::Clock,
        (false, false) => By::Ratios,
    };
    if args.fail_on_regression.is_some() {
        judgeable(&sides)?;
    }
    let is_wanted = |metric: &String| args.metric.is_empty() || args.metric.contains(metric);
    let mut all: Vec<Vec<Change>> = Vec::new();
    let mut gone: Vec<Vec<String>> = Vec::new();
    for (name, results, method) in others {
        let first = Side { results: base, method: base_method.as_deref() };
        let second = Side { results, method: method.as_deref() };
        let without =
            lacking(&first, &second).into_iter().filter(|(_, row)| !relative && is_wanted(&row.metric));
        gone.push(by_method(without));
        let mut changes = compare(&first, &second, by, args.seed, SUITES);
        let metrics = names(changes.iter().map(|change| change.metric.as_str()));
        changes.retain(|change| is_wanted(&change.metric));
        if changes.is_empty() && !metrics.is_empty() {
            return Err(Usage(format!(
                "{base_name} and {name} have no metric {} in common; there are: {metrics}",
                args.metric.join(", ")
            ))
            .into());
        }
        if changes.is_empty() && base == results && base_method == method {
            return Err(Usage(format!(
                "{base_name} and {name} are the same run: to compare two methods of it, name them: FILE#METHOD FILE#METHOD"
            ))
            .into());
        }
        if changes.is_empty() {
            return Err(Usage(format!(
                "{base_name} ({}) and {name} ({}) have no row in common: the same suite, method, parameters and metric are needed",
                suites(base),
                suites(results)
            ))
            .into());
        }
        all.push(changes);
    }
    if args.json {
        let lines: Result<Vec<String>, _> = all.iter().map(serde_json::to_string).collect();
        terminal::print_bytes((lines?.join("\n") + "\n").as_bytes())?;
    } else {
        print(args, &sides, &all, &gone)?;
    }
    let names: Vec<&str> = others.iter().map(|(name, ..)| name.as_str()).collect();
    // A table has it among its remarks.
    if args.json || args.fail_on_regression.is_some() {
        for (gone, name) in gone.iter().zip(&names).filter(|(gone, _)| !gone.is_empty()) {
            crate::terminal::complain!(
                "forkless: {name} lacks figures of {base_name}: {}; measure them again, or choose by #METHOD or --metric",
                gone.join(", ")
            );
        }
    }
    let Some(percent) = args.fail_on_regression else { return Ok(Exit::Fine) };
    let is_judged = judged(&all, &names, percent);
    Ok(if is_judged && gone.iter().all(Vec::is_empty) { Exit::Fine } else { Exit::Finding })
}

/// Fails where one side has no figures that a verdict could rest on.
fn judgeable(sides: &[(String, Results, Option<String>)]) -> anyhow::Result<()> {
    let Some((name, results, _)) = sides.iter().find(|(_, results, _)| is_of_another_world(results)) else {
        return Ok(());
    };
    let whose = if results.machine.emulator.is_some() { "of an emulator" } else { "of another machine" };
    Err(Usage(format!(
        "--fail-on-regression would judge nothing: the figures of {name} are {whose}, and get no verdict; leave \
         the flag out"
    ))
    .into())
}

/// Whether every figure got a verdict and none is worse, with a line for each kind of the others.
fn judged(all: &[Vec<Change>], names: &[&str], percent: f64) -> bool {
    let of = |is: &dyn Fn(&Change) -> bool| {
        let named = all.iter().zip(names).flat_map(|(changes, name)| {
            let found = changes.iter().filter(|change| is(change));
            found.map(move |change| format!("{} {} in {name}", change.method, change.metric))
        });
        named.collect::<Vec<_>>()
    };
    let worse = of(&|change| change.is_regression(percent));
    if !worse.is_empty() {
        crate::terminal::complain!("forkless: worse, and {percent} % is not ruled out: {}", worse.join(", "));
    }
    let is_zero = |change: &Change| change.a == 0.0 || change.b == 0.0;
    let no_ratio = of(&|change| change.verdict == Difference::None && is_zero(change));
    if !no_ratio.is_empty() {
        crate::terminal::complain!(
            "forkless: not judged, because one side is 0: {}; choose others by #METHOD or --metric",
            no_ratio.join(", ")
        );
    }
    let too_few = of(&|change| change.verdict == Difference::None && !is_zero(change));
    if !too_few.is_empty() {
        crate::terminal::complain!(
            "forkless: not judged, because there are too few rounds: {}; measure with more --runs or --time",
            too_few.join(", ")
        );
    }
    worse.is_empty() && no_ratio.is_empty() && too_few.is_empty()
}

/// Rows for a sentence, each method with its metrics.
fn by_method<'r>(rows: impl Iterator<Item = (&'r Suite, &'r Row)>) -> Vec<String> {
    let mut methods: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for (_, row) in rows {
        match methods.iter_mut().find(|(method, _)| *method == row.method) {
            Some((_, metrics)) => {
                metrics.insert(&row.metric);
            }
            None => methods.push((&row.method, BTreeSet::from([row.metric.as_str()]))),
        }
    }
    let words = methods.into_iter().map(|(method, metrics)| {
        format!("{method} ({})", metrics.into_iter().collect::<Vec<_>>().join(", "))
    });
    words.collect()
}

/// The notes of a noisy machine: a difference to another result may be no more than that noise.
fn warnings(results: &Results) -> BTreeSet<&str> {
    let notes = results.suites.iter().flat_map(|suite| &suite.notes);
    notes.map(String::as_str).filter(|note| note.starts_with("noisy:")).collect()
}

/// One table of all results against the first, under what each letter stands for and how it was
/// compared.
fn print(
    args: &Args,
    sides: &[(String, Results, Option<String>)],
    all: &[Vec<Change>],
    gone: &[Vec<String>],
) -> anyhow::Result<()> {
    let mut text = String::new();
    let width = (!args.markdown).then(terminal::width);
    for (letter, (index, (name, results, _))) in ('A'..='Z').zip(sides.iter().enumerate()) {
        let machine = &results.machine;
        let emulator =
            machine.emulator.as_ref().map_or_else(String::new, |emulator| format!(", in {emulator}"));
        let system = format!("{} {}{emulator}", machine.os, machine.kernel);
        // Different ways side by side in one result are each said.
        let mut remarks: Vec<&str> = Vec::new();
        let lacks = index.checked_sub(1).and_then(|index| gone.get(index)).filter(|gone| !gone.is_empty());
        let lacks = lacks.map(|gone| format!("lacks figures of A: {}", gone.join(", ")));
        remarks.extend(lacks.as_deref());
        for change in index.checked_sub(1).and_then(|index| all.get(index)).into_iter().flatten() {
            if !remarks.contains(&change.comparison.about()) {
                remarks.push(change.comparison.about());
            }
        }
        if sides[0].1.machine.fingerprint != machine.fingerprint {
            remarks.push("another machine or system than A");
        }
        remarks.extend(warnings(results));
        text.push_str(&render::side(letter, name, &system, &remarks, width));
    }
    text.push_str(&render::changes(all, width));
    terminal::print(&format!("{}\n", text.trim_end()))
}

/// Lists the saved results, oldest first, or shows one.
pub(crate) fn history(args: &HistoryArgs) -> anyhow::Result<Exit> {
    if let Some(name) = &args.result {
        let results = load(name, &mut Told::default())?;
        let text = match args.format {
            Format::Table => render::terminal(&results, terminal::width(), SUITES),
            Format::Json => results.to_json() + "\n",
            Format::Csv => render::csv(&results),
            Format::Markdown => render::markdown(&results, SUITES),
            Format::Html => html::page(BENCH, &results, SUITES),
            Format::Svg => figure::by_memory(BENCH, "forkless run", &results).ok_or_else(|| {
                let wanted = "a result of `forkless bench memory` with two sizes above 0 or more";
                Usage(format!("{}: the figure needs {wanted}", name.to_string_lossy()))
            })?,
        };
        if matches!(args.format, Format::Table) {
            terminal::print(&text)?;
        } else {
            terminal::print_bytes(text.as_bytes())?;
        }
        return Ok(Exit::Fine);
    }
    let store = Store::open().map_err(from_library)?;
    let mut text = String::new();
    let line = |path: &Path, results: Results| {
        if args.json {
            let suites: Vec<&str> = results.suites.iter().map(|suite| suite.name.as_str()).collect();
            let line = serde_json::json!({
                "file": path.to_string_lossy(), "created": results.created, "suites": suites,
                "machine": results.machine.fingerprint,
            });
            text.push_str(&format!("{line}\n"));
            return;
        }
        // The beginning of a name is a name for `history` and `compare`.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = terminal::in_line(name.strip_suffix(".json").unwrap_or(&name));
        let line = format!("{name:<34} {}", render::meaning(&results, SUITES));
        text.push_str(&format!("{}\n", line.trim_end()));
    };
    store.for_each(&mut |error| Told::default().passed_over(error), line).map_err(from_library)?;
    if text.is_empty() {
        terminal::complain!(
            "forkless: no results in {}: `forkless bench` keeps them there",
            store.directory().display()
        );
    }
    if args.json {
        terminal::print_bytes(text.as_bytes())?;
    } else {
        terminal::print(&text)?;
    }
    Ok(Exit::Fine)
}
