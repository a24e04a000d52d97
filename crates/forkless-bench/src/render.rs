//! Results for readers: a table for the terminal, GitHub-flavoured Markdown, CSV. One line of a
//! table is one method under one set of parameters; its columns are the metrics.

use std::fmt::Write as _;

use crate::compare::Change;
use crate::registry::Registry;
use crate::results::{Results, Suite};

mod grid;
mod limits;
mod meaning;

pub use self::grid::Grid;
pub use self::grid::number;
use self::grid::varying_params;
pub(crate) use self::grid::{Style, param, size};
pub(crate) use self::limits::limits;
pub use self::meaning::meaning;

/// Tables for a terminal of the given width, each under its suite's name and followed by its notes.
#[must_use]
pub fn terminal(results: &Results, width: u16, registry: Registry) -> String {
    let mut text = String::new();
    for suite in &results.suites {
        let registered = registry.of(&suite.name);
        let table = Grid::of(suite, registered.columns, Style::Short).to_terminal(width);
        let _ =
            writeln!(text, "{}\n{table}\n{}", folded(&title(suite), width), folded(&legend(suite), width));
        for (pages, grid) in Grid::of_fits_by_pages(suite) {
            let table = grid.to_terminal(width);
            let _ = writeln!(text, "\nfitted to the memory used, {pages} pages\n{table}");
        }
        let name = suite.derived.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
        for one in &suite.derived {
            let bounds = Style::Bounds.cell(one.value, one.ci95, number);
            let line = format!("{:<name$}  {bounds} {}", one.name, one.unit);
            let _ = writeln!(text, "{}", folded(&line, width));
        }
        if !suite.checks.is_empty() {
            let table = Grid::of_checks(suite).to_terminal(width);
            let _ = writeln!(text, "\nfigures and their evidence\n{table}");
        }
        if let Some(picture) = registered.picture {
            text.push_str(&cut(&picture(suite), width));
        }
        for limit in limits(suite) {
            let _ = writeln!(text, "{}", folded(&format!("limited by {limit}"), width));
        }
        for note in &suite.notes {
            let _ = writeln!(text, "{}", folded(&format!("note: {note}"), width));
        }
    }
    text
}

