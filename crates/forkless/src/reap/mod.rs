//! Waiting for children: each by its pidfd, and in the background those without a handle.

pub(crate) mod by_pidfd;
mod orphan;
pub(crate) mod orphans;
pub(crate) mod sole_reaper;
pub(crate) mod timer;
mod wakeup;
mod watch;
