//! One attempt at a start: the launch is laid out, the child is created, and its result is read.
//!
//! The clone itself, and the signal mask around it, are in `create.rs`. The descriptors are in
//! `wiring.rs` and `moves.rs`.
#![expect(unsafe_code, reason = "creating a child that shares memory")]

use super::create::{CloneOptions, clone_masked, with_cgroup};
use super::dumpable::{Dumpable, errno};
use super::explain;
use super::moves::{self, MoveOptions, Moves, Source, Table};
use super::request::{Request, WaitFor};
use super::slot::{self, ChildData, LaunchKey, Slot, SlotHandle};
use super::stack::{HOOK_SIZE, Stack};
use super::wiring::{gets_any_from_parent, move_options};
use crate::error::SpawnError;
use crate::kernel::emulated_vm::{self, SharedReport};
use crate::kernel::facilities::{self, Facilities};
use crate::kernel::fd_count;
use crate::plan::Plan;
use crate::reap::by_pidfd;
use forkless_child::{Action, Launch, Phase, Report};
use forkless_sys::signal::{SIGCHLD, SigSet};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, poll, process};
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Why an attempt made no child.
pub(super) enum Refusal {
    /// A facility for cloning was refused. The next attempt lays the actions out without it.
    Clone,
    /// The shared table, or closing by range, did not work. The next attempt lays the descriptors
    /// out for a copy of the table.
    Table,
    /// No other attempt can succeed.
    Final(SpawnError),
}

/// The options that differ between the attempts of one start. The facilities that work decide the
/// rest: [`MoveOptions`] for the descriptors, [`CloneOptions`] for the clone.
#[derive(Clone, Copy)]
pub(super) struct AttemptOptions {
    pub table: Table,
    /// Make a pidfd.
    pub pidfd: bool,
}

/// How often a start is attempted: once more than there are refusals after which another way is
/// left. Each of these comes at most once:
///
/// - the shared table: a copy takes its place,
/// - closing by range: closing one by one takes its place,
/// - clone3, and `CLONE_CLEAR_SIGHAND`: the next attempt goes without,
/// - the pidfd: the child is known by its number alone.
pub(super) const ATTEMPTS: usize = 1 + 5;

impl AttemptOptions {
    /// The options for the next attempt after a refusal; the error if there is no other way.
    pub(super) fn without(self, refusal: Refusal) -> Result<AttemptOptions, SpawnError> {
        match refusal {
            Refusal::Table if self.table == Table::Share => {
                Ok(AttemptOptions { table: Table::Copy { close_others: true }, ..self })
            }
            // The refusal was noted, so the next attempt lays the actions out without the facility.
            Refusal::Table | Refusal::Clone => Ok(self),
            // A full table is no reason for a start to fail, nor is it with std. Only the status is
            // lost, if other code waits for any child.
            Refusal::Final(e) if self.pidfd && e.table_full() => Ok(AttemptOptions { pidfd: false, ..self }),
            Refusal::Final(e) => Err(e),
        }
    }
}

/// One attempt at a start.
pub(super) struct Attempt<'a> {
    pub request: Request<'a>,
    pub facilities: &'static Facilities,
    pub caller_mask: SigSet,
    pub options: AttemptOptions,
    /// The child's number of the descriptor that exec closes (`Wiring::child_until_exec`).
    pub child_until_exec: Option<RawFd>,
    /// The child's number of the directory in which the program starts (`Wiring::child_directory`).
    pub child_directory: Option<RawFd>,
    /// The pipe that exec closes, under an emulated vm only: see `start_here`.
    pub exec_pipe: &'a Cell<Option<(OwnedFd, OwnedFd)>>,
}

/// A child that an attempt has made.
pub(super) struct Created {
    pub pid: i32,
    pub pidfd: Option<OwnedFd>,
    /// Present until it is known whether the child has executed the program.
    pub slot: Option<SlotHandle>,
}

