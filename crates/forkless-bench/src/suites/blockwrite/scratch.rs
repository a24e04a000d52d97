//! The scratch file: written through once, so that no block of it is a hole, and without a name
//! from then on, so that nothing of it outlives the process.

#![expect(unsafe_code, reason = "statvfs has no wrapper in std")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::counters::Device;
use crate::error::Error;
use crate::guard::Guard;
use crate::private_directory::PrivateDirectory;

/// A file without a name, open twice.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) buffered: File,
    /// With `O_DIRECT`, or why not.
    pub(super) direct: Result<File, String>,
    /// Where it was made.
    pub(super) directory: PathBuf,
}

impl Scratch {
    pub(super) fn make(
        size: u64,
        directory: Option<&Path>,
        guard: Option<&mut Guard>,
    ) -> Result<Scratch, Error> {
        let base = match directory {
            Some(directory) => directory.to_owned(),
            None => usual_directory(),
        };
        let private = PrivateDirectory::make(&base, PrivateDirectory::CLOSED, guard);
        let private = private.map_err(|error| match directory {
            // Of the caller's choice, and so is the remedy.
            Some(_) => Error::Spec(format!("{error}: name another directory")),
            None => Error::Missing(format!("{error}; name another directory for the file")),
        })?;
        let made = (|| {
            room(private.path(), size, &base)?;
            let path = private.path().join("scratch");
            let cannot = || Error::io(format!("make a scratch file in {}", base.display()));
            let open = |flags| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
                options.open(&path)
            };
            let buffered = open(0).map_err(cannot())?;
            let direct = open(libc::O_DIRECT).map_err(|error| format!("O_DIRECT: {error}"));
            Ok((buffered, direct))
        })();
        // The open files are all that is needed; a kill from here on leaves nothing.
        drop(private);
        let (buffered, direct) = made?;
        fill(&buffered, size).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => no_room(size, &base),
            _ => Error::io(format!("fill a scratch file in {}", base.display()))(error),
        })?;
        Ok(Scratch { buffered, direct, directory: base })
    }

    /// The device its file system is on.
    pub(super) fn device(&self) -> Result<Device, Error> {
        let number = self.buffered.metadata().map_err(Error::io("look at the scratch file"))?.dev();
        Device::of(libc::major(number), libc::minor(number)).ok_or_else(|| {
            Error::Missing(format!(
                "{} is not on one block device whose reads could be counted: name a directory that is",
                self.directory.display()
            ))
        })
    }
}

/// Fails unless the file system has room for `size` bytes and some for others: to find out by
/// writing would fill it meanwhile.
fn room(place: &Path, size: u64, named: &Path) -> Result<(), Error> {
    let cannot = || Error::last_os(format!("look for room in {}", named.display()));
    let path = std::ffi::CString::new(place.as_os_str().as_bytes())
        .map_err(|error| Error::io(format!("look for room in {}", named.display()))(error.into()))?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is terminated, and the structure is as large as the call expects.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(cannot());
    }
    // SAFETY: zeroed, which is a value of it, and filled by the call.
    let found = unsafe { found.assume_init() };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if size <= free / 2 {
        return Ok(());
    }
    Err(no_room(size, named))
}

fn no_room(size: u64, named: &Path) -> Error {
    Error::Missing(format!(
        "no room for a scratch file of {} KiB in {}: ask for a smaller size, or name another directory",
        size >> 10,
        named.display()
    ))
}

fn fill(file: &File, size: u64) -> std::io::Result<()> {
    let block = vec![0xa5_u8; 1 << 20];
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(block.len() as u64);
        // Not more than a block, which is a usize.
        file.write_all_at(&block[..usize::try_from(length).unwrap_or(block.len())], offset)?;
        offset += length;
    }
    file.sync_all()
}

/// The first of the usual places for temporary files that is on a block device, else the first
/// there is.
fn usual_directory() -> PathBuf {
    let places: Vec<PathBuf> = std::env::var_os("TMPDIR")
        .map(PathBuf::from)
        .into_iter()
        .chain(["/var/tmp", "/tmp", "."].map(PathBuf::from))
        .filter(|path| path.is_dir())
        .collect();
    let on_device = |path: &&PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| Device::of(libc::major(found.dev()), libc::minor(found.dev())).is_some())
    };
    places.iter().find(on_device).or(places.first()).cloned().unwrap_or_else(|| PathBuf::from("/tmp"))
}
