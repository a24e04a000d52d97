//! Stacks for children. Each goes with the report that its child writes and the data that its child
//! reads.
//!
//! A slot is taken for one start, and goes back when its child has left this memory. After
//! `CLONE_VFORK` that is at once. Otherwise the kernel clears the slot's `tid` word then, at exec
//! and at exit (`mm_release`, kernel/fork.c).
//!
//! A forked process has no children of ours and no use for the slots. It starts with a pool of its
//! own (`kernel/process_state.rs`), and the stacks are not even copied (`MADV_DONTFORK`). Slots are
//! never freed, since a child may be on any of them.
#![expect(unsafe_code, reason = "a cell shared with children under the protocol above")]

use super::moves::Moves;
use super::stack::{self, Stack};
use crate::error::{SpawnError, Step};
use crate::kernel::facilities;
use crate::kernel::process_state::{self, PerProcess};
use crate::plan::Plan;
use forkless_child::{Action, Failure, Launch, Phase, Report};
use forkless_sys::signal::SigSet;
use forkless_sys::time::Timespec;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A stack for one child at a time, with the memory that it shares with this process.
pub(crate) struct Slot {
    stack: Stack,
    pub report: Report,
    /// Not 0 while a child may be in this memory whose exec was not waited for; the kernel clears
    /// it.
    pub tid: AtomicU32,
    /// Raised when the slot is taken again. An older handle then knows that its child has executed
    /// the program.
    generation: AtomicU32,
    /// The handle was dropped: no failure need be kept for it.
    abandoned: AtomicBool,
    launch: UnsafeCell<MaybeUninit<Launch<'static>>>,
    data: UnsafeCell<ChildData>,
}

/// The data that a launch points into.
///
/// Every start on the slot fills the vectors anew. So a start allocates nothing for them, and
/// writes to memory that the last child's processor has read already.
#[derive(Default)]
pub(crate) struct ChildData {
    pub moves: Moves,
    /// The plan of the child that was here last, until the next child is on its way. Freeing it at
    /// the last child's end would have kept the caller waiting.
    pub plan: Option<Arc<Plan>>,
    /// The launch that was laid out last serves for a start with an equal key.
    pub key: Option<LaunchKey>,
}

/// Everything that a launch depends on, where it connects no descriptors.
///
/// A launch that is there already is not written again. Its memory would have to go back and forth
/// between the caller's processor and the child's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaunchKey {
    /// The slot keeps the plan, so no other plan can have come to be at this address.
    pub plan: *const Plan,
    /// The mask that the program starts with.
    pub mask: SigSet,
    pub hint: usize,
    /// The child says when the descriptor table is its own.
    pub announce: bool,
    pub clear_sighand: bool,
}

// SAFETY: between `take` and `put_back` the cells belong to the taker and its child alone;
// everything else is atomic.
unsafe impl Sync for Slot {}
// SAFETY: the stack pointer is not tied to a thread.
unsafe impl Send for Slot {}

// std's `Child` is both, so the types that hold a slot are. A panic leaves no slot half changed:
// one start takes it, and a start that panics does not put it back.
impl std::panic::UnwindSafe for Slot {}
impl std::panic::RefUnwindSafe for Slot {}

#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<&'static Slot>>,
    /// Taken by starts that did not wait for exec: a child may still be on them.
    occupied: Mutex<Vec<&'static Slot>>,
}

/// The pool of this process.
fn pool() -> &'static Pool {
    static POOL: PerProcess<Pool> = PerProcess::new();
    POOL.get()
}

impl Pool {
    fn lock<'a>(list: &'a Mutex<Vec<&'static Slot>>) -> std::sync::MutexGuard<'a, Vec<&'static Slot>> {
        // A panic while the list was held cannot have left it half changed: push and pop are single
        // operations.
        list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns slots whose children have left to the free list.
    fn sweep(&self) {
        let mut occupied = Pool::lock(&self.occupied);
        let mut done_with = Vec::new();
        occupied.retain(|slot| {
            let left = slot.tid.load(Ordering::Acquire) == 0;
            // A failure is kept until its handle has read it.
            let done = left && (slot.report.failure().is_none() || slot.abandoned.load(Ordering::Acquire));
            if done {
                slot.generation.fetch_add(1, Ordering::AcqRel);
                done_with.push(*slot);
            }
            !done
        });
        drop(occupied);
        for slot in done_with {
            slot.clear();
            Pool::lock(&self.free).push(slot);
        }
    }
}

