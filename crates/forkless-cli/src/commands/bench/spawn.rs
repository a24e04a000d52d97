//! `forkless bench spawn`: flags of the suite, translated into its specification.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Result;
use forkless_bench::engine::{Observer, Schedule};
use forkless_bench::guard::Guard;
use forkless_bench::memory;
use forkless_bench::page_kinds::Pages;
use forkless_bench::program::Kind;
use forkless_bench::render::folded;
use forkless_bench::results::Suite;
use forkless_bench::spawn::{self, Method, Spec};

#[cfg(target_os = "linux")]
use super::against;
use super::common::{Common, from_library};
use super::suite;
use crate::args;
use crate::exit::{Exit, Filtered};
use crate::terminal;

/// Flags of `forkless bench spawn`.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Memory the parent has written before it spawns, for example 1G.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = args::amount)]
    rss: u64,
    /// Pages behind that memory: base, thp, thp-64k, hugetlb-2m, hugetlb-1g.
    #[arg(long, value_name = "KIND", default_value_t = Pages::Base)]
    pages: Pages,
    /// If there is less memory than --rss asks for, take as much as is safe, and say so.
    #[arg(long)]
    shrink: bool,
    /// What --shrink has taken, for every restart.
    #[arg(long, value_name = "BYTES", hide = true, requires = "shrink")]
    shrunk_to: Option<u64>,
    /// Descriptors the parent holds open, its own included.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    fds: u64,
    /// Threads that spawn at once; more than one gives the metric `rate` in place of `first`.
    /// Several numbers are measured one after the other, for example 1,2,4,8,16,32,64.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=4096)
    )]
    threads: Vec<u16>,
    /// What the children run: `exit` and `write` are tiny static programs, else the path of a
    /// program, such as the dynamic /bin/true. Several are measured one after the other.
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', default_value = "exit")]
    child: Vec<String>,
    /// The methods to measure, in place of the ten common ones. `list` prints all.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    methods: Vec<String>,
    /// Measure all methods, not only the ten common ones; --filter also chooses among all.
    #[arg(long, conflicts_with = "methods")]
    all: bool,
    /// Compare this build (B) with another build of forkless (A), restarted in turns. This finds a
    /// slowdown of 10 %; `forkless compare` of two runs finds 20 % or more. Nothing is saved.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "COMMAND", value_hint = clap::ValueHint::CommandName)]
    against: Option<OsString>,
    /// With --against: exit with 1 if this build is slower, and a slowdown of this many percent is
    /// not ruled out. This finds 19 of 20 such slowdowns, and reports at most 1 of 100 equal
    /// builds.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "PERCENT", requires = "against", value_parser = args::percent, allow_negative_numbers = true)]
    fail_on_regression: Option<f64>,
}

/// Runs the suite, or lists its methods.
pub(super) fn run(args: &suite::Args<Flags>) -> Result<Exit> {
    if args.flags.methods.iter().any(|name| name == "list") {
        let offered = Method::offered();
        let width = terminal::width();
        let lines = offered.iter().map(|method| {
            // Its further lines are below its first.
            let about =
                folded(method.about(), width.saturating_sub(25)).replace("\n  ", &format!("\n{:25}", ""));
            format!("{:<24} {about}\n", method.name())
        });
        terminal::print(&lines.collect::<String>())?;
        return Ok(Exit::Fine);
    }
    #[cfg(target_os = "linux")]
    if let Some(other) = &args.flags.against {
        return args.flags.against(other, args.common());
    }
    suite::run(args)
}

