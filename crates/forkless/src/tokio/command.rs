//! `tokio::process` by another door, and starts that are awaited; feature `tokio`.
//!
//! Names, signatures, errors and defaults are those of `tokio::process`, so `use forkless::tokio::Command` is the change there is to make.
//! [`Command::spawn`] returns when the child runs, and suspends its thread until then, as `tokio::process` does. The start takes as long
//! as an exec does; where a file system may be slow, [`Command::spawn_async`] blocks for the clone alone, awaits the rest, and fails with
//! an error that names the step. [`Child::wait`] awaits the pidfd. No SIGCHLD handler, no thread, no signal driver of tokio's; a
//! child belongs to no runtime and may be moved between them until its first wait.
//!
//! What differs from `tokio::process`, beside what [`crate::process`] says of std's:
//!
//! - [`ChildStdin`] and its like are tokio's pipes by other names, without `into_owned_fd` and `from_std`.
//! - There is no `as_std`, `spawn_with`, nor a `From` of std's command: see [`crate::Command::from_std`].
//! - A dropped child is reaped at once by a thread of the library's, not when the runtime gets to it.
//!
//! ```
//! # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use forkless::tokio::Command; // was: tokio::process::Command
//! let out = Command::new("echo").arg("hello").output().await?;
//! assert_eq!(out.stdout, b"hello\n");
//! assert_eq!(Command::new("/does/not/exist").spawn().unwrap_err().raw_os_error(), Some(2));
//! let err = Command::new("/does/not/exist").spawn_async().await.unwrap_err();
//! assert_eq!(err.to_string(), "exec /does/not/exist: No such file or directory");
//! # Ok(()) }
//! ```
#![expect(unsafe_code, reason = "registering a descriptor promises that it stays open")]

use super::running;
use crate::command::attributes::OnDrop;
use crate::command::builder::{Defaults, start_holding, start_planned};
use crate::error::{SpawnError, Step, WaitError};
use crate::process::waited;
use crate::reap::handle as reap;
use crate::spec::stdio::{self, Stdio};
use crate::start::attempt::Until;
use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncReadExt, Interest};
use ::tokio::net::unix::pipe::{Receiver, Sender};
use ::tokio::runtime::Handle;
use std::ffi::OsStr;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Output};
use std::task::Poll;
use std::time::Duration;

/// The parent's end of a child's standard input.
pub type ChildStdin = Sender;
/// The parent's end of a child's standard output.
pub type ChildStdout = Receiver;
/// The parent's end of a child's standard error.
pub type ChildStderr = Receiver;

/// As `tokio::process::Command`. Everything [`crate::Command`] offers is reached through
/// [`Command::as_inner_mut`].
///
/// ```
/// # #[::tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// let mut c = forkless::tokio::Command::new("sh");
/// c.args(["-c", "umask"]).as_inner_mut().umask(0o077);
/// assert_eq!(c.output().await?.stdout, b"0077\n");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Command {
    inner: crate::Command,
    kill_on_drop: bool,
}

impl From<crate::Command> for Command {
    /// The same command, to be awaited. Its [`OnDrop`] policy is kept only as far as [`Command::kill_on_drop`] has it: a
    /// drop must not wait in an event loop.
    fn from(inner: crate::Command) -> Command {
        let kill_on_drop = inner.on_drop == OnDrop::Kill;
        Command { inner, kill_on_drop }
    }
}

