//! The report for people: ranked, each finding with its cost, evidence, place, reason, remedy and
//! saving.

use std::io::{self, Write};

use forkless_diagnose::{DiagnosisReport, Estimate, Finding};

use super::{EndReason, remedy};

/// Frames to print. Stacks are long, and the frames near the call matter.
const FRAMES: usize = 8;

pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport, reason: EndReason) -> io::Result<()> {
    if reason == EndReason::Interrupted {
        writeln!(out, "PARTIAL: interrupted after {:.1} s", report.window_ns as f64 / 1e9)?;
    }
    let c = report.creations;
    writeln!(
        out,
        "{:.1} s watched by {}: {} process creations ({} full forks that exec, {} that do not, {} sharing memory), {} threads, {} events lost",
        report.window_ns as f64 / 1e9,
        report.tier,
        report.totals.creations,
        c.full_fork_then_exec,
        c.full_fork_alone,
        c.shared_memory,
        report.totals.threads,
        report.totals.lost(),
    )?;
    if c.speculated > 0 {
        writeln!(out, "{} forks were speculated by `forkless run`.", c.speculated)?;
    }
    for limit in &report.limits {
        writeln!(out, "LIMITED: {limit}")?;
    }
    if !report.system_calls && report.limits.is_empty() {
        writeln!(out, "System calls were not counted (--system-calls yes does): no findings about them.")?;
    }
    if report.findings.is_empty() {
        return writeln!(out, "Nothing found.");
    }
    for (rank, finding) in report.findings.iter().enumerate() {
        writeln!(out)?;
        let mut text = Vec::new();
        print_finding(&mut text, rank + 1, report, finding)?;
        out.write_all(plain(&String::from_utf8_lossy(&text)).as_bytes())?;
    }
    Ok(())
}

/// Names, paths and lines of watched processes are in a finding, and may be anything: none of it
/// may control the terminal.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

fn print_finding(out: &mut impl Write, rank: usize, report: &DiagnosisReport, f: &Finding) -> io::Result<()> {
    writeln!(out, "{rank}. {}", f.title)?;
    let mut who = format!("pid {}", f.pid);
    if f.processes > 1 {
        who += &format!(" and {} more", f.processes - 1);
    }
    if let Some(exe) = &f.process.exe {
        who += &format!(", {exe}");
    }
    if let Some(container) = &f.process.container {
        who += &format!(", container {container}");
    }
    if let Some(unit) = &f.process.unit {
        who += &format!(", unit {unit}");
    }
    writeln!(out, "   who      {who}")?;
    // Faults may not have been counted: a 0 would say that there were none.
    let faults = match f.cost.faults_ns {
        0.0 => String::new(),
        ns => format!(", {} in faults afterwards", time(ns)),
    };
    writeln!(
        out,
        "   cost     {:.2} % of a CPU: {} in the caller, {} in children{faults}, over {} times",
        f.cost.cpu_share * 100.0,
        time(f.cost.caller_ns),
        time(f.cost.child_ns),
        f.count,
    )?;
    for evidence in &f.evidence {
        writeln!(out, "   evidence {}: {}", evidence.what, evidence.value)?;
    }
    match f.call_site.split_first() {
        None => writeln!(out, "   from     (no stack: the process was gone, or the calls were too few)")?,
        Some((first, rest)) => {
            writeln!(out, "   from     {first}")?;
            for frame in rest.iter().take(FRAMES - 1) {
                writeln!(out, "            {frame}")?;
            }
        }
    }
    writeln!(out, "   because  {}", f.reason)?;
    writeln!(out, "   remedy   {}", remedy::sentence(f))?;
    writeln!(
        out,
        "   saves    {} each time{}; {} of a CPU",
        range(f.saving_each_ns, time),
        if f.saving_in_caller_ns.mid > 0.0 && f.saving_in_caller_ns != f.saving_each_ns {
            format!(", {} of it in the caller", time(f.saving_in_caller_ns.mid))
        } else {
            String::new()
        },
        range(f.saving_share, percent)
    )?;
    writeln!(out, "   command  {}", remedy::command(report, f))
}

fn range(estimate: Estimate, show: fn(f64) -> String) -> String {
    format!("{} ({} to {})", show(estimate.mid), show(estimate.low), show(estimate.high))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn time(ns: f64) -> String {
    super::log::duration(ns.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(super::plain("a\x1b[2Jb\u{9b}c\td\n"), "a\\u{1b}[2Jb\\u{9b}c\\td\n");
    }
}
