//! Whose memory this is: this process's, a copy of another's, or another's that this process
//! shares.
//!
//! A process number does not tell: a child in a PID namespace of its own may have its parent's. A
//! page that the kernel empties in copies (`MADV_WIPEONFORK`, Linux 4.14) does, however the copy
//! was made. A process that shares memory (`vfork`, `CLONE_VM`) finds the page as it is, with
//! another process's number in it. The first processes of two namespaces differ by their
//! namespaces.
//!
//! The library's state in a copy belongs to the parent. It says what threads were doing that are
//! not there.
#![expect(unsafe_code, reason = "a page of its own")]

use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::{mm, process};

use crate::patience::{Patience, wait_while};
use crate::uninterrupted::uninterrupted;
use crate::{namespace, reserve};

static MARK: AtomicPtr<Mark> = AtomicPtr::new(null_mut());

/// All zeros in a copy.
struct Mark {
    /// The owner's number. [`CHANGING`]: a copy is becoming an owner.
    pid: AtomicI32,
    /// The owner's PID namespace, if the owner is its first process.
    namespace: AtomicU64,
}

const CHANGING: i32 = -1;

/// A thread is making the mark, or has made it.
static MARKING: AtomicBool = AtomicBool::new(false);

fn known() -> Option<&'static Mark> {
    // SAFETY: mapped by `mark`, zeros are valid, and it is never unmapped.
    unsafe { MARK.load(Acquire).as_ref() }
}

/// Marks this memory as the calling process's, unless it is marked. Returns whether it is marked
/// now.
pub(crate) fn mark() -> bool {
    known().is_some() || uninterrupted(mark_first)
}

fn mark_first() -> bool {
    if MARKING.swap(true, Acquire) {
        // Another thread was first. In a copy made meanwhile that thread is not there.
        let mut patience = Patience::short(1000);
        while known().is_none() && patience.turn() {}
        return known().is_some();
    }
    let Ok(at) = reserve::OWNER.replace(mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE) else {
        MARKING.store(false, Relaxed);
        return false;
    };
    // SAFETY: fresh memory.
    if unsafe { mm::madvise(at, reserve::OWNER.len(), mm::MADV_WIPEONFORK) }.is_err() {
        MARKING.store(false, Relaxed);
        return false;
    }
    // SAFETY: zeros are valid.
    own(unsafe { &*at.cast::<Mark>() });
    MARK.store(at.cast(), Release);
    true
}

fn own(mark: &Mark) {
    let me = me();
    mark.namespace.store(namespace_of(me), Relaxed);
    mark.pid.store(me, Release);
}

/// Never 0, which a filter may answer with.
fn me() -> i32 {
    process::getpid().max(1)
}

/// 0, except in the first process of a namespace: many processes have its number.
fn namespace_of(me: i32) -> u64 {
    if me == 1 { namespace::own().unwrap_or(0) } else { 0 }
}

#[cfg(target_arch = "x86_64")]
/// Whether this memory is marked, or the memory that it is a copy of.
pub(crate) fn is_marked() -> bool {
    known().is_some()
}

/// Whether this memory is a copy of its owner's. One load.
pub(crate) fn is_copy() -> bool {
    known().is_some_and(|mark| mark.pid.load(Relaxed) == 0)
}

#[cfg(target_arch = "x86_64")]
/// Whether another process owns this memory, and the caller shares it. Never where it is unmarked.
pub(crate) fn is_shared() -> bool {
    let me = me();
    known()
        .is_some_and(|mark| mark.pid.load(Relaxed) != me || mark.namespace.load(Relaxed) != namespace_of(me))
}

/// What drops the state that belongs to the process which this memory is a copy of.
static FORGET: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// When the library is loaded: `forget` is to be called whenever a copy gets its owner.
pub(crate) fn at_take_over(forget: fn()) {
    FORGET.store(forget as *mut (), Relaxed);
}

fn forget() {
    let known = FORGET.load(Relaxed);
    if !known.is_null() {
        // SAFETY: `at_take_over` has made it of such a function.
        let forget = unsafe { core::mem::transmute::<*mut (), fn()>(known) };
        forget();
    }
}

/// Makes the calling process the owner of a copy, once the parent's state is dropped. Returns when
/// that is done, by this or another thread.
pub(crate) fn take_over() {
    let Some(mark) = known() else { return };
    // A handler that forks would wait for itself.
    uninterrupted(|| {
        if mark.pid.compare_exchange(0, CHANGING, Acquire, Relaxed).is_ok() {
            forget();
            own(mark);
        }
        wait_while(|| mark.pid.load(Acquire) == CHANGING);
    });
}
