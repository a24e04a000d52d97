//! Helper threads. Beside other threads, a fork leaves to one whatever takes a descriptor: for a
//! moment another thread's `open` would get a number that is not the lowest, or EMFILE.
//!
//! A helper has the program's memory and a table of descriptors of its own. It is a thread and not
//! a process: no wait tells of it, an exec or the end of the process ends it, and the kernel reaps
//! it. The forking thread blocks all signals from before a helper's start until after its end. So
//! whatever libc does to all threads by signals (`setuid`) happens while there is no helper.
#![expect(unsafe_code, reason = "threads that libc does not know")]

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use forkless_run::AbortKind;
use forkless_sys::{clone, fd, futex, process};
use linux_raw_sys::general as k;

use crate::patience::{Patience, wait_while};
use crate::uninterrupted::uninterrupted;

use super::{OrPlain, state};

/// A message queue notifies the process, or did. The kernel takes the close of a queue by any
/// thread of the process for the end of that (ipc/mqueue.c, `mqueue_flush_file`), in any table.
static NOTIFIED: AtomicBool = AtomicBool::new(false);

/// Helpers that may have the program's descriptors still.
static WITH_DESCRIPTORS: AtomicU32 = AtomicU32::new(0);

/// The program is about to be notified by a message queue. From here on no helper closes one.
#[cold]
#[inline(never)]
pub(crate) fn note_mq_notify() {
    NOTIFIED.store(true, SeqCst);
    let mut patience = Patience::long(10_000);
    while WITH_DESCRIPTORS.load(SeqCst) != 0 && patience.turn() {}
}

/// A helper's life. It must stay in its place from [`start`](Helper::start) to
/// [`join`](Helper::join).
pub(super) struct Helper {
    /// The kernel writes 0 when the thread ends.
    alive: AtomicU32,
    id: AtomicI32,
}

impl Helper {
    pub(super) const fn new() -> Helper {
        Helper { alive: AtomicU32::new(0), id: AtomicI32::new(0) }
    }

    /// Starts it on a stack that ends at `stack`. It is to call [`has_own_table`] first and
    /// [`process::exit_thread`] last.
    ///
    /// # Safety
    /// All signals are blocked, and stay so until [`Helper::join`] has returned. Until then nobody
    /// else uses the stack, and what `data` points to stays valid.
    pub(super) unsafe fn start(
        &self,
        stack: *mut c_void,
        entry: clone::Entry,
        data: *mut c_void,
    ) -> OrPlain<()> {
        // The table is shared, for a copy takes as long as it has descriptors. So is what an exec
        // of a set-user-ID program counts (`CLONE_FS`; fs/exec.c, check_unsafe_exec).
        const FLAGS: u32 = clone::CLONE_VM
            | clone::CLONE_FS
            | clone::CLONE_FILES
            | clone::CLONE_SIGHAND
            | clone::CLONE_THREAD
            | clone::CLONE_CHILD_CLEARTID
            | k::CLONE_PARENT_SETTID
            | k::CLONE_UNTRACED;
        let word = self.alive.as_ptr().cast();
        WITH_DESCRIPTORS.fetch_add(1, SeqCst);
        let made = if NOTIFIED.load(SeqCst) {
            Err(AbortKind::Queue)
        } else {
            // SAFETY: the caller's contract. The word lives until `join` has returned.
            let made = unsafe { clone::clone(FLAGS, 0, stack, word, word, entry, data) };
            made.map_err(|_| AbortKind::Helper)
        };
        if made.is_err() {
            WITH_DESCRIPTORS.fetch_sub(1, SeqCst);
        }
        self.id.store(made?, Relaxed);
        Ok(())
    }

    /// Waits until it has ended. Nothing of it is left then: a process that has become
    /// single-threaded meanwhile may do what only such a process may (`unshare`).
    pub(super) fn join(&self) {
        loop {
            match self.alive.load(Acquire) {
                0 => break,
                alive => {
                    let _ = futex::wait(&self.alive, alive);
                }
            }
        }
        // The kernel has written the word while the thread was still counted.
        let (me, id) = (process::getpid(), self.id.load(Relaxed));
        let is_there = || process::tgkill(me, id, 0).is_ok();
        // That takes some microseconds on another processor. To yield on a busy machine takes the
        // time slice of another thread, some milliseconds.
        const SPINS: u32 = 200;
        if (0..SPINS).all(|_| is_there()) {
            let mut patience = Patience::long(10_000);
            while is_there() && patience.turn() {}
        }
    }
}

/// In a helper: gives up the program's descriptors. Returns whether that was possible (Linux 5.9).
///
/// The kernel copies no more than the table's first 64 entries to drop them again (fs/file.c,
/// `dup_fd` with a hole). Until then such a file stays open if another thread closes it, as it does
/// in a child.
pub(super) fn has_own_table() -> bool {
    let has = fd::close_range(0, u32::MAX, fd::CLOSE_RANGE_UNSHARE).is_ok();
    WITH_DESCRIPTORS.fetch_sub(1, SeqCst);
    has
}

/// A helper is at work for [`look`]. There is one stack for them.
static LOOKING: AtomicBool = AtomicBool::new(false);

struct Job<F, T> {
    look: ManuallyDrop<F>,
    answer: Option<T>,
}

/// Looks at something that takes a descriptor: by a helper if there are other threads. Not in the
/// midst of another look.
pub(super) fn look<T>(beside_threads: bool, look: impl FnOnce() -> T) -> OrPlain<T> {
    if beside_threads { by_helper(look) } else { Ok(look()) }
}

#[inline(never)]
fn by_helper<F: FnOnce() -> T, T>(look: F) -> OrPlain<T> {
    if !state::map() {
        return Err(AbortKind::Setup);
    }
    uninterrupted(|| {
        wait_while(|| LOOKING.swap(true, Acquire));
        let mut job = Job { look: ManuallyDrop::new(look), answer: None };
        let helper = Helper::new();
        // SAFETY: signals are blocked. The stack is free, and the job lives until the helper has
        // ended.
        let started = unsafe { helper.start(state::get().looking.top(), run::<F, T>, (&raw mut job).cast()) };
        if started.is_ok() {
            helper.join();
        }
        LOOKING.store(false, Release);
        started.and_then(|()| job.answer.ok_or(AbortKind::Helper))
    })
}

unsafe extern "C" fn run<F: FnOnce() -> T, T>(job: *mut c_void) -> ! {
    // SAFETY: `by_helper` waits, and leaves the job alone until this thread has ended.
    let job = unsafe { &mut *job.cast::<Job<F, T>>() };
    if has_own_table() {
        // SAFETY: taken once. Without its own table the helper does not take it, and it is lost:
        // closures of looks own nothing.
        let look = unsafe { ManuallyDrop::take(&mut job.look) };
        job.answer = Some(look());
    }
    process::exit_thread()
}

/// In a copy of another process's memory, whose threads are not here.
pub(super) fn reset() {
    if LOOKING.load(Relaxed) {
        LOOKING.store(false, Relaxed);
    }
    if WITH_DESCRIPTORS.load(Relaxed) != 0 {
        WITH_DESCRIPTORS.store(0, Relaxed);
    }
}
