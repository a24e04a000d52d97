//! The article in characters: for the terminal, and as GitHub-flavoured Markdown.

use std::fmt::Write as _;

use forkless_bench::render::{Grid, cut, folded, number};

use super::{Article, ClaimVerdict, Experiment, Figure, Judged};

/// A figure with its interval and unit: `9.27 [9.11, 9.40] x`.
#[must_use]
pub(crate) fn figure(figure: &Figure) -> String {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    match figure.ci95 {
        // A count is a whole number, and written as one.
        None if figure.value.fract() == 0.0 => format!("{:.0}{unit}", figure.value),
        None => format!("{}{unit}", number(figure.value)),
        // A single round: no interval.
        Some([low, _]) if low <= f64::MIN => format!("{} (one round){unit}", number(figure.value)),
        Some([low, high]) => {
            format!("{} [{}, {}]{unit}", number(figure.value), number(low), number(high))
        }
    }
}

/// The figures of a claim, each with its description.
#[must_use]
pub(crate) fn figures(experiment: &Experiment, claim: &Judged) -> Vec<String> {
    let known = claim.figures.iter().filter_map(|name| experiment.figure(name));
    known.map(|one| format!("{}: {}", one.about, figure(one))).collect()
}

/// The ledger of an article as a table. `short` leaves the published figures and the reasons out.
#[must_use]
pub(crate) fn ledger(article: &Article, short: bool) -> Grid {
    let heads: &[&str] = if short {
        &["", "claim", "verdict", "measured here"]
    } else {
        &["", "claim", "published", "verdict", "measured here", "why"]
    };
    let mut lines = Vec::new();
    for experiment in &article.experiments {
        for claim in &experiment.claims {
            let mut measured = figures(experiment, claim);
            if short {
                measured.truncate(2);
            }
            let mut line = vec![claim.id.clone(), claim.claim.clone()];
            if !short {
                line.push(claim.published.clone());
            }
            line.push(claim.verdict.words().to_owned());
            line.push(measured.join("; "));
            if !short {
                line.push(claim.reason.clone());
            }
            lines.push(line);
        }
    }
    let text_columns = heads.len();
    Grid { heads: heads.iter().map(|&head| head.to_owned()).collect(), lines, text_columns }
}

/// How many claims came out how: `19 hold, 4 differ, 1 no longer holds, 1 not run here`.
#[must_use]
pub(crate) fn tally(article: &Article) -> String {
    let count = |verdict| article.claims().filter(|claim| claim.verdict == verdict).count();
    let words =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    [
        words(count(ClaimVerdict::Holds), "holds", "hold"),
        words(count(ClaimVerdict::Differs), "differs", "differ"),
        words(count(ClaimVerdict::NoLongerHolds), "no longer holds", "no longer hold"),
        words(count(ClaimVerdict::NotRun), "not run here", "not run here"),
    ]
    .join(", ")
}

/// Everything for a terminal of the given width.
#[must_use]
pub fn terminal(article: &Article, width: u16) -> String {
    let mut text = String::new();
    for experiment in &article.experiments {
        let _ = writeln!(text, "{}  {}\n", experiment.id, experiment.id.title());
        for table in &experiment.tables {
            let _ = writeln!(text, "{}\n{}\n", folded(&table.title, width), table.grid.to_terminal(width));
        }
        if !experiment.picture.is_empty() {
            let _ = writeln!(text, "{}", cut(&experiment.picture, width));
        }
        for line in remarks(experiment) {
            let _ = writeln!(text, "{}", folded(&format!("note: {line}"), width));
        }
        text.push('\n');
    }
    let mut ledger = ledger(article, false);
    // In one column: six have no room in a pipe's hundred letters.
    ledger.heads.pop();
    ledger.text_columns -= 1;
    for line in &mut ledger.lines {
        let why = line.pop().unwrap_or_default();
        if let Some(measured) = line.last_mut() {
            let separator = if measured.is_empty() || why.is_empty() { "" } else { ": " };
            *measured = format!("{measured}{separator}{why}");
        }
    }
    if let Some(head) = ledger.heads.last_mut() {
        head.push_str(", and why");
    }
    let _ = writeln!(text, "The ledger of claims\n{}\n{}", ledger.to_terminal(width), tally(article));
    text
}

