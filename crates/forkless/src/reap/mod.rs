//! Waiting for children: each by its pidfd, and in the background those without a handle.

pub(crate) mod by_pidfd;
pub(crate) mod mark;
mod orphan;
pub(crate) mod orphans;
pub(crate) mod sole_reaper;
mod wakeup;
mod watch;
