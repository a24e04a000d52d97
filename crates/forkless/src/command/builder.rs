//! What the user wants: program, arguments, environment, descriptors and attributes. Nothing is checked or opened before a start.

use crate::child::handle::Child;
use crate::command::attributes::{Attributes, HookFn, OnDrop};
use crate::command::prepared::Prepared;
use crate::error::{SpawnError, Step};
use crate::kernel::cancel::NotCancelled;
use crate::plan::{Cgroup, Life, Plan};
use crate::spec::env::EnvChanges;
use crate::spec::stdio::{Kind, Stdio};
use crate::spec::strings::Strings;
use crate::start::attempt::{self as start, Request, Until};
use crate::start::in_place;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{ExitStatus, Output};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

static INHERIT: Stdio = Stdio(Kind::Inherit);
static NULL: Stdio = Stdio(Kind::Null);
static PIPED: Stdio = Stdio(Kind::Piped);

/// What 0, 1 and 2 are connected to where a command does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Defaults {
    /// The parent's own.
    Inherit,
    /// No input; output and error through pipes.
    Capture,
}

impl Defaults {
    fn stdio(self) -> [&'static Stdio; 3] {
        match self {
            Defaults::Inherit => [&INHERIT; 3],
            Defaults::Capture => [&NULL, &PIPED, &PIPED],
        }
    }
}

/// A program to start, and how; like [`std::process::Command`], with errors that name the step. [`crate::process::Command`] is
/// std's to the letter, so that switching is a change of `use`.
///
/// **One difference besides**: the child gets descriptors 0, 1, 2 and those it is given by [`Command::fd`], and no others, close-on-exec or
/// not. [`Command::inherit_descriptors`] restores what `std::process` does. Of 0, 1 and 2 what is not connected to something is left as
/// it is here: what is closed or close-on-exec (a file that took the number of a closed one, say) is closed in the program.
///
/// No option leaves the fast path: the child is created sharing the caller's memory, so the cost does not grow with it, and there is
/// no fork to fall back to.
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
    pub(crate) program: OsString,
    pub(crate) args: Strings,
    pub(crate) env: EnvChanges,
    pub(crate) attributes: Attributes,
    pub(crate) hooks: Mutex<Vec<HookFn>>,
    pub(crate) inherit_descriptors: bool,
    pub(crate) scripts: bool,
    pub(crate) on_drop: OnDrop,
    /// The first thing that was wrong with what a method was given; reported by the start.
    pub(crate) bad: Option<String>,
    pub(crate) std: [Option<Stdio>; 3],
    pub(crate) fds: BTreeMap<RawFd, Stdio>,
}

