//! Where the preloaded library is.

use std::env;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::{INSTALLED_NAME, LIBRARY_NAME};

/// Overrides the search for the library, for packagers and tests.
pub const LIBRARY_PATH_VARIABLE: &str = "FORKLESS_LIBRARY";

/// Why there is no library that could be preloaded.
#[derive(Debug)]
pub enum LibraryError {
    /// [`LIBRARY_PATH_VARIABLE`] names no file.
    NoFile(PathBuf),
    /// The path could not be resolved.
    Unresolved(PathBuf, io::Error),
    /// The path has a space or a colon: the loader splits `LD_PRELOAD` at both, and knows no way to
    /// quote them.
    Separator(PathBuf),
    /// The running executable, beside which the library is looked for, could not be found.
    Executable(io::Error),
    /// The library is in none of its usual places.
    NotInstalled,
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryError::NoFile(path) => {
                write!(f, "{LIBRARY_PATH_VARIABLE} names no file: {}", path.display())
            }
            LibraryError::Unresolved(path, error) => write!(f, "{}: {error}", path.display()),
            LibraryError::Separator(path) => {
                write!(f, "the loader cannot preload {}, whose path has a space or a colon", path.display())
            }
            LibraryError::Executable(error) => write!(f, "cannot find the running executable: {error}"),
            LibraryError::NotInstalled => write!(
                f,
                "{INSTALLED_NAME} is neither beside the executable nor in ../lib: `cargo install` brings the \
                 command alone, packages and ./x install bring both (or set {LIBRARY_PATH_VARIABLE})"
            ),
        }
    }
}

impl std::error::Error for LibraryError {}

/// The library: where [`LIBRARY_PATH_VARIABLE`] says, or beside the running executable, in
/// `../lib`, or where a build of this repository puts it (`target/preload` beside
/// `target/release`).
///
/// # Errors
/// Why there is none that the loader could preload.
pub fn find_library() -> Result<PathBuf, LibraryError> {
    let found = match env::var_os(LIBRARY_PATH_VARIABLE).map(PathBuf::from) {
        Some(path) if path.is_file() => path,
        Some(path) => return Err(LibraryError::NoFile(path)),
        None => search()?,
    };
    preloadable(found)
}

/// The path by which the loader can preload a file.
pub(super) fn preloadable(found: PathBuf) -> Result<PathBuf, LibraryError> {
    let found = found.canonicalize().map_err(|error| LibraryError::Unresolved(found, error))?;
    if found.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(LibraryError::Separator(found));
    }
    Ok(found)
}

fn search() -> Result<PathBuf, LibraryError> {
    let executable = env::current_exe().map_err(LibraryError::Executable)?;
    let folder = executable.parent().unwrap_or(Path::new("/"));
    [("", LIBRARY_NAME), ("", INSTALLED_NAME), ("../lib", INSTALLED_NAME), ("../preload", LIBRARY_NAME)]
        .iter()
        .map(|(relative, name)| folder.join(relative).join(name))
        .find(|path| path.is_file())
        .ok_or(LibraryError::NotInstalled)
}
