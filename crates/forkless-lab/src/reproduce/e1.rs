//! E1: passes over the parent's memory before and after it makes a child, by our own program and by
//! a real Ruby.

#![expect(unsafe_code, reason = "fork, thread clocks and prctl")]

use std::fs;
use std::path::Path;

use super::plot::{Line, Plot};
use super::{Bench, Experiment, Figure, Id, TitledGrid};
use forkless_bench::error::Error;
use forkless_bench::machine::page_size;
use forkless_bench::page_kinds::Pages;
use forkless_bench::parent::Memory;
use forkless_bench::program::{Kind, Program};
use forkless_bench::published::cow;
use forkless_bench::settings::{Changed, THP, selected};
use forkless_bench::spawn::worker::{Worker, reap};
use forkless_bench::spawn::{Method, SpawnedProgram, worker};
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::stats::median;
use forkless_bench::suites::cow::thread_time;

mod perl;
mod ruby;
mod script;

const THEIRS: &str = "A process holds 100,000 pages and writes one byte to each, ten times, by the thread's processor clock; makes a \
    child; and writes ten times more. With fork the first pass after it took 65 ms instead of 7. With Ruby's system(), made of \
    vfork since 2.2, there was no slow pass; in Ruby 2.1 there was. With transparent huge pages set to always it was gone, even \
    with fork, until Ruby 2.6 switched them off for itself.";
const OURS: &str = "The same passes around every way of making a child, the child dead or still alive, on small, transparent huge and \
    pool pages, and in the Ruby of this system: fork { }, fork { exec } and system; and in Perl, whose system() still forks, \
    plain and under forkless run. A pass in these languages holds the interpreter's work as well, so their ratios are smaller.";

/// Milliseconds of every pass of a run, those before the child first.
type Run = Vec<f64>;

/// One method of making a child, on one kind of pages.
struct ChildMethod {
    /// Beginning of its figures' names.
    key: &'static str,
    /// For readers.
    name: String,
    runs: Vec<Run>,
}

impl ChildMethod {
    fn new(key: &'static str, name: impl Into<String>) -> ChildMethod {
        ChildMethod { key, name: name.into(), runs: Vec::new() }
    }

    /// Of each run: the median pass before, the first after, the median of the later ones.
    fn parts(&self) -> [Vec<f64>; 3] {
        let mut parts: [Vec<f64>; 3] = Default::default();
        for run in &self.runs {
            let (before, after) = run.split_at(run.len() / 2);
            parts[0].push(median(before));
            parts[1].push(after[0]);
            parts[2].push(median(&after[1..]));
        }
        parts
    }

