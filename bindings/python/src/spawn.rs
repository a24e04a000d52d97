//! `_forkless.spawn`: a start, with Python's objects as arguments. It makes a `forkless::Command`
//! of them, word for word, and starts it with the interpreter's lock released.
//!
//! The environment is read and every byte copied before the lock is released: another thread may
//! change `environ` afterwards, and Python changes it under the lock.

#![expect(unsafe_code, reason = "descriptors that Python names by number; a capsule's pointer")]

use forkless::{Command, Resource, Scheduler, SpawnError, Stdio};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyCapsuleMethods, PyList, PyTuple};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;
use std::sync::Mutex;

/// What a failed start is to Python: the step's name, the thing, the errno, and the number that the
/// child had.
type Failed = (&'static str, Option<String>, i32, Option<u32>);

fn failed(e: &SpawnError) -> Failed {
    (e.step().name(), e.what().map(String::from), e.raw_os_error().unwrap_or(0), e.child_id())
}

/// The items of a list or a tuple. Of no other sequence: PyO3 would import the abstract class and
/// keep it in a static.
pub(crate) fn items<'py>(of: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = of.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    match of.cast::<PyTuple>() {
        Ok(tuple) => Ok(tuple.iter().collect()),
        Err(_) => Err(PyTypeError::new_err("a list or a tuple is needed")),
    }
}

/// The bytes of a path, an argument or a variable. The kernel ends them at a NUL.
pub(crate) fn text<'a>(of: &'a Bound<'_, PyAny>) -> PyResult<&'a OsStr> {
    let bytes = of.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
    if bytes.contains(&0) {
        return Err(PyValueError::new_err("embedded null byte"));
    }
    Ok(OsStr::from_bytes(bytes))
}

fn numbers<'py, T>(of: Option<Bound<'py, PyAny>>) -> PyResult<Vec<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    match of {
        Some(of) => items(&of)?.iter().map(|item| item.extract::<T>()).collect(),
        None => Ok(Vec::new()),
    }
}

fn resource(number: u32) -> PyResult<Resource> {
    use Resource::*;
    const ALL: [Resource; 16] = [
        Cpu,
        FileSize,
        Data,
        Stack,
        Core,
        Rss,
        Processes,
        OpenFiles,
        LockedMemory,
        AddressSpace,
        FileLocks,
        PendingSignals,
        MessageQueues,
        Nice,
        RealtimePriority,
        RealtimeTime,
    ];
    let found = ALL.into_iter().find(|&r| r as u32 == number);
    found.ok_or_else(|| PyValueError::new_err(format!("rlimits: there is no resource {number}")))
}

fn scheduler(policy: i32, priority: i32) -> PyResult<Scheduler> {
    let wrong = || PyValueError::new_err(format!("scheduler: policy {policy} has no priority {priority}"));
    let real_time = || u8::try_from(priority).map_err(|_| wrong());
    let scheduler = match policy {
        libc::SCHED_FIFO => return real_time().map(Scheduler::Fifo),
        libc::SCHED_RR => return real_time().map(Scheduler::RoundRobin),
        libc::SCHED_OTHER => Scheduler::Other,
        libc::SCHED_BATCH => Scheduler::Batch,
        libc::SCHED_IDLE => Scheduler::Idle,
        _ => return Err(PyValueError::new_err(format!("scheduler: there is no policy {policy}"))),
    };
    if priority == 0 { Ok(scheduler) } else { Err(wrong()) }
}

fn connect(command: &mut Command, number: RawFd, from: RawFd) {
    // Another negative number is a wrong one, which the start refuses.
    let stdio = if from == -1 {
        Stdio::closed()
    } else {
        // SAFETY: as with every number that Python's user passes: that it is open is checked at the
        // start, that it is the right file is the user's to know.
        unsafe { Stdio::from_raw_borrowed(from) }
    };
    command.fd(number, stdio);
}

/// What a child that Python holds owns here. A capsule has it from the start on, so an exception at
/// any point of Python's code closes it.
struct Owned {
    pidfd: Option<OwnedFd>,
    /// It ends when the child has executed its program.
    exec: Option<OwnedFd>,
    /// A start whose end is not known yet.
    pending: Option<forkless::Child>,
}

impl Owned {
    /// What has become of the start; `false` as long as nothing is known.
    fn executed(&mut self) -> Result<bool, SpawnError> {
        let known =
            self.pending.as_mut().map_or(Ok(true), |child| child.has_executed().map_err(SpawnError::from));
        if !matches!(known, Ok(false)) {
            self.let_go();
        }
        known
    }

