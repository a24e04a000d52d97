//! Results as lines and columns of text, and how figures are written in them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::{Deserialize, Serialize};

use crate::check::{Bound, Check};
use crate::compare::Change;
use crate::registry::Columns;
use crate::results::{Fit, Param, Row, Suite};

/// A suite as lines and columns of text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Column heads.
    pub heads: Vec<String>,
    /// Lines, each as long as the heads.
    pub lines: Vec<Vec<String>>,
    /// How many columns at the left hold text; the others hold figures.
    pub text_columns: usize,
}

/// How an interval is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `63.4 ±1.2%`: half the interval's width in percent of the median. For narrow places.
    Short,
    /// `63.4 [62.9, 64.5]`.
    Bounds,
}

impl Style {
    pub(super) fn cell(self, value: f64, [low, high]: [f64; 2], format: impl Fn(f64) -> String) -> String {
        match self {
            _ if low >= high || value == 0.0 => format(value),
            Style::Short => format!("{} ±{:.1}%", format(value), 50.0 * (high - low) / value),
            Style::Bounds => format!("{} [{}, {}]", format(value), format(low), format(high)),
        }
    }

    fn ratio(self, row: &Row) -> String {
        row.ratio.as_ref().map_or_else(String::new, |ratio| self.cell(ratio.value, ratio.ci95, three))
    }
}

impl Grid {
    /// Lays out a suite: the method, the parameters that differ between rows, then each metric's
    /// median with its 95 % interval. The ratio to the baseline follows if there is one.
    #[must_use]
    pub(crate) fn of(suite: &Suite, columns: Columns, style: Style) -> Grid {
        let all = match columns {
            Columns::Rows { subject } => return Grid::of_rows(suite, subject, style),
            Columns::Metrics { all } => style == Style::Bounds || all,
        };
        let varying = varying_params(suite);
        let mut metrics: Vec<(&str, &str)> = Vec::new();
        let mut keys: Vec<(&str, &crate::results::Params)> = Vec::new();
        for row in &suite.rows {
            // A terminal has no room for estimates beside figures, but where the published table
            // has them.
            let shown = all || !row.estimate;
            if shown && !metrics.iter().any(|&(name, _)| name == row.metric) {
                metrics.push((&row.metric, &row.unit));
            }
            if !keys.contains(&(row.method.as_str(), &row.params)) {
                keys.push((&row.method, &row.params));
            }
        }
        let has_ratio = |metric: &str| {
            let room = all || metric == "wall";
            room && rows_of(suite, metric).any(|row| row.ratio.is_some() && !row.estimate)
        };
        let base =
            suite.rows.iter().find_map(|row| Some(row.ratio.as_ref()?.to.as_str())).unwrap_or_default();

        let mut heads = vec!["method".to_owned()];
        heads.extend(varying.iter().map(|name| (*name).to_owned()));
        for &(metric, unit) in &metrics {
            let estimate = if rows_of(suite, metric).any(|row| row.estimate) { " (estimate)" } else { "" };
            // iostat's names are their own units, and faults are faults.
            let own = metric.ends_with("/s") || metric.ends_with(unit);
            let unit = if own { String::new() } else { format!(" {unit}") };
            heads.push(format!("{metric}{unit}{estimate}"));
            if has_ratio(metric) {
                heads.push(format!("x {base}"));
            }
        }
        let lines = keys
            .iter()
            .map(|&(method, params)| {
                let mut line = vec![method.to_owned()];
                line.extend(
                    varying.iter().map(|&name| params.get(name).map_or_else(String::new, |v| param(name, v))),
                );
                for &(metric, _) in &metrics {
                    let row =
                        rows_of(suite, metric).find(|row| row.method == method && row.params == *params);
                    line.push(
                        row.map_or_else(String::new, |row| style.cell(row.summary.median, row.ci95, number)),
                    );
                    if has_ratio(metric) {
                        line.push(row.map_or_else(String::new, |row| style.ratio(row)));
                    }
                }
                line
            })
            .collect();
        Grid { heads, lines, text_columns: 1 + varying.len() }
    }

    /// Lays out rows that have hardly a metric in common, one a line.
    fn of_rows(suite: &Suite, subject: &str, style: Style) -> Grid {
        let line = |row: &Row| {
            let others = row.params.iter().filter(|(name, _)| *name != subject);
            let others: Vec<String> =
                others.map(|(name, value)| format!("{name} {}", param(name, value))).collect();
            vec![
                row.params.get(subject).map(ToString::to_string).unwrap_or_default(),
                others.join(", "),
                row.method.clone(),
                format!("{} {}", row.metric, row.unit),
                style.cell(row.summary.median, row.ci95, number),
                style.ratio(row),
            ]
        };
        let heads = [subject, "parameters", "method", "metric", "median", "x plain"];
        Grid {
            heads: heads.map(str::to_owned).to_vec(),
            lines: suite.rows.iter().map(line).collect(),
            text_columns: 4,
        }
    }

