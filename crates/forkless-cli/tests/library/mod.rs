//! The library that `forkless run` preloads, for the tests of whatever runs programs under it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Built once, under its own profile: it is no default member of the workspace.
/// `FORKLESS_LIBRARY` tells the command about it. `FORKLESS_TEST_LIBRARY` names another to test: a
/// broken one, whose faults the tests must find (tests/trust.sh).
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(library) = std::env::var_os("FORKLESS_TEST_LIBRARY") {
        return library.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
    let library = target.join("preload").join(forkless_run::LIBRARY_NAME);
    // No compiler there: what these tests built on the machine that emulates is at the same place.
    if std::env::var_os("FORKLESS_TEST_EMULATED").is_some() {
        assert!(library.exists(), "{} was not brought along", library.display());
        return library;
    }
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "preload", "-p", "forkless-preload", "--target-dir"])
        .arg(&target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .status()
        .expect("cargo starts");
    assert!(status.success(), "forkless-preload does not build");
    library
});