    fn let_go(&mut self) {
        // Not the child's own drop, which would reap it: Python's object waits by the number.
        if let Some(child) = self.pending.take() {
            drop(child.into_parts());
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.let_go();
    }
}

const OWNED: &CStr = c"forkless.owned";

fn with_owned<T>(owned: &Bound<'_, PyAny>, act: impl FnOnce(&mut Owned) -> T) -> PyResult<T> {
    let capsule = owned.cast::<PyCapsule>().map_err(PyErr::from)?;
    let at = capsule.pointer_checked(Some(OWNED))?.cast::<Mutex<Owned>>();
    // SAFETY: a capsule of this name has been made by `spawn`, and the caller holds it.
    let owned = unsafe { at.as_ref() };
    Ok(act(&mut owned.lock().unwrap_or_else(std::sync::PoisonError::into_inner)))
}

/// Starts a child. On success the answer is its pid, its pidfd (-1 for none), the descriptor that
/// shows the exec after a start that did not wait (else -1), and what owns these descriptors (None
/// where there is nothing to own); of a failed start it is as [`Failed`] has it.
#[pyfunction]
#[pyo3(signature = (
    argv, executables, env, cwd, fds, close_fds, keep, restore_signals, setsid, process_group=-1,
    gid=None, groups=None, uid=None, umask=-1, rlimits=None, pdeathsig=0, no_new_privs=false,
    cgroup=None, nice=None, affinity=None, scheduler=None, setctty=-1, blocking=true, owner=None,
    keep_pidfd=true,
))]
#[expect(clippy::too_many_arguments, reason = "the attributes of a child")]
fn spawn<'py>(
    py: Python<'py>,
    argv: Bound<'py, PyAny>,
    executables: Bound<'py, PyAny>,
    env: Option<Bound<'py, PyAny>>,
    cwd: Option<Bound<'py, PyAny>>,
    fds: Bound<'py, PyAny>,
    close_fds: bool,
    keep: Bound<'py, PyAny>,
    restore_signals: bool,
    setsid: bool,
    process_group: i32,
    gid: Option<u32>,
    groups: Option<Bound<'py, PyAny>>,
    uid: Option<u32>,
    umask: i32,
    rlimits: Option<Bound<'py, PyAny>>,
    pdeathsig: i32,
    no_new_privs: bool,
    cgroup: Option<Bound<'py, PyAny>>,
    nice: Option<i32>,
    affinity: Option<Bound<'py, PyAny>>,
    scheduler: Option<(i32, i32)>,
    setctty: i32,
    blocking: bool,
    owner: Option<Bound<'py, PyAny>>,
    keep_pidfd: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let argv = items(&argv)?;
    let executables = items(&executables)?;
    let Some(first) = executables.first() else {
        return Err(PyValueError::new_err("there is no executable"));
    };
    let mut command = Command::new(text(first)?);
    let files = executables.iter().map(text).collect::<PyResult<Vec<_>>>()?;
    command.as_posixsubprocess().files(files).scripts_without_interpreter(false);
    command.arg0(argv.first().map_or(Ok(OsStr::new("")), text)?);
    for arg in argv.iter().skip(1) {
        command.arg(text(arg)?);
    }
    if let Some(env) = env {
        let entries = items(&env)?;
        command.exact_environment(entries.iter().map(text).collect::<PyResult<Vec<_>>>()?);
    } else {
        // SAFETY: Python changes the environment under the lock that this thread holds.
        unsafe { command.fix_environment() };
    }
    if let Some(cwd) = &cwd {
        command.current_dir(text(cwd)?);
    }
    command.inherit_descriptors(!close_fds);
    for number in numbers::<i32>(Some(keep))? {
        connect(&mut command, number, number);
    }
    // After those that are kept: where both name a number, this connection is meant.
    for (number, from) in numbers::<(i32, i32)>(Some(fds))? {
        connect(&mut command, number, from);
    }
    // SIGPIPE, which Python ignores, and SIGXFSZ (_Py_RestoreSignals, Python/pylifecycle.c).
    command.inherit_signals(!restore_signals);
    if restore_signals {
        command.default_signals(forkless::SigSet::EMPTY.with(libc::SIGXFSZ));
    }
    command.setsid(setsid);
    if process_group >= 0 {
        command.process_group(process_group);
    }
    if let Some(gid) = gid {
        command.gid(gid);
    }
    if groups.is_some() {
        command.groups(&numbers::<u32>(groups)?);
    }
    if let Some(uid) = uid {
        command.uid(uid);
    }
    if let Ok(umask) = u32::try_from(umask) {
        command.umask(umask);
    }
    for (number, soft, hard) in numbers::<(u32, u64, u64)>(rlimits)? {
        command.rlimit(resource(number)?, soft, hard);
    }
    if pdeathsig != 0 {
        command.parent_death_signal(pdeathsig);
    }
    command.no_new_privs(no_new_privs);
    if let Some(cgroup) = &cgroup {
        command.cgroup(text(cgroup)?);
    }
    if let Some(nice) = nice {
        command.nice(nice);
    }
    if affinity.is_some() {
        command.affinity(numbers::<usize>(affinity)?);
    }
    if let Some((policy, priority)) = scheduler {
        command.scheduler(self::scheduler(policy, priority)?);
    }
    if setctty >= 0 {
        command.controlling_terminal(setctty);
    }
    command.without_pidfd(blocking && !keep_pidfd);
    // The command is moved along: dropping it frees memory, for which no lock is needed.
    let started = py.detach(move || match blocking {
        true => match command.spawn() {
            Ok(child) => Ok(Started::running(child)),
            Err(e) => Err(failed(&e)),
        },
        false => match command.spawn_watched() {
            Ok((child, exec)) => Ok(Started::pending(child, exec)),
            Err(e) => Err(failed(&e)),
        },
    });
    match started {
        Ok(started) => started.announce(py, owner.as_ref()),
        Err(failed) => Ok(failed.into_pyobject(py)?.into_any()),
    }
}

