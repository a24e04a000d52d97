//! From a plan to a running child.
//!
//! A start passes through these modules:
//!
//! - `request`: the program, how to run it, and what to wait for
//! - `pdeathsig_thread`: another thread for a child with a parent death signal, where one is needed
//! - `wiring`: pipes are made, and each number of the child gets its source
//! - `attempt`: one attempt at the rest; where a way is refused, the next attempt takes another
//! - `moves`: sources become actions in an order that loses nothing
//! - `slot`, `stack`: the child's stack, the launch it reads, and the place where it reports
//! - `dumpable`: what a child may change in this process is put back
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
mod stack;
mod wiring;

pub(crate) use attempt::struck_off;
pub(crate) use explain::{failed_action, failure};
pub use function::run_suspended;
pub(crate) use in_place::exec;
pub(crate) use request::{Request, WaitFor};
pub(crate) use slot::SlotHandle;

use crate::error::{SpawnError, Step};
use crate::kernel::descriptor::pipe;
use crate::kernel::facilities::{self, Facilities};
use crate::reap::{orphans, sole_reaper};
use attempt::{Attempt, Refusal};
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
    /// Present while it is not known whether the child became the program.
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
        // Another thread is the child's parent, so this one learns here whether the child became
        // the program. That thread has a mask of its own, so the caller's is handed on.
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
    let copies_memory = !facilities.shared_memory.works();
    let gate = if copies_memory { Some(pipe()?) } else { None };
    let until_exec = gate.as_ref().map(|g| g.1.as_raw_fd()).or(request.until_exec);
    let wiring = wire(spec, request.defaults, until_exec)?;
    let wait_for = least_wait(facilities, request, &wiring);
    let gate = Cell::new(gate);
    let table = match choose_table(facilities, spec, &wiring, wait_for) {
        Table::Share if copies_memory => Table::Copy { close_others: true },
        table => table,
    };
    // Without a wait of its own the caller gets a handle.
    let pidfd = request.wait_for != WaitFor::End || !sole_reaper::caller_is_sole_reaper();
    let request = Request { wait_for, until_exec: wiring.until_exec, ..request };
    let mut ways = Ways { table, pidfd };
    for _ in 0..ATTEMPTS {
        let Ways { table, pidfd } = ways;
        let attempt = Attempt { request, facilities, caller_mask, table, pidfd, gate: &gate };
        match attempt.run(&wiring.targets) {
            Ok(created) => {
                drop(wiring.child_ends);
                let (pid, pidfd, slot) = (created.pid, created.pidfd, created.slot);
                return Ok(Started { pid, pidfd, slot, pipes: wiring.parent_ends });
            }
            Err(refusal) => ways = ways.without(refusal)?,
        }
    }
    Err(SpawnError::new(Step::Descriptors, None, libc::EPERM))
}

/// What the start has to wait for, where the caller asks for less.
fn least_wait(facilities: &Facilities, request: Request<'_>, wiring: &Wiring) -> WaitFor {
    let Request { spec, plan, wait_for, .. } = request;
    match wait_for {
        _ if !facilities.shared_memory.works() => WaitFor::Exec,
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

/// The ways that a start may take. Each refusal takes one away, so the attempts come to an end.
#[derive(Clone, Copy)]
struct Ways {
    table: Table,
    pidfd: bool,
}

/// How often a start is attempted: once more than there are refusals with another way left.
///
/// - the shared table: a copy takes its place,
/// - closing by range: closing one by one takes its place,
/// - clone3, and `CLONE_CLEAR_SIGHAND`: the next attempt goes without,
/// - the pidfd: the child is known by its number alone.
const ATTEMPTS: usize = 1 + 5;

impl Ways {
    /// The ways left after a refusal; the error where none is.
    fn without(self, refusal: Refusal) -> Result<Ways, SpawnError> {
        match refusal {
            Refusal::Table if self.table == Table::Share => {
                Ok(Ways { table: Table::Copy { close_others: true }, ..self })
            }
            // The facility was struck off, so the next attempt lays the actions out without it.
            Refusal::Table | Refusal::Clone => Ok(self),
            // A full table is no reason for a start to fail, nor is it with std. What is lost is
            // the status, if other code waits for any child.
            Refusal::Final(e) if self.pidfd && e.table_full() => Ok(Ways { pidfd: false, ..self }),
            Refusal::Final(e) => Err(e),
        }
    }
}
