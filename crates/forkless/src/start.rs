//! From a plan to a running child: the clone, and what the parent owes it until it has left the shared memory.
//!
//! The signal mask is changed in [`clone_masked`] and restored there, on every path.
#![expect(unsafe_code, reason = "creating a child that shares memory")]

use crate::command::{Command, Defaults};
use crate::copied::{self, SharedReport};
use crate::error::{SpawnError, Step as At};
use crate::explain;
use crate::facilities;
use crate::files::{self, Means, Moves, Source, Table};
use crate::keeper;
use crate::orphans;
use crate::own;
use crate::plan::Plan;
use crate::reap;
use crate::slot::{self, Flight, Slot};
use crate::stdio::{self, Kind};
use forkless_child::{Launch, Phase, Step};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, clone, poll, process, sched};
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
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
    /// Absent only where the kernel or a filter refuses pidfds.
    pub pidfd: Option<OwnedFd>,
    /// Present while nobody knows whether it became the program.
    pub flight: Option<Flight>,
    /// The parent's ends, by the number of the child's.
    pub pipes: Vec<(RawFd, OwnedFd)>,
}

/// Number of the last pidfd: the lowest free one then, so there were at least as many open. Tells a large table from a small
/// one without asking.
static LOWEST_FREE: AtomicI32 = AtomicI32::new(0);

/// From here on waiting for the child to unshare (some 10 us) is cheaper than copying (40 ns a descriptor, and exec's walk).
const LARGE_TABLE: i32 = 256;

/// A number from which on a descriptor is fetched instead of copied; see `files.rs`.
const FIRST_FETCHED: RawFd = 64;

/// The descriptors of one start.
struct Wiring {
    targets: Vec<(RawFd, Source)>,
    parent_ends: Vec<(RawFd, OwnedFd)>,
    child_ends: Vec<OwnedFd>,
    /// The child's number of [`Request::until_exec`].
    until_exec: Option<RawFd>,
}

fn wire(command: &Command, defaults: Defaults, until_exec: Option<RawFd>) -> Result<Wiring, SpawnError> {
    let mut w = Wiring {
        targets: Vec::with_capacity(4),
        parent_ends: Vec::new(),
        child_ends: Vec::new(),
        until_exec: None,
    };
    // No table reaches it (sysctl_nr_open_max, fs/file.c), and the numbers just above a target are used on the way.
    const BEYOND_ANY_TABLE: RawFd = 1 << 30;
    for (number, stdio) in command.descriptors(defaults) {
        if !(0..BEYOND_ANY_TABLE).contains(&number) {
            let why = format!("there can be no descriptor {number}");
            return Err(SpawnError::new(At::Command, why, libc::EBADF));
        }
        let source = match &stdio.0 {
            // 0, 1 and 2 stay as they are; higher ones must be named to be kept.
            Kind::Inherit if number < 3 => continue,
            Kind::Inherit => Source::Fd(number),
            Kind::Null => Source::Open {
                path: c"/dev/null".into(),
                flags: (if number == 0 { libc::O_RDONLY } else { libc::O_RDWR }) as u32,
                mode: 0,
            },
            Kind::Closed => Source::Closed,
            Kind::SameAs(other) => Source::SameAs(*other),
            kind @ (Kind::Piped | Kind::PipedInput) => {
                let (r, w_end) = stdio::pipe()?;
                let (parent, child) =
                    if number == 0 || matches!(kind, Kind::PipedInput) { (w_end, r) } else { (r, w_end) };
                let source = Source::Fd(child.as_raw_fd());
                w.parent_ends.push((number, parent));
                w.child_ends.push(child);
                source
            }
            Kind::Owned(fd) => Source::Fd(fd.as_raw_fd()),
            Kind::Raw(fd) => Source::Fd(*fd),
        };
        w.targets.push((number, source));
    }
    if let Some(fd) = until_exec {
        let to = w.targets.iter().map(|t| t.0).max().unwrap_or(0).max(2) + 1;
        w.targets.push((to, Source::Fd(fd)));
        w.until_exec = Some(to);
    }
    for i in 0..w.targets.len() {
        if let (number, Source::SameAs(other)) = w.targets[i] {
            let end = same_as(number, other, &w.targets, command.inherit_descriptors)?;
            w.targets[i].1 = Source::SameAs(end);
        }
    }
    Ok(w)
}

