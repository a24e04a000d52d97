//! The program to start, and how: the data of a [`Spec`], by method calls. Nothing is checked or
//! opened before a start.

use crate::spec::Spec;
use crate::spec::stdio::Stdio;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A program to start, and how; like [`std::process::Command`], with errors that name the step.
/// [`crate::process::Command`] has std's exact interface, so that switching is a change of `use`.
///
/// **One more difference**: the child gets descriptors 0, 1, 2 and those given by [`Command::fd`],
/// and no others, close-on-exec or not. [`Command::inherit_descriptors`] restores what
/// `std::process` does.
///
/// A number of 0, 1 and 2 that is not connected stays as it is in this process. Where it is closed
/// or close-on-exec, it is closed in the program. (It may be a file that took the number of a
/// closed one.)
///
/// No option leaves the fast path. The child is created in the caller's memory, so the cost does
/// not grow with that memory. There is no fork to fall back to.
///
/// ```
/// use forkless::Command;
/// let out = Command::new("echo").arg("hello").output()?;
/// assert_eq!(out.stdout, b"hello\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Starting is thread-safe; it is not async-signal-safe, since it allocates.
pub struct Command {
    pub(crate) spec: Spec,
}

impl Command {
    /// A command that runs `program` with no arguments. A name without `/` is searched in the PATH
    /// the child will have, as by execvp(3). A directory there that is too long is passed over.
    ///
    /// ```
    /// use forkless::Command;
    /// assert!(Command::new("true").status().unwrap().success()); // searched
    /// assert!(Command::new("/bin/true").status().unwrap().success());
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command { spec: Spec::new(program.as_ref()) }
    }

    /// Adds an argument.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("printf").arg("%s.").arg("a b").arg("").output().unwrap();
    /// assert_eq!(out.stdout, b"a b..");
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.spec.args.push(arg.as_ref().as_bytes());
        self
    }

    /// Adds arguments.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("printf").args(["%s.", "a b", "c"]).output().unwrap();
    /// assert_eq!(out.stdout, b"a b.c.");
    /// ```
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        for a in args {
            self.arg(a);
        }
        self
    }

    /// The name that the program sees as its own, `argv[0]`; the file executed stays the same.
    ///
    /// ```
    /// let out = forkless::Command::new("sh")
    ///     .arg0("-renamed")
    ///     .args(["-c", "echo $0"])
    ///     .output()
    ///     .unwrap();
    /// assert_eq!(out.stdout, b"-renamed\n");
    /// ```
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.spec.args.set_first(arg.as_ref().as_bytes());
        self
    }

    /// Sets an environment variable.
    ///
    /// ```
    /// use forkless::Command;
    /// let out =
    ///     Command::new("printenv").arg("COLOUR").env("COLOUR", "blue").output().unwrap();
    /// assert_eq!(out.stdout, b"blue\n");
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Command {
        self.spec.env.set(key.as_ref(), value.as_ref());
        self
    }

    /// Sets environment variables.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("printenv")
    ///     .args(["A", "B"])
    ///     .envs([("A", "1"), ("B", "2")])
    ///     .output()
    ///     .unwrap();
    /// assert_eq!(out.stdout, b"1\n2\n");
    /// ```
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        for (k, v) in vars {
            self.env(k, v);
        }
        self
    }

    /// Removes an environment variable.
    ///
    /// ```
    /// use forkless::Command;
    /// let status =
    ///     Command::new("printenv").arg("A").env("A", "1").env_remove("A").status().unwrap();
    /// assert_eq!(status.code(), Some(1));
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.spec.env.remove(key.as_ref());
        self
    }

    /// Starts with no variable at all, and forgets those set so far.
    ///
    /// ```
    /// use forkless::Command;
    /// let out =
    ///     Command::new("/usr/bin/env").env_clear().env("ONLY", "this").output().unwrap();
    /// assert_eq!(out.stdout, b"ONLY=this\n");
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.spec.env.clear();
        self
    }

    /// Reads this process's environment as getenv(3) and execv(3) do, entries without `=` included;
    /// for the C library.
    ///
    /// # Safety
    /// No other thread may change the environment while the command is started.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "declares an obligation of the caller's")]
    pub unsafe fn read_environ(&mut self) -> &mut Command {
        // SAFETY: the caller's promise.
        unsafe { self.spec.env.read_environ() };
        self
    }

    /// The working directory. The child enters it with its own credentials, and looks a relative
    /// program up from there.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("pwd").current_dir("/usr").output().unwrap();
    /// assert_eq!(out.stdout, b"/usr\n");
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.spec.attributes.cwd = self.spec.c_string("current_dir", dir.as_ref().as_os_str());
        self
    }

    /// Standard input; inherited by default, empty for [`Command::output`].
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::io::Write as _;
    /// let mut child =
    ///     Command::new("grep").args(["-q", "needle"]).stdin(Stdio::piped()).spawn().unwrap();
    /// child.stdin.take().unwrap().write_all(b"hay needle hay\n").unwrap();
    /// assert!(child.wait().unwrap().success());
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.spec.std[0] = Some(cfg.into());
        self
    }

    /// Standard output; inherited by default, captured by [`Command::output`].
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn().unwrap();
    /// assert_eq!(std::io::read_to_string(child.stdout.take().unwrap()).unwrap(), "hi\n");
    /// child.wait().unwrap();
    /// ```
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.spec.std[1] = Some(cfg.into());
        self
    }

    /// Standard error; inherited by default, captured by [`Command::output`].
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "echo out; echo err >&2"]).stderr(Stdio::same_as(1));
    /// assert_eq!(c.output().unwrap().stdout, b"out\nerr\n");
    /// ```
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.spec.std[2] = Some(cfg.into());
        self
    }

    /// Connects any descriptor number of the child. Numbers of the parent and of the child may
    /// overlap in any way, swaps and cycles included. The last call for a number counts.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::io::Read;
    /// let mut c = Command::new("sh")
    ///     .args(["-c", "echo hi >&7"])
    ///     .fd(7, Stdio::piped())
    ///     .spawn()
    ///     .unwrap();
    /// let mut text = String::new();
    /// std::fs::File::from(c.take_pipe(7).unwrap()).read_to_string(&mut text).unwrap();
    /// assert_eq!(text, "hi\n");
    /// c.wait().unwrap();
    /// ```
    pub fn fd<T: Into<Stdio>>(&mut self, number: RawFd, cfg: T) -> &mut Command {
        self.spec.rewire(number, Some(cfg.into()));
        self
    }

    /// Whether [`Command::keep`] was given this number; for the C library.
    #[doc(hidden)]
    pub fn keeps(&self, fd: RawFd) -> bool {
        self.spec.kept.iter().any(|kept| kept.as_raw_fd() == fd)
    }

    /// Closes the descriptor when the command is dropped, and not before; for the C library, whose
    /// callers may connect a number that they gave away.
    #[doc(hidden)]
    pub fn keep(&mut self, fd: OwnedFd) -> &mut Command {
        self.spec.kept.push(fd);
        self
    }

    /// Lets the child have every descriptor of this process that is not close-on-exec, as
    /// `std::process` does. The start then copies the whole table, at a cost that grows with the
    /// number of open descriptors.
    ///
    /// ```
    /// use forkless::Command;
    /// let (read, write) = std::io::pipe()?;
    /// # use std::os::fd::OwnedFd;
    /// # let (read, write): (OwnedFd, OwnedFd) = (read.into(), write.into());
    /// // Not close-on-exec, as a C library might leave it.
    /// let stray = rustix::io::dup(&read)?;
    /// let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&stray));
    /// let has_it = |c: &mut Command| c.args(["-e", &path]).status().unwrap().success();
    /// assert!(!has_it(&mut Command::new("test")));
    /// assert!(has_it(Command::new("test").inherit_descriptors(true)));
    /// # drop(write);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn inherit_descriptors(&mut self, yes: bool) -> &mut Command {
        self.spec.inherit_descriptors = yes;
        self
    }

    /// Whether a file the kernel refuses as `ENOEXEC` is run by `/bin/sh`, as execvp(3) does; on by
    /// default.
    ///
    /// ```
    /// use forkless::Command;
    /// use std::os::unix::fs::PermissionsExt as _;
    /// let script =
    ///     std::env::temp_dir().join(format!("no-interpreter.{}", std::process::id()));
    /// std::fs::write(&script, "exit 7\n")?;
    /// std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    /// assert_eq!(Command::new(&script).status()?.code(), Some(7));
    /// let strict = Command::new(&script).scripts_without_interpreter(false).status();
    /// assert_eq!(strict.unwrap_err().raw_os_error(), Some(8)); // ENOEXEC
    /// std::fs::remove_file(&script)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scripts_without_interpreter(&mut self, yes: bool) -> &mut Command {
        self.spec.scripts = yes;
        self
    }

    /// The program.
    ///
    /// ```
    /// assert_eq!(forkless::Command::new("ls").get_program(), "ls");
    /// ```
    pub fn get_program(&self) -> &OsStr {
        &self.spec.program
    }

    /// The arguments, without `argv[0]`.
    ///
    /// ```
    /// let mut c = forkless::Command::new("ls");
    /// c.args(["-l", "/"]);
    /// assert!(c.get_args().eq(["-l", "/"]));
    /// ```
    pub fn get_args(&self) -> impl ExactSizeIterator<Item = &OsStr> {
        self.spec.args.iter().skip(1).map(OsStr::from_bytes)
    }

    /// The changes to the environment: `None` for a variable removed.
    ///
    /// ```
    /// let mut c = forkless::Command::new("ls");
    /// c.env("A", "1").env_remove("B");
    /// assert!(c.get_envs().eq([("A".as_ref(), Some("1".as_ref())), ("B".as_ref(), None)]));
    /// ```
    pub fn get_envs(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.spec.env.iter()
    }

    /// The working directory, if set.
    ///
    /// ```
    /// let mut c = forkless::Command::new("ls");
    /// assert_eq!(c.get_current_dir(), None);
    /// assert_eq!(c.current_dir("/usr").get_current_dir(), Some("/usr".as_ref()));
    /// ```
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.spec.attributes.cwd.as_ref().map(|d| Path::new(OsStr::from_bytes(d.to_bytes())))
    }
}

