//! A line to run, and how: data, by method calls.

use crate::spec::env::EnvChanges;
use crate::spec::stdio::Stdio;
use forkless_sys::signal::SigSet;
use std::ffi::OsStr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A line for `/bin/sh -c`, run directly where that provably has the same result.
///
/// Quotes, escapes, assignments, redirections, pipelines, `&&`, `||`, `;`, variables of the
/// environment, `cd`, `exec`, `exit`, `true` and `false` need no shell; everything else (globs,
/// substitutions, loops, other builtins) gets one. The programs' environment is the one this
/// machine's `/bin/sh` would give them. `forkless sh --explain LINE` shows the decision.
///
/// ```
/// let out =
///     forkless::shell("printenv NAME | tr a-z A-Z").env("NAME", "value").output()?;
/// assert_eq!(out.stdout, b"VALUE\n");
/// let status = forkless::shell("test -d /nowhere || exit 3").status()?;
/// assert_eq!(status.code(), Some(3));
/// # Ok::<(), forkless::SpawnError>(())
/// ```
pub fn shell<S: AsRef<OsStr>>(line: S) -> ShellLine {
    ShellLine {
        line: line.as_ref().as_bytes().to_vec(),
        env: EnvChanges::default(),
        dir: None,
        std: [None, None, None],
        inherit_descriptors: false,
        inherit_signals: false,
        signal_mask: None,
        default_signals: SigSet::EMPTY,
        closed: Vec::new(),
        timeout: None,
        always_shell: false,
        reaps_all: false,
    }
}

/// A line to run, and how; made by [`shell`], and used like [`Command`](crate::Command).
///
/// Thread-safe; not async-signal-safe, since it allocates. The caller's directory, mask and
/// dispositions are not changed. As with [`Command`](crate::Command), programs get descriptors 0,
/// 1, 2 and those that the line redirects, unless
/// [`inherit_descriptors`](ShellLine::inherit_descriptors) is set.
///
/// ```
/// let mut line = forkless::shell("exit 3");
/// assert_eq!(line.status()?.code(), Some(3));
/// assert_eq!(line.status()?.code(), Some(3)); // again
/// # Ok::<(), forkless::SpawnError>(())
/// ```
#[derive(Debug)]
pub struct ShellLine {
    pub(super) line: Vec<u8>,
    pub(super) env: EnvChanges,
    pub(super) dir: Option<PathBuf>,
    pub(super) std: [Option<Stdio>; 3],
    pub(super) inherit_descriptors: bool,
    pub(super) inherit_signals: bool,
    pub(super) signal_mask: Option<SigSet>,
    pub(super) default_signals: SigSet,
    pub(super) closed: Vec<RawFd>,
    pub(super) timeout: Option<Duration>,
    pub(super) always_shell: bool,
    pub(super) reaps_all: bool,
}

impl ShellLine {
    /// Sets a variable of the environment the line runs in.
    ///
    /// ```
    /// assert_eq!(forkless::shell("printenv A").env("A", "1").output()?.stdout, b"1\n");
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut ShellLine {
        self.env.set(key.as_ref(), value.as_ref());
        self
    }

