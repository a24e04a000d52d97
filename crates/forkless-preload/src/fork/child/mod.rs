//! The speculative child: from the clone to its exec, or to the first thing that another process could notice.
//!
//! Until it commits it must have no way to affect anything outside itself, with or without a system call. Every call is
//! judged by [`policy`]; writable shared mappings are read-only here, and a write to one aborts; and death of any kind before
//! the exec is an abort too: the parent then makes the plain fork, so an error in this code costs time, not behaviour.
#![expect(unsafe_code, reason = "signal handlers, memory and the program's own system calls")]

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use forkless_run::{AbortKind as Kind, AbortReason as Reason};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, dispatch, mm, process, timer};

use crate::config;
use crate::kernel::Args;
use crate::rt;
use crate::signals::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};

use super::arm::{self, Slot};
use super::frame::{Frame, Info};
use super::{SPECULATING, WAY, memory, outcome, plan};

mod exec;
pub(super) mod fds;
pub(super) mod fetch;
mod files;
mod limit;
mod need;
mod policy;
pub(crate) mod signals;

pub(crate) use policy::judge;

/// `si_code` of a signal from a POSIX timer.
const SI_TIMER: i32 = -2;

/// Undoes the speculation: says why and ends. The parent wakes when our memory is gone, reaps us and forks plainly.
pub(crate) fn abort(reason: impl Into<Reason>) -> ! {
    end(reason.into())
}

#[cold]
#[inline(never)]
fn end(reason: Reason) -> ! {
    let outcome = outcome::get();
    outcome.abort(reason);
    signals::hand_over();
    leave_group();
    outcome.set_executing(false);
    process::exit_group(0)
}

/// The end of a process makes a group an orphaned one that has no other member with a parent in another group of the session, and the kernel
/// hangs up on what is stopped there (kernel/exit.c, kill_orphaned_pgrp). Changing the group does not.
fn leave_group() {
    if let Ok(group) = process::getpgid(process::getppid()) {
        let _ = process::setpgid(group);
    }
}

/// A dispatched system call.
pub(crate) fn trapped(nr: u32, args: &Args) -> isize {
    outcome::count(&outcome::get().traps);
    abort_if_executing();
    judge(nr, args)
}

/// A system call whose libc function we interpose: the same judgement without the signal.
pub(crate) fn direct(nr: u32, args: &Args) -> isize {
    count_direct();
    judge(nr, args)
}

/// A handler has interrupted an exec, or has jumped out of it: mask, actions and death signal are those of the exec.
fn abort_if_executing() {
    if outcome::get().is_executing() {
        abort(Kind::Interrupted);
    }
}

/// Counts a call that is judged where it is interposed.
pub(crate) fn count_direct() {
    outcome::count(&outcome::get().direct);
    abort_if_executing();
}

/// Fetches what `addr..addr + len` lacks.
pub(crate) fn need_bytes(addr: usize, len: usize) {
    need::bytes(addr, len);
}

/// A value of the program's.
pub(crate) fn read<T: Copy>(at: usize) -> T {
    memory::value(at)
}

/// An answer to the program.
pub(crate) fn write<T>(at: usize, value: T) {
    memory::store(at, value);
}

/// A signal reached a handler of ours that it was not meant for: sent by somebody, or the fault of an instruction, which the replacement
/// will execute as well.
pub(crate) fn interrupted(signal: i32, code: i32) -> ! {
    if code <= 0 {
        signals::sent(signal);
    }
    abort(Reason::new(Kind::Signal, signal as u32))
}

/// The first thing the child does, still inside the handler that made it. Signals other than the synchronous are blocked.
pub(crate) fn begin(slot: &'static Slot, source: i32, parent: i32) {
    SPECULATING.store(WAY.load(Relaxed), Relaxed);
    // A child whose parent was killed must not go on to execute anything the program did not live to see.
    if process::set_pdeathsig(SIGKILL).is_err() || process::getppid() != parent {
        abort(Kind::Setup);
    }
    signals::begin(slot);
    fds::begin(source);
    if start_timer().is_err() {
        abort(Kind::Setup);
    }
    guard_memory();
    let text = rt::text();
    // SAFETY: the SIGSYS handler is inherited, and its restorer lies in the range.
    if unsafe { dispatch::on(text.start, text.len()) }.is_err() {
        abort(Kind::Setup);
    }
}

const SIGKILL: i32 = 9;

fn start_timer() -> forkless_sys::Result<()> {
    let id = timer::create_last(SIGBUS)?;
    TIMER.store(id.0, Relaxed);
    let limit = i64::from(config::limit_ms());
    timer::set(id, Timespec { tv_sec: limit / 1000, tv_nsec: limit % 1000 * 1_000_000 }).map(drop)
}

static TIMER: AtomicI32 = AtomicI32::new(0);

/// After an exec that failed. Its signal goes nowhere where the program ignores it, and comes once: a child that tries until its parent, which waits
/// for it, has made the file would try for ever.
fn abort_if_time_is_over() {
    match timer::left(timer::TimerId(TIMER.load(Relaxed))) {
        Ok(left) if left.tv_sec != 0 || left.tv_nsec != 0 => {}
        _ => abort(Kind::Timeout),
    }
}

/// Reserves the absent ranges, or the next mmap of the child would be placed in one of them, over data it believes it has; and takes
/// the right to write from the shared mappings, which need no system call to be noticed.
fn guard_memory() {
    for (start, end) in plan::absent().iter() {
        let flags = mm::MAP_PRIVATE | mm::MAP_NORESERVE | mm::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing is mapped here (MADV_DONTFORK), and FIXED_NOREPLACE would say so.
        if unsafe { mm::map_anonymous_at(start, end - start, mm::PROT_NONE, flags) }.is_err() {
            abort(Kind::Setup);
        }
    }
    for (start, end) in plan::shared().iter() {
        // SAFETY: a write to it is caught and aborts.
        let guarded = unsafe { mm::mprotect(start as *mut _, end - start, mm::PROT_READ) };
        // Unless a child has not got it anyway: drivers, and programs, mark such mappings.
        if guarded.is_err() && mm::mincore(start, &mut [0]) != Err(Errno::ENOMEM) {
            abort(Kind::Setup);
        }
    }
}

/// Handler of the synchronous signals in a speculative child: fetches what is absent, aborts for everything else.
extern "C" fn on_fault(signal: i32, info: &Info, _: &mut Frame) {
    match signal {
        SIGSEGV if info.code > 0 => {
            if fetch::fetch(info.address) {
                return;
            }
            let shared = plan::shared().find(info.address).is_some();
            abort(if shared { Kind::SharedWrite } else { Kind::Fault });
        }
        SIGBUS if info.code == SI_TIMER => abort(Kind::Timeout),
        _ => interrupted(signal, info.code),
    }
}

/// The signals [`on_fault`] handles.
const FAULTS: [i32; 5] = [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP];

fn fault_action() -> forkless_sys::signal::KernelAction {
    arm::our_action(on_fault as *const () as usize)
}
