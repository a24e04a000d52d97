//! The command compiles for the other targets of a release, the measuring crates for systems other
//! than Linux, and the preloaded library for the other architecture. Nothing is linked or run.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tree;

/// A target, and the packages that are compiled for it.
struct Target {
    name: &'static str,
    arguments: &'static [&'static str],
}

/// `forkless bench`, `compare` and `history`.
const MEASURING: &[&str] =
    &["--package", "forkless-bench", "--package", "forkless-lab", "--package", "forkless-cli"];

const SYSTEMS: [Target; 2] = [
    Target { name: "x86_64-unknown-freebsd", arguments: MEASURING },
    Target { name: "aarch64-apple-darwin", arguments: MEASURING },
];

const ARCHITECTURE: [Target; 1] = [Target {
    name: "aarch64-unknown-linux-gnu",
    arguments: &["--profile=preload", "--package=forkless-preload"],
}];

/// Constants and fields of the libc crate differ, and code is left out.
const RELEASE: [Target; 2] = [
    Target { name: "x86_64-unknown-linux-musl", arguments: &["--package=forkless-cli"] },
    Target { name: "aarch64-unknown-linux-gnu", arguments: &["--package=forkless-cli"] },
];

/// The command, for FreeBSD and macOS.
pub(crate) fn systems() -> Result<String> {
    compile(SYSTEMS)
}

/// The preloaded library, for the architecture that is not this one's.
pub(crate) fn architecture() -> Result<String> {
    compile(ARCHITECTURE)
}

/// The command, for what a release has besides this machine's target.
pub(crate) fn release() -> Result<String> {
    compile(RELEASE)
}

/// Compiles for every target whose standard library is installed.
fn compile<const N: usize>(targets: [Target; N]) -> Result<String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(tree::root()).output()?;
    let sysroot = String::from_utf8(output.stdout).context("rustc --print sysroot")?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    let (present, absent): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|target| libraries.join(target.name).join("lib").is_dir());
    for target in &present {
        let status = Command::new("cargo")
            .args(["clippy", "--quiet", "--locked", "--target", target.name])
            .args(target.arguments)
            .args(["--", "-Dwarnings"])
            // `cargo run` sets these for this package.
            .env_remove("CARGO_MANIFEST_DIR")
            .env_remove("CARGO_PKG_NAME")
            .current_dir(tree::root())
            .status()?;
        ensure!(
            status.success(),
            "{} does not compile for {} without warnings",
            target.arguments.join(" "),
            target.name
        );
    }
    let names = |targets: &[Target], between: &str| {
        targets.iter().map(|target| target.name).collect::<Vec<_>>().join(between)
    };
    if absent.is_empty() {
        return Ok(format!("compiles for {}", names(&present, ", ")));
    }
    Ok(format!(
        "skipped: compiling for {}: no standard library here (rustup target add {})",
        names(&absent, " and "),
        names(&absent, " ")
    ))
}
