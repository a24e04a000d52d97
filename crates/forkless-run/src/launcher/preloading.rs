//! Whether the library is preloaded here without a launcher.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::names_library;

/// The list of the whole system (glibc's ld.so(8)).
const SYSTEMS_LIST: &str = "/etc/ld.so.preload";

/// A list of the loader's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreloadList {
    /// `LD_PRELOAD`, as this process has it.
    Variable,
    /// `/etc/ld.so.preload`.
    System,
}

impl fmt::Display for PreloadList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PreloadList::Variable => "LD_PRELOAD",
            PreloadList::System => SYSTEMS_LIST,
        })
    }
}

/// An entry of a list that names the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preloading {
    /// The list.
    pub list: PreloadList,
    /// The entry as it stands.
    pub path: PathBuf,
}

impl Preloading {
    /// Whether the loader will complain in every program: the path is absolute, and no file is
    /// there. `$LIB` and its like stand for another path in each program.
    pub fn is_missing(&self) -> bool {
        let is_plain = !self.path.as_os_str().as_bytes().contains(&b'$');
        self.path.is_absolute() && is_plain && !self.path.exists()
    }
}

/// The entries of both lists that name the library.
#[must_use]
pub fn preloadings() -> Vec<Preloading> {
    let variable = env::var_os("LD_PRELOAD").unwrap_or_default().into_vec();
    let system = std::fs::read(Path::new(SYSTEMS_LIST)).unwrap_or_default();
    let mut all = in_list(PreloadList::Variable, &variable, b" :");
    // Comments end with their line.
    for line in system.split(|byte| *byte == b'\n') {
        let entries = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        all.extend(in_list(PreloadList::System, entries, b" \t:"));
    }
    all
}

fn in_list(list: PreloadList, text: &[u8], separators: &[u8]) -> Vec<Preloading> {
    let entries = text.split(|byte| separators.contains(byte)).filter(|entry| names_library(entry));
    entries.map(|entry| Preloading { list, path: PathBuf::from(OsStr::from_bytes(entry)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_name_the_library_are_found_among_others() {
        let found = in_list(PreloadList::Variable, b"a.so:/usr/lib/libforkless-run.so  b.so", b" :");
        let path = PathBuf::from("/usr/lib/libforkless-run.so");
        assert_eq!(found, [Preloading { list: PreloadList::Variable, path }]);
        assert_eq!(in_list(PreloadList::Variable, b"", b" :"), []);
    }

    #[test]
    fn only_a_whole_path_can_be_known_to_be_missing() {
        let missing = |path: &str| Preloading { list: PreloadList::System, path: path.into() }.is_missing();
        assert!(missing("/nonexistent/libforkless-run.so"));
        assert!(!missing("libforkless-run.so") && !missing("/usr/$LIB/libforkless-run.so"));
    }
}
