//! The view while a watch runs, on a terminal only: the findings so far, the largest first, renewed
//! each second.

use std::io::{self, Write};

use forkless_diagnose::DiagnosisReport;

/// The size if the terminal does not tell it.
const DEFAULT_SIZE: (usize, usize) = (24, 80);

/// Rows and columns of standard output.
fn size() -> (usize, usize) {
    rustix::termios::tcgetwinsize(io::stdout())
        .ok()
        .filter(|size| size.ws_row > 2 && size.ws_col > 20)
        .map_or(DEFAULT_SIZE, |size| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

/// Draws over the last picture.
pub(super) fn draw(out: &mut impl Write, report: &DiagnosisReport) -> io::Result<()> {
    let (rows, columns) = size();
    let picture = picture(report, rows, columns);
    // Go home, erase the rest of each line, then everything below. So an empty screen never
    // flickers.
    write!(out, "\x1b[H")?;
    for line in picture {
        write!(out, "{line}\x1b[K\r\n")?;
    }
    write!(out, "\x1b[J")?;
    out.flush()
}

/// Removes the picture.
pub(super) fn clear(out: &mut impl Write) -> io::Result<()> {
    write!(out, "\x1b[H\x1b[J")?;
    out.flush()
}

fn picture(report: &DiagnosisReport, rows: usize, columns: usize) -> Vec<String> {
    let c = report.creations;
    let mut lines = vec![
        format!(
            "forkless diagnose  {:.0} s  {}  lost {}   (^C: full report)",
            report.window_ns as f64 / 1e9,
            report.tier,
            report.totals.lost()
        ),
        format!(
            "created {}: {} forks that exec, {} that do not, {} sharing memory",
            report.totals.creations, c.full_fork_then_exec, c.full_fork_alone, c.shared_memory,
        ),
        "saves CPU   each        a second  finding".to_owned(),
    ];
    for finding in &report.findings {
        lines.push(format!(
            "{:8.2} %  {:>10}  {:8.1}  {}",
            finding.saving_share.mid * 100.0,
            super::duration_ns(finding.saving_each_ns.mid),
            finding.per_second,
            finding.title
        ));
    }
    if report.findings.is_empty() {
        lines.push("nothing found so far".to_owned());
    }
    lines.truncate(rows.saturating_sub(1));
    for line in &mut lines {
        // A title may hold a command line of the watched process: none of it may control the
        // terminal.
        *line = line.chars().map(|c| if c.is_control() { '?' } else { c }).take(columns - 1).collect();
    }
    lines
}
