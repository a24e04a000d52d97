//! The data of one start.

use crate::plan::Plan;
use crate::spec::{Defaults, Spec};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The event for which a start waits before it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitFor {
    /// The clone and, where the descriptor table is shared, the moment it no longer is.
    Clone,
    /// The program runs, or the reason why it does not is known.
    Exec,
    /// Nothing: the caller goes on to wait for the end of the child, and touches no descriptor
    /// meanwhile.
    End,
}

/// One start: the program, how to run it, and the event to wait for.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub spec: &'a Spec,
    pub plan: &'a Arc<Plan>,
    pub wait_for: WaitFor,
    /// The connections of 0, 1 and 2 where the command does not say.
    pub defaults: Defaults,
    /// This process's number of a descriptor that the child holds until it executes the program,
    /// and no longer.
    pub held_until_exec: Option<RawFd>,
    /// Index of the candidate that was executed last; the next search tries it first.
    pub hint: &'a AtomicUsize,
}
