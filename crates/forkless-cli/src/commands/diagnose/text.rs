//! The report for people, ranked. A finding is short: what it is, where, its cost, what to do, the
//! command and the saving. Its evidence is printed on request.

use std::io::{self, Write};

use forkless_diagnose::{Cost, DiagnosisReport, Estimate, Finding, LineShare, Tier};

use super::{EndReason, duration, duration_ns, remedy};
use crate::terminal::{self, in_line};

/// Frames to print. Stacks are long, and the frames near the call matter.
const FRAMES: usize = 8;

pub(super) fn print(
    out: &mut impl Write,
    report: &DiagnosisReport,
    reason: EndReason,
    verbose: bool,
    width: u16,
) -> io::Result<()> {
    let mut text = Vec::new();
    print_report(&mut text, report, reason, verbose)?;
    let text = terminal::plain(&String::from_utf8_lossy(&text));
    out.write_all(folded(&text, usize::from(width)).as_bytes())
}

/// The report in lines of this width. A command stays on its line, to be copied.
fn folded(text: &str, width: usize) -> String {
    text.lines()
        .map(|line| if line.starts_with(COMMAND) { format!("{line}\n") } else { fold(line, width) })
        .collect()
}

/// What stands before a command.
const COMMAND: &str = "   command  ";

/// A line in several, each of which begins below the text of the first, behind `   where    `. A
/// title's begin farther in than the labels below it.
fn fold(line: &str, width: usize) -> String {
    let is_labelled = line.starts_with("   ");
    let indent = match line.split_once(". ") {
        _ if is_labelled => COMMAND.len(),
        Some((rank, _)) if rank.parse::<usize>().is_ok() => rank.len() + 4,
        _ => 2,
    };
    // What follows a label may begin with blanks.
    let head = if is_labelled { line.char_indices().nth(indent).map_or(line.len(), |(at, _)| at) } else { 0 };
    terminal::fold_below(&line[..head], &line[head..], indent, width)
}

fn print_report(
    out: &mut impl Write,
    report: &DiagnosisReport,
    reason: EndReason,
    verbose: bool,
) -> io::Result<()> {
    if reason == EndReason::Interrupted {
        writeln!(out, "PARTIAL: interrupted after {:.1} s", report.window_ns as f64 / 1e9)?;
    }
    if let Some(left) = left(report, reason) {
        writeln!(out, "PARTIAL: {left}")?;
    }
    writeln!(out, "{}", counts(report))?;
    writeln!(out, "{}", in_line(&starts(report)))?;
    if report.creations.speculated > 0 {
        writeln!(out, "{} forks were speculated by `forkless run`.", report.creations.speculated)?;
    }
    if verbose {
        for refused in &report.refused {
            writeln!(
                out,
                "REFUSED: {}: {}",
                refused.tier,
                refused.refused.as_deref().unwrap_or("no reason")
            )?;
        }
        for limit in &report.limits {
            writeln!(out, "LIMITED: {limit}")?;
        }
    } else if let Some(limit) = report.limits.first() {
        writeln!(out, "LIMITED: {limit} (--verbose says more)")?;
    }
    for loss in &report.losses {
        writeln!(out, "MISSED: {loss}")?;
    }
    if !report.system_calls && report.limits.is_empty() {
        writeln!(out, "System calls were not counted (--system-calls yes does): no findings about them.")?;
    }
    if report.findings.is_empty() {
        return writeln!(out, "Nothing found.");
    }
    for (rank, finding) in report.findings.iter().enumerate() {
        writeln!(out)?;
        print_finding(out, rank + 1, report, finding, verbose)?;
    }
    Ok(())
}

/// The descendants of a command that go on after its end, and how to watch one.
pub(super) fn left(report: &DiagnosisReport, reason: EndReason) -> Option<String> {
    let (EndReason::TargetEnded, [first, rest @ ..]) = (reason, &report.still_running[..]) else {
        return None;
    };
    Some(match rest.len() {
        0 => format!("1 descendant still runs; watch it by `forkless diagnose -p {first}`"),
        more => {
            let all = more + 1;
            format!("{all} descendants still run; watch the first by `forkless diagnose -p {first}`")
        }
    })
}

