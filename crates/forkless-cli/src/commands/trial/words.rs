//! A trial in sentences: its verdict, what the library did, and how runs ended.

use std::collections::BTreeMap;

use forkless_bench::check::Quantity;
use forkless_bench::render::number;
use forkless_bench::results::Row;
use forkless_bench::trial::{Comparison, End, Ends, LEAST_ROUNDS, Method, OutputComparison, Trial, Work};
use forkless_run::{Counter, Report};

use super::super::run::report;

/// The verdict in one sentence.
pub(super) fn verdict(trial: &Trial) -> String {
    if let Some(why) = trial.unloadable {
        return format!("run has nothing to do here: {why}, so the library cannot be in it");
    }
    if trial.differs() {
        return difference(trial);
    }
    let (Some(ratio), Some(comparison)) = (trial.ratio, trial.comparison()) else {
        return "nothing was measured".to_owned();
    };
    let times = |unit: &str| with_unit(ratio, unit);
    let as_long = || with_unit(inverse(ratio), " times as long");
    match comparison {
        Comparison::Faster => {
            let why = match because(trial) {
                Some(why) => format!(", since {why}{}", for_each(trial)),
                None if trial.work() == Some(Work::Uncounted) => format!("; {}", idle(trial)),
                None => format!(", but run did nothing that explains it: {}", idle(trial)),
            };
            format!("faster: {}{why}", times(" times"))
        }
        Comparison::Slower => format!("slower: takes {}{}", as_long(), beside(trial)),
        Comparison::SlowerByLittle => format!("slower by a little: takes {}{}", as_long(), beside(trial)),
        Comparison::NoDifference => {
            /// Of high to low: beyond it a large difference may hide.
            const WIDE: f64 = 1.1;
            let [low, high] = ratio.ci95;
            let is_wide = high > low * WIDE;
            let hint = if is_wide { "; take more --runs, or a quieter machine" } else { "" };
            let rest = beside(trial) + &processor(trial) + hint;
            format!("no difference that can be told: {}{rest}", times(" times"))
        }
        Comparison::TooFewRounds => {
            let rounds = plural(&trial.suite.rounds.to_string(), "round", "rounds");
            let ratio = number(ratio.value);
            format!(
                "too few rounds for a verdict: {ratio} times in {rounds}; take --runs {LEAST_ROUNDS} or more"
            )
        }
    }
}

/// Whether the verdict leaves a reason to start the command under `run`.
pub(super) fn recommends(trial: &Trial) -> bool {
    if trial.unloadable.is_some() || trial.differs() {
        return false;
    }
    match trial.comparison() {
        Some(Comparison::Slower) => false,
        Some(Comparison::SlowerByLittle | Comparison::NoDifference) => {
            matches!(trial.work(), Some(Work::Done | Work::Uncounted))
        }
        Some(Comparison::Faster | Comparison::TooFewRounds) | None => true,
    }
}

/// A ratio with its interval, if there is one: a single round has none.
pub(super) fn figure(quantity: Quantity) -> String {
    with_unit(quantity, "")
}

fn with_unit(Quantity { value, ci95: [low, high] }: Quantity, unit: &str) -> String {
    // A ratio of equal programs differs in the third digit.
    let shown = |value: f64| if value < 1.995 { format!("{value:.3}") } else { number(value) };
    if low >= high {
        return shown(value) + unit;
    }
    format!("{}{unit} [{}, {}]", shown(value), shown(low), shown(high))
}

/// A ratio the other way round.
pub(super) fn inverse(Quantity { value, ci95: [low, high] }: Quantity) -> Quantity {
    Quantity { value: 1.0 / value, ci95: [1.0 / high, 1.0 / low] }
}

/// What the library did, or why it did nothing, beside a time that it did not shorten.
fn beside(trial: &Trial) -> String {
    match because(trial) {
        Some(what) => format!(", although {what}"),
        None => format!("; {}", idle(trial)),
    }
}

/// The processor time where it tells more than the time: other processes hardly change it.
fn processor(trial: &Trial) -> String {
    let is_told = |ratio: &Quantity| ratio.ci95[0] > 1.0 || ratio.ci95[1] < 1.0;
    let ratio = ratio(trial, "cpu_total").filter(is_told);
    ratio.map_or_else(String::new, |ratio| format!("; processor time plain / run is {}", figure(ratio)))
}

/// A metric of plain runs divided by that of runs under run, round by round.
pub(super) fn ratio(trial: &Trial, metric: &str) -> Option<Quantity> {
    if metric == "wall" {
        return trial.ratio;
    }
    let ratio = row(trial, Method::Run, metric)?.ratio.as_ref()?;
    let is_positive = ratio.within_rounds > 0.0 && ratio.within_rounds_ci95[0] > 0.0;
    let ratio = Quantity { value: ratio.within_rounds, ci95: ratio.within_rounds_ci95 };
    is_positive.then(|| inverse(ratio))
}

