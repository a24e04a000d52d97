//! `std::process` under this crate's name: the same names, signatures and defaults, so that
//! switching is a change of `use` alone.
//!
//! `std::process` and `std::os::unix::process` both become `forkless::process`. Errors are
//! `std::io::Error`s of the operating system, as std's are. For errors that name the step, and for
//! all that std cannot do, there is [`crate::Command`]. `From` and [`Command::as_inner_mut`] turn a
//! command of either kind into the other.
//!
//! Differences from `std::process`:
//!
//! - A dropped [`Child`] leaves no zombie: it is reaped when it ends. So its number must not be
//!   waited for after the drop.
//! - [`CommandExt::pre_exec`] runs in this process's memory; a panic in it fails the start
//!   (`ECANCELED`), where std's child aborts.
//! - A file without `#!` is run by `/bin/sh`, as execvp(3) does; std does so only where it forks.
//! - A status is not lost where the program ignores SIGCHLD, from Linux 6.15 on; std says `ECHILD`.
//! - The environment's entries without `=` reach no child.
//! - A string with a NUL byte fails the start as with std (`InvalidInput`, no number), with a
//!   message that names the string. `get_program` and `get_args` give it as it was given, and
//!   `get_current_dir` gives `None`, where std has `<string-with-nul>` for all three.
//! - The names of std's iterators, `CommandArgs` and `CommandEnvs`, and std's unstable functions
//!   (`Child::into_pidfd`, ...) are not here.
//! - These are types of their own: functions that take std's `Command`, `Child` or `CommandExt` do
//!   not take them. See [`crate::Command::into_std`] and [`crate::Child::into_parts`].
//!
//! ```
//! // Was: std::process, and std::os::unix::process.
//! use forkless::process::{Command, CommandExt, Stdio};
//! fn first_line() -> std::io::Result<String> {
//!     let mut sh = Command::new("sh");
//!     sh.arg0("-sh").args(["-c", "echo $0"]).stdout(Stdio::piped());
//!     let mut child = sh.spawn()?;
//!     child.wait()?;
//!     std::io::read_to_string(child.stdout.unwrap())
//! }
//! assert_eq!(first_line()?, "-sh\n");
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::error::{SpawnError, WaitError};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;

pub use crate::spec::stdio::Stdio;
#[doc(no_inline)]
pub use std::os::unix::process::{ExitStatusExt, parent_id};
#[doc(no_inline)]
pub use std::process::{
    ChildStderr, ChildStdin, ChildStdout, ExitCode, ExitStatus, Output, Termination, abort, exit, id,
};

fn os(e: SpawnError) -> io::Error {
    e.os_error()
}

pub(crate) fn waited(e: WaitError) -> io::Error {
    match e {
        WaitError::Start(e) => e.os_error(),
        e => e.into(),
    }
}

/// As [`std::process::Command`].
///
/// ```
/// use forkless::process::Command;
/// let missing = Command::new("/nowhere").status().unwrap_err();
/// assert_eq!(missing.raw_os_error(), Some(2));
/// assert_eq!(
///     missing.to_string(),
///     std::process::Command::new("/nowhere").status().unwrap_err().to_string()
/// );
/// ```
pub struct Command(crate::Command);

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<crate::Command> for Command {
    /// The same command, errors and waits as std has them. Its defaults are not changed.
    fn from(inner: crate::Command) -> Command {
        Command(inner)
    }
}

impl From<Command> for crate::Command {
    fn from(command: Command) -> crate::Command {
        command.0
    }
}