    fn ratios(&self, part: usize) -> Samples {
        let parts = self.parts();
        Samples::one_a_round(parts[part].iter().zip(&parts[0]).map(|(part, before)| part / before).collect())
    }
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Experiment, Error> {
    let mut experiment = Experiment::begin(Id::E1, bench.options, THEIRS, OURS);
    let wanted = bench.quick(cow::PAGES / 4, cow::PAGES);
    // A child that lives through the passes keeps the old copy of every page.
    let room = forkless_bench::memory::largest_safe() / 2 / page_size();
    let pages = wanted.min(room);
    if pages < 1000 {
        return Err(Error::Missing(format!("memory for {pages} pages is too little to see anything")));
    }
    if pages < cow::PAGES {
        let why = if pages < wanted { "the machine has no room for more" } else { "--quick" };
        experiment.scaled.push(format!("{pages} pages instead of {} ({why})", cow::PAGES));
    }
    let runs = bench.quick(4, 10);
    let mut methods = own_program(bench, &mut experiment, pages, runs)?;
    bench.observer.progress(1, 2);
    methods.extend(ruby::methods(bench, &mut experiment, pages, bench.quick(3, 6)));
    methods.extend(perl::methods(bench, &mut experiment, pages, bench.quick(3, 6))?);
    bench.observer.progress(2, 2);
    #[expect(clippy::cast_precision_loss, reason = "a number of pages")]
    report(&mut experiment, &methods, pages as f64, bench.options.seed);
    Ok(experiment)
}

/// How our program makes its child.
enum Maker {
    /// fork; the child exits at once and is reaped.
    Exits,
    /// fork; the child lives until the passes are over.
    Lives,
    /// Some method of starting a program.
    Program(Box<dyn Worker>),
}

fn own_program(
    bench: &mut Bench<'_>,
    experiment: &mut Experiment,
    pages: u64,
    runs: usize,
) -> Result<Vec<ChildMethod>, Error> {
    let program = Program::prepare(&Kind::Exit, bench.guard.as_deref_mut())?;
    let target = SpawnedProgram::new(&program);
    let start = |method| worker(method, &target).map(Maker::Program);
    let small = vec![
        (ChildMethod::new("fork", "fork, child dead"), Maker::Exits),
        (ChildMethod::new("fork_alive", "fork, child alive"), Maker::Lives),
        (ChildMethod::new("fork_exec", "fork + exec"), start(Method::ForkExec)?),
        (ChildMethod::new("vfork", "vfork + exec"), start(Method::VforkExec)?),
        (ChildMethod::new("posix_spawn", "posix_spawn"), start(Method::PosixSpawn)?),
        (ChildMethod::new("system", "system()"), start(Method::System)?),
        (ChildMethod::new("forkless", "forkless"), start(Method::Forkless)?),
    ];
    let mut methods = on_pages(bench, Pages::Base, pages, runs, small)?;
    let forks = |dead, alive, name: &str| {
        vec![
            (ChildMethod::new(dead, format!("fork, child dead, {name}")), Maker::Exits),
            (ChildMethod::new(alive, format!("fork, child alive, {name}")), Maker::Lives),
        ]
    };
    for (kind, makers) in [
        (Pages::Thp(2048), forks("thp_fork", "thp_fork_alive", "THP")),
        (Pages::Hugetlb(2048), forks("hugetlb_fork", "hugetlb_fork_alive", "hugetlb")),
    ] {
        let names: Vec<String> = makers.iter().map(|(method, _)| format!("{}.first", method.key)).collect();
        match on_pages(bench, kind, pages, runs, makers) {
            Ok(more) => methods.extend(more),
            Err(Error::Missing(why)) => {
                experiment.miss(&names.iter().map(String::as_str).collect::<Vec<_>>(), why);
            }
            Err(error) => return Err(error),
        }
    }
    let without = {
        let _off = WithoutThp::new()?;
        let method =
            (ChildMethod::new("prctl_fork", "fork, child dead, THP switched off by prctl"), Maker::Exits);
        on_pages(bench, Pages::Thp(2048), pages, runs, vec![method])
    };
    match without {
        Ok(more) => methods.extend(more),
        Err(Error::Missing(why)) => experiment.miss(&["prctl_fork.first"], why),
        Err(error) => return Err(error),
    }
    Ok(methods)
}

/// PR_SET_THP_DISABLE for this process, until dropped.
struct WithoutThp;

impl WithoutThp {
    fn new() -> Result<WithoutThp, Error> {
        // SAFETY: sets a flag of this process's address space; the unused arguments must be zero.
        if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0 {
            return Err(Error::last_os("switch transparent huge pages off by prctl"));
        }
        Ok(WithoutThp)
    }
}

impl Drop for WithoutThp {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) };
    }
}

