//! The file of a record: made here, and mapped by every process of the tree.
#![expect(unsafe_code, reason = "maps a file")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use forkless_sys::quiet_write;

use super::LaunchError;
use super::report::Report;
use crate::Record;

/// A record in a file and a folder of its own, which are removed on drop.
///
/// Whoever may write a mapped file may cut it, and so kill the programs that use it. So the file is
/// its user's alone. A program of the tree that has changed its user makes one beside it, with the
/// user's number at its name's end, for programs of that user. The report adds them all. Others may
/// make files in the folder and not list it, and no name in it can be guessed.
#[derive(Debug)]
pub struct RecordFile {
    folder: PathBuf,
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
        let mut random = [0u8; 32];
        File::open(RANDOM)
            .and_then(|mut file| file.read_exact(&mut random))
            .map_err(at(Path::new(RANDOM)))?;
        let name = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // Everybody may read the first name, so it tells nothing of the second.
        let (listed, secret) = random.split_at(16);
        let folder = folder.join(format!("forkless-{}", name(listed)));
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(at(&folder))?;
        let path = folder.join(name(secret));
        let made = make(&path).and_then(|record| {
            // Whatever the umask.
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o1733)).map(|()| record)
        });
        match made {
            Ok(record) => Ok(RecordFile { folder, path, record }),
            Err(error) => {
                remove(&folder);
                Err(at(&path)(error))
            }
        }
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
        /// As many users as a report has room for: anyone may make files in the folder.
        const USERS: usize = 64;
        let mut report = Report::of(self.record());
        let own = self.path.file_name().unwrap_or_default();
        for file in files(&self.folder).take(USERS).filter(|file| file.file_name() != own) {
            if let Ok(other) = Report::read(&file.path()) {
                report.add(other);
            }
        }
        report
    }

    /// Removes the file and its folder; processes that have mapped the file go on counting into it,
    /// unread.
    pub(super) fn remove(&self) {
        remove(&self.folder);
    }
}

fn files(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn remove(folder: &Path) {
    for file in files(folder) {
        let _ = fs::remove_file(file.path());
    }
    let _ = fs::remove_dir(folder);
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
        // A FIFO would be waited for, and a device may have no end. Anyone may have made the file.
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || about.len() != Record::SIZE as u64 {
            return Err(no_record());
        }
        let mut bytes = [0; Record::SIZE];
        (&file).read_exact(&mut bytes)?;
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
    // Written and not left as a hole: to touch one is a bus error where the disk is full.
    let mut left = Record::SIZE;
    while left > 0 {
        left -= match quiet_write::write(file.as_raw_fd(), &[0; Record::SIZE][..left]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => n,
            Err(errno) => return Err(io::Error::from_raw_os_error(errno.raw())),
        };
    }
    let record = map(&file)?;
    // The magic number comes last: a process that finds it may use the whole file.
    // SAFETY: mapped by `map`; any bytes are a valid record of atomics.
    unsafe { record.as_ref() }.format();
    Ok(record)
}

fn map(file: &File) -> io::Result<NonNull<Record>> {
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
    NonNull::new(at.cast::<Record>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
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
        assert!(!path.exists() && !path.parent().unwrap().exists());
        assert_eq!(error(&path), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_record_is_its_users_and_others_have_their_own_beside_it() {
        let file = RecordFile::create().unwrap();
        let folder = file.path().parent().unwrap().to_owned();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&folder), mode(file.path())), (0o1733, 0o600));
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name(file.path()).len(), 32);
        assert!(!name(&folder).contains(&name(file.path())));
        let beside = |end: &str| folder.join(format!("{}.{end}", name(file.path())));
        for (end, forks) in [("33", 3), ("65534", 4)] {
            // SAFETY: a mapping of this test's own, for the rest of the process.
            unsafe { make(&beside(end)).unwrap().as_ref() }.add(Counter::Forks, forks);
        }
        file.record().add(Counter::Forks, 2);
        // What is no record is not counted.
        fs::write(beside("1"), [1; Record::SIZE]).unwrap();
        let fifo = std::ffi::CString::new(beside("2").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: a string that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(file.report().count(Counter::Forks), 9);
        drop(file);
        assert!(!folder.exists());
    }
}
