//! The command that a watch starts, and a look at whether it has ended.

use std::ffi::OsString;
use std::process::{Child, Command};

use crate::error::WatchError;

/// Starts the command, with our own standard streams.
pub(crate) fn start(argv: &[OsString]) -> Result<Child, WatchError> {
    let (program, arguments) = argv.split_first().ok_or(WatchError::EmptyCommand)?;
    Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|source| WatchError::Command { program: program.to_string_lossy().into_owned(), source })
}

/// Whether a child of ours has ended; it is not reaped by this.
pub(crate) fn has_ended(child: &Child) -> bool {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(Pid::from_child(child)), options) {
        Ok(status) => status.is_some(),
        // Reaped already, by whoever called `Watch::command`.
        Err(_) => true,
    }
}
