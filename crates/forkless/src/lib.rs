//! Start any program, from any process, at the cost of vfork.
//!
//! fork(2) copies the page tables of its caller: 10 ms a gigabyte, and as much again in page faults afterwards. posix_spawn(3) does
//! not, but cannot set credentials, limits or a umask, and does not say what failed. This library creates the child with
//! `clone3(CLONE_VM)`, on a stack of its own, and can do everything in that child; its cost does not grow with the memory
//! of the caller, nor with the number of its open descriptors.
//!
//! | you have | you want |
//! |---|---|
//! | `std::process::Command` | [`process::Command`], the same but for the `use`; [`Command`], with errors that name the step |
//! | a start that must not block, in an event loop | [`Command::spawn_nonblocking`], [`Child::pidfd`] |
//! | the same program many times | [`Command::prepare`] |
//! | input, output, a time limit | [`Command::communicate`] |
//! | `a \| b \| c` | [`Command::pipe`] |
//! | a line for `/bin/sh`, as system(3) and popen(3) take, without the shell | [`shell`] |
//!
//! Any thread may start, wait and signal, at once with others, without a lock held while a process is created. Nothing here is
//! async-signal-safe (a start allocates). The environment is read at the start, under the lock of
//! [`std::env`](mod@std::env): a thread may change it at any time as far as it may with `std::process`.
//!
//! Linux 5.10 and later, x86-64 and aarch64. What the kernel refuses is done another way, and [`facilities`] tells which.
//!
//! ```
//! use forkless::{Command, Resource};
//! let status = Command::new("sh")
//!     .args(["-c", "exit 3"])
//!     .umask(0o027)
//!     .rlimit(Resource::Core, 0, 0)
//!     .status()?;
//! assert_eq!(status.code(), Some(3));
//! # Ok::<(), forkless::SpawnError>(())
//! ```

mod alone;
mod attributes;
mod cancel;
mod census;
mod child;
mod command;
mod communicate;
mod copied;
mod create;
mod env;
mod error;
mod explain;
mod facilities;
mod files;
mod fixed;
mod function;
mod hook_stack;
mod in_place;
mod keeper;
mod layout;
mod orphans;
mod own;
mod pipeline;
mod plan;
mod prepared;
mod probe;
pub mod process;
mod ready;
mod reap;
mod shell;
mod slot;
mod start;
mod std_command;
mod stdio;
mod strings;
mod thread;
#[cfg(feature = "tokio")]
pub mod tokio;
mod wiring;

pub use attributes::{OnDrop, Resource, Scheduler};
pub use child::{Child, ChildParts};
pub use command::Command;
pub use communicate::{Communicate, Conversation, End};
pub use error::{SpawnError, Step, WaitError};
pub use facilities::{Facility, FacilityReport, facilities};
pub use forkless_sys::signal::SigSet;
#[doc(hidden)]
pub use function::run_suspended;
pub use pipeline::{Children, Pipeline};
pub use prepared::Prepared;
#[doc(hidden)]
pub use shell::{AskedShell, ShellFile};
pub use shell::{ShellChild, ShellLine, shell, shell_traits};
/// The standard library's own, so that one changed `use` brings all of `std::process` that goes with a command.
#[doc(no_inline)]
pub use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
pub use stdio::Stdio;
