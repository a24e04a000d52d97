//! The library that `forkless run` preloads, for the tests of whatever runs programs under it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Built once, under its own profile: it is no default member of the workspace. `FORKLESS_LIBRARY` tells the command about it.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "preload", "-p", "forkless-preload", "--target-dir"])
        .arg(&target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .status()
        .expect("cargo starts");
    assert!(status.success(), "forkless-preload does not build");
    target.join("preload").join(forkless_record::LIBRARY_NAME)
});
