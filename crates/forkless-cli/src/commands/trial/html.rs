//! A trial as a page: the bench's, with the verdict and its evidence above the plots.

use forkless_bench::html;
use forkless_bench::html_page;
use forkless_bench::registry::Registry;
use forkless_bench::results::Results;
use forkless_bench::trial;
use maud::html;

use super::{Shown, text, words};

/// Command lines may hold anything: all of it is escaped.
pub(super) fn page(results: &Results, shown: &Shown<'_>) -> String {
    let trial = shown.trial;
    let introduction = html! {
        h1 { "forkless try" }
        p { code { (shown.command) } }
        p { strong { (shown.verdict) } }
        @if words::recommends(trial) { p { "To have it: " code { (shown.under_run) } } }
        @if !trial.suite.rows.is_empty() {
            (html_page::table(&text::table(trial)))
            p.legend { (text::legend(trial)) }
        }
        @for line in text::facts(trial) { p { (line) } }
    };
    html::page_about("forkless try", &introduction, results, Registry(&[&[trial::SUITE]]))
}
