//! Errors: the step that failed, the thing that it was about, and the kernel's reason.

use std::fmt::{self, Write as _};
use std::io;

/// The step of a start that failed. A step has the name of its system call or, where there is none,
/// of its part of the plan.
///
/// ```
/// use forkless::{Command, Step};
/// let error = Command::new("true").process_group(-5).status().unwrap_err();
/// assert_eq!(error.step(), Step::ProcessGroup);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The command itself cannot be carried out: a NUL byte, an empty program, contradictory
    /// options.
    Command,
    /// Making a pipe or opening a file for the child, in the parent.
    Pipe,
    /// Memory for the child's stack.
    Stack,
    /// Creating the process.
    Clone,
    /// Bringing the child's descriptors in place.
    Descriptors,
    /// Signal dispositions.
    Signals,
    /// `setsid(2)`.
    Setsid,
    /// `setpgid(2)`.
    ProcessGroup,
    /// The controlling terminal, or its foreground group.
    Terminal,
    /// Joining a cgroup.
    Cgroup,
    /// `setrlimit(2)`.
    Rlimit,
    /// `setpriority(2)`.
    Nice,
    /// `sched_setscheduler(2)`.
    Scheduler,
    /// `sched_setaffinity(2)`.
    Affinity,
    /// `chroot(2)`.
    Chroot,
    /// `setgroups(2)`.
    Groups,
    /// `setgid(2)`.
    Gid,
    /// `setuid(2)`.
    Uid,
    /// `chdir(2)`.
    Chdir,
    /// `prctl(PR_SET_NO_NEW_PRIVS)`.
    NoNewPrivs,
    /// `prctl(PR_SET_PDEATHSIG)`.
    DeathSignal,
    /// The caller's `pre_exec` function.
    PreExec,
    /// `execve(2)`.
    Exec,
    /// Waiting for the child or talking to it after it was started.
    Wait,
}

impl Step {
    /// One word, the same in every version: for logs and for programs.
    ///
    /// ```
    /// assert_eq!(forkless::Step::NoNewPrivs.name(), "no_new_privs");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Step::Command => "command",
            Step::Pipe => "pipe",
            Step::Stack => "stack",
            Step::Clone => "clone",
            Step::Descriptors => "descriptors",
            Step::Signals => "signals",
            Step::Setsid => "setsid",
            Step::ProcessGroup => "process_group",
            Step::Terminal => "terminal",
            Step::Cgroup => "cgroup",
            Step::Rlimit => "rlimit",
            Step::Nice => "nice",
            Step::Scheduler => "scheduler",
            Step::Affinity => "affinity",
            Step::Chroot => "chroot",
            Step::Groups => "groups",
            Step::Gid => "gid",
            Step::Uid => "uid",
            Step::Chdir => "chdir",
            Step::NoNewPrivs => "no_new_privs",
            Step::DeathSignal => "death_signal",
            Step::PreExec => "pre_exec",
            Step::Exec => "exec",
            Step::Wait => "wait",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Step::Command => "command",
            Step::Pipe => "pipe",
            Step::Stack => "stack for the child",
            Step::Clone => "clone",
            Step::Descriptors => "descriptor",
            Step::Signals => "signal dispositions",
            Step::Setsid => "setsid",
            Step::ProcessGroup => "setpgid to",
            Step::Terminal => "terminal",
            Step::Cgroup => "join cgroup",
            Step::Rlimit => "setrlimit",
            Step::Nice => "nice",
            Step::Scheduler => "sched_setscheduler",
            Step::Affinity => "sched_setaffinity to",
            Step::Chroot => "chroot to",
            Step::Groups => "setgroups",
            Step::Gid => "setgid",
            Step::Uid => "setuid",
            Step::Chdir => "chdir to",
            Step::NoNewPrivs => "no_new_privs",
            Step::DeathSignal => "parent death signal",
            Step::PreExec => "pre_exec",
            Step::Exec => "exec",
            Step::Wait => "wait for",
        }
    }
}