impl Command {
    /// As [`crate::process::Command::new`]; a [`crate::Command`] becomes one by `From`, with its own defaults.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert!(Command::new("true").status().await?.success());
    /// # Ok(()) }
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command::from(crate::Command::from(crate::process::Command::new(program)))
    }

    /// The command itself, for what has no method here.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("true").as_inner().get_program(), "true");
    /// # Ok(()) }
    /// ```
    pub fn as_inner(&self) -> &crate::Command {
        &self.inner
    }

    /// The command itself, to be changed.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut c = Command::new("nice");
    /// c.as_inner_mut().nice(19);
    /// assert_eq!(c.output().await?.stdout, b"19\n");
    /// # Ok(()) }
    /// ```
    pub fn as_inner_mut(&mut self) -> &mut crate::Command {
        &mut self.inner
    }

    /// Adds an argument.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("echo").arg("a").output().await?.stdout, b"a\n");
    /// # Ok(()) }
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("echo").args(["a", "b"]).output().await?.stdout, b"a b\n");
    /// # Ok(()) }
    /// ```
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&mut self, args: I) -> &mut Command {
        self.inner.args(args);
        self
    }

    /// Sets an environment variable.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("printenv").arg("A").env("A", "1").output().await?.stdout, b"1\n");
    /// # Ok(()) }
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Command {
        self.inner.env(key, value);
        self
    }

    /// Sets environment variables.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("printenv").arg("B").envs([("A", "1"), ("B", "2")]).output().await?.stdout, b"2\n");
    /// # Ok(()) }
    /// ```
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.inner.envs(vars);
        self
    }

    /// Removes an environment variable.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("printenv").arg("A").env("A", "1").env_remove("A").status().await?.code(), Some(1));
    /// # Ok(()) }
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.inner.env_remove(key);
        self
    }

    /// Starts with no variable at all, and forgets those set so far.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("/usr/bin/env").env_clear().env("A", "1").output().await?.stdout, b"A=1\n");
    /// # Ok(()) }
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.inner.env_clear();
        self
    }

    /// The program's own name, `argv[0]`.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("sh").arg0("-x").args(["-c", "echo $0"]).output().await?.stdout, b"-x\n");
    /// # Ok(()) }
    /// ```
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg0(arg);
        self
    }

    /// The user; see [`crate::Command::uid`].
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let me = rustix::process::getuid().as_raw();
    /// assert_eq!(Command::new("id").arg("-u").uid(me).output().await?.stdout, format!("{me}\n").as_bytes());
    /// # Ok(()) }
    /// ```
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.inner.uid(id);
        self
    }

    /// The group.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mine = rustix::process::getgid().as_raw();
    /// assert_eq!(Command::new("id").arg("-g").gid(mine).output().await?.stdout, format!("{mine}\n").as_bytes());
    /// # Ok(()) }
    /// ```
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.inner.gid(id);
        self
    }

    /// The process group; 0 for a new one.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let child = Command::new("sleep").arg("60").process_group(0).kill_on_drop(true).spawn()?;
    /// let pid = rustix::process::Pid::from_raw(child.id().unwrap() as i32);
    /// assert_eq!(rustix::process::getpgid(pid)?, pid.unwrap());
    /// # Ok(()) }
    /// ```
    pub fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.inner.process_group(pgroup);
        self
    }

    /// A function to run in the child before exec; see [`crate::Command::pre_exec`].
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut c = Command::new("true");
    /// // SAFETY: it does nothing.
    /// unsafe { c.pre_exec(|| Err(std::io::Error::from_raw_os_error(33))) };
    /// assert_eq!(c.spawn().unwrap_err().raw_os_error(), Some(33));
    /// # Ok(()) }
    /// ```
    ///
    /// # Safety
    /// As [`crate::Command::pre_exec`], which runs it in this process's memory.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    /// The working directory.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("pwd").current_dir("/usr").output().await?.stdout, b"/usr\n");
    /// # Ok(()) }
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.inner.current_dir(dir);
        self
    }

    /// Standard input.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use tokio::io::AsyncWriteExt as _;
    /// let mut child = Command::new("grep").args(["-q", "x"]).stdin(forkless::Stdio::piped()).spawn()?;
    /// child.stdin.take().unwrap().write_all(b"x\n").await?;
    /// assert!(child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.inner.stdin(cfg);
        self
    }

    /// Standard output.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use tokio::io::AsyncReadExt as _;
    /// let mut child = Command::new("echo").arg("hi").stdout(forkless::Stdio::piped()).spawn()?;
    /// let mut said = String::new();
    /// child.stdout.take().unwrap().read_to_string(&mut said).await?;
    /// assert_eq!(said, "hi\n");
    /// child.wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.inner.stdout(cfg);
        self
    }

    /// Standard error.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let status = Command::new("ls").arg("/nowhere").stderr(forkless::Stdio::null()).status().await?;
    /// assert_eq!(status.code(), Some(2));
    /// # Ok(()) }
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.inner.stderr(cfg);
        self
    }

    /// Whether dropping the [`Child`], or a future that holds it, kills it. It is reaped either way, in the background.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
    /// drop(child); // killed, and reaped in the background
    /// # Ok(()) }
    /// ```
    pub fn kill_on_drop(&mut self, yes: bool) -> &mut Command {
        self.kill_on_drop = yes;
        self
    }

    /// Starts the program and returns when it runs, as `tokio::process::Command::spawn`: the thread is suspended for some 100 us.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("true").spawn()?; // it runs
    /// assert!(child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::process::Command::spawn`].
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub fn spawn(&mut self) -> io::Result<Child> {
        // Before the child exists: nothing to undo where there is no runtime.
        let _runtime = Handle::current();
        let inner = start_planned(&self.inner, Until::Exec, Defaults::Inherit).map_err(|e| e.os_error())?;
        Child::new(inner, self.kill_on_drop)
    }

    /// Starts the program and awaits the moment it runs: the thread is suspended for the clone alone, except with credentials, a cgroup, `pre_exec` or
    /// a parent death signal, as [`crate::Command::spawn_nonblocking`] says.
    ///
    /// When the future is dropped before, the child is treated as a dropped [`Child`] is.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::{Step, tokio::Command};
    /// let mut child = Command::new("true").spawn_async().await?; // it runs
    /// assert!(child.wait().await?.success());
    /// let e = Command::new("true").current_dir("/nowhere").spawn_async().await.unwrap_err();
    /// assert_eq!(e.step(), Step::Chdir);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Command::spawn`].
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub async fn spawn_async(&mut self) -> Result<Child, SpawnError> {
        let failed = |e: io::Error| SpawnError::new(Step::Pipe, None, e.raw_os_error().unwrap_or(libc::EIO));
        // The child holds a pipe until exec closes it.
        let (became, held) = stdio::pipe()?;
        // Before the child exists: nothing to undo when the runtime refuses it.
        let mut became = Receiver::from_owned_fd(became).map_err(failed)?;
        let inner = start_holding(&self.inner, Until::Cloned, Defaults::Inherit, Some(held.as_raw_fd()))?;
        #[cfg(test)]
        if let Some(meanwhile) = WHILE_HELD.get() {
            meanwhile();
        }
        drop(held);
        let mut child = Child::new(inner, self.kill_on_drop).map_err(failed)?;
        running::until_running(&child.held.inner, &mut became).await.map_err(failed)?;
        if child.held.inner.has_failed() {
            return match child.ended().await {
                Err(WaitError::Start(e)) => Err(e),
                Err(e) => Err(e.into()),
                Ok(_) => Ok(child),
            };
        }
        Ok(child)
    }

    /// Starts the program now and awaits its end. When the future is dropped before, the child is treated as a dropped [`Child`] is.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("false").status().await?.code(), Some(1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait`].
    ///
    /// # Panics
    /// As [`Command::spawn`].
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        let child = self.spawn();
        async {
            let mut child = child?;
            drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
            child.wait().await
        }
    }

    /// Starts the program now and collects what it writes to standard output and error, which are pipes whatever was said before; input is
    /// inherited. When the future is dropped before, so is what was read, and the child is treated as a dropped [`Child`] is.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(Command::new("echo").output().await?.stdout, b"\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait_with_output`].
    ///
    /// # Panics
    /// As [`Command::spawn`].
    pub fn output(&mut self) -> impl Future<Output = io::Result<Output>> + use<> {
        self.inner.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn();
        async { child?.wait_with_output().await }
    }
}

