//! Lines for `system` and `popen`, which hand on descriptors, signals and environment like libc's
//! functions.
#![expect(unsafe_code, reason = "the environment as getenv reads it")]

use crate::error::Failure;
use forkless::shield::Original;
use forkless::{ShellLine, Step, shell};
use libc::c_int;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

/// The wait status of a shell that could not be executed, as system(3) has it.
const NO_SHELL: c_int = 127 << 8;

/// The line. It inherits like a child of fork.
pub(crate) fn line(text: &CStr) -> ShellLine {
    let mut line = shell(OsStr::from_bytes(text.to_bytes()));
    line.inherit_descriptors(true).inherit_signals(true);
    // SAFETY: `forkless.h` asks it of the program, as getenv(3) does.
    unsafe { line.read_environ() };
    line
}

/// Runs a line and waits. Returns the wait status.
pub(crate) fn run(text: &CStr, signals: &Original) -> Result<c_int, Failure> {
    let mut line = line(text);
    signals.apply(&mut line);
    match line.status() {
        Ok(status) => Ok(status.into_raw()),
        Err(e) if e.step() == Step::Exec => Ok(NO_SHELL),
        Err(e) => Err(e.into()),
    }
}
