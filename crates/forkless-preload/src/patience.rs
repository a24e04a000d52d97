//! Waits for other threads, and for what may never come: who is waited for may have been killed,
//! may have left by a jump, or may be waiting for the caller.

use forkless_sys::time::Timespec;
use forkless_sys::{sched, time};

use crate::filters;

const MILLISECOND: u64 = 1_000_000;

/// So long a wait goes on for a thread that may have been killed or have left by a jump.
#[cfg(target_arch = "x86_64")]
pub(crate) const PATIENCE_SECONDS: i64 = 2;

/// Most waits are over after fewer.
const YIELDS: u32 = 20;

/// Lets other threads run, in a wait of which `turn` pauses are over. A thread of a real-time
/// policy yields to its like alone. It sleeps soon: the thread that it waits for may be on the same
/// processor, and without that policy.
#[inline(never)]
pub(crate) fn pause(turn: u32) {
    if turn < YIELDS {
        sched::yield_now();
    } else {
        let _ = time::nanosleep(Timespec { tv_sec: 0, tv_nsec: 50_000 });
    }
}

/// Waits as long as something is so.
pub(crate) fn wait_while(mut is_so: impl FnMut() -> bool) {
    let mut turn: u32 = 0;
    while is_so() {
        pause(turn);
        turn = turn.saturating_add(1);
    }
}

/// A wait that ends after so many turns, or by the clock. On a busy machine the clock is first:
/// each turn takes the time slices of the others there. Beside sixteen processes that compute,
/// 20,000 turns took eight minutes, in place of 20 ms.
pub(crate) struct Patience {
    turns: u32,
    /// Pauses that are over.
    paused: u32,
    ms: u32,
    /// Nanoseconds; 0 before the first turn.
    end: u64,
}

impl Patience {
    /// For what ends soon where it ends at all: there is another way without it.
    pub(crate) const fn short(turns: u32) -> Patience {
        Patience { turns, paused: 0, ms: 200, end: 0 }
    }

    /// For what has no other way that is as good.
    pub(crate) const fn long(turns: u32) -> Patience {
        Patience { turns, paused: 0, ms: 2000, end: 0 }
    }

    /// Lets other threads run. Returns whether to wait on.
    #[cold]
    #[inline(never)]
    pub(crate) fn turn(&mut self) -> bool {
        /// A sleep takes about as long as so many yields.
        const TURNS_OF_A_SLEEP: u32 = 100;
        if self.turns == 0 {
            return false;
        }
        let turns = if self.paused < YIELDS { 1 } else { TURNS_OF_A_SLEEP };
        self.turns = self.turns.saturating_sub(turns);
        // The program's filter may kill for a call that the program does not make.
        if filters::sandboxed() {
            core::hint::spin_loop();
            return true;
        }
        let now = time::monotonic_coarse().nanos();
        if self.end == 0 {
            self.end = now + u64::from(self.ms) * MILLISECOND;
        }
        pause(self.paused);
        self.paused = self.paused.saturating_add(1);
        now <= self.end
    }
}
