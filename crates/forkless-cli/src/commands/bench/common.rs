//! The flags of every suite, and the destinations of its results: files first, then the table, then
//! the store in the user's data directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use forkless_bench::engine::{Observer, Schedule};
use forkless_bench::error::{Error, remedy};
use forkless_bench::guard::Guard;
use forkless_bench::html;
#[cfg(target_os = "linux")]
use forkless_bench::plain;
use forkless_bench::render;
use forkless_bench::restarts;
use forkless_bench::results::{Results, Suite};
use forkless_bench::store::Store;
#[cfg(target_os = "linux")]
use forkless_bench::tracing;
use forkless_lab::SUITES;

use super::progress::Progress;
use crate::args;
use crate::exit::{Exit, Missing, Usage};
use crate::output_file::OutputFile;
use crate::terminal;

/// Length, order and output of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// Counted runs of each method (slow methods take fewer).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Stop each measurement after this many seconds, at a whole round. `memory`, `cow`,
    /// `blockwrite` and `all` make several: one for each size and kind of pages, target or suite.
    #[arg(long, value_name = "SECONDS", value_parser = args::seconds, allow_negative_numbers = true)]
    time: Option<Duration>,
    /// Give a rough answer in a few seconds.
    #[arg(long)]
    quick: bool,
    /// Measure only methods whose name contains one of these words. `bench all` leaves out a suite
    /// without such a method.
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    filter: Vec<String>,
    /// Seed of the order of methods and of the intervals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bind the measurement to these processors, for example 0 or 0,1.
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    pin: Vec<usize>,
    /// Write results as JSON to a file; - is standard output, in place of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write results as CSV, one line a row; - is standard output, in place of the table.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the table as GitHub-flavoured Markdown; - is standard output, in place of the table.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write a page with plots and sortable tables, all in one file; - is standard output, in place
    /// of the table.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Divide the runs among this number of processes, one after the other: `compare` needs several
    /// to tell two results apart [default: 5 for spawn, 1 for the others and with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    restarts: Option<u16>,
    /// One of those processes: its number and their count.
    #[arg(long, hide = true, value_name = "I/N")]
    part: Option<String>,
    /// Do not keep the results in the data directory.
    #[arg(long)]
    no_save: bool,
}

impl Common {
    /// The engine's plan: `--runs` or `runs`, a tenth of them with `--quick`.
    pub(crate) fn plan(&self, runs: u32) -> anyhow::Result<Schedule> {
        let runs = self.runs.unwrap_or(if self.quick { runs.div_ceil(10) } else { runs });
        // A run without a limit of its own must still end while its user is willing to wait.
        let time = self.time.unwrap_or(Duration::from_secs(if self.quick { 15 } else { 120 }));
        let (part, parts) = self.part().unwrap_or((0, 1));
        let runs = runs.div_ceil(parts);
        let seed = self.seed.wrapping_add(u64::from(part));
        Ok(Schedule { runs: runs as usize, time: Some(time / parts), seed, ..Schedule::default() })
    }

    /// The same with a time limit of the suite's own, where none is given.
    #[cfg(target_os = "linux")]
    pub(crate) fn plan_within(&self, runs: u32, seconds: u64) -> anyhow::Result<Schedule> {
        let plan = self.plan(runs)?;
        let time = if self.time.is_some() { plan.time } else { Some(Duration::from_secs(seconds)) };
        Ok(Schedule { time, ..plan })
    }

