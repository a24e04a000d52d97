//! A file that gets a result. It is opened before the work, so that an hour of measuring is not
//! lost to a mistyped path. What it holds goes only when the result is there, and has room; a file
//! that was not there is made only then, too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

pub(crate) enum OutputFile {
    /// A file, a terminal, a pipe or a device that is there.
    There(File),
    /// A file that can be made.
    New(PathBuf),
}

impl OutputFile {
    pub(crate) fn open(path: &Path) -> io::Result<OutputFile> {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(_) => {
                // An interrupted run must not leave an empty file that looks like its result.
                fs::remove_file(path)?;
                Ok(OutputFile::New(path.to_owned()))
            }
            // Also a link that leads nowhere yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
                Ok(OutputFile::There(file))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether both would write one file, and the later result be all that stays. Devices may get
    /// several.
    pub(crate) fn is_same(&self, other: &OutputFile) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        match (self, other) {
            (OutputFile::There(one), OutputFile::There(other)) => {
                let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) else { return false };
                one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
            }
            (OutputFile::New(one), OutputFile::New(other)) => {
                let whole = |path: &Path| {
                    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                    let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
                    Some(folder.join(path.file_name()?))
                };
                whole(one).is_some_and(|one| Some(one) == whole(other))
            }
            _ => false,
        }
    }

    /// Writes the result in place of what is there. If there is no room for it, what was
    /// there stays.
    pub(crate) fn write(self, result: &[u8]) -> io::Result<()> {
        match self {
            OutputFile::New(path) => {
                let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
                put(file, result).inspect_err(|_| {
                    let _ = fs::remove_file(&path);
                })
            }
            OutputFile::There(file) => put(file, result),
        }
    }
}

fn put(mut file: File, result: &[u8]) -> io::Result<()> {
    // A terminal, a pipe or a device has no length.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return file.write_all(result);
    }
    let length = result.len() as u64;
    reserve(&file, length).inspect_err(|_| {
        let _ = file.set_len(metadata.len());
    })?;
    file.write_all(result)?;
    file.set_len(length)?;
    // A full disk shows at the latest when the data is forced out.
    file.sync_all()
}

/// Takes the room on the disk, where the file system can.
#[cfg(target_os = "linux")]
fn reserve(file: &File, length: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, length) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}