impl Command {
    /// A command that runs `program` with no arguments. A name without `/` is searched in the PATH the child will have.
    ///
    /// ```
    /// use forkless::Command;
    /// assert!(Command::new("true").status().unwrap().success()); // searched
    /// assert!(Command::new("/bin/true").status().unwrap().success());
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        let program = program.as_ref();
        let mut args = Strings::default();
        args.push(program.as_bytes());
        Command {
            program: program.to_owned(),
            args,
            env: EnvChanges::default(),
            attributes: Attributes::default(),
            hooks: Mutex::new(Vec::new()),
            inherit_descriptors: false,
            scripts: true,
            on_drop: OnDrop::Detach,
            bad: None,
            std: [None, None, None],
            fds: BTreeMap::new(),
        }
    }

    /// Adds an argument.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("printf").arg("%s.").arg("a b").arg("").output().unwrap();
    /// assert_eq!(out.stdout, b"a b..");
    /// ```
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.args.push(arg.as_ref().as_bytes());
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

    /// What the program sees as its own name, `argv[0]`; the file executed stays the same.
    ///
    /// ```
    /// let out = forkless::Command::new("sh").arg0("-renamed").args(["-c", "echo $0"]).output().unwrap();
    /// assert_eq!(out.stdout, b"-renamed\n");
    /// ```
    pub fn arg0<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.args.set_first(arg.as_ref().as_bytes());
        self
    }

    /// Sets an environment variable.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("printenv").arg("COLOUR").env("COLOUR", "blue").output().unwrap();
    /// assert_eq!(out.stdout, b"blue\n");
    /// ```
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Command {
        self.env.set(key.as_ref(), value.as_ref());
        self
    }

    /// Sets environment variables.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("printenv").args(["A", "B"]).envs([("A", "1"), ("B", "2")]).output().unwrap();
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
    /// let status = Command::new("printenv").arg("A").env("A", "1").env_remove("A").status().unwrap();
    /// assert_eq!(status.code(), Some(1));
    /// ```
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.env.remove(key.as_ref());
        self
    }

    /// Starts with no variable at all, and forgets those set so far.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("/usr/bin/env").env_clear().env("ONLY", "this").output().unwrap();
    /// assert_eq!(out.stdout, b"ONLY=this\n");
    /// ```
    pub fn env_clear(&mut self) -> &mut Command {
        self.env.clear();
        self
    }

    /// Reads this process's environment as getenv(3) and execv(3) do, entries without `=` included; for the C library.
    ///
    /// # Safety
    /// No other thread may change the environment while the command is started.
    #[doc(hidden)]
    #[expect(unsafe_code, reason = "declares an obligation of the caller's")]
    pub unsafe fn read_environ(&mut self) -> &mut Command {
        // SAFETY: the caller's promise.
        unsafe { self.env.read_environ() };
        self
    }

    /// The working directory. Entered with the child's own credentials; a relative program is looked up from there.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("pwd").current_dir("/usr").output().unwrap();
    /// assert_eq!(out.stdout, b"/usr\n");
    /// ```
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.attributes.cwd = self.c_string("current_dir", dir.as_ref().as_os_str());
        self
    }

    /// Standard input; inherited by default, empty for [`Command::output`].
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::io::Write as _;
    /// let mut child = Command::new("grep").args(["-q", "needle"]).stdin(Stdio::piped()).spawn().unwrap();
    /// child.stdin.take().unwrap().write_all(b"hay needle hay\n").unwrap();
    /// assert!(child.wait().unwrap().success());
    /// ```
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std[0] = Some(cfg.into());
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
        self.std[1] = Some(cfg.into());
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
        self.std[2] = Some(cfg.into());
        self
    }

    /// Connects any descriptor number of the child. Numbers of the parent and of the child may overlap in any way, swaps and
    /// cycles included. The last call for a number counts.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::io::Read;
    /// let mut c = Command::new("sh").args(["-c", "echo hi >&7"]).fd(7, Stdio::piped()).spawn().unwrap();
    /// let mut text = String::new();
    /// std::fs::File::from(c.take_pipe(7).unwrap()).read_to_string(&mut text).unwrap();
    /// assert_eq!(text, "hi\n");
    /// c.wait().unwrap();
    /// ```
    pub fn fd<T: Into<Stdio>>(&mut self, number: RawFd, cfg: T) -> &mut Command {
        self.rewire(number, Some(cfg.into()));
        self
    }

    /// Lets the child have every descriptor of this process that is not close-on-exec, as `std::process` does. The start then copies the
    /// whole table, at a cost that grows with the number of open descriptors.
    ///
    /// ```
    /// use forkless::Command;
    /// let (read, write) = std::io::pipe()?;
    /// # let (read, write): (std::os::fd::OwnedFd, std::os::fd::OwnedFd) = (read.into(), write.into());
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
        self.inherit_descriptors = yes;
        self
    }

    /// Whether a file the kernel refuses as `ENOEXEC` is run by `/bin/sh`, as execvp(3) does; on by default.
    ///
    /// ```
    /// use forkless::Command;
    /// use std::os::unix::fs::PermissionsExt as _;
    /// let script = std::env::temp_dir().join(format!("no-interpreter.{}", std::process::id()));
    /// std::fs::write(&script, "exit 7\n")?;
    /// std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    /// assert_eq!(Command::new(&script).status()?.code(), Some(7));
    /// let strict = Command::new(&script).scripts_without_interpreter(false).status();
    /// assert_eq!(strict.unwrap_err().raw_os_error(), Some(8)); // ENOEXEC
    /// std::fs::remove_file(&script)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scripts_without_interpreter(&mut self, yes: bool) -> &mut Command {
        self.scripts = yes;
        self
    }

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
    /// A [`SpawnError`] that names the step and the thing; nothing is left behind then.
    pub fn spawn(&mut self) -> Result<Child, SpawnError> {
        self.start(Until::Exec)
    }

    /// Starts the program and returns as soon as the child process exists; whether it became the program shows at the first wait.
    ///
    /// The caller is blocked for the clone alone, about a sixth of what `posix_spawn` takes, except when: more than a few hundred
    /// descriptors are open, when it waits for the child to have a table of its own (some 10 us); and with credentials, a
    /// [`Command::cgroup`] or [`Command::pre_exec`], when it is as [`Command::spawn`]; likewise under emulators that copy memory for `CLONE_VM`.
    ///
    /// ```
    /// use forkless::{Command, WaitError};
    /// let mut child = Command::new("/does/not/exist").spawn_nonblocking().unwrap();
    /// assert!(matches!(child.wait(), Err(WaitError::Start(e)) if e.to_string() == "exec /does/not/exist: No such file or directory"));
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`], for what goes wrong up to the clone.
    pub fn spawn_nonblocking(&mut self) -> Result<Child, SpawnError> {
        self.start(Until::Cloned)
    }

    /// Runs the program and waits for it. Cheaper than [`Command::spawn`] and [`Child::wait`]: nothing waits for the exec alone, and no pidfd
    /// is made in a program of one thread that leaves SIGCHLD at its default.
    ///
    /// ```
    /// use forkless::Command;
    /// assert!(Command::new("true").status().unwrap().success());
    /// assert_eq!(Command::new("false").status().unwrap().code(), Some(1));
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`], and with step [`Step::Wait`] when the status is lost ([`crate::WaitError::Unknown`]).
    pub fn status(&mut self) -> Result<ExitStatus, SpawnError> {
        run_to_end(|until| self.start(until), wait_alone)
    }

    /// Runs the program and collects what it writes; input is empty unless [`Command::stdin`] says otherwise.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).output().unwrap();
    /// assert_eq!((&out.stdout[..], &out.stderr[..], out.status.code()), (&b"out\n"[..], &b"err\n"[..], Some(3)));
    /// ```
    ///
    /// # Errors
    /// As [`Command::status`].
    pub fn output(&mut self) -> Result<Output, SpawnError> {
        let (status, io) = self.communicate().run()?;
        Ok(Output { status, stdout: io.stdout, stderr: io.stderr })
    }

    /// Resolves and lays out everything once, for many starts.
    ///
    /// ```
    /// use forkless::Command;
    /// let prepared = Command::new("true").prepare().unwrap();
    /// assert!((0..3).all(|_| prepared.status().unwrap().success()));
    /// ```
    ///
    /// # Errors
    /// What is wrong with the command itself; the program need not exist yet.
    pub fn prepare(self) -> Result<Prepared, SpawnError> {
        Prepared::new(self)
    }

    /// Becomes the program: this process is replaced. Returns only to say why not; attributes set before the failing step stay set.
    ///
    /// ```
    /// use forkless::Command;
    /// let error = Command::new("/does/not/exist").exec(); // returns only if it fails
    /// assert_eq!(error.to_string(), "exec /does/not/exist: No such file or directory");
    /// ```
    pub fn exec(&mut self) -> SpawnError {
        match Plan::new(self, Life::Start, Cgroup::Join) {
            Ok(plan) => in_place::exec(self, &plan),
            Err(e) => e,
        }
    }

    fn start(&mut self, until: Until) -> Result<Child, SpawnError> {
        start_planned(self, until, Defaults::Inherit)
    }

    /// The program.
    ///
    /// ```
    /// assert_eq!(forkless::Command::new("ls").get_program(), "ls");
    /// ```
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// The arguments, without `argv[0]`.
    ///
    /// ```
    /// let mut c = forkless::Command::new("ls");
    /// c.args(["-l", "/"]);
    /// assert!(c.get_args().eq(["-l", "/"]));
    /// ```
    pub fn get_args(&self) -> impl ExactSizeIterator<Item = &OsStr> {
        self.args.iter().skip(1).map(OsStr::from_bytes)
    }

    /// The changes to the environment: `None` for a variable removed.
    ///
    /// ```
    /// let mut c = forkless::Command::new("ls");
    /// c.env("A", "1").env_remove("B");
    /// assert!(c.get_envs().eq([("A".as_ref(), Some("1".as_ref())), ("B".as_ref(), None)]));
    /// ```
    pub fn get_envs(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.env.iter()
    }

    /// The working directory, if set.
    ///
    /// ```
    /// let mut c = forkless::Command::new("ls");
    /// assert_eq!(c.get_current_dir(), None);
    /// assert_eq!(c.current_dir("/usr").get_current_dir(), Some("/usr".as_ref()));
    /// ```
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.attributes.cwd.as_ref().map(|d| Path::new(OsStr::from_bytes(d.to_bytes())))
    }

    /// Every descriptor that is connected to something, by number.
    pub(crate) fn descriptors(&self, defaults: Defaults) -> impl Iterator<Item = (RawFd, &Stdio)> {
        let std = self.std.iter().zip(defaults.stdio()).enumerate();
        let std = std.map(|(n, (set, default))| (n as RawFd, set.as_ref().unwrap_or(default)));
        std.chain(self.fds.iter().map(|(n, s)| (*n, s)))
    }

    /// Whether 0, 1 and 2 stay as they are here and nothing else is connected: what most commands are.
    pub(crate) fn connects_nothing(&self, defaults: Defaults) -> bool {
        self.fds.is_empty() && defaults == Defaults::Inherit && self.std.iter().all(Option::is_none)
    }

    /// Connects a number, or leaves it to its default, and returns what it was connected to.
    pub(crate) fn rewire(&mut self, number: RawFd, to: Option<Stdio>) -> Option<Stdio> {
        if let Some(std) = self.std.get_mut(number as usize) {
            return std::mem::replace(std, to);
        }
        match to {
            Some(to) => self.fds.insert(number, to),
            None => self.fds.remove(&number),
        }
    }

    /// Whether a number that is written to by custom is a pipe the child reads from.
    pub(crate) fn is_output_reversed(&self, number: RawFd) -> bool {
        let set = self.std.get(number as usize).and_then(Option::as_ref);
        number != 0 && set.is_some_and(|s| matches!(s.0, Kind::PipedInput))
    }

    pub(crate) fn c_string(&mut self, what: &str, value: &OsStr) -> Option<CString> {
        CString::new(value.as_bytes())
            .map_err(|_| self.complain(format!("{what}: the path has a NUL byte")))
            .ok()
    }

    pub(crate) fn complain(&mut self, what: String) {
        self.bad.get_or_insert(what);
    }
}