/// A start that failed: the step, the thing that it was about, and the reason.
///
/// Nothing of it is left: no child, no descriptor, no changed signal mask.
///
/// Becomes an [`io::Error`] with `?`, of the same [`kind`](SpawnError::kind) and text. The
/// `raw_os_error` of that error is `None`, as of every `io::Error` that wraps another. The number
/// and the step are in `get_ref`:
///
/// ```
/// use forkless::{SpawnError, Step};
/// fn run() -> std::io::Result<std::process::ExitStatus> {
///     Ok(forkless::Command::new("/nowhere").status()?)
/// }
/// let err = run().unwrap_err();
/// assert_eq!(err.kind(), std::io::ErrorKind::NotFound);
/// let start = err.get_ref().and_then(|e| e.downcast_ref::<SpawnError>()).unwrap();
/// assert_eq!((start.raw_os_error(), start.step()), (Some(2), Step::Exec));
/// ```
///
/// ```
/// let err =
///     forkless::Command::new("/bin/true").current_dir("/nowhere").status().unwrap_err();
/// assert_eq!(err.to_string(), "chdir to /nowhere: No such file or directory");
/// assert_eq!(err.step(), forkless::Step::Chdir);
/// assert_eq!(err.kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug, Clone)]
pub struct SpawnError {
    step: Step,
    what: Option<Box<str>>,
    errno: i32,
    /// 0 for none.
    child: i32,
}

impl SpawnError {
    /// Cold, so that the compiler lays code that leads to an error out apart.
    #[cold]
    pub(crate) fn new(step: Step, what: impl Into<Option<String>>, errno: i32) -> SpawnError {
        SpawnError { step, what: what.into().map(String::into_boxed_str), errno, child: 0 }
    }

    /// The error of a child that existed.
    pub(crate) fn of_child(self, pid: i32) -> SpawnError {
        SpawnError { child: pid, ..self }
    }

    pub(crate) fn at(step: Step, what: impl fmt::Display, errno: forkless_sys::Errno) -> SpawnError {
        SpawnError::new(step, what.to_string(), errno.raw())
    }

    /// Whether the clone failed for want of a descriptor: it makes the pidfd and no other.
    pub(crate) fn table_full(&self) -> bool {
        self.step == Step::Clone && matches!(self.errno, libc::EMFILE | libc::ENFILE)
    }

    /// Which step failed.
    ///
    /// ```
    /// use forkless::{Command, Step};
    /// assert_eq!(Command::new("/nowhere").status().unwrap_err().step(), Step::Exec);
    /// ```
    pub fn step(&self) -> Step {
        self.step
    }

    /// The thing that the step was about: a path, a number, an argument.
    ///
    /// ```
    /// let error = forkless::Command::new("/nowhere").status().unwrap_err();
    /// assert_eq!(error.what(), Some("/nowhere"));
    /// ```
    pub fn what(&self) -> Option<&str> {
        self.what.as_deref()
    }

    /// The error number (`errno(3)`).
    ///
    /// ```
    /// let error = forkless::Command::new("/").status().unwrap_err();
    /// assert_eq!(error.raw_os_error(), Some(13)); // EACCES: a directory
    /// ```
    pub fn raw_os_error(&self) -> Option<i32> {
        Some(self.errno)
    }

    /// The number of the child that could not do this step; `None` where no child was created.
    ///
    /// For messages alone: the child has been reaped, and by now the number may be another
    /// process's.
    ///
    /// ```
    /// let error = forkless::Command::new("/nowhere").spawn().unwrap_err();
    /// assert!(error.child_id().is_some_and(|id| id > 1));
    /// let error = forkless::Command::new("a\0b").spawn().unwrap_err();
    /// assert_eq!(error.child_id(), None);
    /// ```
    pub fn child_id(&self) -> Option<u32> {
        u32::try_from(self.child).ok().filter(|&id| id != 0)
    }

