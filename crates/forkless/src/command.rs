//! What the user wants: program, arguments, environment, descriptors and attributes. Nothing is checked or opened before a start.

use crate::attributes::{Attributes, HookFn, Mask, OnDrop, Resource, Scheduler};
use crate::cancel::NotCancelled;
use crate::child::Child;
use crate::env::EnvChanges;
use crate::error::{SpawnError, Step};
use crate::in_place;
use crate::plan::{Cgroup, Life, Plan};
use crate::prepared::Prepared;
use crate::start::{self, Request, Until};
use crate::stdio::{Kind, Stdio};
use crate::strings::Strings;
use forkless_sys::sched::Rlimit;
use forkless_sys::signal::SigSet;
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

/// A program to start, and how; like [`std::process::Command`], so that switching is a change of `use`.
///
/// **One difference**: the child gets descriptors 0, 1, 2 and those it is given by [`Command::fd`], and no others, close-on-exec or
/// not. [`Command::inherit_descriptors`] restores what `std::process` does.
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
    std: [Option<Stdio>; 3],
    fds: BTreeMap<RawFd, Stdio>,
}

impl Command {
    /// A command that runs `program` with no arguments. A name without `/` is searched in the PATH the child will have.
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
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.args.push(arg.as_ref().as_bytes());
        self
    }

    /// Adds arguments.
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
    pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, key: K, value: V) -> &mut Command {
        self.env.set(key.as_ref(), value.as_ref());
        self
    }

    /// Sets environment variables.
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
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.env.remove(key.as_ref());
        self
    }

    /// Starts with no variable at all, and forgets those set so far.
    pub fn env_clear(&mut self) -> &mut Command {
        self.env.clear();
        self
    }

    /// The working directory. Entered with the child's own credentials; a relative program is looked up from there.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.attributes.cwd = self.c_string("current_dir", dir.as_ref().as_os_str());
        self
    }

    /// Standard input; inherited by default, empty for [`Command::output`].
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std[0] = Some(cfg.into());
        self
    }

    /// Standard output; inherited by default, captured by [`Command::output`].
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.std[1] = Some(cfg.into());
        self
    }

    /// Standard error; inherited by default, captured by [`Command::output`].
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
    pub fn inherit_descriptors(&mut self, yes: bool) -> &mut Command {
        self.inherit_descriptors = yes;
        self
    }

    /// Whether a file the kernel refuses as `ENOEXEC` is run by `/bin/sh`, as execvp(3) does; on by default.
    pub fn scripts_without_interpreter(&mut self, yes: bool) -> &mut Command {
        self.scripts = yes;
        self
    }

    /// The user, as `CommandExt::uid`: when root starts a program as somebody else and [`Command::groups`] is not used, the
    /// supplementary groups are emptied.
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.attributes.uid = Some(id);
        self
    }

    /// The group.
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.attributes.gid = Some(id);
        self
    }

    /// The supplementary groups.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Command {
        self.attributes.groups = Some(groups.to_vec());
        self
    }

    /// The process group: 0 for a new one, which [`Child::signal_group`] then reaches.
    pub fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.attributes.pgid = Some(pgroup);
        self
    }

    /// A new session (`setsid(2)`), without a controlling terminal.
    pub fn setsid(&mut self, yes: bool) -> &mut Command {
        self.attributes.setsid = yes;
        self
    }

    /// Makes the terminal at this number *of the child* the controlling one of its new session; implies [`Command::setsid`].
    pub fn controlling_terminal(&mut self, number: RawFd) -> &mut Command {
        self.attributes.setsid = true;
        self.attributes.terminal = Some(number);
        self
    }

    /// Makes the child's process group the foreground group of the terminal at this number of the child (`tcsetpgrp(3)`).
    pub fn foreground(&mut self, number: RawFd) -> &mut Command {
        self.attributes.foreground = Some(number);
        self
    }

    /// The file mode creation mask.
    ///
    /// ```
    /// let out = forkless::Command::new("sh").args(["-c", "umask"]).umask(0o077).output().unwrap();
    /// assert_eq!(out.stdout, b"0077\n");
    /// ```
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.attributes.umask = Some(mask);
        self
    }

    /// A resource limit, in the resource's own unit; `u64::MAX` for none. Set before credentials change, so root may raise it.
    ///
    /// ```
    /// use forkless::{Command, Resource};
    /// let out = Command::new("sh").args(["-c", "ulimit -n"]).rlimit(Resource::OpenFiles, 99, 99).output().unwrap();
    /// assert_eq!(out.stdout, b"99\n");
    /// ```
    pub fn rlimit(&mut self, resource: Resource, soft: u64, hard: u64) -> &mut Command {
        self.attributes.rlimits.push((resource as u32, Rlimit { soft, hard }));
        self
    }

    /// The nice value, -20 to 19; absolute.
    pub fn nice(&mut self, value: i32) -> &mut Command {
        self.attributes.nice = Some(value);
        self
    }

    /// The scheduling policy.
    pub fn scheduler(&mut self, policy: Scheduler) -> &mut Command {
        self.attributes.scheduler = Some(policy);
        self
    }

    /// The CPUs it may run on, by number.
    ///
    /// ```
    /// let mut c = forkless::Command::new("true");
    /// assert!(c.affinity([0]).status().unwrap().success());
    /// ```
    pub fn affinity<I: IntoIterator<Item = usize>>(&mut self, cpus: I) -> &mut Command {
        let mut mask = Vec::new();
        for cpu in cpus {
            if cpu >= 1 << 16 {
                self.complain(format!("CPU {cpu} does not exist"));
                continue;
            }
            if mask.len() <= cpu / 64 {
                mask.resize(cpu / 64 + 1, 0);
            }
            mask[cpu / 64] |= 1 << (cpu % 64);
        }
        self.attributes.affinity = Some(mask);
        self
    }

    /// A signal the child gets when this **process** dies: also when that happened before the child could ask for it, not when merely
    /// the calling thread ends, and after the child's change of credentials, which would clear it.
    ///
    /// Called from another thread than the first, the start goes through a thread of the library's that lives as long as the
    /// process, since the kernel watches the creating thread (`PR_SET_PDEATHSIG(2const)`); the child then has that
    /// thread's namespaces and credentials, and the caller's mask, priority, policy and affinity.
    pub fn parent_death_signal(&mut self, signal: i32) -> &mut Command {
        self.attributes.death_signal = Some(signal);
        self
    }

    /// Neither the program nor anything it starts can gain privileges by exec (`no_new_privs`).
    pub fn no_new_privs(&mut self, yes: bool) -> &mut Command {
        self.attributes.no_new_privs = yes;
        self
    }

    /// The root directory, entered before credentials change. The working directory becomes its `/`, unless set.
    pub fn chroot<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.attributes.chroot = self.c_string("chroot", dir.as_ref().as_os_str());
        self
    }

    /// The directory of a cgroup the child is born in (`CLONE_INTO_CGROUP`), or joins before anything else where that is refused.
    pub fn cgroup<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.attributes.cgroup = self.c_string("cgroup", dir.as_ref().as_os_str());
        self
    }

    /// The signals blocked in the program; none by default, as `std::process` has it. Bit n - 1 stands for signal n.
    pub fn signal_mask(&mut self, blocked: SigSet) -> &mut Command {
        self.attributes.mask = Mask::Set(blocked);
        self
    }

    /// Hands on the calling thread's signal mask, and SIGPIPE as it is, as fork would: the default is an empty mask and SIGPIPE at its
    /// default action, as `std::process` has it. Ignored signals stay ignored either way, save SIGPIPE.
    pub fn inherit_signals(&mut self, yes: bool) -> &mut Command {
        const SIGPIPE: i32 = 13;
        let a = &mut self.attributes;
        a.mask = if yes { Mask::Inherit } else { Mask::Empty };
        a.default = if yes { a.default.without(SIGPIPE) } else { a.default.with(SIGPIPE) };
        self
    }

    /// Signals the program is to start with at their default action.
    pub fn default_signals(&mut self, signals: SigSet) -> &mut Command {
        self.attributes.default.0 |= signals.0;
        self.attributes.ignore.0 &= !signals.0;
        self
    }

    /// Signals the program is to start with ignored.
    pub fn ignore_signals(&mut self, signals: SigSet) -> &mut Command {
        self.attributes.ignore.0 |= signals.0;
        self.attributes.default.0 &= !signals.0;
        self
    }

    /// What dropping the [`Child`] does; [`OnDrop::Detach`] by default, as `std::process`, but without a zombie.
    pub fn on_drop(&mut self, policy: OnDrop) -> &mut Command {
        self.on_drop = policy;
        self
    }

    /// A function to run in the child as the last thing before exec.
    ///
    /// # Safety
    /// The function runs **in this process's memory**, on a small stack (64 KiB to be counted on), while the calling thread is
    /// suspended and others run on; it has its own pid and descriptors. So it may make system calls, and must not
    /// - take a lock or allocate (another thread may hold the lock of the heap and run on, but a lock left held stays held),
    /// - change memory others rely on: what it writes, the parent sees,
    /// - call libc functions that signal other threads (`setuid` and its kin) or run code at exit,
    /// - unwind (a panic is caught and fails the start) or not return.
    ///
    /// An `Err` fails the start with its error number. `errno` of the calling thread is put back.
    #[expect(unsafe_code, reason = "declares an obligation of the caller's; see above")]
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        if let Ok(hooks) = self.hooks.get_mut() {
            hooks.push(Box::new(f));
        }
        self
    }

    /// Starts the program and returns once it runs.
    ///
    /// # Errors
    /// A [`SpawnError`] that names the step and the thing; nothing is left behind then.
    pub fn spawn(&mut self) -> Result<Child, SpawnError> {
        self.start(Until::Exec)
    }

    /// Starts the program and returns as soon as the child process exists; whether it became the program shows at the first wait.
    ///
    /// The caller is blocked for the clone alone, about a sixth of what `posix_spawn` takes, except when: more than a few hundred
    /// descriptors are open, when it waits for the child to have a table of its own (some 10 us); and with credentials or
    /// [`Command::pre_exec`], when it is as [`Command::spawn`]; likewise under emulators that copy memory for `CLONE_VM`.
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

    /// Runs the program and waits for it.
    ///
    /// # Errors
    /// As [`Command::spawn`], and with step [`Step::Wait`] when the status is lost ([`crate::WaitError::Unknown`]).
    pub fn status(&mut self) -> Result<ExitStatus, SpawnError> {
        run_to_end(|until| self.start(until), wait_alone)
    }

    /// Runs the program and collects what it writes; input is empty unless [`Command::stdin`] says otherwise.
    ///
    /// # Errors
    /// As [`Command::status`].
    pub fn output(&mut self) -> Result<Output, SpawnError> {
        let (status, io) = self.communicate().run()?;
        Ok(Output { status, stdout: io.stdout, stderr: io.stderr })
    }

    /// Resolves and lays out everything once, for many starts.
    ///
    /// # Errors
    /// What is wrong with the command itself; the program need not exist yet.
    pub fn prepare(self) -> Result<Prepared, SpawnError> {
        Prepared::new(self)
    }

    /// Becomes the program: this process is replaced. Returns only to say why not; attributes set before the failing step stay set.
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
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// The arguments, without `argv[0]`.
    pub fn get_args(&self) -> impl ExactSizeIterator<Item = &OsStr> {
        self.args.iter().skip(1).map(OsStr::from_bytes)
    }

    /// The changes to the environment: `None` for a variable removed.
    pub fn get_envs(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.env.iter()
    }

    /// The working directory, if set.
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

    fn c_string(&mut self, what: &str, value: &OsStr) -> Option<CString> {
        CString::new(value.as_bytes())
            .map_err(|_| self.complain(format!("{what}: the path has a NUL byte")))
            .ok()
    }

    fn complain(&mut self, what: String) {
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
        Err(_) if child.try_again => wait(&mut start(Until::Exec)?),
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
    /// The program and its arguments, quoted, as `std::process::Command` shows them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.program)?;
        self.get_args().try_for_each(|a| write!(f, " {a:?}"))
    }
}
