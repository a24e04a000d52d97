//! Start any program, from any process, at the cost of vfork.
//!
//! fork(2) copies the page tables of its caller: 10 to 30 ms a gigabyte. Each first write to a page
//! is a fault afterwards. posix_spawn(3) does not copy, but cannot set credentials, limits or a
//! umask, and does not say what failed. This library creates the child with `clone3(CLONE_VM)`, on
//! a stack of its own, and can do everything in that child. Its cost grows neither with the memory
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
//! Any thread may start, wait and signal, at the same time as others. No lock is held while a
//! process is created. Nothing here is async-signal-safe (a start allocates). The environment is
//! read at the start, under the lock of [`std::env`](mod@std::env). So a thread may change it
//! whenever it may with `std::process`.
//!
//! Linux 5.10 and later, x86-64 and aarch64. Where the kernel refuses a facility, the library takes
//! another way; [`facilities`] lists both.
//!
//! Some examples ask the kernel by means of the crate `rustix`, with its features `process` and
//! `pty`. The library itself does not need it.
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

// A start passes through these rooms, from `Command` to `execve`:
//
//   process, tokio    the same commands under std's and tokio's names
//   shell             turns a line for /bin/sh into commands
//   command           the builder; it fills a `Spec`
//   child/spawn       takes a `Spec`, and returns a `Child`
//   plan              validates the `Spec`, and puts every byte that the child needs in its place
//   start             makes pipes, takes a slot, clones; puts changes of the child's back
//   forkless-child    carries the launch out in the child, and calls execve
//   start             reads the child's report, and turns a failure into an error
//   child/handle      the handle: its pipes, waits and signals
//   child/held        reaps the child, signals it, lets go of it
//   child/talk        writes its input, and reads its output
//   reap              reaps children whose handles were dropped
//
// The modules below stand in the order of their imports, which point down only. So it is inside
// each folder, too: no module imports from its parent.

#[cfg(feature = "tokio")]
pub mod tokio;

pub mod process;

mod facility_report;
mod shell;

mod command;

mod child;

mod start;

mod plan;
mod reap;

mod spec;

mod kernel;

mod error;

pub use child::{Child, ChildParts, Conversation, End};
pub use command::{Children, Command, Communicate, Pipeline, Prepared};
pub use error::{SpawnError, Step, WaitError};
pub use facility_report::{FacilityReport, facilities, tried_facilities};
pub use forkless_sys::signal::SigSet;
pub use kernel::facilities::Facility;
#[doc(hidden)]
pub use shell::{AskedShell, LineEnd, ShellFile, shield};
pub use shell::{ShellChild, ShellLine, shell, shell_traits};
pub use spec::attributes::{OnDrop, Resource, Scheduler};
pub use spec::stdio::Stdio;
#[doc(hidden)]
pub use start::run_suspended;
/// Types of the standard library, so that one changed `use` brings all that goes with a command.
#[doc(no_inline)]
pub use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};

/// Pages whose Rust is compiled and run. They are not part of the published crate.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide/library.md")]
    mod library {}
}
