//! A command carried out as CPython's `_posixsubprocess` does it: for the Python package, whose
//! users know that module's order and search. Hidden, since Rust and C have their own.

use super::builder::Command;
use crate::spec::strings::Strings;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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
        self.spec.files = Some(strings(files));
        self
    }

    /// The child gets exactly these entries, in their order.
    #[doc(hidden)]
    pub fn exact_environment<I, S>(&mut self, entries: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.spec.env.set_exact(strings(entries));
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
        unsafe { self.spec.env.read_environ() };
        let entries = self.spec.env.strings();
        self.spec.env.set_exact(entries);
        self
    }
}

fn strings<S: AsRef<OsStr>>(of: impl IntoIterator<Item = S>) -> Strings {
    let mut all = Strings::default();
    for one in of {
        all.push(one.as_ref().as_bytes());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;

    #[test]
    fn the_first_file_that_runs_is_taken_and_the_first_real_error_is_told() {
        let mut command = Command::new("sh");
        command.as_posixsubprocess().args(["-c", "exit 5"]);
        command.files(["/nowhere/sh", "/etc/passwd", "/bin/sh"]);
        assert_eq!(command.status().unwrap().code(), Some(5));
        command.files(["/nowhere/sh", "/etc/passwd", "/nowhere/sh"]);
        let e = command.status().unwrap_err();
        assert_eq!((e.step(), e.raw_os_error()), (Step::Exec, Some(libc::EACCES)));
        command.files(["/nowhere/sh", "/dev/null/sh"]);
        assert_eq!(command.status().unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
    }

    #[test]
    fn an_exact_environment_keeps_its_order_and_its_repetitions() {
        let mut command = Command::new("env");
        command.files(["/usr/bin/env"]).exact_environment(["B=1", "A=2", "B=3"]);
        assert_eq!(command.output().unwrap().stdout, b"B=1\nA=2\nB=3\n");
    }

    #[test]
    fn the_directory_comes_before_the_group() {
        // Without privilege the group would be refused first.
        let mut command = Command::new("/bin/true");
        command.as_posixsubprocess().current_dir("/nowhere").process_group(-5);
        assert_eq!(command.status().unwrap_err().step(), Step::Chdir);
    }
}