/// What was watched, and what was counted: what the tier does not count is left out.
pub(super) fn counts(report: &DiagnosisReport) -> String {
    let c = report.creations;
    let threads = report.totals.threads.map(|threads| format!(", {threads} threads")).unwrap_or_default();
    // A command may be over at once.
    let window = match report.window_ns {
        short @ ..1_000_000_000 => duration(short),
        long => format!("{:.1} s", long as f64 / 1e9),
    };
    // A fork for an exec that fails is one all the same.
    let or_try = if report.starts.exec_failed.is_some_and(|failed| failed > 0) { " or try to" } else { "" };
    format!(
        "{window} watched by {}: {} ({} full forks that exec{or_try}, {} that do not, {} sharing memory){threads}, {} events lost",
        report.tier,
        super::creations(report.totals.creations),
        c.full_fork_then_exec,
        c.full_fork_alone,
        c.shared_memory,
        report.totals.lost(),
    )
}

/// How many programs were started, by whom, and what that cost.
pub(super) fn starts(report: &DiagnosisReport) -> String {
    /// Starters and programs that are named in one line.
    const NAMED: usize = 3;
    let starts = &report.starts;
    let is_least = report.tier == Tier::Procfs || report.totals.lost() > 0;
    let cost = format!("some {} in all, {} of a CPU", duration_ns(starts.cost_ns), percent(starts.cpu_share));
    let without = match starts.without_program {
        0 => String::new(),
        1 => "1 process ran no program of its own".to_owned(),
        processes => format!("{processes} processes ran no program of their own"),
    };
    let without = match starts.exec_failed.unwrap_or(0) {
        0 => without,
        1 if starts.without_program == 1 => format!("{without}, as its exec failed"),
        1 => format!("{without}, 1 of them because its exec failed"),
        failed if failed == starts.without_program => format!("{without}, as their execs failed"),
        failed => format!("{without}, {failed} of them because their execs failed"),
    };
    if starts.programs == 0 {
        return if without.is_empty() {
            // The sampler misses the programs that end at once.
            let none = if is_least { "No start of a program was seen." } else { "No program was started." };
            none.to_owned()
        } else {
            format!("No program was started; {without}: {cost}.")
        };
    }
    let mut by: Vec<String> = starts
        .starters
        .iter()
        .take(NAMED)
        .map(|starter| {
            let started = starter.started.iter().take(NAMED);
            let started: Vec<String> = started.map(|(name, count)| format!("{name} {count}")).collect();
            format!("{} by {} ({})", starter.programs, starter.name, started.join(", "))
        })
        .collect();
    let named: u64 = starts.starters.iter().take(NAMED).map(|starter| starter.programs).sum();
    if starts.programs > named {
        by.push(format!("{} by others", starts.programs - named));
    }
    let least = if is_least { "At least " } else { "" };
    let subject = match starts.programs {
        1 => format!("{least}1 program was"),
        programs => format!("{least}{programs} programs were"),
    };
    let without = if without.is_empty() { without } else { format!("; {without}") };
    format!("{subject} started: {}{without}. Creating and executing them took {cost}.", by.join(", "))
}

fn print_finding(
    out: &mut impl Write,
    rank: usize,
    report: &DiagnosisReport,
    f: &Finding,
    verbose: bool,
) -> io::Result<()> {
    writeln!(out, "{rank}. {}", in_line(&f.title))?;
    writeln!(out, "   where    {}", in_line(&at(f)))?;
    if verbose {
        writeln!(out, "   who      {}", in_line(&who(f)))?;
    }
    writeln!(out, "   cost     {}", cost(f))?;
    if verbose {
        print_evidence(out, f)?;
    }
    writeln!(out, "   remedy   {}", in_line(&remedy::sentence(f)))?;
    writeln!(out, "{COMMAND}{}", in_line(&remedy::command(report, f)))?;
    let in_caller = f.saving_in_caller_ns.filter(|part| part.mid > 0.0 && *part != f.saving_each_ns);
    writeln!(
        out,
        "   saves    {} each time{}; {} of a CPU",
        range(f.saving_each_ns, duration_ns),
        in_caller.map(|part| format!(", {} of it in the caller", duration_ns(part.mid))).unwrap_or_default(),
        range(f.saving_share, percent)
    )
}