/// A child that exists, as Python will hold it.
struct Started {
    pid: i32,
    owned: Owned,
}

impl Started {
    fn running(child: forkless::Child) -> Started {
        let parts = child.into_parts();
        let owned = Owned { pidfd: parts.pidfd, exec: None, pending: None };
        Started { pid: parts.pid as i32, owned }
    }

    fn pending(child: forkless::Child, exec: OwnedFd) -> Started {
        // A copy, since the child keeps its own for its waits. Without one Python's object has
        // none, as where the kernel refuses them.
        let pidfd = child.pidfd().and_then(|fd| fd.try_clone_to_owned().ok());
        let pid = child.id() as i32;
        Started { pid, owned: Owned { pidfd, exec: Some(exec), pending: Some(child) } }
    }

    /// Tells Python. First of all its owner: a signal's handler may run as soon as Python's code
    /// does, and raise, and a child that nobody knows would stay a zombie.
    fn announce<'py>(
        self,
        py: Python<'py>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(owner) = owner {
            owner.setattr("pid", self.pid)?;
            owner.setattr("_child_created", true)?;
        }
        let number = |fd: &Option<OwnedFd>| fd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let (pidfd, exec) = (number(&self.owned.pidfd), number(&self.owned.exec));
        let owned = match (pidfd, exec) {
            (-1, -1) => None,
            _ => Some(PyCapsule::new_with_value(py, Mutex::new(self.owned), OWNED)?),
        };
        Ok((self.pid, pidfd, exec, owned).into_pyobject(py)?.into_any())
    }
}

/// Whether a pending start has executed its program: None while that is not known, True where it
/// has; of a failed start as [`Failed`] has it. A child that failed is reaped.
#[pyfunction]
fn executed<'py>(py: Python<'py>, owned: Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match with_owned(&owned, Owned::executed)? {
        Ok(false) => Ok(None),
        Ok(true) => Ok(Some(true.into_pyobject(py)?.to_owned().into_any())),
        Err(e) => Ok(Some(failed(&e).into_pyobject(py)?.into_any())),
    }
}

/// Hands the pidfd over, whose number the caller knows.
#[pyfunction]
fn detach_pidfd(owned: Bound<'_, PyAny>) -> PyResult<()> {
    let pidfd = with_owned(&owned, |owned| owned.pidfd.take())?;
    // Not closed here any more.
    let _ = pidfd.map(IntoRawFd::into_raw_fd);
    Ok(())
}

/// Closes the descriptor that shows the exec.
#[pyfunction]
fn close_exec_fd(owned: Bound<'_, PyAny>) -> PyResult<()> {
    with_owned(&owned, |owned| owned.exec = None)
}

/// Whether a signal to the process group of a pidfd's process reaches somebody. Before Linux 6.9
/// and where a filter refuses the call it does not.
///
/// Not by `signal.pidfd_send_signal` in Python: its usual answer here is an exception, and an
/// interruption in the midst of one made CPython 3.13 keep the frame, and so the child, for good.
#[pyfunction]
fn reaches_group(pidfd: RawFd) -> bool {
    const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 1 << 2;
    let no_info = null::<libc::siginfo_t>();
    // SAFETY: signal 0 is sent to nobody; the call writes no memory.
    let answer =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, 0, no_info, PIDFD_SIGNAL_PROCESS_GROUP) };
    answer == 0
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::add(module, c"spawn", wrap_pyfunction!(spawn, module)?)?;
    crate::add(module, c"executed", wrap_pyfunction!(executed, module)?)?;
    crate::add(module, c"detach_pidfd", wrap_pyfunction!(detach_pidfd, module)?)?;
    crate::add(module, c"reaches_group", wrap_pyfunction!(reaches_group, module)?)?;
    crate::add(module, c"close_exec_fd", wrap_pyfunction!(close_exec_fd, module)?)
}
