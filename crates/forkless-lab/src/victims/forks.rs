//! A fork's effect on the rest of the process: the pass over its memory afterwards, children that
//! never exec, other threads that allocate. And the size from which speculation pays.

use std::cell::RefCell;

use forkless_bench::check::{Bound, Quantity};
use forkless_bench::engine::Schedule;
use forkless_bench::error::Error;
use forkless_bench::results::{Metric, Param, Params};
use forkless_bench::stats::bootstrap::{Replicates, Resampler, Samples};
use forkless_bench::stats::median;
use forkless_run::{Counter, ForkMode, Settings};

use super::coprocess::{Coprocess, Order, fill};
use super::parents::{pair, size};
use super::stage::{Asked, MS, Stage, Subject, US, params};

const PASS: Metric = Metric { name: "pass", unit: "ms", estimate: false };
const CALL: Metric = Metric { name: "call", unit: "us", estimate: false };
const STALL: Metric = Metric { name: "stall", unit: "us", estimate: false };

/// One write to every page, right after a fork and exec and without any.
pub(super) fn pass(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, 4096);
    let [plain, run] = pair(name, stage, mib, [None, Some(Settings::default())])?;
    let which = |word: &str| {
        let mut params = params(name, mib);
        params.insert("pass".to_owned(), Param::Word(word.to_owned()));
        params
    };
    let (after, none) = (which("after a fork"), which("no fork"));
    let series = stage.measure(vec![
        Subject::order("run", &after, &PASS, &run, "after", MS),
        Subject::order("run", &none, &PASS, &run, "clean", MS),
    ])?;
    // By themselves: with 2 s a pass they would leave no time for rounds of the two that are
    // compared.
    let shorter = Schedule { time: stage.spec.schedule.time.map(|time| time / 2), ..stage.spec.schedule };
    stage.measure_with(
        &shorter,
        vec![
            Subject::order("plain", &after, &PASS, &plain, "after", MS),
            Subject::order("plain", &none, &PASS, &plain, "clean", MS),
        ],
    )?;
    let run = run.into_inner();
    let asked = run.asked("after");
    let evidence = run.finish()?.most(Counter::Committed, asked);
    let figure = stage.ratio(&series[0][0], &series[1][0]);
    let asked_for = Asked::of("after a fork / no fork", "times");
    stage.check(&params(name, mib), asked_for, figure, evidence);
    Ok(())
}

/// Children that never execute anything. At first a call site is tried, and its child undone;
/// without learning, every fork is that first one. Plain is a fork of the same process past the
/// library: two processes would differ by where their pages lie, and by more than the difference
/// asked about (decision 21).
pub(super) fn worker<const THREADS: bool>(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, 1024);
    let unlearning = Settings { learn: false, ..Settings::default() };
    let [first, again] = pair(name, stage, mib, [Some(unlearning), Some(Settings::default())])?;
    if THREADS {
        for process in [&first, &again] {
            process.borrow_mut().ask("thread", 1)?;
        }
    }
    let which = |word: &str| {
        let mut params = params(name, mib);
        params.insert("call site".to_owned(), Param::Word(word.to_owned()));
        params
    };
    let (tried, known) = (which("tried"), which("known"));
    const METRICS: &[Metric] = &[CALL, Metric::WALL];
    let subject = |method, params: &Params, process, order| Subject {
        method,
        params: params.clone(),
        metrics: METRICS,
        arm: Order::arm(process, order, 2, US),
    };
    let series = stage.measure(vec![
        subject("plain", &tried, &first, "past"),
        subject("run", &tried, &first, "worker"),
        subject("plain", &known, &again, "past"),
        subject("run", &known, &again, "worker"),
    ])?;
    let finish = |process: RefCell<Coprocess>| {
        let process = process.into_inner();
        let asked = process.asked("worker");
        process.finish().map(|report| (report, asked))
    };
    let (report, asked) = finish(first)?;
    let first = report.most(Counter::Aborted, asked);
    // Each fork is left alone but the few by which the call site is tried again: the first and the
    // sixth, in a short run.
    let (report, asked) = finish(again)?;
    let (plain, aborted) = (report.count(Counter::Plain), report.count(Counter::Aborted));
    let words = format!("{plain} left alone and {aborted} undone in {asked} operations");
    let again = if plain >= 2 * aborted && plain + aborted == asked { Ok(words) } else { Err(words) };
    let params = params(name, mib);
    let figure = stage.ratio(&series[1][1], &series[0][1]);
    stage.check(&params, Asked::of("first at a call site / plain", "times"), figure, first);
    let figure = stage.ratio(&series[3][1], &series[2][1]);
    stage.check(&params, Asked::of("afterwards / plain", "times"), figure, again);
    Ok(())
}

