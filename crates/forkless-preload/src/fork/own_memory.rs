//! A descriptor of this process's own memory, kept from before it gave up being root.
//!
//! A process that has changed its user is not dumpable (`commit_creds`, kernel/cred.c), and the files of /proc that show it belong to
//! root from then on: servers that drop their privileges, as Apache does, could never speculate. Making the process dumpable for the
//! moment it takes to open the file would let every other process of that user attach to it. So the file is opened while that is
//! still allowed, just before the change.
//!
//! Only in processes large enough to speculate, and only while they are not root. The descriptor is close-on-exec; a child of a plain
//! fork closes it, for it shows the parent's memory; and whatever the program does to its number meanwhile is noticed before each use.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use forkless_record::Kind;
use forkless_sys::{CPtr, Errno, fd, ids};

use crate::config::{self, Fork};

use super::{Attempt, size};

static KEPT: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Below the number that speculations take, so that one does not push the other into a larger table.
const NUMBER: i32 = 200;

const PATH: &CStr = c"/proc/self/mem";

/// The program is about to change its user.
pub(crate) fn keep() {
    let kept = KEPT.load(Relaxed);
    if config::fork() == Fork::Off
        || super::sandboxed()
        || ids::geteuid() != 0
        || (kept >= 0 && is_ours(kept))
    {
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
    // Another thread may have come here at the same time.
    let_go(KEPT.swap(high, Relaxed));
}

fn of(descriptor: i32) -> forkless_sys::Result<(u64, u64)> {
    fd::identity(descriptor, CPtr::from(c""), fd::AT_EMPTY_PATH)
}

fn is_kept(descriptor: i32) -> bool {
    of(descriptor) == Ok((DEVICE.load(Relaxed), INODE.load(Relaxed)))
}

/// A copy of the descriptor, if it still is one of this very process: a child made without libc, or the program itself, may have another
/// file behind that number, or another thread may come to at any moment. Looking at the file's identity is allowed where opening it is not.
pub(crate) fn copy() -> Attempt<i32> {
    let kept = KEPT.load(Relaxed);
    if kept < 0 {
        return Err(Kind::NoProc);
    }
    let copy = fd::dup_cloexec(kept, 3)
        .map_err(|e| if e == Errno::EBADF { Kind::NoProc } else { Kind::Descriptors })?;
    if is_ours(copy) {
        return Ok(copy);
    }
    let _ = fd::close(copy);
    Err(Kind::NoProc)
}

/// Closes a descriptor of this process's memory, but not a file that another thread has put behind its number meanwhile.
pub(crate) fn close(descriptor: i32) {
    if config::fork() != Fork::Speculate || is_ours(descriptor) {
        let _ = fd::close(descriptor);
    }
}

/// Whether a descriptor is one of this process's memory.
fn is_ours(descriptor: i32) -> bool {
    fd::identity(fd::AT_FDCWD, CPtr::from(PATH), 0).is_ok_and(|now| of(descriptor) == Ok(now))
}

/// The program has tried to change its user. One that still is root, or is it again, can open the file whenever it needs it.
pub(crate) fn keep_while_needed() {
    if KEPT.load(Relaxed) >= 0 && !super::sandboxed() && ids::geteuid() == 0 {
        forget();
    }
}

/// In the child of a plain fork: what is kept is the parent's memory.
pub(crate) fn forget() {
    // What is not there is not written.
    if KEPT.load(Relaxed) >= 0 {
        let_go(KEPT.swap(-1, Relaxed));
    }
}

fn let_go(kept: i32) {
    if kept >= 0 && is_kept(kept) {
        let _ = fd::close(kept);
    }
}
