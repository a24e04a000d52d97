//! Stacks for children, each with the place its child reports in, and everything the child reads kept beside it.
//!
//! A slot is taken for one start and goes back when its child has left this memory: at once after `CLONE_VFORK`, and otherwise
//! when the kernel has cleared the slot's `tid` word, which it does at exec and at exit (`mm_release`, kernel/fork.c).
//!
//! After a fork by anybody, the child process has no children of ours and no use for the slots: it starts with a pool of its own
//! (`own.rs`), and the stacks are not even copied (`MADV_DONTFORK`). Slots are never freed, since a child may be on any of them.
#![expect(unsafe_code, reason = "mapping stacks; a cell shared with children under the protocol above")]

use crate::error::{SpawnError, Step};
use crate::facilities;
use crate::files::Moves;
use crate::own;
use crate::plan::Plan;
use forkless_child::{Action as ChildStep, Failure, Launch, Phase, Report};
use forkless_sys::mm;
use forkless_sys::signal::SigSet;
use forkless_sys::time::Timespec;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const PAGE: usize = 64 * 1024; // The largest page size of the architectures here; a guard of whole pages on all of them.
const STACK: usize = 128 * 1024;

/// One stack and what goes with it.
pub(crate) struct Slot {
    stack: *mut c_void,
    pub report: Report,
    /// Not 0 while a child that was not waited for at exec may be in this memory; cleared by the kernel.
    pub tid: AtomicU32,
    /// Raised when the slot is taken again: an older handle then knows that its child became the program.
    generation: AtomicU32,
    /// The handle was dropped: a failure need not be kept for it.
    abandoned: AtomicBool,
    launch: UnsafeCell<MaybeUninit<Launch<'static>>>,
    kept: UnsafeCell<Kept>,
}

/// What the child reads beside the launch. The vectors are filled anew by every start on the slot, so that a start allocates nothing
/// for them, and writes to memory that the last child's processor has read already.
#[derive(Default)]
pub(crate) struct Kept {
    pub moves: Moves,
    /// Of the child that was here last, until the next one is on its way: freeing it at that child's end would have kept the caller
    /// waiting.
    pub plan: Option<Arc<Plan>>,
    /// The launch that was laid out last can serve for a start that is like this.
    pub likeness: Option<Likeness>,
}

/// Everything a launch depends on that connects no descriptors. A launch that is there already is not written again: the memory would
/// have to go back and forth between the caller's processor and the child's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Likeness {
    /// Kept with the slot, so no other plan can have come to be at this address.
    pub plan: *const Plan,
    /// The mask to hand on.
    pub mask: SigSet,
    pub hint: usize,
    /// The child says when the table is its own.
    pub announce: bool,
    pub clear_sighand: bool,
}

// SAFETY: between `take` and `put_back` the cells belong to the taker and its child alone; everything else is atomic.
unsafe impl Sync for Slot {}
// SAFETY: the stack pointer is not tied to a thread.
unsafe impl Send for Slot {}

// std's `Child` is both, and what holds a slot is to be. A panic leaves no slot half changed: it is taken by one start, and
// a start that panics does not put it back.
impl std::panic::UnwindSafe for Slot {}
impl std::panic::RefUnwindSafe for Slot {}

#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Vec<&'static Slot>>,
    /// Taken by starts that did not wait for exec.
    flying: Mutex<Vec<&'static Slot>>,
}

/// The pool of this process.
fn pool() -> &'static Pool {
    &own::state().pool
}

