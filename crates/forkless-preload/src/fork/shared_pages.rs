//! The pages that a speculative child shares with its parent: how the child ended, and what it
//! needed.
//!
//! A process makes one mapping before its first speculation, and keeps it. A process forked from it
//! has the pointer and not the mapping, so it must make one of its own first: [`forget`].
#![expect(unsafe_code, reason = "advice on a mapping of its own")]

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_run::{AbortReason, Counter};
use forkless_speculate::exclusions::FETCHED;
use forkless_speculate::late;
use forkless_speculate::site::resident::Trials;
use forkless_sys::mm;
use forkless_sys::signal::Taken;

use crate::reserve;
use crate::uninterrupted::uninterrupted;
use forkless_speculate::retry::retry;

use super::program_memory;

/// Signals that are handed on with their senders and values, each as often as it came. Of further
/// ones it is only known that they came.
const SIGNALS: usize = 32;

/// The shared pages.
#[repr(C)]
pub(crate) struct SharedPages {
    /// Set just before execve, cleared when it fails.
    executing: AtomicU32,
    /// 1: an exec of the child's has failed.
    has_failed: AtomicU32,
    /// [`AbortReason::raw`] of an abort.
    reason: AtomicU32,
    /// Signals that arrived for the child and must reach its replacement, of which nothing more is
    /// known.
    pub(crate) pending: AtomicU64,
    /// How many of [`SIGNALS`] are known in full.
    signals: AtomicUsize,
    pub(crate) traps: AtomicU64,
    pub(crate) direct: AtomicU64,
    pub(crate) pages: AtomicU64,
    /// What became of an executed shell: the place of its counter in [`Counter::ALL`] and one. 0:
    /// the child executes none.
    line: AtomicUsize,
    pub(crate) closes: AtomicU64,
    /// The code that libc has handlers return to, if the child has learnt it.
    pub(crate) restorer: AtomicUsize,
    /// A child that has fetched anything must not commit (`late`).
    exact: AtomicU32,
    /// How many of [`FETCHED`] ranges are noted. Further ones are only counted.
    ranges: AtomicUsize,
    /// How many of these an earlier child of the same fork has fetched.
    carried: AtomicUsize,
    range: [(AtomicUsize, AtomicUsize); FETCHED],
    signal: [[AtomicI32; 32]; SIGNALS],
}

static PAGES: AtomicPtr<SharedPages> = AtomicPtr::new(null_mut());

/// The mapping's length.
const LEN: usize = (size_of::<SharedPages>() + 4095) & !4095;
const _: () = assert!(LEN <= reserve::SHARED_PAGES.len(), "room for what is shared");

/// Whether the place in the reserve is shared memory of this process's, or is being made so.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Makes the mapping if there is none.
///
/// Only the speculative child inherits it, and the kernel shares it with that child alone. A child
/// made past `fork`, which may become another user, could else write into it what this process
/// believes.
#[inline(always)]
pub(crate) fn prepare() -> bool {
    !PAGES.load(Relaxed).is_null() || uninterrupted(share)
}

#[cold]
fn share() -> bool {
    // Another thread may be making it.
    if SHARED.swap(true, Acquire) {
        return false;
    }
    let Ok(at) = reserve::SHARED_PAGES.replace(mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED) else {
        SHARED.store(false, Release);
        return false;
    };
    if advise(at, mm::MADV_DONTFORK).is_err() {
        if reserve::SHARED_PAGES.let_go().is_ok() {
            SHARED.store(false, Release);
        }
        return false;
    }
    PAGES.store(at.cast(), Relaxed);
    true
}

fn advise(at: *mut c_void, advice: u32) -> forkless_sys::Result<()> {
    // SAFETY: says what a child gets, of memory of our own.
    unsafe { mm::madvise(at, LEN, advice) }
}

/// The process that is made next inherits the mapping.
pub(crate) fn lend() -> bool {
    advise(PAGES.load(Relaxed).cast(), mm::MADV_DOFORK).is_ok()
}

/// And no process after that one.
pub(crate) fn keep() {
    let _ = retry(|| advise(PAGES.load(Relaxed).cast(), mm::MADV_DONTFORK));
}

/// In a child of this process, which has not got the mapping.
pub(crate) fn forget() {
    if !PAGES.load(Relaxed).is_null() {
        PAGES.store(null_mut(), Relaxed);
        // The program may have mapped something there since.
        if reserve::SHARED_PAGES.hold().is_ok() {
            SHARED.store(false, Release);
        }
    }
}

/// Its first address: the child must keep it writable.
pub(crate) fn address() -> usize {
    PAGES.load(Relaxed) as usize
}

/// The mapping. Only between [`prepare`] and [`forget`].
pub(crate) fn get() -> &'static SharedPages {
    // SAFETY: `prepare` made the mapping, and only `forget` gives it up, in a process with one
    // thread. Zeroed memory is valid.
    unsafe { &*PAGES.load(Relaxed) }
}