impl Command {
    /// As [`std::process::Command::new`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert!(Command::new("true").status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        let mut inner = crate::Command::new(program);
        inner.inherit_descriptors(true);
        Command(inner)
    }

    /// The command itself, for settings that std does not have.
    ///
    /// ```
    /// use forkless::process::Command;
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "umask"]).as_inner_mut().umask(0o077);
    /// assert_eq!(c.output()?.stdout, b"0077\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn as_inner_mut(&mut self) -> &mut crate::Command {
        &mut self.0
    }

    /// As [`std::process::Command::arg`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(Command::new("printf").arg("%s.").arg("a b").output()?.stdout, b"a b.");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.0.arg(arg);
        self
    }

    /// As [`std::process::Command::args`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(Command::new("echo").args(["a", "b"]).output()?.stdout, b"a b\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.0.args(args);
        self
    }

    /// As [`std::process::Command::env`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(Command::new("printenv").arg("A").env("A", "1").output()?.stdout, b"1\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, val: V) -> &mut Command {
        self.0.env(key, val);
        self
    }

    /// As [`std::process::Command::envs`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(
    ///     Command::new("printenv").arg("B").envs([("A", "1"), ("B", "2")]).output()?.stdout,
    ///     b"2\n"
    /// );
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.0.envs(vars);
        self
    }

    /// As [`std::process::Command::env_remove`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(
    ///     Command::new("printenv").arg("A").env("A", "1").env_remove("A").status()?.code(),
    ///     Some(1)
    /// );
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.0.env_remove(key);
        self
    }

    /// As [`std::process::Command::env_clear`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(
    ///     Command::new("/usr/bin/env").env_clear().env("A", "1").output()?.stdout,
    ///     b"A=1\n"
    /// );
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.0.env_clear();
        self
    }

    /// As [`std::process::Command::current_dir`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(Command::new("pwd").current_dir("/usr").output()?.stdout, b"/usr\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.0.current_dir(dir);
        self
    }

    /// As [`std::process::Command::stdin`].
    ///
    /// ```
    /// use forkless::process::{Command, Stdio};
    /// assert!(Command::new("cat").stdin(Stdio::null()).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.0.stdin(cfg);
        self
    }

    /// As [`std::process::Command::stdout`].
    ///
    /// ```
    /// use forkless::process::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(std::io::read_to_string(child.stdout.unwrap())?, "hi\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.0.stdout(cfg);
        self
    }

    /// As [`std::process::Command::stderr`].
    ///
    /// ```
    /// use forkless::process::{Command, Stdio};
    /// assert_eq!(
    ///     Command::new("ls").arg("/nowhere").stderr(Stdio::null()).status()?.code(),
    ///     Some(2)
    /// );
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.0.stderr(cfg);
        self
    }

    /// As [`std::process::Command::spawn`].
    ///
    /// ```
    /// use forkless::process::{Child, Command};
    /// fn start() -> std::io::Result<Child> {
    ///     Command::new("true").spawn()
    /// }
    /// assert!(start()?.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the kernel. `InvalidInput`, without a number, for a command that cannot be carried
    /// out, such as one with a NUL byte.
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.0.spawn().map(Child::from).map_err(os)
    }

    /// As [`std::process::Command::output`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(Command::new("echo").output()?.stdout, b"\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait`].
    pub fn output(&mut self) -> io::Result<Output> {
        self.0.output().map_err(os)
    }

    /// As [`std::process::Command::status`].
    ///
    /// ```
    /// use forkless::process::Command;
    /// assert_eq!(Command::new("false").status()?.code(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.0.status().map_err(os)
    }

    /// As [`std::process::Command::get_program`].
    ///
    /// ```
    /// assert_eq!(forkless::process::Command::new("ls").get_program(), "ls");
    /// ```
    pub fn get_program(&self) -> &OsStr {
        self.0.get_program()
    }

    /// As [`std::process::Command::get_args`].
    ///
    /// ```
    /// assert!(forkless::process::Command::new("ls").arg("-l").get_args().eq(["-l"]));
    /// ```
    pub fn get_args(&self) -> impl ExactSizeIterator<Item = &OsStr> {
        self.0.get_args()
    }

    /// As [`std::process::Command::get_envs`].
    ///
    /// ```
    /// let mut c = forkless::process::Command::new("ls");
    /// assert!(c.env_remove("A").get_envs().eq([("A".as_ref(), None)]));
    /// ```
    pub fn get_envs(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.0.get_envs()
    }

    /// As [`std::process::Command::get_current_dir`].
    ///
    /// ```
    /// assert_eq!(forkless::process::Command::new("ls").get_current_dir(), None);
    /// ```
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.0.get_current_dir()
    }
}

/// As [`std::process::Child`]. Its fields can be moved out.
///
/// ```
/// use forkless::process::{Child, Command};
/// let mut child: Child = Command::new("sleep").arg("60").spawn()?;
/// child.kill()?;
/// assert!(!child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    /// The parent's end of the child's standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    // After the pipes, which are dropped first.
    inner: crate::Child,
}

impl From<crate::Child> for Child {
    fn from(mut inner: crate::Child) -> Child {
        let (stdin, stdout, stderr) = (inner.stdin.take(), inner.stdout.take(), inner.stderr.take());
        Child { stdin, stdout, stderr, inner }
    }
}

impl From<Child> for crate::Child {
    fn from(child: Child) -> crate::Child {
        crate::Child { stdin: child.stdin, stdout: child.stdout, stderr: child.stderr, ..child.inner }
    }
}

