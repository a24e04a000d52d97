//! The file of the record: made here, mapped by every process of the tree, removed by the collector.
#![expect(unsafe_code, reason = "maps a file")]

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use forkless_run::Record;

use super::report::Destination;

/// A mapped record, and where its report will go.
pub(super) struct RecordFile {
    path: PathBuf,
    record: &'static Record,
    pub(super) output: File,
    /// Nothing but the report is in it.
    pub(super) output_is_ours: bool,
    pub(super) json: bool,
}

impl RecordFile {
    /// Path of the record.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The record.
    pub(super) fn record(&self) -> &'static Record {
        self.record
    }

    /// Takes the file away; processes that have it mapped keep counting into nothing.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes an empty record, in memory where possible, and opens the report's destination, so that an unwritable one is refused
/// before the program starts.
pub(super) fn create(to: Destination, json: bool) -> anyhow::Result<RecordFile> {
    let output = to.open()?;
    let output_is_ours =
        matches!(to, Destination::File(_)) && output.metadata().is_ok_and(|about| about.is_file());
    let mut random = [0u8; 16];
    File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut random)).context("/dev/urandom")?;
    let name: String = random.iter().map(|b| format!("{b:02x}")).collect();
    let folder = ["/dev/shm", "/tmp"].into_iter().find(|d| Path::new(d).is_dir()).unwrap_or("/tmp");
    let path = Path::new(folder).join(format!("forkless-{name}"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    // Programs of the tree may have changed their user before they map it. It holds counts, and its name cannot be guessed.
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
    anyhow::ensure!(
        at != libc::MAP_FAILED,
        "cannot map {}: {}",
        path.display(),
        std::io::Error::last_os_error()
    );
    // SAFETY: mapped for the rest of the process; any bytes are a valid record of atomics.
    let record: &'static Record = unsafe { &*at.cast::<Record>() };
    record.format();
    Ok(RecordFile { path, record, output, output_is_ours, json })
}