impl fmt::Debug for Command {
    /// A line for a shell, as `std::process::Command` shows itself: `cd "/dir" && env -u B A="1"
    /// "program" "argument"`. With `{:#?}` everything that is set but `pre_exec` functions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = || self.spec.args.iter().map(OsStr::from_bytes);
        if f.alternate() {
            return f
                .debug_struct("Command")
                .field("program", &self.spec.program)
                .field("args", &args().collect::<Vec<_>>())
                .field("env", &self.spec.env)
                .field("attributes", &self.spec.attributes)
                .field("std", &self.spec.std)
                .field("fds", &self.spec.fds)
                .field("inherit_descriptors", &self.spec.inherit_descriptors)
                .field("scripts", &self.spec.scripts)
                .field("on_drop", &self.spec.on_drop)
                .finish_non_exhaustive();
        }
        if let Some(dir) = self.get_current_dir() {
            write!(f, "cd {dir:?} && ")?;
        }
        if self.spec.env.is_cleared() {
            f.write_str("env -i ")?;
        } else {
            let mut removed = self.get_envs().filter(|(_, value)| value.is_none()).peekable();
            if removed.peek().is_some() {
                f.write_str("env ")?;
            }
            removed.try_for_each(|(name, _)| write!(f, "-u {} ", name.to_string_lossy()))?;
        }
        for (name, value) in self.get_envs() {
            if let Some(value) = value {
                write!(f, "{}={value:?} ", name.to_string_lossy())?;
            }
        }
        if args().next() != Some(&self.spec.program) {
            write!(f, "[{:?}] ", self.spec.program)?;
        }
        args().enumerate().try_for_each(|(i, a)| write!(f, "{}{a:?}", if i == 0 { "" } else { " " }))
    }
}
