//! E5: fork + exec and vfork + exec by the parent's memory; eleven ways to start a program; blocks
//! below the device's.

use forkless_bench::clock::{self, CpuTime};
use forkless_bench::engine::{self, Schedule};
use forkless_bench::error::Error;
use forkless_bench::page_kinds::Pages;
use forkless_bench::parent::Memory;
use forkless_bench::program::{Kind, Program};
use forkless_bench::published::spawn as published;
use forkless_bench::render::number;
use forkless_bench::results::Param;
use forkless_bench::spawn::{CPU_TOTAL_AT, Method, SpawnedProgram, single_arms, worker};
use forkless_bench::stats::bootstrap::{Samples, within_rounds};
use forkless_bench::stats::median;
use forkless_bench::stdio::NullStdout;
use forkless_bench::suites::blockwrite::{self, Mode, Spec, TargetKind};

use super::plot::{Line, Mark, Plot};
use super::{Bench, Experiment, Figure, Id, TitledGrid};

const THEIRS: &str = "A parent that has allocated 20 or 40 MB, and written 10 or 20 of them, starts a tiny static program a few thousand \
    times. Its processor time doubles with the memory written if it forks, and stays with vfork. The remedy is popen-noshell: a child \
    by clone(CLONE_VM) on a stack of its own, descriptors moved, exec, no shell. From a parent of 200 MB, half of it written, 60,000 \
    starts took 9.0 s of processor time with vfork, 9.7 to 12.3 s with popen-noshell, 84 s with fork, and 117 s with popen.";
const OURS: &str = "The same parents and the same child (it writes a line and exits), all ways interleaved, each turn's processor time \
    taken as a whole, for its division into user and system is an estimate. popen-noshell's ways are written anew from their \
    description. Times are given for 60,000 starts.";

const MB: u64 = 1 << 20;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Experiment, Error> {
    let mut experiment = Experiment::begin(Id::E5, bench.options, THEIRS, OURS);
    by_memory(bench, &mut experiment)?;
    bench.observer.progress(1, 3);
    by_method(bench, &mut experiment)?;
    bench.observer.progress(2, 3);
    small_blocks(bench, &mut experiment);
    bench.observer.progress(3, 3);
    Ok(experiment)
}

/// MB allocated and MB used: the author's three, and a doubling where the constant part of a fork
/// no longer shows.
const PARENTS: [(u64, u64); 5] = [(20, 10), (20, 20), (40, 20), (200, 200), (400, 400)];

/// The first table: seconds of the parent.
#[expect(clippy::cast_precision_loss, reason = "counts of starts and megabytes")]
fn by_memory(bench: &mut Bench<'_>, experiment: &mut Experiment) -> Result<(), Error> {
    let program = Program::prepare(&Kind::Write, bench.guard.as_deref_mut())?;
    let target = SpawnedProgram::new(&program);
    let _quiet = NullStdout::new()?;
    let rounds: usize = bench.quick(6, 12);
    let starts: u64 = bench.quick(20, 250);
    let mut times: [[Vec<f64>; 2]; PARENTS.len()] = Default::default();
    let mut ways = [worker(Method::VforkExec, &target)?, worker(Method::ForkExec, &target)?];
    for round in 0..rounds {
        for step in 0..PARENTS.len() {
            let index = (step + round) % PARENTS.len();
            let (allocated, used) = PARENTS[index];
            forkless_bench::memory::require(allocated * MB)?;
            let mut memory = Memory::mapped(allocated * MB, Pages::Base)?;
            memory.touch(usize::try_from(used * MB).unwrap_or(usize::MAX));
            for (way, times) in ways.iter_mut().zip(&mut times[index]) {
                // The parent's page tables and the caches as this way leaves them.
                way.spawn()?;
                // A hundredth of the starts is enough where one takes milliseconds.
                let starts = if used > 40 { starts.div_ceil(5) } else { starts };
                let before = CpuTime::of_self();
                for _ in 0..starts {
                    way.spawn()?;
                }
                times.push(CpuTime::of_self().since(before).total() / starts as f64);
            }
        }
    }
    let total = rounds as u64 * starts;
    experiment.notes.push(format!(
        "first table: {total} starts of each kind in {rounds} rounds; microseconds of the parent a start"
    ));
    let mut table = TitledGrid::new(
        "Processor time of the parent a start, us",
        &["MB allocated", "MB used", "vfork + exec", "fork + exec"],
        0,
    );
    let seed = bench.options.seed;
    let samples = |index: usize, way: usize| Samples::one_a_round(times[index][way].clone());
    let mut lines =
        ["vfork + exec", "fork + exec"].map(|name| Line { name: name.to_owned(), points: Vec::new() });
    for (index, (allocated, used)) in PARENTS.into_iter().enumerate() {
        let cells = [0, 1].map(|way| {
            let figure = Figure::of("", "", "", &samples(index, way), seed);
            if allocated != 40 {
                lines[way].points.push([used as f64, figure.value]);
            }
            super::text::figure(&figure)
        });
        table.line([allocated.to_string(), used.to_string()].into_iter().chain(cells));
    }
    experiment.tables.push(table);
    let mut table = TitledGrid::new(
        "The published table, seconds of the parent for a few thousand starts",
        &["system", "MB allocated", "MB used", "vfork + exec", "fork + exec"],
        1,
    );
    for (system, allocated, used, vfork, fork) in published::BY_MEMORY {
        let figures = [vfork, fork].map(|seconds| format!("{seconds:.2}"));
        table.line([system.to_owned(), allocated.to_string(), used.to_string()].into_iter().chain(figures));
    }
    experiment.tables.push(table);
    experiment.plots.push(Plot::Lines {
        title: "Processor time of the parent a start".into(),
        x: "MB used".into(),
        y: "us".into(),
        lines: lines.into(),
    });
    for (name, about, of, to, way) in [
        ("fork.double_used", "fork + exec, 20 MB used against 10", 1, 0, 1),
        ("vfork.double_used", "vfork + exec, 20 MB used against 10", 1, 0, 0),
        ("fork.double_allocated", "fork + exec, 40 MB allocated against 20", 2, 1, 1),
        ("vfork.double_allocated", "vfork + exec, 40 MB allocated against 20", 2, 1, 0),
        ("fork.double_large", "fork + exec, 400 MB used against 200", 4, 3, 1),
    ] {
        experiment.add(Figure::ratio(name, about, &samples(of, way), &samples(to, way), seed));
    }
    Ok(())
}

