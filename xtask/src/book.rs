//! The guide as a book. Its order, `docs/SUMMARY.md`, names every page below `docs`. Where mdBook
//! is installed, the book is built, and every link and anchor of the HTML leads somewhere.
//!
//! mdBook is no dependency: building it takes longer than all other checks. `./x book` installs it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::tree;

const ROOM: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Mistakes of the summary: pages that it lacks, names twice, or that are not there.
pub(crate) fn mistakes() -> Result<Vec<String>> {
    let summary = tree::text(Path::new(SUMMARY))?.with_context(|| format!("{SUMMARY}: not text"))?;
    let pages = tree::files()?
        .into_iter()
        .filter(|file| file.starts_with(ROOM) && file.extension().is_some_and(|extension| extension == "md"));
    let pages: BTreeSet<String> =
        pages.map(|file| file.display().to_string()).filter(|file| file != SUMMARY).collect();
    Ok(compare(&summary, &pages))
}

fn compare(summary: &str, pages: &BTreeSet<String>) -> Vec<String> {
    let mut named = BTreeSet::new();
    let mut found = Vec::new();
    for (number, line) in summary.lines().enumerate() {
        let Some((_, rest)) = line.split_once("](") else { continue };
        let page = format!("{ROOM}/{}", rest.trim_end_matches(')'));
        if !pages.contains(&page) {
            found.push(format!("{SUMMARY}:{}: {page} is not there", number + 1));
        }
        if !named.insert(page.clone()) {
            found.push(format!("{SUMMARY}:{}: {page} is there twice", number + 1));
        }
    }
    found.extend(pages.difference(&named).map(|page| format!("{SUMMARY}: add a line for {page}")));
    found
}

/// Builds the book, and follows every link within it.
pub(crate) fn check() -> Result<String> {
    let Some(mdbook) = mdbook() else {
        return Ok(
            "skipped: no mdbook here (./x book installs it): only the sources' links are checked".into()
        );
    };
    let root = tree::root();
    let output = Command::new(&mdbook)
        .arg("build")
        .current_dir(root)
        .output()
        .with_context(|| format!("{} does not start", mdbook.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success() && !said.contains("WARN") && !said.contains("ERROR"),
        "mdbook build: {said}"
    );
    let book = root.join("target/book");
    let mut pages = BTreeMap::new();
    read(&book, Path::new(""), &mut pages)?;
    let mut count = 0;
    let mut dead = Vec::new();
    for (page, html) in &pages {
        for target in attribute(html, "href").chain(attribute(html, "src")) {
            // The page for addresses that are not there names all by absolute paths.
            if target.contains("://") || target.starts_with("mailto:") || page == Path::new("404.html") {
                continue;
            }
            count += 1;
            if !leads_somewhere(&book, &pages, page, target) {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    if !dead.is_empty() {
        bail!(
            "dead links in the book (a page outside docs needs an address of its own):\n{}",
            dead.join("\n")
        );
    }
    ensure!(count > 1000, "{count} links in {}: has mdBook's HTML changed?", book.display());
    Ok(format!("{count} links on {} pages of the book lead somewhere", pages.len()))
}

fn mdbook() -> Option<PathBuf> {
    let own = tree::root().join("target/mdbook/bin/mdbook");
    if own.exists() {
        return Some(own);
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join("mdbook")).find(|file| file.is_file())
}

fn read(book: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(book.join(folder))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read(book, &name, pages)?;
        } else if name.extension().is_some_and(|extension| extension == "html") {
            // The whole book on one page, for printing: its links are those of the others.
            let is_all = [Path::new("print.html"), Path::new("toc.html")].contains(&name.as_path());
            if !is_all {
                pages.insert(name.clone(), fs::read_to_string(book.join(&name))?);
            }
        }
    }
    Ok(())
}

fn attribute<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    let starts: Vec<usize> = html.match_indices(&begin).map(|(at, found)| at + found.len()).collect();
    starts.into_iter().filter_map(|at| html[at..].split('"').next())
}

fn leads_somewhere(book: &Path, pages: &BTreeMap<PathBuf, String>, page: &Path, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').map_or((target, ""), |(path, anchor)| (path, anchor));
    let file = if path.is_empty() {
        page.to_owned()
    } else {
        tree::normalise(&page.parent().unwrap_or(Path::new("")).join(path))
    };
    match pages.get(&file) {
        Some(html) => anchor.is_empty() || html.contains(&format!("id=\"{anchor}\"")),
        None => book.join(&file).is_file() || ["print.html", "toc.html"].contains(&path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_missing_there_twice_or_gone_is_named() {
        let pages = ["docs/a.md", "docs/b/c.md"].map(str::to_owned).into();
        assert_eq!(compare("# S\n- [A](a.md)\n  - [C](b/c.md)\n", &pages), Vec::<String>::new());
        assert_eq!(
            compare("[A](a.md)\n[A](a.md)\n[D](d.md)\n", &pages),
            [
                "docs/SUMMARY.md:2: docs/a.md is there twice",
                "docs/SUMMARY.md:3: docs/d.md is not there",
                "docs/SUMMARY.md: add a line for docs/b/c.md"
            ]
        );
    }

    #[test]
    fn links_and_anchors_are_followed() {
        let pages: BTreeMap<PathBuf, String> = [
            (
                PathBuf::from("g/a.html"),
                "<h1 id=\"top\"><a href=\"b.html#x\"> <a href=\"../c.html\">".to_owned(),
            ),
            (PathBuf::from("g/b.html"), "<h2 id=\"x\">".to_owned()),
        ]
        .into();
        let page = Path::new("g/a.html");
        let links: Vec<&str> = attribute(&pages[page], "href").collect();
        assert_eq!(links, ["b.html#x", "../c.html"]);
        let nowhere = Path::new("/nonexistent");
        let leads = |target| leads_somewhere(nowhere, &pages, page, target);
        assert!(leads("b.html#x") && leads("#top") && leads("../g/b.html"));
        assert!(!leads("b.html#y") && !leads("../c.html") && !leads("#x"));
    }
}
