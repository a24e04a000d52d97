//! `forkless bench spawn --against COMMAND`: this build and another, restarted in turns.
//!
//! Both builds are started in the same way, with flags that every version has. So a difference
//! between them is a difference of the builds.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use forkless_bench::compare::{Change, Difference, fewest_pairs, is_other_first, side_by_side};
use forkless_bench::engine::Observer;
use forkless_bench::error::Error;
use forkless_bench::render;
use forkless_bench::restarts;
use forkless_bench::results::{NoResults, Results, SCHEMA};
use forkless_lab::SUITES;
use serde::Serialize;

use super::common::{Common, from_library, this_program};
use super::progress::Progress;
use crate::exit::{Exit, Missing, Usage};
use crate::terminal;

/// Pairs of restarts, where `--restarts` does not say.
const PAIRS: u16 = 20;
/// The same with `--quick`.
const QUICK_PAIRS: u16 = 12;
/// How long a build may take to say which methods it has.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a restart may take beyond twenty times its share of the time: the parent's memory is
/// written first.
const PREPARATION: Duration = Duration::from_secs(120);
/// The metric that is judged.
const JUDGED: &str = "wall";
/// The most that a build may print: results of all methods are a hundredth of that.
const PRINTED: u64 = 256 << 20;

/// What is measured on both sides.
#[derive(Debug)]
pub(super) struct Spec<'a> {
    /// The other build.
    pub(super) other: &'a OsStr,
    /// The limit of `--fail-on-regression`.
    pub(super) limit: Option<f64>,
    /// Flags of the suite, for both.
    pub(super) flags: Vec<String>,
    /// The methods wanted.
    pub(super) methods: Vec<&'static str>,
    /// How many rows each method has.
    pub(super) rows_each: usize,
}

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: &'static str,
    changes: &'a [Change],
    a: &'a Results,
    b: &'a Results,
}

/// A build, and what messages call it.
struct Build {
    program: OsString,
    name: String,
}

/// Measures both builds. A finding where the limit is passed.
pub(super) fn run(spec: &Spec<'_>, common: &Common) -> anyhow::Result<Exit> {
    let turns = common.turns(PAIRS, QUICK_PAIRS)?;
    let outputs = common.prepare()?;
    let builds = [
        Build { program: spec.other.to_owned(), name: printable(&spec.other.to_string_lossy()) },
        Build { program: this_program()?.into_os_string(), name: "this build".to_owned() },
    ];
    let known = builds[0].methods()?;
    let (methods, lacking): (Vec<&str>, Vec<&str>) =
        spec.methods.iter().partition(|method| known.iter().any(|known| known == *method));
    if methods.is_empty() {
        let there = known.join(", ");
        return Err(Usage(format!("{} has none of these methods; it has: {there}", builds[0].name)).into());
    }
    let needed = fewest_pairs(methods.len() * spec.rows_each);
    if usize::from(turns.pairs) < needed {
        return Err(Usage(format!(
            "--restarts {}: too few to judge {} rows; {needed} are enough, and more see smaller differences",
            turns.pairs,
            methods.len() * spec.rows_each
        ))
        .into());
    }
    let mut arguments: Vec<String> = ["bench", "spawn", "--no-save", "--json", "-"].map(str::to_owned).into();
    arguments.extend(["--restarts", "1", "--methods"].map(str::to_owned));
    arguments.push(methods.join(","));
    arguments.extend(spec.flags.iter().cloned());
    arguments.extend(turns.flags.iter().cloned());

    let mut progress = Progress::new("spawn");
    let mut measured = [Vec::new(), Vec::new()];
    for pair in 0..turns.pairs {
        progress.progress(usize::from(pair), usize::from(turns.pairs));
        let seed = turns.seed.wrapping_add(u64::from(pair));
        let order = if is_other_first(seed) { [1, 0] } else { [0, 1] };
        let seed = seed.to_string();
        for side in order {
            let arguments = arguments.iter().map(String::as_str).chain(["--seed", seed.as_str()]);
            let patience = PREPARATION + turns.share * 20;
            let restart = format!("restart {} of {}", pair + 1, turns.pairs);
            measured[side].push(builds[side].measure(arguments, patience, &restart)?);
        }
    }
    drop(progress);
    let [a, b] = measured.map(|parts| restarts::merge(parts, SUITES));
    let (a, b) = a.zip(b).context("no restart gave a result")?;
    let changes = side_by_side(&a, &b);
    let lacks = Lacks::of([&a, &b], &methods, lacking, &changes);
    if changes.is_empty() {
        return Err(anyhow::anyhow!("{} and this build have no row of wall in common", builds[0].name));
    }
    let is_stdout_taken = outputs.take_stdout();
    if let Some(output) = outputs.json {
        let report = Report { schema: "forkless.against/1", changes: &changes, a: &a, b: &b };
        output.write(&(serde_json::to_string(&report)? + "\n"))?;
    }
    let says = |markdown| text(&builds, [&a, &b], &lacks, &changes, markdown);
    if let Some(output) = outputs.markdown {
        output.write(&says(true))?;
    }
    if !is_stdout_taken {
        terminal::print(&says(false))?;
    }
    let exit = judged(&changes, spec.limit);
    if spec.limit.is_some() && !lacks.lost.is_empty() {
        crate::terminal::complain!(
            "forkless: not judged, because only {} has such figures: {}; `bench spawn` says why",
            builds[0].name,
            lacks.lost.join(", ")
        );
        return Ok(Exit::Finding);
    }
    Ok(exit)
}

