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

static OWNER_PAGE: AtomicPtr<OwnerPage> = AtomicPtr::new(null_mut());

/// All zeros in a copy.
struct OwnerPage {
    /// The owner's number. [`CHANGING`]: a copy is becoming an owner.
    pid: AtomicI32,
    /// The owner's PID namespace, if the owner is its first process.
    namespace: AtomicU64,
}

const CHANGING: i32 = -1;

/// A thread is mapping the page, or has mapped it.
static MAPPING: AtomicBool = AtomicBool::new(false);

fn known() -> Option<&'static OwnerPage> {
    // SAFETY: mapped by `map_first`, zeros are valid, and it is never unmapped.
    unsafe { OWNER_PAGE.load(Acquire).as_ref() }
}

/// Makes the calling process the owner of this memory, unless it has one. Returns whether it has
/// one now.
pub(crate) fn claim() -> bool {
    known().is_some() || uninterrupted(map_first)
}

fn map_first() -> bool {
    if MAPPING.swap(true, Acquire) {
        // Another thread was first. In a copy made meanwhile that thread is not there.
        let mut patience = Patience::short(1000);
        while known().is_none() && patience.turn() {}
        return known().is_some();
    }
    let Ok(at) = reserve::OWNER.replace(mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE) else {
        MAPPING.store(false, Relaxed);
        return false;
    };
    // SAFETY: fresh memory.
    if unsafe { mm::madvise(at, reserve::OWNER.len(), mm::MADV_WIPEONFORK) }.is_err() {
        MAPPING.store(false, Relaxed);
        return false;
    }
    // SAFETY: zeros are valid.
    own(unsafe { &*at.cast::<OwnerPage>() });
    OWNER_PAGE.store(at.cast(), Release);
    true
}

fn own(page: &OwnerPage) {
    let me = me();
    page.namespace.store(namespace_of(me), Relaxed);
    page.pid.store(me, Release);
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
/// Whether this memory has an owner, or the memory that it is a copy of.
pub(crate) fn has_owner() -> bool {
    known().is_some()
}

/// Whether this memory is a copy of its owner's. One load.
pub(crate) fn is_copy() -> bool {
    known().is_some_and(|page| page.pid.load(Relaxed) == 0)
}

#[cfg(target_arch = "x86_64")]
/// Whether another process owns this memory, and the caller shares it. Never where it has none.
pub(crate) fn is_shared() -> bool {
    let me = me();
    known()
        .is_some_and(|page| page.pid.load(Relaxed) != me || page.namespace.load(Relaxed) != namespace_of(me))
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
    let Some(page) = known() else { return };
    // A handler that forks would wait for itself.
    uninterrupted(|| {
        if page.pid.compare_exchange(0, CHANGING, Acquire, Relaxed).is_ok() {
            forget();
            own(page);
        }
        wait_while(|| page.pid.load(Acquire) == CHANGING);
    });
}
