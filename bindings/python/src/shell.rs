//! Shell lines: one program started in the place of a shell, and `os.system`.
//!
//! Which lines may be asked about, and what a signal of the caller's means for the status, is said
//! by `python/forkless/_shell.py`.
#![expect(unsafe_code, reason = "the environment of the process; a capsule's value")]

use crate::add;
use forkless::shield::{self, Shield};
use forkless::{LineEnd, SigSet, Stdio, Step, shell};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList};
use std::ffi::{CStr, OsStr, c_int};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The wait status of a shell that could not be executed, as system(3) has it.
const NO_SHELL: c_int = 127 << 8;

/// What system(3) returns where no process can be made. glibc's speaks of it as of a shell that
/// could not be executed (sysdeps/posix/system.c); musl's says -1 to both (src/process/system.c).
const NO_PROCESS: c_int = if cfg!(target_env = "musl") { -1 } else { NO_SHELL };

/// The end of a started line; `None` until it is started.
type Shared = Mutex<Option<LineEnd>>;

/// The name by which Python tells a capsule of a line from any other.
const END: &CStr = c"forkless._forkless.end";

fn lock(shared: &Shared) -> MutexGuard<'_, Option<LineEnd>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shared<'a>(end: &'a Bound<'_, PyCapsule>) -> PyResult<&'a Shared> {
    let value = end.pointer_checked(Some(END))?.cast::<Shared>();
    // SAFETY: only `shell_start` makes capsules of this name, with this type. The value lives as
    // long as the capsule, and changes behind its lock only.
    Ok(unsafe { value.as_ref() })
}

/// A started line: the process's number, the number of the output that gets the shell's words from
/// the caller, and the line's end.
type Started<'py> = (u32, Option<RawFd>, Bound<'py, PyCapsule>);

/// Starts the line, if all that it takes is one program and no shell. Returns None if not: then
/// nothing was started.
///
/// `owner` gets the attributes `pid` and `_child_created` before a signal handler can run.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "what Popen says of a start, by position")]
fn shell_start<'py>(
    py: Python<'py>,
    line: &[u8],
    env: Option<&Bound<'py, PyList>>,
    cwd: Option<&[u8]>,
    stdin: RawFd,
    stdout: RawFd,
    stderr: RawFd,
    close_fds: bool,
    restore_signals: bool,
    reads_stdout: bool,
    reads_stderr: bool,
    owner: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Started<'py>>> {
    let mut how = shell(OsStr::from_bytes(line));
    if let Some(env) = env {
        let entries =
            env.iter().map(|entry| Ok(entry.cast_into::<PyBytes>()?)).collect::<PyResult<Vec<_>>>()?;
        how.exact_env(entries.iter().map(|entry| OsStr::from_bytes(entry.as_bytes())));
    } else {
        // SAFETY: Python changes the environment in attached threads only.
        unsafe { how.fix_environment() };
    }
    if let Some(dir) = cwd {
        how.current_dir(OsStr::from_bytes(dir));
    }
    how.inherit_descriptors(!close_fds).inherit_signals(true);
    if restore_signals {
        // The signals that Python ignores (Python/pylifecycle.c, _Py_RestoreSignals).
        how.default_signals(SigSet::EMPTY.with(libc::SIGPIPE).with(libc::SIGXFSZ));
    }
    // SAFETY: the caller keeps its files open during the call, as Popen does.
    let file = |number: RawFd| (number >= 0).then(|| unsafe { Stdio::from_raw_borrowed(number) });
    if let Some(file) = file(stdin) {
        how.stdin(file);
    }
    if let Some(file) = file(stdout) {
        how.stdout(file);
    }
    if let Some(file) = file(stderr) {
        how.stderr(file);
    }
    // Made first: nothing may fail once there is a child.
    let end = PyCapsule::new_with_value(py, Shared::new(None), END)?;
    let read: Vec<RawFd> = [(1, reads_stdout), (2, reads_stderr)]
        .into_iter()
        .filter(|(_, reads)| *reads)
        .map(|(n, _)| n)
        .collect();
    let Some((child, its_end)) = py.detach(|| how.spawn_alone(&read)) else { return Ok(None) };
    let words_go_to = its_end.words_go_to();
    *lock(shared(&end)?) = Some(its_end);
    if let Some(owner) = owner {
        owner.setattr("pid", child.pid)?;
        owner.setattr("_child_created", true)?;
    }
    Ok(Some((child.pid, words_go_to, end)))
}

/// The shell's wait status for a program that ended with `status`. Where the shell would say that
/// the program was killed, this says it.
#[pyfunction]
fn shell_end(py: Python<'_>, end: &Bound<'_, PyCapsule>, status: c_int) -> PyResult<c_int> {
    let end = shared(end)?;
    let take = || lock(end).as_mut().map_or(status, |end| end.take(ExitStatus::from_raw(status)).into_raw());
    Ok(py.detach(take))
}

/// The shell's words about a program that ended with `status`, or None.
#[pyfunction]
fn shell_message(py: Python<'_>, end: &Bound<'_, PyCapsule>, status: c_int) -> PyResult<Option<String>> {
    let end = shared(end)?;
    Ok(py.detach(|| lock(end).as_ref().and_then(|end| end.message(ExitStatus::from_raw(status)))))
}

/// In a forked process none of the calls waits that its parent had waiting.
///
/// The shield's lock is taken by attached threads only, and never over a wait. Python forks in an
/// attached thread, and stops the others first where there are several, so no child finds it taken.
fn forget_calls_of_a_parent() {
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    let own = process::id();
    let mut waiting = shield::waiting();
    if PROCESS.swap(own, Ordering::Relaxed) != own {
        waiting.forget();
    }
}

/// system(3): runs the line and returns its wait status, or -1.
#[pyfunction]
fn shell_system(py: Python<'_>, line: &[u8]) -> c_int {
    let mut how = shell(OsStr::from_bytes(line));
    // SAFETY: Python changes the environment in attached threads only.
    unsafe { how.fix_environment() };
    how.inherit_descriptors(true).inherit_signals(true);
    forget_calls_of_a_parent();
    let shield = Shield::raise();
    shield.original.apply(&mut how);
    let status = py.detach(|| how.status());
    drop(shield);
    match status {
        Ok(status) => status.into_raw(),
        Err(e) if e.step() == Step::Exec => NO_SHELL,
        Err(e) if e.step() == Step::Wait => -1,
        Err(_) => NO_PROCESS,
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add(module, c"shell_start", wrap_pyfunction!(shell_start, module)?)?;
    add(module, c"shell_end", wrap_pyfunction!(shell_end, module)?)?;
    add(module, c"shell_message", wrap_pyfunction!(shell_message, module)?)?;
    add(module, c"shell_system", wrap_pyfunction!(shell_system, module)?)
}
