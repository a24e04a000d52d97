//! Waiting for children: by their pidfds, and in the background for children without a handle.

pub(crate) mod handle;
pub(crate) mod orphans;
pub(crate) mod sole_reaper;