/// Waits for a child nobody talks to.
pub(crate) fn wait_alone(child: &mut Child) -> Result<ExitStatus, SpawnError> {
    drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
    Ok(child.wait()?)
}

/// Starts and waits for the end. Nothing is waited for in between, so a facility refused for the first time shows only at the wait;
/// the program has not run then, and is started again another way.
pub(crate) fn run_to_end<T>(
    mut start: impl FnMut(Until) -> Result<Child, SpawnError>,
    mut wait: impl FnMut(&mut Child) -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    let mut child = start(Until::Exit)?;
    match wait(&mut child) {
        Err(_) if child.held.try_again => wait(&mut start(Until::Exec)?),
        done => done,
    }
}

/// Plans and starts once.
pub(crate) fn start_planned(
    command: &Command,
    until: Until,
    defaults: Defaults,
) -> Result<Child, SpawnError> {
    start_holding(command, until, defaults, None)
}

/// As [`start_planned`], with a descriptor that the child holds until it becomes the program.
pub(crate) fn start_holding(
    command: &Command,
    until: Until,
    defaults: Defaults,
    until_exec: Option<RawFd>,
) -> Result<Child, SpawnError> {
    let _whole = NotCancelled::begin();
    let life = if until == Until::Cloned { Life::Long } else { Life::Start };
    let hint = AtomicUsize::new(0);
    let go = |cgroup| {
        let plan = Arc::new(Plan::new(command, life, cgroup)?);
        let started =
            start::start(Request { command, plan: &plan, until, defaults, until_exec, hint: &hint })?;
        Ok(Child::new(command, &plan, started))
    };
    go(Cgroup::Born).or_else(|e| if may_join(command, &e) { go(Cgroup::Join) } else { Err(e) })
}

