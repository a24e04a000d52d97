//! Asking `/bin/sh` which shell it is: the library may stand in only for a shell whose behaviour is
//! known.

use forkless::{AskedShell, ShellFile};

use crate::{KnownShell, Shell};

/// The launcher's knowledge of the shell, of which it makes an option of the library.
pub(super) enum ShellKnowledge {
    /// Every line is the shell's.
    None,
    /// This shell was asked. It answers while the launcher does other things. Dropped unheard it is
    /// waited for: the program that is executed next must not find a child it never had.
    Expected(Box<AskedShell>),
    /// The library is to ask by itself, when the first line depends on it.
    LeftToTheLibrary,
}

impl ShellKnowledge {
    /// Asks.
    pub(super) fn ask() -> ShellKnowledge {
        AskedShell::start().map_or(ShellKnowledge::None, |asked| ShellKnowledge::Expected(Box::new(asked)))
    }

    /// The option `shell` of the library. Reads the answer, if one is expected.
    pub(super) fn for_the_library(self) -> Shell {
        match self {
            ShellKnowledge::None => Shell::Unknown,
            ShellKnowledge::Expected(asked) => asked.hear().map_or(Shell::Unknown, known),
            ShellKnowledge::LeftToTheLibrary => Shell::Ask,
        }
    }
}

fn known(file: ShellFile) -> Shell {
    let ShellFile { traits, device, inode } = file;
    Shell::Known(KnownShell { traits, device, inode })
}
