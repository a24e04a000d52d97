//! The ways to run a [`Command`].

use super::builder::Command;
use crate::child::{Child, run_to_end, spawn, spawn_holding, wait_silently};
use crate::error::SpawnError;
use crate::kernel::descriptor::pipe;
use crate::plan::{CgroupEntry, EnvironmentUse, Plan};
use crate::spec::Defaults;
use crate::start::{self, WaitFor};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitStatus;

impl Command {
    /// Starts the program and returns once it runs.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut child = Command::new("sh").args(["-c", "exit 2"]).spawn().unwrap();
    /// assert_eq!(child.wait().unwrap().code(), Some(2));
    /// let error = Command::new("true").current_dir("/nowhere").spawn().unwrap_err();
    /// assert_eq!(error.to_string(), "chdir to /nowhere: No such file or directory");
    /// ```
    ///
    /// # Errors
    /// A [`SpawnError`] that names the step and the thing. Nothing is left behind then.
    pub fn spawn(&mut self) -> Result<Child, SpawnError> {
        self.start(WaitFor::Exec)
    }

    /// Starts the program and returns as soon as the child process exists. The first wait shows
    /// whether the child has executed the program.
    ///
    /// The caller is blocked for the clone alone, about a sixth of the time that `posix_spawn`
    /// takes. Exceptions:
    ///
    /// - With more than a few hundred open descriptors it waits until the child has a table of its
    ///   own (some 10 us).
    /// - With credentials, a [`Command::cgroup`] or [`Command::pre_exec`] it waits as
    ///   [`Command::spawn`] does, and so it does under emulators that copy memory for `CLONE_VM`.
    ///
    /// ```
    /// use forkless::{Command, WaitError};
    /// let mut child = Command::new("/does/not/exist").spawn_nonblocking().unwrap();
    /// let Err(WaitError::Start(e)) = child.wait() else { panic!("it started") };
    /// assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory");
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`], for errors up to the clone.
    pub fn spawn_nonblocking(&mut self) -> Result<Child, SpawnError> {
        self.start(WaitFor::Clone)
    }

    /// As [`Command::spawn_nonblocking`], for an event loop that awaits the exec: also returns the
    /// reading end of a pipe, which an event loop watches. The pipe ends as soon as the child
    /// executes the program or is gone. Then [`Child::has_executed`] tells what has become of the
    /// start.
    ///
    /// Hazard: a process that is forked elsewhere in this program during this call keeps a copy of
    /// the writing end for life. So ask [`Child::has_executed`] from time to time, too.
    ///
    /// ```
    /// use forkless::Command;
    /// use std::io::Read;
    /// let (mut child, pipe) = Command::new("sleep").arg("60").spawn_watched()?;
    /// let mut pipe = std::fs::File::from(pipe);
    /// assert_eq!(pipe.read(&mut [0])?, 0); // a loop waits until it is readable instead
    /// assert!(child.has_executed()?);
    /// child.kill()?;
    /// child.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn_nonblocking`].
    pub fn spawn_watched(&mut self) -> Result<(Child, OwnedFd), SpawnError> {
        let (ended, held) = pipe()?;
        let child = spawn_holding(&self.spec, WaitFor::Clone, Defaults::Inherit, Some(held.as_raw_fd()))?;
        Ok((child, ended))
    }

    /// Runs the program and waits for it. It is cheaper than [`Command::spawn`] and
    /// [`Child::wait`]: nothing waits for the exec alone. A program of one thread that leaves
    /// SIGCHLD at its default makes no pidfd.
    ///
    /// A pipe that the command asks for is closed, since nobody could read or write it: the program
    /// sees its end.
    ///
    /// ```
    /// use forkless::Command;
    /// assert!(Command::new("true").status().unwrap().success());
    /// assert_eq!(Command::new("false").status().unwrap().code(), Some(1));
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`], and with step [`Step::Wait`](crate::Step::Wait) when the status is
    /// lost ([`crate::WaitError::Unknown`]).
    pub fn status(&mut self) -> Result<ExitStatus, SpawnError> {
        run_to_end(|wait_for| self.start(wait_for), wait_silently)
    }

    /// Executes the program in this process, without a child. Returns only the error. Attributes
    /// set before the failing step stay set.
    ///
    /// ```
    /// use forkless::Command;
    /// let error = Command::new("/does/not/exist").exec(); // returns only if it fails
    /// assert_eq!(error.to_string(), "exec /does/not/exist: No such file or directory");
    /// ```
    pub fn exec(&mut self) -> SpawnError {
        match Plan::new(&self.spec, EnvironmentUse::MayBorrow, CgroupEntry::Join) {
            Ok(plan) => start::exec(&self.spec, &plan),
            Err(e) => e,
        }
    }

    fn start(&self, wait_for: WaitFor) -> Result<Child, SpawnError> {
        spawn(&self.spec, wait_for, Defaults::Inherit)
    }
}
