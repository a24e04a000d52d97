//! Waits for what may never come: who is waited for may have been killed, may have left by a jump,
//! or may be waiting for the caller.

use forkless_sys::{sched, time};

use crate::filters;

const MILLISECOND: u64 = 1_000_000;

/// A wait that ends after so many turns, or by the clock. On a busy machine the clock is first:
/// each turn takes the time slices of the others there. Beside sixteen processes that compute,
/// 20,000 turns took eight minutes, in place of 20 ms.
pub(crate) struct Patience {
    turns: u32,
    ms: u32,
    /// Nanoseconds; 0 before the first turn.
    end: u64,
}

impl Patience {
    /// For what ends soon where it ends at all: there is another way without it.
    pub(crate) const fn short(turns: u32) -> Patience {
        Patience { turns, ms: 200, end: 0 }
    }

    /// For what has no other way that is as good.
    pub(crate) const fn long(turns: u32) -> Patience {
        Patience { turns, ms: 2000, end: 0 }
    }

    /// Lets other threads run. Returns whether to wait on.
    #[cold]
    #[inline(never)]
    pub(crate) fn turn(&mut self) -> bool {
        let Some(left) = self.turns.checked_sub(1) else { return false };
        self.turns = left;
        // The program's filter may kill for a call that the program does not make.
        if filters::sandboxed() {
            core::hint::spin_loop();
            return true;
        }
        let now = time::monotonic_coarse().nanos();
        if self.end == 0 {
            self.end = now + u64::from(self.ms) * MILLISECOND;
        }
        sched::yield_now();
        now <= self.end
    }
}
