//! `forkless reproduce`: the published experiments, executed, and the ledger of their claims.

use std::env;
use std::path::{Path, PathBuf};

use forkless_bench::error::Error;
use forkless_lab::reproduce::{self, Article, ClaimVerdict, Id, Judged, ReproduceOptions, page, text};

use super::bench::{Output, Progress, from_library, guard, may_install, measure_plain};
use crate::args;
use crate::exit::{Exit, Missing, Usage};
use crate::terminal;

/// Flags of `forkless reproduce`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 the experiments were run, with any verdicts (`not run here`, too); 1 a verdict differs from \
--expect or is missing, or the machine failed; 2 usage; 3 nothing could be run here.\n\n\
As root, missing programs (Ruby for E1, Apache for E3, redis for E6, strace) are installed from Debian; FORKLESS_NO_INSTALL=1 forbids it.")]
pub(crate) struct Args {
    /// The experiments: E1 passes after a fork, E2 system calls, E3 a server and huge pages, E4
    /// signal masks, E5 popen, E6 snapshots [default: all].
    #[arg(value_name = "E1..E6", value_parser = |name: &str| name.parse::<Id>())]
    experiments: Vec<Id>,
    /// Give a rough answer in seconds, by smaller sizes and fewer runs.
    #[arg(long)]
    quick: bool,
    /// Seed of the order of methods and of the intervals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Memory of E6's redis [default: 4G, or as much as is safe].
    #[arg(long, value_name = "SIZE", value_parser = args::amount_from::<16>)]
    memory: Option<u64>,
    /// Take the experiments that are not named from an earlier result (JSON), instead of running
    /// them; may be repeated.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Run nothing: show the results of --with, with new verdicts.
    #[arg(long, requires = "with", conflicts_with_all = ["experiments", "quick", "memory"])]
    no_run: bool,
    /// Fail (exit code 1) if a claim's verdict differs from this earlier result (JSON), or is
    /// missing. Experiments that are not run here are not compared.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Print only a short ledger.
    #[arg(long)]
    short: bool,
    /// Write everything as JSON to a file; - is standard output, in place of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write tables and ledger as GitHub-flavoured Markdown; - is standard output, in place of the
    /// tables.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write an article with the plots, all in one file; - is standard output, in place of the
    /// tables.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the experiments and prints the ledger.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    measure_plain()?;
    let read_anew = |path: &PathBuf| read(path, Article::from_json);
    let earlier = args.with.iter().map(read_anew).collect::<anyhow::Result<Vec<_>>>()?;
    let expected = args.expect.as_deref().map(|path| read(path, Article::as_written)).transpose()?;
    let open = |path: &Option<PathBuf>| path.as_deref().map(Output::open).transpose();
    let outputs = [open(&args.json)?, open(&args.markdown)?, open(&args.html)?];
    let to_stdout = outputs.iter().filter(|output| matches!(output, Some(Output::Stdout))).count();
    if to_stdout > 1 {
        return Err(
            Usage("only one of --json, --markdown and --html can go to standard output".into()).into()
        );
    }

    Output::all_differ(&outputs.each_ref().map(Option::as_ref))?;

    let mut article = Article::begin();
    for experiment in earlier.into_iter().flat_map(|article| article.experiments) {
        article.put(experiment);
    }
    let wanted = wanted(args, &article);
    let mut shown = wanted.clone();
    shown.extend(article.experiments.iter().map(|experiment| experiment.id));
    if let (Some(expected), Some(path)) = (&expected, &args.expect) {
        comparable(expected, path, &shown)?;
    }
    if args.memory.is_some() && !wanted.contains(&Id::E6) {
        return Err(Usage(
            "--memory is for E6, which is not run here: name E6, or leave --memory out".into(),
        )
        .into());
    }
    measure(args, &wanted, &mut article)?;

