//! Command lines as system(3) and popen(3) take them, run without a shell where that makes no difference.
//!
//! What a line means is decided by the `forkless-shell` crate; here is its runner, which keeps to the contract in that
//! crate's documentation. What the analysis does not vouch for, and whatever fails before a program has run, is given to
//! `/bin/sh -c`, so that every error is the shell's own.

mod child;
mod output;
mod place;
mod run;
mod traits;
mod wiring;

pub use child::ShellChild;
pub use traits::shell_traits;
#[doc(hidden)]
pub use traits::{AskedShell, ShellFile};

use crate::command::Command;
use crate::env::EnvChanges;
use crate::error::SpawnError;
use crate::stdio::{Kind, Stdio};
use forkless_sys::signal::SigSet;
use std::ffi::OsStr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

/// A line for `/bin/sh -c`, run directly where that provably gives the same.
///
/// Quotes, escapes, assignments, redirections, pipelines, `&&`, `||`, `;`, variables of the environment, `cd`, `exec`,
/// `exit`, `true` and `false` need no shell; everything else (globs, substitutions, loops, other builtins) gets one. The
/// programs' environment is the one this machine's `/bin/sh` would give them. `forkless sh --explain LINE` shows the decision.
///
/// ```
/// let out = forkless::shell("printenv NAME | tr a-z A-Z").env("NAME", "value").output()?;
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
    }
}

