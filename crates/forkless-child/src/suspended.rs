//! Making a child that suspends the calling thread until the child has left the shared memory.
//!
//! Crate `forkless` makes its children by a call of its own (`create.rs`): they may have a pidfd, a
//! cgroup, and a parent that runs on.

use crate::{Failure, Launch, Phase, actions, start};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use forkless_sys::clone::{self, CLONE_CLEAR_SIGHAND, CLONE_VFORK, CLONE_VM};
use forkless_sys::{Errno, Result};

/// Whether this process may not use `clone3`.
static CLONE3_REFUSED: AtomicBool = AtomicBool::new(false);

/// Memory that a child runs on.
#[derive(Clone, Copy)]
pub struct Stack {
    /// The lowest address.
    pub lowest: *mut c_void,
    /// Bytes; the end is a multiple of 16.
    pub size: usize,
}

/// Makes a child that carries out `launch`, and returns its pid once it has executed a program or
/// ended. [`Launch::report`] then says which.
///
/// A child with an `exit_signal` of 0 ends without a signal, and a wait finds it only with `__WALL`
/// or `__WCLONE` (`eligible_child`, kernel/exit.c). When it executes a program it gets SIGCHLD
/// (`de_thread`, fs/exec.c).
///
/// Handlers of the caller are reset in the child: by `CLONE_CLEAR_SIGHAND`, or by the child itself
/// where `clone3` is refused, as by container filters that cannot look into its arguments.
/// The process remembers the refusal for its next child.
///
/// # Safety
/// All signals are blocked: a handler in the child would work on the caller's memory under another
/// pid. Nothing else uses `stack` or changes the launch during the call. Every pointer of the
/// launch is valid, and its functions keep the rules of the child side.
pub unsafe fn start_suspended(launch: &Launch<'_>, stack: Stack, exit_signal: u32) -> Result<i32> {
    // SAFETY: the caller's contract.
    unsafe { start_remembering(launch, stack, exit_signal, &CLONE3_REFUSED) }
}

/// [`start_suspended`], with a memory of the caller's for the refusal.
///
/// # Safety
/// As there.
#[doc(hidden)]
pub unsafe fn start_remembering(
    launch: &Launch<'_>,
    stack: Stack,
    exit_signal: u32,
    clone3_refused: &AtomicBool,
) -> Result<i32> {
    let data = (&raw const *launch).cast_mut().cast();
    if !clone3_refused.load(Relaxed) {
        let mut args = clone::args();
        args.flags = u64::from(CLONE_VM | CLONE_VFORK) | CLONE_CLEAR_SIGHAND;
        args.exit_signal = u64::from(exit_signal);
        args.stack = stack.lowest as u64;
        args.stack_size = stack.size as u64;
        // SAFETY: the caller's contract; CLONE_VFORK keeps the launch in use no longer than the
        // call takes.
        match unsafe { clone::clone3(&args, start, data) } {
            // EINVAL: emulators of the kernel may lack CLONE_CLEAR_SIGHAND.
            Err(Errno::ENOSYS | Errno::EPERM | Errno::EINVAL) => clone3_refused.store(true, Relaxed),
            made => return made,
        }
    }
    let top = stack.lowest.wrapping_byte_add(stack.size);
    let flags = CLONE_VM | CLONE_VFORK;
    // SAFETY: as above.
    unsafe { clone::clone(flags, exit_signal, top, null_mut(), null_mut(), start_without_handlers, data) }
}

/// As [`start`], in a child that still has its parent's handlers.
unsafe extern "C" fn start_without_handlers(data: *mut c_void) -> ! {
    if let Err(errno) = actions::reset_handlers() {
        // SAFETY: the parent's launch, as `start` gets it.
        let launch = unsafe { &*data.cast::<Launch<'_>>() };
        launch.report.fail(Failure { phase: Phase::Actions, index: launch.actions.len(), errno })
    }
    // SAFETY: the same contract.
    unsafe { start(data) }
}
