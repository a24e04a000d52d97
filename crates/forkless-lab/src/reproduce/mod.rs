//! The published experiments, each by its author's own procedure, closed with a ledger of the
//! claims made in them: what was claimed, what this machine says, and why.
//!
//! An experiment measures and names [figures](Figure); it judges nothing. The ledger states in one
//! table, for every claim, the figures that decide it and their bounds. The verdict is computed
//! from the figures of this run with their intervals. Both are in the result, so that a reader (or
//! a test) can check the one against the other.
//!
//! Where the machine is too small, or a rough answer is asked for, an experiment is scaled down and
//! says so. A figure that could not be measured is missing with its reason, and the claims that
//! rest on it are `not run here`.

mod ledger;

mod e1;
mod e2;
mod e3;
mod e4;
mod e5;
mod e6;
pub mod green;
pub mod page;
mod plot;
pub mod text;
mod tools;
mod trace;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use self::ledger::{ClaimVerdict, Criterion, Judged};
pub use self::plot::{Line, Mark, Plot};
use crate::run_command::run_command;
use crate::victims;
use forkless_bench::engine::{Observer, Schedule};
use forkless_bench::error::Error;
use forkless_bench::guard::Guard;
use forkless_bench::machine::Machine;
use forkless_bench::noise::{Noise, NoiseSnapshot};
use forkless_bench::plain;
use forkless_bench::render::Grid;
use forkless_bench::results::RESAMPLES;
use forkless_bench::stats::bootstrap::{Resampler, Samples, within_rounds};
use forkless_bench::stats::median;
use forkless_bench::tracing;

/// The name of the JSON schema, in every file.
pub const SCHEMA: &str = "forkless.reproduce/1";

/// One of the six experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "`title` says what each is about")]
pub enum Id {
    E1,
    E2,
    E3,
    E4,
    E5,
    E6,
}

impl Id {
    /// All, in their order.
    pub const ALL: [Id; 6] = [Id::E1, Id::E2, Id::E3, Id::E4, Id::E5, Id::E6];

    /// What the experiment is about.
    #[must_use]
    pub(crate) fn title(self) -> &'static str {
        match self {
            Id::E1 => "fork slows the parent down afterwards",
            Id::E2 => "The cost of system calls, and of vfork beside fork",
            Id::E3 => "A large server's clone, and huge pages",
            Id::E4 => "A system call that nobody asked for",
            Id::E5 => "popen and system without fork",
            Id::E6 => "A snapshot by fork, and the queries that wait for it",
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for Id {
    type Err = Error;

    fn from_str(name: &str) -> Result<Id, Error> {
        let found = Id::ALL.into_iter().find(|id| id.to_string().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            Error::Spec(format!("no experiment {name:?}: there are E1, E2, E3, E4, E5 and E6"))
        })
    }
}

/// How to run the experiments.
#[derive(Debug, Clone, Default)]
pub struct ReproduceOptions {
    /// Smaller sizes and fewer runs: a rough answer in seconds.
    pub quick: bool,
    /// Seed of the order of methods and of the intervals.
    pub seed: u64,
    /// Whether missing programs (a Ruby, a web server) may be installed as Debian packages, which
    /// only root can.
    pub install: bool,
    /// The `forkless` command: it keeps servers from outliving the experiment. Without it there is
    /// no server.
    pub forkless: Option<PathBuf>,
    /// Whether `forkless run` can be used; without it, its rows are missing.
    pub run: bool,
    /// Bytes that a data store holds where an experiment has one. `None`: the experiment's own
    /// size.
    pub memory: Option<u64>,
}

impl ReproduceOptions {
    /// What to put before a program to run it without the cost of its forks.
    fn launcher(&self) -> Option<Vec<OsString>> {
        let forkless = self.forkless.as_ref().filter(|_| self.run)?;
        Some(run_command(forkless, &[]))
    }

    /// How a server is kept and measured, as the victims are. `None`: there is nothing to keep it
    /// from outliving the experiment.
    fn victims(&self) -> Option<victims::Spec> {
        Some(victims::Spec {
            filter: Vec::new(),
            schedule: Schedule { seed: self.seed, ..Schedule::default() },
            forkless: self.forkless.clone()?,
            install: self.install,
            quick: self.quick,
            rss: None,
            threads: 1,
        })
    }
}

/// Everything one invocation found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Article {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of this library.
    pub version: String,
    /// When the run began, in seconds since 1970.
    pub created: u64,
    /// Where it was measured.
    pub machine: Machine,
    /// The experiments, in their order.
    pub experiments: Vec<Experiment>,
}

