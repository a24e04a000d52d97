//! E6: a redis that saves its memory by a forked child while clients read and write. Measured are
//! the fork call, the latency of the queries during five snapshots in a row and between them, and
//! the memory; with small pages and with huge pages by `forkless run`.
//!
//! Servers of two modes would not fit into most machines at once. So a round has one sitting of
//! each mode, in an order that changes, and a ratio is taken within a round.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use forkless_bench::clock::now;
use forkless_bench::engine::Silent;
use forkless_bench::error::Error;
use forkless_bench::memory;
use forkless_bench::page_kinds::Pages;
use forkless_bench::render::number;
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::stats::median;
use forkless_run::{HugePages, Settings};

use self::load::{Answered, Demand, Load, Pattern, VALUE};
use super::plot::{Line, Mark, Plot};
use super::{Bench, Experiment, Figure, Id, TitledGrid};
use crate::install;
use crate::victims::kept::huge_pages;
use crate::victims::redis::Redis;
use crate::victims::server::huge;
use crate::victims::stage::Stage;

mod load;

const THEIRS: &str = "An in-memory store takes a snapshot by fork: the child writes the memory as it was. Copying the page table \
    takes most of the fork, and every query that comes meanwhile waits. With Async-fork, a kernel's child copies the page table \
    instead of its parent. It reduced the tail latency of queries during a snapshot by 81.76 % at 8 GB, and by 99.84 % at 64 GB. \
    redis advises against huge pages since 2015: a write after the fork would copy 2 MB.";
const OURS: &str = "Debian's redis on an unmodified kernel, full of values of 1 KiB, under an open loop of GET and SET over unix \
    sockets: requests are sent at times drawn beforehand, and latencies count from then. Five BGSAVEs in a row, each carried to its \
    end. The same with forkless run --fork=off --huge-pages=thp, and =hugetlb. Rounds of one server of each kind.";

/// Snapshots in a row.
const SNAPSHOTS: usize = 5;

/// What a key takes beside its value: a value is in jemalloc's class of 1,280 bytes, and key, entry
/// and object take some 80.
const BYTES_PER_KEY: u64 = 1360;

const GIB: u64 = 1 << 30;

/// How redis is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain,
    Thp,
    Hugetlb,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Thp => "thp",
            Mode::Hugetlb => "hugetlb",
        }
    }

    fn settings(self) -> Option<Settings> {
        match self {
            Mode::Plain => None,
            Mode::Thp => Some(huge_pages(HugePages::Transparent)),
            Mode::Hugetlb => Some(huge_pages(HugePages::Pool)),
        }
    }
}

fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Uniform => "uniform",
        Pattern::Skewed => "skewed",
    }
}

/// The figures that claims rest on, and the mode beside `plain` that they need.
const PLAIN: [&str; 1] = ["uniform.tail"];
const THP: [&str; 3] = ["uniform.gain", "uniform.copied", "uniform.fork_fifth"];

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Experiment, Error> {
    let mut experiment = Experiment::begin(Id::E6, bench.options, THEIRS, OURS);
    let all = [&PLAIN[..], &THP[..]].concat();
    let options = bench.options.clone();
    let Some(spec) = options.victims() else {
        experiment.miss(&all, "there is nothing to keep a server from outliving this");
        return Ok(experiment);
    };
    // Installed here, where the reader is told of it.
    let redis = match install::need("redis-server", "redis-server", options.install, bench.observer) {
        Ok(redis) => redis,
        Err(error) => {
            experiment.miss(&all, error.to_string());
            return Ok(experiment);
        }
    };
    experiment.notes.extend(install::version(&redis, "--version"));
    let size = Size::of(bench, &mut experiment);
    let Some(guard) = bench.guard.as_deref_mut() else {
        experiment.miss(&all, "nobody would restore the settings after a crash");
        return Ok(experiment);
    };
    let mut silent = Silent;
    let mut progress = |done, all| bench.observer.progress(done, all);
    let measured = Stage::new(&spec, guard, &mut silent, 1).and_then(|mut stage| {
        let modes = modes(&redis, &mut stage, size, options.run, &mut experiment)?;
        Sittings::of(&redis, &mut stage, size, &modes, options.seed, &mut progress)
    });
    match measured {
        Ok(sittings) => sittings.report(size, options.seed, &mut experiment),
        Err(error) => experiment.miss(&all, error.to_string()),
    }
    Ok(experiment)
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: u64,
    rounds: usize,
    /// Requests a second.
    rate: f64,
    /// Between a snapshot and the next.
    pause: Duration,
}

