//! A file that gets a result. It is opened before the work, so that an hour of measuring is not
//! lost to a mistyped path. What it holds goes only when the result is there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

pub(crate) struct OutputFile(File);

impl OutputFile {
    pub(crate) fn open(path: &Path) -> io::Result<OutputFile> {
        OpenOptions::new().write(true).create(true).truncate(false).open(path).map(OutputFile)
    }

    /// Writes the result in place of what is there.
    pub(crate) fn write(mut self, result: &[u8]) -> io::Result<()> {
        // A terminal, a pipe or a device has no length.
        let is_file = self.0.metadata()?.is_file();
        if is_file {
            self.0.set_len(0)?;
        }
        self.0.write_all(result)?;
        // A full disk shows at the latest when the data is forced out.
        if is_file { self.0.sync_all() } else { Ok(()) }
    }
}
