//! A command carried out as CPython's `_posixsubprocess` does it: for the Python package, whose
//! users know that module's order and search. Hidden, since Rust and C have their own.

use super::builder::Command;
use std::ffi::OsStr;

impl Command {
    /// Takes the order and the calls of `child_exec` (Modules/_posixsubprocess.c):
    ///
    /// - The directory comes before everything else, so it is entered with this process's
    ///   credentials.
    /// - The groups stay, unless set.
    /// - `setregid(2)` and `setreuid(2)`: without privilege, too, no saved id keeps a way back.
    /// - The search goes on after every error. A program that is there and does not run is told
    ///   of, whatever comes after it.
    #[doc(hidden)]
    pub fn as_posixsubprocess(&mut self) -> &mut Command {
        self.spec.attributes.as_posixsubprocess = true;
        self
    }

    /// Tries these files in their order, in place of a search. `PATH` is not read.
    #[doc(hidden)]
    pub fn files<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&mut self, files: I) -> &mut Command {
        self.spec.files = Some(files.into_iter().collect());
        self
    }

    /// Makes no pidfd, for a caller that waits for the child by its number alone.
    #[doc(hidden)]
    pub fn without_pidfd(&mut self, yes: bool) -> &mut Command {
        self.spec.without_pidfd = yes;
        self
    }

    /// The child gets exactly these entries, in their order.
    #[doc(hidden)]
    pub fn exact_environment<I, S>(&mut self, entries: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.spec.env.set_exact(entries.into_iter().collect());
        self
    }

    /// Copies this process's environment now, with entries that have no `=`. Later changes of it
    /// reach no child.
    ///
    /// # Safety
    /// No other thread may change the environment during the call.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "declares an obligation of the caller's")]
    pub unsafe fn fix_environment(&mut self) -> &mut Command {
        // SAFETY: the caller's promise.
        unsafe { self.spec.env.fix() };
        self
    }
}
