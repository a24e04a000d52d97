//! A child that runs a function of the caller's in the caller's memory, for the C interface
//! (`popen_noshell_vmfork`).
#![expect(unsafe_code, reason = "a child that shares memory")]

use crate::error::{SpawnError, Step};
use crate::kernel::wait::wait;
use forkless_child::{Action, Exec, Function, Launch, Report, Stack, start_suspended};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{Errno, process};
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// Runs `call(data)` in a child on `size` bytes from `stack`, while the calling thread is
/// suspended. The result is the child's exit status. The child has the caller's mask, and no
/// handlers. Returns its pid; it has no exit signal, so wait for it with `__WALL`.
///
/// # Safety
/// Nothing else uses the stack until the child has left the shared memory; its end is a multiple of
/// 16. `call` takes no lock, allocates nothing, does not unwind, and leaves alone all that this
/// process relies on.
#[doc(hidden)]
pub unsafe fn run_suspended(
    stack: *mut c_void,
    size: usize,
    call: unsafe extern "C" fn(*mut c_void) -> c_int,
    data: *mut c_void,
) -> Result<i32, SpawnError> {
    let fail = |e: Errno| SpawnError::new(Step::Clone, None, e.raw());
    let before = signal::set_mask(SigSet::ALL).map_err(fail)?;
    let run = [Action::Run(Function { call, data, mask: before })];
    let end = null();
    let exec = Exec {
        candidates: &[],
        argv: &end,
        envp: &end,
        mask: before,
        no_core_dump: false,
        wait_for_writers: false,
        past_any_error: false,
    };
    let report = Report::new();
    let launch = Launch { files: &[], actions: &run, exec, hint: 0, report: &report };
    // SAFETY: the caller's contract; all signals are blocked, and the launch lives until the call
    // returns.
    let made = unsafe { start_suspended(&launch, Stack { lowest: stack, size }, 0) };
    let restored = signal::set_mask(before);
    debug_assert!(restored.is_ok());
    let pid = made.map_err(fail)?;
    match report.failure() {
        None => Ok(pid),
        // The mask or the handlers: a filter for system calls. It has ended.
        Some(failure) => {
            while wait(pid, process::WEXITED | process::WALL) == Err(Errno::EINTR) {}
            Err(fail(failure.errno))
        }
    }
}
