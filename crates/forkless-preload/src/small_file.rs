//! Files that the kernel writes, read at once.

use forkless_sys::{CPtr, fd};

/// What fits into `text`; `None` where the file cannot be read.
pub(crate) fn read<'a>(path: CPtr<'_>, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = fd::openat(fd::AT_FDCWD, path, fd::O_RDONLY | fd::O_CLOEXEC, 0).ok()?;
    let n = fd::read(file, text);
    let _ = fd::close(file);
    text.get(..n.ok()?)
}
