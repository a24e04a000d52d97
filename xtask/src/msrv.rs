//! One minimum Rust version: the manifests and the pages name it, and the workspace compiles with
//! it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::tree;

/// Checks that every package inherits the workspace's version, that CONTRIBUTING.md names it, and
/// that the workspace compiles with exactly that compiler. Where only a newer one is installed the
/// last part is reported as skipped.
pub(crate) fn check() -> Result<String> {
    let manifest = std::fs::read_to_string(tree::root().join("Cargo.toml"))?;
    let msrv = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .context("Cargo.toml: no rust-version under [workspace.package]")?
        .to_owned();

    for file in tree::files()? {
        // Only a nightly compiler builds it.
        if file.starts_with("fuzz") {
            continue;
        }
        if file.file_name().is_some_and(|name| name == "Cargo.toml") && file.components().count() > 1 {
            let text = tree::text(&file)?.unwrap_or_default();
            let older = format!("rust-version = \"{LIBRARIES_MSRV}\"");
            let wanted = if is_library(&file) { older.as_str() } else { "rust-version.workspace = true" };
            ensure!(text.contains(wanted), "{}: add `{wanted}`", file.display());
        }
    }
    let pages =
        [("CONTRIBUTING.md", msrv.as_str()), ("README.md", &msrv), ("CONTRIBUTING.md", LIBRARIES_MSRV)];
    for (page, msrv) in pages {
        let text = std::fs::read_to_string(tree::root().join(page)).with_context(|| page.to_owned())?;
        ensure!(
            text.contains(&format!("Rust {msrv}")),
            "{page} does not say `Rust {msrv}`, the version of a manifest"
        );
    }

    let running = version("rustc", &[])?;
    if same(&running, &msrv) {
        return Ok(format!(
            "Rust {msrv} everywhere, and this compiler is {running}: what it builds, the oldest builds"
        ));
    }
    let whole = ["--workspace", "--all-targets", "--exclude", "forkless-preload"];
    compile("the workspace", &whole, &msrv)
}

/// The oldest compiler for programs that use the libraries: Debian 13's. Edition 2024 needs it,
/// too.
const LIBRARIES_MSRV: &str = "1.85";

/// The crates that other programs are built with.
const LIBRARIES: &[&str] = &["forkless-sys", "forkless-child", "forkless-shell", "forkless", "forkless-capi"];

fn is_library(manifest: &Path) -> bool {
    LIBRARIES.iter().any(|library| *manifest == Path::new("crates").join(library).join("Cargo.toml"))
}

/// Compiles the libraries with the older compiler that they promise, if it is installed.
pub(crate) fn libraries() -> Result<String> {
    let packages = LIBRARIES.iter().flat_map(|library| ["--package", library]);
    let arguments: Vec<&str> = packages.chain(["--features", "forkless/tokio"]).collect();
    compile("the libraries", &arguments, LIBRARIES_MSRV)
}

fn compile(what: &str, arguments: &[&str], msrv: &str) -> Result<String> {
    // rustup knows a toolchain by the name that it was installed by.
    let toolchain = format!("+{msrv}.0");
    if !version("rustc", &[&toolchain]).is_ok_and(|older| same(&older, msrv)) {
        return Ok(format!(
            "skipped: compiling {what} with Rust {msrv}: it is not installed (rustup toolchain install \
             {msrv}.0)"
        ));
    }
    let status = Command::new("cargo")
        .args([&toolchain, "check", "--locked"])
        .args(arguments)
        .env("CARGO_TARGET_DIR", tree::root().join("target/msrv"))
        // `cargo run` sets it to the outer toolchain.
        .env_remove("RUSTUP_TOOLCHAIN")
        .current_dir(tree::root())
        .status()?;
    if !status.success() {
        bail!("{what} does not compile with Rust {msrv}");
    }
    Ok(format!("Rust {msrv} everywhere, and it compiles {what}"))
}

fn version(program: &str, before: &[&str]) -> Result<String> {
    let output = Command::new(program).args(before).arg("--version").current_dir(tree::root()).output()?;
    ensure!(output.status.success(), "{program} {before:?}: not installed");
    let line = String::from_utf8(output.stdout)?;
    Ok(line.split(' ').nth(1).context("rustc --version")?.to_owned())
}

/// `1.95.0` and `1.95.3` are both 1.95.
fn same(full: &str, msrv: &str) -> bool {
    full.strip_prefix(msrv).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn a_patch_release_is_the_same_version_and_a_longer_number_is_not() {
        assert!(same("1.95.3", "1.95"));
        assert!(!same("1.96.0", "1.95"));
        assert!(!same("1.950.0", "1.95"));
    }
}
