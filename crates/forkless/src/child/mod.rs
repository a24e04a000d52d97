//! A running child: its handle, the talk with it, and the start that makes it.

mod handle;
mod spawn;
mod talk;

pub use handle::{Child, ChildParts};
#[cfg(feature = "tokio")]
pub(crate) use spawn::spawn_holding;
pub(crate) use spawn::{may_join_cgroup, run_to_end, spawn, wait_silently};
pub use talk::{Conversation, End};
pub(crate) use talk::{Talk, converse};