/// As `tokio::process::Child`: a running child whose end is awaited. Its fields can be moved out.
///
/// ```
/// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use forkless::tokio::Command;
/// let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
/// assert!(child.try_wait()?.is_none());
/// child.kill().await?;
/// assert!(!child.wait().await?.success());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Child {
    /// The parent's end of the child's standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's standard error, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    pub(super) held: Held,
    /// The pidfd, watched since the first wait.
    exit: Option<AsyncFd<OwnedFd>>,
}

/// The process behind a [`Child`], and its drop: so that the fields of a child can be moved out.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) inner: crate::Child,
    kill_on_drop: bool,
}

impl Child {
    fn new(mut inner: crate::Child, kill_on_drop: bool) -> io::Result<Child> {
        // A drop must not wait in an event loop; the library's reaper does.
        inner.set_on_drop(OnDrop::Detach);
        let (stdin, stdout, stderr) = (inner.stdin.take(), inner.stdout.take(), inner.stderr.take());
        let held = Held { inner, kill_on_drop };
        let mut child = Child { stdin: None, stdout: None, stderr: None, held, exit: None };
        child.stdin = stdin.map(|p| Sender::from_owned_fd(p.into())).transpose()?;
        child.stdout = stdout.map(|p| Receiver::from_owned_fd(p.into())).transpose()?;
        child.stderr = stderr.map(|p| Receiver::from_owned_fd(p.into())).transpose()?;
        Ok(child)
    }

