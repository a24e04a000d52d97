//! Starts whose exec an event loop awaits.
//!
//! It is how `forkless::tokio` does it. The child holds the writing end of a pipe until it executes
//! the program or is gone. Python watches the reading end, and asks `executed` when it has ended.

use forkless::{Child, Command, SpawnError};
use pyo3::prelude::*;
use std::os::fd::OwnedFd;

/// Starts the child and returns it with the reading end, which is close-on-exec.
pub(crate) fn start(command: &mut Command) -> Result<(Child, OwnedFd), SpawnError> {
    command.spawn_watched()
}

/// Whether the child has executed its program; `false` as long as nothing is known. Never waits. A
/// child that failed is reaped.
pub(crate) fn executed(child: &mut Child) -> Result<bool, SpawnError> {
    child.has_executed().map_err(SpawnError::from)
}

/// No function of its own: Python calls `spawn` and `executed` of `spawn.rs`.
#[expect(clippy::unnecessary_wraps, reason = "as the other modules")]
pub(crate) fn register(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
