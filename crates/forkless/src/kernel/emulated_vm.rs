//! Kernels that copy memory though `CLONE_VM` was asked: user-mode emulators (qemu-user).
//!
//! Such an emulator carries a vfork out as a fork. So the child's report travels through memory
//! mapped `MAP_SHARED`, and a pipe that exec closes tells of the exec. That is slower, with the
//! same results.
//!
//! The emulator forks, not this library, which still asks for `CLONE_VM | CLONE_VFORK`.
//! [`crate::facilities`] shows it.
#![expect(unsafe_code, reason = "a probing child; a report in a mapping of its own")]

use super::wait::wait;
use crate::error::{SpawnError, Step};
use forkless_child::Report;
use forkless_sys::mm::LARGEST_PAGE;
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{Errno, Result, clone, fd, mm, process};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether a child made with `CLONE_VM` shares memory: the child writes a word.
///
/// Only asked where clone3 is refused: an emulator refuses it, and a real kernel shares memory.
///
/// The child has no exit signal, so a handler for SIGCHLD and a wait for any child are not told of
/// it. An emulator that forks refuses that (`EINVAL`: do_fork, linux-user/syscall.c of QEMU), and
/// is asked again as it wants it.
pub(crate) fn shares_memory() -> Result<()> {
    unsafe extern "C" fn write_and_leave(word: *mut c_void) -> ! {
        // SAFETY: the word outlives this child, which its parent reaps before it returns.
        unsafe { &*word.cast::<AtomicU32>() }.store(1, Ordering::Release);
        process::exit_group(0)
    }
    let word = AtomicU32::new(0);
    let Ok(stack) = mm::map_anonymous(LARGEST_PAGE, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE) else {
        return Ok(());
    };
    // SAFETY: one past the end of the mapping.
    let top = unsafe { stack.byte_add(LARGEST_PAGE) };
    let none = std::ptr::null_mut::<i32>();
    let old = signal::set_mask(SigSet::ALL);
    let at = word.as_ptr().cast::<c_void>();
    let flags = clone::CLONE_VM | clone::CLONE_VFORK;
    // SAFETY: the stack and the word are kept until the child has been reaped. No handler runs in
    // the child, since all signals are blocked.
    let ask = |exit_signal| unsafe { clone::clone(flags, exit_signal, top, none, none, write_and_leave, at) };
    let made = match ask(0) {
        Err(Errno::EINVAL) => ask(signal::SIGCHLD as u32),
        made => made,
    };
    if let Ok(old) = old {
        let _ = signal::set_mask(old);
    }
    if let Ok(pid) = made {
        while wait(pid, process::WEXITED | process::WALL) == Err(Errno::EINTR) {}
    }
    // SAFETY: the child is gone.
    let _ = unsafe { mm::munmap(stack, LARGEST_PAGE) };
    // Where not even this clone is allowed, the start will say so itself.
    if made.is_ok() && word.load(Ordering::Acquire) == 0 { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

/// A report that a copy of this process can write to.
pub(crate) struct SharedReport(*mut Report);

impl SharedReport {
    pub(crate) fn new() -> std::result::Result<SharedReport, SpawnError> {
        let at = mm::map_anonymous(LARGEST_PAGE, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED)
            .map_err(|e| SpawnError::new(Step::Stack, None, e.raw()))?
            .cast::<Report>();
        // SAFETY: a fresh mapping, larger than a report and aligned to pages.
        unsafe { at.write(Report::new()) };
        Ok(SharedReport(at))
    }

    /// Where the child writes.
    pub(crate) fn get(&self) -> &Report {
        // SAFETY: written in `new`, mapped until the drop; a report is made of atomics.
        unsafe { &*self.0 }
    }
}

impl Drop for SharedReport {
    fn drop(&mut self) {
        // SAFETY: nobody here uses it any more; a child has its own mapping.
        let _ = unsafe { mm::munmap(self.0.cast(), LARGEST_PAGE) };
    }
}

/// Waits until the child has closed its end: it has executed the program, or it is gone.
pub(crate) fn until_closed(read: &OwnedFd) {
    while fd::read(read.as_raw_fd(), &mut [0]) == Err(Errno::EINTR) {}
}