    /// Whether a rough answer is wanted.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// Whether the number of processes was given.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_restarts(&self) -> bool {
        self.restarts.is_some()
    }

    /// The turns of two builds: so many pairs of restarts where `--restarts` does not say.
    #[cfg(target_os = "linux")]
    pub(super) fn turns(&self, usual: u16, quick: u16) -> anyhow::Result<Turns> {
        if self.csv.is_some() || self.html.is_some() {
            return Err(Usage(
                "two builds are compared in --json and --markdown, not in --csv and --html".into(),
            )
            .into());
        }
        let pairs = self.restarts.unwrap_or(if self.quick { quick } else { usual });
        let plan = self.plan(3000)?;
        let share = plan.time.unwrap_or_default() / (2 * u32::from(pairs));
        let runs = plan.runs.div_ceil(usize::from(pairs));
        let flags =
            ["--runs".to_owned(), runs.to_string(), "--time".to_owned(), share.as_secs_f64().to_string()];
        Ok(Turns { pairs, share, flags, seed: self.seed })
    }

    fn part(&self) -> Option<(u32, u32)> {
        let (part, parts) = self.part.as_deref()?.split_once('/')?;
        Some((part.parse().ok()?, parts.parse().ok().filter(|&parts| parts > 0)?))
    }

    /// Has several processes of this program make the run, and merges their results. `None` where
    /// one process is enough, or where this process is one of them.
    pub(crate) fn in_restarts(
        &self,
        usual: u16,
        flags: &dyn Fn() -> Vec<String>,
        progress: &mut dyn Observer,
    ) -> anyhow::Result<Option<Results>> {
        let parts = self.restarts.unwrap_or(if self.quick { 1 } else { usual });
        if self.part.is_some() || parts < 2 {
            return Ok(None);
        }
        let flags = flags();
        let mut all = Vec::new();
        for part in 0..parts {
            progress.progress(usize::from(part), usize::from(parts));
            let output = run_part(&format!("{part}/{parts}"), &flags)?;
            if !output.status.success() {
                let text = String::from_utf8_lossy(&output.stderr);
                let why = text.trim().strip_prefix("forkless: ").unwrap_or(text.trim()).to_owned();
                return Err(match output.status.code() {
                    Some(2) => Usage(why).into(),
                    Some(3) => Missing(why).into(),
                    _ => anyhow::anyhow!("{why} ({})", output.status),
                });
            }
            all.push(serde_json::from_slice(&output.stdout).context("a part of the run gave no result")?);
        }
        Ok(restarts::merge(all, SUITES))
    }

    /// The words of `--filter`.
    pub(crate) fn filter(&self) -> &[String] {
        &self.filter
    }

    /// Whether `--filter` lets a method through.
    pub(crate) fn selects(&self, method: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|word| method.contains(word.as_str()))
    }

    /// Prepares a measurement: opens the output files, so that an hour of measuring is not lost to
    /// a mistyped path, and binds the process to its processors.
    pub(crate) fn prepare(&self) -> anyhow::Result<Outputs> {
        if self.part.is_some() {
            return Ok(Outputs { json: Some(Output::Stdout), csv: None, markdown: None, html: None });
        }
        let outputs = Outputs {
            json: self.json.as_deref().map(Output::open).transpose()?,
            csv: self.csv.as_deref().map(Output::open).transpose()?,
            markdown: self.markdown.as_deref().map(Output::open).transpose()?,
            html: self.html.as_deref().map(Output::open).transpose()?,
        };
        let to_stdout = [&outputs.json, &outputs.csv, &outputs.markdown, &outputs.html];
        if to_stdout.iter().filter(|output| matches!(output, Some(Output::Stdout))).count() > 1 {
            return Err(Usage(
                "only one of --json, --csv, --markdown and --html can go to standard output".into(),
            )
            .into());
        }
        Output::all_differ(&to_stdout.map(Option::as_ref))?;
        if !self.pin.is_empty() {
            forkless_bench::parent::pin(&self.pin).map_err(from_library)?;
        }
        Ok(outputs)
    }

    /// Runs one suite from its preparation to its output. Outputs are opened first; the guard and
    /// the progress bar live as long as the measurement; a suite that measured nothing is a missing
    /// facility. The number of processes that share the runs is `usual` where `--restarts` is not
    /// given; each has these flags besides.
    pub(crate) fn run(
        &self,
        name: &str,
        (usual, flags): (u16, &dyn Fn() -> Vec<String>),
        measure: impl FnOnce(&mut Guard, &mut dyn Observer) -> anyhow::Result<Suite>,
    ) -> anyhow::Result<Exit> {
        let outputs = self.prepare()?;
        let mut progress = Progress::new(name);
        // Beside the parts of a divided run, too: only this guard says that the run was
        // interrupted.
        let mut guard = guard()?;
        if let Some(results) = self.in_restarts(usual, flags, &mut progress)? {
            drop((progress, guard));
            self.finish(&results, outputs)?;
            return Ok(Exit::Fine);
        }
        let mut results = Results::begin();
        let mut suite = measure(&mut guard, &mut progress)?;
        note_plain(&mut suite);
        // Changed settings are set back before anything is printed.
        drop((progress, guard));
        if suite.rows.is_empty() {
            return Err(Missing(skipped(&suite.notes)).into());
        }
        results.suites.push(suite);
        self.finish(&results, outputs)?;
        Ok(Exit::Fine)
    }

    /// Writes the results everywhere they should go.
    pub(crate) fn finish(&self, results: &Results, outputs: Outputs) -> anyhow::Result<()> {
        let taken = outputs.take_stdout();
        let Outputs { json, csv, markdown, html } = outputs;
        let form = |output: Option<Output>, text: &dyn Fn() -> String| {
            output.map_or(Ok(()), |output| output.write(&text()))
        };
        // A form that cannot be written takes none of the others with it.
        let written = [
            form(json, &|| results.to_json() + "\n"),
            form(csv, &|| render::csv(results)),
            form(markdown, &|| render::markdown(results, SUITES)),
            form(html, &|| html::page(BENCH, results, SUITES)),
        ];
        let mut text =
            if taken { String::new() } else { render::terminal(results, terminal::width(), SUITES) };
        if !self.no_save && self.part.is_none() {
            match Store::open().and_then(|store| store.save(results)) {
                Ok(path) if !taken => text.push_str(&format!("\nsaved as {}\n", path.display())),
                Ok(_) => {}
                // A result that cannot be kept is still a result.
                Err(error) => {
                    crate::terminal::complain!(
                        "forkless: results not saved: {error} (--no-save says this is intended)"
                    )
                }
            }
        }
        terminal::print(&text)?;
        written.into_iter().collect()
    }
}