/// Whether a child that could not be born in its cgroup may still join it: a filter, an old kernel and a version 1 hierarchy refuse
/// the one and not the other.
pub(crate) fn may_join(command: &Command, e: &SpawnError) -> bool {
    e.step() == Step::Cgroup && command.attributes.cgroup.is_some() && e.kind() != io::ErrorKind::NotFound
}

impl fmt::Debug for Command {
    /// A line for a shell, as `std::process::Command` shows itself: `cd "/dir" && env -u B A="1" "program" "argument"`. With `{:#?}`
    /// everything that is set but `pre_exec` functions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = || self.args.iter().map(OsStr::from_bytes);
        if f.alternate() {
            return f
                .debug_struct("Command")
                .field("program", &self.program)
                .field("args", &args().collect::<Vec<_>>())
                .field("env", &self.env)
                .field("attributes", &self.attributes)
                .field("std", &self.std)
                .field("fds", &self.fds)
                .field("inherit_descriptors", &self.inherit_descriptors)
                .field("scripts", &self.scripts)
                .field("on_drop", &self.on_drop)
                .finish_non_exhaustive();
        }
        if let Some(dir) = self.get_current_dir() {
            write!(f, "cd {dir:?} && ")?;
        }
        if self.env.is_cleared() {
            f.write_str("env -i ")?;
        } else {
            let mut removed = self.get_envs().filter(|(_, value)| value.is_none()).peekable();
            if removed.peek().is_some() {
                f.write_str("env ")?;
            }
            removed.try_for_each(|(name, _)| write!(f, "-u {} ", name.display()))?;
        }
        for (name, value) in self.get_envs() {
            if let Some(value) = value {
                write!(f, "{}={value:?} ", name.display())?;
            }
        }
        if args().next() != Some(&self.program) {
            write!(f, "[{:?}] ", self.program)?;
        }
        args().enumerate().try_for_each(|(i, a)| write!(f, "{}{a:?}", if i == 0 { "" } else { " " }))
    }
}
