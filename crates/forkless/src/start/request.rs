//! One start, as it is asked for.

use crate::plan::Plan;
use crate::spec::{Defaults, Spec};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// What a start waits for before it returns.
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

/// One start: the program, how to run it, and what to wait for.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub spec: &'a Spec,
    pub plan: &'a Arc<Plan>,
    pub wait_for: WaitFor,
    /// What 0, 1 and 2 are where the command does not say.
    pub defaults: Defaults,
    /// A descriptor the child is to hold until it becomes the program, and no longer.
    pub until_exec: Option<RawFd>,
    /// Where the search for the program ended last time; updated when it is known where it ended
    /// now.
    pub hint: &'a AtomicUsize,
}
