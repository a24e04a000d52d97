//! Comparisons of figures that have no common measure, because they are of other machines or of an
//! emulator. Every figure is divided by its own side's yardstick, which is a figure of the same
//! suite; the published tables are made into results here for that purpose.

use super::{Change, Comparison};
use crate::published::{calls, cow, masks, spawn};
use crate::results::{Param, Params, Results, Row, Suite};
use crate::stats::Summary;

/// Both rows relative to the yardsticks of their own tables. `None` if a yardstick is zero.
pub(super) fn change(
    [first, second]: [&Row; 2],
    yardsticks: (&Row, &Row),
    kind: Comparison,
) -> Option<Change> {
    let by = |row: &Row, yardstick: &Row| {
        let yardstick = yardstick.summary.median;
        (yardstick > 0.0).then(|| row.summary.median / yardstick)
    };
    let (a, b) = (by(first, yardsticks.0)?, by(second, yardsticks.1)?);
    let mut change = super::change(first, second);
    change.unit = "x yardstick".to_owned();
    change.comparison = kind;
    (change.a, change.b, change.ratio) = (a, b, b / a);
    // Zero against zero, as faults where there are none, is no ratio.
    change.ratio.is_finite().then_some(Change { ci95: [change.ratio; 2], ..change })
}

/// The articles' own tables, their Linux columns where there are several, as a result to compare
/// with.
#[must_use]
pub(crate) fn published() -> Results {
    tables(1)
}

/// The same of the system of this name, as `published:solaris`: `macosx`, `linux`, `solaris`.
#[must_use]
pub(crate) fn published_on(system: &str) -> Option<Results> {
    let name = |system: &str| system.to_lowercase().replace(' ', "");
    calls::SYSTEMS.iter().position(|known| name(known) == name(system)).map(tables)
}

fn tables(system: usize) -> Results {
    let mut results = Results::begin();
    results.created = 0;
    results.machine.os = "published".to_owned();
    let name = calls::SYSTEMS[system];
    results.machine.kernel = format!("{name} {}", calls::VERSIONS[system]);
    if name == "Linux" {
        results.machine.kernel.push_str(" (syscalls), 4.15 (spawn), not said (cow)");
    }
    results.machine.fingerprint = "published".to_owned();
    results.machine.emulator = None;
    let runs = f64::from(spawn::RUNS);
    let syscalls = calls::SECONDS.iter().filter_map(|(call, ..)| {
        calls::one(call).map(|seconds| row(call, &[], "real", "ns", seconds[system] * 1e9))
    });
    results.suites = vec![suite(
        "syscalls",
        syscalls.collect(),
        &format!("the {name} column of the articles on system calls: 65,536 runs (fstat 67,108,864)"),
    )];
    // The other articles are of Linux alone.
    if name == "Linux" {
        let spawn = spawn::BY_METHOD
            .iter()
            .map(|(method, [_, _, total])| row(method, &[], "cpu_total", "us", total / runs * 1e6));
        results.suites.push(suite(
            "spawn",
            spawn.collect(),
            "popen-noshell's table: parent of 200 MB, 60,000 runs",
        ));
        let base = [("child", "dead"), ("pages", "base")];
        let huge = [("child", "dead"), ("pages", "thp-2m")];
        results.suites.push(suite(
            "cow",
            vec![
                row("fork", &base, "before", "ms", cow::PASS_MS),
                row("fork", &base, "first", "ms", cow::FIRST_MS),
                row("fork", &base, "after", "ms", cow::PASS_MS),
                row("fork", &huge, "before", "ms", cow::PASS_MS),
                row("fork", &huge, "first", "ms", cow::PASS_MS),
            ],
            "the article on the first pass after a fork: 100,000 pages",
        ));
        let [plain, traced] = masks::CALL_NS;
        results.suites[0].rows.extend([
            row("sigprocmask", &[("via", "program")], "real", "ns", plain),
            row("sigprocmask", &[("via", "traced")], "real", "ns", traced),
        ]);
    }
    results
}

fn suite(name: &str, rows: Vec<Row>, note: &str) -> Suite {
    Suite { name: name.to_owned(), rows, notes: vec![note.to_owned()], ..Suite::default() }
}

fn row(method: &str, params: &[(&str, &str)], metric: &str, unit: &str, value: f64) -> Row {
    let params: Params =
        params.iter().map(|&(name, word)| (name.to_owned(), Param::Word(word.to_owned()))).collect();
    Row {
        method: method.to_owned(),
        params,
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        summary: Summary::of(&[value]),
        ci95: [value; 2],
        per_round: vec![1],
        samples: vec![value],
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{By, Side, compare};
    use crate::suites::SUITES;

    #[test]
    fn every_published_system_has_a_table() {
        for name in ["macosx", "Mac OS X", "linux", "solaris"] {
            assert!(published_on(name).is_some(), "{name}");
        }
        assert!(published_on("plan9").is_none());
        let mac = published_on("macosx").unwrap();
        assert_eq!(mac.suites.len(), 1, "only one article measured it");
        let change = compare(
            &Side { results: &published(), method: None },
            &Side { results: &mac, method: None },
            By::Ratios,
            1,
            SUITES,
        );
        let vfork = change.iter().find(|change| change.method == "vfork").unwrap();
        assert!((vfork.a - 6.03 / 25.56).abs() < 1e-9 && (vfork.b - 0.52 / 161.87).abs() < 1e-9);
        // A sibling article's, made 1024 times as often.
        let fstat = change.iter().find(|change| change.method == "fstat").unwrap();
        assert!((fstat.a - 8.36 / 1024.0 / 25.56).abs() < 1e-9, "{fstat:?}");
    }

    #[test]
    fn a_pass_is_measured_against_the_undisturbed_one() {
        let published = published();
        let side = Side { results: &published, method: None };
        let mut other = published.clone();
        for row in &mut other.suites[2].rows {
            // Measured rows say more than published ones.
            row.params.insert("stride".into(), Param::Number(1));
            row.summary.median *= 3.0;
        }
        let changes = compare(&side, &Side { results: &other, method: None }, By::Ratios, 1, SUITES);
        let first = changes.iter().find(|change| change.suite == "cow" && change.metric == "first").unwrap();
        assert!((first.a - 65.0 / 7.0).abs() < 1e-9 && (first.ratio - 1.0).abs() < 1e-9, "{first:?}");
    }
}
