//! The line's directory: the one that `cd` changed to, without a change of the caller's, and its
//! name in PWD.

use crate::spec::strings::Strings;
use forkless_shell::{Directory, Environment, PreviousDirectory, resolve_directory};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) struct Place {
    /// `None` while it is the caller's own directory.
    dir: Option<PathBuf>,
    current: Vec<u8>,
    previous: Option<Vec<u8>>,
    stale: bool,
}

impl Environment for Strings {
    fn entry(&self, index: usize) -> Option<&[u8]> {
        self.iter().nth(index)
    }
}

impl Place {
    /// The place of a shell that was started in `dir`. `None` if the directory has no name: the
    /// shell complains about that itself.
    pub(super) fn new(dir: Option<&Path>, environment: &Strings) -> Option<Place> {
        let here = std::fs::metadata(dir.unwrap_or(Path::new("."))).ok()?;
        let says = environment.variable(b"PWD").filter(|path| path.first() == Some(&b'/')).filter(|path| {
            std::fs::metadata(OsStr::from_bytes(path))
                .is_ok_and(|there| (there.dev(), there.ino()) == (here.dev(), here.ino()))
        });
        let current = match (says, dir) {
            (Some(path), _) => path.to_vec(),
            (None, Some(dir)) => dir.canonicalize().ok()?.into_os_string().into_encoded_bytes(),
            (None, None) => {
                let mut name = vec![0; libc::PATH_MAX as usize];
                let len = forkless_sys::process::getcwd(&mut name).ok()?;
                name.truncate(len);
                name
            }
        };
        // A directory that cannot be reached from the root directory has no name, whatever the
        // kernel says.
        if current.first() != Some(&b'/') {
            return None;
        }
        let stale = environment.variable(b"OLDPWD").is_some_and(|path| {
            let path = Path::new(OsStr::from_bytes(path));
            !std::fs::metadata(resolve(dir, path)).is_ok_and(|there| there.is_dir())
        });
        Some(Place { dir: dir.map(Path::to_owned), current, previous: None, stale })
    }

    /// Changes the directory as `cd operand` does. Returns `false` and changes nothing if the shell
    /// would fail or might.
    pub(super) fn change(&mut self, operand: &[u8]) -> bool {
        let mut buf = vec![0; self.current.len() + operand.len() + 2];
        let Ok(to) = resolve_directory(&self.current, operand, &mut buf) else { return false };
        if !may_enter(to) {
            return false;
        }
        let to = to.to_bytes();
        self.dir = Some(PathBuf::from(OsStr::from_bytes(to)));
        self.previous = Some(std::mem::replace(&mut self.current, to.to_vec()));
        true
    }

    /// A path of the line, as this process has to name it.
    pub(super) fn resolve(&self, path: &[u8]) -> PathBuf {
        resolve(self.dir.as_deref(), Path::new(OsStr::from_bytes(path)))
    }

    /// The directory for a child, if it is not the caller's.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    pub(super) fn directory(&self) -> Directory<'_> {
        Directory {
            current: &self.current,
            previous: match &self.previous {
                Some(path) => PreviousDirectory::Left(path),
                None if self.stale => PreviousDirectory::Stale,
                None => PreviousDirectory::Inherited,
            },
        }
    }

    /// How many bytes the two paths have.
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.current.len(), self.previous.as_ref().map_or(0, Vec::len))
    }

    /// PWD and OLDPWD for a shell that goes on from here, if a `cd` changed them.
    pub(super) fn after_cd(&self) -> Option<(&[u8], &[u8])> {
        self.previous.as_ref().map(|previous| (self.current.as_slice(), previous.as_slice()))
    }
}

fn resolve(dir: Option<&Path>, path: &Path) -> PathBuf {
    dir.map_or_else(|| path.to_owned(), |dir| dir.join(path))
}

/// Whether chdir(2) to the path would succeed, found out without doing it: a directory that may be
/// searched.
#[expect(unsafe_code, reason = "libc's faccessat with the effective user")]
fn may_enter(path: &std::ffi::CStr) -> bool {
    if !std::fs::metadata(OsStr::from_bytes(path.to_bytes())).is_ok_and(|there| there.is_dir()) {
        return false;
    }
    // SAFETY: a NUL-terminated path; the call writes nothing.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}
