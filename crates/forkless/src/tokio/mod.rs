//! `tokio::process` by another door, and starts that are awaited; feature `tokio`.

mod command;
mod running;

pub use command::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
