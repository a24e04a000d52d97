//! `--html`: the report as one page that needs nothing else, for a ticket or a mail.

use std::io::{self, Write};

use forkless_diagnose::{DiagnosisReport, Estimate, Finding};

use super::{EndReason, duration, remedy};

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>forkless diagnose</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h2 { font-size: 1.1em; margin: 0 } section { border-top: 1px solid #ccc; padding: 1em 0 }
dt { color: #666; float: left; clear: left; width: 7em } dd { margin: 0 0 .2em 7.5em }
.bar { background: #d33; height: .6em; margin: .4em 0 } pre { margin: 0; white-space: pre-wrap }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } section { border-color: #444 } dt { color: #aaa } }
</style></head><body>
<h1>forkless diagnose</h1>
";

pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport, reason: EndReason) -> io::Result<()> {
    out.write_all(HEAD.as_bytes())?;
    let c = report.creations;
    writeln!(
        out,
        "<p>{}{:.1} s watched by {}: {} process creations ({} full forks that exec, {} that do not, {} sharing memory), {} threads, {} events lost.{}</p>",
        if reason == EndReason::Interrupted { "<b>Partial: interrupted.</b> " } else { "" },
        report.window_ns as f64 / 1e9,
        escape(&report.tier.to_string()),
        report.totals.creations,
        c.full_fork_then_exec,
        c.full_fork_alone,
        c.shared_memory,
        report.totals.threads,
        report.totals.lost(),
        if report.system_calls { "" } else { " System calls were not counted." },
    )?;
    for limit in &report.limits {
        writeln!(out, "<p><b>Limited:</b> {}</p>", escape(limit))?;
    }
    if report.findings.is_empty() {
        writeln!(out, "<p>Nothing found.</p>")?;
    }
    let most = report.findings.iter().map(|f| f.saving_share.mid).fold(f64::MIN_POSITIVE, f64::max);
    for finding in &report.findings {
        section(out, finding, most)?;
    }
    writeln!(out, "</body></html>")
}

fn section(out: &mut impl Write, f: &Finding, most: f64) -> io::Result<()> {
    writeln!(out, "<section><h2>{}</h2>", escape(&f.title))?;
    writeln!(
        out,
        "<div class=\"bar\" style=\"width:{:.1}%\"></div><dl>",
        (f.saving_share.mid / most * 100.0).clamp(0.5, 100.0)
    )?;
    let mut entry = |name: &str, value: &str| writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escape(value));
    entry(
        "saves",
        &format!(
            "{} each time, {} of a CPU",
            range(f.saving_each_ns, |ns| duration(ns.max(0.0) as u64)),
            range(f.saving_share, |s| format!("{:.2} %", s * 100.0))
        ),
    )?;
    entry(
        "who",
        &format!(
            "pid {}{} {}",
            f.pid,
            if f.processes > 1 { format!(" and {} more,", f.processes - 1) } else { ",".to_owned() },
            f.process.exe.as_deref().unwrap_or(&f.process.comm)
        ),
    )?;
    let ns = |ns: f64| duration(ns.max(0.0) as u64);
    entry(
        "cost",
        &format!(
            "{:.2} % of a CPU: {} in the caller, {} in children, {} in faults afterwards, over {} times",
            f.cost.cpu_share * 100.0,
            ns(f.cost.caller_ns),
            ns(f.cost.child_ns),
            ns(f.cost.faults_ns),
            f.count
        ),
    )?;
    entry("because", &f.reason)?;
    entry("remedy", &remedy::advice(f))?;
    entry("command", &remedy::command(f))?;
    for evidence in &f.evidence {
        entry("evidence", &format!("{}: {}", evidence.what, evidence.value))?;
    }
    if !f.call_site.is_empty() {
        let stack: Vec<String> = f.call_site.iter().map(|frame| escape(&frame.to_string())).collect();
        writeln!(out, "<dt>from</dt><dd><pre>{}</pre></dd>", stack.join("\n"))?;
    }
    writeln!(out, "</dl></section>")
}

fn range(estimate: Estimate, show: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", show(estimate.mid), show(estimate.low), show(estimate.high))
}

/// Command lines of other users end up in this page.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_command_line_cannot_become_markup() {
        assert_eq!(super::escape("<script>\"&'"), "&lt;script&gt;&quot;&amp;&#39;");
    }
}