    /// The process id, until the child has been waited for; prefer [`Child::pidfd`].
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.id().unwrap() > 1);
    /// child.wait().await?;
    /// assert_eq!(child.id(), None);
    /// # Ok(()) }
    /// ```
    pub fn id(&self) -> Option<u32> {
        (!self.held.inner.is_over()).then(|| self.held.inner.id())
    }

    /// As [`crate::Child::pidfd`].
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.pidfd().is_some());
    /// child.wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.held.inner.pidfd()
    }

    /// As [`crate::Child::take_pipe`]; wrap it with `tokio::net::unix::pipe`.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use tokio::io::AsyncReadExt as _;
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "echo hi >&3"]).as_inner_mut().fd(3, forkless::Stdio::piped());
    /// let mut child = c.spawn()?;
    /// let mut pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(child.take_pipe(3).unwrap())?;
    /// let mut said = String::new();
    /// pipe.read_to_string(&mut said).await?;
    /// assert_eq!(said, "hi\n");
    /// child.wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn take_pipe(&mut self, number: RawFd) -> Option<OwnedFd> {
        self.held.inner.take_pipe(number)
    }

    /// Awaits the child's end. Its standard input, if still held here, is closed first. Cancel-safe: nothing is lost when the future
    /// is dropped, and it can be awaited again.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use std::time::Duration;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// assert!(tokio::time::timeout(Duration::from_millis(10), child.wait()).await.is_err());
    /// child.kill().await?;
    /// assert!(!child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::process::Child::wait`].
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.ended().await.map_err(waited)
    }

    async fn ended(&mut self) -> Result<ExitStatus, WaitError> {
        let mut looks = None;
        loop {
            if let Some(status) = self.held.inner.try_wait()? {
                return Ok(status);
            }
            if let Some(exit) = self.watched() {
                // Stays ready: a child ends once. Else the runtime is gone that it was first awaited in.
                if exit.readable().await.map(|mut ready| ready.retain_ready()).is_err() {
                    self.exit = None;
                }
                if let Some(status) = self.held.inner.try_wait()? {
                    return Ok(status);
                }
                // Ended but not to be had yet: a tracer comes first.
            }
            let looks = match &mut looks {
                Some(looks) => looks,
                None => looks.insert(running::Looks::new(Duration::from_micros(500))),
            };
            looks.due().await.map_err(WaitError::Os)?;
        }
    }

    /// `None` where there is no pidfd, and where no descriptor or watch is to be had now.
    fn watched(&mut self) -> Option<&AsyncFd<OwnedFd>> {
        if self.exit.is_none() {
            // A copy: the registration must not outlive the number, and the handle keeps its own.
            let copy = self.held.inner.pidfd()?.try_clone_to_owned().ok()?;
            self.exit = Some(watch(copy).ok()?);
        }
        self.exit.as_ref()
    }

    /// The status if the child has ended.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
    /// assert!(child.try_wait()?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::process::Child::wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.held.inner.try_wait().map_err(waited)
    }

    /// Sends SIGKILL and does not wait.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// child.start_kill()?;
    /// assert!(!child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Child::kill`].
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.held.inner.kill()
    }

    /// Sends a signal.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// child.signal(15)?;
    /// assert!(!child.wait().await?.success());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Child::signal`].
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.held.inner.signal(signal)
    }

    /// Sends SIGKILL and awaits the end.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mut child = Command::new("sleep").arg("60").spawn()?;
    /// child.kill().await?;
    /// assert!(child.try_wait()?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Child::kill`] and [`Child::wait`].
    ///
    /// # Panics
    /// As [`Child::wait`].
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        // Of a child that this process traces a stop may be told first.
        loop {
            let status = self.wait().await?;
            if status.stopped_signal().is_none() || reap::is_exit_stop(status) {
                return Ok(());
            }
        }
    }

    /// Awaits the end and collects what the child writes meanwhile.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let child = Command::new("echo").arg("hi").stdout(forkless::Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_with_output().await?.stdout, b"hi\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`].
    ///
    /// # Panics
    /// As [`Child::wait`].
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (out, err) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = both(read_all(out), read_all(err)).await;
        let (stdout, stderr) = (stdout?, stderr?);
        Ok(Output { status: self.wait().await?, stdout, stderr })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.kill_on_drop && self.inner.is_ours() {
            let _ = self.inner.kill();
        }
    }
}

