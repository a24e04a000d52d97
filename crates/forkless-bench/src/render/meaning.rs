//! A result in one line: what it means, not how it was taken.

use super::grid::{number, size};
use crate::check::CheckVerdict;
use crate::registry::Registry;
use crate::results::{Results, Row, Suite};

/// Methods that a reader asks for first; a result without them is told by its first ones.
const FIRST: [&str; 5] = ["fork_exec", "posix_spawn", "forkless", "fork_exec_under_run", "system"];

/// How many methods fit a line.
const METHODS: usize = 3;

/// The suites of a result, the first with its meaning: how methods compare with the yardstick, or
/// how many figures have which verdict.
#[must_use]
pub fn meaning(results: &Results, registry: Registry) -> String {
    let Some((suite, others)) = results.suites.split_first() else { return "nothing".to_owned() };
    let more = match others.iter().map(|suite| suite.name.as_str()).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        names => format!("; {names}"),
    };
    let said = verdicts(suite).or_else(|| ratios(suite, registry)).or_else(|| figure(suite));
    format!("{}: {}{more}", suite.name, said.unwrap_or_else(|| "no figures".to_owned()))
}

fn verdicts(suite: &Suite) -> Option<String> {
    let mut counts: Vec<(CheckVerdict, usize)> = Vec::new();
    for check in &suite.checks {
        match counts.iter_mut().find(|(verdict, _)| *verdict == check.verdict) {
            Some((_, count)) => *count += 1,
            None => counts.push((check.verdict, 1)),
        }
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(verdict, count)| format!("{count} {}", verdict.words())).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

fn memory(row: &Row) -> u64 {
    row.number("used").or_else(|| row.number("rss")).unwrap_or(0)
}

/// The ratios to the yardstick of the rows with the most memory.
fn ratios(suite: &Suite, registry: Registry) -> Option<String> {
    let yardstick = registry.of(&suite.name).yardstick;
    let metric = suite.rows.iter().find(|row| row.metric == "wall").or(suite.rows.first())?.metric.as_str();
    let of_metric = || suite.rows.iter().filter(|row| row.metric == metric);
    let largest = of_metric().max_by_key(|row| memory(row))?;
    let mut all = of_metric().filter(|row| row.params == largest.params).filter_map(|row| {
        let to =
            yardstick(&suite.rows, row).filter(|to| !std::ptr::eq(*to, row) && to.summary.median > 0.0)?;
        Some((row, to))
    });
    let known = FIRST.iter().filter_map(|name| all.clone().find(|(row, _)| row.method == *name));
    let mut told: Vec<(&Row, &Row)> = known.take(METHODS).collect();
    if told.is_empty() {
        told.extend(all.by_ref().take(METHODS));
    }
    let (_, to) = told.first()?;
    let said: Vec<String> = told
        .iter()
        .map(|(row, to)| format!("{} {}", row.method, number(row.summary.median / to.summary.median)))
        .collect();
    let at = if memory(largest) > 0 { format!("{}: ", size(memory(largest))) } else { String::new() };
    Some(format!("{at}{} x {}", said.join(", "), to.method))
}

fn figure(suite: &Suite) -> Option<String> {
    let row = suite.rows.first()?;
    Some(format!("{} {} {} {}", row.method, row.metric, number(row.summary.median), row.unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Param, rows, tests::series};
    use crate::suites::SUITES;

    fn of(name: &str, methods: &[(&str, f64, u64)]) -> Results {
        let all = methods.iter().map(|&(method, scale, bytes)| {
            let mut one = series(method, scale);
            one.params.insert("rss".to_owned(), Param::Number(bytes));
            one
        });
        let rows = rows(all.collect(), Some("vfork_exec"), 1);
        Results { suites: vec![Suite { name: name.into(), rows, ..Suite::default() }], ..Results::begin() }
    }

    #[test]
    fn a_result_is_told_by_its_ratios_at_the_largest_size() {
        let sizes = [1 << 20, 1 << 30];
        let methods: Vec<_> = sizes
            .into_iter()
            .flat_map(|bytes| {
                [
                    ("vfork_exec", 1.0, bytes),
                    ("popen", 7.0, bytes),
                    ("fork_exec", 3.0, bytes),
                    ("forkless", 1.01, bytes),
                ]
            })
            .collect();
        let said = meaning(&of("spawn", &methods), SUITES);
        assert_eq!(said, "spawn: 1 GiB: fork_exec 3.00, forkless 1.01 x vfork_exec");
        let said = meaning(&of("spawn", &[("vfork_exec", 1.0, 0), ("popen", 7.0, 0)]), SUITES);
        assert_eq!(said, "spawn: popen 7.00 x vfork_exec");
    }

    #[test]
    fn without_a_yardstick_the_first_figure_is_told_and_further_suites_are_named() {
        let mut results = of("spawn", &[("forkless", 1.0, 0)]);
        results.suites.push(Suite { name: "cow".into(), ..Suite::default() });
        assert_eq!(meaning(&results, SUITES), "spawn: forkless wall 13.0 us; cow");
        assert_eq!(meaning(&Results::begin(), SUITES), "nothing");
    }
}
