//! A descriptor of this process's own memory, kept from before it gave up being root.
//!
//! A process that has changed its user is not dumpable (`commit_creds`, kernel/cred.c), and the files of /proc that show it belong to
//! root from then on: servers that drop their privileges, as Apache does, could never speculate. Making the process dumpable for the
//! moment it takes to open the file would let every other process of that user attach to it. So the file is opened while that is
//! still allowed, just before the change.
//!
//! Only in processes large enough to speculate. The descriptor is close-on-exec; a child of a plain fork closes it, for it shows the
//! parent's memory; and whatever the program does to its number meanwhile is noticed before each use.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use forkless_sys::{CPtr, fd, ids};

use crate::config::{self, Fork};

use super::size;

static KEPT: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Below the number that speculations take, so that one does not push the other into a larger table.
const NUMBER: i32 = 200;

const PATH: &CStr = c"/proc/self/mem";

/// The program is about to change its user.
pub(crate) fn keep() {
    if config::fork() == Fork::Off || ids::geteuid() != 0 || get().is_some() {
        return;
    }
    if size::peak() < config::minimum() {
        return;
    }
    let Ok(low) = fd::openat(fd::AT_FDCWD, CPtr::from(PATH), fd::O_RDONLY | fd::O_CLOEXEC, 0) else { return };
    let high = fd::dup_cloexec(low, NUMBER);
    let _ = fd::close(low);
    let Ok(high) = high else { return };
    let Ok((device, inode)) = of(high) else {
        let _ = fd::close(high);
        return;
    };
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
    super::touched();
    KEPT.store(high, Relaxed);
}

fn of(descriptor: i32) -> forkless_sys::Result<(u64, u64)> {
    fd::identity(descriptor, CPtr::from(c""), fd::AT_EMPTY_PATH)
}

fn is_kept(descriptor: i32) -> bool {
    of(descriptor) == Ok((DEVICE.load(Relaxed), INODE.load(Relaxed)))
}

/// The descriptor, if it still is one of this very process: a child made without libc, or the program itself, may have another file
/// behind that number. Looking at the file's identity is allowed where opening it is not.
pub(crate) fn get() -> Option<i32> {
    let kept = KEPT.load(Relaxed);
    if kept < 0 {
        return None;
    }
    let now = fd::identity(fd::AT_FDCWD, CPtr::from(PATH), 0).ok()?;
    (of(kept) == Ok(now)).then_some(kept)
}

/// In the child of a plain fork: what is kept is the parent's memory.
pub(crate) fn forget() {
    let kept = KEPT.load(Relaxed);
    if kept < 0 {
        return;
    }
    KEPT.store(-1, Relaxed);
    if is_kept(kept) {
        let _ = fd::close(kept);
    }
}