    /// Lays out a suite's checks.
    #[must_use]
    pub fn of_checks(suite: &Suite) -> Grid {
        let line = |check: &Check| {
            let limit =
                check.bound.zip(check.limit).filter(|_| !check.figure.is_empty()).map(|(bound, limit)| {
                    let bound = match bound {
                        Bound::AtLeast => "at least",
                        Bound::AtMost => "at most",
                    };
                    format!("{bound} {limit} {}", check.unit)
                });
            let measured = check.value.zip(check.ci95);
            vec![
                check.name.clone(),
                check.figure.clone(),
                limit.unwrap_or_default(),
                measured.map_or_else(String::new, |(value, ci95)| {
                    format!("{} {}", Style::Bounds.cell(value, ci95, number), check.unit)
                }),
                check.verdict.words().to_owned(),
                check.evidence.clone(),
            ]
        };
        let heads = ["victim", "figure", "limit", "measured", "verdict", "evidence"];
        Grid {
            heads: heads.map(str::to_owned).to_vec(),
            lines: suite.checks.iter().map(line).collect(),
            text_columns: 6,
        }
    }

    /// Lays out comparisons of one result, A, with several others, B, C and so on: a line for each
    /// row of A that any of them has. A suite that all lines share is named in the head alone.
    /// Where the table is wider than `width`, each of the others has a table of its own.
    pub(super) fn of_changes(others: &[Vec<Change>], width: Option<u16>) -> Vec<Grid> {
        let lettered: Vec<(char, &[Change])> = ('B'..='Z').zip(others.iter().map(Vec::as_slice)).collect();
        let whole = Self::of_lettered(&lettered);
        if width.is_none_or(|width| whole.least_total() <= usize::from(width)) {
            return vec![whole];
        }
        lettered.into_iter().map(|one| Self::of_lettered(&[one])).collect()
    }

    fn of_lettered(others: &[(char, &[Change])]) -> Grid {
        let all = || others.iter().flat_map(|(_, changes)| *changes);
        let mut suites: Vec<&str> = all().map(|change| change.suite.as_str()).collect();
        suites.dedup();
        let has_one_suite = suites.len() == 1;
        let method = if has_one_suite { format!("{}: method", suites[0]) } else { "method".to_owned() };
        let mut heads = ["suite", &method, "params", "metric", "A"].map(str::to_owned).to_vec();
        for (letter, changes) in others {
            let confidence = changes.first().map_or(95.0, |change| change.comparison.confidence());
            heads.extend([
                letter.to_string(),
                format!("{letter} / A"),
                format!("{confidence:.0} % interval"),
                "verdict".into(),
            ]);
        }
        let same = |a: &Change, b: &Change| {
            (&a.suite, &a.method, &a.params, &a.metric, &a.unit)
                == (&b.suite, &b.method, &b.params, &b.metric, &b.unit)
        };
        let mut keys: Vec<&Change> = Vec::new();
        for change in all() {
            if !keys.iter().any(|known| same(known, change)) {
                keys.push(change);
            }
        }
        // Parameters that all rows of a suite share say nothing in a line.
        let varies = |of: &Change, name: &String| {
            keys.iter().any(|other| other.suite == of.suite && other.params.get(name) != of.params.get(name))
        };
        let line = |key: &&Change| {
            let shown = key.params.iter().filter(|(name, _)| varies(key, name));
            let params: Vec<String> =
                shown.map(|(name, value)| format!("{name} {}", param(name, value))).collect();
            let mut line = vec![
                if has_one_suite { String::new() } else { key.suite.clone() },
                key.method.clone(),
                params.join(", "),
                format!("{} {}", key.metric, key.unit),
                number(key.a),
            ];
            for (_, changes) in others {
                let Some(change) = changes.iter().find(|change| same(change, key)) else {
                    line.extend([const { String::new() }; 4]);
                    continue;
                };
                let [low, high] = change.ci95;
                line.extend([
                    number(change.b),
                    if change.ratio.is_finite() { three(change.ratio) } else { String::new() },
                    if low < high { format!("[{}, {}]", three(low), three(high)) } else { String::new() },
                    change.verdict.words().to_owned(),
                ]);
            }
            line
        };
        let mut grid = Grid { heads, lines: keys.iter().map(line).collect(), text_columns: 4 };
        grid.drop_empty_columns();
        grid
    }

