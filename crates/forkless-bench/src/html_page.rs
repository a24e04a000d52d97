//! The common parts of all HTML pages. A page is one self-contained file, light or dark by the
//! reader's setting, and fetches nothing.

use maud::{Markup, PreEscaped, html};

use crate::machine::Machine;
use crate::render::Grid;

const STYLE: &str = include_str!("html_page/style.css");
const SORT: &str = include_str!("html_page/sort.js");
const CHOOSE: &str = include_str!("html_page/choose.js");

/// The browser itself keeps the page from fetching anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// A page with its title, rules of style beyond the common ones, and its content.
#[must_use]
pub fn page(title: &str, style: &str, content: &Markup) -> String {
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                (content)
                script { (PreEscaped(SORT)) (PreEscaped(CHOOSE)) }
            }
        }
    };
    page.into_string() + "\n"
}

/// A table that the reader can sort.
#[must_use]
pub fn table(grid: &Grid) -> Markup {
    let class = |index: usize| (index < grid.text_columns).then_some("text");
    // A sentence is wrapped between words, and a word or a figure never within itself.
    let of_cell = |index: usize, cell: &str| match class(index) {
        Some(_) if cell.chars().count() > 32 => Some("text sentence"),
        class => class,
    };
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        @for (index, head) in grid.heads.iter().enumerate() { th class=[class(index)] { (head) } }
                    }
                }
                tbody {
                    @for line in &grid.lines {
                        tr {
                            @for (index, cell) in line.iter().enumerate() { td class=[of_cell(index, cell)] { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

/// The description of a machine.
#[must_use]
pub fn machine(machine: &Machine) -> Markup {
    html! {
        div.scroll {
            table {
                tbody {
                    @for (name, value) in machine.lines() {
                        tr {
                            td.text { (name) }
                            td.value { (value) }
                        }
                    }
                }
            }
        }
    }
}
