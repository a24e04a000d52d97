//! A running child: the start that makes it, its handle (`handle`), the process behind the handle
//! (`held`), and the talk with the child.

mod handle;
mod held;
mod spawn;
mod talk;

pub use handle::{Child, ChildParts};
pub(crate) use spawn::{may_join_cgroup, run_to_end, spawn, spawn_holding, wait_silently};
pub use talk::{Conversation, End};
pub(crate) use talk::{Talk, converse_to_the_end, grow};
