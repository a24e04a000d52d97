//! A timer that tells a child without a pidfd from another child that was given its number.
//!
//! It is on the child's processor clock, and is never set. It takes no descriptor, so
//! there is room for it where the table is full. The kernel keeps the process with it, and not the
//! number. Between the look at it and the use of the number other code may still reap the child:
//! only a pidfd closes that gap.

use crate::kernel::process_state::{self, Identity};
use forkless_sys::{Errno, time};

#[derive(Debug)]
pub(crate) struct ReapTimer {
    timer: i32,
    /// A forked process has no timers, and its own may have this id.
    owner: Identity,
}

impl ReapTimer {
    /// For a child that has just been made. `None` where a filter refuses it, or the limit on
    /// pending signals, which counts timers.
    pub(crate) fn on(pid: i32) -> Option<Box<ReapTimer>> {
        let timer = time::timer_of_process(pid).ok()?;
        Some(Box::new(ReapTimer { timer, owner: process_state::identity() }))
    }

    /// Whether somebody has reaped the child, so that the number can be another's.
    pub(crate) fn is_reaped(&self) -> bool {
        self.is_ours() && time::stop_timer(self.timer) == Err(Errno::ESRCH)
    }

    fn is_ours(&self) -> bool {
        self.owner == process_state::identity()
    }
}

impl Drop for ReapTimer {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = time::delete_timer(self.timer);
        }
    }
}