impl SharedPages {
    /// Empties it for the first child of a fork.
    pub(crate) fn begin(&self, is_exact: bool) {
        self.exact.store(u32::from(is_exact), Relaxed);
        self.ranges.store(0, Relaxed);
        self.carried.store(0, Relaxed);
    }

    /// Empties it for the next child, but for what earlier children of the fork have fetched.
    pub(crate) fn reset(&self) {
        self.executing.store(0, Relaxed);
        self.has_failed.store(0, Relaxed);
        self.reason.store(0, Relaxed);
        self.pending.store(0, Relaxed);
        self.signals.store(0, Relaxed);
        self.traps.store(0, Relaxed);
        self.direct.store(0, Relaxed);
        self.pages.store(0, Relaxed);
        self.line.store(0, Relaxed);
        self.closes.store(0, Relaxed);
        self.restorer.store(0, Relaxed);
        self.ranges.store(self.carried.load(Relaxed), Relaxed);
    }

    /// Whether a child must not commit once it has fetched anything.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact.load(Relaxed) != 0
    }

    /// Whether the child must not commit: beside threads it has read memory late.
    pub(crate) fn has_read_late(&self) -> bool {
        self.is_exact() && self.pages.load(Relaxed) != 0
    }

    pub(crate) fn set_executing(&self, on: bool) {
        self.executing.store(u32::from(on), Relaxed);
    }

    /// The child executes a shell, or the command in its place.
    pub(crate) fn note_line(&self, counter: Counter) {
        self.line.store(counter as usize + 1, Relaxed);
    }

    /// The counter of an executed shell.
    pub(crate) fn line(&self) -> Option<Counter> {
        Counter::ALL.get(self.line.load(Relaxed).checked_sub(1)?).copied()
    }

    /// In the child: its exec has failed.
    pub(crate) fn exec_has_failed(&self) {
        self.has_failed.store(1, Relaxed);
        self.set_executing(false);
    }

    /// Whether the child has tried to execute a program, in vain.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed) != 0
    }

    pub(crate) fn is_executing(&self) -> bool {
        self.executing.load(Relaxed) != 0
    }

    /// The first reason stays. What follows an abort is a consequence.
    pub(crate) fn abort(&self, reason: AbortReason) {
        let _ = self.reason.compare_exchange(0, reason.raw(), Relaxed, Relaxed);
    }

    pub(crate) fn reason(&self) -> Option<AbortReason> {
        AbortReason::from_raw(self.reason.load(Relaxed))
    }

    /// Notes a signal; whether there was room.
    pub(crate) fn keep_signal(&self, taken: &Taken) -> bool {
        let n = self.signals.load(Relaxed);
        let Some(place) = self.signal.get(n) else { return false };
        program_memory::store(place.as_ptr() as usize, *taken);
        self.signals.store(n + 1, Relaxed);
        true
    }

    /// How many signals are noted, and a copy of them.
    pub(crate) fn signals(&self) -> (usize, [Taken; SIGNALS]) {
        (self.signals.load(Relaxed), program_memory::value(self.signal.as_ptr() as usize))
    }

    /// Whether a replacement is to get any.
    pub(crate) fn has_signals(&self) -> bool {
        self.pending.load(Relaxed) != 0 || self.signals.load(Relaxed) != 0
    }

    /// Notes a fetched range.
    pub(crate) fn fetched(&self, start: usize, end: usize) {
        self.pages.fetch_add(((end - start) / 4096) as u64, Relaxed);
        let n = self.ranges.load(Relaxed);
        if let Some((s, e)) = self.range.get(n) {
            s.store(start, Relaxed);
            e.store(end, Relaxed);
            self.ranges.store(n + 1, Relaxed);
        }
    }

    fn noted(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
        self.range[from..to].iter().map(|(s, e)| (s.load(Relaxed), e.load(Relaxed)))
    }

    fn numbers(&self) -> (usize, usize) {
        let all = self.ranges.load(Relaxed).min(FETCHED);
        (self.carried.load(Relaxed).min(all), all)
    }

    /// The ranges that the last child has fetched, as far as they are noted.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let (carried, all) = self.numbers();
        self.noted(carried, all)
    }

    /// The ranges that earlier children of the same fork have fetched.
    pub(crate) fn carried(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
        self.noted(0, self.numbers().0)
    }

    /// What may be withheld from the child that is to be made.
    pub(crate) fn trials(&self) -> Trials {
        match (self.is_exact(), self.numbers()) {
            (false, _) => Trials::Usual,
            (true, (0, _)) => Trials::Rare,
            (true, _) => Trials::None,
        }
    }

    /// Whether the fork is speculated once more after `made` children. If so, what the last one has
    /// fetched is carried over. A table without room has lost some of it.
    pub(crate) fn try_again(&self, made: u32) -> bool {
        let (_, all) = self.numbers();
        let again = all < FETCHED && late::again(made, self.carried(), self.ranges());
        if again {
            self.carried.store(all, Relaxed);
        }
        again
    }
}

/// Counts a judged call. A plain load and store: the child has one thread.
pub(crate) fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}
