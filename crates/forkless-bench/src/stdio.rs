//! Sends this process's standard output to `/dev/null` for a while, so that the output of measured
//! children does not mix with results. Process-wide, hence not for use while another thread prints.

#![expect(unsafe_code, reason = "dup2 onto a descriptor the standard library owns")]

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use crate::error::Error;

/// Standard output goes to `/dev/null` until this is dropped.
#[derive(Debug)]
pub struct NullStdout {
    saved: OwnedFd,
}

impl NullStdout {
    /// Leads standard output to `/dev/null`.
    ///
    /// # Errors
    /// When there is no `/dev/null`, or no descriptor to keep the old one.
    pub fn new() -> Result<NullStdout, Error> {
        use std::io::Write as _;
        use std::os::fd::AsFd as _;
        // What is buffered belongs to where it was going.
        let _ = std::io::stdout().flush();
        let saved =
            std::io::stdout().as_fd().try_clone_to_owned().map_err(Error::io("duplicate standard output"))?;
        let null = File::options().write(true).open("/dev/null").map_err(Error::io("open /dev/null"))?;
        replace_stdout(null.as_raw_fd())?;
        Ok(NullStdout { saved })
    }
}

impl Drop for NullStdout {
    fn drop(&mut self) {
        // Fails only for a descriptor that is not open, and this one is.
        let _ = replace_stdout(self.saved.as_raw_fd());
    }
}

fn replace_stdout(with: RawFd) -> Result<(), Error> {
    // SAFETY: both descriptors are open; 1 stays a valid open file for everyone who holds it.
    if unsafe { libc::dup2(with, 1) } < 0 {
        return Err(Error::last_os("redirect standard output"));
    }
    Ok(())
}