impl TryFrom<Sender> for Stdio {
    type Error = io::Error;

    /// The pipe, blocking, as the program expects it.
    fn try_from(pipe: Sender) -> io::Result<Stdio> {
        pipe.into_blocking_fd().map(Stdio::from)
    }
}

impl TryFrom<Receiver> for Stdio {
    type Error = io::Error;

    /// The pipe, blocking, as the program expects it.
    fn try_from(pipe: Receiver) -> io::Result<Stdio> {
        pipe.into_blocking_fd().map(Stdio::from)
    }
}

impl AsFd for Child {
    /// The pidfd.
    ///
    /// # Panics
    /// Where there is none; [`Child::pidfd`] does not.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.inner.as_fd()
    }
}

pub(super) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and its own, and nobody takes or replaces it while it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

#[cfg(test)]
thread_local! {
    /// What a test does while this process holds the pipe that a child is to hold alone.
    pub(super) static WHILE_HELD: std::cell::Cell<Option<fn()>> = const { std::cell::Cell::new(None) };
}

async fn read_all(from: Option<Receiver>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut all).await?;
    }
    Ok(all)
}

/// Both, each as it gets on: a child may fill one pipe before it writes to the other.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut got_a, mut got_b) = (None, None);
    poll_fn(|cx| {
        if got_a.is_none()
            && let Poll::Ready(v) = a.as_mut().poll(cx)
        {
            got_a = Some(v);
        }
        if got_b.is_none()
            && let Poll::Ready(v) = b.as_mut().poll(cx)
        {
            got_b = Some(v);
        }
        match (got_a.take(), got_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (got_a, got_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