/// What the library spared in a run, in words; `None` where it spared nothing.
fn because(trial: &Trial) -> Option<String> {
    let report = trial.report.as_ref().filter(|_| trial.work() == Some(Work::Done))?;
    let count = |counter| report.count(counter);
    let rounds = trial.suite.rounds;
    let mut all = Vec::new();
    if count(Counter::Committed) > 0 {
        let [committed, forks] =
            [Counter::Committed, Counter::Forks].map(|counter| each(count(counter), rounds));
        let forks = plural(&forks, "fork", "forks");
        all.push(format!("{committed} of {forks} copied hardly any memory"));
    }
    let shells = count(Counter::Shells) + count(Counter::ExecShells);
    let rest = [
        (shells, "shells were skipped"),
        (count(Counter::Closes), "closes were answered without the kernel"),
        (count(Counter::Switches), "context switches made no system call"),
        (count(Counter::Merged), "huge pages were merged"),
    ];
    let rest = rest.into_iter().filter(|&(count, _)| count > 0);
    all.extend(rest.map(|(count, what)| format!("{} {what}", each(count, rounds))));
    Some(joined(&all))
}

/// Why the library did nothing.
fn idle(trial: &Trial) -> String {
    let (Some(report), Some(work)) = (&trial.report, trial.work()) else { return String::new() };
    let forks = each(report.count(Counter::Forks), trial.suite.rounds);
    match work {
        Work::NotLoaded => "run was not at work: no program has loaded the library".to_owned(),
        Work::NoForks => "run has nothing to do here: no fork, and no shell that could be skipped".to_owned(),
        Work::OnlySmall => format!(
            "run has nothing to do here: no fork of a process above the minimum of {} MiB ({forks} below it)",
            number(mib(trial.settings.minimum))
        ),
        Work::NoneCommitted => format!("run could spare none of {forks} forks: {}", reasons(report)),
        Work::Uncounted => {
            "run was asked for what it does not count: huge pages, TZ, or getcontext".to_owned()
        }
        Work::Done => String::new(),
    }
}

/// The time saved, divided by the forks, where they alone explain it.
fn for_each(trial: &Trial) -> String {
    let Some(report) = &trial.report else { return String::new() };
    let others = [Counter::Shells, Counter::ExecShells, Counter::Closes, Counter::Switches, Counter::Merged];
    let committed = average(report.count(Counter::Committed), trial.suite.rounds);
    let [plain, run] = [Method::Plain, Method::Run].map(|method| row(trial, method, "wall"));
    let (Some(plain), Some(run)) = (plain, run) else { return String::new() };
    let saved = plain.summary.median - run.summary.median;
    if committed < 1.0 || saved <= 0.0 || others.iter().any(|&other| report.count(other) > 0) {
        return String::new();
    }
    format!(": {} less for each", scaled(saved / committed, "ms"))
}

/// What was seen of a run that behaves differently.
fn difference(trial: &Trial) -> String {
    let plain = ends(&trial.plain);
    let mut all = Vec::new();
    let new_ends = trial.new_ends();
    if !new_ends.is_empty() {
        let runs: usize = trial.run.iter().map(|&(_, count)| count).sum();
        let plain = if plain.is_empty() { String::new() } else { format!("; plain runs with {plain}") };
        all.push(format!("under run it ended with {} (of {runs} runs){plain}", ends(&new_ends)));
    }
    if let OutputComparison::Differs(difference) = &trial.output {
        let shown = |line: &Option<String>| match line {
            Some(text) => format!("{text:?}"),
            None => "the end".to_owned(),
        };
        all.push(format!(
            "line {} of its standard output is {} under run, and {} plainly",
            difference.line,
            shown(&difference.found),
            shown(&difference.expected)
        ));
    }
    format!("behaves differently: {}", all.join("; "))
}

/// Ends with their counts: `exit status 0 in 20, signal 11 in 1`. Nothing where none was seen.
pub(super) fn ends(ends: &Ends) -> String {
    let each = |&(end, count): &(End, usize)| format!("{end} in {count}");
    ends.iter().map(each).collect::<Vec<_>>().join(", ")
}

