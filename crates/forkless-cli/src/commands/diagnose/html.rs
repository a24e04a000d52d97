//! `--html`: the report as one page that needs nothing else, for a ticket or a mail.

use std::io::{self, Write};

use forkless_diagnose::{DiagnosisReport, Estimate, Finding};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{EndReason, duration, remedy, text};

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h2 { font-size: 1.1em; margin: 0 } section { border-top: 1px solid #ccc; padding: 1em 0 }
dt { color: #666; float: left; clear: left; width: 7em } dd { margin: 0 0 .2em 7.5em }
.bar { background: #d33; height: .6em; margin: .4em 0 } pre { margin: 0; white-space: pre-wrap }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } section { border-color: #444 } dt { color: #aaa } }
";

/// Command lines of other users end up in this page: all but [`STYLE`] is escaped, and control
/// characters are, too, for the page may be printed to a terminal.
pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport, reason: EndReason) -> io::Result<()> {
    let most = report.findings.iter().map(|f| f.saving_share.mid).fold(f64::MIN_POSITIVE, f64::max);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "forkless diagnose" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "forkless diagnose" }
                p {
                    @if reason == EndReason::Interrupted { b { "Partial: interrupted." } " " }
                    (text::counts(report)) "."
                    @if !report.system_calls { " System calls were not counted." }
                }
                @for limit in &report.limits { p { b { "Limited:" } " " (limit) } }
                @for loss in &report.losses { p { b { "Missed:" } " " (loss) } }
                p { (text::starts(report)) }
                @if report.findings.is_empty() { p { "Nothing found." } }
                @for finding in &report.findings { (section(report, finding, most)) }
            }
        }
    };
    writeln!(out, "{}", text::plain(&page.into_string()))
}

fn section(report: &DiagnosisReport, f: &Finding, most: f64) -> Markup {
    let ns = |ns: f64| duration(ns.max(0.0) as u64);
    let mut entries = vec![
        (
            "saves",
            format!(
                "{} each time, {} of a CPU",
                range(f.saving_each_ns, ns),
                range(f.saving_share, |s| format!("{:.2} %", s * 100.0))
            ),
        ),
        ("who", text::who(f)),
        (
            "cost",
            format!(
                "{:.2} % of a CPU{}, over {} times",
                f.cost.cpu_share * 100.0,
                text::cost(f.cost),
                f.count
            ),
        ),
        ("because", f.reason.clone()),
        ("remedy", remedy::sentence(f)),
        ("command", remedy::command(report, f)),
    ];
    entries.extend(f.evidence.iter().map(|fact| ("evidence", format!("{}: {}", fact.what, fact.value))));
    let stack = f.call_site.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
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

fn range(estimate: Estimate, show: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", show(estimate.mid), show(estimate.low), show(estimate.high))
}
