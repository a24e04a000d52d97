//! From a plan to a running child: the clone, and what the parent owes it until it has left the shared memory.
//!
//! The clone itself, and the signal mask around it, are in `create.rs`; descriptors in `wiring.rs` and `files.rs`.
#![expect(unsafe_code, reason = "creating a child that shares memory")]

use crate::alone;
use crate::census;
use crate::command::{Command, Defaults};
use crate::copied::{self, SharedReport};
use crate::create::{CloneMeans, Dumpable, clone_masked, errno, with_cgroup};
use crate::error::{SpawnError, Step as At};
use crate::explain;
use crate::facilities::{self, All};
use crate::files::{self, Moves, Source, Table};
use crate::hook_stack::HookStack;
use crate::keeper;
use crate::orphans;
use crate::plan::Plan;
use crate::reap;
use crate::slot::{self, Flight, Kept, Likeness, Slot};
use crate::stdio;
use crate::wiring::{choose_table, far, means, proven, wire};
use forkless_child::{Action as Step, Launch, Phase, Report};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, poll, process};
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

/// What the start waits for before it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// The program runs, or why not is known.
    Exec,
    /// Nothing but, where the descriptor table is shared, the moment it no longer is.
    Cloned,
    /// Nothing: the caller goes on to wait for the end of the child and touches no descriptor meanwhile.
    Exit,
}

/// A child that was created.
pub(crate) struct Started {
    pub pid: i32,
    /// Absent where the kernel or a filter refuses pidfds, and where no descriptor was left.
    pub pidfd: Option<OwnedFd>,
    /// Present while nobody knows whether it became the program.
    pub flight: Option<Flight>,
    /// The parent's ends, by the number of the child's.
    pub pipes: Vec<(RawFd, OwnedFd)>,
}

/// One start: what, how, and what is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub command: &'a Command,
    pub plan: &'a Arc<Plan>,
    pub until: Until,
    /// What 0, 1 and 2 are where the command does not say.
    pub defaults: Defaults,
    /// A descriptor the child is to hold until it becomes the program, and no longer.
    pub until_exec: Option<RawFd>,
    /// Where the search for the program ended last time; updated when it is known where it ended now.
    pub hint: &'a AtomicUsize,
}

/// Starts it.
pub(crate) fn start(request: Request<'_>) -> Result<Started, SpawnError> {
    orphans::sweep();
    let plan = request.plan;
    let caller_mask =
        if plan.hands_on_mask() { signal::mask().unwrap_or(SigSet::EMPTY) } else { SigSet::EMPTY };
    if plan.death_signal && process::gettid() != process::getpid() {
        return keeper::start(request, caller_mask);
    }
    start_as(request, caller_mask)
}

/// As [`start`], with the mask to hand on.
pub(crate) fn start_as(request: Request<'_>, caller_mask: SigSet) -> Result<Started, SpawnError> {
    let Request { command, plan, until, .. } = request;
    // Held while the child runs the hooks: they are FnMut, and two children at once would run them on the same memory.
    let _hooks = plan.hooked.then(|| command.hooks.lock().unwrap_or_else(PoisonError::into_inner));
    let all = facilities::get();
    // Without a wait of its own the caller gets a handle.
    let mut pidfd = until != Until::Exit || !alone::nobody_else_reaps();
    let copied = !all.shared_memory.works();
    let gate = if copied { Some(stdio::pipe()?) } else { None };
    let until_exec = gate.as_ref().map(|g| g.1.as_raw_fd()).or(request.until_exec);
    let wiring = wire(command, request.defaults, until_exec)?;
    let gate = Cell::new(gate);
    // With pipes the caller closes the child's ends next, so the table must be the child's own by then.
    let until = match until {
        _ if copied => Until::Exec,
        Until::Exit if !wiring.child_ends.is_empty() => Until::Exec,
        // A refusal that shows only in the child must show here, where another way can still be taken.
        Until::Exit if !proven(all, command, &wiring) => Until::Exec,
        // Credentials clear the shared dumpable flag, and a hook may touch anything: the parent must stand still.
        _ if plan.credentials || plan.hooked => Until::Exec,
        // Out of memory in the cgroup, the kernel kills a process of it and all that share its memory, which is this program. Only a
        // child that its parent waits for is spared (in_vfork in oom_badness, mm/oom_kill.c).
        _ if command.attributes.cgroup.is_some() => Until::Exec,
        u => u,
    };
    let mut table = match choose_table(all, command, &wiring, until) {
        Table::Share if copied => Table::Copy { close_others: true },
        table => table,
    };
    // Once for a copy instead of the shared table, once for closing one by one instead of by range, twice for the clone, once for
    // doing without a pidfd.
    for _ in 0..6 {
        let until_exec = wiring.until_exec;
        let once = Once {
            request: Request { until, until_exec, ..request },
            all,
            caller_mask,
            table,
            pidfd,
            gate: &gate,
        };
        match once.go(&wiring.targets) {
            Ok((pid, pidfd, flight)) => {
                drop(wiring.child_ends);
                return Ok(Started { pid, pidfd, flight, pipes: wiring.parent_ends });
            }
            Err(Refusal::Copy) => {
                if table == Table::Share {
                    table = Table::Copy { close_others: true };
                }
            }
            Err(Refusal::Again) => {}
            // A full table is no reason for a start to fail, nor is it with std. What is lost is the status, if somebody else waits for
            // any child.
            Err(Refusal::Final(e)) if pidfd && e.table_full() => pidfd = false,
            Err(Refusal::Final(e)) => return Err(e),
        }
    }
    Err(SpawnError::new(At::Descriptors, None, libc::EPERM))
}

