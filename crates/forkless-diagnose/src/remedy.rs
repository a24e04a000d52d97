//! The remedy of a finding and the follow-up that shows its effect, as data. The printing program
//! spells the commands.

use crate::invocation::{Invocation, quoted_first};

/// The means to remove a finding's cost without a change to the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Nothing: the program or the machine must change, as
    /// [`Finding::explanation`](crate::Finding::explanation) says.
    Change,
    /// Start the program, unchanged, under Forkless's preloaded library.
    Run {
        /// The part of the library that removes the cost.
        treatment: Treatment,
        /// The program; `None` where its file is not known.
        program: Option<StartedProgram>,
    },
    /// Put the memory of this running process into huge pages, as [`repair`](crate::repair()) does.
    Repair {
        /// The process.
        pid: u32,
    },
    /// Start the program, unchanged, with one more variable in its environment.
    SetVariable {
        /// The variable's name.
        name: &'static str,
        /// Its value; it needs no quotes in a shell.
        value: &'static str,
        /// The program.
        program: StartedProgram,
    },
}

/// The part of the preloaded library that removes a program's cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Treatment {
    /// It speculates forks, by its defaults.
    SpeculateForks,
    /// It switches user contexts without a system call.
    SwitchContexts,
    /// It has the allocator use transparent huge pages.
    UseHugePages,
    /// It starts the programs of the C library's system() and popen() without a shell, by its
    /// defaults.
    SpareShells,
    /// It answers closes of descriptors that are not open, by its defaults.
    AnswerCloses,
}

/// The next look at a finding: whether it is gone, or its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FollowUp {
    /// Another diagnosis.
    Diagnose {
        /// Of this process; of the whole machine where none of the finding's processes runs any
        /// more.
        pid: Option<u32>,
    },
    /// A list of process creations.
    Log {
        /// Of this process; of the whole machine where none of the finding's processes runs any
        /// more.
        pid: Option<u32>,
    },
    /// The analysis of a shell line, which is given here as one quoted word.
    ShellLine(String),
    /// This command line, of other programs than Forkless.
    Command(String),
}

/// A program and how it was started, as far as that could be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedProgram {
    pub(crate) name: String,
    pub(crate) invocation: Option<Invocation>,
}

impl StartedProgram {
    /// The command of a watch, which runs in our own directory.
    pub(crate) fn of_command(argv: &[std::ffi::OsString]) -> Self {
        let name = argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        Self { name, invocation: Invocation::of_command(argv) }
    }

    /// A line for a shell that starts it again, with `before` in front of the program. Dots stand
    /// for arguments that are not known, or would make the line too long to read.
    pub fn line(&self, before: &str) -> String {
        self.invocation.as_ref().and_then(|invocation| invocation.line(before)).unwrap_or_else(|| {
            format!("{before}{} ...", quoted_first(&self.name).unwrap_or_else(|| "PROGRAM".to_owned()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_for_arguments_that_are_not_known() {
        let program = |name: &str| StartedProgram { name: name.to_owned(), invocation: None };
        assert_eq!(program("/opt/a b").line("nice "), "nice '/opt/a b' ...");
        assert_eq!(program("a\nb").line("nice "), "nice PROGRAM ...");
        let argv = ["make", "-j4"].map(Into::into);
        let known = StartedProgram { invocation: Invocation::of_command(&argv), ..program("/usr/bin/make") };
        assert_eq!(known.line("nice "), "nice make -j4");
    }
}
