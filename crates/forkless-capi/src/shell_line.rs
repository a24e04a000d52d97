//! Lines for `/bin/sh -c`, as `system` and `popen` take them.

use crate::error::Failure;
use crate::signals::Original;
use forkless::{Child, Command, SpawnError, Step};
use libc::c_int;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

/// The wait status of a shell that could not be executed, as system(3) has it.
const NO_SHELL: c_int = 127 << 8;

/// The shell, with descriptors and signals as libc's functions hand them on.
fn shell(line: &CStr) -> Command {
    let mut sh = Command::new("/bin/sh");
    // "--": a line that begins with '-' is no option.
    sh.arg0("sh").args(["-c", "--"]).arg(OsStr::from_bytes(line.to_bytes()));
    sh.inherit_descriptors(true).inherit_signals(true);
    sh
}

/// Runs a line and waits; the wait status.
pub(crate) fn run(line: &CStr, signals: &Original) -> Result<c_int, Failure> {
    let mut sh = shell(line);
    signals.apply(&mut sh);
    match sh.status() {
        Ok(status) => Ok(status.into_raw()),
        Err(e) if e.step() == Step::Exec => Ok(NO_SHELL),
        Err(e) => Err(e.into()),
    }
}

/// Starts a line after `wire` has connected its descriptors.
pub(crate) fn start(line: &CStr, wire: impl FnOnce(&mut Command)) -> Result<Child, SpawnError> {
    let mut sh = shell(line);
    wire(&mut sh);
    sh.spawn()
}
