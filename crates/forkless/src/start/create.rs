//! The clone itself, by the best call allowed here, and what it must not leave changed in the parent.
//!
//! The signal mask is changed in [`clone_masked`] and restored there, on every path; the dumpable flag is put back by [`Dumpable`].
#![expect(unsafe_code, reason = "creating a child that shares memory")]

use crate::error::Step as At;
use crate::kernel::facilities::All;
use crate::kernel::process_state;
use crate::plan::Plan;
use crate::spec::stdio;
use crate::start::attempt::Until;
use crate::start::slot::Slot;
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{Errno, clone, ids, process};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, Ordering};

/// How the steps were laid out, and so how the child must be made.
#[derive(Clone, Copy)]
pub(crate) struct CloneMeans {
    pub until: Until,
    /// The descriptor table is the caller's until the child unshares it.
    pub share: bool,
    pub clone3: bool,
    /// The kernel resets the handlers; else a step does.
    pub clear_sighand: bool,
    /// The caller gets a handle; else the number serves it as well.
    pub pidfd: bool,
    /// Where the child runs, if not on the slot's own stack: lowest address and size.
    pub stack: Option<(*mut std::ffi::c_void, usize)>,
}

/// Opens the plan's cgroup, if it has one, for the time of the clone.
pub(crate) fn with_cgroup<T>(
    plan: &Plan,
    clone: impl FnOnce(Option<RawFd>) -> Result<T, Errno>,
) -> Result<T, ((At, Option<String>), Errno)> {
    let Some(dir) = &plan.cgroup else { return clone(None).map_err(|e| ((At::Clone, None), e)) };
    let what = || (At::Cgroup, Some(dir.to_string_lossy().into_owned()));
    let flags = forkless_sys::fd::O_PATH | forkless_sys::fd::O_DIRECTORY | forkless_sys::fd::O_CLOEXEC;
    let fd = forkless_sys::fd::openat(forkless_sys::fd::AT_FDCWD, dir.as_c_str().into(), flags, 0)
        .map_err(|e| (what(), e))?;
    let fd = stdio::owned(fd);
    clone(Some(fd.as_raw_fd())).map_err(|e| match e {
        // The last two for want of a number for the pidfd.
        Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE => ((At::Clone, None), e),
        _ => (what(), e),
    })
}

/// Blocks every signal, clones, and restores the mask: a handler must not run in the child, where it would work on the parent's
/// memory under another pid.
pub(crate) fn clone_masked(
    all: &All,
    slot: &'static Slot,
    data: *mut std::ffi::c_void,
    cgroup: Option<RawFd>,
    means: CloneMeans,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    // Cannot fail: the set and its size are right (sigprocmask(2), ERRORS).
    let old = signal::set_mask(SigSet::ALL)?;
    let made = clone_best(all, slot, data, cgroup, means);
    let restored = signal::set_mask(old);
    debug_assert!(restored.is_ok());
    made
}

fn clone_best(
    all: &All,
    slot: &'static Slot,
    data: *mut std::ffi::c_void,
    cgroup: Option<RawFd>,
    means: CloneMeans,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    const SIGCHLD: u32 = 17;
    let (stack, size) = means.stack.unwrap_or_else(|| slot.stack());
    let mut flags = clone::CLONE_VM;
    flags |= match means.until {
        Until::Exec => clone::CLONE_VFORK,
        Until::Cloned => clone::CLONE_CHILD_CLEARTID,
        // The slot is held until the child's end is seen.
        Until::Exit => 0,
    };
    flags |= if means.share { clone::CLONE_FILES } else { 0 };
    let mut pidfd: i32 = -1;
    let flies = u32::from(means.until == Until::Cloned);
    // Read first: the word is on a line the child reads.
    if slot.tid.load(Ordering::Relaxed) != flies {
        slot.tid.store(flies, Ordering::Release);
    }
    if means.clone3 {
        let mut args = clone::args();
        args.flags = u64::from(flags);
        if means.pidfd {
            args.flags |= u64::from(clone::CLONE_PIDFD);
        }
        if means.clear_sighand {
            args.flags |= clone::CLONE_CLEAR_SIGHAND;
        }
        if let Some(fd) = cgroup {
            args.flags |= clone::CLONE_INTO_CGROUP;
            args.cgroup = fd as u64;
        }
        args.exit_signal = u64::from(SIGCHLD);
        args.pidfd = (&raw mut pidfd) as u64;
        args.child_tid = slot.tid.as_ptr() as u64;
        args.stack = stack as u64;
        args.stack_size = size as u64;
        // SAFETY: slot and launch are kept until the child has left; all signals are blocked.
        match unsafe { clone::clone3(&args, forkless_child::start, data) } {
            Ok(pid) => {
                all.clear_sighand.confirm();
                if means.pidfd {
                    all.pidfd.confirm();
                }
                if cgroup.is_some() {
                    all.into_cgroup.confirm();
                }
                return Ok((pid, means.pidfd.then(|| stdio::owned(pidfd))));
            }
            // A filter installed since the probe. Not another way from here: the steps are those for this one.
            Err(e @ (Errno::ENOSYS | Errno::EPERM)) if clone::clone3_allowed().is_err() => {
                all.clone3.refuse(e);
                all.clear_sighand.refuse(e);
                all.into_cgroup.refuse(e);
                slot.tid.store(0, Ordering::Release);
                return Err(e);
            }
            // CLONE_CLEAR_SIGHAND (5.5) is newer than clone3, and emulators of the kernel lack it.
            Err(Errno::EINVAL) if means.clear_sighand && !all.clear_sighand.confirmed() => {
                all.clear_sighand.refuse(Errno::EINVAL);
                slot.tid.store(0, Ordering::Release);
                return Err(Errno::EINVAL);
            }
            Err(e) => {
                slot.tid.store(0, Ordering::Release);
                return Err(e);
            }
        }
    }
    if cgroup.is_some() {
        slot.tid.store(0, Ordering::Release);
        return Err(Errno::ENOSYS);
    }
    clone_plain(all, slot, data, flags, SIGCHLD, means)
}