impl Size {
    fn of(bench: &Bench<'_>, experiment: &mut Experiment) -> Size {
        let full = 4 * GIB;
        let wanted = bench.options.memory.unwrap_or(bench.quick(GIB / 4, full));
        // Once more for what parent and child write meanwhile.
        let bytes = wanted.min(memory::largest_safe() / 2) >> 20 << 20;
        if bytes < 8 * GIB {
            let why = if bytes < wanted {
                "the machine has no room for more"
            } else if bench.options.memory.is_some() {
                "--memory"
            } else if bench.options.quick {
                "--quick"
            } else {
                "more than that takes an hour"
            };
            experiment.scaled.push(format!("{} MiB of keys and values instead of 8192 ({why})", bytes >> 20));
        }
        Size {
            bytes,
            rounds: bench.quick(2, 4),
            rate: bench.quick(2000.0, 5000.0),
            pause: Duration::from_secs(bench.quick(1, 25)),
        }
    }

    fn keys(self) -> u64 {
        (self.bytes / BYTES_PER_KEY).max(1000)
    }
}

/// The modes that do something here. The others are missing, with the reason.
fn modes(
    redis: &Path,
    stage: &mut Stage<'_>,
    size: Size,
    run: bool,
    experiment: &mut Experiment,
) -> Result<Vec<Mode>, Error> {
    memory::require(2 * size.bytes)?;
    if !run {
        experiment.miss(&THP, "forkless run, which puts redis's memory into huge pages, is not built");
        return Ok(vec![Mode::Plain]);
    }
    let mut modes = vec![Mode::Plain, Mode::Thp];
    let reached = pool_reaches(redis, stage);
    match reached {
        Ok(()) => modes.push(Mode::Hugetlb),
        Err(error) => experiment.miss(&["uniform.hugetlb"], error.to_string()),
    }
    Ok(modes)
}

/// Whether memory of this redis comes from the pool at all: by glibc's malloc, or in a process with
/// one thread.
fn pool_reaches(redis: &Path, stage: &mut Stage<'_>) -> Result<(), Error> {
    const BYTES: u64 = 64 << 20;
    let _pool = Pages::Hugetlb(2048).enable(3 * BYTES, Some(stage.guard))?;
    let mut server = Redis::empty("E6", stage, redis, Mode::Hugetlb.settings())?;
    let allocator: String = server.info("memory", "mem_allocator")?;
    server.call(&format!("DEBUG POPULATE {} key {VALUE}", BYTES / BYTES_PER_KEY))?;
    snapshot(&mut server)?;
    let held = huge(server.pid);
    server.finish()?;
    match held {
        Some([_, pool, all]) if pool * 2 > all => Ok(()),
        _ => Err(Error::Missing(format!(
            "nothing of redis's memory comes from the pool: its allocator is {allocator}, and it has threads"
        ))),
    }
}

/// One server's life.
struct Sitting {
    during: Vec<f64>,
    between: Vec<f64>,
    snapshots: Vec<Snapshot>,
}

/// One snapshot.
struct Snapshot {
    fork_ms: f64,
    copied_mib: f64,
    seconds: f64,
    /// MiB, before it: resident, and of it in huge pages.
    resident: f64,
    huge: f64,
}

