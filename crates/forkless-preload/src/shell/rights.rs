//! Whether a shell would act with the calling thread's credentials. The set of capabilities that an
//! exec may give takes long to find out, so it is kept: only calls that the library sees can take
//! capabilities from it.

use core::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::{Result, ids};

static BOUNDING: AtomicU64 = AtomicU64::new(0);
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Values of [`STATE`].
const UNKNOWN: u8 = 0;
/// [`BOUNDING`] is the set of all threads, which inherit it from the first.
const KNOWN: u8 = 1;
/// A thread has changed its own set, so each thread asks the kernel.
const CHANGED: u8 = 2;

/// A thread is about to change its set, or to enter a user namespace, where it has every
/// capability.
pub(crate) fn note_rights() {
    STATE.store(CHANGED, Relaxed);
}

pub(super) fn are_a_shells() -> bool {
    ids::are_a_shells(bounding)
}

/// The same for a process that may share the memory of another: nothing is kept.
pub(super) fn are_a_shells_in_a_child() -> bool {
    ids::are_a_shells(|| match STATE.load(Acquire) {
        KNOWN => Ok(BOUNDING.load(Relaxed)),
        _ => ids::bounding_capabilities(),
    })
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
