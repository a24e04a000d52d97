//! Two stops of a traced child for each system call.

use std::ffi::c_void;
use std::ptr;

use super::super::{Operation, set_zone};
use crate::error::Error;
use crate::spawn::worker::reap;
use crate::tracing;

/// System calls an operation makes, counted by tracing a child through two batches of different
/// length, so that what surrounds the operations cancels.
#[expect(clippy::cast_precision_loss, reason = "counts of system calls")]
pub(in super::super) fn system_calls(operation: &Operation) -> Option<Result<f64, Error>> {
    let difference = || Ok((traced(operation, 20)?, traced(operation, 220)?));
    let a_call = |(short, long): (u64, u64)| long.saturating_sub(short) as f64 / 200.0;
    Some(difference().map(a_call))
}

/// All system calls of a child that makes `count` operations.
fn traced(operation: &Operation, count: u64) -> Result<u64, Error> {
    let none = ptr::null_mut::<c_void>();
    // SAFETY: the child makes itself traceable, runs the operation and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        set_zone(operation);
        // Without a tracer nobody would continue it.
        // SAFETY: makes the parent this child's tracer.
        if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) } != 0 {
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(1) };
        }
        // SAFETY: stops this child until its tracer continues it.
        unsafe { libc::raise(libc::SIGSTOP) };
        (operation.repeat)(count);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    if pid < 0 {
        return Err(Error::last_os("fork"));
    }
    let mut stops = 0;
    let mut status = reap(pid, 0)?;
    if !libc::WIFSTOPPED(status) {
        return Err(tracing::refused(""));
    }
    while libc::WIFSTOPPED(status) {
        stops += 1;
        // SAFETY: the pid is a stopped tracee of this thread.
        if unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, none, none) } != 0 {
            let error = Error::last_os("trace a child");
            // SAFETY: the pid is a child that has not been reaped.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            reap(pid, 0)?;
            return Err(error);
        }
        status = reap(pid, 0)?;
    }
    Error::check_status(operation.name, status)?;
    // One stop where a call begins and one where it ends.
    Ok(stops / 2)
}