/// A picture of lines of at most so many letters: the rest of a longer one is `...`.
#[must_use]
pub fn cut(picture: &str, width: u16) -> String {
    let width = usize::from(width);
    let mut text = String::with_capacity(picture.len());
    for line in picture.lines() {
        if line.chars().count() > width {
            text.extend(line.chars().take(width.saturating_sub(3)));
            text.push_str("...");
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// A sentence on lines of at most so many letters, if its words allow it; all but the first line
/// are indented.
#[must_use]
pub fn folded(sentence: &str, width: u16) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in sentence.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > usize::from(width) {
            text.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

/// Comparisons of one result, A, with several others, as tables: of Markdown without a `width`,
/// else for a terminal that is so wide. Where one table would be wider, each of the others has its
/// own.
#[must_use]
pub fn changes(others: &[Vec<Change>], width: Option<u16>) -> String {
    let tables = Grid::of_changes(others, width).into_iter().map(|grid| match width {
        None => format!("\n{}", grid.to_markdown()),
        Some(width) => grid.to_terminal(width) + "\n",
    });
    tables.collect()
}

/// What a letter of a comparison stands for, with each remark on a line of its own: folded to
/// `width`, or without one as items of a Markdown list.
#[must_use]
pub fn side(letter: char, name: &str, of: &str, remarks: &[impl AsRef<str>], width: Option<u16>) -> String {
    let mut text = String::new();
    let Some(width) = width else {
        let _ = writeln!(text, "- {letter} = `{name}` ({of})");
        for remark in remarks {
            let _ = writeln!(text, "  - {}", remark.as_ref());
        }
        return text;
    };
    let _ = writeln!(text, "{}", folded(&format!("{letter} = {name} ({of})"), width));
    for remark in remarks {
        // Its further lines are indented once more.
        let remark = folded(remark.as_ref(), width.saturating_sub(2)).replace('\n', "\n  ");
        let _ = writeln!(text, "  {remark}");
    }
    text
}

/// The suite's name with the parameters common to all rows.
#[must_use]
pub(crate) fn title(suite: &Suite) -> String {
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
pub(crate) fn legend(suite: &Suite) -> String {
    let outliers: usize = suite.rows.iter().map(|row| row.summary.outliers).sum();
    let samples: usize = suite.rows.iter().map(|row| row.summary.n).sum();
    let clock = if suite.clock_overhead_ns > 0.0 {
        format!("; clock overhead of {:.0} ns a reading subtracted", suite.clock_overhead_ns)
    } else {
        String::new()
    };
    format!(
        "medians, 95 % intervals within this run (± half the width); {} interleaved rounds in {:.1} s, seed {}{clock}; {outliers} of \
         {samples} samples are outliers (kept)",
        suite.rounds, suite.seconds, suite.seed
    )
}

/// GitHub-flavoured Markdown: a heading, a table and the notes for each suite, the machine at the
/// end.
#[must_use]
pub fn markdown(results: &Results, registry: Registry) -> String {
    let mut text = String::new();
    for suite in &results.suites {
        let _ = writeln!(text, "### {}\n", title(suite));
        text.push_str(&Grid::of(suite, registry.of(&suite.name).columns, Style::Bounds).to_markdown());
        let _ = writeln!(text, "\n{}\n", legend(suite));
        if !suite.fits.is_empty() {
            let _ = writeln!(text, "Fitted to the memory used:\n\n{}", Grid::of_fits(suite).to_markdown());
        }
        if !suite.checks.is_empty() {
            let _ = writeln!(text, "Figures and their evidence:\n\n{}", Grid::of_checks(suite).to_markdown());
        }
        let limits = limits(suite);
        for limit in &limits {
            let _ = writeln!(text, "- limited by {limit}");
        }
        for note in &suite.notes {
            let _ = writeln!(text, "- {note}");
        }
        for one in &suite.derived {
            let bounds = Style::Bounds.cell(one.value, one.ci95, number);
            let _ = writeln!(text, "- {}: {bounds} {}", one.name, one.unit);
        }
        if !(limits.is_empty() && suite.notes.is_empty() && suite.derived.is_empty()) {
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
         within_rounds_ci95_low,within_rounds_ci95_high,limit\n",
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
            fields.push(quoted(row.limit.as_deref().unwrap_or_default()));
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::engine::{Schedule, Silent};
    use crate::registry::Columns;
    use crate::spawn::{self, Method, Spec};
    use crate::suites::SUITES;

    fn results() -> Results {
        let schedule = Schedule { runs: 10, ..Schedule::default() };
        let methods = vec![Method::VforkExec, Method::System];
        let suite = spawn::run(&Spec { methods, schedule, ..Spec::default() }, None, &mut Silent).unwrap();
        Results { suites: vec![suite], ..Results::begin() }
    }

    #[test]
    fn every_form_names_every_method_and_stays_rectangular() {
        let results = results();
        let grid = Grid::of(&results.suites[0], Columns::Metrics { all: true }, Style::Short);
        assert_eq!(grid.lines.len(), 2);
        assert!(grid.lines.iter().all(|line| line.len() == grid.heads.len()));
        assert!(terminal(&results, 120, SUITES).contains("vfork_exec"));

        let markdown = markdown(&results, SUITES);
        let bars: BTreeSet<usize> = markdown
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(bars.len(), 1, "{markdown}");

        let csv = csv(&results);
        // Between quotes, of which these fields hold none, a comma separates nothing.
        let outside = |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum();
        let commas: BTreeSet<usize> = csv.lines().map(outside).collect();
        assert_eq!(commas.len(), 1, "{csv}");
        assert_eq!(csv.lines().count(), 1 + results.suites[0].rows.len());
    }

    #[test]
    fn a_piped_table_and_its_sentences_are_a_hundred_columns_wide() {
        let mut results = results();
        results.suites[0].notes.push("a word ".repeat(60));
        let text = terminal(&results, 100, SUITES);
        assert!(text.contains("95 % intervals within this run"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(folded("one two three", 7), "one two\n  three");
        assert_eq!(folded("unbreakable", 3), "unbreakable");
        assert_eq!(cut("7 ms *******\n1 ms *\n", 8), "7 ms ...\n1 ms *\n");
    }

    #[test]
    fn remarks_on_a_side_are_folded_or_items_of_a_list() {
        let remarks = ["one two three four", "five"];
        let text = side('B', "b.json", "Linux", &remarks, Some(18));
        assert_eq!(text, "B = b.json (Linux)\n  one two three\n    four\n  five\n");
        let list = side('B', "b.json", "Linux", &remarks, None);
        assert_eq!(list, "- B = `b.json` (Linux)\n  - one two three four\n  - five\n");
    }

    #[test]
    fn a_field_with_a_comma_is_quoted() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