/// Follows a chain of numbers that are the same as another to the one that is something itself.
fn same_as(
    number: RawFd,
    mut other: RawFd,
    targets: &[(RawFd, Source)],
    inherits: bool,
) -> Result<RawFd, SpawnError> {
    let fail = |why: String| Err(SpawnError::new(At::Command, why, libc::EBADF));
    for _ in 0..=targets.len() {
        match targets.iter().find(|t| t.0 == other).map(|t| t.1) {
            Some(Source::SameAs(next)) => other = next,
            Some(Source::Closed) => {
                return fail(format!("descriptor {number} the same as {other}, which is closed"));
            }
            Some(_) => return Ok(other),
            None if (0..3).contains(&other) || inherits => return Ok(other),
            None => {
                return fail(format!(
                    "descriptor {number} the same as {other}, which the child does not get"
                ));
            }
        }
    }
    fail(format!("descriptor {number} the same as itself"))
}

fn far(targets: &[(RawFd, Source)]) -> bool {
    targets.iter().any(|(_, s)| matches!(s, Source::Fd(n) if *n >= FIRST_FETCHED))
}

/// Whether what the child will use has worked before.
fn proven(command: &Command, wiring: &Wiring) -> bool {
    let all = facilities::get();
    command.inherit_descriptors
        || (all.unshare_range.confirmed() && (!far(&wiring.targets) || all.fetch.confirmed()))
}

/// How the child is to get its table.
fn choose_table(command: &Command, wiring: &Wiring, until: Until) -> Table {
    let all = facilities::get();
    if command.inherit_descriptors {
        return Table::Copy { close_others: false };
    }
    let worth_waiting = until != Until::Cloned || LOWEST_FREE.load(Ordering::Relaxed) >= LARGE_TABLE;
    if all.unshare_range.works() && worth_waiting && (!far(&wiring.targets) || all.fetch.works()) {
        Table::Share
    } else {
        Table::Copy { close_others: true }
    }
}

fn means(announce: bool, fetches: bool) -> Means {
    let all = facilities::get();
    let close_range = all.close_range.works();
    let limit = if close_range {
        0
    } else {
        // The table may hold numbers above a limit lowered later, so the highest number open now counts too.
        let highest = std::fs::read_dir("/proc/self/fd")
            .map(|d| {
                d.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).max().unwrap_or(0) + 1
            })
            .unwrap_or(0);
        let limit = sched::getrlimit(7).map_or(1024, |l| l.soft.min(1 << 20) as u32);
        limit.max(highest)
    };
    Means { close_range, limit, pid: if fetches { process::getpid() } else { 0 }, announce }
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
    start_as(request, caller_mask, &[])
}

