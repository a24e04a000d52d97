//! The line's directory: the one that `cd` changed to, without a change of the caller's, and its
//! name in PWD.

use super::REDIRECTABLE;
use crate::kernel::descriptor::owned;
use crate::spec::strings::Strings;
use forkless_shell::{Directory, Environment, PreviousDirectory, resolve_directory};
use forkless_sys::fd;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) struct LineDirectory {
    /// `None` while it is the caller's own directory.
    dir: Option<Entered>,
    current: Vec<u8>,
    previous: Option<Vec<u8>>,
    stale: bool,
}

impl Environment for Strings {
    fn entry(&self, index: usize) -> Option<&[u8]> {
        self.iter().nth(index)
    }
}

impl LineDirectory {
    /// That of a shell which was started in `dir`. `None` if the directory has no name: the
    /// shell complains about that itself.
    pub(super) fn new(dir: Option<&Path>, environment: &Strings) -> Option<LineDirectory> {
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
        let dir = match dir {
            Some(dir) => Some(Entered::at(dir)?),
            None => None,
        };
        Some(LineDirectory { dir, current, previous: None, stale })
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
        let Some(entered) = Entered::at(Path::new(OsStr::from_bytes(to))) else { return false };
        self.dir = Some(entered);
        self.previous = Some(std::mem::replace(&mut self.current, to.to_vec()));
        true
    }

    /// A path of the line, as this process has to name it.
    pub(super) fn resolve(&self, path: &[u8]) -> PathBuf {
        resolve(self.dir(), Path::new(OsStr::from_bytes(path)))
    }

    /// The directory's name here, and for a child that inherits descriptors, if it is not the
    /// caller's.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.dir.as_ref().map(|entered| entered.name.as_path())
    }

    /// Its descriptor in this process.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.dir.as_ref().map(|entered| entered.open.as_raw_fd())
    }

    pub(super) fn for_analysis(&self) -> Directory<'_> {
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

/// A directory that stays the same when its path names another, or none: a shell is in it.
struct Entered {
    open: OwnedFd,
    /// Its name in this process, and in a child that inherits descriptors, until the exec.
    name: PathBuf,
}

impl Entered {
    /// `None`: it cannot be entered, or there is no /proc.
    fn at(path: &Path) -> Option<Entered> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        // No redirection of the line takes such a number, before or after the child is there.
        let open = owned(fd::dup_cloexec(file.as_raw_fd(), REDIRECTABLE).ok()?);
        let name = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        std::fs::metadata(&name).is_ok_and(|there| there.is_dir()).then_some(Entered { open, name })
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
