//! The file of a record: made here, and mapped by every process of the tree.
#![expect(unsafe_code, reason = "maps a file")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::LaunchError;
use super::report::Report;
use crate::Record;

/// A record in a file of its own, which is removed on drop.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    record: NonNull<Record>,
}

impl RecordFile {
    /// Makes an empty record, in memory where possible.
    ///
    /// # Errors
    /// [`LaunchError::Record`]: which file could not be read, made or mapped, and why.
    pub fn create() -> Result<RecordFile, LaunchError> {
        let folder = ["/dev/shm", "/tmp"].into_iter().find(|d| Path::new(d).is_dir()).unwrap_or("/tmp");
        RecordFile::create_in(Path::new(folder))
    }

    /// Makes an empty record in a folder, for a caller whose folders go even if it is killed.
    ///
    /// # Errors
    /// As those of [`RecordFile::create`]. A record in a folder whose path has a comma cannot be
    /// counted into: see [`RecordPath`](crate::RecordPath).
    pub fn create_in(folder: &Path) -> Result<RecordFile, LaunchError> {
        const RANDOM: &str = "/dev/urandom";
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| LaunchError::Record { path, error }
        };
        let mut random = [0u8; 16];
        File::open(RANDOM)
            .and_then(|mut file| file.read_exact(&mut random))
            .map_err(at(Path::new(RANDOM)))?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(format!("forkless-{name}"));
        let record = make(&path).map_err(at(&path))?;
        Ok(RecordFile { path, record })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record.
    pub fn record(&self) -> &Record {
        // SAFETY: mapped as long as this value lives; any bytes are a valid record of atomics.
        unsafe { self.record.as_ref() }
    }

    /// What has been counted so far.
    pub fn report(&self) -> Report {
        Report::of(self.record())
    }

    /// Removes the file; processes that have mapped it go on counting into it, unread.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        self.remove();
        // SAFETY: a mapping of this size, of which no reference outlives this value.
        unsafe { libc::munmap(self.record.as_ptr().cast(), Record::SIZE) };
    }
}

impl Report {
    /// Reads what has been counted into a record that stays: one that the user has named, and that
    /// programs without a launcher have made.
    ///
    /// # Errors
    /// Why the file cannot be read; [`InvalidData`](io::ErrorKind::InvalidData) where it is no
    /// record, or one of another version.
    pub fn read(path: &Path) -> io::Result<Report> {
        let no_record = || io::Error::new(io::ErrorKind::InvalidData, "no record of this version");
        // Looked at before it is opened: a FIFO would be waited for, and a device may have no end.
        let about = fs::metadata(path)?;
        if !about.is_file() || about.len() != Record::SIZE as u64 {
            return Err(no_record());
        }
        let mut bytes = [0; Record::SIZE];
        File::open(path)?.read_exact(&mut bytes)?;
        let mut record = Box::<Record>::new_uninit();
        // SAFETY: from a buffer of as many bytes as a record has.
        unsafe { record.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), Record::SIZE) };
        // SAFETY: any bytes are a valid record of atomics.
        let record = unsafe { record.assume_init() };
        if record.is_valid() { Ok(Report::of(&record)) } else { Err(no_record()) }
    }
}

/// Makes and maps the file.
fn make(path: &Path) -> io::Result<NonNull<Record>> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let mapped = map(&file);
    if mapped.is_err() {
        let _ = fs::remove_file(path);
    }
    mapped
}

fn map(file: &File) -> io::Result<NonNull<Record>> {
    // Programs of the tree may have changed their user before they map it. It holds counts, and its
    // name cannot be guessed.
    file.set_permissions(fs::Permissions::from_mode(0o666))?;
    file.set_len(Record::SIZE as u64)?;
    // SAFETY: a new mapping of a file of that size.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            Record::SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let record = NonNull::new(at.cast::<Record>()).ok_or(io::ErrorKind::OutOfMemory)?;
    // The magic number comes last: a process that finds it may use the whole file.
    // SAFETY: mapped above; any bytes are a valid record of atomics.
    unsafe { record.as_ref() }.format();
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counter;

    #[test]
    fn a_record_is_counted_into_through_its_file_and_leaves_none() {
        let file = RecordFile::create().unwrap();
        let path = file.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().len(), Record::SIZE as u64);
        let other = map(&File::options().read(true).write(true).open(&path).unwrap()).unwrap();
        // SAFETY: mapped above, for the rest of the process.
        unsafe { other.as_ref() }.add(Counter::Forks, 2);
        assert!(file.record().is_valid());
        assert_eq!(file.report().count(Counter::Forks), 2);
        assert_eq!(Report::read(&path).unwrap().count(Counter::Forks), 2);
        let error = |path: &Path| Report::read(path).unwrap_err().kind();
        fs::write(&path, [0; 9]).unwrap();
        assert_eq!(error(&path), io::ErrorKind::InvalidData);
        fs::write(&path, [1; Record::SIZE]).unwrap();
        assert_eq!(error(&path), io::ErrorKind::InvalidData);
        drop(file);
        assert!(!path.exists());
        assert_eq!(error(&path), io::ErrorKind::NotFound);
    }
}
