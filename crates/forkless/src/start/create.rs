//! Cloning, by the best call that is allowed here.
//!
//! The signal mask is changed in [`clone_masked`], and restored there on every path.
#![expect(unsafe_code, reason = "creating a child that shares memory")]

use super::request::WaitFor;
use super::slot::Slot;
use crate::error::Step;
use crate::kernel::descriptor::owned;
use crate::kernel::facilities::Facilities;
use crate::plan::Plan;
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{Errno, clone, fd, process};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

/// How to clone. The options must fit the child's actions: the actions leave out the work that
/// clone3 does.
#[derive(Clone, Copy)]
pub(super) struct CloneOptions {
    pub wait_for: WaitFor,
    /// The descriptor table is the caller's until the child unshares it.
    pub share: bool,
    /// Clone by clone3, else by clone(2).
    pub clone3: bool,
    /// The kernel resets the handlers; else an action does.
    pub clear_sighand: bool,
    /// Make a pidfd. Without one the child is known by its pid.
    pub pidfd: bool,
    /// The signal that its end sends.
    pub exit_signal: u32,
    /// Where the child runs, if not on the slot's own stack: lowest address and size.
    pub stack: Option<(*mut std::ffi::c_void, usize)>,
}

/// Opens the plan's cgroup, if it has one, for the time of the clone.
pub(super) fn with_cgroup<T>(
    plan: &Plan,
    clone: impl FnOnce(Option<RawFd>) -> Result<T, Errno>,
) -> Result<T, ((Step, Option<String>), Errno)> {
    let Some(dir) = &plan.cgroup else { return clone(None).map_err(|e| ((Step::Clone, None), e)) };
    let what = || (Step::Cgroup, Some(dir.to_string_lossy().into_owned()));
    let flags = fd::O_PATH | fd::O_DIRECTORY | fd::O_CLOEXEC;
    let fd = fd::openat(fd::AT_FDCWD, dir.as_c_str().into(), flags, 0).map_err(|e| (what(), e))?;
    let fd = owned(fd);
    clone(Some(fd.as_raw_fd())).map_err(|e| match e {
        // EMFILE and ENFILE: there is no number for the pidfd.
        Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE => ((Step::Clone, None), e),
        _ => (what(), e),
    })
}

/// Blocks every signal, clones, and restores the mask. A handler must not run in the child, where
/// it would work on the parent's memory under another pid.
pub(super) fn clone_masked(
    facilities: &Facilities,
    slot: &'static Slot,
    launch: *mut std::ffi::c_void,
    cgroup: Option<RawFd>,
    options: CloneOptions,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    // Cannot fail: the set and its size are right (sigprocmask(2), ERRORS).
    let old = signal::set_mask(SigSet::ALL)?;
    let made = clone_best(facilities, slot, launch, cgroup, options);
    let restored = signal::set_mask(old);
    debug_assert!(restored.is_ok());
    made
}

fn clone_best(
    facilities: &Facilities,
    slot: &'static Slot,
    launch: *mut std::ffi::c_void,
    cgroup: Option<RawFd>,
    options: CloneOptions,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    let (stack, size) = options.stack.unwrap_or_else(|| slot.stack());
    let mut flags = clone::CLONE_VM;
    flags |= match options.wait_for {
        WaitFor::Exec => clone::CLONE_VFORK,
        WaitFor::Clone => clone::CLONE_CHILD_CLEARTID,
        // The slot is held until the child's end is seen.
        WaitFor::End => 0,
    };
    flags |= if options.share { clone::CLONE_FILES } else { 0 };
    let mut pidfd: i32 = -1;
    let occupied = u32::from(options.wait_for == WaitFor::Clone);
    // Read first: the word is on a cache line that the child reads.
    if slot.tid.load(Ordering::Relaxed) != occupied {
        slot.tid.store(occupied, Ordering::Release);
    }
    if options.clone3 {
        let mut args = clone::args();
        args.flags = u64::from(flags);
        if options.pidfd {
            args.flags |= u64::from(clone::CLONE_PIDFD);
        }
        if options.clear_sighand {
            args.flags |= clone::CLONE_CLEAR_SIGHAND;
        }
        if let Some(fd) = cgroup {
            args.flags |= clone::CLONE_INTO_CGROUP;
            args.cgroup = fd as u64;
        }
        args.exit_signal = u64::from(options.exit_signal);
        args.pidfd = (&raw mut pidfd) as u64;
        args.child_tid = slot.tid.as_ptr() as u64;
        args.stack = stack as u64;
        args.stack_size = size as u64;
        // SAFETY: slot and launch are kept until the child has left; all signals are blocked.
        match unsafe { clone::clone3(&args, forkless_child::start, launch) } {
            Ok(pid) => {
                facilities.clear_sighand.confirm();
                if options.pidfd {
                    facilities.pidfd.confirm();
                }
                if cgroup.is_some() {
                    facilities.into_cgroup.confirm();
                }
                return Ok((pid, options.pidfd.then(|| owned(pidfd))));
            }
            // A filter installed since the probe. No other call is tried from here: the actions
            // were laid out for this one.
            Err(e @ (Errno::ENOSYS | Errno::EPERM)) if clone::clone3_allowed().is_err() => {
                facilities.clone3.refuse(e);
                facilities.clear_sighand.refuse(e);
                facilities.into_cgroup.refuse(e);
                slot.tid.store(0, Ordering::Release);
                return Err(e);
            }
            // CLONE_CLEAR_SIGHAND (5.5) is newer than clone3, and emulators of the kernel lack it.
            Err(Errno::EINVAL) if options.clear_sighand && !facilities.clear_sighand.confirmed() => {
                facilities.clear_sighand.refuse(Errno::EINVAL);
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
    clone_without_clone3(facilities, slot, launch, flags, options)
}

/// By `clone(2)`: the caller's actions reset the handlers, since this call cannot.
fn clone_without_clone3(
    facilities: &Facilities,
    slot: &'static Slot,
    launch: *mut std::ffi::c_void,
    flags: u32,
    options: CloneOptions,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    let (stack, size) = options.stack.unwrap_or_else(|| slot.stack());
    // SAFETY: one past the end of the stack.
    let top = unsafe { stack.byte_add(size) };
    let tid = slot.tid.as_ptr().cast::<i32>();
    let mut pidfd: i32 = -1;
    // SAFETY: as in `clone_best`.
    let with = |more: u32, at: *mut i32| unsafe {
        clone::clone(flags | more, options.exit_signal, top, at, tid, forkless_child::start, launch)
    };
    if !options.pidfd {
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
        Ok(pid) if pidfd >= 0 => Ok((pid, Some(owned(pidfd)))),
        // Our child, which has not been reaped, so no other process has its number. That does not
        // hold where SIGCHLD is ignored, or a handler waits for any child.
        Ok(pid) => match process::pidfd_open(pid) {
            Ok(fd) => Ok((pid, Some(owned(fd)))),
            Err(Errno::ESRCH | Errno::EMFILE | Errno::ENFILE) => Ok((pid, None)),
            Err(e) => {
                facilities.pidfd.refuse(e);
                Ok((pid, None))
            }
        },
        Err(e) => {
            slot.tid.store(0, Ordering::Release);
            Err(e)
        }
    }
}