/// Takes a slot for one start.
pub(crate) fn take() -> Result<&'static Slot, SpawnError> {
    let pool = pool();
    if let Some(slot) = Pool::lock(&pool.free).pop() {
        return Ok(slot);
    }
    pool.sweep();
    if let Some(slot) = Pool::lock(&pool.free).pop() {
        return Ok(slot);
    }
    let stack = Stack::new(stack::SIZE).map_err(|e| SpawnError::new(Step::Stack, None, e.raw()))?;
    // Where `CLONE_VM` copies memory, a child needs its copy of the stack.
    if process_state::is_wiped_by_fork() && facilities::get().share_memory() {
        stack.leave_out_of_forks();
    }
    Ok(Box::leak(Box::new(Slot {
        stack,
        report: Report::new(),
        tid: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        abandoned: AtomicBool::new(false),
        launch: UnsafeCell::new(MaybeUninit::uninit()),
        data: UnsafeCell::new(ChildData::default()),
    })))
}

impl Slot {
    /// The lowest address of the stack, and its size in bytes.
    pub(crate) fn stack(&self) -> (*mut c_void, usize) {
        self.stack.place()
    }

    /// The data for the child. It is the taker's alone: to be filled before [`Slot::load`], and
    /// left as it is until [`Slot::put_back`].
    pub(crate) fn data(&self) -> *mut ChildData {
        self.data.get()
    }

    /// The address of the launch that is there already, to serve another child.
    pub(crate) fn reload(&self) -> *mut c_void {
        self.report.reset();
        self.launch.get().cast()
    }

    /// Places the launch and returns its address for the child.
    ///
    /// # Safety
    /// The caller has taken the slot and no child is on it. `launch` points only into this slot,
    /// into its [`Slot::data`], or into memory that outlives the child's stay.
    pub(crate) unsafe fn load(&self, launch: Launch<'static>) -> *mut c_void {
        self.report.reset();
        // SAFETY: the slot is the caller's alone.
        let place = unsafe { &mut *self.launch.get() };
        place.write(launch);
        self.launch.get().cast()
    }

    /// Makes the slot ready for the next start. The child's data stays until then.
    fn clear(&self) {
        if let Some(e) = self.report.refused() {
            facilities::get().close_range.refuse(e);
            facilities::get().unshare_range.refuse(e);
        }
        self.abandoned.store(false, Ordering::Relaxed);
    }

    /// Gives the slot back to the pool; the child has left.
    pub(crate) fn put_back(&'static self) {
        self.clear();
        Pool::lock(&pool().free).push(self);
    }

    /// Leaves the slot to the pool while its child may still be on it. The kernel clears `tid` when
    /// the child has left.
    pub(crate) fn leave_to_pool(&'static self) -> SlotHandle {
        let generation = self.generation.load(Ordering::Acquire);
        Pool::lock(&pool().occupied).push(self);
        SlotHandle::Pooled { slot: self, generation }
    }
}