fn print_evidence(out: &mut impl Write, f: &Finding) -> io::Result<()> {
    for evidence in &f.evidence {
        writeln!(out, "   evidence {}: {}", evidence.what, in_line(&evidence.value))?;
    }
    match f.stack.split_first() {
        None => writeln!(out, "   from     (no stack: the process was gone, or the calls were too few)")?,
        Some((first, rest)) => {
            writeln!(out, "   from     {}", in_line(&first.to_string()))?;
            for frame in rest.iter().take(FRAMES - 1) {
                writeln!(out, "            {}", in_line(&frame.to_string()))?;
            }
        }
    }
    writeln!(out, "   because  {}", f.reason)
}

/// The place in the program, and its processes. Where several lines matter, all of them with their
/// shares.
pub(super) fn at(f: &Finding) -> String {
    let place = several(&f.lines).unwrap_or_else(|| {
        let unknown = f.unknown_place().map(|why| format!("not known ({why}), "));
        f.place().map(|frame| format!("{frame}, ")).or(unknown).unwrap_or_default()
    });
    let unread = f.unread_line().map(|line| format!("{line} is not known, ")).unwrap_or_default();
    let of_others = if f.is_place_of_others() { "sampled at other forks, too, " } else { "" };
    format!("{place}{of_others}{unread}{}", owner(f))
}

/// The lines that matter, if there are several.
fn several(lines: &[LineShare]) -> Option<String> {
    /// A line that makes less does not matter.
    const LEAST: f64 = 0.1;
    let shown: Vec<&LineShare> = lines.iter().filter(|line| line.share >= LEAST).collect();
    if shown.len() < 2 {
        return None;
    }
    let others = 1.0 - shown.iter().map(|line| line.share).sum::<f64>();
    let others = (others >= 0.005).then(|| format!("other lines {:.0} %, ", others * 100.0));
    let each = |line: &&LineShare| format!("{} {:.0} %, ", line.place, line.share * 100.0);
    Some(shown.iter().map(each).chain(others).collect())
}

/// The processes, and what they belong to.
fn owner(f: &Finding) -> String {
    let mut owner = format!("pid {}", f.pid);
    if f.processes > 1 {
        owner += &format!(" and {} more", f.processes - 1);
    }
    if let Some(container) = &f.process.container {
        owner += &format!(", container {container}");
    }
    if let Some(unit) = &f.process.unit {
        owner += &format!(", unit {unit}");
    }
    owner
}

/// The same with the program and its arguments.
pub(super) fn who(f: &Finding) -> String {
    let mut who = owner(f);
    if let Some(exe) = &f.process.exe {
        who += &format!(", {exe}");
    }
    if f.process.arguments.iter().any(|word| !word.is_empty()) {
        who += &format!(", started as {}", f.process.arguments.join(" ").trim_end());
    }
    who
}

/// The cost, and how often it came.
pub(super) fn cost(f: &Finding) -> String {
    let times = if f.count == 1 { "once".to_owned() } else { format!("over {} times", f.count) };
    format!("{:.2} % of a CPU{}, {times}", f.cost.cpu_share * 100.0, parts(f.cost))
}

