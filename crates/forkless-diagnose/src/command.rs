//! The command that a watch starts, and a look at whether it has ended.

use std::ffi::OsString;
use std::process::{Child, Command};

use crate::error::WatchError;

/// Starts the command. It inherits the standard streams.
pub(crate) fn start(argv: &[OsString]) -> Result<Child, WatchError> {
    let (program, arguments) = argv.split_first().ok_or(WatchError::EmptyCommand)?;
    Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|source| WatchError::Command { program: program.to_string_lossy().into_owned(), source })
}

/// Whether the child has ended. It stays unreaped.
pub(crate) fn has_ended(child: &Child) -> bool {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(Pid::from_child(child)), options) {
        Ok(status) => status.is_some(),
        // The caller of `Watch::command` has reaped it.
        Err(_) => true,
    }
}
