//! The place of the tree, and its files.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The root of the workspace, from compile time: `cargo xtask` works in any folder below it.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Cargo's target folder, as `./x` finds it.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()))
}

/// The files git tracks, and new ones not ignored, relative to the root; without git (an unpacked
/// archive), every file outside `target`.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    if let Ok(listed) = listed
        && listed.status.success()
    {
        let mut files: Vec<PathBuf> = String::from_utf8(listed.stdout)
            .context("git ls-files: a file name that is not UTF-8")?
            .split_terminator('\0')
            .map(PathBuf::from)
            .filter(|file| root().join(file).is_file())
            .collect();
        files.sort();
        files.dedup();
        return Ok(files);
    }
    let mut found = Vec::new();
    walk(root(), &mut found)?;
    ensure!(!found.is_empty(), "no files under {}", root().display());
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let skip = path.file_name().is_some_and(|name| name == "target" || name == ".git");
        if path.is_dir() && !skip {
            walk(&path, found)?;
        } else if path.is_file() {
            found.push(path.strip_prefix(root())?.to_owned());
        }
    }
    Ok(())
}

/// A tracked file's text, or `None` for one that is not text.
pub(crate) fn text(file: &Path) -> Result<Option<String>> {
    let bytes = std::fs::read(root().join(file)).with_context(|| file.display().to_string())?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}

/// A path without `.` and `..`, as a link means it.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}