fn on_pages(
    bench: &mut Bench<'_>,
    kind: Pages,
    pages: u64,
    runs: usize,
    mut makers: Vec<(ChildMethod, Maker)>,
) -> Result<Vec<ChildMethod>, Error> {
    let bytes = pages * page_size();
    // From a pool, a child that writes needs pages of its own; none of these writes.
    let _enabled = kind.enable(bytes, bench.guard.as_deref_mut())?;
    let mut memory = Memory::mapped(bytes, kind)?;
    memory.touch(memory.bytes());
    let disabled = makers.iter().any(|(method, _)| method.key == "prctl_fork");
    let huge = memory.huge_bytes().unwrap_or(0);
    if kind == Pages::Thp(2048) && !disabled && huge < bytes / 10 * 9 {
        return Err(Error::Missing(format!("the kernel gave huge pages for only {} MiB", huge >> 20)));
    }
    if disabled && huge > 0 {
        return Err(Error::Missing("the kernel gave huge pages although they were switched off".into()));
    }
    for run in 0..runs {
        // Every method comes first once.
        let count = makers.len();
        for index in 0..count {
            let (method, maker) = &mut makers[(index + run) % count];
            if kind == Pages::Thp(2048) {
                // A living child's huge mappings were split; the next run must not find small
                // pages.
                drop(memory);
                memory = Memory::mapped(bytes, kind)?;
                memory.touch(memory.bytes());
            }
            method.runs.push(passes(&mut memory, maker)?);
        }
    }
    Ok(makers.into_iter().map(|(method, _)| method).collect())
}

/// The procedure: passes, a child, passes.
fn passes(memory: &mut Memory, maker: &mut Maker) -> Result<Run, Error> {
    let mut pass = |value: u8| {
        let before = thread_time();
        memory.write_every(1, value);
        thread_time() - before
    };
    // This pass pays for the pages that another method's child left shared.
    pass(0);
    let mut times: Run = (0..cow::PASSES).map(|_| pass(1)).collect();
    let living = match maker {
        Maker::Program(worker) => {
            worker.spawn()?;
            None
        }
        Maker::Exits => {
            let pid = forked(false)?;
            Error::check_status("fork", reap(pid, 0)?)?;
            None
        }
        Maker::Lives => Some(forked(true)?),
    };
    times.extend((0..cow::PASSES).map(|_| pass(2)));
    if let Some(pid) = living {
        // SAFETY: the pid is a child of this process that has not been reaped.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        reap(pid, 0)?;
    }
    Ok(times)
}

/// A forked child that exits at once or waits to be killed.
fn forked(lives: bool) -> Result<i32, Error> {
    // SAFETY: the child calls only prctl, pause and _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        if lives {
            // Nobody else would kill it if this process is killed during the passes.
            // SAFETY: affects only this child.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            loop {
                // SAFETY: waits for a signal, and the only one coming kills.
                unsafe { libc::pause() };
            }
        }
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    if pid < 0 { Err(Error::last_os("fork")) } else { Ok(pid) }
}

/// Transparent huge pages for all memory of all programs, as the article has them, until dropped.
fn thp_always(bench: &mut Bench<'_>) -> Result<Vec<Changed>, Error> {
    let mut changed = Vec::new();
    let global = format!("{THP}/enabled");
    changed.extend(Changed::set(Path::new(&global), "always", bench.guard.as_deref_mut())?);
    let size = format!("{THP}/hugepages-2048kB/enabled");
    let now = fs::read_to_string(&size).unwrap_or_default();
    if matches!(selected(now.trim()), "never" | "madvise") {
        changed.extend(Changed::set(Path::new(&size), "always", bench.guard.as_deref_mut())?);
    }
    Ok(changed)
}

