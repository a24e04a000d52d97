//! Checks of the tracked text: it names no path of somebody's machine, and its relative links lead
//! somewhere.
//!
//! Not lychee: CI would have to build it from source, HTTP client included, for links into this
//! tree alone.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{book, tree};

/// Paths that exist on one machine only. They are assembled here, so that this file passes its own
/// check.
fn machine_paths() -> [String; 4] {
    ["work", "root", "home", "Users"].map(|top| format!("/{top}/"))
}

/// Fails when a tracked text file names a path of the machine it was written on.
pub(crate) fn paths() -> Result<String> {
    let mut found = Vec::new();
    let files = tree::files()?;
    for file in &files {
        let Some(text) = tree::text(file)? else { continue };
        for (number, line) in text.lines().enumerate() {
            if machine_paths().iter().any(|path| names_path(line, path)) {
                found.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    if !found.is_empty() {
        bail!(
            "paths of somebody's machine (write them relative, or take them at run time):\n{}",
            found.join("\n")
        );
    }
    Ok(format!("{} files name no machine's paths", files.len()))
}

/// Whether a path in `line` begins with `path`; `target/home/` does not. An example's user
/// (`/home/user`, `/home/u`) is allowed.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let inside = before.is_some_and(|c| c.is_alphanumeric() || "/.-_}*~$".contains(c));
        let name = line[at + path.len()..].split(|c: char| !c.is_alphanumeric()).next();
        !inside && !matches!(name, Some("user" | "u"))
    })
}

/// Fails when a relative link of a Markdown page leads nowhere, or the book's order lacks a page.
pub(crate) fn links() -> Result<String> {
    let mut dead = Vec::new();
    let mut pages = 0;
    let mut count = 0;
    for file in tree::files()? {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        pages += 1;
        let Some(text) = tree::text(&file)? else { continue };
        for (number, target) in targets(&text) {
            count += 1;
            if let Err(why) = follow(&file, target) {
                dead.push(format!("{}:{number}: {target}: {why}", file.display()));
            }
        }
    }
    let mistakes = book::mistakes()?;
    if !mistakes.is_empty() {
        bail!("the book's order:\n{}", mistakes.join("\n"));
    }
    if !dead.is_empty() {
        bail!("dead links:\n{}", dead.join("\n"));
    }
    Ok(format!("{count} relative links on {pages} pages lead somewhere"))
}

/// The targets of inline links and images with their line numbers, without code and without links
/// to other sites.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            // An odd number of back-ticks before the link: it is inline code.
            if line[..at].matches('`').count() % 2 == 1 {
                continue;
            }
            let rest = &line[at + 2..];
            let target = rest[..rest.find(')').unwrap_or(rest.len())].split(' ').next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number + 1, target));
            }
        }
    }
    found
}

fn follow(page: &Path, target: &str) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() {
        page.to_owned()
    } else {
        tree::normalise(&page.parent().unwrap_or(Path::new("")).join(path))
    };
    if !tree::root().join(&file).exists() {
        return Err("no such file".to_owned());
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let text = tree::text(&file).ok().flatten().ok_or("an anchor into something that is not text")?;
    let known = text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor);
    if known { Ok(()) } else { Err("no such heading".to_owned()) }
}

/// A heading's anchor on GitHub.
fn slug(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_path_is_found_and_a_longer_path_is_not() {
        let [first, ..] = machine_paths();
        assert!(names_path(&format!("see {first}x"), &first));
        assert!(names_path(&format!("\"{first}x\""), &first));
        assert!(!names_path(&format!("target{first}x"), &first));
        assert!(!names_path(&format!("$PREFIX}}{first}x"), &first));
    }

    #[test]
    fn an_example_user_is_no_machine_path() {
        let [_, _, home, _] = machine_paths();
        assert!(!names_path(&format!("{home}user/app"), &home));
        assert!(!names_path(&format!("HOME={home}u\""), &home));
        assert!(names_path(&format!("{home}jo/app"), &home));
    }

    #[test]
    fn links_in_code_and_to_other_sites_are_left_alone() {
        let page = "[a](b.md) `[c](d)` [e](https://f)\n```\n[g](h)\n```\n![i](j.svg)";
        assert_eq!(targets(page), [(1, "b.md"), (5, "j.svg")]);
    }

    #[test]
    fn headings_become_anchors_as_github_makes_them() {
        assert_eq!(slug("## What `./x` does, and why"), "what-x-does-and-why");
    }
}