/// The measured and priced parts of a cost. A part that is not known is left out: a 0 would say
/// that there was none.
fn parts(cost: Cost) -> String {
    let parts = [
        (cost.caller_ns, "in the caller"),
        (cost.child_ns, "in children"),
        (cost.faults_ns.filter(|ns| *ns > 0.0), "in faults afterwards"),
        (cost.others_ns, "in other threads of the caller"),
    ];
    let known: Vec<String> =
        parts.iter().filter_map(|(ns, whose)| Some(format!("{} {whose}", duration_ns((*ns)?)))).collect();
    if known.is_empty() { String::new() } else { format!(": {}", known.join(", ")) }
}

/// Where it may be nothing, as with a remedy that holds only under a condition, the middle is
/// between two cases, and is none that comes.
pub(super) fn range(estimate: Estimate, show: fn(f64) -> String) -> String {
    if !estimate.has_interval() {
        return show(estimate.mid);
    }
    if estimate.low <= 0.0 {
        return format!("up to {}", show(estimate.high));
    }
    format!("{} ({} to {})", show(estimate.mid), show(estimate.low), show(estimate.high))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `cp` that may or may not be given many files saved "716 us (0 ns to 1.50 ms)".
    #[test]
    fn what_may_be_nothing_has_no_middle() {
        let of = |low, mid, high| range(Estimate { low, mid, high }, duration_ns);
        assert_eq!(of(0.0, 7e5, 15e5), format!("up to {}", duration_ns(15e5)));
        assert_eq!(of(1e3, 7e5, 15e5).matches(" to ").count(), 1);
        assert_eq!(of(0.0, 0.0, 0.0), duration_ns(0.0));
    }

    /// Regression: a terminal of 80 columns got lines of 153.
    #[test]
    fn a_report_fits_its_width() {
        let remedy = format!("   remedy   {}", "words that say it ".repeat(20).trim_end());
        let title = format!("12. {}", "a title ".repeat(30).trim_end());
        let command = format!("   command  {}", "word ".repeat(40).trim_end());
        let path = format!("/srv/{}", "x".repeat(120));
        let text = format!("{title}\n{remedy}\n   where    {path}\n{command}\n\nNothing found.\n");
        for width in [40, 80, 100] {
            let lines = folded(&text, width);
            let is_one = |line: &&str| line.chars().count() > width && !line.contains("word word");
            let long: Vec<&str> = lines.lines().filter(is_one).collect();
            assert_eq!(long, [format!("   where    {path}")], "a word is not cut");
            assert!(lines.contains(&command) && lines.ends_with("\n\nNothing found.\n"), "{lines}");
            let second = |first: &str| lines.lines().skip_while(|line| !line.starts_with(first)).nth(1);
            assert!(second("   remedy").is_some_and(|line| line.starts_with(&" ".repeat(12))), "{lines}");
            assert!(second("12. ").is_some_and(|line| line.starts_with("    ")), "{lines}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&lines), words(&text));
        }
    }

    #[test]
    fn a_part_of_the_cost_that_is_not_known_is_left_out() {
        let some = Cost { child_ns: Some(2e6), cpu_share: 0.1, ..Cost::default() };
        assert_eq!(parts(some), ": 2.00 ms in children");
        assert_eq!(parts(Cost::default()), "");
    }

    /// The guide promises each line with a tenth of the forks. Three were named at most.
    #[test]
    fn each_line_with_a_tenth_is_named_and_what_is_not_known_beside_them() {
        let line = |place: &str, share| LineShare { place: place.to_owned(), share };
        let five = ["a", "b", "c", "d", "e"].map(|place| line(place, 0.16));
        let all = [&five[..], &[line("f", 0.09), line(LineShare::NOT_KNOWN, 0.11)]].concat();
        let named = "a 16 %, b 16 %, c 16 %, d 16 %, e 16 %, not known 11 %, other lines 9 %, ";
        assert_eq!(several(&all).as_deref(), Some(named));
        let half = [line("a", 0.5), line(LineShare::NOT_KNOWN, 0.5)];
        assert_eq!(several(&half).as_deref(), Some("a 50 %, not known 50 %, "));
        assert_eq!(several(&[line("a", 0.95), line("b", 0.05)]), None);
    }
}