/// The slot of a start whose exec was not waited for, as its child's handle sees it.
#[derive(Clone, Copy)]
pub(crate) enum SlotHandle {
    /// The kernel tells the pool when the child has left; the slot may have been reused since.
    Pooled {
        /// The slot.
        slot: &'static Slot,
        /// Its generation at the start.
        generation: u32,
    },
    /// The slot comes back when the handle has seen the child's end, and is lost if it never does.
    Held(&'static Slot),
}

/// How the start of a child that is gone went.
pub(crate) struct StartResult {
    pub failure: Option<Failure>,
    /// The candidate that the child tried last, where the slot still knows.
    pub tried: Option<usize>,
    /// The action on descriptors that failed.
    pub action: Option<Action<'static>>,
}

impl SlotHandle {
    /// The failure, once there is one. `None` while the child is still on its way and for ever
    /// after a success.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match *self {
            SlotHandle::Held(slot) => slot.report.failure(),
            SlotHandle::Pooled { slot, generation } => {
                let _occupied = Pool::lock(&pool().occupied);
                let mine = slot.generation.load(Ordering::Acquire) == generation;
                if mine { slot.report.failure() } else { None }
            }
        }
    }

    /// Whether the child has left the slot: the kernel says so at exec and at the child's end. The
    /// child of a held slot is not watched.
    pub(crate) fn child_has_left(&self) -> bool {
        let SlotHandle::Pooled { slot, generation } = *self else { return false };
        slot.tid.load(Ordering::Acquire) == 0 || slot.generation.load(Ordering::Acquire) != generation
    }

    /// Suspends the calling thread until [`SlotHandle::child_has_left`], or until `reached`, which
    /// is asked again after each pause.
    pub(crate) fn wait_until(&self, reached: impl Fn() -> bool, pause: Timespec) {
        let SlotHandle::Pooled { slot, .. } = *self else { return };
        while !self.child_has_left() && !reached() {
            // The start stored a 1, not the number of a thread; the kernel only ever stores 0.
            let word = slot.tid.load(Ordering::Acquire);
            if word != 0 {
                let _ = forkless_sys::poll::futex_wait(&slot.tid, word, Some(&pause));
            }
        }
    }

    /// The result of a start whose child is gone; gives the slot back to the pool.
    pub(crate) fn take_result(self) -> StartResult {
        let failure = self.failure();
        let mut result = StartResult { failure, tried: None, action: None };
        let (SlotHandle::Held(slot) | SlotHandle::Pooled { slot, .. }) = self;
        if let Some(Failure { phase: Phase::Files, index, .. }) = failure {
            // SAFETY: the child is gone, and a slot with a failure that nobody has read is not
            // reused.
            let data = unsafe { &*slot.data.get() };
            result.action = data.moves.actions.get(index).copied();
        }
        match self {
            SlotHandle::Held(slot) => {
                result.tried = Some(slot.report.tried());
                slot.put_back();
            }
            SlotHandle::Pooled { .. } => self.abandon(),
        }
        result
    }

    /// Gives the failure up unread: the slot may be reused as soon as its child has left it.
    pub(crate) fn abandon(&self) {
        let SlotHandle::Pooled { slot, generation } = *self else { return };
        let _occupied = Pool::lock(&pool().occupied);
        if slot.generation.load(Ordering::Acquire) == generation {
            slot.abandoned.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_reused_and_its_guard_is_below_its_stack() {
        let a = take().unwrap();
        let (at, size) = a.stack();
        assert_eq!(at as usize % 16, 0);
        assert!(size >= 64 * 1024);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.contains(&format!("-{:x} ---p", at as usize)), "no guard");
        a.put_back();
    }

    #[test]
    fn an_occupied_slot_comes_back_only_when_the_kernel_cleared_its_tid() {
        let slot = take().unwrap();
        slot.tid.store(1, Ordering::Release);
        let handle = slot.leave_to_pool();
        pool().sweep();
        let SlotHandle::Pooled { generation, .. } = handle else { panic!("left to the pool") };
        assert_eq!(slot.generation.load(Ordering::Acquire), generation);
        slot.tid.store(0, Ordering::Release);
        pool().sweep();
        assert_ne!(slot.generation.load(Ordering::Acquire), generation);
        assert!(handle.failure().is_none());
    }

    #[test]
    fn a_forked_process_gets_a_pool_of_its_own() {
        let before = std::ptr::from_ref(pool()) as usize;
        // SAFETY: the child only compares an address and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let same = std::ptr::from_ref(pool()) as usize == before;
            // SAFETY: leaves without running the test harness's exit handlers.
            unsafe { libc::_exit(i32::from(same)) };
        }
        let info =
            forkless_sys::process::waitid(forkless_sys::process::P_PID, pid, forkless_sys::process::WEXITED)
                .unwrap();
        assert_eq!(info.status, 0, "the pool's address must be wiped");
    }
}