impl Child {
    /// As [`std::process::Child::id`].
    ///
    /// ```
    /// let mut child = forkless::process::Command::new("true").spawn()?;
    /// assert!(child.id() > 1);
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// As [`std::process::Child::kill`].
    ///
    /// ```
    /// let mut child = forkless::process::Command::new("sleep").arg("60").spawn()?;
    /// child.kill()?;
    /// child.wait()?;
    /// child.kill()?; // nothing is hit any more
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The kernel's, as `EPERM`.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.kill()
    }

    /// As [`std::process::Child::wait`].
    ///
    /// ```
    /// let mut child = forkless::process::Command::new("sh").args(["-c", "exit 3"]).spawn()?;
    /// assert_eq!(child.wait()?.code(), Some(3));
    /// assert_eq!(child.wait()?.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The kernel's; `ECHILD` when the status is lost.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.inner.wait().map_err(waited)
    }

    /// As [`std::process::Child::try_wait`].
    ///
    /// ```
    /// let mut child = forkless::process::Command::new("sleep").arg("60").spawn()?;
    /// assert!(child.try_wait()?.is_none());
    /// child.kill()?;
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait().map_err(waited)
    }

    /// As [`std::process::Child::wait_with_output`].
    ///
    /// ```
    /// use forkless::process::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_with_output()?.stdout, b"hi\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn wait_with_output(self) -> io::Result<Output> {
        crate::Child::from(self).wait_with_output().map_err(os)
    }

    /// The child itself, for methods that std does not have.
    ///
    /// ```
    /// let mut child = forkless::process::Command::new("sleep").arg("60").spawn()?;
    /// child.as_inner_mut().signal(15)?;
    /// assert!(!child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn as_inner_mut(&mut self) -> &mut crate::Child {
        &mut self.inner
    }
}

/// As [`std::os::unix::process::CommandExt`], for this crate's commands. `groups`, `chroot` and
/// `setsid` are unstable there.
///
/// ```
/// use forkless::process::{Command, CommandExt};
/// let error: std::io::Error = Command::new("/nowhere").arg0("x").process_group(0).exec();
/// assert_eq!(error.raw_os_error(), Some(2));
/// ```
pub trait CommandExt {
    /// The user; see [`crate::Command::uid`].
    fn uid(&mut self, id: u32) -> &mut Self;
    /// The group.
    fn gid(&mut self, id: u32) -> &mut Self;
    /// The supplementary groups.
    fn groups(&mut self, groups: &[u32]) -> &mut Self;
    /// A function to run in the child before exec.
    ///
    /// # Safety
    /// As [`crate::Command::pre_exec`], which runs it in this process's memory.
    #[expect(unsafe_code, reason = "declares an obligation of the caller's")]
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;
    /// Executes the program in this process; returns only the error.
    #[must_use]
    fn exec(&mut self) -> io::Error;
    /// The program's own name, `argv[0]`.
    fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self;
    /// The process group; 0 for a new one.
    fn process_group(&mut self, pgroup: i32) -> &mut Self;
    /// The root directory.
    fn chroot<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self;
    /// A new session.
    fn setsid(&mut self, setsid: bool) -> &mut Self;
}

macro_rules! command_ext {
    ($($name:ty, $this:ident => $inner:expr;)*) => {$(
        #[expect(unsafe_code, reason = "hands the caller's promise on")]
        impl CommandExt for $name {
            fn uid(&mut self, id: u32) -> &mut Self {
                let $this = &mut *self;
                $inner.uid(id);
                self
            }
            fn gid(&mut self, id: u32) -> &mut Self {
                let $this = &mut *self;
                $inner.gid(id);
                self
            }
            fn groups(&mut self, groups: &[u32]) -> &mut Self {
                let $this = &mut *self;
                $inner.groups(groups);
                self
            }
            unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
            where
                F: FnMut() -> io::Result<()> + Send + Sync + 'static,
            {
                let $this = &mut *self;
                // SAFETY: the caller's promise.
                unsafe { $inner.pre_exec(f) };
                self
            }
            fn exec(&mut self) -> io::Error {
                let $this = &mut *self;
                os($inner.exec())
            }
            fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Self {
                let $this = &mut *self;
                $inner.arg0(arg);
                self
            }
            fn process_group(&mut self, pgroup: i32) -> &mut Self {
                let $this = &mut *self;
                $inner.process_group(pgroup);
                self
            }
            fn chroot<P: AsRef<Path>>(&mut self, dir: P) -> &mut Self {
                let $this = &mut *self;
                $inner.chroot(dir);
                self
            }
            fn setsid(&mut self, setsid: bool) -> &mut Self {
                let $this = &mut *self;
                $inner.setsid(setsid);
                self
            }
        }
    )*};
}
command_ext! {
    Command, this => this.0;
    crate::Command, this => *this;
}