/// What the library counted, as an average of the counted runs.
pub(super) fn counted(trial: &Trial) -> Option<String> {
    let report = trial.report.as_ref()?;
    let rounds = trial.suite.rounds;
    let mut all = Vec::new();
    let mut add = |counter: Counter, one: &str, many: &str| {
        if report.count(counter) > 0 {
            all.push(plural(&each(report.count(counter), rounds), one, many));
        }
    };
    add(Counter::Processes, "program with the library", "programs with the library");
    add(Counter::Forks, "fork", "forks");
    add(Counter::Committed, "committed", "committed");
    add(Counter::Aborted, "undone and made again", "undone and made again");
    add(Counter::Plain, "left alone", "left alone");
    add(Counter::Shells, "shell of system() or popen() skipped", "shells of system() and popen() skipped");
    add(Counter::ExecShells, "executed shell skipped", "executed shells skipped");
    add(Counter::Closes, "close answered", "closes answered");
    add(Counter::Switches, "context switch without a call", "context switches without a call");
    add(Counter::Merged, "huge page merged", "huge pages merged");
    let declined = "of programs that declined huge pages";
    add(Counter::Declined, &format!("fork {declined}"), &format!("forks {declined}"));
    let spared = average(report.count(Counter::BytesSpared), rounds) / f64::from(1 << 20);
    if spared > 0.0 {
        all.push(format!("{} not copied", scaled(spared, "MiB")));
    }
    Some(all.join(", ")).filter(|text| !text.is_empty())
}

/// Why forks stayed plain, the commonest reasons first; in an average run.
pub(super) fn plain_forks(trial: &Trial) -> Option<String> {
    let report = trial.report.as_ref()?;
    let reasons = by_reason(report);
    let each = |(reason, count): &(String, u64)| format!("{reason} ({})", each(*count, trial.suite.rounds));
    Some(reasons.iter().map(each).collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

fn reasons(report: &Report) -> String {
    let names: Vec<String> = by_reason(report).into_iter().map(|(reason, _)| reason).collect();
    joined(&names)
}

fn by_reason(report: &Report) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for &(reason, count) in report.sites.iter().flat_map(|site| &site.reasons) {
        *counts.entry(report::words(reason)).or_default() += u64::from(count);
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts
}

/// The sentence about a trial that the user has ended.
pub(super) fn interrupted(trial: &Trial) -> String {
    let after = format!("interrupted after {}", plural(&trial.suite.rounds.to_string(), "round", "rounds"));
    let into = trial.interrupted.map(|interruption| {
        let what = match interruption.method {
            Some(Method::Plain) => "a plain run",
            Some(Method::Run) => "a run under run",
            None => "the preparation",
        };
        format!(", {:.1} s into {what}", interruption.lasted.as_secs_f64())
    });
    after + &into.unwrap_or_default()
}

/// A row of the suite.
pub(super) fn row<'t>(trial: &'t Trial, method: Method, metric: &str) -> Option<&'t Row> {
    trial.suite.rows.iter().find(|row| row.method == method.name() && row.metric == metric)
}

#[expect(clippy::cast_precision_loss, reason = "counts and sizes are shown in three digits")]
fn average(total: u64, rounds: usize) -> f64 {
    total as f64 / rounds.max(1) as f64
}

