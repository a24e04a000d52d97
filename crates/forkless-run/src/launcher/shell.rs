//! Asking `/bin/sh` which shell it is: the library may stand in only for a shell whose behaviour is
//! known.

use forkless::{AskedShell, ShellFile};

use crate::{KnownShell, Shell};

/// The library's orders about the shell.
pub(super) enum Answer {
    /// Every line is the shell's.
    None,
    /// The answer of this one.
    Expected(Asked),
    /// The library is to ask by itself, when the first line depends on it.
    LeftToTheLibrary,
}

impl Answer {
    /// The option `shell` of the library.
    pub(super) fn for_the_library(self) -> Shell {
        match self {
            Answer::None => Shell::Unknown,
            Answer::Expected(asked) => asked.known().map_or(Shell::Unknown, Shell::Known),
            Answer::LeftToTheLibrary => Shell::Ask,
        }
    }
}

/// A shell that was asked and has not been heard yet: it answers while its asker does other things.
/// Dropped unheard it is waited for: the program that is executed next must not find a child it never
/// had.
#[derive(Debug)]
pub struct Asked(AskedShell);

impl Asked {
    /// Reads its answer. `None` when it is not that of a known shell.
    pub fn known(self) -> Option<KnownShell> {
        let ShellFile { traits, device, inode } = self.0.hear()?;
        Some(KnownShell { traits, device, inode })
    }
}

/// Asks. `None` when there is no shell.
pub fn ask() -> Option<Asked> {
    AskedShell::start().map(Asked)
}