/// The second table: eleven ways from a parent of 200 MB, half of it written.
fn by_method(bench: &mut Bench<'_>, experiment: &mut Experiment) -> Result<(), Error> {
    let program = Program::prepare(&Kind::Write, bench.guard.as_deref_mut())?;
    let target = SpawnedProgram::new(&program);
    let mut methods: Vec<Method> =
        published::BY_METHOD.iter().map(|(name, _)| name.parse()).collect::<Result<_, _>>()?;
    methods.extend([Method::Forkless, Method::ForklessPopen, Method::ForklessSystem]);
    let seed = bench.options.seed;
    let runs = bench.quick(60, 1200);
    // The slow ways take a whole turn for one start; so short a budget would give them too few
    // rounds.
    let schedule = Schedule { runs, seed, ..Schedule::default() };
    let measure = |bench: &mut Bench<'_>,
                   methods: &[Method],
                   schedule: &Schedule,
                   mb: u64|
     -> Result<Vec<Vec<Samples>>, Error> {
        let _quiet = NullStdout::new()?;
        forkless_bench::memory::require(mb * MB)?;
        let mut memory = (mb > 0).then(|| Memory::mapped(mb * MB, Pages::Base)).transpose()?;
        if let Some(memory) = &mut memory {
            memory.touch(usize::try_from(mb * MB / 2).unwrap_or(usize::MAX));
        }
        let mut arms = single_arms(methods, &target, clock::overhead())?;
        Ok(engine::run(&mut arms, schedule, bench.observer)?.series)
    };
    let series = measure(bench, &methods, &schedule, 200)?;
    let total = CPU_TOTAL_AT;
    if runs < published::RUNS as usize {
        experiment
            .scaled
            .push(format!("second table: {runs} starts instead of {}, times for so many", published::RUNS));
    }
    report_methods(experiment, &methods, &series, total, seed);

    // What of system() is the shell, and what the parent's memory.
    let index = |method| methods.iter().position(|&one| one == method);
    if let (Some(system), Some(direct)) = (index(Method::System), index(Method::PosixSpawn)) {
        let shares = within_rounds(&series[direct][total], &series[system][total]);
        let shell = shares.values.iter().map(|share| 100.0 * (1.0 - share)).collect();
        let about = "of system() is the shell (less a posix_spawn of the program itself)";
        experiment.add(Figure::of("system.shell_percent", about, "%", &Samples::one_a_round(shell), seed));
    }
    let small = Schedule { runs: runs.div_ceil(5), ..schedule };
    let without = measure(bench, &[Method::System], &small, 0)?;
    let with = measure(bench, &[Method::System], &small, 200)?;
    let change = 100.0 * (median(&with[0][total].values) / median(&without[0][total].values) - 1.0);
    let about = "more processor time of system() from 200 MB than from none";
    // Two runs, one after the other: no interval that would be honest.
    experiment.add(Figure {
        ci95: Some([f64::MIN, f64::MAX]),
        ..Figure::exact("system.memory_percent", about, "%", change)
    });
    Ok(())
}

