//! The architecture, checked: which crate of the workspace may depend on which. The table is
//! CONTRIBUTING.md's; a new crate must be entered in both, with its place.
//!
//! The same step checks what such a table cannot say: [`circles`], [`tool_words`], [`engine`] and
//! [`width`]. Each has a table of its own, of what is allowed or still open.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{circles, engine, source, tool_words, tree, width};

/// Each crate with the crates of this workspace it may depend on. Arrows point down only.
const ALLOWED: &[(&str, &[&str])] = &[
    ("forkless-sys", &[]),
    ("forkless-shell", &[]),
    ("forkless-run", &["forkless", "forkless-sys", "forkless-shell"]),
    ("forkless-child", &["forkless-sys"]),
    ("forkless", &["forkless-sys", "forkless-child", "forkless-shell"]),
    ("forkless-capi", &["forkless"]),
    ("forkless-speculate", &["forkless-sys"]),
    (
        "forkless-preload",
        &["forkless-sys", "forkless-child", "forkless-shell", "forkless-run", "forkless-speculate"],
    ),
    ("forkless-bench", &["forkless", "forkless-capi", "forkless-run"]),
    ("forkless-lab", &["forkless", "forkless-bench", "forkless-run"]),
    ("forkless-frames", &[]),
    ("forkless-diagnose", &["forkless-frames", "forkless-run", "forkless-shell", "forkless-sys"]),
    (
        "forkless-cli",
        &[
            "forkless",
            "forkless-bench",
            "forkless-diagnose",
            "forkless-lab",
            "forkless-run",
            "forkless-shell",
        ],
    ),
    ("forkless-python", &["forkless"]),
    ("server-example", &["forkless"]),
    ("xtask", &[]),
];

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
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();

    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            wrong
                .push(format!("{name} has no place in the table of xtask/src/layers.rs and CONTRIBUTING.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            // Tests may reach across: they see what a user of both sees.
            if names.contains(&on) && !may.contains(&on) && dependency["kind"] != "dev" {
                wrong.push(format!("{name} may not depend on {on}"));
            }
        }
    }
    let crates = source::crates()?;
    wrong.extend(circles::check(&crates));
    wrong.extend(tool_words::check(&crates)?);
    wrong.extend(engine::check(&crates));
    wrong.extend(width::check()?);
    if !wrong.is_empty() {
        bail!("the architecture does not allow it:\n{}", wrong.join("\n"));
    }
    Ok(format!("{} crates depend only downwards, and what is open has not grown", names.len()))
}
