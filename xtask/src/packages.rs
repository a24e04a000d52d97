//! What is published and packaged says the same everywhere: one version, whole metadata, and no
//! crate that needs an unpublished one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tree;

pub(crate) fn check() -> Result<String> {
    let metadata = metadata(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let published: Vec<&Value> = packages.iter().filter(|package| is_published(package)).collect();
    let version = version()?;
    let mut wrong = Vec::new();
    for package in packages {
        if package["version"] != *version {
            wrong.push(format!("{} has version {}, not {version}", package["name"], package["version"]));
        }
    }
    for package in &published {
        wrong.extend(lacks(package));
        wrong.extend(needs_unpublished(package, packages));
    }
    let manifest = fs::read_to_string(tree::root().join("Cargo.toml"))?;
    let header = fs::read_to_string(tree::root().join("include/forkless.h"))?;
    let changelog = fs::read_to_string(tree::root().join("CHANGELOG.md"))?;
    wrong.extend(other_versions(&version, &manifest, &header, &changelog));
    for (file, before) in PAGES {
        let text = fs::read_to_string(tree::root().join(file)).with_context(|| (*file).to_owned())?;
        wrong.extend(other_version_on_page(&version, file, before, &text));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("version {version} everywhere; {} crates can be published", published.len()))
}

/// Pages and recipes that name the version, each with the words before it.
const PAGES: &[(&str, &str)] = &[
    ("README.md", "This is version "),
    ("docs/guide/install.md", "forkless-"),
    ("packaging/github-action/action.yml", "default: "),
    ("packaging/github-action/action.yml", "github-action@v"),
];

/// `cargo metadata` of this workspace.
pub(crate) fn metadata(arguments: &[&str]) -> Result<Value> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--locked"])
        .args(arguments)
        .current_dir(tree::root())
        .output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The version of the root manifest, from which all others follow.
pub(crate) fn version() -> Result<String> {
    let manifest = fs::read_to_string(tree::root().join("Cargo.toml"))?;
    let (_, rest) = manifest.split_once("[workspace.package]").context("Cargo.toml")?;
    let line = rest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    Ok(line.context("Cargo.toml: no version under [workspace.package]")?.to_owned())
}

fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// What a page of the crate on crates.io would lack.
fn lacks(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut lacks = Vec::new();
    for field in ["description", "license", "repository", "rust_version"] {
        if package[field].as_str().unwrap_or_default().is_empty() {
            lacks.push(format!("{name} has no {field}"));
        }
    }
    for (field, most) in [("keywords", 5), ("categories", 5), ("authors", usize::MAX)] {
        let count = package[field].as_array().map_or(0, Vec::len);
        if count == 0 || count > most {
            lacks.push(format!("{name} has {count} {field}"));
        }
    }
    let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent();
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        if !folder.is_some_and(|folder| folder.join(file).is_file()) {
            lacks.push(format!("{name} has no {file}"));
        }
    }
    lacks
}

fn needs_unpublished(package: &Value, all: &[Value]) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
    // Tests do not go to those who depend on the crate.
    let needed = dependencies.iter().filter(|dependency| dependency["kind"] != "dev");
    needed
        .filter(|needed| all.iter().any(|one| one["name"] == needed["name"] && !is_published(one)))
        .map(|needed| format!("{} needs {}, which is not published", package["name"], needed["name"]))
        .collect()
}

/// Places that must repeat the version, because their readers do not know cargo.
fn other_versions(version: &str, manifest: &str, header: &str, changelog: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in manifest.lines().filter(|line| line.contains("path = \"crates/")) {
        if !line.contains(&format!("version = \"{version}\"")) {
            wrong.push(format!("Cargo.toml: {line}: not version {version}"));
        }
    }
    for (part, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(version.split('.')) {
        let define = format!("#define FORKLESS_VERSION_{part} {number}");
        if !header.lines().any(|line| line == define) {
            wrong.push(format!("include/forkless.h does not say `{define}`"));
        }
    }
    if !changelog.lines().any(|line| line.starts_with(&format!("## [{version}] - 20"))) {
        wrong.push(format!("CHANGELOG.md has no heading `## [{version}] - DATE`"));
    }
    wrong
}

/// What a page says instead of the version. It must say it once at least.
fn other_version_on_page(version: &str, file: &str, before: &str, text: &str) -> Option<String> {
    let said: Vec<&str> = text
        .match_indices(before)
        .map(|(at, _)| &text[at + before.len()..])
        .filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        .collect();
    let is_version = |rest: &&&str| {
        rest.strip_prefix(version).is_some_and(|after| {
            let after = after.strip_prefix('.').unwrap_or(after);
            !after.starts_with(|next: char| next.is_ascii_digit())
        })
    };
    let right = said.iter().filter(is_version).count();
    (said.is_empty() || right < said.len())
        .then(|| format!("{file}: {right} of {} times `{before}{version}`", said.len().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_version_that_one_place_has_alone_is_named() {
        let manifest = "forkless = { path = \"crates/forkless\", version = \"0.1.0\" }\n";
        let header = "#define FORKLESS_VERSION_MAJOR 0\n#define FORKLESS_VERSION_MINOR 1\n\
                      #define FORKLESS_VERSION_PATCH 0\n";
        let changelog = "## [Unreleased]\n## [0.1.0] - 2026-11-25\n";
        assert_eq!(other_versions("0.1.0", manifest, header, changelog), [""; 0]);
        let wrong = other_versions("0.2.0", manifest, header, changelog);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
    }

    #[test]
    fn a_page_with_an_older_version_or_none_is_named() {
        let on = |text| other_version_on_page("0.1.0", "page", "forkless-", text);
        assert_eq!(on("cargo install forkless-cli; forkless-0.1.0-x.tar.gz, forkless-0.1.0."), None);
        for wrong in
            ["forkless-0.1.0 forkless-0.0.9", "forkless-0.1.01", "forkless-0.1.0.1", "forkless-cli", ""]
        {
            assert!(on(wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn a_published_crate_that_needs_an_unpublished_one_is_named_and_tests_may() {
        let lab = json!({ "name": "lab", "publish": [] });
        let needs = |kind: Value| json!({ "name": "a", "dependencies": [{ "name": "lab", "kind": kind }] });
        assert_eq!(needs_unpublished(&needs(Value::Null), std::slice::from_ref(&lab)).len(), 1);
        assert_eq!(needs_unpublished(&needs("dev".into()), &[lab]).len(), 0);
    }

    #[test]
    fn a_crate_without_keywords_or_readme_is_named() {
        let said = lacks(&json!({ "name": "a", "description": "b", "keywords": [] })).join("\n");
        for lacking in ["no license", "0 keywords", "no README.md"] {
            assert!(said.contains(lacking), "{said}");
        }
    }
}