impl Pool {
    fn lock<'a>(list: &'a Mutex<Vec<&'static Slot>>) -> std::sync::MutexGuard<'a, Vec<&'static Slot>> {
        // A panic while the list was held cannot have left it half changed: push and pop are single operations.
        list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns slots whose children have left to the free list.
    fn sweep(&self) {
        let mut flying = Pool::lock(&self.flying);
        let mut landed = Vec::new();
        flying.retain(|slot| {
            let left = slot.tid.load(Ordering::Acquire) == 0;
            // A failure is kept until its handle has read it.
            let done = left && (slot.report.failure().is_none() || slot.abandoned.load(Ordering::Acquire));
            if done {
                slot.generation.fetch_add(1, Ordering::AcqRel);
                landed.push(*slot);
            }
            !done
        });
        drop(flying);
        for slot in landed {
            slot.clear();
            Pool::lock(&self.free).push(slot);
        }
    }
}

/// A slot in use by one start.
pub(crate) fn take() -> Result<&'static Slot, SpawnError> {
    let pool = pool();
    if let Some(slot) = Pool::lock(&pool.free).pop() {
        return Ok(slot);
    }
    pool.sweep();
    if let Some(slot) = Pool::lock(&pool.free).pop() {
        return Ok(slot);
    }
    let fail = |e: forkless_sys::Errno| SpawnError::new(Step::Stack, None, e.raw());
    let base =
        mm::map_anonymous(PAGE + STACK, mm::PROT_NONE, mm::MAP_PRIVATE | mm::MAP_NORESERVE | mm::MAP_STACK)
            .map_err(fail)?;
    // SAFETY: inside the mapping just made.
    let stack = unsafe { base.byte_add(PAGE) };
    // SAFETY: nobody uses the mapping yet; below `stack` it stays without access, as a guard.
    if let Err(e) = unsafe { mm::mprotect(stack, STACK, mm::PROT_READ | mm::PROT_WRITE) } {
        // SAFETY: nobody uses the mapping.
        let _ = unsafe { mm::munmap(base, PAGE + STACK) };
        return Err(fail(e));
    }
    // Where a child is a copy it needs one of its stack.
    if own::forgotten_by_fork() && facilities::get().shared_memory.works() {
        // SAFETY: a forked process has no child on it and does not know of it. Kernels that refuse it copy two pages.
        let _ = unsafe { mm::madvise(base, PAGE + STACK, mm::MADV_DONTFORK) };
    }
    Ok(Box::leak(Box::new(Slot {
        stack,
        report: Report::new(),
        tid: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        abandoned: AtomicBool::new(false),
        launch: UnsafeCell::new(MaybeUninit::uninit()),
        kept: UnsafeCell::new(Kept::default()),
    })))
}

impl Slot {
    /// The lowest address of the stack, and its size in bytes.
    pub(crate) fn stack(&self) -> (*mut c_void, usize) {
        (self.stack, STACK)
    }

    /// What the child will read, to be filled before [`Slot::load`] and left alone until [`Slot::put_back`]: the taker's alone in
    /// between.
    pub(crate) fn kept(&self) -> *mut Kept {
        self.kept.get()
    }

    /// The address of the launch that is there already, for another child.
    pub(crate) fn reload(&self) -> *mut c_void {
        self.report.reset();
        self.launch.get().cast()
    }

    /// Places the launch and returns its address for the child.
    ///
    /// # Safety
    /// The caller has taken the slot and no child is on it. `launch` points only into this slot, into what is kept with it, or into
    /// memory that outlives the child's stay.
    pub(crate) unsafe fn load(&self, launch: Launch<'static>) -> *mut c_void {
        self.report.reset();
        // SAFETY: the slot is the caller's alone.
        let place = unsafe { &mut *self.launch.get() };
        place.write(launch);
        self.launch.get().cast()
    }

    /// Ready for the next start. What was kept for the child stays until then.
    fn clear(&self) {
        if let Some(e) = self.report.refused() {
            facilities::get().close_range.refuse(e);
            facilities::get().unshare_range.refuse(e);
        }
        self.abandoned.store(false, Ordering::Relaxed);
    }

    /// Back to the pool; the child has left.
    pub(crate) fn put_back(&'static self) {
        self.clear();
        Pool::lock(&pool().free).push(self);
    }

