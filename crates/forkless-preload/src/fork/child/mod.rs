//! The speculative child: from the clone to its exec, or to the first thing that another process
//! could notice.
//!
//! Until it commits it must have no way to affect anything outside itself, with or without a system
//! call:
//! - Every call is judged by `forkless_speculate::policy`.
//! - Writable shared mappings are read-only here, and a write to one aborts.
//! - Death of any kind before the exec is an abort, too. The parent then makes the plain fork, so
//!   an error in this code costs time, not behaviour.
#![expect(unsafe_code, reason = "signal handlers, memory and the program's own system calls")]

use forkless_run::{AbortKind, AbortReason};
use forkless_sys::{Errno, dispatch, mm, process};

use crate::kernel::Args;
use crate::rt;
use crate::signals::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
use crate::speculation;

use super::arm;
use super::frame::{Frame, Info};
use super::slot::ThreadSlot;
use super::{exclusions, program_memory, shared_pages};

mod exec;
mod fds;
mod fetch;
mod files;
mod judge;
mod need;
pub(crate) mod signals;
mod stack;
mod status_flags;
mod time_limit;
mod timers;

pub(crate) use judge::judge;

/// `si_code` of a signal from a POSIX timer.
const SI_TIMER: i32 = -2;

/// Undoes the speculation: says why, and ends. The parent wakes when the child's memory is gone,
/// reaps it and forks plainly.
pub(crate) fn abort(reason: impl Into<AbortReason>) -> ! {
    end(reason.into())
}

#[cold]
#[inline(never)]
fn end(reason: AbortReason) -> ! {
    let outcome = shared_pages::get();
    outcome.abort(reason);
    signals::hand_over();
    status_flags::take_back();
    leave_group();
    outcome.set_executing(false);
    process::exit_group(0)
}

/// A process that ends may leave its group an orphaned one: a group without another member whose
/// parent is in another group of the session. The kernel then hangs up on its stopped members
/// (kernel/exit.c, kill_orphaned_pgrp). A process that changes its group first leaves none.
fn leave_group() {
    if let Ok(group) = process::getpgid(process::getppid()) {
        let _ = process::setpgid(group);
    }
}

/// A dispatched system call.
pub(crate) fn trapped(nr: u32, args: &Args) -> isize {
    shared_pages::count(&shared_pages::get().traps);
    abort_if_executing();
    judge(nr, args)
}

/// A system call whose libc function we interpose: the same policy without the signal.
pub(crate) fn direct(nr: u32, args: &Args) -> isize {
    count_direct();
    judge(nr, args)
}

/// A handler has interrupted an exec, or has jumped out of it. Mask, actions and death signal are
/// those of the exec now.
fn abort_if_executing() {
    if shared_pages::get().is_executing() {
        abort(AbortKind::Interrupted);
    }
}

/// Counts a call that is judged where it is interposed.
pub(crate) fn count_direct() {
    shared_pages::count(&shared_pages::get().direct);
    abort_if_executing();
}

/// Fetches what `addr..addr + len` lacks.
pub(crate) fn need_bytes(addr: usize, len: usize) {
    need::bytes(addr, len);
}

/// A value of the program's.
pub(crate) fn read<T: Copy>(at: usize) -> T {
    program_memory::value(at)
}

/// An answer to the program.
pub(crate) fn write<T>(at: usize, value: T) {
    program_memory::store(at, value);
}

/// A signal reached a handler of ours that is not for it. It was sent, or raised by an instruction,
/// which the replacement will execute as well.
pub(crate) fn interrupted(signal: i32, code: i32) -> ! {
    if code <= 0 {
        signals::sent(signal);
    }
    abort(AbortReason::new(AbortKind::Signal, signal as u32))
}

/// The first thing that the child does, still inside the handler that made it. All but the
/// synchronous signals are blocked.
pub(crate) fn begin(slot: &'static ThreadSlot, source: i32, parent: i32) {
    speculation::begin();
    // A child whose parent was killed must not execute what the program did not live to see.
    if process::set_pdeathsig(DEATH).is_err() || process::getppid() != parent {
        abort(AbortKind::Setup);
    }
    signals::begin(slot);
    fds::begin(source);
    if time_limit::start().is_err() {
        abort(AbortKind::Setup);
    }
    guard_memory();
    let text = rt::text();
    // SAFETY: the SIGSYS handler is inherited, and its restorer lies in the range.
    if unsafe { dispatch::on(text.start, text.len()) }.is_err() {
        abort(AbortKind::Setup);
    }
}

/// Tells the child of its parent's death, and undoes it. Not SIGKILL: whoever reaps orphans would
/// find one that was killed. It is never blocked here, and its action is ours until the exec.
const DEATH: i32 = SIGBUS;

/// Reserves the absent ranges. Else the child's next mmap could be placed in one of them, over data
/// that it believes it has. Keeps the stack from growing unseen. And takes the right to write from
/// the shared mappings: a write to one is noticed without a system call.
fn guard_memory() {
    for (start, end) in exclusions::absent().iter() {
        let flags = mm::MAP_PRIVATE | mm::MAP_NORESERVE | mm::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing is mapped here (MADV_DONTFORK), and FIXED_NOREPLACE would say so.
        if unsafe { mm::map_anonymous_at(start, end - start, mm::PROT_NONE, flags) }.is_err() {
            abort(AbortKind::Setup);
        }
    }
    stack::begin();
    for (start, end) in exclusions::shared().iter() {
        // SAFETY: a write to it is caught and aborts.
        let guarded = unsafe { mm::mprotect(start as *mut _, end - start, mm::PROT_READ) };
        // Unless no child gets the mapping: drivers and programs mark such mappings themselves.
        if guarded.is_err() && mm::mincore(start, &mut [0]) != Err(Errno::ENOMEM) {
            abort(AbortKind::Setup);
        }
    }
}

/// Handler of the synchronous signals in a speculative child. It fetches what is absent, and aborts
/// for everything else.
extern "C" fn on_fault(signal: i32, info: &Info, frame: &mut Frame) {
    match signal {
        SIGSEGV if info.code > 0 => {
            if fetch::fetch(info.address) || stack::grow(info.address) {
                return;
            }
            let shared = exclusions::shared().find(info.address).is_some();
            abort(if shared { AbortKind::SharedWrite } else { AbortKind::Fault });
        }
        SIGBUS if info.code == SI_TIMER => time_limit::over(frame),
        _ => interrupted(signal, info.code),
    }
}

/// The signals [`on_fault`] handles.
const FAULTS: [i32; 5] = [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP];

fn fault_action() -> forkless_sys::signal::KernelAction {
    arm::our_action(on_fault as *const () as usize)
}