impl Article {
    /// An article that begins now, on this machine, without experiments.
    #[must_use]
    pub fn begin() -> Article {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Article {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created,
            machine: Machine::observe(),
            experiments: Vec::new(),
        }
    }

    /// The article as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Serialising plain structures, strings and numbers into a string cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`to_json`](Article::to_json) wrote, and judges its claims anew: the criteria may
    /// have become sharper since.
    ///
    /// # Errors
    /// [`Error::Spec`] when the text is something else.
    pub fn from_json(text: &str) -> Result<Article, Error> {
        let mut article = Article::as_written(text)?;
        for experiment in &mut article.experiments {
            experiment.claims = ledger::judge(experiment);
        }
        Ok(article)
    }

    /// The same with the verdicts that it was written with: what a reader of the text saw.
    ///
    /// # Errors
    /// [`Error::Spec`] when the text is something else.
    pub fn as_written(text: &str) -> Result<Article, Error> {
        let article: Article = serde_json::from_str(text)
            .map_err(|error| Error::Spec(format!("not a result of forkless reproduce: {error}")))?;
        if article.schema != SCHEMA {
            return Err(Error::Spec(format!("has the schema {:?}, not {SCHEMA:?}", article.schema)));
        }
        Ok(article)
    }

    /// Takes an experiment in, in the place of an earlier one of the same name.
    pub fn put(&mut self, experiment: Experiment) {
        self.experiments.retain(|other| other.id != experiment.id);
        self.experiments.push(experiment);
        self.experiments.sort_by_key(|experiment| experiment.id);
    }

    /// Every judged claim, in order.
    pub fn claims(&self) -> impl Iterator<Item = &Judged> {
        self.experiments.iter().flat_map(|experiment| &experiment.claims)
    }
}

/// One experiment as it was run here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Which.
    pub id: Id,
    /// Whether it was run with smaller sizes for a rough answer.
    pub quick: bool,
    /// When, in seconds since 1970.
    pub created: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What the author did and found, in a few sentences.
    pub theirs: String,
    /// What was done here.
    pub ours: String,
    /// What was made smaller than the author's, and why.
    pub scaled: Vec<String>,
    /// Tables of the published shape.
    pub tables: Vec<TitledGrid>,
    /// The pictures.
    pub plots: Vec<Plot>,
    /// The published picture in characters, where there is one.
    pub picture: String,
    /// What the claims are judged by.
    pub figures: Vec<Figure>,
    /// Figures that were not measured, and why.
    pub missing: BTreeMap<String, String>,
    /// Sentences that a reader needs.
    pub notes: Vec<String>,
    /// How quiet the machine was meanwhile.
    pub noise: Noise,
    /// The claims, judged.
    pub claims: Vec<Judged>,
}

impl Experiment {
    fn begin(id: Id, options: &ReproduceOptions, theirs: &str, ours: &str) -> Experiment {
        Experiment {
            id,
            quick: options.quick,
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            seconds: 0.0,
            theirs: theirs.to_owned(),
            ours: ours.to_owned(),
            scaled: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
            picture: String::new(),
            figures: Vec::new(),
            missing: BTreeMap::new(),
            notes: Vec::new(),
            noise: Noise::default(),
            claims: Vec::new(),
        }
    }

    /// The figure of this name.
    #[must_use]
    pub(crate) fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// Says why figures are missing; a note too, once.
    fn miss(&mut self, names: &[&str], why: impl Into<String>) {
        let why = why.into();
        for name in names {
            self.missing.insert((*name).to_owned(), why.clone());
        }
        let note = format!("not measured: {why}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }
}

/// A table of the published shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TitledGrid {
    /// What it shows.
    pub title: String,
    /// Its content.
    pub grid: Grid,
}

impl TitledGrid {
    fn new(title: impl Into<String>, heads: &[&str], text_columns: usize) -> TitledGrid {
        let heads = heads.iter().map(|&head| head.to_owned()).collect();
        TitledGrid { title: title.into(), grid: Grid { heads, lines: Vec::new(), text_columns } }
    }

    fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.grid.lines.push(cells.into_iter().collect());
    }
}

/// A measured or counted figure that claims are judged by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name among the experiment's figures.
    pub name: String,
    /// What it is, for readers.
    pub about: String,
    /// Its unit; empty for a ratio or a count.
    pub unit: String,
    /// The figure.
    pub value: f64,
    /// Its 95 % interval; `None` for a count, which is exact.
    pub ci95: Option<[f64; 2]>,
}

impl Figure {
    /// A count, or an answer: 1 for yes and 0 for no.
    fn exact(name: &str, about: &str, unit: &str, value: f64) -> Figure {
        Figure { name: name.into(), about: about.into(), unit: unit.into(), value, ci95: None }
    }