enum Refusal {
    /// A way of cloning was struck off: lay the steps out anew without it.
    Again,
    /// The shared table, or closing by range, did not work: lay the descriptors out anew for a copy.
    Copy,
    Final(SpawnError),
}

struct Once<'a> {
    request: Request<'a>,
    all: &'static All,
    caller_mask: SigSet,
    table: Table,
    pidfd: bool,
    /// Where the child is a copy: the pipe it holds until exec.
    gate: &'a Cell<Option<(OwnedFd, OwnedFd)>>,
}

type Made = (i32, Option<OwnedFd>, Option<Flight>);

impl Once<'_> {
    fn go(&self, targets: &[(RawFd, Source)]) -> Result<Made, Refusal> {
        let all = self.all;
        let share = self.table == Table::Share;
        let means = means(all, share && self.request.until == Until::Cloned, share && far(targets));
        // Decided once: should another thread strike clone3 off meanwhile, a child without this step must not be made the other way.
        let clone_means = CloneMeans {
            until: self.request.until,
            share,
            clone3: all.clone3.works(),
            clear_sighand: all.clone3.works() && all.clear_sighand.works(),
            pidfd: self.pidfd,
            stack: None,
        };
        let copied = !all.shared_memory.works();
        let shared = copied.then(SharedReport::new).transpose().map_err(Refusal::Final)?;
        let slot = slot::take().map_err(Refusal::Final)?;
        // SAFETY: the slot is this start's until it is put back, after the last use below.
        let kept = unsafe { &mut *slot.kept() };
        let likeness = self.likeness(targets, clone_means.clear_sighand, copied);
        let (data, before) = if likeness.is_some() && kept.likeness == likeness {
            (slot.reload(), None)
        } else {
            kept.likeness = likeness;
            let report = shared.as_ref().map_or(&slot.report, SharedReport::get);
            self.lay_out(slot, kept, targets, means, clone_means.clear_sighand, report)
        };
        let moves = &kept.moves;
        let made = self.create(slot, data, clone_means);
        drop(before);
        let (pid, pidfd) = match made {
            Ok(made) => made,
            Err(refusal) => {
                slot.put_back();
                return Err(refusal);
            }
        };
        if let (Some(shared), Some((read, write))) = (&shared, self.gate.take()) {
            drop(write);
            copied::until_closed(&read);
            slot.report.copy_from(shared.get());
        }
        if let Some(fd) = &pidfd {
            census::note_lowest_free(fd.as_raw_fd());
        }
        if let (Until::Cloned, Some(group)) = (self.request.until, self.request.plan.group) {
            // As shells do: what the caller does next with the group must not come before the child's own step. It says what is
            // wrong with the group; here it may have executed the program already (EACCES).
            let _ = process::setpgid_of(pid, group);
        }
        if self.request.until == Until::Exec {
            return self.landed(slot, moves, pid, pidfd);
        }
        if self.request.until == Until::Cloned && self.table == Table::Share {
            wait_until_staged(slot);
            if slot.report.failure().is_some_and(|f| f.phase == Phase::Files) {
                return self.landed(slot, moves, pid, pidfd);
            }
            self.note_success(moves);
        }
        let flight = if self.request.until == Until::Exit { Flight::Held(slot) } else { slot.fly() };
        Ok((pid, pidfd, Some(flight)))
    }

    /// What would make the child read the same as the one before, where that is all there is to compare.
    fn likeness(&self, targets: &[(RawFd, Source)], clear_sighand: bool, copied: bool) -> Option<Likeness> {
        let plain =
            self.table == Table::Share && targets.is_empty() && self.request.until_exec.is_none() && !copied;
        plain.then(|| Likeness {
            plan: Arc::as_ptr(self.request.plan),
            mask: self.caller_mask,
            hint: self.request.hint.load(Ordering::Relaxed),
            announce: self.request.until == Until::Cloned,
            clear_sighand,
        })
    }

    /// Writes down for the child what it is to do. Returns the address for it, and the plan of the child before.
    fn lay_out(
        &self,
        slot: &'static Slot,
        kept: &mut Kept,
        targets: &[(RawFd, Source)],
        means: files::Means,
        clear_sighand: bool,
        report: &Report,
    ) -> (*mut std::ffi::c_void, Option<Arc<Plan>>) {
        files::resolve(targets, self.table, means, &mut kept.moves);
        let steps = &mut kept.moves.steps;
        if let Some(n) = self.request.until_exec {
            let (first, last) = (n as u32, n as u32);
            steps.push(Step::CloexecRange { first, last, by_range: false, limit: last + 1 });
        }
        if !clear_sighand {
            steps.push(Step::ResetHandlers);
        }
        // SAFETY: neither vector is changed again before the slot is taken the next time.
        unsafe { kept.moves.link() };
        let before = kept.plan.replace(Arc::clone(self.request.plan));
        let file_steps: *const [Step<'static>] = kept.moves.steps.as_slice();
        let plan_steps: *const [Step<'static>] = self.request.plan.steps();
        let report: *const Report = report;
        let launch = Launch {
            // SAFETY: kept with the slot.
            files: unsafe { &*file_steps },
            // SAFETY: kept with the slot.
            actions: unsafe { &*plan_steps },
            // SAFETY: kept with the slot.
            exec: unsafe { self.request.plan.exec(self.all, self.caller_mask) },
            hint: self.request.hint.load(Ordering::Relaxed),
            // SAFETY: slots are never freed, and a shared report is kept until the child has left.
            report: unsafe { &*report },
        };
        // SAFETY: the slot is ours, and all the launch points into is kept with it.
        (unsafe { slot.load(launch) }, before)
    }

    /// The child has left the shared memory: it runs the program, or it has reported and is gone.
    fn landed(
        &self,
        slot: &'static Slot,
        moves: &Moves,
        pid: i32,
        pidfd: Option<OwnedFd>,
    ) -> Result<Made, Refusal> {
        let failure = slot.report.failure();
        let tried = slot.report.tried();
        let Some(failure) = failure else {
            self.request.hint.store(tried, Ordering::Relaxed);
            self.note_success(moves);
            slot.put_back();
            return Ok((pid, pidfd, None));
        };
        // It has called exit_group: this does not block for long, and leaves no zombie.
        reap::end(pid, pidfd.as_ref());
        let refusal = match failure.phase {
            Phase::Files => files_refusal(moves.steps.get(failure.index), failure.errno),
            _ => {
                self.note_success(moves);
                Refusal::Final(explain::failure(self.request.plan, failure))
            }
        };
        slot.put_back();
        Err(refusal)
    }

    fn note_success(&self, moves: &Moves) {
        let all = self.all;
        if self.table == Table::Share {
            all.unshare_range.confirm();
            if !moves.fetches.is_empty() {
                all.fetch.confirm();
            }
        }
    }

    /// The clone itself, by the best call allowed here.
    fn create(
        &self,
        slot: &'static Slot,
        data: *mut std::ffi::c_void,
        means: CloneMeans,
    ) -> Result<(i32, Option<OwnedFd>), Refusal> {
        // A function of the caller's may change credentials as well, by raw system calls.
        let plan = self.request.plan;
        let _dumpable = (plan.credentials || plan.hooked).then(Dumpable::hold);
        // Hooks may call libc, which writes errno through the thread pointer the child shares.
        let before = plan.hooked.then(|| errno().load(Ordering::Relaxed));
        let stack = plan.hooked.then(HookStack::new).flatten();
        let means = CloneMeans { stack: stack.as_ref().map(HookStack::place), ..means };
        let made = with_cgroup(plan, |cgroup| clone_masked(self.all, slot, data, cgroup, means));
        if let Some(before) = before {
            errno().store(before, Ordering::Relaxed);
        }
        let all = self.all;
        let struck_off =
            (means.clone3 && !all.clone3.works()) || (means.clear_sighand && !all.clear_sighand.works());
        made.map_err(|(what, e)| match struck_off {
            true => Refusal::Again,
            false => Refusal::Final(SpawnError::new(what.0, what.1, e.raw())),
        })
    }
}

/// Whether a failure that showed only at the wait was a refused facility, which has been struck off now.
pub(crate) fn struck_off(step: Option<&Step<'_>>, errno: Errno) -> bool {
    matches!(files_refusal(step, errno), Refusal::Copy)
}

/// What a failure among the descriptors means: a facility that does not exist here, a way that does not work this time, or an error.
fn files_refusal(step: Option<&Step<'_>>, errno: Errno) -> Refusal {
    let all = facilities::get();
    let refused = matches!(errno, Errno::ENOSYS | Errno::EPERM | Errno::EACCES | Errno::EINVAL);
    match step {
        Some(Step::FetchAll { .. }) => {
            if refused {
                all.fetch.refuse(errno);
            }
            // Otherwise a low limit on numbers (EMFILE, EBADF), or a descriptor nobody has: the copy will tell.
            Refusal::Copy
        }
        Some(Step::Unshare { .. }) if refused => {
            all.unshare_range.refuse(errno);
            Refusal::Copy
        }
        Some(Step::CloseRange { by_range: true, .. }) if refused => {
            all.close_range.refuse(errno);
            all.unshare_range.refuse(errno);
            Refusal::Copy
        }
        step => Refusal::Final(explain::failed_step(step, errno)),
    }
}

/// The child wakes us; the time-out is for one that was killed before it could.
fn wait_until_staged(slot: &Slot) {
    let staged = &slot.report.staged;
    while staged.load(Ordering::Acquire) == 0 && slot.tid.load(Ordering::Acquire) != 0 {
        let _ = poll::futex_wait(staged, 0, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
    }
}
