//! Results for readers: a table for the terminal, GitHub-flavoured Markdown, CSV. One line of a table is one method
//! under one set of parameters; its columns are the metrics.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};

use crate::check::{Bound, Check};
use crate::compare::Change;
use crate::results::{Fit, Param, Results, Row, Suite};

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
pub enum Style {
    /// `63.4 ±1.2%`: half the interval's width in percent of the median. For narrow places.
    Short,
    /// `63.4 [62.9, 64.5]`.
    Bounds,
}

impl Style {
    fn cell(self, value: f64, [low, high]: [f64; 2], format: impl Fn(f64) -> String) -> String {
        match self {
            _ if low >= high || value == 0.0 => format(value),
            Style::Short => format!("{} ±{:.1}%", format(value), 50.0 * (high - low) / value),
            Style::Bounds => format!("{} [{}, {}]", format(value), format(low), format(high)),
        }
    }

    fn ratio(self, row: &Row) -> String {
        let three = |value: f64| format!("{value:.3}");
        row.ratio.as_ref().map_or_else(String::new, |ratio| self.cell(ratio.value, ratio.ci95, three))
    }
}

impl Grid {
    /// Lays out a suite: method, the parameters that differ between rows, then for each metric its median with the 95 %
    /// interval, and the ratio to the baseline where there is one.
    #[must_use]
    pub fn of(suite: &Suite, style: Style) -> Grid {
        if suite.name == "victims" {
            return Grid::of_victims(suite, style);
        }
        let varying = varying_params(suite);
        let mut metrics: Vec<(&str, &str)> = Vec::new();
        let mut keys: Vec<(&str, &crate::results::Params)> = Vec::new();
        for row in &suite.rows {
            // A terminal has no room for estimates beside figures, but where the published table has them.
            let shown = style == Style::Bounds || suite.name == "spawn" || !row.estimate;
            if shown && !metrics.iter().any(|&(name, _)| name == row.metric) {
                metrics.push((&row.metric, &row.unit));
            }
            if !keys.contains(&(row.method.as_str(), &row.params)) {
                keys.push((&row.method, &row.params));
            }
        }
        let has_ratio = |metric: &str| {
            let room = style == Style::Bounds || suite.name == "spawn" || metric == "wall";
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
    fn of_victims(suite: &Suite, style: Style) -> Grid {
        let line = |row: &Row| {
            let others = row.params.iter().filter(|(name, _)| *name != "victim");
            let others: Vec<String> =
                others.map(|(name, value)| format!("{name} {}", param(name, value))).collect();
            vec![
                row.params.get("victim").map(ToString::to_string).unwrap_or_default(),
                others.join(", "),
                row.method.clone(),
                format!("{} {}", row.metric, row.unit),
                style.cell(row.summary.median, row.ci95, number),
                style.ratio(row),
            ]
        };
        let heads = ["victim", "parameters", "method", "metric", "median", "x plain"];
        Grid {
            heads: heads.map(str::to_owned).to_vec(),
            lines: suite.rows.iter().map(line).collect(),
            text_columns: 4,
        }
    }

    /// Lays out a suite's limits and what became of them.
    #[must_use]
    pub fn of_checks(suite: &Suite) -> Grid {
        let line = |check: &Check| {
            let limit = match check.bound {
                Bound::AtLeast => "at least",
                Bound::AtMost => "at most",
            };
            let measured = check.value.zip(check.ci95);
            let limited = !check.figure.is_empty();
            vec![
                check.name.clone(),
                check.figure.clone(),
                if limited { format!("{limit} {} {}", check.limit, check.unit) } else { String::new() },
                measured.map_or_else(String::new, |(value, ci95)| Style::Bounds.cell(value, ci95, number)),
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

    /// Lays out comparisons of one result, A, with several others, B, C and so on: a line for each row of A that any of them
    /// has.
    #[must_use]
    pub fn of_changes(others: &[Vec<Change>]) -> Grid {
        let mut heads = ["suite", "method", "params", "metric", "A"].map(str::to_owned).to_vec();
        for (letter, _) in ('B'..='Z').zip(others) {
            heads.extend([
                letter.to_string(),
                format!("{letter} / A"),
                "95 % interval".into(),
                "verdict".into(),
            ]);
        }
        let same = |a: &Change, b: &Change| {
            (&a.suite, &a.method, &a.params, &a.metric, &a.unit)
                == (&b.suite, &b.method, &b.params, &b.metric, &b.unit)
        };
        let mut keys: Vec<&Change> = Vec::new();
        for change in others.iter().flatten() {
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
                key.suite.clone(),
                key.method.clone(),
                params.join(", "),
                format!("{} {}", key.metric, key.unit),
                number(key.a),
            ];
            for changes in others {
                let Some(change) = changes.iter().find(|change| same(change, key)) else {
                    line.extend([const { String::new() }; 4]);
                    continue;
                };
                let [low, high] = change.ci95;
                line.extend([
                    number(change.b),
                    if change.ratio.is_finite() { format!("{:.3}", change.ratio) } else { String::new() },
                    if low < high { format!("[{low:.3}, {high:.3}]") } else { String::new() },
                    change.verdict.words().to_owned(),
                ]);
            }
            line
        };
        let mut grid = Grid { heads, lines: keys.iter().map(line).collect(), text_columns: 4 };
        grid.drop_empty_columns();
        grid
    }

    /// Leaves out columns in which nothing is said, as intervals and verdicts of published figures.
    fn drop_empty_columns(&mut self) {
        for column in (self.text_columns..self.heads.len()).rev() {
            if self.lines.iter().all(|line| line[column].is_empty()) {
                self.heads.remove(column);
                for line in &mut self.lines {
                    line.remove(column);
                }
            }
        }
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
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
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
    pub fn of_fits(suite: &Suite) -> Grid {
        let heads = ["method", "pages", "metric", "us with no memory", "ms for each GiB", "R2"];
        let line = |fit: &Fit| {
            vec![
                fit.method.clone(),
                fit.pages.clone(),
                fit.metric.clone(),
                Style::Bounds.cell(fit.constant_us, fit.constant_us_ci95, number),
                // Half an interval in percent says nothing of a figure that is about zero.
                Style::Bounds.cell(fit.per_gib_ms, fit.per_gib_ms_ci95, |value| format!("{value:.3}")),
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

fn rows_of<'a>(suite: &'a Suite, metric: &'a str) -> impl Iterator<Item = &'a Row> {
    suite.rows.iter().filter(move |row| row.metric == metric)
}

fn varying_params(suite: &Suite) -> Vec<&str> {
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
pub fn param(name: &str, value: &Param) -> String {
    match value {
        Param::Number(bytes) if matches!(name, "rss" | "allocated" | "used" | "bs" | "size") => size(*bytes),
        other => other.to_string(),
    }
}

fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Three or four significant digits: what the intervals leave standing.
#[must_use]
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 {
        "0".to_owned()
    } else if magnitude < 0.001 {
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

/// Tables for a terminal of the given width, each under its suite's name and followed by its notes.
#[must_use]
pub fn terminal(results: &Results, width: u16) -> String {
    let mut text = String::new();
    for suite in &results.suites {
        let grid = Grid::of(suite, Style::Short);
        let _ = writeln!(text, "{}\n{}\n{}", title(suite), table(&grid, width), legend(suite));
        if !suite.fits.is_empty() {
            let _ = writeln!(text, "\nfitted to the memory used\n{}", table(&Grid::of_fits(suite), width));
        }
        for one in &suite.derived {
            let bounds = Style::Bounds.cell(one.value, one.ci95, number);
            let _ = writeln!(text, "{:<40} {bounds} {}", one.name, one.unit);
        }
        if !suite.checks.is_empty() {
            let _ = writeln!(text, "\nlimits\n{}", table(&Grid::of_checks(suite), width));
        }
        text.push_str(&bars(suite));
        for note in &suite.notes {
            let _ = writeln!(text, "note: {note}");
        }
    }
    text
}

/// The published picture of the `cow` suite: one `*` a millisecond for the first pass after the child, between the passes
/// before and after it. Empty for other suites.
#[must_use]
pub fn bars(suite: &Suite) -> String {
    let mut text = String::new();
    if suite.name != "cow" {
        return text;
    }
    text.push_str("\npass before, first pass after the child, later passes; one * a millisecond\n");
    for row in suite.rows.iter().filter(|row| row.metric == "first") {
        let word = |name: &str| row.params.get(name).map(ToString::to_string).unwrap_or_default();
        let same = |metric: &str| {
            let found = suite.rows.iter().find(|other| {
                other.method == row.method && other.params == row.params && other.metric == metric
            });
            found.map_or(0.0, |row| row.summary.median)
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to a line's length"
        )]
        let stars = |milliseconds: f64| "*".repeat(milliseconds.clamp(0.0, 100.0).round() as usize);
        let name = format!("{} ({}), {}", row.method, word("child"), word("pages"));
        for (label, value) in [(name.as_str(), same("before")), ("", row.summary.median), ("", same("after"))]
        {
            let _ = writeln!(text, "{}", format!("{label:<32}{value:>9.2} ms {}", stars(value)).trim_end());
        }
    }
    text
}

fn table(grid: &Grid, width: u16) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(cells(&grid.heads, grid.text_columns));
    for line in &grid.lines {
        table.add_row(cells(line, grid.text_columns));
    }
    table
}

fn cells(line: &[String], text_columns: usize) -> Vec<Cell> {
    let align = |index| if index < text_columns { CellAlignment::Left } else { CellAlignment::Right };
    line.iter().enumerate().map(|(index, text)| Cell::new(text).set_alignment(align(index))).collect()
}

/// The suite's name with the parameters common to all rows.
#[must_use]
pub fn title(suite: &Suite) -> String {
    let varying = varying_params(suite);
    let mut title = suite.name.clone();
    if let Some(row) = suite.rows.first() {
        for (name, value) in row.params.iter().filter(|(name, _)| !varying.contains(&name.as_str())) {
            let _ = write!(title, ", {name} {}", param(name, value));
        }
    }
    title
}

/// One line on how the figures came about.
#[must_use]
pub fn legend(suite: &Suite) -> String {
    let outliers: usize = suite.rows.iter().map(|row| row.summary.outliers).sum();
    let samples: usize = suite.rows.iter().map(|row| row.summary.n).sum();
    let clock = if suite.clock_overhead_ns > 0.0 {
        format!("; clock overhead of {:.0} ns a reading subtracted", suite.clock_overhead_ns)
    } else {
        String::new()
    };
    format!(
        "medians, 95 % intervals (± half the width); {} interleaved rounds in {:.1} s, seed {}{clock}; {outliers} of \
         {samples} samples are outliers (kept)",
        suite.rounds, suite.seconds, suite.seed
    )
}

/// GitHub-flavoured Markdown: a heading, a table and the notes for each suite, the machine at the end.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    for suite in &results.suites {
        let _ = writeln!(text, "### {}\n", title(suite));
        text.push_str(&Grid::of(suite, Style::Bounds).to_markdown());
        let _ = writeln!(text, "\n{}\n", legend(suite));
        if !suite.fits.is_empty() {
            let _ = writeln!(text, "Fitted to the memory used:\n\n{}", Grid::of_fits(suite).to_markdown());
        }
        if !suite.checks.is_empty() {
            let _ = writeln!(text, "Limits:\n\n{}", Grid::of_checks(suite).to_markdown());
        }
        for note in &suite.notes {
            let _ = writeln!(text, "- {note}");
        }
        for one in &suite.derived {
            let bounds = Style::Bounds.cell(one.value, one.ci95, number);
            let _ = writeln!(text, "- {}: {bounds} {}", one.name, one.unit);
        }
        if !suite.notes.is_empty() || !suite.derived.is_empty() {
            text.push('\n');
        }
    }
    let machine: Vec<String> =
        results.machine.lines().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let _ = writeln!(text, "<sub>{}</sub>", machine.join("; "));
    text
}

/// One line a row, without the samples; parameters as `name=value` pairs in one field.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut text = String::from(
        "suite,method,params,metric,unit,estimate,n,median,ci95_low,ci95_high,min,p05,p25,p75,p90,p95,p99,p999,max,mean,\
         outliers,ratio_to,ratio,ratio_ci95_low,ratio_ci95_high,within_rounds,\
         within_rounds_ci95_low,within_rounds_ci95_high\n",
    );
    for suite in &results.suites {
        for row in &suite.rows {
            let params: Vec<String> =
                row.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let s = &row.summary;
            let mut fields: Vec<String> =
                [&suite.name, &row.method, &params.join(" "), &row.metric, &row.unit]
                    .map(|text| quoted(text))
                    .to_vec();
            fields.push(row.estimate.to_string());
            fields.push(s.n.to_string());
            let figures =
                [s.median, row.ci95[0], row.ci95[1], s.min, s.p05, s.p25, s.p75, s.p90, s.p95, s.p99, s.p999];
            fields.extend(figures.iter().chain(&[s.max, s.mean]).map(ToString::to_string));
            fields.push(s.outliers.to_string());
            match &row.ratio {
                Some(ratio) => {
                    fields.push(quoted(&ratio.to));
                    let [low, high] = ratio.ci95;
                    let [within_low, within_high] = ratio.within_rounds_ci95;
                    let figures = [ratio.value, low, high, ratio.within_rounds, within_low, within_high];
                    fields.extend(figures.map(|value| value.to_string()));
                }
                None => fields.extend([const { String::new() }; 7]),
            }
            let _ = writeln!(text, "{}", fields.join(","));
        }
    }
    text
}

/// A CSV field (RFC 4180): quoted where it holds a separator, a quote or a line end.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Plan, Silent};
    use crate::spawn::{self, Method, Spec};

    fn results() -> Results {
        let plan = Plan { runs: 10, ..Plan::default() };
        let methods = vec![Method::VforkExec, Method::System];
        let suite = spawn::run(&Spec { methods, plan, ..Spec::default() }, None, &mut Silent).unwrap();
        Results { suites: vec![suite], ..Results::begin() }
    }

    #[test]
    fn every_form_names_every_method_and_stays_rectangular() {
        let results = results();
        let grid = Grid::of(&results.suites[0], Style::Short);
        assert_eq!(grid.lines.len(), 2);
        assert!(grid.lines.iter().all(|line| line.len() == grid.heads.len()));
        assert!(terminal(&results, 120).contains("vfork_exec"));

        let markdown = markdown(&results);
        let bars: BTreeSet<usize> = markdown
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(bars.len(), 1, "{markdown}");

        let csv = csv(&results);
        let commas: BTreeSet<usize> = csv.lines().map(|line| line.matches(',').count()).collect();
        assert_eq!(commas.len(), 1, "{csv}");
        assert_eq!(csv.lines().count(), 1 + results.suites[0].rows.len());
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
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
