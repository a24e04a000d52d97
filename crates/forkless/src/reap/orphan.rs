//! A dropped child, known by its number.
//!
//! A number can have become another child's only where other code of the process reaps ours. Since
//! Linux 6.9 the inode of a pidfd tells the two apart. A timer does on any kernel, but only a child
//! that was started without a pidfd has one.

use super::by_pidfd;
use super::timer::ReapTimer;
use crate::kernel::descriptor::owned;
use forkless_sys::process::{self, WNOHANG};
use forkless_sys::{Errno, fd};
use std::os::fd::{AsRawFd, OwnedFd};

/// A child, without a descriptor.
pub(super) struct Orphan {
    pid: i32,
    /// Device and inode of its pidfd: the same for all before Linux 6.9.
    identity: Option<(u64, u64)>,
    /// Where it never had a pidfd.
    reap_timer: Option<Box<ReapTimer>>,
}

impl Orphan {
    /// The child `pid`, whose pidfd is closed.
    pub(super) fn new(pid: i32, pidfd: Option<OwnedFd>, reap_timer: Option<Box<ReapTimer>>) -> Orphan {
        Orphan { pid, identity: pidfd.as_ref().and_then(identity), reap_timer }
    }

    /// A pidfd of the child, in the calling thread's table. `ESRCH` when the child has been reaped.
    pub(super) fn pidfd(&self) -> Result<OwnedFd, Errno> {
        let pidfd = owned(process::pidfd_open(self.pid)?);
        if self.identity.is_some() && identity(&pidfd) != self.identity {
            return Err(Errno::ESRCH);
        }
        // After the opening: what is not reaped now had its number then.
        if self.is_reaped() {
            return Err(Errno::ESRCH);
        }
        Ok(pidfd)
    }

    /// Whether it is gone, reaped here or by others.
    pub(super) fn is_gone(&self) -> bool {
        match self.pidfd() {
            Ok(pidfd) => self.reap(Some(&pidfd)) != Some(false),
            Err(Errno::ESRCH) => true,
            Err(_) => self.reap(None) != Some(false),
        }
    }

    /// Reaps it if it has ended, and says whether it has. `None` when it is not ours to wait for.
    pub(super) fn reap(&self, pidfd: Option<&OwnedFd>) -> Option<bool> {
        if self.is_reaped() {
            return None;
        }
        match by_pidfd::forget_ended(self.pid, pidfd, WNOHANG) {
            Ok(ended) => Some(ended),
            Err(Errno::EINTR) => Some(false),
            Err(_) => None,
        }
    }
}

impl Orphan {
    fn is_reaped(&self) -> bool {
        self.reap_timer.as_ref().is_some_and(|timer| timer.is_reaped())
    }
}

fn identity(pidfd: &OwnedFd) -> Option<(u64, u64)> {
    fd::identity(pidfd.as_raw_fd(), c"".into(), fd::AT_EMPTY_PATH).ok()
}