impl Attempt<'_> {
    pub(super) fn run(&self, targets: &[(RawFd, Source)]) -> Result<Created, Refusal> {
        let facilities = self.facilities;
        let share = self.options.table == Table::Share;
        let announce = share && self.request.wait_for == WaitFor::Clone;
        let options = move_options(facilities, announce, share && gets_any_from_parent(targets));
        // Decided once. Another thread may note a refusal of clone3 meanwhile. A child without the
        // action that resets handlers must not be made by clone(2) then.
        let clone_options = CloneOptions {
            wait_for: self.request.wait_for,
            share,
            clone3: facilities.clone3.works(),
            clear_sighand: facilities.clone3.works() && facilities.clear_sighand.works(),
            pidfd: self.options.pidfd,
            exit_signal: if self.request.spec.is_trial { 0 } else { SIGCHLD as u32 },
            stack: None,
        };
        let copies_memory = !facilities.share_memory();
        let shared = copies_memory.then(SharedReport::new).transpose().map_err(Refusal::Final)?;
        let slot = slot::take().map_err(Refusal::Final)?;
        // SAFETY: the slot is this start's until it is put back, after the last use below.
        let child_data = unsafe { &mut *slot.data() };
        let key = self.launch_key(targets, clone_options.clear_sighand, copies_memory);
        let (launch, earlier_plan) = if key.is_some() && child_data.key == key {
            (slot.reload(), None)
        } else {
            child_data.key = key;
            let report = shared.as_ref().map_or(&slot.report, SharedReport::get);
            self.lay_out(slot, child_data, targets, options, clone_options.clear_sighand, report)
        };
        let moves = &child_data.moves;
        let made = self.create(slot, launch, clone_options);
        // Only now: to free a plan takes time, and the child is on its way already.
        drop(earlier_plan);
        let (pid, pidfd) = match made {
            Ok(made) => made,
            Err(refusal) => {
                slot.put_back();
                return Err(refusal);
            }
        };
        if let (Some(shared), Some((read, write))) = (&shared, self.exec_pipe.take()) {
            drop(write);
            emulated_vm::until_closed(&read);
            slot.report.copy_from(shared.get());
        }
        if let Some(fd) = &pidfd {
            fd_count::note_lowest_free(fd.as_raw_fd());
        }
        if let (WaitFor::Clone, Some(group)) = (self.request.wait_for, self.request.plan.group) {
            // As shells do: what the caller does next with the group must not come before the
            // child's own action. The child reports an error with the group. Here the call may
            // fail (EACCES) because the child has executed the program already.
            let _ = process::setpgid_of(pid, group);
        }
        if self.request.wait_for == WaitFor::Exec {
            return self.finished(slot, moves, pid, pidfd);
        }
        if self.request.wait_for == WaitFor::Clone && self.options.table == Table::Share {
            wait_until_staged(slot);
            if slot.report.failure().is_some_and(|f| f.phase == Phase::Files) {
                return self.finished(slot, moves, pid, pidfd);
            }
            self.note_success(moves);
        }
        let waits_itself = self.request.wait_for == WaitFor::End;
        let slot = if waits_itself { SlotHandle::Held(slot) } else { slot.leave_to_pool() };
        Ok(Created { pid, pidfd, slot: Some(slot) })
    }

    /// The key of the launch, where it depends on nothing else: no descriptor is connected.
    fn launch_key(
        &self,
        targets: &[(RawFd, Source)],
        clear_sighand: bool,
        copies_memory: bool,
    ) -> Option<LaunchKey> {
        let plain = self.options.table == Table::Share
            && targets.is_empty()
            && self.child_until_exec.is_none()
            && !copies_memory;
        plain.then(|| LaunchKey {
            plan: Arc::as_ptr(self.request.plan),
            mask: self.caller_mask,
            hint: self.request.hint.load(Ordering::Relaxed),
            announce: self.request.wait_for == WaitFor::Clone,
            clear_sighand,
        })
    }

    /// Writes the launch into the slot. Returns the launch's address, and the plan that the slot
    /// kept for its last child.
    ///
    /// The caller drops that plan when the new child is on its way: see [`ChildData::plan`]. Where
    /// the launch is used again instead, since the keys are equal, the plan stays in the slot.
    fn lay_out(
        &self,
        slot: &'static Slot,
        data: &mut ChildData,
        targets: &[(RawFd, Source)],
        options: MoveOptions,
        clear_sighand: bool,
        report: &Report,
    ) -> (*mut std::ffi::c_void, Option<Arc<Plan>>) {
        moves::resolve(targets, self.options.table, options, &mut data.moves);
        let actions = &mut data.moves.actions;
        for n in [self.child_until_exec, self.child_directory].into_iter().flatten() {
            let (first, last) = (n as u32, n as u32);
            actions.push(Action::CloexecRange { first, last, by_range: false, limit: last + 1 });
        }
        if let Some(fd) = self.child_directory {
            actions.push(Action::Fchdir { fd });
        }
        if !clear_sighand {
            actions.push(Action::ResetHandlers);
        }
        // SAFETY: neither vector is changed again before the slot is taken the next time.
        unsafe { data.moves.link() };
        let earlier_plan = data.plan.replace(Arc::clone(self.request.plan));
        let file_actions: *const [Action<'static>] = data.moves.actions.as_slice();
        let plan_actions: *const [Action<'static>] = self.request.plan.actions();
        let report: *const Report = report;
        let launch = Launch {
            // SAFETY: kept with the slot.
            files: unsafe { &*file_actions },
            // SAFETY: kept with the slot.
            actions: unsafe { &*plan_actions },
            // SAFETY: kept with the slot.
            exec: unsafe { self.request.plan.exec(self.facilities, self.caller_mask) },
            hint: self.request.hint.load(Ordering::Relaxed),
            // SAFETY: slots are never freed, and a shared report is kept until the child has left.
            report: unsafe { &*report },
        };
        // SAFETY: the slot is ours, and all the launch points into is kept with it.
        (unsafe { slot.load(launch) }, earlier_plan)
    }

    /// The result of a child that has left the shared memory: it runs the program, or it has
    /// reported and is gone.
    fn finished(
        &self,
        slot: &'static Slot,
        moves: &Moves,
        pid: i32,
        pidfd: Option<OwnedFd>,
    ) -> Result<Created, Refusal> {
        let failure = slot.report.failure();
        let tried = slot.report.tried();
        let Some(failure) = failure else {
            self.request.hint.store(tried, Ordering::Relaxed);
            self.note_success(moves);
            slot.put_back();
            return Ok(Created { pid, pidfd, slot: None });
        };
        // The child has called exit_group: this does not block for long, and leaves no zombie.
        by_pidfd::wait_for_end(pid, pidfd.as_ref());
        let refusal = match failure.phase {
            Phase::Files => files_refusal(moves.actions.get(failure.index), failure.errno),
            _ => {
                self.note_success(moves);
                Refusal::Final(explain::failure(self.request.plan, failure))
            }
        };
        slot.put_back();
        Err(match refusal {
            Refusal::Final(e) => Refusal::Final(e.of_child(pid)),
            again => again,
        })
    }

    fn note_success(&self, moves: &Moves) {
        if self.options.table == Table::Share {
            self.facilities.unshare_range.confirm();
            if !moves.from_parent.is_empty() {
                self.facilities.pidfd_getfd.confirm();
            }
        }
    }

    /// Clones, by the best call that is allowed here.
    fn create(
        &self,
        slot: &'static Slot,
        launch: *mut std::ffi::c_void,
        options: CloneOptions,
    ) -> Result<(i32, Option<OwnedFd>), Refusal> {
        // A function of the caller's may change credentials, too, by raw system calls.
        let plan = self.request.plan;
        let _dumpable = (plan.credentials || plan.hooked).then(Dumpable::hold);
        // Hooks may call libc, which writes errno through the thread pointer the child shares.
        let before = plan.hooked.then(|| errno().load(Ordering::Relaxed));
        // Where memory is short, the slot's own stack does for a small function.
        let stack = if plan.hooked { Stack::new(HOOK_SIZE).ok() } else { None };
        let options = CloneOptions { stack: stack.as_ref().map(Stack::place), ..options };
        let made = with_cgroup(plan, |cgroup| clone_masked(self.facilities, slot, launch, cgroup, options));
        if let Some(before) = before {
            errno().store(before, Ordering::Relaxed);
        }
        let Facilities { clone3, clear_sighand, .. } = self.facilities;
        let refused =
            (options.clone3 && !clone3.works()) || (options.clear_sighand && !clear_sighand.works());
        made.map_err(|(what, e)| match refused {
            true => Refusal::Clone,
            false => Refusal::Final(SpawnError::new(what.0, what.1, e.raw())),
        })
    }
}

/// Notes a refused facility as such, after a failure that showed only at the wait. Returns whether
/// the same start, made again, has another way.
pub(crate) fn note_refusal(action: Option<&Action<'_>>, errno: Errno) -> bool {
    matches!(files_refusal(action, errno), Refusal::Table)
}

/// Tells whether another attempt may succeed after the failure of an action on descriptors. A
/// refused facility is noted as such.
fn files_refusal(action: Option<&Action<'_>>, errno: Errno) -> Refusal {
    let facilities = facilities::get();
    let refused = matches!(errno, Errno::ENOSYS | Errno::EPERM | Errno::EACCES | Errno::EINVAL);
    match action {
        Some(Action::GetFromParent { .. }) => {
            if refused {
                facilities.pidfd_getfd.refuse(errno);
            }
            // Otherwise a low limit on numbers (EMFILE, EBADF), or a descriptor that is not open:
            // the copy will tell.
            Refusal::Table
        }
        Some(Action::Unshare { .. }) if refused => {
            facilities.unshare_range.refuse(errno);
            Refusal::Table
        }
        Some(Action::CloseRange { by_range: true, .. }) if refused => {
            facilities.close_range.refuse(errno);
            facilities.unshare_range.refuse(errno);
            Refusal::Table
        }
        action => Refusal::Final(explain::failed_action(action, errno)),
    }
}

/// Waits until the child has a table of its own. The child wakes this thread; the time-out is for a
/// child that was killed before it could.
fn wait_until_staged(slot: &Slot) {
    let staged = &slot.report.staged;
    while staged.load(Ordering::Acquire) == 0 && slot.tid.load(Ordering::Acquire) != 0 {
        let _ = poll::futex_wait(staged, 0, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
    }
}