fn report(experiment: &mut Experiment, methods: &[ChildMethod], pages: f64, seed: u64) {
    let mut table = TitledGrid::new(
        "A pass over all pages, ms of the thread's processor time",
        &["child made by", "before", "first after", "later", "first / before"],
        1,
    );
    let mut lines = Vec::new();
    let mut slow = 0.0;
    for method in methods {
        let [before, first, later] = method.parts().map(|part| median(&part));
        let figure = Figure::of(
            &format!("{}.first", method.key),
            &format!("first pass, {}", method.name),
            "x",
            &method.ratios(1),
            seed,
        );
        table.line([
            method.name.clone(),
            format!("{before:.2}"),
            format!("{first:.2}"),
            format!("{later:.2}"),
            super::text::figure(&figure),
        ]);
        experiment.add(figure);
        if method.key == "fork" {
            let [before, first, _] = method.parts();
            let a_page = |(first, before): (f64, &f64)| (first - before) * 1e3 / pages;
            let cost = Samples::one_a_round(first.into_iter().zip(&before).map(a_page).collect());
            let about = "a fault, the first pass's excess by the number of pages";
            experiment.add(Figure::of("fork.fault_us", about, "us", &cost, seed));
            slow = excess(method);
            let about = format!("later passes, {}", method.name);
            experiment.add(Figure::of("fork.later", &about, "x", &method.ratios(2), seed));
        }
        if method.key == "thp_fork" && slow > 0.0 {
            let [before, first, _] = method.parts();
            let share = |(first, before): (f64, &f64)| 100.0 * (first - before) / slow;
            let left = Samples::one_a_round(first.into_iter().zip(&before).map(share).collect());
            let about = "what THP leaves of the slow pass's excess";
            experiment.add(Figure::of("thp_fork.left_percent", about, "%", &left, seed));
        }
        lines.push(Line { name: method.name.clone(), points: points(method) });
    }
    experiment.tables.push(table);
    experiment.plots.push(Plot::Lines {
        title: "Every pass; the child is made before pass 1".into(),
        x: "pass".into(),
        y: "ms".into(),
        lines,
    });
    experiment.picture = picture(methods);
}

/// Milliseconds by which the first pass is longer than those before it.
fn excess(method: &ChildMethod) -> f64 {
    let [before, first, _] = method.parts().map(|part| median(&part));
    first - before
}

/// The median over the runs of every pass; the last before the child is number 0.
#[expect(clippy::cast_precision_loss, reason = "numbers of passes")]
fn points(method: &ChildMethod) -> Vec<[f64; 2]> {
    let count = method.runs.first().map_or(0, Vec::len);
    (0..count)
        .map(|index| {
            let times: Vec<f64> = method.runs.iter().map(|run| run[index]).collect();
            [index as f64 + 1.0 - (count / 2) as f64, median(&times)]
        })
        .collect()
}

/// The published picture: seconds, and one `*` a millisecond; the last three passes before the
/// child and the first three after.
fn picture(methods: &[ChildMethod]) -> String {
    let mut text = String::new();
    let shown = [
        "fork",
        "system",
        "forkless",
        "thp_fork",
        "ruby_fork",
        "ruby_fork_exec",
        "perl_system",
        "perl_run_system",
        "ruby_system",
    ];
    for method in methods.iter().filter(|method| shown.contains(&method.key)) {
        text.push_str(&format!("{}\n", method.name));
        let points = points(method);
        let middle = points.len() / 2;
        for (index, [_, ms]) in points.iter().enumerate().skip(middle - 3).take(6) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped to a line's length"
            )]
            let stars = "*".repeat(ms.clamp(0.0, 120.0).round() as usize);
            let child = if index == middle { '>' } else { ' ' };
            text.push_str(format!("{child} {:.5} {stars}", ms / 1e3).trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_split_at_the_child_and_drawn_with_one_star_a_millisecond() {
        let mut method = ChildMethod::new("fork", "fork");
        method.runs = vec![vec![7.0, 7.0, 7.0, 65.0, 8.0, 7.0]; 2];
        assert_eq!(method.parts().map(|part| median(&part)), [7.0, 65.0, 7.5]);
        assert!((median(&method.ratios(1).values) - 65.0 / 7.0).abs() < 1e-9);
        assert_eq!(points(&method)[3], [1.0, 65.0]);
        let picture = picture(&[method]);
        assert!(picture.contains(&format!("> 0.06500 {}\n", "*".repeat(65))), "{picture}");
        assert_eq!(picture.lines().count(), 7);
    }

    #[test]
    fn the_switch_by_prctl_is_undone() {
        let state = || {
            // SAFETY: asks for a flag of this process.
            unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) }
        };
        let before = state();
        drop(WithoutThp::new().unwrap());
        assert_eq!((before, state()), (0, 0));
    }
}