/// Children that close every number below 2^20 before they execute a program. In a process whose
/// forks speculate, and in one below the threshold.
pub(super) fn close_loop(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    const MIB: u64 = 64;
    const LIMIT: u64 = 1 << 20;
    let child = [stage.child()];
    let plain = stage.c(name, None, MIB, &child)?;
    // A busy machine may keep a child from its exec for longer than the time limit.
    let patient = Settings { limit_ms: 2000, ..Settings::default() };
    let run = stage.c(name, Some(patient), MIB, &child)?;
    let above = Settings { minimum: 2 * (MIB << 20), ..patient };
    let alone = stage.c(name, Some(above), MIB, &child)?;
    fill(&[&plain, &run, &alone], MIB)?;
    let params = params(name, MIB);
    let series = stage.measure(vec![
        Subject::order("plain", &params, &Metric::WALL, &plain, "closes", US),
        Subject::order("run", &params, &Metric::WALL, &run, "closes", US),
        Subject::order("left alone", &params, &Metric::WALL, &alone, "closes", US),
    ])?;
    for (process, at, how) in [(run, 1, Counter::Committed), (alone, 2, Counter::Plain)] {
        let process = process.into_inner();
        let asked = process.asked("closes");
        let report = process.finish()?;
        let evidence = report.most(how, asked).and_then(|_| report.most(Counter::Closes, asked * LIMIT));
        let figure = stage.ratio(&series[0][0], &series[at][0]);
        let asked = if at == 1 { Asked::SPEEDUP } else { Asked::of("plain / left alone", "times") };
        stage.check(&params, asked, figure, evidence);
    }
    Ok(())
}

/// The longest a thread waits for malloc while another forks.
pub(super) fn stall(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, 1024);
    let speculating = Settings { fork: ForkMode::Speculate, ..Settings::default() };
    let [plain, run] = pair(name, stage, mib, [None, Some(speculating)])?;
    let params = params(name, mib);
    let series = stage.measure(vec![
        Subject::order("plain", &params, &STALL, &plain, "stall", US),
        Subject::order("run", &params, &STALL, &run, "stall", US),
    ])?;
    let run = run.into_inner();
    let asked = run.asked("stall");
    let evidence = run.finish()?.most(Counter::Committed, asked);
    let figure = stage.ratio(&series[1][0], &series[0][0]);
    stage.check(&params, Asked::beyond_one("run / plain", Bound::AtMost), figure, evidence);
    Ok(())
}

