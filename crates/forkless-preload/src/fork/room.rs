//! How much memory the limits of this process's cgroups leave (`forkless_speculate::limit`). The
//! parent finds that before a clone, for its child may lose sight of the files. In the window, so
//! one question at a time in a process.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forkless_speculate::limit::{self, Groups, Version};
use forkless_sys::{CPtr, Errno, Result, fd, time};

use crate::proc;

/// The last answer, and its time in nanoseconds. 0: none.
static ROOM: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Whether there is room for a child that writes `left` bytes which the kernel copies unasked. To
/// ask takes 25 us, so an answer may hold. In the forking thread, or in a helper with a table of
/// descriptors of its own; with all signals blocked.
pub(super) fn suffices(left: usize) -> bool {
    let now = time::monotonic_coarse().nanos();
    if limit::is_plenty(ROOM.load(Relaxed), now.wrapping_sub(ASKED.load(Relaxed)), left) {
        return true;
    }
    // Where a limit cannot be read, it may be near.
    let room = ask(limit::plenty(left)).unwrap_or(0);
    ROOM.store(room, Relaxed);
    ASKED.store(now, Relaxed);
    limit::suffices(room, left)
}

/// In the child: what its parent has found.
pub(super) fn at_fork() -> u64 {
    ROOM.load(Relaxed)
}

/// [`limit::room`] of the calling thread.
///
/// Out of line, for its text would be part of every fetch's frame.
#[cold]
#[inline(never)]
pub(super) fn ask(enough: u64) -> Option<u64> {
    limit::room(&mut Cgroups { root: None }, enough)
}

/// The cgroups, in the hierarchy below a descriptor.
struct Cgroups {
    root: Option<i32>,
}

// linux/magic.h.
const CGROUP_SUPER_MAGIC: i64 = 0x0027_e0eb;
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

impl Groups for Cgroups {
    fn list(&self, into: &mut [u8]) -> Result<usize> {
        // A first thread that has ended is in the root group.
        read(proc::open(c"thread-self/cgroup")?, into)
    }

    /// As in `proc`: what lies there may be another user's.
    fn find(&mut self, version: Version) -> Result<()> {
        let (places, magic): (&[&CStr], i64) = match version {
            Version::First => (&[c"/sys/fs/cgroup/memory"], CGROUP_SUPER_MAGIC),
            // The second place: the first version has all but some controllers.
            Version::Second => (&[c"/sys/fs/cgroup", c"/sys/fs/cgroup/unified"], CGROUP2_SUPER_MAGIC),
        };
        for place in places {
            let flags = fd::O_PATH | fd::O_DIRECTORY | fd::O_CLOEXEC;
            let root = fd::openat(fd::AT_FDCWD, CPtr::from(*place), flags, 0)?;
            if fd::file_system(root) == Ok(magic) {
                self.root = Some(root);
                return Ok(());
            }
            let _ = fd::close(root);
        }
        Err(Errno::ENOENT)
    }

    fn read(&self, path: &CStr, into: &mut [u8]) -> Result<usize> {
        let root = self.root.ok_or(Errno::ENOENT)?;
        read(fd::open_below(root, CPtr::from(path), fd::O_RDONLY | fd::O_CLOEXEC)?, into)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        if let Some(root) = self.root {
            let _ = fd::close(root);
        }
    }
}

/// Reads a file from its beginning, and closes it.
fn read(file: i32, into: &mut [u8]) -> Result<usize> {
    let n = fd::read(file, into);
    let _ = fd::close(file);
    n
}