/// The wanted methods that are not compared.
struct Lacks<'m> {
    /// Those that the other build does not know.
    unknown: Vec<&'m str>,
    /// Those of which the other build gave no figure, or fewer than this one.
    other: Vec<&'m str>,
    /// Those of which this build gave fewer figures, or both gave figures that cannot be ranked.
    lost: Vec<&'m str>,
}

impl<'m> Lacks<'m> {
    fn of(
        [a, b]: [&Results; 2],
        methods: &[&'m str],
        unknown: Vec<&'m str>,
        changes: &[Change],
    ) -> Lacks<'m> {
        let mut lacks = Lacks { unknown, other: Vec::new(), lost: Vec::new() };
        for method in methods {
            // The rows of a method, and how many restarts have each.
            let restarts = |results: &Results| {
                let rows = results.suites.iter().flat_map(|suite| &suite.rows);
                let rows = rows.filter(|row| row.method == *method && row.metric == JUDGED);
                rows.map(|row| row.restarts.len()).collect::<Vec<_>>()
            };
            let [a, b] = [a, b].map(restarts);
            let judged = changes.iter().filter(|change| change.method == *method).count();
            let sum = |counts: &[usize]| counts.iter().sum::<usize>();
            if judged >= a.len().max(b.len()).max(1) {
                continue;
            }
            let of_other = sum(&a) < sum(&b) || a.is_empty();
            if of_other { lacks.other.push(method) } else { lacks.lost.push(method) }
        }
        lacks
    }
}

/// The table under what its letters stand for.
fn text(
    builds: &[Build; 2],
    results: [&Results; 2],
    lacks: &Lacks<'_>,
    changes: &[Change],
    markdown: bool,
) -> String {
    let mut text = String::new();
    let width = (!markdown).then(terminal::width);
    for ((letter, build), results) in ['A', 'B'].into_iter().zip(builds).zip(results) {
        let mut remarks: Vec<String> = Vec::new();
        let named = |what: &str, methods: &[&str]| {
            (!methods.is_empty()).then(|| format!("{what} {}", methods.join(", ")))
        };
        match letter {
            'A' => {
                remarks.extend(named("has no method", &lacks.unknown));
                remarks.extend(named("gave no figure, or too few, of", &lacks.other));
            }
            _ => remarks.extend(named("gave no figure, or too few, of", &lacks.lost)),
        }
        if letter == 'B' {
            remarks.extend(changes.first().map(|change| change.comparison.about().to_owned()));
        }
        let notes =
            || results.suites.iter().flat_map(|suite| &suite.notes).filter(|note| note.starts_with("noisy:"));
        remarks.extend(notes().next().map(|first| match notes().count() - 1 {
            0 => first.clone(),
            more => format!("{first} (and {more} more such notes)"),
        }));
        let of = format!("forkless {}", results.version);
        text.push_str(&render::side(letter, &build.name, &of, &remarks, width));
    }
    text.push_str(&render::changes(&[changes.to_vec()], width));
    format!("{}\n", text.trim_end())
}

/// Whether the limit is passed, with a line for what passes it and one for what could.
fn judged(changes: &[Change], limit: Option<f64>) -> Exit {
    let Some(limit) = limit else { return Exit::Fine };
    let (slower, rest): (Vec<&Change>, Vec<&Change>) =
        changes.iter().partition(|change| change.is_regression(limit));
    let hidden = rest
        .into_iter()
        .filter(|change| change.verdict == Difference::NoDifferenceShown && change.may_be_slower_by(limit));
    let hidden: Vec<String> = hidden.map(named).collect();
    if !hidden.is_empty() {
        crate::terminal::complain!(
            "forkless: too noisy to rule out a slowdown of {limit} %: {}; more --restarts, a longer --time or a quieter machine see more",
            hidden.join(", ")
        );
    }
    if slower.is_empty() {
        return Exit::Fine;
    }
    let named: Vec<String> = slower.into_iter().map(named).collect();
    crate::terminal::complain!("forkless: slower, and {limit} % is not ruled out: {}", named.join(", "));
    Exit::Finding
}