/// How two builds take turns.
#[cfg(target_os = "linux")]
pub(super) struct Turns {
    /// Pairs of restarts.
    pub(super) pairs: u16,
    /// The time of one restart.
    pub(super) share: Duration,
    /// Flags of one restart.
    pub(super) flags: [String; 4],
    /// Decides which build is first in each pair.
    pub(super) seed: u64,
}

/// Files given on the command line, open.
pub(crate) struct Outputs {
    pub(super) json: Option<Output>,
    csv: Option<Output>,
    pub(super) markdown: Option<Output>,
    html: Option<Output>,
}

impl Outputs {
    pub(super) fn take_stdout(&self) -> bool {
        [&self.json, &self.csv, &self.markdown, &self.html]
            .iter()
            .any(|output| matches!(output, Some(Output::Stdout)))
    }
}

/// Where a form of the results goes.
pub(crate) enum Output {
    Stdout,
    File(PathBuf, OutputFile),
}

impl Output {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") {
            return Ok(Output::Stdout);
        }
        let file = OutputFile::open(path)
            .map_err(|error| Usage(format!("cannot write {}: {error}", path.display())))?;
        Ok(Output::File(path.to_owned(), file))
    }

    /// Fails where two forms would be written into one file.
    pub(crate) fn all_differ(outputs: &[Option<&Output>]) -> anyhow::Result<()> {
        let files: Vec<_> = outputs
            .iter()
            .filter_map(|output| match output {
                Some(Output::File(path, file)) => Some((path, file)),
                _ => None,
            })
            .collect();
        for (index, (path, file)) in files.iter().enumerate() {
            if files[..index].iter().any(|(_, other)| file.is_same(other)) {
                return Err(Usage(format!(
                    "{} is named for two forms of the result: name a file for each",
                    path.display()
                ))
                .into());
            }
        }
        Ok(())
    }

    pub(crate) fn write(self, text: &str) -> anyhow::Result<()> {
        match self {
            Output::Stdout => terminal::print_bytes(text.as_bytes()),
            Output::File(path, file) => file.write(text.as_bytes()).map_err(|error| {
                anyhow::anyhow!("cannot write {}: {error}{}", path.display(), remedy(&error))
            }),
        }
    }
}

