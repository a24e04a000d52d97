//! Results as lines and columns of text, and how figures are written in them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::{Deserialize, Serialize};

use super::folded;
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

    /// Leaves out the last columns, but for those of text at the left, as long as the rest would
    /// not fit without being broken within words and figures, and returns their heads.
    pub(super) fn narrow(&mut self, width: u16) -> Vec<String> {
        let mut left_out = Vec::new();
        // Where all is text, the first two tell the lines apart.
        let kept = if self.text_columns < self.heads.len() { self.text_columns + 1 } else { 2 };
        while self.least_total() > usize::from(width) && self.heads.len() > kept {
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
        total(&self.least_widths(0))
    }

    /// For each column its longest word, or its longest figure with its interval. Verdicts are
    /// words. Text of at most `together` letters stays in one line.
    fn least_widths(&self, together: usize) -> Vec<usize> {
        let word = |text: &str| {
            let pieces = text.split(' ').flat_map(pieces);
            pieces.map(|piece| piece.chars().count()).max().unwrap_or(0)
        };
        let least = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column)).map(|cell| {
                /// Of a size with its unit, which stays together in any case.
                const SIZE: usize = 9;
                let whole = cell.chars().count();
                let has_digit = cell.contains(|c: char| c.is_ascii_digit());
                let is_whole = match column < self.text_columns {
                    true => whole <= together || (has_digit && whole <= SIZE),
                    false => whole <= together || has_digit,
                };
                if is_whole { whole } else { word(cell) }
            });
            cells.chain([word(&self.heads[column])]).max().unwrap_or(0)
        };
        (0..self.heads.len()).map(least).collect()
    }

    /// The widths of the columns in a table that is so wide: all that is said in one line, if there
    /// is room. Else each has its least, and the more of the rest the more it says.
    fn widths(&self, width: u16) -> Vec<usize> {
        let longest = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column)).chain([&self.heads[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        /// Of letters: short texts stay in one line, if there is room for that.
        const SHORT: usize = 16;
        let width = usize::from(width);
        let least = Some(self.least_widths(SHORT)).filter(|least| total(least) <= width);
        let least = least.unwrap_or_else(|| self.least_widths(0));
        let wanted: Vec<usize> =
            least.iter().enumerate().map(|(column, least)| longest(column) - least).collect();
        let room = width.saturating_sub(total(&least));
        let all: usize = wanted.iter().sum();
        let share = |wanted: usize| if all <= room { wanted } else { room * wanted / all };
        least.into_iter().zip(wanted).map(|(least, wanted)| least + share(wanted)).collect()
    }

    /// As a table for a terminal of the given width. Where its words and figures are wider, a line
    /// below it names the columns that are left out.
    #[must_use]
    pub fn to_terminal(&self, width: u16) -> String {
        let mut grid = self.clone();
        let left_out = grid.narrow(width);
        let table = table(&grid, width);
        if left_out.is_empty() {
            return table.to_string();
        }
        let said = format!("columns left out here (other forms have them): {}", left_out.join(", "));
        format!("{table}\n{}", folded(&said, width))
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

    /// Lays out a suite's fitted lines, a grid for each kind of pages: with that as a column a
    /// terminal has no room for all figures.
    pub(super) fn of_fits_by_pages(suite: &Suite) -> Vec<(&str, Grid)> {
        let mut kinds: Vec<&str> = suite.fits.iter().map(|fit| fit.pages.as_str()).collect();
        let mut seen = BTreeSet::new();
        kinds.retain(|kind| seen.insert(*kind));
        let all = Grid::of_fits(suite);
        let of = |kind: &str| {
            let mut grid = all.clone();
            grid.lines.retain(|line| line[1] == kind);
            grid.text_columns -= 1;
            for line in grid.lines.iter_mut().chain([&mut grid.heads]) {
                line.remove(1);
            }
            grid
        };
        kinds.into_iter().map(|kind| (kind, of(kind))).collect()
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
                Style::Bounds.cell(fit.per_gib_ms, fit.per_gib_ms_ci95, number),
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

/// The width of a table of such columns.
fn total(columns: &[usize]) -> usize {
    columns.iter().sum::<usize>() + 3 * columns.len() + 1
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
    // Left to itself, the crate takes as much from every column, from the middle of figures, and
    // given the least widths it makes some tables wider than asked for.
    let widths = grid.widths(width);
    let fixed = widths.iter().map(|&width| {
        let width = u16::try_from(width).unwrap_or(u16::MAX).saturating_add(2);
        ColumnConstraint::Absolute(Width::Fixed(width))
    });
    let wrapped = |line: &[String]| -> Vec<String> {
        line.iter().zip(&widths).map(|(cell, &width)| wrapped(cell, width)).collect()
    };
    table.set_header(cells(&wrapped(&grid.heads), grid.text_columns));
    table.set_constraints(fixed);
    for line in &grid.lines {
        table.add_row(cells(&wrapped(line), grid.text_columns));
    }
    table
}

/// Where a word may go on in the next line: nowhere, but for a long one, such as flags that are
/// joined without a blank.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    /// Of letters: more than a name of this tree has.
    const LONG: usize = 21;
    let ends: &[char] = if word.chars().count() > LONG { &['|', '('] } else { &[] };
    word.split_inclusive(ends)
}

/// A cell's text on lines of at most so many letters, if its words allow it.
fn wrapped(cell: &str, width: usize) -> String {
    let mut text = String::with_capacity(cell.len());
    let mut column = 0;
    for word in cell.split(' ') {
        let fits = |column: usize, part: &str| column + part.chars().count() <= width;
        if column > 0 && !fits(column + 1, word) {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        if fits(column, word) {
            text.push_str(word);
            column += word.chars().count();
            continue;
        }
        for piece in pieces(word) {
            if column > 0 && !fits(column, piece) {
                text.push('\n');
                column = 0;
            }
            text.push_str(piece);
            column += piece.chars().count();
        }
    }
    text
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
    fn lines_fitted_to_any_figures_are_a_hundred_columns_wide() {
        let fit = |pages: &str| Fit {
            method: "noshell_clone_compat0".into(),
            pages: pages.into(),
            metric: "until_exec".into(),
            constant_us: -9434.0,
            constant_us_ci95: [-9997.0, 18519.0],
            per_gib_ms: 354.643,
            per_gib_ms_ci95: [208.783, 371.84],
            r2: 0.9415,
        };
        let suite = Suite { fits: vec![fit("base"), fit("hugetlb-2m"), fit("base")], ..Suite::default() };
        let grids = Grid::of_fits_by_pages(&suite);
        assert_eq!(
            grids.iter().map(|(pages, grid)| (*pages, grid.lines.len())).collect::<Vec<_>>(),
            [("base", 2), ("hugetlb-2m", 1)]
        );
        for (_, grid) in grids {
            let text = grid.to_terminal(100);
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
            assert!(text.contains("354.6 [208.8, 371.8]") && text.contains("0.9415"), "{text}");
        }
    }

    #[test]
    fn a_table_of_sentences_breaks_no_word_and_names_what_has_no_room() {
        let flags = "clone3(CLONE_VM|CLONE_VFORK|CLONE_FILES|CLONE_PIDFD|CLONE_CLEAR_SIGHAND|CLONE_SETTLS)";
        let grid = Grid {
            heads: ["claim", "published", "why"].map(str::to_owned).to_vec(),
            lines: vec![
                [flags, "no longer holds, and nobody says so any more", "one two three"]
                    .map(str::to_owned)
                    .to_vec(),
            ],
            text_columns: 3,
        };
        let text = grid.to_terminal(60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        for word in ["CLONE_CLEAR_SIGHAND|", "published", "CLONE_SETTLS)"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("a stat(\"/etc/localtime\")", 17), "a\nstat(\n\"/etc/localtime\")");
        assert_eq!(wrapped("noshell_clone_compat0 x", 4), "noshell_clone_compat0\nx");
        let text = grid.to_terminal(38);
        assert!(text.contains("left out here") && text.contains(": why"), "{text}");
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
