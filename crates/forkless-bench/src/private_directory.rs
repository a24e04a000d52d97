//! A directory of this process's own, which goes away with its value, or with the
//! [guard](crate::guard) if this process is killed.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::guard::Guard;

/// The directory. It is removed with its content when dropped.
#[derive(Debug)]
pub struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// The permissions of a directory that nobody else can read or enter.
    pub const CLOSED: u32 = 0o700;
    /// The permissions of a directory that servers and programs of another user can enter.
    pub const ENTERED_BY_OTHERS: u32 = 0o711;

    /// Makes it below `base`, with this process's number in its name. A world-writable place would
    /// let others replace a file in it between two runs.
    ///
    /// # Errors
    /// When `base` takes no directory, or the guarding process is gone.
    pub fn make(base: &Path, mode: u32, guard: Option<&mut Guard>) -> Result<PrivateDirectory, Error> {
        let mut attempt = 0_u32;
        loop {
            let path = base.join(format!("forkless-bench-{}-{attempt}", std::process::id()));
            match fs::DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => {
                    let directory = PrivateDirectory(path);
                    // Only now: the name may have been somebody else's until here.
                    if let Some(guard) = guard {
                        guard.remove_directory(&directory.0)?;
                    }
                    return Ok(directory);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
                Err(error) => {
                    return Err(Error::io(format!("create a directory in {}", base.display()))(error));
                }
            }
        }
    }

    /// Makes it where temporary files go: in `$TMPDIR`, or in `/tmp`.
    ///
    /// # Errors
    /// [`Error::Missing`] when that takes no directory.
    pub fn temporary(mode: u32, guard: Option<&mut Guard>) -> Result<PrivateDirectory, Error> {
        PrivateDirectory::make(&std::env::temp_dir(), mode, guard).map_err(|error| {
            Error::Missing(format!("{error}; name a directory that can be written by TMPDIR"))
        })
    }

    /// Makes it in memory where possible, else where temporary files go.
    ///
    /// # Errors
    /// As those of [`temporary`](PrivateDirectory::temporary).
    pub fn in_memory(mode: u32, mut guard: Option<&mut Guard>) -> Result<PrivateDirectory, Error> {
        /// What the records of some processes take. A directory needs less, and would be made.
        const ROOM: usize = 64 << 10;
        let made = PrivateDirectory::make(Path::new("/dev/shm"), mode, guard.as_deref_mut());
        let has_room = |directory: &PrivateDirectory| {
            let path = directory.0.join("room");
            let has = fs::write(&path, [0; ROOM]).is_ok();
            let _ = fs::remove_file(path);
            has
        };
        match made.ok().filter(has_room) {
            Some(directory) => Ok(directory),
            None => PrivateDirectory::temporary(mode, guard),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and returns the file's path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, Error> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the guard tries again.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_have_two_names_and_go_away() {
        let base = std::env::temp_dir();
        let make = || PrivateDirectory::make(&base, PrivateDirectory::CLOSED, None).unwrap();
        let (one, other) = (make(), make());
        assert_ne!(one.path(), other.path());
        let file = one.write("x", "y").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "y");
        drop(one);
        assert!(!file.exists() && other.path().is_dir());
    }
}
