//! `forkless bench spawn`: flags of the suite, translated into its specification.

use std::path::PathBuf;

use forkless_bench::engine::{Observer, Plan};
use forkless_bench::guard::Guard;
use forkless_bench::memory;
use forkless_bench::pages::Pages;
use forkless_bench::program::Kind;
use forkless_bench::results::Suite;
use forkless_bench::spawn::{self, Method, Spec};

use super::common::{Common, from_library};
use super::size;
use crate::exit::{Exit, Usage};

/// Flags of `forkless bench spawn`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Memory the parent has written before it spawns, for example 1G.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::parse)]
    rss: u64,
    /// Pages behind that memory: base, thp, thp-64k, hugetlb-2m, hugetlb-1g.
    #[arg(long, value_name = "KIND", default_value_t = Pages::Base)]
    pages: Pages,
    /// Where there is less memory than --rss asks for, take what is safe and say so.
    #[arg(long)]
    shrink: bool,
    /// Descriptors the parent holds open, its own included.
    #[arg(long, value_name = "N", default_value_t = 0)]
    fds: u64,
    /// Threads that spawn at once; more than one adds the metric `rate`. Several numbers are measured one after the other, for
    /// example 1,2,4,8,16,32,64.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=4096)
    )]
    threads: Vec<u16>,
    /// What the children run: `exit` and `write` are tiny static programs, else the path of a program, such as the dynamic
    /// /bin/true. Several are measured one after the other.
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',', default_value = "exit")]
    child: Vec<String>,
    /// The methods to measure; all by default. `list` prints them.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    methods: Vec<String>,
    #[command(flatten)]
    common: Common,
}

impl Args {
    /// Every flag of the suite's own at its default.
    pub(super) fn usual(common: &Common) -> Args {
        Args { common: common.clone(), ..super::all::defaults() }
    }
}

/// Runs the suite.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.methods.iter().any(|name| name == "list") {
        for method in Method::offered() {
            println!("{:<24} {}", method.name(), method.about());
        }
        return Ok(Exit::Fine);
    }
    args.common.run("spawn", 5, |guard, progress| measure(args, guard, progress))
}

/// Measures as the flags say; each child and number of threads in a run of its own, within which all methods are interleaved.
pub(super) fn measure(args: &Args, guard: &mut Guard, progress: &mut dyn Observer) -> anyhow::Result<Suite> {
    let combinations: Vec<(&String, u16)> = args
        .child
        .iter()
        .flat_map(|child| args.threads.iter().map(move |&threads| (child, threads)))
        .collect();
    let plan = args.common.plan(3000)?;
    let share = u32::try_from(combinations.len()).unwrap_or(u32::MAX).max(1);
    let mut spec = Spec {
        methods: methods(&args.methods, &Method::offered(), &args.common)?,
        child: Kind::Exit,
        rss: args.rss,
        pages: args.pages,
        fds: args.fds,
        threads: 1,
        plan: Plan { time: plan.time.map(|time| time / share), ..plan },
    };
    let mut shrunk = None;
    if args.shrink && memory::largest_safe() < spec.rss {
        let largest = memory::largest_safe() >> 20 << 20;
        shrunk = Some(format!("scaled down: {} MiB asked for, {} MiB taken", spec.rss >> 20, largest >> 20));
        spec.rss = largest;
    }
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

fn child(name: &str) -> Kind {
    match name {
        "exit" => Kind::Exit,
        "write" => Kind::Write,
        path => Kind::File(PathBuf::from(path)),
    }
}

/// The methods named, or the usual ones, less those that `--filter` leaves out; each once.
fn methods(names: &[String], usual: &[Method], common: &Common) -> anyhow::Result<Vec<Method>> {
    let methods = chosen(names, usual, common)?;
    if methods.is_empty() {
        return Err(Usage("--filter leaves no method; `--methods list` prints their names".into()).into());
    }
    Ok(methods)
}

/// The same where none may be left.
pub(super) fn chosen(names: &[String], usual: &[Method], common: &Common) -> anyhow::Result<Vec<Method>> {
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