    /// The error that `std::process` would give. It has the number alone, so that `raw_os_error`
    /// tells it, and no step. For a command that cannot be carried out it has no number, as with
    /// std.
    ///
    /// ```
    /// let error = forkless::Command::new("/nowhere").status().unwrap_err();
    /// assert_eq!(error.os_error().raw_os_error(), Some(2));
    /// assert_eq!(std::io::Error::from(error).raw_os_error(), None); // with the step
    /// ```
    pub fn os_error(&self) -> io::Error {
        match self.step {
            Step::Command => io::Error::new(self.kind(), self.clone()),
            _ => io::Error::from_raw_os_error(self.errno),
        }
    }

    /// The standard library's name for the reason, as `std::io::Error::kind`.
    ///
    /// ```
    /// let error = forkless::Command::new("a\0b").status().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    /// ```
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.errno).kind()
    }
}

/// The text of `strerror(3)` without the number that `io::Error` adds.
pub(crate) fn message(errno: i32) -> String {
    let mut text = io::Error::from_raw_os_error(errno).to_string();
    if let Some(at) = text.find(" (os error") {
        text.truncate(at);
    }
    text
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.step.verb())?;
        if let Some(what) = &self.what {
            // There it is a sentence of its own.
            f.write_str(if self.step == Step::Command { ": " } else { " " })?;
            // One line, whatever a path has in it, that no terminal obeys.
            for c in what.chars() {
                if c.is_control() { write!(f, "{}", c.escape_default()) } else { f.write_char(c) }?;
            }
        }
        write!(f, ": {}", message(self.errno))
    }
}

impl std::error::Error for SpawnError {}

impl From<SpawnError> for io::Error {
    fn from(e: SpawnError) -> io::Error {
        io::Error::new(e.kind(), e)
    }
}

/// Why a wait has no exit status to give.
///
/// ```
/// use forkless::{Command, WaitError};
/// use std::time::Duration;
/// let mut child = Command::new("sleep").arg("60").spawn().unwrap();
/// match child.wait_timeout(Duration::from_millis(1)) {
///     Err(WaitError::Deadline) => child.kill().unwrap(),
///     other => panic!("{other:?}"),
/// }
/// child.wait().unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// The child has not executed the program: a non-blocking start failed after it returned.
    Start(SpawnError),
    /// The child is gone, and its status is lost. The process ignores SIGCHLD, or another part of
    /// it waited for the child, and the kernel is older than Linux 6.15 (`PIDFD_GET_INFO`).
    Unknown,
    /// The deadline passed first. The child goes on; nothing was lost.
    Deadline,
    /// Any other error of the kernel.
    Os(io::Error),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Start(e) => e.fmt(f),
            WaitError::Unknown => f.write_str(
                "wait: the child has ended, but its status is lost (SIGCHLD is ignored or somebody else waited for it)",
            ),
            WaitError::Deadline => f.write_str("wait: the deadline passed before the child ended"),
            WaitError::Os(e) => write!(f, "wait: {e}"),
        }
    }
}

impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WaitError::Start(e) => Some(e),
            WaitError::Os(e) => Some(e),
            _ => None,
        }
    }
}

impl From<WaitError> for io::Error {
    fn from(e: WaitError) -> io::Error {
        match e {
            WaitError::Start(e) => e.into(),
            WaitError::Os(e) => e,
            WaitError::Deadline => io::Error::new(io::ErrorKind::TimedOut, e),
            WaitError::Unknown => io::Error::from_raw_os_error(libc::ECHILD),
        }
    }
}

impl From<WaitError> for SpawnError {
    fn from(e: WaitError) -> SpawnError {
        let errno = match &e {
            WaitError::Start(_) | WaitError::Unknown => libc::ECHILD,
            WaitError::Deadline => libc::ETIMEDOUT,
            WaitError::Os(e) => e.raw_os_error().unwrap_or(libc::EIO),
        };
        match e {
            WaitError::Start(e) => e,
            _ => SpawnError::new(Step::Wait, String::from("the child"), errno),
        }
    }
}