/// As [`start`], with the mask to hand on and steps that come before all others.
pub(crate) fn start_as(
    request: Request<'_>,
    caller_mask: SigSet,
    first: &[Step<'static>],
) -> Result<Started, SpawnError> {
    let Request { command, plan, until, .. } = request;
    // Held while the child runs the hooks: they are FnMut, and two children at once would run them on the same memory.
    let _hooks = plan.hooked.then(|| command.hooks.lock().unwrap_or_else(PoisonError::into_inner));
    let copied = !facilities::get().shared_memory.works();
    let gate = if copied { Some(stdio::pipe()?) } else { None };
    let until_exec = gate.as_ref().map(|g| g.1.as_raw_fd()).or(request.until_exec);
    let wiring = wire(command, request.defaults, until_exec)?;
    let gate = Cell::new(gate);
    // With pipes the caller closes the child's ends next, so the table must be the child's own by then.
    let until = match until {
        _ if copied => Until::Exec,
        Until::Exit if !wiring.child_ends.is_empty() => Until::Exec,
        // A refusal that shows only in the child must show here, where another way can still be taken.
        Until::Exit if !proven(command, &wiring) => Until::Exec,
        // Credentials clear the shared dumpable flag, and a hook may touch anything: the parent must stand still.
        _ if plan.credentials || plan.hooked => Until::Exec,
        u => u,
    };
    let mut table = match choose_table(command, &wiring, until) {
        Table::Share if copied => Table::Copy { close_others: true },
        table => table,
    };
    // Once for a copy instead of the shared table, once for closing one by one instead of by range, twice for the clone.
    for _ in 0..5 {
        let until_exec = wiring.until_exec;
        let once = Once {
            request: Request { until, until_exec, ..request },
            caller_mask,
            first,
            table,
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
    caller_mask: SigSet,
    first: &'a [Step<'static>],
    table: Table,
    /// Where the child is a copy: the pipe it holds until exec.
    gate: &'a Cell<Option<(OwnedFd, OwnedFd)>>,
}

type Made = (i32, Option<OwnedFd>, Option<Flight>);

/// What the child reads, kept until it has left.
pub(crate) struct Kept {
    pub moves: Moves,
    _plan: Arc<Plan>,
}

// SAFETY: immutable while shared; the pointers in it lead into itself.
unsafe impl Send for Kept {}

impl Once<'_> {
    fn go(&self, targets: &[(RawFd, Source)]) -> Result<Made, Refusal> {
        let all = facilities::get();
        let share = self.table == Table::Share;
        let means = means(share && self.request.until == Until::Cloned, share && far(targets));
        let mut moves = files::resolve(targets, self.table, means);
        if let Some(n) = self.request.until_exec {
            let (first, last) = (n as u32, n as u32);
            moves.steps.push(Step::CloexecRange { first, last, by_range: false, limit: last + 1 });
        }
        moves.steps.extend_from_slice(self.first);
        // Decided once: should another thread strike clone3 off meanwhile, a child without this step must not be made the other way.
        let means = CloneMeans {
            clone3: all.clone3.works(),
            clear_sighand: all.clone3.works() && all.clear_sighand.works(),
        };
        if !means.clear_sighand {
            moves.steps.push(Step::ResetHandlers);
        }
        let mut kept = Box::new(Kept { moves, _plan: Arc::clone(self.request.plan) });
        // SAFETY: neither vector is changed again, and both are kept with the slot.
        unsafe { kept.moves.link() };
        let slot = slot::take().map_err(Refusal::Final)?;
        let steps: *const [Step<'static>] = kept.moves.steps.as_slice();
        let moves: *const Moves = &raw const kept.moves;
        // SAFETY: the box is in the slot until that is put back, after the last use below.
        let moves = unsafe { &*moves };
        let plan_steps: *const [Step<'static>] = self.request.plan.steps();
        let copied = !all.shared_memory.works();
        let shared = match copied.then(SharedReport::new).transpose() {
            Ok(shared) => shared,
            Err(e) => {
                slot.put_back();
                return Err(Refusal::Final(e));
            }
        };
        let report: *const forkless_child::Report =
            shared.as_ref().map_or(&raw const slot.report, |s| &raw const *s.get());
        let launch = Launch {
            // SAFETY: kept with the slot.
            files: unsafe { &*steps },
            // SAFETY: kept with the slot.
            steps: unsafe { &*plan_steps },
            // SAFETY: kept with the slot.
            exec: unsafe { self.request.plan.exec(self.caller_mask) },
            hint: self.request.hint.load(Ordering::Relaxed),
            // SAFETY: slots are never freed, and a shared report is kept until the child has left.
            report: unsafe { &*report },
        };
        // SAFETY: the slot is ours, and all the launch points into is in `kept` or in the slot.
        let data = unsafe { slot.load(launch, kept) };
        let (pid, pidfd) = match self.create(slot, data, means) {
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
            LOWEST_FREE.store(fd.as_raw_fd(), Ordering::Relaxed);
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
                let Request { command, plan, .. } = self.request;
                let elsewhere = explain::paths_mean_something_else(command);
                Refusal::Final(explain::failure(&command.program, elsewhere, plan, failure))
            }
        };
        slot.put_back();
        Err(refusal)
    }

    fn note_success(&self, moves: &Moves) {
        let all = facilities::get();
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
        let _dumpable = self.request.plan.credentials.then(Dumpable::hold);
        // Hooks may call libc, which writes errno through the thread pointer the child shares.
        let before = self.request.plan.hooked.then(|| errno().load(Ordering::Relaxed));
        let share = self.table == Table::Share;
        let made = with_cgroup(self.request.plan, |cgroup| {
            clone_masked(slot, data, self.request.until, share, cgroup, means)
        });
        if let Some(before) = before {
            errno().store(before, Ordering::Relaxed);
        }
        let all = facilities::get();
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

/// How the steps were laid out, and so how the child must be made.
#[derive(Clone, Copy)]
struct CloneMeans {
    clone3: bool,
    /// The kernel resets the handlers; else a step does.
    clear_sighand: bool,
}

/// Opens the plan's cgroup, if it has one, for the time of the clone.
fn with_cgroup<T>(
    plan: &Plan,
    clone: impl FnOnce(Option<RawFd>) -> Result<T, Errno>,
) -> Result<T, ((At, Option<String>), Errno)> {
    let Some(dir) = &plan.cgroup else { return clone(None).map_err(|e| ((At::Clone, None), e)) };
    let what = || (At::Cgroup, Some(dir.to_string_lossy().into_owned()));
    let flags = forkless_sys::fd::O_PATH | forkless_sys::fd::O_DIRECTORY | forkless_sys::fd::O_CLOEXEC;
    let fd = forkless_sys::fd::openat(forkless_sys::fd::AT_FDCWD, dir.as_c_str().into(), flags, 0)
        .map_err(|e| (what(), e))?;
    let fd = stdio::owned(fd);
    clone(Some(fd.as_raw_fd())).map_err(|e| match e {
        Errno::EAGAIN | Errno::ENOMEM => ((At::Clone, None), e),
        _ => (what(), e),
    })
}

/// Blocks every signal, clones, and restores the mask: a handler must not run in the child, where it would work on the parent's
/// memory under another pid.
fn clone_masked(
    slot: &'static Slot,
    data: *mut std::ffi::c_void,
    until: Until,
    share: bool,
    cgroup: Option<RawFd>,
    means: CloneMeans,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    // Cannot fail: the set and its size are right (sigprocmask(2), ERRORS).
    let old = signal::set_mask(SigSet::ALL)?;
    let made = clone_best(slot, data, until, share, cgroup, means);
    let restored = signal::set_mask(old);
    debug_assert!(restored.is_ok());
    made
}

fn clone_best(
    slot: &'static Slot,
    data: *mut std::ffi::c_void,
    until: Until,
    share: bool,
    cgroup: Option<RawFd>,
    means: CloneMeans,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    const SIGCHLD: u32 = 17;
    let all = facilities::get();
    let (stack, size) = slot.stack();
    let mut flags = clone::CLONE_VM;
    flags |= match until {
        Until::Exec => clone::CLONE_VFORK,
        Until::Cloned => clone::CLONE_CHILD_CLEARTID,
        // The slot is held until the child's end is seen.
        Until::Exit => 0,
    };
    flags |= if share { clone::CLONE_FILES } else { 0 };
    let mut pidfd: i32 = -1;
    slot.tid.store(u32::from(until == Until::Cloned), Ordering::Release);
    if means.clone3 {
        let mut args = clone::args();
        args.flags = u64::from(flags | clone::CLONE_PIDFD);
        if means.clear_sighand {
            args.flags |= clone::CLONE_CLEAR_SIGHAND;
        }
        if let Some(fd) = cgroup {
            args.flags |= clone::CLONE_INTO_CGROUP;
            args.cgroup = fd as u64;
        }
        args.exit_signal = u64::from(SIGCHLD);
        args.pidfd = (&raw mut pidfd) as u64;
        args.child_tid = slot.tid.as_ptr() as u64;
        args.stack = stack as u64;
        args.stack_size = size as u64;
        // SAFETY: slot and launch are kept until the child has left; all signals are blocked.
        match unsafe { clone::clone3(&args, forkless_child::start, data) } {
            Ok(pid) => {
                all.clear_sighand.confirm();
                all.pidfd.confirm();
                if cgroup.is_some() {
                    all.into_cgroup.confirm();
                }
                return Ok((pid, Some(stdio::owned(pidfd))));
            }
            // A filter installed since the probe. Not another way from here: the steps are those for this one.
            Err(e @ (Errno::ENOSYS | Errno::EPERM)) if clone::clone3_allowed().is_err() => {
                all.clone3.refuse(e);
                all.clear_sighand.refuse(e);
                all.into_cgroup.refuse(e);
                slot.tid.store(0, Ordering::Release);
                return Err(e);
            }
            // CLONE_CLEAR_SIGHAND (5.5) is newer than clone3, and emulators of the kernel lack it.
            Err(Errno::EINVAL) if means.clear_sighand && !all.clear_sighand.confirmed() => {
                all.clear_sighand.refuse(Errno::EINVAL);
                slot.tid.store(0, Ordering::Release);
                return Err(Errno::EINVAL);
            }
            Err(e) => {
                slot.tid.store(0, Ordering::Release);
                return Err(e);
            }
        }
    }
    if cgroup.is_some() {
        slot.tid.store(0, Ordering::Release);
        return Err(Errno::ENOSYS);
    }
    clone_plain(slot, data, flags, SIGCHLD)
}

/// `clone(2)`: the caller's steps reset the handlers, since this call cannot.
fn clone_plain(
    slot: &'static Slot,
    data: *mut std::ffi::c_void,
    flags: u32,
    exit_signal: u32,
) -> Result<(i32, Option<OwnedFd>), Errno> {
    let all = facilities::get();
    let (stack, size) = slot.stack();
    // SAFETY: one past the end of the slot's stack.
    let top = unsafe { stack.byte_add(size) };
    let tid = slot.tid.as_ptr().cast::<i32>();
    let mut pidfd: i32 = -1;
    // SAFETY: as in `clone_best`.
    let with = |more: u32, at: *mut i32| unsafe {
        clone::clone(flags | more, exit_signal, top, at, tid, forkless_child::start, data)
    };
    let made = match with(clone::CLONE_PIDFD, &raw mut pidfd) {
        // Older than 5.2, or a filter on this flag.
        Err(Errno::EINVAL | Errno::EPERM | Errno::ENOSYS) => with(0, std::ptr::null_mut()),
        made => made,
    };
    match made {
        Ok(pid) if pidfd >= 0 => Ok((pid, Some(stdio::owned(pidfd)))),
        // Ours and, unless SIGCHLD is ignored or a handler waits for everybody's children, not reaped, so the number has not been
        // given to another process.
        Ok(pid) => match process::pidfd_open(pid) {
            Ok(fd) => Ok((pid, Some(stdio::owned(fd)))),
            Err(Errno::ESRCH | Errno::EMFILE | Errno::ENFILE) => Ok((pid, None)),
            Err(e) => {
                all.pidfd.refuse(e);
                Ok((pid, None))
            }
        },
        Err(e) => {
            slot.tid.store(0, Ordering::Release);
            Err(e)
        }
    }
}

/// The child wakes us; the time-out is for one that was killed before it could.
fn wait_until_staged(slot: &Slot) {
    let staged = &slot.report.staged;
    while staged.load(Ordering::Acquire) == 0 && slot.tid.load(Ordering::Acquire) != 0 {
        let _ = poll::futex_wait(staged, 0, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
    }
}

/// Puts the dumpable flag back that a child's change of credentials clears (`commit_creds`): it belongs to the shared memory. Kept
/// cleared until the last such child has left, since it is what keeps its new user from reading this process through the child.
struct Dumpable;

impl Dumpable {
    fn hold() -> Dumpable {
        let mut h = own::state().dumpable.lock().unwrap_or_else(PoisonError::into_inner);
        if h.0 == 0 {
            h.1 = process::dumpable().unwrap_or(0);
        }
        h.0 += 1;
        Dumpable
    }
}

impl Drop for Dumpable {
    fn drop(&mut self) {
        let mut h = own::state().dumpable.lock().unwrap_or_else(PoisonError::into_inner);
        h.0 -= 1;
        // Only 1 can be set, and 0 and 2 were not lost.
        if h.0 == 0 && h.1 == 1 && process::dumpable() != Ok(1) {
            let _ = process::set_dumpable(1);
        }
    }
}

/// libc's errno of this thread.
fn errno() -> &'static AtomicI32 {
    // SAFETY: always succeeds.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own word; a child that shares the thread pointer runs only while this thread is suspended.
    unsafe { AtomicI32::from_ptr(at) }
}

/// Execs in this process; returns to say why not.
pub(crate) fn in_place(command: &Command, plan: &Plan) -> SpawnError {
    let wiring = match wire(command, Defaults::Inherit, None) {
        Ok(w) => w,
        Err(e) => return e,
    };
    let means = Means { close_range: facilities::get().close_range_cloexec.works(), ..means(false, false) };
    let table = Table::InPlace { close_others: !command.inherit_descriptors };
    let moves = files::resolve(&wiring.targets, table, means);
    let caller_mask = signal::mask().unwrap_or(SigSet::EMPTY);
    let report = forkless_child::Report::new();
    // SAFETY: the plan outlives the launch below, which ends in this function.
    let exec = unsafe { plan.exec(caller_mask) };
    // Nobody shares this memory, and it is this process's own parent whose death counts.
    let exec = forkless_child::Exec { no_core_dump: false, ..exec };
    let mut steps = plan.steps().to_vec();
    for step in &mut steps {
        if let Step::DeathSignal { parent, .. } = step {
            *parent = process::getppid();
        }
    }
    let launch = Launch { files: &moves.steps, steps: &steps, exec, hint: 0, report: &report };
    let f = forkless_child::carry_out(&launch);
    let _ = signal::set_mask(caller_mask);
    match f.phase {
        Phase::Files => explain::failed_step(moves.steps.get(f.index), f.errno),
        _ => explain::failure(&command.program, explain::paths_mean_something_else(command), plan, f),
    }
}

/// Tries what has no harmless probe by starting a program that does not exist.
pub(crate) fn try_untried() {
    use std::os::fd::FromRawFd;
    let all = facilities::get();
    // SAFETY: F_DUPFD_CLOEXEC gives a new descriptor, or -1.
    let high = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 200) };
    if high >= 0 {
        // SAFETY: just made, owned by nobody else.
        let high = unsafe { OwnedFd::from_raw_fd(high) };
        let _ = Command::new("").stdin(high).spawn();
    }
    if let Ok(fd) = process::pidfd_open(process::getpid()) {
        let fd = stdio::owned(fd);
        reap::probe(&fd);
        match process::pidfd_exit_status(fd.as_raw_fd()) {
            Ok(_) => all.pidfd_info.confirm(),
            Err(e) => all.pidfd_info.refuse(e),
        }
    }
    if let Some(dir) = own_cgroup() {
        let _ = Command::new("").cgroup(dir).spawn();
    }
}

/// The directory of this process's own cgroup in the unified hierarchy, where there is one.
fn own_cgroup() -> Option<std::path::PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .iter()
        .map(std::path::Path::new)
        .find(|root| root.join("cgroup.controllers").exists())
        .map(|root| root.join(path))
}
