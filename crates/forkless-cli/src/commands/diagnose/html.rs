//! `--html`: the report as one page that needs nothing else, for a ticket or a mail.

use std::io::{self, Write};

use forkless_diagnose::{DiagnosisReport, Finding};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::pictures::pictures;
use super::{EndReason, duration_ns, remedy, text};
use crate::terminal;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/pictures.js");

/// The browser itself keeps the page from fetching anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Command lines of other users end up in this page: all but [`STYLE`] and [`SCRIPT`] is escaped.
/// Control characters are escaped, too, for the page may be printed to a terminal.
pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport, reason: EndReason) -> io::Result<()> {
    let most = report.findings.iter().map(|f| f.saving_share.mid).fold(f64::MIN_POSITIVE, f64::max);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "forkless diagnose" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "forkless diagnose" }
                p {
                    @if reason == EndReason::Interrupted { b { "Partial: interrupted." } " " }
                    @if let Some(left) = text::left(report, reason) { b { "Partial:" } " " (left) ". " }
                    (text::counts(report)) "."
                    @if !report.system_calls { " System calls were not counted." }
                }
                @for limit in &report.limits { p { b { "Limited:" } " " (limit) } }
                @for loss in &report.losses { p { b { "Missed:" } " " (loss) } }
                p { (text::starts(report)) }
                (pictures(report))
                @if report.findings.is_empty() { p { "Nothing found." } }
                @for finding in &report.findings { (section(report, finding, most)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    writeln!(out, "{}", terminal::plain(&page.into_string()))
}

fn section(report: &DiagnosisReport, f: &Finding, most: f64) -> Markup {
    let mut entries = vec![
        (
            "saves",
            format!(
                "{} each time, {} of a CPU",
                text::range(f.saving_each_ns, duration_ns),
                text::range(f.saving_share, |s| format!("{:.2} %", s * 100.0))
            ),
        ),
        ("where", text::at(f)),
        ("who", text::who(f)),
        ("cost", text::cost(f)),
        ("because", f.reason.clone()),
        ("remedy", remedy::sentence(f)),
        ("command", remedy::command(report, f)),
    ];
    entries.extend(f.evidence.iter().map(|fact| ("evidence", format!("{}: {}", fact.what, fact.value))));
    let stack = f.stack.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let width = (f.saving_share.mid / most * 100.0).clamp(0.5, 100.0);
    html! {
        section {
            h2 { (f.title) }
            div.bar style=(format!("width:{width:.1}%")) {}
            dl {
                @for (name, value) in &entries { dt { (name) } dd { (value) } }
                @if !stack.is_empty() { dt { "from" } dd { pre { (stack) } } }
            }
        }
    }
}