/// The side note: a pure write test by block size, on devices made for it. The suite `blockwrite`
/// does it.
fn small_blocks(bench: &mut Bench<'_>, experiment: &mut Experiment) {
    const NAMES: [&str; 3] = ["blockwrite.small_reads", "blockwrite.large_reads", "blockwrite.slower"];
    let targets = vec![TargetKind::Loop, TargetKind::Mapper, TargetKind::File];
    let schedule =
        Schedule { runs: bench.quick(8, 12), seed: bench.options.seed, per_turn: 1, ..Schedule::default() };
    let size = bench.quick(MB, 2 * MB);
    let spec = Spec {
        targets,
        bs: vec![256, 512, 4096],
        size,
        directory: None,
        modes: vec![Mode::Buffered],
        schedule,
    };
    let suite = match blockwrite::run(&spec, bench.guard.as_deref_mut(), bench.observer) {
        Ok(suite) => suite,
        Err(error) => return experiment.miss(&NAMES, error.to_string()),
    };
    let row = |target: &str, bs: u64, metric: &str| {
        suite.rows.iter().find(|row| {
            row.metric == metric
                && row.params.get("bs") == Some(&Param::Number(bs))
                && row.params.get("target") == Some(&Param::Word(target.to_owned()))
        })
    };
    let mut table = TitledGrid::new(
        "Writing in small blocks: reads for every 4 KiB written, MiB/s",
        &["target", "bs", "reads", "throughput"],
        1,
    );
    for target in ["loop", "mapper", "file"] {
        for bs in [256, 512, 4096] {
            if let (Some(reads), Some(speed)) = (row(target, bs, "reads"), row(target, bs, "throughput")) {
                let cells = [reads.summary.median, speed.summary.median].map(number);
                table.line([target.to_owned(), bs.to_string()].into_iter().chain(cells));
            }
        }
    }
    experiment.tables.push(table);
    // The author's were a disk and a device-mapper volume; without root there is a file.
    let device = if row("loop", 512, "reads").is_some() { "loop" } else { "file" };
    let seed = bench.options.seed;
    let mut add = |name: &str, about: &str, target: &str| {
        let (Some(small), Some(large)) = (row(target, 512, "throughput"), row(target, 4096, "throughput"))
        else {
            return;
        };
        let about = format!("{about}, {target}");
        experiment.add(Figure::ratio(name, &about, &large.grouped(), &small.grouped(), seed));
    };
    add("blockwrite.slower", "throughput of 4096 against 512", device);
    add("blockwrite.mapper_slower", "throughput of 4096 against 512", "mapper");
    for (name, bs, target) in [
        ("blockwrite.small_reads", 512, device),
        ("blockwrite.large_reads", 4096, device),
        ("blockwrite.mapper_reads", 512, "mapper"),
    ] {
        if let Some(reads) = row(target, bs, "reads") {
            let about = format!("reads for every 4 KiB written, bs {bs}, {target}");
            experiment.add(Figure::of(name, &about, "", &reads.grouped(), seed));
        }
    }
    let why = suite.notes.iter().filter(|note| note.starts_with("skipped")).cloned().collect::<Vec<_>>();
    if NAMES.iter().any(|name| experiment.figure(name).is_none()) {
        experiment.miss(&NAMES, format!("no device to count on ({})", why.join("; ")));
    }
    experiment.notes.extend(why);
}

fn report_methods(
    experiment: &mut Experiment,
    methods: &[Method],
    series: &[Vec<Samples>],
    total: usize,
    seed: u64,
) {
    let mut table = TitledGrid::new(
        "Processor seconds of parent and children for 60,000 starts; user and system are estimates",
        &["method", "user", "system", "total", "x vfork", "published total", "x vfork"],
        1,
    );
    let mut marks = Vec::new();
    let runs = f64::from(published::RUNS);
    for (method, series_of) in methods.iter().zip(series) {
        let name = method.name();
        let seconds = |metric: usize| median(&series_of[metric].values) * runs / 1e6;
        let figure = Figure::ratio(
            &format!("{name}.over_vfork"),
            &format!("{name} against vfork + exec"),
            &series_of[total],
            &series[0][total],
            seed,
        );
        let author =
            published::BY_METHOD.iter().find(|(known, _)| *known == name).map(|(_, [.., total])| *total);
        let yardstick = published::BY_METHOD[0].1[2];
        table.line([
            name.to_owned(),
            format!("{:.1}", seconds(total + 1)),
            format!("{:.1}", seconds(total + 2)),
            format!("{:.1}", seconds(total)),
            super::text::figure(&figure),
            author.map_or_else(String::new, |seconds| format!("{seconds:.1}")),
            author.map_or_else(String::new, |seconds| format!("{:.2}", seconds / yardstick)),
        ]);
        let ci95 = figure.bounds().map(|bound| bound.clamp(0.0, 1e12));
        marks.push(Mark { name: name.to_owned(), value: figure.value, ci95 });
        if *method != Method::VforkExec {
            experiment.add(figure);
        }
    }
    experiment.tables.push(table);
    experiment.plots.push(Plot::Marks {
        title: "Processor time against vfork + exec".into(),
        unit: "times".into(),
        marks,
    });
}
