//! `tokio::process` under this crate's name, and starts that are awaited; feature `tokio`.
//!
//! Names, signatures, errors and defaults are those of `tokio::process`. Two lines change: `use
//! forkless::tokio::Command`, and `use forkless::Stdio` in place of `std::process::Stdio`.
//! [`Command::spawn`] returns when the child runs, and suspends its thread until then, as
//! `tokio::process` does. The start takes as long as an exec does. For a file system that may be
//! slow there is [`Command::spawn_async`]: it blocks for the clone alone, awaits the rest, and
//! fails with an error that names the step. [`Child::wait`] awaits the pidfd. It needs no SIGCHLD
//! handler, no thread, and no signal driver of tokio's. A child belongs to no runtime, and may be
//! moved between runtimes until its first wait.
//!
//! Differences from `tokio::process`, beside those that [`crate::process`] lists for std:
//!
//! - [`ChildStdin`] and its like are tokio's pipes by other names, without `into_owned_fd` and
//!   `from_std`.
//! - There is no `as_std`, `spawn_with`, nor a `From` of std's command: see
//!   [`crate::Command::from_std`].
//! - A dropped child is reaped at once by a thread of the library's, not when the runtime gets to
//!   it.
//!
//! ```
//! # #[::tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use forkless::Stdio; // was: std::process::Stdio
//! use forkless::tokio::Command; // was: tokio::process::Command
//! let out = Command::new("cat").stdin(Stdio::null()).output().await?;
//! assert!(out.status.success());
//! assert_eq!(
//!     Command::new("/does/not/exist").spawn().unwrap_err().raw_os_error(),
//!     Some(2)
//! );
//! let err = Command::new("/does/not/exist").spawn_async().await.unwrap_err();
//! assert_eq!(err.to_string(), "exec /does/not/exist: No such file or directory");
//! # Ok(()) }
//! ```

mod child;
mod command;
mod running;

pub use child::{Child, ChildStderr, ChildStdin, ChildStdout};
pub use command::Command;
