//! The command line of `forkless run`, for figures of the command itself. These are the time that
//! it adds to the start of a program, and a whole program as a user runs it. Victims that are ready
//! before they are measured need no command: `victims/kept.rs`.

use std::ffi::OsString;
use std::path::Path;

/// The words to put before a program's.
pub(crate) fn run_command(forkless: &Path, flags: &[&str]) -> Vec<OsString> {
    let flags = flags.iter().map(OsString::from);
    [forkless.into(), "run".into()].into_iter().chain(flags).chain(["--".into()]).collect()
}
