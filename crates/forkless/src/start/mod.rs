//! From a plan to a running child.

pub(crate) mod attempt;
pub(crate) mod create;
pub(crate) mod explain;
pub(crate) mod hook_stack;
pub(crate) mod in_place;
pub(crate) mod moves;
pub(crate) mod pdeathsig_thread;
pub(crate) mod slot;
pub(crate) mod wiring;