    fn answer(name: &str, about: &str, yes: bool) -> Figure {
        Figure::exact(name, about, "", f64::from(u8::from(yes)))
    }

    /// The median of values, one or more a round, with its interval by resampled rounds.
    fn of(name: &str, about: &str, unit: &str, samples: &Samples, seed: u64) -> Figure {
        let value = median(&samples.values);
        let interval = Resampler::new([samples], RESAMPLES, seed).medians(samples).interval(0.95);
        // One round has no spread to draw an interval from; an infinite one keeps it from deciding
        // anything.
        let ci95 = Some(interval.unwrap_or([f64::MIN, f64::MAX]));
        Figure { name: name.into(), about: about.into(), unit: unit.into(), value, ci95 }
    }

    /// One series against another within rounds.
    fn ratio(name: &str, about: &str, of: &Samples, to: &Samples, seed: u64) -> Figure {
        Figure::of(name, about, "x", &within_rounds(of, to), seed)
    }

    /// The interval, or the value twice where the figure is exact.
    #[must_use]
    pub(crate) fn bounds(&self) -> [f64; 2] {
        self.ci95.unwrap_or([self.value; 2])
    }
}

/// What an experiment has at hand.
struct Bench<'a> {
    options: &'a ReproduceOptions,
    guard: Option<&'a mut Guard>,
    observer: &'a mut dyn Observer,
}

impl Bench<'_> {
    fn quick<T>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }
}

/// Runs one experiment and judges its claims.
///
/// # Errors
/// Only what makes the whole experiment impossible; a part that cannot be measured here is missing
/// with its reason.
///
/// Compiled only, for it takes minutes; the tests of `forkless reproduce` run it.
pub fn run(
    id: Id,
    options: &ReproduceOptions,
    guard: Option<&mut Guard>,
    observer: &mut dyn Observer,
) -> Result<Experiment, Error> {
    let started = Instant::now();
    let watch = NoiseSnapshot::start();
    let mut bench = Bench { options, guard, observer };
    let mut experiment = match id {
        Id::E1 => e1::run(&mut bench)?,
        Id::E4 => e4::run(&mut bench)?,
        Id::E5 => e5::run(&mut bench)?,
        Id::E6 => e6::run(&mut bench)?,
        Id::E2 => e2::run(&mut bench)?,
        Id::E3 => e3::run(&mut bench)?,
    };
    experiment.seconds = started.elapsed().as_secs_f64();
    experiment.noise = watch.finish([]);
    experiment.notes.extend(experiment.noise.warnings());
    experiment.notes.extend(plain::note().into_iter().chain(tracing::note()));
    experiment.claims = ledger::judge(&experiment);
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_experiments() {
        for id in Id::ALL {
            assert_eq!(id.to_string().to_lowercase().parse::<Id>().unwrap(), id);
        }
        assert!(matches!("E7".parse::<Id>(), Err(Error::Spec(_))));
    }

    #[test]
    fn an_article_reads_back_and_is_judged_by_what_it_holds() {
        let mut article = Article::begin();
        let mut experiment = Experiment::begin(Id::E4, &ReproduceOptions::default(), "", "");
        experiment.add(Figure::exact("sigprocmask.syscalls", "", "", 1.0));
        experiment.add(Figure::exact("vdso.sigprocmask", "", "", 0.0));
        experiment.claims = ledger::judge(&experiment);
        article.put(experiment);
        let json = article.to_json();
        assert_eq!(Article::from_json(&json).unwrap(), article);
        let claim = article.claims().find(|claim| claim.id == "4.3").unwrap();
        assert_eq!(claim.verdict, ClaimVerdict::Holds);
        // A verdict that the figures do not give does not survive.
        let forged = json.replace("\"verdict\":\"holds\"", "\"verdict\":\"differs\"");
        assert_ne!(forged, json);
        assert_eq!(Article::from_json(&forged).unwrap(), article);
        // But it is the one that was read, and so expected.
        let written = Article::as_written(&forged).unwrap();
        let claim = written.claims().find(|claim| claim.id == "4.3").unwrap();
        assert_eq!(claim.verdict, ClaimVerdict::Differs);
        assert!(matches!(Article::from_json("{}"), Err(Error::Spec(_))));
    }

    #[test]
    fn one_round_decides_nothing() {
        let figure = Figure::of("x", "", "", &Samples::one_a_round(vec![5.0]), 1);
        let [low, high] = figure.bounds();
        assert!(low < -1e300 && high > 1e300);
    }
}
