//! The preloaded library is for Linux.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::ForkCounts;
use crate::error::Error;

/// What the library counts in the process: there is none.
#[derive(Debug)]
pub(super) enum Counts {}

/// Says why there is no process.
pub(super) fn prepare(_program: &[OsString], _directory: &Path) -> Result<(Command, Counts), Error> {
    Err(Error::Missing("the preloaded library is for Linux".into()))
}

impl Counts {
    pub(super) fn forks(&self) -> ForkCounts {
        match *self {}
    }
}
