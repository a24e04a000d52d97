//! Every public function, method, struct, enum, union and trait of the crate `forkless` has an
//! example in its documentation, which `cargo test` runs.
//!
//! It reads each file by itself. Public is every item with `pub`: CI denies the lint
//! `unreachable_pub`. It does not see items that a macro makes, or that `pub use` publishes from
//! elsewhere. Methods of a trait, constants and type aliases need no example. Reviewers judge
//! whether an example shows anything.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use proc_macro2::Span;
use syn::{Attribute, Expr, ExprLit, ImplItem, Item, Lit, Meta, Visibility};

use crate::tree;

/// Other crates are for this workspace alone. The C header's examples are tested by forkless-capi.
const SOURCES: &str = "crates/forkless/src";

pub(crate) fn check() -> Result<String> {
    let mut count = 0;
    let mut without = Vec::new();
    let is_source = |file: &PathBuf| {
        file.starts_with(SOURCES) && file.extension().is_some_and(|extension| extension == "rs")
    };
    for file in tree::files()?.into_iter().filter(is_source) {
        let text = tree::text(&file)?.with_context(|| format!("{}: not text", file.display()))?;
        let items = public_items(&text).with_context(|| file.display().to_string())?;
        count += items.len();
        let bare = items.iter().filter(|item| !item.example);
        without.extend(bare.map(|item| format!("{}:{}: {}", file.display(), item.line, item.name)));
    }
    ensure!(count > 0, "{SOURCES}: no public item: has the crate moved?");
    if !without.is_empty() {
        bail!(
            "public items without an example that is run as a test (write one, or make them private):\n{}",
            without.join("\n")
        );
    }
    Ok(format!("{count} public items of forkless have an example"))
}

#[derive(Debug, PartialEq, Eq)]
struct Public {
    line: usize,
    name: String,
    example: bool,
}

fn public_items(source: &str) -> Result<Vec<Public>> {
    let file = syn::parse_file(source).map_err(|error| {
        let at = error.span().start();
        anyhow::anyhow!("{}:{}: {error}", at.line, at.column + 1)
    })?;
    let mut found = Vec::new();
    collect(&file.items, &mut found);
    Ok(found)
}

fn collect(items: &[Item], found: &mut Vec<Public>) {
    for item in items {
        match item {
            Item::Fn(it) => add(found, &it.vis, &it.attrs, it.sig.ident.span(), &it.sig.ident),
            Item::Struct(it) => add(found, &it.vis, &it.attrs, it.ident.span(), &it.ident),
            Item::Enum(it) => add(found, &it.vis, &it.attrs, it.ident.span(), &it.ident),
            Item::Union(it) => add(found, &it.vis, &it.attrs, it.ident.span(), &it.ident),
            Item::Trait(it) => add(found, &it.vis, &it.attrs, it.ident.span(), &it.ident),
            Item::Impl(it) if it.trait_.is_none() && !is_for_tests(&it.attrs) => {
                for item in &it.items {
                    if let ImplItem::Fn(it) = item {
                        add(found, &it.vis, &it.attrs, it.sig.ident.span(), &it.sig.ident);
                    }
                }
            }
            Item::Mod(it) if !is_for_tests(&it.attrs) => {
                collect(it.content.as_ref().map_or(&[], |(_, items)| items), found);
            }
            _ => {}
        }
    }
}

fn add(found: &mut Vec<Public>, seen: &Visibility, attrs: &[Attribute], at: Span, name: &impl ToString) {
    if !matches!(seen, Visibility::Public(_)) || is_for_tests(attrs) || is_hidden(attrs) {
        return;
    }
    found.push(Public { line: at.start().line, name: name.to_string(), example: has_example(attrs) });
}

fn is_for_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg") && attr.parse_args::<syn::Path>().is_ok_and(|what| what.is_ident("test"))
    })
}

/// `#[doc(hidden)]`: not part of the documentation, so nothing to show.
fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("doc")
            && attr.parse_args::<syn::Path>().is_ok_and(|what| what.is_ident("hidden"))
    })
}

/// Whether the comment has a block that rustdoc compiles and runs.
fn has_example(attrs: &[Attribute]) -> bool {
    let mut inside = false;
    for attr in attrs {
        let Meta::NameValue(pair) = &attr.meta else { continue };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { continue };
        if !pair.path.is_ident("doc") {
            continue;
        }
        for line in text.value().lines() {
            let Some(words) = line.trim_start().strip_prefix("```") else { continue };
            if !inside && is_run(words) {
                return true;
            }
            inside = !inside;
        }
    }
    false
}

/// What follows the back-ticks: nothing, or words of rustdoc's that leave it a test. Any other
/// names a language, or keeps it from running.
fn is_run(words: &str) -> bool {
    words.split([',', ' ']).filter(|word| !word.is_empty()).all(|word| {
        matches!(word, "rust" | "should_panic" | "compile_fail" | "standalone_crate")
            || word.starts_with("edition")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those without an example, as `line name`.
    fn bare(source: &str) -> Vec<String> {
        let items = public_items(source).unwrap();
        items.iter().filter(|item| !item.example).map(|item| format!("{} {}", item.line, item.name)).collect()
    }

    #[test]
    fn a_public_item_without_an_example_is_named_with_its_line() {
        let source = "/// Nothing to see.\n#[must_use]\npub fn one() {}\npub struct Two;\nimpl Two {\n    pub const fn three() {}\n}\n\
                      pub enum Four {}\npub trait Five {}\nmod inner {\n    pub unsafe fn six() {}\n}\npub union Seven { a: u8 }\n";
        assert_eq!(bare(source), ["3 one", "4 Two", "6 three", "8 Four", "9 Five", "11 six", "13 Seven"]);
    }

    #[test]
    fn an_example_is_a_block_that_runs() {
        for fence in ["```", "```rust", "```should_panic", "```compile_fail,edition2024"] {
            assert!(
                bare(&format!("/// It.\n///\n/// {fence}\n/// it();\n/// ```\npub fn it() {{}}")).is_empty()
            );
        }
        for fence in ["```no_run", "```ignore", "```sh", "```text"] {
            assert_eq!(bare(&format!("/// {fence}\n/// it\n/// ```\npub fn it() {{}}")), ["4 it"], "{fence}");
        }
    }

    #[test]
    fn what_nobody_outside_sees_needs_none() {
        let source = "fn a() {}\npub(crate) fn b() {}\nimpl Clone for C { fn clone(&self) -> C { C } }\nstruct C;\n#[doc(hidden)]\n\
                      pub fn d() {}\n#[cfg(test)]\nmod tests { pub fn e() {} }\npub const F: u8 = 0;\n";
        assert_eq!(public_items(source).unwrap(), []);
    }

    #[test]
    fn a_file_that_cannot_be_read_as_rust_is_an_error() {
        assert_eq!(public_items("fn a() {}\nfn 1() {}").unwrap_err().to_string(), "2:4: expected identifier");
    }
}
