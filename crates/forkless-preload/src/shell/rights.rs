//! Whether a shell would act with the calling thread's credentials. What takes long to find out is kept: the capabilities that an exec may give
//! are taken away by orders that the library sees, and by nothing else.

use core::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::{Result, ids};

static BOUNDING: AtomicU64 = AtomicU64::new(0);
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Values of [`STATE`].
const UNKNOWN: u8 = 0;
/// [`BOUNDING`] is that of all threads, which have it from the first.
const KNOWN: u8 = 1;
/// A thread has changed its own, so each looks.
const CHANGED: u8 = 2;

/// A thread is about to change the set, or to enter a user namespace, where it has all.
pub(crate) fn note_rights() {
    STATE.store(CHANGED, Relaxed);
}

pub(super) fn are_a_shells() -> bool {
    ids::are_a_shells(bounding)
}

fn bounding() -> Result<u64> {
    if STATE.load(Acquire) == KNOWN {
        return Ok(BOUNDING.load(Relaxed));
    }
    let set = ids::bounding_capabilities()?;
    BOUNDING.store(set, Relaxed);
    let _ = STATE.compare_exchange(UNKNOWN, KNOWN, Release, Relaxed);
    Ok(set)
}