impl Flags {
    /// Measures this build and another.
    #[cfg(target_os = "linux")]
    fn against(&self, other: &OsStr, common: &Common) -> Result<Exit> {
        let methods = methods(&self.methods, &self.usual(common), common)?;
        let joined = |numbers: &[u16]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut flags: Vec<String> = Vec::new();
        // The same for both builds, which `--shrink` would not be.
        let rss = self.taken();
        if rss < self.rss {
            terminal::complain!("forkless: {}", scaled_down(self.rss, rss));
        }
        for (flag, value) in [
            ("--rss", rss.to_string()),
            ("--pages", self.pages.to_string()),
            ("--fds", self.fds.to_string()),
            ("--threads", joined(&self.threads)),
            ("--child", self.child.join(",")),
        ] {
            flags.extend([flag.to_owned(), value]);
        }
        let spec = against::Spec {
            other,
            limit: self.fail_on_regression,
            flags,
            methods: methods.into_iter().map(Method::name).collect(),
            rows_each: self.threads.len() * self.child.len(),
        };
        against::run(&spec, common)
    }

    /// The memory that is written.
    fn taken(&self) -> u64 {
        if self.shrink { self.shrunk_to.unwrap_or_else(|| memory::lasting(self.rss)) } else { self.rss }
    }

    /// The methods among which `--filter` chooses, where none is named.
    fn usual(&self, common: &Common) -> Vec<Method> {
        if self.all || !common.filter().is_empty() { Method::offered() } else { Method::known() }
    }
}

impl suite::Flags for Flags {
    const NAME: &'static str = "spawn";
    const RESTARTS: u16 = 5;

    // Rows of another size would be other rows, which no two restarts have in common.
    fn for_restarts(&self) -> Vec<String> {
        if self.shrink { vec!["--shrunk-to".to_owned(), self.taken().to_string()] } else { Vec::new() }
    }

    // Each child and number of threads has a run of its own, within which all methods are
    // interleaved.
    fn measure(&self, common: &Common, guard: &mut Guard, progress: &mut dyn Observer) -> Result<Suite> {
        let combinations: Vec<(&String, u16)> = self
            .child
            .iter()
            .flat_map(|child| self.threads.iter().map(move |&threads| (child, threads)))
            .collect();
        let plan = common.plan(3000)?;
        let share = u32::try_from(combinations.len()).unwrap_or(u32::MAX).max(1);
        let mut spec = Spec {
            methods: methods(&self.methods, &self.usual(common), common)?,
            child: Kind::Exit,
            rss: self.taken(),
            pages: self.pages,
            fds: self.fds,
            threads: 1,
            schedule: Schedule { time: plan.time.map(|time| time / share), ..plan },
        };
        let shrunk = (spec.rss < self.rss).then(|| scaled_down(self.rss, spec.rss));
        let mut suites = Vec::new();
        for (name, threads) in combinations {
            spec.child = child(name);
            spec.threads = usize::from(threads);
            suites.push(spawn::run(&spec, Some(guard), progress).map_err(from_library)?);
        }
        let mut suite = Suite::join(suites);
        suite.notes.splice(0..0, shrunk);
        Ok(suite)
    }
}

fn scaled_down(asked: u64, taken: u64) -> String {
    format!("scaled down: {} MiB asked for, {} MiB taken", asked >> 20, taken >> 20)
}

fn child(name: &str) -> Kind {
    match name {
        "exit" => Kind::Exit,
        "write" => Kind::Write,
        path => Kind::File(PathBuf::from(path)),
    }
}

/// The named methods, or the usual ones, each once; without the methods that `--filter` leaves out.
fn methods(names: &[String], usual: &[Method], common: &Common) -> Result<Vec<Method>> {
    let methods = chosen(names, usual, common)?;
    if methods.is_empty() {
        return Err(Filtered("--filter leaves no method; `--methods list` prints their names".into()).into());
    }
    Ok(methods)
}

/// The same, possibly with none left.
pub(super) fn chosen(names: &[String], usual: &[Method], common: &Common) -> Result<Vec<Method>> {
    let mut methods: Vec<Method> = if names.is_empty() {
        usual.to_vec()
    } else {
        names.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(from_library)?
    };
    let mut seen = Vec::new();
    methods.retain(|method| {
        let wanted = common.selects(method.name()) && !seen.contains(method);
        seen.push(*method);
        wanted
    });
    Ok(methods)
}