fn named(change: &Change) -> String {
    let [low, high] = change.ci95.map(|ratio| 100.0 * (ratio - 1.0));
    format!("{} {:+.1} % ({low:+.1} to {high:+.1})", change.method, 100.0 * (change.ratio - 1.0))
}

impl Build {
    /// The methods that it has.
    fn methods(&self) -> anyhow::Result<Vec<String>> {
        let said = self.start(["bench", "spawn", "--methods", "list"], ANSWER, "--methods list")?;
        let text = String::from_utf8_lossy(&said);
        let names: Vec<String> =
            text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
        if names.iter().any(|name| name == "vfork_exec") {
            return Ok(names);
        }
        Err(Usage(format!(
            "--against {}: it does not answer `bench spawn --methods list` as forkless does; name another build of forkless",
            self.name
        ))
        .into())
    }

    /// Has it measure once.
    fn measure<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        patience: Duration,
        restart: &str,
    ) -> anyhow::Result<Results> {
        let said = self.start(arguments, patience, restart)?;
        Results::from_json(&said).map_err(|error| match error {
            NoResults::Schema(schema) => Usage(format!(
                "{} writes results of schema {}, and this build reads {SCHEMA}: no comparison of these two",
                self.name,
                printable(&schema)
            ))
            .into(),
            NoResults::Other(why) => {
                anyhow::anyhow!("{}, {restart}: its output is no result: {}", self.name, printable(&why))
            }
            NoResults::Contradiction { .. } => {
                anyhow::anyhow!("{}, {restart}: its result {}", self.name, printable(&error.to_string()))
            }
        })
    }

    /// Runs it, and returns what it printed. It and everything it starts is ended with this
    /// process, and after `patience`.
    fn start<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        patience: Duration,
        stage: &str,
    ) -> anyhow::Result<Vec<u8>> {
        let mut command = forkless::Command::new(this_program()?);
        // A group of its own: Ctrl-C must not reach the process that ends the others.
        command
            .args(["bench", "keep", "--on-terminate", "--"])
            .arg(&self.program)
            .args(arguments)
            .process_group(0);
        command
            .stdin(forkless::Stdio::piped())
            .stdout(forkless::Stdio::piped())
            .stderr(forkless::Stdio::piped());
        let mut subreaper = command.spawn().context("cannot start this program again")?;
        let lifeline = subreaper.stdin.take();
        let (sender, printed) = mpsc::channel();
        let output = subreaper.stdout.take().context("no pipe from the program")?;
        let reading = std::thread::Builder::new();
        reading
            .spawn(move || sender.send(whole(output)))
            .map_err(|error| from_library(Error::no_thread(error)))?;
        let (sender, complaints) = mpsc::channel();
        let errors = subreaper.stderr.take().context("no pipe from the program")?;
        let reading = std::thread::Builder::new();
        reading
            .spawn(move || sender.send(whole(errors)))
            .map_err(|error| from_library(Error::no_thread(error)))?;
        let printed = printed.recv_timeout(patience);
        drop(lifeline);
        // The subreaper ends in a bounded time, and with it every process that holds the pipes.
        let status = subreaper.wait().context("the other program's end")?;
        let complaints = complaints.recv().unwrap_or_default();
        let complaints = String::from_utf8_lossy(&complaints);
        let said = || printable(complaints.trim().lines().last().unwrap_or_default());
        let Ok(printed) = printed else {
            let seconds = patience.as_secs();
            anyhow::bail!("{}, {stage}: no end within {seconds} s; it was ended", self.name);
        };
        if printed.len() as u64 >= PRINTED {
            anyhow::bail!("{}, {stage}: it printed more than {} MiB; it was ended", self.name, PRINTED >> 20);
        }
        match status.code() {
            Some(0) => Ok(printed),
            Some(127) => {
                let here = !self.name.contains('/') && Path::new(&self.program).exists();
                let hint =
                    if here { format!(" in PATH; ./{} is a file here", self.name) } else { String::new() };
                Err(Usage(format!("--against: {}{hint}", printable(&complaints))).into())
            }
            Some(2) => Err(Usage(format!("{}: {}", self.name, said())).into()),
            Some(3) => Err(Missing(format!("{}: {}", self.name, said())).into()),
            Some(code) if code > 128 => {
                Err(anyhow::anyhow!("{}, {stage}: died of signal {}", self.name, code - 128))
            }
            code => {
                Err(anyhow::anyhow!("{}, {stage}: exit status {}; {}", self.name, code.unwrap_or(-1), said()))
            }
        }
    }
}

/// A program's words on one line, without characters that would steer a terminal.
fn printable(words: &str) -> String {
    let words = words.trim().trim_start_matches("forkless: ");
    words.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// All that a pipe gives, up to a limit.
fn whole(from: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    // What was read before an error is what there is.
    let _ = from.take(PRINTED).read_to_end(&mut all);
    all
}