    /// Leaves out columns in which nothing is said, as intervals and verdicts of published figures,
    /// or parameters where all are the same.
    fn drop_empty_columns(&mut self) {
        for column in (0..self.heads.len()).rev() {
            if self.lines.iter().all(|line| line[column].is_empty()) {
                self.heads.remove(column);
                self.text_columns -= usize::from(column < self.text_columns);
                for line in &mut self.lines {
                    line.remove(column);
                }
            }
        }
    }

    /// Leaves out the last columns of figures as long as the rest would not fit without being
    /// broken within words and figures, and returns their heads.
    pub(super) fn narrow(&mut self, width: u16) -> Vec<String> {
        let mut left_out = Vec::new();
        while self.least_total() > usize::from(width) && self.heads.len() > self.text_columns + 1 {
            left_out.extend(self.heads.pop());
            for line in &mut self.lines {
                line.truncate(self.heads.len());
            }
        }
        left_out.reverse();
        left_out
    }

    /// The width of the table if nothing is broken within words and figures: a border on either
    /// side, a blank on either side of each column, and one more between two.
    fn least_total(&self) -> usize {
        let columns = self.heads.len();
        (0..columns).map(|column| self.least_width(column)).sum::<usize>() + 3 * columns + 1
    }

    /// The longest word of a column, or the longest figure with its interval. Verdicts are words.
    fn least_width(&self, column: usize) -> usize {
        let word = |text: &str| text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
        let cells = self.lines.iter().filter_map(|line| line.get(column)).map(|cell| {
            let whole = cell.chars().count();
            // A size with its unit stays together; a sentence need not.
            let is_text = column < self.text_columns || !cell.contains(|c: char| c.is_ascii_digit());
            if is_text && whole > 16 { word(cell) } else { whole }
        });
        cells.chain([word(&self.heads[column])]).max().unwrap_or(0)
    }

    /// As a table for a terminal of the given width.
    #[must_use]
    pub fn to_terminal(&self, width: u16) -> String {
        table(self, width).to_string()
    }

    /// As a table of GitHub-flavoured Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        let mut line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| markdown_cell(cell)).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        };
        line(&self.heads);
        let rule =
            (0..self.heads.len()).map(|i| if i < self.text_columns { ":--" } else { "--:" }.to_owned());
        line(&rule.collect::<Vec<_>>());
        for cells in &self.lines {
            line(cells);
        }
        text
    }

    /// Lays out a suite's fitted lines.
    #[must_use]
    pub(crate) fn of_fits(suite: &Suite) -> Grid {
        let heads = ["method", "pages", "metric", "us with no memory", "ms for each GiB", "R2"];
        let line = |fit: &Fit| {
            vec![
                fit.method.clone(),
                fit.pages.clone(),
                fit.metric.clone(),
                Style::Bounds.cell(fit.constant_us, fit.constant_us_ci95, number),
                // Half an interval in percent says nothing of a figure that is about zero.
                Style::Bounds.cell(fit.per_gib_ms, fit.per_gib_ms_ci95, three),
                format!("{:.4}", fit.r2),
            ]
        };
        Grid {
            heads: heads.map(str::to_owned).to_vec(),
            lines: suite.fits.iter().map(line).collect(),
            text_columns: 3,
        }
    }
}

/// Names of results that others made may be anything: none may end the line, be markup or control a
/// terminal.
fn markdown_cell(cell: &str) -> String {
    let mut text = String::with_capacity(cell.len());
    for c in cell.chars() {
        match c {
            '|' => text.push_str("\\|"),
            '<' => text.push_str("&lt;"),
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    text
}

fn rows_of<'a>(suite: &'a Suite, metric: &'a str) -> impl Iterator<Item = &'a Row> {
    suite.rows.iter().filter(move |row| row.metric == metric)
}

pub(super) fn varying_params(suite: &Suite) -> Vec<&str> {
    let names: BTreeSet<&str> =
        suite.rows.iter().flat_map(|row| row.params.keys().map(String::as_str)).collect();
    let first = suite.rows.first();
    let varies = |name: &&str| {
        suite.rows.iter().any(|row| row.params.get(*name) != first.and_then(|row| row.params.get(*name)))
    };
    names.into_iter().filter(varies).collect()
}

/// A parameter as a reader wants it: bytes with their unit.
#[must_use]
pub(crate) fn param(name: &str, value: &Param) -> String {
    match value {
        Param::Number(bytes) if matches!(name, "rss" | "allocated" | "used" | "bs" | "size") => size(*bytes),
        other => other.to_string(),
    }
}

pub(crate) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// From here on a figure would be wider than its column.
const TOO_LONG: f64 = 1e12;

/// A figure with three digits behind the point.
fn three(value: f64) -> String {
    if value.abs() < TOO_LONG { format!("{value:.3}") } else { format!("{value:.1e}") }
}

/// Three or four significant digits: what the intervals leave standing.
#[must_use]
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        "0".to_owned()
    } else if !(0.001..TOO_LONG).contains(&magnitude) {
        format!("{value:.1e}")
    } else if magnitude < 1.0 {
        format!("{value:.3}")
    } else if magnitude < 10.0 {
        format!("{value:.2}")
    } else if magnitude < 1000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

pub(super) fn table(grid: &Grid, width: u16) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(cells(&grid.heads, grid.text_columns));
    // Else every column would give up as much of its width, figures in the middle.
    let least = (0..grid.heads.len()).map(|column| {
        let width = u16::try_from(grid.least_width(column)).unwrap_or(u16::MAX).saturating_add(2);
        ColumnConstraint::LowerBoundary(Width::Fixed(width))
    });
    table.set_constraints(least);
    for line in &grid.lines {
        table.add_row(cells(line, grid.text_columns));
    }
    table
}

