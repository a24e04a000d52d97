//! Where the preloaded library is.

use std::env;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use forkless_run::LIBRARY_NAME;

/// Overrides the search, for packagers and tests.
const VARIABLE: &str = "FORKLESS_LIBRARY";

/// Why the library leaves forks as they are here, whatever the kernel has: it reads and writes the registers of x86-64.
pub(in crate::commands) const NEVER_SPECULATES: Option<&str> = if cfg!(target_arch = "x86_64") {
    None
} else {
    Some("speculative fork exists on x86-64 only; forks are left as they are")
};

/// A reason to run the program plainly.
#[derive(Debug)]
pub(in crate::commands) struct Plainly(pub(in crate::commands) String);

impl fmt::Display for Plainly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether the operator's switch is off, in one of the words that the library knows.
pub(super) fn switched_off() -> bool {
    env::var_os(forkless_run::SWITCH_VARIABLE).is_some_and(|value| forkless_run::is_off(value.as_bytes()))
}

/// The library: where `FORKLESS_LIBRARY` says, or beside the executable, in `../lib/forkless`, or where a build of this repository puts
/// it (`target/preload` beside `target/release`).
pub(in crate::commands) fn find() -> Result<PathBuf, Plainly> {
    let found = match env::var_os(VARIABLE) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                return Err(Plainly(format!("{VARIABLE} names no file: {}", path.display())));
            }
            path
        }
        None => search()?,
    };
    let found = found.canonicalize().map_err(|e| Plainly(format!("{}: {e}", found.display())))?;
    // The loader splits LD_PRELOAD at both, and knows no way to quote them.
    if found.as_os_str().as_encoded_bytes().iter().any(|b| b" :".contains(b)) {
        return Err(Plainly(format!(
            "the loader cannot preload {}, whose path has a space or a colon",
            found.display()
        )));
    }
    Ok(found)
}

fn search() -> Result<PathBuf, Plainly> {
    let exe = env::current_exe().map_err(|e| Plainly(format!("cannot find the forkless executable: {e}")))?;
    let folder = exe.parent().unwrap_or(Path::new("/"));
    ["", "../lib/forkless", "../preload"]
        .iter()
        .map(|relative| folder.join(relative).join(LIBRARY_NAME))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Plainly(format!(
                "{LIBRARY_NAME} is not beside the executable nor in ../lib/forkless (set {VARIABLE})"
            ))
        })
}