/// A count of all rounds, for each: a whole number where every run had as many.
fn each(total: u64, rounds: usize) -> String {
    let rounds = rounds.max(1) as u64;
    if total.is_multiple_of(rounds) {
        (total / rounds).to_string()
    } else {
        format!("{:.1}", average(total, rounds as usize))
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes are shown in three digits")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

pub(super) fn plural(count: &str, one: &str, many: &str) -> String {
    format!("{count} {}", if count == "1" { one } else { many })
}

/// A figure with the unit that suits its size.
pub(super) fn scaled(value: f64, unit: &str) -> String {
    match unit {
        "ms" if value >= 1000.0 => format!("{} s", number(value / 1000.0)),
        "MiB" if value >= 1024.0 => format!("{} GiB", number(value / 1024.0)),
        _ => format!("{} {unit}", number(value)),
    }
}

/// `a, b and c`.
fn joined(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [firsts @ .., last] => format!("{} and {last}", firsts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use forkless_bench::results::{Metric, Params, Series, Suite, rows};
    use forkless_bench::stats::bootstrap::Samples;
    use forkless_bench::trial::Difference;
    use forkless_run::{AbortKind, RecordFile, Settings};

    use super::*;

    /// Ten rounds of 200 ms plainly, with these times under run, and what was counted in all.
    fn trial(run_ms: f64, counts: &[(Counter, u64)], reasons: &[(AbortKind, u32)]) -> Trial {
        const WALL: Metric = Metric { name: "wall", unit: "ms", estimate: false };
        let series = |method: Method, value| Series {
            method: method.name().to_owned(),
            params: Params::new(),
            metric: WALL,
            limit: None,
            samples: Samples::one_a_round(vec![value; 10]),
        };
        let both = vec![series(Method::Plain, 200.0), series(Method::Run, run_ms)];
        let file = RecordFile::create().unwrap();
        for &(counter, count) in counts {
            file.record().add(counter, count);
        }
        let site = file.record().site(1, |_| 0).unwrap();
        for &(kind, count) in reasons {
            site.forks.fetch_add(u64::from(count), Relaxed);
            (0..count).for_each(|_| site.because(kind.into()));
        }
        let ratio = 200.0 / run_ms;
        Trial {
            settings: Settings::default(),
            suite: Suite { rounds: 10, rows: rows(both, Some("plain"), 1), ..Suite::default() },
            ratio: Some(Quantity { value: ratio, ci95: [ratio * 0.99, ratio * 1.01] }),
            report: Some(file.report()),
            ..Trial::default()
        }
    }

    use Counter::{Committed, Forks, Processes, Shells};

    #[test]
    fn a_time_that_forks_alone_explain_is_divided_among_them() {
        let counts = [(Processes, 10), (Forks, 410), (Committed, 400)];
        let some = trial(100.0, &counts, &[(AbortKind::Small, 10)]);
        assert_eq!(
            verdict(&some),
            "faster: 2.00 times [1.980, 2.02], since 40 of 41 forks copied hardly any memory: 2.50 ms less for each"
        );
        assert_eq!(counted(&some).unwrap(), "1 program with the library, 41 forks, 40 committed");
        assert_eq!(plain_forks(&some).unwrap(), "too little memory to gain (1)");
        let mixed = trial(100.0, &[&counts[..], &[(Shells, 25)]].concat(), &[]);
        let expected = "since 40 of 41 forks copied hardly any memory and 2.5 shells were skipped";
        assert!(verdict(&mixed).ends_with(expected), "{}", verdict(&mixed));
    }

    #[test]
    fn a_time_that_nothing_explains_is_not_claimed() {
        let idle = trial(100.0, &[(Processes, 10)], &[]);
        assert!(verdict(&idle).contains("but run did nothing that explains it"), "{}", verdict(&idle));
        let huge = forkless_run::HugePages::Transparent;
        let settings = Settings { huge_pages: huge, ..Settings::default() };
        let uncounted = Trial { settings, ..idle };
        assert!(
            verdict(&uncounted)
                .ends_with("; run was asked for what it does not count: huge pages, TZ, or getcontext")
        );
    }

    #[test]
    fn no_gain_has_its_reason() {
        let said = |run_ms, counts: &[_], reasons: &[_]| verdict(&trial(run_ms, counts, reasons));
        let small = said(200.0, &[(Processes, 10), (Forks, 30)], &[(AbortKind::Small, 30)]);
        assert!(small.starts_with("no difference that can be told: 1.000 times [0.990, 1.010]; "), "{small}");
        assert!(
            small.ends_with("no fork of a process above the minimum of 8.00 MiB (3 below it)"),
            "{small}"
        );
        let wide = Quantity { value: 1.0, ci95: [0.9, 1.2] };
        let wide = Trial { ratio: Some(wide), ..trial(200.0, &[(Processes, 10)], &[]) };
        assert!(verdict(&wide).ends_with("; take more --runs, or a quieter machine"), "{}", verdict(&wide));
        let slow = said(400.0, &[(Processes, 10)], &[]);
        assert!(
            slow.starts_with("slower: takes 2.00 times as long [1.980, 2.02]; run has nothing to do here")
        );
        let little = said(202.5, &[(Processes, 10)], &[]);
        assert!(little.starts_with("slower by a little: takes 1.012 times as long"), "{little}");
        let undone =
            said(200.0, &[(Processes, 10), (Forks, 30)], &[(AbortKind::Died, 20), (AbortKind::Off, 10)]);
        let expected = "run could spare none of 3 forks: child ended without exec and switched off";
        assert!(undone.ends_with(expected), "{undone}");
        assert!(said(200.0, &[], &[]).ends_with("run was not at work: no program has loaded the library"));
    }

    #[test]
    fn another_behaviour_outranks_the_times() {
        let (fine, killed) = (End::Exit(0), End::Signal(11));
        let ends =
            Trial { plain: vec![(fine, 11)], run: vec![(fine, 9), (killed, 2)], ..trial(100.0, &[], &[]) };
        assert_eq!(
            verdict(&ends),
            "behaves differently: under run it ended with signal 11 in 2 (of 11 runs); plain runs with exit status 0 in 11"
        );
        let difference = Difference { line: 3, expected: None, found: Some("x\u{1b}".to_owned()) };
        let output = Trial { output: OutputComparison::Differs(difference), ..trial(100.0, &[], &[]) };
        let expected = "line 3 of its standard output is \"x\\u{1b}\" under run, and the end plainly";
        assert!(verdict(&output).ends_with(expected), "{}", verdict(&output));
    }
}
