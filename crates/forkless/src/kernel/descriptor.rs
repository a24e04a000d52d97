//! Descriptors that close themselves.

use crate::error::{SpawnError, Step};
use forkless_sys::fd;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A pipe: read end, write end, both close-on-exec.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let (read, write) = fd::pipe2(fd::O_CLOEXEC).map_err(|e| SpawnError::new(Step::Pipe, None, e.raw()))?;
    Ok((owned(read), owned(write)))
}

/// Takes ownership of a number that the kernel just gave.
#[expect(unsafe_code, reason = "the one place where a number from the kernel becomes ownership")]
pub(crate) fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor that the kernel has just made for them, and that nothing
    // else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