/// A line to run, and how; made by [`shell`], and used like [`Command`].
///
/// Thread-safe; not async-signal-safe, since it allocates. The caller's directory, mask and dispositions are not changed. As with
/// [`Command`], programs get descriptors 0, 1, 2 and what the line redirects unless
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
    line: Vec<u8>,
    env: EnvChanges,
    dir: Option<PathBuf>,
    std: [Option<Stdio>; 3],
    inherit_descriptors: bool,
    inherit_signals: bool,
    signal_mask: Option<SigSet>,
    default_signals: SigSet,
    closed: Vec<RawFd>,
    timeout: Option<Duration>,
    always_shell: bool,
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

    /// As [`Command::read_environ`].
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
    /// assert!(!forkless::shell("grep -q x").stdin(forkless::Stdio::null()).status()?.success());
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
    /// assert_eq!(forkless::shell("ls /nowhere").stderr(forkless::Stdio::null()).status()?.code(), Some(2));
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut ShellLine {
        self.std[2] = Some(cfg.into());
        self
    }

    /// Lets programs have every descriptor of this process that is not close-on-exec, as system(3) does.
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

    /// Hands on the calling thread's signal mask and SIGPIPE's disposition; see [`Command::inherit_signals`].
    ///
    /// ```
    /// assert!(forkless::shell("test -d /").inherit_signals(true).status()?.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn inherit_signals(&mut self, yes: bool) -> &mut ShellLine {
        self.inherit_signals = yes;
        self
    }

    /// The signals blocked where the line begins, as in a shell started so; see [`Command::signal_mask`]. Whether its programs then have
    /// them blocked is the shell's business: dash empties the mask, bash hands it on, and so it is without the shell.
    ///
    /// ```
    /// let masks = |line: &mut forkless::ShellLine| {
    ///     line.signal_mask(forkless::SigSet::EMPTY.with(10)).output().map(|out| out.stdout)
    /// };
    /// let line = "grep SigBlk /proc/self/status";
    /// assert_eq!(masks(&mut forkless::shell(line))?, masks(forkless::shell(line).always_shell(true))?);
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn signal_mask(&mut self, blocked: SigSet) -> &mut ShellLine {
        self.signal_mask = Some(blocked);
        self
    }

    /// Signals every process of the line starts with at their default action; see [`Command::default_signals`]. For a caller that
    /// ignores them only while it waits, as system(3) does SIGINT and SIGQUIT.
    ///
    /// ```
    /// let line = "grep SigIgn /proc/self/status";
    /// let out = forkless::shell(line).default_signals(forkless::SigSet::EMPTY.with(2)).output()?;
    /// assert!(out.status.success());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    pub fn default_signals(&mut self, signals: SigSet) -> &mut ShellLine {
        self.default_signals.0 |= signals.0;
        self
    }

    /// Keeps a descriptor of this process from the line, where [`inherit_descriptors`](ShellLine::inherit_descriptors) would hand it
    /// on. What [`stdin`](ShellLine::stdin) and its like connect to that number stays.
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

    /// The most time for all of it. Then every process of the line is killed, in its process group, and
    /// [`status`](ShellLine::status) and [`output`](ShellLine::output) fail with [`TimedOut`](std::io::ErrorKind::TimedOut).
    /// With [`PermissionDenied`](std::io::ErrorKind::PermissionDenied), and as soon, where a program that was started directly may not be killed, since it
    /// became another user: it goes on, and is reaped when it ends.
    ///
    /// With a limit the line runs in a process group of its own, so keyboard signals do not reach it.
    ///
    /// ```
    /// use std::time::Duration;
    /// let error = forkless::shell("sleep 60 | cat").timeout(Duration::from_millis(50)).status().unwrap_err();
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

    /// Runs the line and waits for it.
    ///
    /// The status is what `/bin/sh -c` would have: 127 for a program that is not found, 126 for one that cannot be executed, and
    /// for one killed by a signal either that signal or 128 + n, as this machine's shell has it. After a program that died of SIGINT
    /// or SIGQUIT nothing more is run, and the status is that signal, as when a keyboard sends it to the shell, too.
    ///
    /// ```
    /// assert_eq!(forkless::shell("no-such-program 2>/dev/null").status()?.code(), Some(127));
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Command::status`]: a process cannot be created, or a status is lost. What a shell reports on its standard error is no
    /// error here.
    pub fn status(&mut self) -> Result<ExitStatus, SpawnError> {
        let deadline = self.deadline();
        let base = wiring::Base::open(self, [&Kind::Inherit; 3])?.without_our_ends();
        run::to_the_end(self, &base, deadline)
    }

    /// Runs the line and collects what it writes; input is empty unless [`stdin`](ShellLine::stdin) says otherwise.
    ///
    /// ```
    /// let out = forkless::shell("/usr/bin/printf 'b\\na\\n' | sort").output()?;
    /// assert_eq!(out.stdout, b"a\nb\n");
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`ShellLine::status`].
    pub fn output(&mut self) -> Result<Output, SpawnError> {
        output::collect(self)
    }

    /// Starts the line and returns.
    ///
    /// A line of several pipelines needs somebody to start the next one: that is `/bin/sh`, unless all but the last need no
    /// program (`cd DIR && make`). So is one whose standard error is a pipe made here (also by `2>&1`), where this machine's shell
    /// reports programs that were killed.
    ///
    /// ```
    /// use std::io::Read as _;
    /// let mut child = forkless::shell("printenv A | cat").env("A", "1").stdout(forkless::Stdio::piped()).spawn()?;
    /// let mut said = String::new();
    /// child.stdout.take().unwrap().read_to_string(&mut said)?;
    /// assert_eq!(said, "1\n");
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&mut self) -> Result<ShellChild, SpawnError> {
        let base = wiring::Base::open(self, [&Kind::Inherit; 3])?;
        run::start(self, base, false)
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout.and_then(|time| Instant::now().checked_add(time))
    }

    /// What every process of the line has in common.
    fn dress(&self, command: &mut Command) {
        command.inherit_descriptors(self.inherit_descriptors);
        if self.inherit_signals {
            command.inherit_signals(true);
        }
        if let Some(blocked) = self.signal_mask {
            command.signal_mask(blocked);
        }
        if self.default_signals != SigSet::EMPTY {
            command.default_signals(self.default_signals);
        }
        // The lower ones are in the table that redirections change.
        for number in self.closed.iter().filter(|number| **number >= wiring::TABLE) {
            command.fd(*number, Stdio::closed());
        }
    }
}
