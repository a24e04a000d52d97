//! The article as one self-contained HTML page: for each experiment what its author did, what was done here, the plots and tables,
//! and what became of the claims. Light and dark by the reader's setting, nothing fetched from anywhere.

use std::fmt::Write as _;

use forkless_bench::html::{SCRIPT, STYLE, escape, table};

use super::{Article, Experiment, Verdict, text};

/// Beyond the style that the pages of `forkless bench` have.
const EXTRA: &str = "\
main{max-width:60rem}h2{margin-top:3rem}.ledger td{white-space:normal;vertical-align:top;text-align:left}\
.ledger td:nth-child(4){white-space:nowrap;font-weight:600}.holds{color:light-dark(#0a7d33,#5fd38a)}\
.differs{color:light-dark(#a15c00,#f0b35a)}.no_longer_holds{color:light-dark(#b3261e,#ff8a80)}\
.not_run{color:var(--soft)}blockquote{border-left:3px solid var(--line);margin:.5rem 0;padding:.1rem 1rem;color:var(--soft)}\
nav a{margin-right:1rem;color:var(--mark)}";

/// The page.
#[must_use]
pub fn page(article: &Article) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>forkless reproduce</title><style>{STYLE}{EXTRA}</style></head><body>\n\
         <h1>Five articles on starting processes, executed</h1>\n\
         <p>Each experiment was run again on this machine by its author's procedure. What the author claimed is held against what was \
         measured: {}.</p>\n<nav>",
        escape(&text::tally(article))
    );
    for experiment in &article.experiments {
        let _ = write!(html, "<a href=\"#{}\">{}</a>", experiment.id, experiment.id);
    }
    html.push_str("<a href=\"#machine\">Machine</a></nav>\n");
    for experiment in &article.experiments {
        section(&mut html, experiment);
    }
    html.push_str("<h2 id=machine>Machine</h2>\n<table><tbody>");
    for (name, value) in article.machine.lines() {
        let _ = write!(
            html,
            "<tr><td class=text>{}</td><td class=text>{}</td></tr>",
            escape(name),
            escape(&value)
        );
    }
    let _ = write!(
        html,
        "</tbody></table>\n<p class=legend>forkless {}, {}. Figures are medians with 95 % intervals; a bound is met only by a whole \
         interval; a size holds within a factor of {:.0} of the published one.</p>\n<script>{SCRIPT}</script></body></html>\n",
        escape(&article.version),
        text::day(article.created),
        super::ledger::SIZE
    );
    html
}

fn section(html: &mut String, experiment: &Experiment) {
    let _ = write!(
        html,
        "<h2 id={id}>{id} {}</h2>\n<blockquote><p>{}</p></blockquote>\n<p>{}</p>\n",
        escape(experiment.id.title()),
        escape(&experiment.theirs),
        escape(&experiment.ours),
        id = experiment.id,
    );
    for plot in &experiment.plots {
        let _ = writeln!(html, "{}", plot.to_svg());
    }
    if !experiment.picture.is_empty() {
        let _ = writeln!(html, "<pre>{}</pre>", escape(&experiment.picture));
    }
    for one in &experiment.tables {
        let _ = writeln!(html, "<h3>{}</h3>", escape(&one.title));
        table(html, &one.grid);
    }
    html.push_str(
        "<h3>Claims</h3>\n<div class=scroll><table class=ledger><thead><tr><th></th><th class=text>claim</th>\
         <th class=text>published</th><th class=text>verdict</th><th class=text>measured here</th><th class=text>why</th></tr>\
         </thead><tbody>",
    );
    for claim in &experiment.claims {
        let class = match claim.verdict {
            Verdict::Holds => "holds",
            Verdict::NoLongerHolds => "no_longer_holds",
            Verdict::Differs => "differs",
            Verdict::NotRun => "not_run",
        };
        let figures: Vec<String> =
            text::figures(experiment, claim).iter().map(|figure| escape(figure)).collect();
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class={class}>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&claim.id),
            escape(&claim.claim),
            escape(&claim.published),
            claim.verdict.words(),
            figures.join("<br>"),
            escape(&claim.reason)
        );
    }
    html.push_str("</tbody></table></div>\n");
    for line in text::remarks(experiment) {
        let _ = writeln!(html, "<p class=note>{}</p>", escape(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{Figure, Id, Options, ledger};

    #[test]
    fn the_page_has_every_claim_escapes_and_fetches_nothing() {
        let mut article = Article::begin();
        for id in Id::ALL {
            let mut experiment = Experiment::begin(id, &Options::default(), "They <b>did</b>.", "We do.");
            experiment.add(Figure::exact("vdso.sigprocmask", "<script>", "", 0.0));
            experiment.claims = ledger::judge(&experiment);
            article.put(experiment);
        }
        let page = page(&article);
        for claim in article.claims() {
            assert!(page.contains(&format!("<td>{}</td>", claim.id)), "{}", claim.id);
        }
        assert!(!page.contains("<b>did") && page.contains("&lt;script&gt;"));
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
    }
}
