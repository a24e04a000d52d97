//! From a plan to a running child.
//!
//! A start passes through these modules. This one decides which event it waits for, and whether it
//! needs a pidfd.
//!
//! - `request`: the program, how to run it, and the event to wait for
//! - `pdeathsig_thread`: another thread for a child with a parent death signal, where one is needed
//! - `wiring`: pipes are made, and each number of the child gets its source
//! - `attempt`: one attempt at the rest; where a facility is refused, the next attempt goes without
//! - `moves`: sources become actions in an order that loses nothing
//! - `slot`, `stack`: the child's stack, the launch it reads, and the place where it reports
//! - `dumpable`: the dumpable flag and errno, which a child may change, are put back
//! - `create`: the clone, with every signal blocked
//! - `explain`: the child's report becomes an error
//! - `in_place`: the same without a child, for an exec of this process
//! - `function`: a child that runs a function of the caller's, for the C interface

mod attempt;
mod create;
mod dumpable;
mod explain;
mod function;
mod in_place;
mod moves;
mod pdeathsig_thread;
mod request;
mod slot;
pub(crate) mod stack;
mod wiring;

pub(crate) use attempt::note_refusal;
pub(crate) use explain::{failed_action, failure};
pub use function::run_suspended;
pub(crate) use in_place::exec;
pub(crate) use request::{Request, WaitFor};
pub(crate) use slot::SlotHandle;

use crate::error::{SpawnError, Step};
use crate::kernel::descriptor::pipe;
use crate::kernel::facilities::{self, Facilities};
use crate::reap::timer::ReapTimer;
use crate::reap::{orphans, sole_reaper};
use attempt::{ATTEMPTS, Attempt, AttemptOptions};
use forkless_sys::process;
use forkless_sys::signal::{self, SigSet};
use moves::Table;
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::PoisonError;
use wiring::{Wiring, choose_table, proven, wire};

/// A child that was created.
pub(crate) struct Started {
    pub pid: i32,
    /// Absent where the kernel or a filter refuses pidfds, and where no descriptor was left.
    pub pidfd: Option<OwnedFd>,
    /// In place of a pidfd that was wanted.
    pub reap_timer: Option<Box<ReapTimer>>,
    /// Present until it is known whether the child has executed the program.
    pub slot: Option<SlotHandle>,
    /// The parent's ends, by the number of the child's.
    pub pipes: Vec<(RawFd, OwnedFd)>,
}

/// Starts a child.
pub(crate) fn start(request: Request<'_>) -> Result<Started, SpawnError> {
    orphans::sweep();
    let plan = request.plan;
    let caller_mask =
        if plan.hands_on_mask() { signal::mask().unwrap_or(SigSet::EMPTY) } else { SigSet::EMPTY };
    if plan.death_signal && process::gettid() != process::getpid() {
        // Another thread is the child's parent. So this thread waits here for the exec. The other
        // thread has a mask of its own, so the child gets the caller's.
        let request = Request { wait_for: WaitFor::Exec, ..request };
        return pdeathsig_thread::create(|| {
            let started = start_here(request, caller_mask)?;
            Ok((started.pid, started))
        });
    }
    start_here(request, caller_mask)
}

/// Starts a child of the calling thread, with the mask to hand on.
fn start_here(request: Request<'_>, caller_mask: SigSet) -> Result<Started, SpawnError> {
    let Request { spec, plan, .. } = request;
    // Held while the child runs the hooks: they are FnMut, and two children at once would run them
    // on the same memory.
    let _hooks = plan.hooked.then(|| spec.hooks.lock().unwrap_or_else(PoisonError::into_inner));
    let facilities = facilities::get();
    let copies_memory = !facilities.share_memory();
    // An emulator returns from the clone before the child's exec. The exec closes the child's end
    // of this pipe, and so this process learns of it (`emulated_vm::until_closed`).
    let exec_pipe = if copies_memory { Some(pipe()?) } else { None };
    let held_until_exec = exec_pipe.as_ref().map(|p| p.1.as_raw_fd()).or(request.held_until_exec);
    let wiring = wire(spec, request.defaults, held_until_exec)?;
    let wait_for = required_wait(facilities, request, &wiring);
    let exec_pipe = Cell::new(exec_pipe);
    let table = match choose_table(facilities, spec, &wiring, wait_for) {
        Table::Share if copies_memory => Table::Copy { close_others: true },
        table => table,
    };
    // By the caller's `wait_for`, not by the required one: a caller that does not wait in this call
    // needs a pidfd. So does a caller that is not the sole reaper.
    let pidfd =
        !spec.without_pidfd && (request.wait_for != WaitFor::End || !sole_reaper::caller_is_sole_reaper());
    let request = Request { wait_for, ..request };
    let Wiring { child_until_exec, child_directory, .. } = wiring;
    let mut options = AttemptOptions { table, pidfd };
    for _ in 0..ATTEMPTS {
        let attempt = Attempt {
            request,
            facilities,
            caller_mask,
            options,
            child_until_exec,
            child_directory,
            exec_pipe: &exec_pipe,
        };
        match attempt.run(&wiring.targets) {
            Ok(created) => {
                let (pid, slot) = (created.pid, created.slot);
                let reap_timer = if pidfd && created.pidfd.is_none() { ReapTimer::on(pid) } else { None };
                drop(wiring.child_ends);
                return Ok(Started {
                    pid,
                    pidfd: created.pidfd,
                    reap_timer,
                    slot,
                    pipes: wiring.parent_ends,
                });
            }
            Err(refusal) => options = options.without(refusal)?,
        }
    }
    Err(SpawnError::new(Step::Descriptors, None, libc::EPERM))
}

/// The event that the start must wait for. The caller may have asked for less.
fn required_wait(facilities: &Facilities, request: Request<'_>, wiring: &Wiring) -> WaitFor {
    let Request { spec, plan, wait_for, .. } = request;
    match wait_for {
        _ if !facilities.share_memory() => WaitFor::Exec,
        // With pipes the caller closes the child's ends next, so the table must be the child's own
        // by then.
        WaitFor::End if !wiring.child_ends.is_empty() => WaitFor::Exec,
        // A refusal that shows only in the child must show here, where another way can still be
        // taken.
        WaitFor::End if !proven(facilities, spec, wiring) => WaitFor::Exec,
        // Credentials clear the shared dumpable flag, and a hook may touch anything: the parent
        // must stand still.
        _ if plan.credentials || plan.hooked => WaitFor::Exec,
        // Out of memory in the cgroup, the kernel kills a process of it and all that share its
        // memory, which is this program. It spares only a child that its parent waits for (in_vfork
        // in oom_badness, mm/oom_kill.c).
        _ if spec.attributes.cgroup.is_some() => WaitFor::Exec,
        wait_for => wait_for,
    }
}