#[expect(clippy::cast_precision_loss, reason = "latencies, and KiB")]
fn sitting(
    redis: &Path,
    stage: &mut Stage<'_>,
    mode: Mode,
    pattern: Pattern,
    size: Size,
    seed: u64,
) -> Result<Sitting, Error> {
    let _pages = match mode {
        Mode::Plain => None,
        Mode::Thp => Some(Pages::Thp(2048).enable(size.bytes, Some(stage.guard))?),
        Mode::Hugetlb => Some(Pages::Hugetlb(2048).enable(3 * size.bytes, Some(stage.guard))?),
    };
    let mut server = Redis::empty("E6", stage, redis, mode.settings())?;
    server.call(&format!("DEBUG POPULATE {} key {VALUE}", size.keys()))?;
    let demand = Demand { pattern, keys: size.keys(), rate: size.rate, seed };
    let load = Load::start(&server.socket, demand)?;
    thread::sleep(size.pause);
    let (mut snapshots, mut spans) = (Vec::new(), Vec::new());
    for _ in 0..SNAPSHOTS {
        // Looking at all pages keeps the server waiting, so it is in no span.
        let [transparent, pool, all] = huge(server.pid).unwrap_or_default();
        thread::sleep(Duration::from_millis(300));
        let begun = now();
        let (fork_us, copied) = snapshot(&mut server)?;
        let ended = now();
        spans.push((begun, ended, true));
        thread::sleep(size.pause);
        spans.push((ended, now(), false));
        snapshots.push(Snapshot {
            fork_ms: fork_us / 1e3,
            copied_mib: copied / f64::from(1 << 20),
            seconds: (ended - begun) as f64 / 1e9,
            resident: all as f64 / 1024.0,
            huge: (transparent + pool) as f64 / 1024.0,
        });
    }
    let answered = load.finish()?;
    server.finish()?;
    let part = |during| {
        let inside = |one: &&Answered| {
            spans.iter().any(|&(from, to, kind)| kind == during && (from..to).contains(&one.due))
        };
        let mut took: Vec<f64> = answered.iter().filter(inside).map(|one| one.took as f64 / 1e6).collect();
        took.sort_unstable_by(f64::total_cmp);
        took
    };
    Ok(Sitting { during: part(true), between: part(false), snapshots })
}

/// One snapshot, to its end: microseconds of the fork call, and bytes copied by writes meanwhile.
fn snapshot(server: &mut Redis) -> Result<(f64, f64), Error> {
    const PATIENCE: Duration = Duration::from_secs(600);
    server.call("BGSAVE")?;
    let end = Instant::now() + PATIENCE;
    while server.info::<u32>("persistence", "rdb_bgsave_in_progress")? != 0 {
        if Instant::now() >= end {
            return Err(Error::Missing("redis did not end its snapshot within 600 s".into()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let status: String = server.info("persistence", "rdb_last_bgsave_status")?;
    if status != "ok" {
        return Err(Error::Missing(format!("redis could not write its snapshot: {status}")));
    }
    Ok((server.info("stats", "latest_fork_usec")?, server.info("persistence", "rdb_last_cow_size")?))
}

/// The value that so much of them do not exceed (the nearest rank); of a sorted list.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank below the number of values"
)]
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).or(sorted.last()).copied().unwrap_or(0.0)
}

