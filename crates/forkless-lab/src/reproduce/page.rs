//! The article as one self-contained HTML page: for each experiment the author's procedure, the
//! procedure here, plots, tables, and the verdicts on the claims.

use forkless_bench::html_page::{self, table};
use maud::{Markup, html};

use super::{Article, ClaimVerdict, Experiment, ledger, text};

/// Beyond the style that all pages have.
const STYLE: &str = include_str!("page.css");

/// The page.
#[must_use]
pub fn page(article: &Article) -> String {
    let content = html! {
        h1 { "Five articles on starting processes, executed" }
        p {
            "Each experiment was run again on this machine by its author's procedure. What the author claimed is held against \
             what was measured: " (text::tally(article)) "."
        }
        nav {
            @for experiment in &article.experiments { a href={ "#" (experiment.id) } { (experiment.id) } }
            a href="#machine" { "Machine" }
        }
        @for experiment in &article.experiments { (section(experiment)) }
        h2 #machine { "Machine" }
        (html_page::machine(&article.machine))
        p.legend {
            "forkless " (article.version) ", " (text::day(article.created)) ". Figures are medians with 95 % intervals within one run; a bound \
             is met only by a whole interval; a size holds within a factor of " (format!("{:.0}", ledger::SIZE)) " of the \
             published one."
        }
    };
    html_page::page("forkless reproduce", STYLE, &content)
}

fn section(experiment: &Experiment) -> Markup {
    html! {
        h2 id=(experiment.id) { (experiment.id) " " (experiment.id.title()) }
        blockquote { p { (experiment.theirs) } }
        p { (experiment.ours) }
        @for plot in &experiment.plots { (plot.to_html()) }
        @if !experiment.picture.is_empty() { pre { (experiment.picture) } }
        @for one in &experiment.tables {
            h3 { (one.title) }
            (table(&one.grid))
        }
        h3 { "Claims" }
        div.scroll {
            table.ledger {
                thead {
                    tr {
                        th {}
                        @for head in ["claim", "published", "verdict", "measured here", "why"] { th.text { (head) } }
                    }
                }
                tbody {
                    @for claim in &experiment.claims {
                        tr {
                            td { (claim.id) }
                            td { (claim.claim) }
                            td { (claim.published) }
                            td class=(class(claim.verdict)) { (claim.verdict.words()) }
                            td {
                                @for (index, figure) in text::figures(experiment, claim).iter().enumerate() {
                                    @if index > 0 { br; }
                                    (figure)
                                }
                            }
                            td { (claim.reason) }
                        }
                    }
                }
            }
        }
        @for line in text::remarks(experiment) { p.note { (line) } }
    }
}

fn class(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Holds => "holds",
        ClaimVerdict::NoLongerHolds => "no_longer_holds",
        ClaimVerdict::Differs => "differs",
        ClaimVerdict::NotRun => "not_run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::{Figure, Id, ReproduceOptions, ledger};

    #[test]
    fn the_page_has_every_claim_escapes_and_fetches_nothing() {
        let mut article = Article::begin();
        for id in Id::ALL {
            let mut experiment =
                Experiment::begin(id, &ReproduceOptions::default(), "They <b>did</b>.", "We do.");
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