    /// Hands the slot to the pool's care while its child may still be on it; the kernel clears `tid` when it has left.
    pub(crate) fn fly(&'static self) -> Flight {
        let generation = self.generation.load(Ordering::Acquire);
        Pool::lock(&pool().flying).push(self);
        Flight::Free { slot: self, generation }
    }
}

/// A start whose exec was not waited for, as its child's handle sees it.
#[derive(Clone, Copy)]
pub(crate) enum Flight {
    /// The kernel tells the pool when the child has left; the slot may have been reused since.
    Free {
        /// The slot.
        slot: &'static Slot,
        /// Its generation at the start.
        generation: u32,
    },
    /// The handle alone knows: the slot comes back when it has seen the child's end, and is lost if it never does.
    Held(&'static Slot),
}

/// What is known of a child that is gone.
pub(crate) struct Landed {
    pub failure: Option<Failure>,
    /// The candidate it tried last, where the slot still knows.
    pub tried: Option<usize>,
    /// The step on descriptors that failed.
    pub step: Option<ChildStep<'static>>,
}

impl Flight {
    /// The failure, once there is one. `None` while the child is still on its way and for ever after a success.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match *self {
            Flight::Held(slot) => slot.report.failure(),
            Flight::Free { slot, generation } => {
                let _flying = Pool::lock(&pool().flying);
                let mine = slot.generation.load(Ordering::Acquire) == generation;
                if mine { slot.report.failure() } else { None }
            }
        }
    }

    /// Whether the child has left the slot: the kernel says so at exec and at the child's end. A held slot's child is not watched.
    pub(crate) fn left(&self) -> bool {
        let Flight::Free { slot, generation } = *self else { return false };
        slot.tid.load(Ordering::Acquire) == 0 || slot.generation.load(Ordering::Acquire) != generation
    }

    /// Suspends the calling thread until [`Flight::left`], or until `reached`, which is asked again after each pause.
    pub(crate) fn wait_until(&self, reached: impl Fn() -> bool, pause: Timespec) {
        let Flight::Free { slot, .. } = *self else { return };
        while !self.left() && !reached() {
            // Not the number of a thread but what the start stored: the kernel only ever stores 0.
            let word = slot.tid.load(Ordering::Acquire);
            if word != 0 {
                let _ = forkless_sys::poll::futex_wait(&slot.tid, word, Some(&pause));
            }
        }
    }

    /// The child is gone: its failure, if it had one, and the slot back to the pool.
    pub(crate) fn land(self) -> Landed {
        let failure = self.failure();
        let mut landed = Landed { failure, tried: None, step: None };
        let (Flight::Held(slot) | Flight::Free { slot, .. }) = self;
        if let Some(Failure { phase: Phase::Files, index, .. }) = failure {
            // SAFETY: the child is gone, and a slot with a failure that nobody has read is not reused.
            let kept = unsafe { &*slot.kept.get() };
            landed.step = kept.moves.steps.get(index).copied();
        }
        match self {
            Flight::Held(slot) => {
                landed.tried = Some(slot.report.tried());
                slot.put_back();
            }
            Flight::Free { .. } => self.abandon(),
        }
        landed
    }

    /// Nobody will ask any more: the slot may be reused as soon as its child is known to have left it.
    pub(crate) fn abandon(&self) {
        let Flight::Free { slot, generation } = *self else { return };
        let _flying = Pool::lock(&pool().flying);
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
    fn a_flying_slot_comes_back_only_when_the_kernel_cleared_its_tid() {
        let slot = take().unwrap();
        slot.tid.store(1, Ordering::Release);
        let flying = slot.fly();
        pool().sweep();
        let Flight::Free { generation, .. } = flying else { panic!("flies") };
        assert_eq!(slot.generation.load(Ordering::Acquire), generation);
        slot.tid.store(0, Ordering::Release);
        pool().sweep();
        assert_ne!(slot.generation.load(Ordering::Acquire), generation);
        assert!(flying.failure().is_none());
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
