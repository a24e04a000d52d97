//! E3: the clone of a large process by the number of its page-table entries. And an Apache with
//! very many virtual hosts: its CGI daemon's clone is traced and its requests are counted. The
//! pages are small, huge, of a pool too small, and of 1 GiB.

#![expect(unsafe_code, reason = "fork")]

use super::plot::{Line, Plot};
use super::{Bench, Experiment, Figure, Id, TitledGrid};
use forkless_bench::clock::now;
use forkless_bench::error::Error;
use forkless_bench::machine::{own_status, page_size};
use forkless_bench::page_kinds::Pages;
use forkless_bench::parent::Memory;
use forkless_bench::published::huge_pages;
use forkless_bench::spawn::worker::reap;
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::stats::line::fit_medians;
use forkless_bench::stats::median;

mod held;
mod pool;
mod profile;
mod server;

const THEIRS: &str = "A busy web server (Apache, prefork, CGI through mod_cgid) spent its time copying page tables: copy_pte_range had \
    22 % of a system-wide profile, and each clone took 0.05 to 0.07 s. 1.5 GB in small pages are 384,000 entries of 8 bytes, 3 MB. \
    With 100,000 virtual hosts (about 4 GB) and malloc put into 2 MB pages by a preloaded library, clone fell from 0.069 s to \
    0.0177 s and requests per second rose several times; RSS shrank to 5 MB. With too small a pool allocation failed at start or \
    the program was killed later, and with 1 GB pages it did not start.";
const OURS: &str = "fork() timed with growing parts of a parent's memory, the rest kept out of it, and the size of its page tables. Then Debian's Apache with 100,000 \
    virtual hosts, prefork and mod_cgid, on a free port of the loopback address: its daemon's clone timed by strace, requests counted \
    by ab, the whole system profiled by perf meanwhile. This Apache's memory is not malloc's, so forkless run puts it into (transparent) \
    huge pages. The pool, its end and RSS are shown with a Perl whose memory is malloc's, by glibc's own tunable \
    (glibc.malloc.hugetlb=2): the article's preloaded library does nothing since glibc 2.34.";

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Experiment, Error> {
    let mut experiment = Experiment::begin(Id::E3, bench.options, THEIRS, OURS);
    sweep(bench, &mut experiment)?;
    bench.observer.progress(1, 6);
    server::measure(bench, &mut experiment);
    bench.observer.progress(6, 6);
    Ok(experiment)
}

/// The time of a fork by the number of entries it copies: one line through the medians of all
/// sizes.
///
/// The sizes are parts of one parent, the rest of whose memory is kept out of the fork. Where pages
/// lie in physical memory changes the price of an entry by tens of percent; parents of their own
/// would have other pages each, and be seconds apart.
#[expect(clippy::cast_precision_loss, reason = "numbers of entries and nanoseconds")]
fn sweep(bench: &mut Bench<'_>, experiment: &mut Experiment) -> Result<(), Error> {
    const MIB: u64 = 1 << 20;
    const FULL: u64 = 1536 * MIB;
    let largest = bench.quick(FULL / 4, FULL).min(forkless_bench::memory::largest_safe() / 2);
    if largest < FULL {
        let why = if bench.options.quick { "--quick" } else { "the machine has no room for more" };
        experiment.scaled.push(format!("forks of up to {} MiB instead of 1536 ({why})", largest / MIB));
    }
    let sizes: Vec<u64> = (1..=6).map(|sixth| largest / 6 / (2 * MIB) * (2 * MIB) * sixth).collect();
    let largest = sizes[5];
    if largest == 0 {
        experiment.miss(&["clone.r2", "entry.bytes"], "the machine has no room for a parent of 12 MiB");
        return Ok(());
    }
    let rounds: usize = bench.quick(6, 16);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); sizes.len()];
    forkless_bench::memory::require(largest)?;
    let before = page_table_kib();
    let mut memory = Memory::mapped(largest, Pages::Base)?;
    memory.touch_in_turns(sizes.len());
    let table_bytes = (page_table_kib() - before) * 1024.0 / (largest / page_size()) as f64;
    for round in 0..rounds {
        for step in 0..sizes.len() {
            let index = (step + round) % sizes.len();
            memory.fork_only(usize::try_from(sizes[index]).unwrap_or(usize::MAX))?;
            fork_us()?;
            let five = [fork_us()?, fork_us()?, fork_us()?, fork_us()?, fork_us()?];
            times[index].push(median(&five));
        }
    }
    drop(memory);
    let seed = bench.options.seed;
    let entries = largest / page_size();
    let series: Vec<_> = sizes
        .iter()
        .zip(&times)
        .map(|(&size, times)| ((size / page_size()) as f64, Samples::one_a_round(times.clone())))
        .collect();
    if let Some(fitted) = fit_medians(&series, forkless_bench::results::RESAMPLES, seed) {
        let about = "R2 of a line through time and entries";
        let undecided = Some([f64::MIN, f64::MAX]);
        let ci95 = fitted.r2.or(undecided);
        experiment.add(Figure { ci95, ..Figure::exact("clone.r2", about, "", fitted.line.r2) });
        let ci95 = fitted.slope.map(|ends| ends.map(|us| us * 1e3)).or(undecided);
        let ns = fitted.line.slope * 1e3;
        experiment.add(Figure { ci95, ..Figure::exact("clone.ns_per_entry", "an entry", "ns", ns) });
    }
    experiment.add(Figure::exact("clone.entries", "entries of the largest parent", "", entries as f64));
    experiment.add(Figure::exact("entry.bytes", "page table for each page of 4 KiB", "bytes", table_bytes));
    let mut table =
        TitledGrid::new("fork() by memory in small pages", &["MiB", "entries", "until fork returns, ms"], 0);
    let mut points = Vec::new();
    for (size, times) in sizes.iter().zip(&times) {
        let ms = Samples::one_a_round(times.iter().map(|us| us / 1e3).collect());
        let figure = Figure::of("", "", "", &ms, seed);
        points.push([(size / page_size()) as f64 / 1e3, figure.value]);
        table.line([
            (size / MIB).to_string(),
            (size / page_size()).to_string(),
            super::text::figure(&figure),
        ]);
    }
    experiment.tables.push(table);
    experiment.plots.push(Plot::Lines {
        title: "fork() by page-table entries".into(),
        x: "thousand entries".into(),
        y: "ms".into(),
        lines: vec![Line { name: "until fork returns".into(), points }],
    });
    let [before, after] = huge_pages::CLONE_S.map(|seconds| seconds * 1e3);
    experiment
        .notes
        .push(format!("published clone: {before:.1} ms with small pages, {after:.1} ms with huge ones"));
    Ok(())
}

/// Kibibytes of page tables of this process.
fn page_table_kib() -> f64 {
    let kib = own_status("VmPTE").and_then(|size| size.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0.0)
}

/// Microseconds until fork returns to the parent; the child exits at once.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a call")]
fn fork_us() -> Result<f64, Error> {
    let start = now();
    // SAFETY: the child only exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let elapsed = now() - start;
    if pid < 0 {
        return Err(Error::last_os("fork"));
    }
    Error::check_status("fork", reap(pid, 0)?)?;
    Ok(elapsed as f64 / 1e3)
}
