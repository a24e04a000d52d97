//! The calling process's own files in /proc.
//!
//! What lies at /proc is not always the kernel's. A program may enter a root directory or a mount
//! namespace that belongs to another user, as container tools do. If that user had made a file in
//! place of `maps` or `mem`, the child would execute what the file says, with the program's
//! privileges. A FIFO would be waited for. So a file is opened only below the root of a procfs,
//! with nothing mounted over it. There `self` is the process that opens it (fs/proc/self.c).

use core::ffi::CStr;

use forkless_sys::{CPtr, Errno, Result, fd};
#[cfg(target_arch = "x86_64")]
use linux_raw_sys::general::O_NOFOLLOW;
use linux_raw_sys::general::PROC_SUPER_MAGIC;

use crate::small_file;

/// The inode of procfs's root, and of no other file in a procfs that has a `self` (`PROC_ROOT_INO`,
/// include/linux/proc_fs.h).
const ROOT_INODE: u64 = 1;

/// Opens a file of the calling process or thread for reading, by its path below /proc. `ENOENT`
/// where /proc is no procfs, `EXDEV` where something is mounted over the file.
///
/// Only after `filters::learn`: a filter that came with the program may kill for these calls.
pub(crate) fn open(path: &CStr) -> Result<i32> {
    below_root(|root| fd::open_below(root, CPtr::from(path), fd::O_RDONLY | fd::O_CLOEXEC))
}

/// The texts of two symbolic links, found in the same way. `None` for the second where it leads
/// nowhere.
#[cfg(target_arch = "x86_64")]
pub(crate) fn links(first: &CStr, second: &CStr) -> Result<([u8; 24], Option<[u8; 24]>)> {
    below_root(|root| {
        let text = |path: &CStr| {
            let link = fd::open_below(root, CPtr::from(path), fd::O_PATH | O_NOFOLLOW | fd::O_CLOEXEC)?;
            let mut text = [0; 24];
            let read = fd::readlinkat(link, CPtr::from(c""), &mut text);
            let _ = fd::close(link);
            Ok(read.map(|_| text))
        };
        Ok((text(first)??, text(second)?.ok()))
    })
}

/// `TracerPid` of /proc/self/status: whether the process is traced. `None`: it cannot be read.
pub(crate) fn tracer() -> Option<bool> {
    let mut tracer = None;
    small_file::status_lines(|line| {
        tracer = line.strip_prefix(b"TracerPid:\t").map(|pid| pid != b"0");
        tracer.is_none()
    });
    tracer
}

fn below_root<T>(use_it: impl FnOnce(i32) -> Result<T>) -> Result<T> {
    // `O_PATH`: opening it could have an effect, or wait.
    let flags = fd::O_PATH | fd::O_DIRECTORY | fd::O_CLOEXEC;
    let root = fd::openat(fd::AT_FDCWD, CPtr::from(c"/proc"), flags, 0)?;
    let is_procfs = fd::file_system(root) == Ok(PROC_SUPER_MAGIC.into());
    let inode = fd::identity(root, CPtr::from(c""), fd::AT_EMPTY_PATH).map(|(_, inode)| inode);
    let result = if is_procfs && inode == Ok(ROOT_INODE) { use_it(root) } else { Err(Errno::ENOENT) };
    let _ = fd::close(root);
    result
}