/// `clone(2)`: the caller's steps reset the handlers, since this call cannot.
fn clone_plain(
    all: &All,
    slot: &'static Slot,
    data: *mut std::ffi::c_void,
    flags: u32,
    exit_signal: u32,
    means: CloneMeans,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    let (stack, size) = means.stack.unwrap_or_else(|| slot.stack());
    // SAFETY: one past the end of the stack.
    let top = unsafe { stack.byte_add(size) };
    let tid = slot.tid.as_ptr().cast::<i32>();
    let mut pidfd: i32 = -1;
    // SAFETY: as in `clone_best`.
    let with = |more: u32, at: *mut i32| unsafe {
        clone::clone(flags | more, exit_signal, top, at, tid, forkless_child::start, data)
    };
    if !means.pidfd {
        return with(0, std::ptr::null_mut())
            .map(|pid| (pid, None))
            .inspect_err(|_| slot.tid.store(0, Ordering::Release));
    }
    let made = match with(clone::CLONE_PIDFD, &raw mut pidfd) {
        // Older than 5.2, or a filter on this flag.
        Err(Errno::EINVAL | Errno::EPERM | Errno::ENOSYS) => with(0, std::ptr::null_mut()),
        made => made,
    };
    match made {
        Ok(pid) if pidfd >= 0 => Ok((pid, Some(stdio::owned(pidfd)))),
        // Ours and, unless SIGCHLD is ignored or a handler waits for everybody's children, not reaped, so the number has not been
        // given to another process.
        Ok(pid) => match process::pidfd_open(pid) {
            Ok(fd) => Ok((pid, Some(stdio::owned(fd)))),
            Err(Errno::ESRCH | Errno::EMFILE | Errno::ENFILE) => Ok((pid, None)),
            Err(e) => {
                all.pidfd.refuse(e);
                Ok((pid, None))
            }
        },
        Err(e) => {
            slot.tid.store(0, Ordering::Release);
            Err(e)
        }
    }
}

/// Puts the dumpable flag back that a child's change of credentials clears (`commit_creds`): it belongs to the shared memory. Kept
/// cleared until the last such child has left, since it is what keeps its new user from reading this process through the child.
///
/// It stays cleared where the program has changed its own credentials meanwhile, which clears it, too. That the program has cleared it
/// by `prctl` meanwhile cannot be told: the guide says so.
pub(crate) struct Dumpable {
    before: Credentials,
}

type Credentials = (forkless_sys::Result<[u32; 3]>, forkless_sys::Result<[u32; 3]>);

/// What this thread has. libc changes it in all threads, this one as soon as its signals are no longer blocked.
fn credentials() -> Credentials {
    (ids::getresuid(), ids::getresgid())
}

impl Dumpable {
    pub(crate) fn hold() -> Dumpable {
        let mut h = process_state::state().dumpable.lock().unwrap_or_else(PoisonError::into_inner);
        if h.0 == 0 {
            h.1 = process::dumpable().unwrap_or(0);
        }
        h.0 += 1;
        Dumpable { before: credentials() }
    }
}

impl Drop for Dumpable {
    fn drop(&mut self) {
        let mut h = process_state::state().dumpable.lock().unwrap_or_else(PoisonError::into_inner);
        h.0 -= 1;
        if credentials() != self.before {
            h.1 = 0;
        }
        // Only 1 can be set, and 0 and 2 were not lost.
        if h.0 == 0 && h.1 == 1 && process::dumpable() != Ok(1) {
            let _ = process::set_dumpable(1);
        }
    }
}

/// libc's errno of this thread.
pub(crate) fn errno() -> &'static AtomicI32 {
    // SAFETY: always succeeds.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own word; a child that shares the thread pointer runs only while this thread is suspended.
    unsafe { AtomicI32::from_ptr(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program that became another user between a start's clone and its return had the flag put back.
    #[test]
    fn the_dumpable_flag_stays_cleared_when_the_program_becomes_another_user() {
        // SAFETY: as documented.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: only root can become another user");
            return;
        }
        // SAFETY: the child makes system calls only, and takes a lock that nobody holds.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let _ = process::set_dumpable(1);
            let held = Dumpable::hold();
            let became = ids::setresuid(u32::MAX, 54_321, u32::MAX);
            drop(held);
            let is_cleared = became.is_ok() && process::dumpable() != Ok(1);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_cleared { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: as documented.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }
}
