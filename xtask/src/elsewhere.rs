//! The measuring crates compile for systems other than Linux. Nothing is linked or run.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tree;

/// One target for each system that `forkless bench` is written for.
const TARGETS: [&str; 2] = ["x86_64-unknown-freebsd", "aarch64-apple-darwin"];

/// Compiles the command for every target whose standard library is installed. There it has `bench`,
/// `compare` and `history`.
pub(crate) fn check() -> Result<String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(tree::root()).output()?;
    let sysroot = String::from_utf8(output.stdout).context("rustc --print sysroot")?;
    let installed = |target: &str| {
        std::path::Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib").is_dir()
    };
    let (present, absent): (Vec<&str>, Vec<&str>) = TARGETS.into_iter().partition(|target| installed(target));
    if !present.is_empty() {
        let status = Command::new("cargo")
            .args([
                "clippy",
                "--quiet",
                "--locked",
                "--package",
                "forkless-bench",
                "--package",
                "forkless-lab",
                "--package",
                "forkless-cli",
            ])
            .args(present.iter().flat_map(|target| ["--target", *target]))
            .args(["--", "-Dwarnings"])
            // `cargo run` sets these for this package.
            .env_remove("CARGO_MANIFEST_DIR")
            .env_remove("CARGO_PKG_NAME")
            .current_dir(tree::root())
            .status()?;
        ensure!(
            status.success(),
            "what measures does not compile for {} without warnings",
            present.join(" and ")
        );
    }
    if absent.is_empty() {
        return Ok(format!("compiles for {}", present.join(" and ")));
    }
    Ok(format!(
        "skipped: compiling for {}: no standard library here (rustup target add {})",
        absent.join(" and "),
        absent.join(" ")
    ))
}