fn cells(line: &[String], text_columns: usize) -> Vec<Cell> {
    let align = |index| if index < text_columns { CellAlignment::Left } else { CellAlignment::Right };
    line.iter().enumerate().map(|(index, text)| Cell::new(text).set_alignment(align(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Comparison;

    #[test]
    fn a_narrow_terminal_gets_fewer_figures_and_none_in_pieces() {
        let whole = Grid {
            heads: ["method", "wall us", "x vfork_exec", "blocked us", "cpu_total us"]
                .map(str::to_owned)
                .to_vec(),
            lines: vec![
                ["forkless_nonblocking", "86.9 ±1.0%", "1.070 ±1.0%", "14.9 ±1.9%", "94.8 ±3.3%"]
                    .map(str::to_owned)
                    .to_vec(),
            ],
            text_columns: 1,
        };
        for (width, left_out) in [(160, 0), (80, 0), (60, 2), (40, 3), (10, 3)] {
            let mut grid = Grid { heads: whole.heads.clone(), lines: whole.lines.clone(), text_columns: 1 };
            assert_eq!(grid.narrow(width).len(), left_out, "{width}");
            let text = grid.to_terminal(width);
            assert!(text.contains("forkless_nonblocking") && text.contains("86.9 ±1.0%"), "{text}");
            assert!(
                width < 40 || text.lines().all(|line| line.chars().count() <= usize::from(width)),
                "{text}"
            );
        }
    }

    fn change(suite: &str, method: &str) -> Change {
        Change {
            suite: suite.into(),
            method: method.into(),
            params: crate::results::Params::new(),
            metric: "cpu_total".into(),
            unit: "x vfork_exec".into(),
            a: 0.986,
            b: 0.992,
            ratio: 1.006,
            ci95: [0.847, 1.173],
            comparison: Comparison::ByYardstick,
            verdict: crate::compare::Difference::NoDifferenceShown,
        }
    }

    #[test]
    fn a_comparison_is_a_hundred_columns_wide_and_says_once_what_all_lines_share() {
        let spawns = vec![change("spawn", "noshell_clone_compat0"), change("spawn", "popen")];
        let one = &Grid::of_changes(std::slice::from_ref(&spawns), Some(100))[0];
        let text = one.to_terminal(100);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("[0.847, 1.173]") && text.contains("noshell_clone_compat0"), "{text}");
        assert_eq!(one.heads[..2], ["spawn: method", "metric"]);
        let two = &Grid::of_changes(&[vec![change("spawn", "fork"), change("cow", "fork")]], Some(100))[0];
        assert_eq!(two.heads[..3], ["suite", "method", "metric"]);

        let three = [spawns.clone(), spawns];
        let tables = Grid::of_changes(&three, Some(100));
        assert_eq!(tables.len(), 2, "side by side they are wider");
        assert!(
            tables[0].heads.contains(&"B / A".to_owned()) && tables[1].heads.contains(&"C / A".to_owned())
        );
        for table in tables {
            let text = table.to_terminal(100);
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
        assert_eq!(Grid::of_changes(&three, Some(160)).len(), 1);
        assert_eq!(Grid::of_changes(&three, None).len(), 1);
    }

    #[test]
    fn a_name_stays_in_its_cell_of_markdown() {
        assert_eq!(markdown_cell("a|<b>\n\u{1b}[1mc"), "a\\|&lt;b>\\n\\u{1b}[1mc");
    }

    #[test]
    fn sizes_and_numbers_are_short() {
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!(size(1536 << 20), "1536 MiB");
        assert_eq!(size(512), "512");
        assert_eq!(number(63.456), "63.5");
        assert_eq!(number(0.1234), "0.123");
        assert_eq!(number(0.000_321), "3.2e-4");
        assert_eq!(number(123_456.7), "123457");
        assert_eq!((number(-1e300), three(1e300)), ("-1.0e300".to_owned(), "1.0e300".to_owned()));
    }
}