/// Runs this program once more, for one part of the run. A part must not go on measuring when its
/// parent is killed; its own guard then cleans up after it.
#[cfg(target_os = "linux")]
fn run_part(part: &str, flags: &[String]) -> anyhow::Result<std::process::Output> {
    let mut command = forkless::Command::new(this_program()?);
    command.args(std::env::args_os().skip(1)).args(flags).arg("--part").arg(part);
    command.stdin(forkless::Stdio::null()).parent_death_signal(libc::SIGKILL);
    command.output().context("cannot start this program again for another part of the run")
}

/// Runs this program once more, for one part of the run.
#[cfg(not(target_os = "linux"))]
fn run_part(part: &str, flags: &[String]) -> anyhow::Result<std::process::Output> {
    let mut command = Command::new(this_program()?);
    command.args(std::env::args_os().skip(1)).args(flags).arg("--part").arg(part);
    command.stdin(std::process::Stdio::null());
    command.output().context("cannot start this program again for another part of the run")
}

/// The path by which this very program is started again.
pub(super) fn this_program() -> anyhow::Result<PathBuf> {
    #[cfg(target_os = "linux")]
    super::super::need_proc()?;
    if cfg!(target_os = "linux") {
        // Not current_exe(): the file may have been replaced by a new build since this process
        // started.
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe().context("cannot find the forkless executable")
}

/// Starts this process again without the preloaded library, if it or its children would have it. As
/// it begins: nothing was measured, opened or changed.
#[cfg(target_os = "linux")]
pub(crate) fn measure_plain() -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt as _;
    let Some(environment) = plain::environment() else { return Ok(()) };
    let mut words = std::env::args_os();
    let mut command = Command::new(this_program()?);
    command.arg0(words.next().unwrap_or_default()).args(words).env_clear().envs(environment.pairs());
    Err(anyhow::Error::new(command.exec()).context("cannot start this program again without the library"))
}

/// Says in the result where plain figures were taken beside the library, or under a tracer.
pub(super) fn note_plain(suite: &mut Suite) {
    #[cfg(target_os = "linux")]
    suite.take_notes(plain::note().into_iter().chain(tracing::note()).collect());
    #[cfg(not(target_os = "linux"))]
    let _ = suite;
}

/// Whether missing programs may be installed: `FORKLESS_NO_INSTALL`, set to anything but nothing,
/// forbids it. `./x` reads it, too.
#[cfg(target_os = "linux")]
pub(crate) fn may_install() -> bool {
    std::env::var_os("FORKLESS_NO_INSTALL").is_none_or(|value| value.is_empty())
}

/// Why nothing was measured: the notes that say which part was skipped; all notes where none does.
pub(super) fn skipped(notes: &[String]) -> String {
    let said: Vec<&str> =
        notes.iter().map(String::as_str).filter(|note| note.starts_with("skipped: ")).collect();
    if said.is_empty() { notes.join("; ") } else { said.join("; ") }
}

/// Starts the guarding process from this very program.
pub(crate) fn guard() -> anyhow::Result<Guard> {
    let mut command = Command::new(this_program()?);
    command.args(["bench", "guard"]);
    Guard::start(command).map_err(from_library)
}

/// What the titles of pages call the command.
pub(crate) const BENCH: &str = "forkless bench";

/// Gives a library error the exit code of its kind.
pub(crate) fn from_library(error: Error) -> anyhow::Error {
    match error {
        Error::Spec(text) => Usage(text).into(),
        Error::Missing(text) => Missing(text).into(),
        limit if limit.is_of_a_limit() => Missing(limit.to_string()).into(),
        other => other.into(),
    }
}