const SIZES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Sizes below which a fork costs less than a speculation. And the smallest with the default
/// threshold, which leaves its forks alone: what `run` costs a program it does nothing for.
pub(super) fn break_even(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let child = [stage.child()];
    let mut processes = Vec::new();
    for mib in SIZES {
        let plain = stage.c(name, None, mib, &child)?;
        let run = stage.c(name, Some(Settings { minimum: 0, ..Settings::default() }), mib, &child)?;
        fill(&[&plain, &run], mib)?;
        processes.push((params(name, mib), plain, run));
    }
    let smallest = params(name, SIZES[0]);
    let alone = stage.c(name, Some(Settings { children: false, ..Settings::default() }), SIZES[0], &child)?;
    fill(&[&alone], SIZES[0])?;
    let mut subjects = Vec::new();
    for (params, plain, run) in &processes {
        subjects.push(Subject::order("plain", params, &Metric::WALL, plain, "forkexec", US));
        subjects.push(Subject::order("run", params, &Metric::WALL, run, "forkexec", US));
    }
    subjects.push(Subject::order("left alone", &smallest, &Metric::WALL, &alone, "forkexec", US));
    let mut series: Vec<Samples> = stage.measure(subjects)?.into_iter().flatten().collect();
    let left_alone = series.pop();
    let alone = alone.into_inner();
    let asked = alone.asked("forkexec");
    if let Some(left_alone) = left_alone
        && alone.finish()?.most(Counter::Plain, asked).is_ok()
    {
        stage.derive(name, "left alone / plain", &left_alone, &series[0]);
    }
    let mut evidence = Ok(String::new());
    for (_, _, run) in processes {
        let run = run.into_inner();
        let asked = run.asked("forkexec");
        let shown = run.finish()?.most(Counter::Committed, asked);
        // The worst of them all speaks.
        evidence = evidence.and(shown);
    }
    let figure = Quantity::from_replicates(
        crossing(&series.iter().map(|one| median(&one.values)).collect::<Vec<_>>()),
        &resampled(&series, stage.seed()),
    );
    let asked_for = Asked::of("break-even size", "MiB");
    stage.check(&params(name, 0), asked_for, Some(figure), evidence);
    Ok(())
}

/// The break-even size of every draw of rounds, the same rounds for all series.
fn resampled(series: &[Samples], seed: u64) -> Replicates {
    let resampler = Resampler::new(series, 2000, seed);
    let all: Vec<Replicates> = series.iter().map(|one| resampler.medians(one)).collect();
    let draws = all.iter().map(|one| one.values.len()).min().unwrap_or(0);
    let values = (0..draws)
        .map(|draw| crossing(&all.iter().map(|one| one.values[draw]).collect::<Vec<_>>()))
        .collect();
    Replicates { values, blocks: all.iter().map(|one| one.blocks).min().unwrap_or(0) }
}

/// Where run becomes cheaper than plain for good, from their medians in turn for every size:
/// interpolated on a logarithmic scale of sizes. The smallest size if it always is, twice the
/// largest if it never is.
#[expect(clippy::cast_precision_loss, reason = "sizes of a few MiB")]
fn crossing(medians: &[f64]) -> f64 {
    let ratios: Vec<f64> = medians.chunks_exact(2).map(|pair| pair[1] / pair[0]).collect();
    let Some(last) = ratios.iter().rposition(|&ratio| ratio > 1.0) else { return SIZES[0] as f64 };
    let Some(&next) = ratios.get(last + 1) else { return 2.0 * SIZES[SIZES.len() - 1] as f64 };
    let share = (ratios[last] - 1.0) / (ratios[last] - next);
    let (low, high) = ((SIZES[last] as f64).log2(), (SIZES[last + 1] as f64).log2());
    (low + share * (high - low)).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_break_even_size_is_where_the_ratio_passes_one_for_good() {
        let with = |ratios: [f64; 7]| {
            crossing(&ratios.iter().flat_map(|ratio| [100.0, 100.0 * ratio]).collect::<Vec<_>>())
        };
        let near = |value: f64, expected: f64| {
            assert!((value - expected).abs() < 1e-9, "{value} for {expected}");
        };
        near(with([2.0, 1.5, 1.1, 0.9, 0.5, 0.3, 0.1]), 32.0_f64.sqrt());
        near(with([0.9; 7]), 1.0);
        near(with([1.1; 7]), 128.0);
        // A dip before it does not count.
        near(with([0.9, 1.5, 1.5, 1.5, 0.5, 0.3, 0.1]), 128.0_f64.sqrt());
    }
}
