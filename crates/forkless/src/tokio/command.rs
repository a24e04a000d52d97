//! The builder, and the starts that are awaited.
#![expect(unsafe_code, reason = "hands the promise of `pre_exec` on")]

use super::child::Child;
use super::running::until_running;
use crate::child::{spawn, spawn_holding};
use crate::error::{SpawnError, Step, WaitError};
use crate::kernel::descriptor::pipe;
use crate::spec::Defaults;
use crate::spec::attributes::OnDrop;
use crate::spec::stdio::Stdio;
use crate::start::WaitFor;
use ::tokio::net::unix::pipe::Receiver;
use ::tokio::runtime::Handle;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{ExitStatus, Output};

/// As `tokio::process::Command`. Everything [`crate::Command`] offers is reached through
/// [`Command::as_inner_mut`].
///
/// ```
/// # #[::tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
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
    /// The same command, to be awaited. Of its [`OnDrop`] policy only [`Command::kill_on_drop`] is
    /// kept: a drop must not wait in an event loop.
    fn from(inner: crate::Command) -> Command {
        let kill_on_drop = inner.spec.on_drop == OnDrop::Kill;
        Command { inner, kill_on_drop }
    }
}

impl Command {
    /// As [`crate::process::Command::new`]; a [`crate::Command`] becomes one by `From`, with its
    /// own defaults.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert!(Command::new("true").status().await?.success());
    /// # Ok(()) }
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command::from(crate::Command::from(crate::process::Command::new(program)))
    }

    /// The command itself, for settings that have no method here.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(
    ///     Command::new("printenv").arg("A").env("A", "1").output().await?.stdout,
    ///     b"1\n"
    /// );
    /// # Ok(()) }
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Command {
        self.inner.env(key, value);
        self
    }

    /// Sets environment variables.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(
    ///     Command::new("printenv")
    ///         .arg("B")
    ///         .envs([("A", "1"), ("B", "2")])
    ///         .output()
    ///         .await?
    ///         .stdout,
    ///     b"2\n"
    /// );
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(
    ///     Command::new("printenv")
    ///         .arg("A")
    ///         .env("A", "1")
    ///         .env_remove("A")
    ///         .status()
    ///         .await?
    ///         .code(),
    ///     Some(1)
    /// );
    /// # Ok(()) }
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.inner.env_remove(key);
        self
    }

    /// Starts with no variable at all, and forgets those set so far.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(
    ///     Command::new("/usr/bin/env").env_clear().env("A", "1").output().await?.stdout,
    ///     b"A=1\n"
    /// );
    /// # Ok(()) }
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.inner.env_clear();
        self
    }

    /// The program's own name, `argv[0]`.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// assert_eq!(
    ///     Command::new("sh").arg0("-x").args(["-c", "echo $0"]).output().await?.stdout,
    ///     b"-x\n"
    /// );
    /// # Ok(()) }
    /// ```
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.inner.arg0(arg);
        self
    }

    /// The user; see [`crate::Command::uid`].
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let me = rustix::process::getuid().as_raw();
    /// assert_eq!(
    ///     Command::new("id").arg("-u").uid(me).output().await?.stdout,
    ///     format!("{me}\n").as_bytes()
    /// );
    /// # Ok(()) }
    /// ```
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.inner.uid(id);
        self
    }

    /// The group.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let mine = rustix::process::getgid().as_raw();
    /// assert_eq!(
    ///     Command::new("id").arg("-g").gid(mine).output().await?.stdout,
    ///     format!("{mine}\n").as_bytes()
    /// );
    /// # Ok(()) }
    /// ```
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.inner.gid(id);
        self
    }

    /// The process group; 0 for a new one.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let child =
    ///     Command::new("sleep").arg("60").process_group(0).kill_on_drop(true).spawn()?;
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use tokio::io::AsyncWriteExt as _;
    /// let mut child =
    ///     Command::new("grep").args(["-q", "x"]).stdin(forkless::Stdio::piped()).spawn()?;
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// use tokio::io::AsyncReadExt as _;
    /// let mut child =
    ///     Command::new("echo").arg("hi").stdout(forkless::Stdio::piped()).spawn()?;
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
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let status =
    ///     Command::new("ls").arg("/nowhere").stderr(forkless::Stdio::null()).status().await?;
    /// assert_eq!(status.code(), Some(2));
    /// # Ok(()) }
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.inner.stderr(cfg);
        self
    }

    /// The setting of [`Command::kill_on_drop`].
    ///
    /// ```
    /// use forkless::tokio::Command;
    /// assert!(Command::new("true").kill_on_drop(true).get_kill_on_drop());
    /// ```
    pub fn get_kill_on_drop(&self) -> bool {
        self.kill_on_drop
    }

    /// Whether dropping the [`Child`], or a future that holds it, kills it. It is reaped either
    /// way, in the background.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use forkless::tokio::Command;
    /// let child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
    /// drop(child); // killed, and reaped in the background
    /// # Ok(()) }
    /// ```
    pub fn kill_on_drop(&mut self, yes: bool) -> &mut Command {
        self.kill_on_drop = yes;
        self
    }

    /// Starts the program and returns when it runs, as `tokio::process::Command::spawn`: the thread
    /// is suspended for some 100 us.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        let inner = spawn(&self.inner.spec, WaitFor::Exec, Defaults::Inherit).map_err(|e| e.os_error())?;
        Child::new(inner, self.kill_on_drop)
    }

    /// Starts the program and awaits the moment it runs: the thread is suspended for the clone
    /// alone, except with credentials, a cgroup, `pre_exec` or a parent death signal, as
    /// [`crate::Command::spawn_nonblocking`] says.
    ///
    /// When the future is dropped before, the child is treated as a dropped [`Child`] is.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        let (exec_pipe, held) = pipe()?;
        // Before the child exists: nothing to undo when the runtime refuses it.
        let mut exec_pipe = Receiver::from_owned_fd(exec_pipe).map_err(failed)?;
        let held_until_exec = Some(held.as_raw_fd());
        let inner = spawn_holding(&self.inner.spec, WaitFor::Clone, Defaults::Inherit, held_until_exec)?;
        #[cfg(test)]
        if let Some(meanwhile) = WHILE_HELD.get() {
            meanwhile();
        }
        drop(held);
        let mut child = Child::new(inner, self.kill_on_drop).map_err(failed)?;
        until_running(&child.held.inner, &mut exec_pipe).await.map_err(failed)?;
        if child.held.inner.has_failed() {
            return match child.ended().await {
                Err(WaitError::Start(e)) => Err(e),
                Err(e) => Err(e.into()),
                Ok(_) => Ok(child),
            };
        }
        Ok(child)
    }

    /// Starts the program now and awaits its end. When the future is dropped before, the child is
    /// treated as a dropped [`Child`] is.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
            child.held.inner.close_pipes();
            child.wait().await
        }
    }

    /// Starts the program now and collects what it writes to standard output and error, which are
    /// pipes whatever was said before; input is inherited. When the future is dropped before, so is
    /// what was read, and the child is treated as a dropped [`Child`] is.
    ///
    /// ```
    /// # #[::tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

