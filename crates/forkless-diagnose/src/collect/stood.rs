//! How long the caller of one creation did nothing else.

use crate::creation::Creation;

/// How long its caller stood still for one creation, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stood {
    pub(super) call: u64,
    /// From the call's end on, if it waited for the exec.
    pub(super) exec: Option<u64>,
    /// From the exec or the call on, if it waited for the child's end.
    pub(super) end: Option<u64>,
    /// The rest of the child's life.
    pub(super) rest: u64,
}

impl Stood {
    pub(super) fn of(creation: &Creation) -> Self {
        let life = creation.lifetime_ns.unwrap_or(0);
        let until_exec = creation.until_exec_ns.unwrap_or(0);
        // Without fentry the time of a vfork is not known, and its caller waits until the exec.
        let vfork = creation.until_exec_ns.or(creation.lifetime_ns).filter(|_| creation.kind.waits());
        let call = creation.caller_waited_ns.or(creation.copy_ns).or(vfork).unwrap_or(0);
        let waits = creation.caller_waits;
        let for_exec = waits.is_some_and(|waits| waits.for_exec) && until_exec > call;
        let stood = if for_exec { until_exec } else { call };
        let for_end = waits.is_some_and(|waits| waits.for_end) && life > stood;
        Self {
            call,
            exec: for_exec.then(|| until_exec - call),
            end: for_end.then(|| life - stood),
            rest: life.saturating_sub(stood),
        }
    }

    pub(super) fn ns(&self) -> u64 {
        self.call + self.exec.unwrap_or(0) + self.end.unwrap_or(0)
    }
}
