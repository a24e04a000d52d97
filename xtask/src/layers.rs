//! The architecture, checked: which crate of the workspace may depend on which. The table is
//! CONTRIBUTING.md's.
//!
//! The same step checks what such a table cannot say: [`circles`], [`tool_words`], [`engine`],
//! [`width`] and [`test_variables`]. Most have a table of their own, of what is allowed or still
//! open.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{circles, engine, source, test_variables, tool_words, tree, width};

pub(crate) fn check() -> Result<String> {
    let metadata = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["metadata", "--no-deps", "--format-version=1", "--locked"])
        .current_dir(tree::root())
        .output()
        .context("cargo metadata")?;
    ensure!(
        metadata.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&metadata.stderr).trim()
    );
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let page = std::fs::read_to_string(tree::root().join("CONTRIBUTING.md"))?;
    let table = table(&page);

    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent();
        let folder =
            folder.and_then(|folder| folder.strip_prefix(tree::root()).ok()).unwrap_or(Path::new(""));
        let Some(row) = table.iter().position(|row| Path::new(row.folder) == folder) else {
            wrong.push(format!("{} has no row in the table of CONTRIBUTING.md", folder.display()));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            // Tests may reach across: they see what a user of both sees.
            if names.contains(&on) && dependency["kind"] != "dev" {
                if !table[row].may.contains(&on.strip_prefix("forkless-").unwrap_or(on)) {
                    wrong.push(format!("{name} may not depend on {on}"));
                }
                if !table[row + 1..].iter().any(|below| below.name() == on) {
                    wrong.push(format!("{name} stands below {on}, which it depends on (CONTRIBUTING.md)"));
                }
            }
        }
    }
    let crates = source::crates()?;
    wrong.extend(circles::check(&crates));
    wrong.extend(tool_words::check(&crates)?);
    wrong.extend(engine::check(&crates));
    wrong.extend(width::check()?);
    wrong.extend(test_variables::check()?);
    if !wrong.is_empty() {
        bail!("the architecture does not allow it:\n{}", wrong.join("\n"));
    }
    Ok(format!("{} crates depend only downwards, and what is open has not grown", names.len()))
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    folder: &'a str,
    /// Crates that it may depend on, without `forkless-`. What follows a semicolon is for readers.
    may: Vec<&'a str>,
}

impl Row<'_> {
    fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or_default()
    }
}

/// The rows of CONTRIBUTING.md's table, from the top.
fn table(page: &str) -> Vec<Row<'_>> {
    let (_, from) = page.split_once("\n| crate or folder |").unwrap_or_default();
    let rows = from.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let folder = cells.first()?.split('`').nth(1)?;
        let crates = cells.last()?.split(';').next()?;
        Some(Row { folder, may: crates.split(", ").collect() })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_the_crates_that_they_name() {
        let page = "text\n\n| crate or folder | purpose | may depend on |\n|---|---|---|\n\
                    | `crates/forkless-run` | starts, and `more` | forkless, sys |\n\
                    | `crates/forkless-sys` | calls | nothing; kernel types |\n| `bpf/` | C | |\n\nmore\n";
        let read = table(page);
        assert_eq!(read[0], Row { folder: "crates/forkless-run", may: vec!["forkless", "sys"] });
        assert_eq!(read[1], Row { folder: "crates/forkless-sys", may: vec!["nothing"] });
        assert_eq!((read.len(), read[0].name()), (3, "forkless-run"));
    }
}
