//! Results as one self-contained HTML page: a plot with intervals and a sortable table for each
//! suite.

use maud::{Markup, html};

use crate::html_page;
use crate::plot::{self, Ordinate, PlottedLine, PlottedValue};
use crate::registry::{MetricPlot, Registration, Registry};
use crate::render::{Grid, Style, legend, limits, number, param, title};
use crate::results::{Param, Results, Row, Suite};
use crate::store::timestamp;

/// The page; its title names the command or program that made it.
#[must_use]
pub fn page(made_by: &str, results: &Results, registry: Registry) -> String {
    let names: Vec<&str> = results.suites.iter().map(|suite| suite.name.as_str()).collect();
    let contents = html! {
        nav {
            @for (index, name) in names.iter().enumerate() { a href={ "#suite-" (index) } { (name) } }
            a href="#machine" { "machine" }
        }
    };
    page_about(&format!("{made_by}: {}", names.join(", ")), &contents, results, registry)
}

/// The page with its title, and an introduction in place of the list of suites.
#[must_use]
pub fn page_about(title: &str, introduction: &Markup, results: &Results, registry: Registry) -> String {
    let content = html! {
        (introduction)
        @for (index, suite) in results.suites.iter().enumerate() {
            (section(suite, registry.of(&suite.name), index))
        }
        h1 #machine { "Machine" }
        (html_page::machine(&results.machine))
        p.legend { "forkless " (results.version) ", " (timestamp(results.created)) }
    };
    html_page::page(title, "", &content)
}

fn section(suite: &Suite, registered: &Registration, index: usize) -> Markup {
    let plots: Vec<(MetricPlot, Markup)> =
        registered.plots.iter().filter_map(|&metric| Some((metric, drawn(suite, metric)?))).collect();
    html! {
        h1 id={ "suite-" (index) } { (title(suite)) }
        @for (_, plot) in &plots { (plot) }
        @if plots.iter().any(|(metric, _)| metric.over_memory) {
            p.legend { "dot: median; upright line with ends: its 95 % interval within this run; the boxes choose lines" }
        }
        @if plots.iter().any(|(metric, _)| !metric.over_memory) {
            p.legend {
                "upright line: median; bar: its 95 % interval within this run; thin line with ends: 5th to 95th percentile; hills: how the \
                 samples are spread, each as high as its fullest bin"
            }
        }
        (html_page::table(&Grid::of(suite, registered.columns, Style::Bounds)))
        p.legend { (legend(suite)) }
        @if !suite.fits.is_empty() {
            h2 { "Fitted to the memory used" }
            (html_page::table(&Grid::of_fits(suite)))
        }
        @if !suite.checks.is_empty() {
            h2 { "Figures and their evidence" }
            (html_page::table(&Grid::of_checks(suite)))
        }
        @if !suite.derived.is_empty() {
            h2 { "Derived" }
            div.scroll {
                table {
                    tbody {
                        @for one in &suite.derived {
                            tr {
                                td.text { (one.name) }
                                td {
                                    (number(one.value)) " [" (number(one.ci95[0])) ", " (number(one.ci95[1])) "] "
                                    (one.unit)
                                }
                            }
                        }
                    }
                }
            }
        }
        @if let Some(picture) = registered.picture { pre { (picture(suite)) } }
        @for limit in limits(suite) { p.note { "limited by " (limit) } }
        @for note in &suite.notes { p.note { (note) } }
    }
}

/// A metric's plot under its heading.
fn drawn(suite: &Suite, MetricPlot { metric, over_memory }: MetricPlot) -> Option<Markup> {
    let rows: Vec<&Row> = suite.rows.iter().filter(|row| row.metric == metric).collect();
    let unit = &rows.first()?.unit;
    let (heading, plot) = if over_memory {
        let axes = ["memory used, MiB", &format!("{metric}, {unit}")];
        let heading = format!("{metric} by memory used");
        (heading, plot::lines("time by memory", axes, Ordinate::Logarithmic, &over_memory_used(&rows))?)
    } else {
        let values: Vec<PlottedValue> = rows.iter().map(|row| value(row, suite)).collect();
        (
            format!("{metric}, {unit}"),
            plot::values(&format!("{metric} by method"), &format!("{metric}, {unit}"), &values)?,
        )
    };
    Some(html! {
        h2 { (heading) }
        (plot)
    })
}

/// A row, named by its method and the parameters that differ between rows.
fn value(row: &Row, suite: &Suite) -> PlottedValue {
    let varies =
        |name: &str, value: &Param| suite.rows.iter().any(|other| other.params.get(name) != Some(value));
    let varying = row.params.iter().filter(|(name, value)| varies(name, value));
    let varying: Vec<String> = varying.map(|(name, value)| param(name, value)).collect();
    PlottedValue {
        name: format!("{} {}", row.method, varying.join(" ")).trim().to_owned(),
        value: row.summary.median,
        ci95: row.ci95,
        spread: Some([row.summary.p05, row.summary.p95]),
        samples: row.samples.clone(),
    }
}

/// One line for each method and kind of pages.
#[expect(clippy::cast_precision_loss, reason = "sizes of memory fit a double")]
fn over_memory_used(rows: &[&Row]) -> Vec<PlottedLine> {
    let used = |row: &Row| row.number("used").unwrap_or(0) as f64 / f64::from(1 << 20);
    let mut lines: Vec<PlottedLine> = Vec::new();
    for row in rows {
        let kind = row.params.get("pages").map(ToString::to_string).unwrap_or_default();
        let point = ([used(row), row.summary.median], Some(row.ci95));
        match lines.iter_mut().find(|line| line.group == row.method && line.kind == kind) {
            Some(line) => line.points.push(point),
            None => lines.push(PlottedLine {
                name: format!("{} {kind}", row.method),
                group: row.method.clone(),
                kind,
                points: vec![point],
            }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|(a, _), (b, _)| a[0].total_cmp(&b[0]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Schedule, Silent};
    use crate::spawn::{self, Method, Spec};
    use crate::suites::{SUITES, memory};

    #[test]
    fn the_page_shows_every_method_escapes_and_fetches_nothing() {
        let schedule = Schedule { runs: 10, ..Schedule::default() };
        let methods = vec![Method::VforkExec, Method::ForkExec];
        let mut suite =
            spawn::run(&Spec { methods: methods.clone(), schedule, ..Spec::default() }, None, &mut Silent)
                .unwrap();
        suite.notes.push("<script>alert(1)</script>".into());
        let sizes = vec![0, 4 << 20, 8 << 20];
        let pages = vec![crate::page_kinds::Pages::Base];
        let memory = memory::Spec { sizes, pages, methods, schedule, ..memory::Spec::default() };
        let memory = memory::run(&memory, None, &mut Silent).unwrap();
        let page = page("bench", &Results { suites: vec![suite, memory], ..Results::begin() }, SUITES);
        assert!(page.contains("vfork_exec") && page.contains("fork_exec"));
        assert!(page.matches("<svg").count() >= 4, "{}", page.matches("<svg").count());
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("<script>alert"));
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
        // The script's isNaN aside.
        let figures = page.replace("isNaN", "");
        let around = figures.find("NaN").map(|at| &figures[at.saturating_sub(40)..at]);
        assert_eq!(around, None);
    }
}