#[cfg(test)]
thread_local! {
    /// Called by a start while this process holds the pipe that a child is to hold alone.
    pub(super) static WHILE_HELD: std::cell::Cell<Option<fn()>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::{Command, WHILE_HELD};
    use forkless_sys::process::{self, P_PID, WEXITED, WNOHANG};
    use std::cell::Cell;

    thread_local! {
        static WORKER: Cell<i32> = const { Cell::new(0) };
    }

    /// Forks a process that inherits all descriptors, and ends by itself only when this test has
    /// hung.
    fn fork_a_worker() {
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: takes a number.
            unsafe { libc::alarm(20) };
            loop {
                // SAFETY: waits for the signal.
                unsafe { libc::pause() };
            }
        }
        WORKER.set(pid);
    }

    fn worker_lives() -> bool {
        process::waitid(P_PID, WORKER.get(), WEXITED | WNOHANG).unwrap().pid == 0
    }

    fn beside_a_worker(runtime: &tokio::runtime::Runtime) {
        for program in ["/bin/true", "/does/not/exist"] {
            WHILE_HELD.set(Some(fork_a_worker));
            let started = runtime.block_on(async { Command::new(program).spawn_async().await });
            WHILE_HELD.set(None);
            assert!(worker_lives(), "the start lasted as long as a process forked meanwhile");
            process::kill(WORKER.get(), 9).unwrap();
            process::waitid(P_PID, WORKER.get(), WEXITED).unwrap();
            match started {
                Ok(mut child) => {
                    assert_eq!(program, "/bin/true");
                    assert!(runtime.block_on(child.wait()).unwrap().success());
                }
                Err(e) => assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory"),
            }
        }
    }

    #[test]
    fn a_start_does_not_wait_for_a_process_forked_meanwhile() {
        beside_a_worker(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    }

    #[test]
    fn a_start_needs_no_clock_of_the_runtime_s() {
        beside_a_worker(&tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap());
    }

    /// Regression: the wait panicked.
    #[test]
    fn a_wait_without_a_pidfd_needs_none_either() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let ended = runtime.block_on(async {
            let mut child = Command::new("/bin/sleep").arg("0.05").spawn().unwrap();
            child.held.inner.held.forget_pidfd();
            child.wait().await
        });
        assert!(ended.unwrap().success());
    }
}