    let [json, markdown, html] = outputs;
    if let Some(output) = json {
        output.write(&(article.to_json() + "\n"))?;
    }
    if let Some(output) = markdown {
        output.write(&text::markdown(&article))?;
    }
    if let Some(output) = html {
        output.write(&page::page(&article))?;
    }
    if to_stdout == 0 {
        let width = terminal::width();
        let text = if args.short { text::short(&article, width) } else { text::terminal(&article, width) };
        terminal::print(&text)?;
    }
    Ok(match expected {
        Some(expected) if changed(&expected, &article, &shown) => Exit::Finding,
        _ => Exit::Fine,
    })
}

/// The named experiments; without names, every experiment that `--with` has not brought.
fn wanted(args: &Args, article: &Article) -> Vec<Id> {
    let known = |id: &Id| article.experiments.iter().any(|experiment| experiment.id == *id);
    let mut wanted: Vec<Id> = match args.experiments.as_slice() {
        [] if args.no_run => Vec::new(),
        [] => Id::ALL.into_iter().filter(|id| !known(id)).collect(),
        named => named.to_vec(),
    };
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// Fails where `--expect` has none of the experiments: nothing would be compared.
fn comparable(expected: &Article, path: &Path, shown: &[Id]) -> anyhow::Result<()> {
    if expected.claims().any(|claim| shown.iter().any(|id| is_of(claim, *id))) {
        return Ok(());
    }
    let there: Vec<String> =
        expected.experiments.iter().map(|experiment| experiment.id.to_string()).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
    Err(Usage(format!(
        "--expect {}: no verdict of {} in it, so nothing would be compared; it has: {there}",
        path.display(),
        shown.join(", ")
    ))
    .into())
}

/// Whether a claim is one of this experiment: `4.3` of E4.
fn is_of(claim: &Judged, id: Id) -> bool {
    claim.id.split('.').next() == id.to_string().strip_prefix('E')
}

/// Runs the wanted experiments.
fn measure(args: &Args, wanted: &[Id], article: &mut Article) -> anyhow::Result<()> {
    let options = ReproduceOptions {
        quick: args.quick,
        seed: args.seed,
        install: may_install(),
        forkless: env::current_exe().ok(),
        run: forkless_run::find_library().is_ok(),
        memory: args.memory,
    };
    let mut failures = Vec::new();
    for &id in wanted {
        // A guard for each: what one experiment changed is undone before the next one measures.
        let mut guard = guard()?;
        let mut progress = Progress::new(&id.to_string());
        match reproduce::run(id, &options, Some(&mut guard), &mut progress) {
            Ok(experiment) => article.put(experiment),
            Err(error) => failures.push((id, error)),
        }
    }
    for (id, error) in failures {
        // Where there is nothing else to show, the reason is the outcome. Beside other experiments
        // it is one line.
        if article.experiments.is_empty() {
            return Err(from_library(error).context(id.to_string()));
        }
        crate::terminal::complain!("forkless: {id}: {error}");
    }
    let judged = article.claims().any(|claim| claim.verdict != ClaimVerdict::NotRun);
    if !wanted.is_empty() && !judged {
        let why: Vec<String> =
            article.claims().map(|claim| format!("{}: {}", claim.id, claim.reason)).collect();
        return Err(Missing(format!("no claim could be decided here: {}", why.join("; "))).into());
    }
    Ok(())
}

fn read(path: &Path, parse: fn(&str) -> Result<Article, Error>) -> anyhow::Result<Article> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    parse(&text).map_err(|error| Usage(format!("{} is {error}", path.display())).into())
}

/// Names every expected claim whose verdict is another now, or which has none, on standard error.
fn changed(expected: &Article, article: &Article, shown: &[Id]) -> bool {
    let mut any = false;
    for before in expected.claims().filter(|claim| shown.iter().any(|id| is_of(claim, *id))) {
        let now = article.claims().find(|claim| claim.id == before.id).map(|claim| claim.verdict);
        if now != Some(before.verdict) {
            let (id, was) = (&before.id, before.verdict.words());
            let now = now.map_or("no verdict", ClaimVerdict::words);
            crate::terminal::complain!("forkless: {id}: {now}, was: {was}");
            any = true;
        }
    }
    any
}
