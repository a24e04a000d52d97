//! Where no executable is assembled, the system's own stand for them.

use std::fs;
use std::path::PathBuf;

use super::{Kind, Program};
use crate::error::Error;
use crate::guard::Guard;

/// What stands for [`Kind::Exit`], and how results name it: on FreeBSD and macOS alike it does
/// nothing but start and end.
pub(super) const EXIT: &str = "/usr/bin/true";

impl Program {
    /// The program that stands for a kind.
    pub(super) fn assemble(kind: &Kind, _guard: Option<&mut Guard>) -> Result<Program, Error> {
        match kind {
            Kind::Write => Err(Error::Missing(
                "the program that writes a line is made on Linux only: name one of this system's by its path"
                    .into(),
            )),
            _ => Program::of_the_system(PathBuf::from(EXIT)),
        }
    }

    /// There is none.
    pub(super) fn assemble_first(_guard: Option<&mut Guard>) -> Result<(Program, fs::File), Error> {
        Err(Error::Missing(
            "the program that tells its first instruction's time is made on Linux only".into(),
        ))
    }
}