/// The ledger alone, for the end of something longer.
#[must_use]
pub fn short(article: &Article, width: u16) -> String {
    format!("{}\n{}\n", ledger(article, true).to_terminal(width), tally(article))
}

/// What was scaled down, and the notes.
#[must_use]
pub(crate) fn remarks(experiment: &Experiment) -> Vec<String> {
    let scaled = experiment.scaled.iter().map(|line| format!("scaled down: {line}"));
    scaled.chain(experiment.notes.iter().cloned()).collect()
}

/// When an experiment was run: `2026-11-22`.
#[must_use]
pub(crate) fn day(seconds: u64) -> String {
    let stamp = forkless_bench::store::timestamp(seconds);
    format!("{}-{}-{}", &stamp[..4], &stamp[4..6], &stamp[6..8])
}

/// GitHub-flavoured Markdown: machine, ledger, and the tables of every experiment.
#[must_use]
pub fn markdown(article: &Article) -> String {
    let mut text = format!(
        "# The published experiments on this machine\n\nWritten by `forkless reproduce`, {}. {}.\n\n## Machine\n\n| | |\n|:--|:--|\n",
        day(article.created),
        tally(article)
    );
    for (name, value) in article.machine.lines() {
        if name != "boot" {
            let _ = writeln!(text, "| {name} | {value} |");
        }
    }
    let _ = write!(text, "\n## Ledger\n\n{}", ledger(article, false).to_markdown());
    let _ = writeln!(
        text,
        "\nFigures are medians with 95 % intervals within one run; a whole interval must meet a bound. A size holds within a factor of {:.0} of the \
         published one. Bounds and all figures are in the JSON form (`--json`).",
        super::ledger::SIZE
    );
    for experiment in &article.experiments {
        let _ = writeln!(
            text,
            "\n## {} {}\n\n{}\n\n{} ({}, {:.0} s{})",
            experiment.id,
            experiment.id.title(),
            experiment.theirs,
            experiment.ours,
            day(experiment.created),
            experiment.seconds,
            if experiment.quick { ", --quick" } else { "" }
        );
        for table in &experiment.tables {
            let _ = write!(text, "\n{}\n\n{}", table.title, table.grid.to_markdown());
        }
        if !experiment.picture.is_empty() {
            let _ = write!(text, "\n```\n{}```\n", experiment.picture);
        }
        let remarks = remarks(experiment);
        if !remarks.is_empty() {
            text.push('\n');
        }
        for line in remarks {
            let _ = writeln!(text, "- {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{Id, ReproduceOptions, ledger};

    fn article() -> Article {
        let mut article = Article::begin();
        let mut experiment = Experiment::begin(Id::E4, &ReproduceOptions::default(), "They did.", "We do.");
        experiment.add(Figure::exact("sigprocmask.syscalls", "kernel entries | a call", "", 1.0));
        experiment.add(Figure::exact("vdso.sigprocmask", "in the vDSO", "", 0.0));
        experiment.scaled.push("half of it".into());
        experiment.claims = ledger::judge(&experiment);
        article.put(experiment);
        article
    }

    #[test]
    fn every_claim_has_a_line_and_the_tally_counts_them() {
        let article = article();
        let text = markdown(&article);
        for claim in article.claims() {
            assert!(text.contains(&format!("| {} |", claim.id)), "{text}");
        }
        assert!(text.contains("scaled down: half of it"));
        assert!(text.contains("kernel entries \\| a call: 1"), "{text}");
        assert_eq!(tally(&article), "1 holds, 0 differ, 0 no longer hold, 3 not run here");
        assert!(terminal(&article, 120).contains("not run here"));
        assert!(short(&article, 120).lines().count() > 4);
    }

    #[test]
    fn a_figure_shows_its_interval_and_a_count_its_number() {
        let with = |value, ci95| Figure { value, ci95, ..Figure::exact("x", "", "ms", 0.0) };
        assert_eq!(figure(&with(3.0, None)), "3 ms");
        assert_eq!(figure(&with(2.5, None)), "2.50 ms");
        assert_eq!(figure(&with(2.5, Some([2.0, 3.0]))), "2.50 [2.00, 3.00] ms");
        assert_eq!(figure(&with(2.5, Some([f64::MIN, f64::MAX]))), "2.50 (one round) ms");
    }
}