/// A metric of a sitting: its name, what it is, its unit, and its value.
type Metric = (&'static str, &'static str, &'static str, fn(&Sitting) -> f64);

const METRICS: [Metric; 14] = [
    ("p50", "median during a snapshot", "ms", |s| quantile(&s.during, 0.5)),
    ("p99", "p99 during a snapshot", "ms", |s| quantile(&s.during, 0.99)),
    ("p999", "p99.9 during a snapshot", "ms", |s| quantile(&s.during, 0.999)),
    ("max", "longest during a snapshot", "ms", |s| quantile(&s.during, 1.0)),
    ("between_p50", "median between snapshots", "ms", |s| quantile(&s.between, 0.5)),
    ("between_p99", "p99 between snapshots", "ms", |s| quantile(&s.between, 0.99)),
    ("between_p999", "p99.9 between snapshots", "ms", |s| quantile(&s.between, 0.999)),
    ("between_max", "longest between snapshots", "ms", |s| quantile(&s.between, 1.0)),
    ("fork_ms", "fork call", "ms", |s| of_snapshots(s, |one| one.fork_ms)),
    ("fork_max_ms", "longest of five fork calls", "ms", |s| {
        s.snapshots.iter().map(|one| one.fork_ms).fold(0.0, f64::max)
    }),
    ("copied_mib", "memory copied during a snapshot", "MiB", |s| of_snapshots(s, |one| one.copied_mib)),
    ("seconds", "a snapshot", "s", |s| of_snapshots(s, |one| one.seconds)),
    ("resident_mib", "memory before the last snapshot", "MiB", |s| last(s, |one| one.resident)),
    ("huge_mib", "of it in huge pages", "MiB", |s| last(s, |one| one.huge)),
];

fn of_snapshots(sitting: &Sitting, value: fn(&Snapshot) -> f64) -> f64 {
    median(&sitting.snapshots.iter().map(value).collect::<Vec<_>>())
}

fn last(sitting: &Sitting, value: fn(&Snapshot) -> f64) -> f64 {
    sitting.snapshots.last().map_or(0.0, value)
}

/// All sittings of one pattern and mode, round by round.
struct Row {
    pattern: Pattern,
    mode: Mode,
    sittings: Vec<Sitting>,
}

impl Row {
    fn samples(&self, value: impl Fn(&Sitting) -> f64) -> Samples {
        Samples::one_a_round(self.sittings.iter().map(value).collect())
    }

    fn metric(&self, wanted: &str) -> Samples {
        let value = METRICS.iter().find(|metric| metric.0 == wanted);
        value.map_or_else(Samples::default, |metric| self.samples(metric.3))
    }
}

struct Sittings(Vec<Row>);

impl Sittings {
    fn of(
        redis: &Path,
        stage: &mut Stage<'_>,
        size: Size,
        modes: &[Mode],
        seed: u64,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Sittings, Error> {
        let patterns = [Pattern::Uniform, Pattern::Skewed];
        let mut rows = Vec::new();
        for pattern in patterns {
            for &mode in modes {
                rows.push(Row { pattern, mode, sittings: Vec::new() });
            }
        }
        let (mut done, all) = (0, size.rounds * rows.len());
        for round in 0..size.rounds {
            for pattern in 0..patterns.len() {
                for step in 0..modes.len() {
                    let row = &mut rows[pattern * modes.len() + (step + round) % modes.len()];
                    // The same requests for each mode.
                    let seed = seed.wrapping_mul(1000) + round as u64;
                    let sitting = sitting(redis, stage, row.mode, row.pattern, size, seed)?;
                    row.sittings.push(sitting);
                    done += 1;
                    progress(done, all);
                }
            }
        }
        Ok(Sittings(rows))
    }

    fn row(&self, pattern: Pattern, mode: Mode) -> Option<&Row> {
        self.0.iter().find(|row| row.pattern == pattern && row.mode == mode)
    }

    fn report(&self, size: Size, seed: u64, experiment: &mut Experiment) {
        for row in &self.0 {
            for (metric, about, unit, value) in METRICS {
                let (pattern, mode) = (name(row.pattern), row.mode.name());
                let name = format!("{pattern}.{mode}.{metric}");
                let about = format!("{about}, {pattern}, {mode}");
                experiment.add(Figure::of(&name, &about, unit, &row.samples(value), seed));
            }
        }
        for pattern in [Pattern::Uniform, Pattern::Skewed] {
            self.compare(pattern, seed, experiment);
            self.tabulate(pattern, size, experiment);
        }
    }

    /// The figures that compare the modes.
    fn compare(&self, pattern: Pattern, seed: u64, experiment: &mut Experiment) {
        let name = name(pattern);
        let mut add = |what: &str, about: &str, of: &Samples, to: &Samples| {
            let about = format!("{about}, {name}");
            experiment.add(Figure::ratio(&format!("{name}.{what}"), &about, of, to, seed));
        };
        let Some(plain) = self.row(pattern, Mode::Plain) else { return };
        let tail = "p99.9 during a snapshot against between, plain";
        add("tail", tail, &plain.metric("p999"), &plain.metric("between_p999"));
        for mode in [Mode::Thp, Mode::Hugetlb] {
            let Some(huge) = self.row(pattern, mode) else { continue };
            let prefix = if mode == Mode::Thp { "" } else { "hugetlb_" };
            let mut add = |what: &str, about: &str, of: &Samples, to: &Samples| {
                add(&format!("{prefix}{what}"), &format!("{about}, {}", mode.name()), of, to);
            };
            add(
                "gain",
                "p99.9 during a snapshot, plain against",
                &plain.metric("p999"),
                &huge.metric("p999"),
            );
            add("gain_max", "longest, plain against", &plain.metric("max"), &huge.metric("max"));
            add("fork_gain", "fork call, plain against", &plain.metric("fork_ms"), &huge.metric("fork_ms"));
            add(
                "copied",
                "memory copied, against plain",
                &huge.metric("copied_mib"),
                &plain.metric("copied_mib"),
            );
            let fork = |index: usize| {
                huge.samples(|sitting| sitting.snapshots.get(index).map_or(0.0, |one| one.fork_ms))
            };
            add("fork_fifth", "fork call, fifth against first", &fork(SNAPSHOTS - 1), &fork(0));
        }
        // A ratio of two equal runs would say nothing.
        for (mode, is_huge) in [(Mode::Plain, false), (Mode::Thp, true)] {
            let Some(row) = self.row(pattern, mode) else { continue };
            let first = |value: fn(&Snapshot) -> f64| {
                median(&row.samples(|sitting| sitting.snapshots.first().map_or(0.0, value)).values)
            };
            let (huge, all) = (first(|one| one.huge), first(|one| one.resident));
            if (huge * 2.0 > all) != is_huge {
                let why = format!("{huge:.0} of {all:.0} MiB of redis ({}) are in huge pages", mode.name());
                experiment.figures.retain(|figure| !THP.contains(&figure.name.as_str()));
                experiment.miss(&THP, why);
            }
        }
    }

    fn tabulate(&self, pattern: Pattern, size: Size, experiment: &mut Experiment) {
        let rows: Vec<&Row> = self.0.iter().filter(|row| row.pattern == pattern).collect();
        let pattern = name(pattern);
        let figure = |row: &Row, metric: &str| {
            let name = format!("{pattern}.{}.{metric}", row.mode.name());
            experiment.figure(&name).cloned()
        };
        let cell = |row: &Row, metric: &str| {
            figure(row, metric).map_or_else(String::new, |figure| number(figure.value))
        };
        let queries = format!(
            "Queries, {pattern} keys, {} MiB, {} requests a second: ms from when each was due",
            size.bytes >> 20,
            size.rate
        );
        let mut latencies = TitledGrid::new(queries, &["mode", "while", "p50", "p99", "p99.9", "longest"], 2);
        let mut memory = TitledGrid::new(
            format!("Snapshots, {pattern} keys: five in a row"),
            &["mode", "fork, ms", "longest fork, ms", "copied, MiB", "seconds", "resident, MiB", "huge, MiB"],
            1,
        );
        let (mut marks, mut lines) = (Vec::new(), Vec::new());
        for row in rows {
            let mode = row.mode.name().to_owned();
            for (part, prefix) in [("saving", ""), ("not saving", "between_")] {
                let cells =
                    ["p50", "p99", "p999", "max"].map(|metric| cell(row, &format!("{prefix}{metric}")));
                latencies.line([mode.clone(), part.to_owned()].into_iter().chain(cells));
            }
            let cells = ["fork_ms", "fork_max_ms", "copied_mib", "seconds", "resident_mib", "huge_mib"];
            memory.line(std::iter::once(mode.clone()).chain(cells.map(|metric| cell(row, metric))));
            if let Some(figure) = figure(row, "p999") {
                let ci95 = figure.bounds().map(|bound| bound.clamp(0.0, 1e9));
                marks.push(Mark { name: mode.clone(), value: figure.value, ci95 });
            }
            let points = (0_u32..).zip(0..SNAPSHOTS).map(|(x, index)| {
                let forks =
                    row.samples(|sitting| sitting.snapshots.get(index).map_or(0.0, |one| one.fork_ms));
                [f64::from(x + 1), median(&forks.values)]
            });
            lines.push(Line { name: mode, points: points.collect() });
        }
        experiment.tables.extend([latencies, memory]);
        experiment.plots.push(Plot::Marks {
            title: format!("p99.9 of the queries during a snapshot, {pattern} keys"),
            unit: "ms".into(),
            marks,
        });
        experiment.plots.push(Plot::Lines {
            title: format!("The fork call, snapshot by snapshot, {pattern} keys"),
            x: "snapshot".into(),
            y: "ms".into(),
            lines,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_there() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(
            [0.5, 0.99, 0.999, 1.0].map(|share| quantile(&values, share)),
            [500.0, 990.0, 999.0, 1000.0]
        );
        assert_eq!(quantile(&[7.0], 0.999), 7.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    /// Sittings whose latencies and forks are all the same number.
    fn sittings(numbers: [(Mode, f64, f64); 2]) -> Sittings {
        let sitting = |ms: f64, huge: f64| Sitting {
            during: vec![ms; 10],
            between: vec![1.0; 10],
            snapshots: (0..SNAPSHOTS)
                .map(|_| Snapshot { fork_ms: ms, copied_mib: 5.0, seconds: 1.0, resident: 100.0, huge })
                .collect(),
        };
        let row = |(mode, ms, huge)| Row {
            pattern: Pattern::Uniform,
            mode,
            sittings: (0..4).map(|_| sitting(ms, huge)).collect(),
        };
        Sittings(numbers.map(row).into())
    }

    fn reported(numbers: [(Mode, f64, f64); 2]) -> Experiment {
        let mut experiment = Experiment::begin(Id::E6, &super::super::ReproduceOptions::default(), "", "");
        let size = Size { bytes: GIB, rounds: 4, rate: 1.0, pause: Duration::ZERO };
        sittings(numbers).report(size, 1, &mut experiment);
        experiment
    }

    #[test]
    fn modes_are_compared_within_rounds_and_shown() {
        let experiment = reported([(Mode::Plain, 20.0, 0.0), (Mode::Thp, 2.0, 90.0)]);
        let value = |name: &str| experiment.figure(name).map(|figure| figure.value);
        assert_eq!(value("uniform.gain"), Some(10.0));
        assert_eq!(value("uniform.tail"), Some(20.0));
        assert_eq!(value("uniform.copied"), Some(1.0));
        assert_eq!(value("uniform.fork_fifth"), Some(1.0));
        assert!(experiment.missing.is_empty(), "{:?}", experiment.missing);
        assert_eq!(experiment.tables[0].grid.lines.len(), 4);
    }

    #[test]
    fn two_servers_on_the_same_pages_are_not_compared() {
        for huge in [[0.0, 10.0], [90.0, 90.0]] {
            let experiment = reported([(Mode::Plain, 20.0, huge[0]), (Mode::Thp, 2.0, huge[1])]);
            assert!(experiment.figure("uniform.gain").is_none());
            assert!(experiment.missing["uniform.gain"].contains("in huge pages"));
        }
    }
}