    /// Removes a variable.
    ///
    /// ```
    /// assert!(!forkless::shell("printenv HOME").env_remove("HOME").status()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut ShellLine {
        self.env.remove(key.as_ref());
        self
    }

    /// Starts from an empty environment.
    ///
    /// ```
    /// assert!(!forkless::shell("/usr/bin/printenv HOME").env_clear().status()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn env_clear(&mut self) -> &mut ShellLine {
        self.env.clear();
        self
    }

    /// As [`Command::read_environ`](crate::Command::read_environ).
    ///
    /// # Safety
    /// No other thread may change the environment while the line is started.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "declares an obligation of the caller's")]
    pub unsafe fn read_environ(&mut self) -> &mut ShellLine {
        // SAFETY: the caller's promise.
        unsafe { self.env.read_environ() };
        self
    }

    /// Gives the line exactly these strings, `NAME=value`, in this order: a shell hands on some of
    /// its variables in the order in which it got them.
    ///
    /// ```
    /// let mut line = forkless::shell("/usr/bin/printenv B A");
    /// line.exact_env(["PATH=/usr/bin", "B=2", "A=1"]);
    /// assert_eq!(line.output()?.stdout, b"2\n1\n");
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    #[doc(hidden)]
    pub fn exact_env<I, S>(&mut self, strings: I) -> &mut ShellLine
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.env.set_exact(strings.into_iter().collect());
        self
    }

    /// Copies this process's environment now, as [`ShellLine::read_environ`] would read it at the
    /// start. Later changes of it do not reach the line.
    ///
    /// # Safety
    /// No other thread may change the environment during the call.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "declares an obligation of the caller's")]
    pub unsafe fn fix_environment(&mut self) -> &mut ShellLine {
        // SAFETY: the caller's promise.
        unsafe { self.env.fix() };
        self
    }

    /// The directory the line runs in.
    ///
    /// ```
    /// assert!(forkless::shell("test -d bin").current_dir("/usr").status()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut ShellLine {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Standard input of the line.
    ///
    /// ```
    /// assert!(
    ///     !forkless::shell("grep -q x").stdin(forkless::Stdio::null()).status()?.success()
    /// );
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut ShellLine {
        self.std[0] = Some(cfg.into());
        self
    }

    /// Standard output of the line.
    ///
    /// ```
    /// assert!(forkless::shell("ls /").stdout(forkless::Stdio::null()).status()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut ShellLine {
        self.std[1] = Some(cfg.into());
        self
    }

    /// Standard error of the line.
    ///
    /// ```
    /// assert_eq!(
    ///     forkless::shell("ls /nowhere").stderr(forkless::Stdio::null()).status()?.code(),
    ///     Some(2)
    /// );
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut ShellLine {
        self.std[2] = Some(cfg.into());
        self
    }

    /// Lets programs have every descriptor of this process that is not close-on-exec, as system(3)
    /// does.
    ///
    /// ```
    /// let mut line = forkless::shell("test -e /proc/self/fd/9");
    /// let nine = std::fs::File::open("/")?;
    /// let nine = rustix::io::fcntl_dupfd_cloexec(&nine, 9)?; // close-on-exec: stays here
    /// assert!(!line.inherit_descriptors(true).status()?.success());
    /// # drop(nine);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inherit_descriptors(&mut self, yes: bool) -> &mut ShellLine {
        self.inherit_descriptors = yes;
        self
    }

    /// Hands on the calling thread's signal mask and SIGPIPE's disposition; see
    /// [`Command::inherit_signals`](crate::Command::inherit_signals).
    ///
    /// ```
    /// assert!(forkless::shell("test -d /").inherit_signals(true).status()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn inherit_signals(&mut self, yes: bool) -> &mut ShellLine {
        self.inherit_signals = yes;
        self
    }

    /// The signals blocked where the line begins, as in a shell started with that mask; see
    /// [`Command::signal_mask`](crate::Command::signal_mask). Whether its programs have them
    /// blocked depends on the shell: dash empties the mask, bash hands it on. Without a shell the
    /// programs get the same mask.
    ///
    /// ```
    /// let masks = |line: &mut forkless::ShellLine| {
    ///     line.signal_mask(forkless::SigSet::EMPTY.with(10)).output().map(|out| out.stdout)
    /// };
    /// let line = "grep SigBlk /proc/self/status";
    /// assert_eq!(
    ///     masks(&mut forkless::shell(line))?,
    ///     masks(forkless::shell(line).always_shell(true))?
    /// );
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn signal_mask(&mut self, blocked: SigSet) -> &mut ShellLine {
        self.signal_mask = Some(blocked);
        self
    }

    /// Signals that are at their default action when a process of the line starts; see
    /// [`Command::default_signals`](crate::Command::default_signals). It is for a caller that
    /// ignores signals only while it waits, as system(3) ignores SIGINT and SIGQUIT.
    ///
    /// ```
    /// let line = "grep SigIgn /proc/self/status";
    /// let out =
    ///     forkless::shell(line).default_signals(forkless::SigSet::EMPTY.with(2)).output()?;
    /// assert!(out.status.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn default_signals(&mut self, signals: SigSet) -> &mut ShellLine {
        self.default_signals.0 |= signals.0;
        self
    }

    /// Keeps a descriptor of this process from the line, where
    /// [`inherit_descriptors`](ShellLine::inherit_descriptors) would hand it on. A file that
    /// [`stdin`](ShellLine::stdin) and its like connect to that number stays.
    ///
    /// ```
    /// let mut line = forkless::shell("test -e /proc/self/fd/0");
    /// line.inherit_descriptors(true).close_descriptor(0);
    /// assert_eq!(line.status()?.code(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close_descriptor(&mut self, number: RawFd) -> &mut ShellLine {
        self.closed.push(number);
        self
    }

    /// The most time for all of it. Then every process of the line is killed, in its process group,
    /// and [`status`](ShellLine::status) and [`output`](ShellLine::output) fail with
    /// [`TimedOut`](std::io::ErrorKind::TimedOut).
    ///
    /// They fail with [`PermissionDenied`](std::io::ErrorKind::PermissionDenied), as soon, where a
    /// program that was started directly may not be killed, since it became another user. That
    /// program goes on, and is reaped when it ends.
    ///
    /// With a limit the line runs in a process group of its own, so keyboard signals do not reach
    /// it.
    ///
    /// ```
    /// use std::time::Duration;
    /// let error = forkless::shell("sleep 60 | cat")
    ///     .timeout(Duration::from_millis(50))
    ///     .status()
    ///     .unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    /// ```
    pub fn timeout(&mut self, time: Duration) -> &mut ShellLine {
        self.timeout = Some(time);
        self
    }

    /// Gives every line to `/bin/sh`: to compare, or to rule the analysis out.
    ///
    /// ```
    /// let line = "sleep 0";
    /// assert!(forkless::shell(line).spawn()?.is_direct());
    /// assert!(!forkless::shell(line).always_shell(true).spawn()?.is_direct());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn always_shell(&mut self, yes: bool) -> &mut ShellLine {
        self.always_shell = yes;
        self
    }

    /// Whether [`exec`](ShellLine::exec), where it waits, takes the end of every child of this
    /// process, as a shell in its place would: also of children from before, and of orphans that
    /// are given to it as pid 1 or as a subreaper. It is for a process that has no other use for
    /// its children.
    ///
    /// ```
    /// let mut line = forkless::shell("sleep 0");
    /// assert!(line.reap_all(true).exec()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    #[doc(hidden)]
    pub fn reap_all(&mut self, yes: bool) -> &mut ShellLine {
        self.reaps_all = yes;
        self
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timeout.and_then(|time| Instant::now().checked_add(time))
    }
}
