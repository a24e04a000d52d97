//! The command line of `forkless run`, for figures of the command itself. These are the time that
//! it adds to the start of a program, and a whole program as a user runs it. Victims that are ready
//! before they are measured need no command: `victims/kept.rs`.

use std::ffi::OsString;
use std::path::Path;

use forkless_bench::plain;
use forkless_run::SWITCH_VARIABLE;

/// The words to put before a program's.
pub(crate) fn run_command(forkless: &Path, flags: &[&str]) -> Vec<OsString> {
    let flags = flags.iter().map(OsString::from);
    // What is measured plain has the library switched off then.
    let on: &[&str] = if plain::is_switched_off() { &["/usr/bin/env", "-u", SWITCH_VARIABLE] } else { &[] };
    let on = on.iter().map(OsString::from);
    on.chain([forkless.into(), "run".into()]).chain(flags).chain(["--".into()]).collect()
}
