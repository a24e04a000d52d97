//! Waking the thread that takes in dropped children.

use crate::kernel::process_state::PerProcess;
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, poll};
use std::sync::atomic::{AtomicU32, Ordering};

/// A count of news for the thread that sleeps on it.
#[derive(Default)]
pub(super) struct Wakeup(AtomicU32);

/// The wakeup of this process.
pub(super) fn wakeup() -> &'static Wakeup {
    static WAKEUP: PerProcess<Wakeup> = PerProcess::new();
    WAKEUP.get()
}

impl Wakeup {
    /// Tells the thread that something is new.
    pub(super) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Release);
        let _ = poll::futex_wake(&self.0, 1);
    }

    /// The news so far: to be taken before the thread looks for them, for [`Wakeup::sleep`].
    pub(super) fn heard(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps until there is more news than `heard`. `ETIMEDOUT` when the time is over first.
    pub(super) fn sleep(&self, heard: u32, timeout: Option<&Timespec>) -> Result<(), Errno> {
        poll::futex_wait(&self.0, heard, timeout)
    }
}
