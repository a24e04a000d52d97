//! A method as the suite sees it: it starts the child once and times it. The workloads share a few
//! system calls, so that all of them wait and read in the same way.

#![expect(unsafe_code, reason = "waitpid, pipe2, read and environ")]

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::Arc;

use libc::{c_char, c_int, pid_t};

use crate::clock::now;
use crate::error::Error;
use crate::program::Program;

/// One child, from before it is made until after it is reaped, in nanoseconds of the monotonic
/// clock.
#[derive(Debug, Clone, Copy)]
pub struct Lap {
    /// Before the first thing a method does for this child, its pipe included.
    pub start: u64,
    /// When the call that makes the child has returned.
    pub(crate) returned: u64,
    /// When the child's output is read to its end, if it has a pipe, and the child is reaped.
    pub(crate) reaped: u64,
}

/// A method ready to be repeated in one thread.
pub trait Worker: Send {
    /// Starts the child, waits for it, and judges its status.
    fn spawn(&mut self) -> Result<Lap, Error>;
}

/// The program to start, in the forms the methods need it.
#[derive(Debug)]
pub struct SpawnedProgram {
    /// The program's path.
    pub path: CString,
    pub(crate) command: CString,
}

impl SpawnedProgram {
    /// The forms of a prepared program.
    pub fn new(program: &Program) -> Arc<SpawnedProgram> {
        Arc::new(SpawnedProgram { path: program.path().clone(), command: program.command().clone() })
    }

    /// The program at a path that another process prepared.
    pub(crate) fn at(path: &[u8]) -> Result<Arc<SpawnedProgram>, Error> {
        let path = CString::new(path).map_err(|_| Error::Spec("a path with a NUL".into()))?;
        Ok(Arc::new(SpawnedProgram { command: path.clone(), path }))
    }

    /// The argument vector: the program's path alone.
    pub(crate) fn argv(&self) -> [*const c_char; 2] {
        [self.path.as_ptr(), ptr::null()]
    }
}

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// The environment all methods hand on: this process's own.
#[inline]
pub(crate) fn environment() -> *const *const c_char {
    // SAFETY: the suite changes no environment variable while it measures, and nobody else may (as
    // std says of set_var).
    unsafe { environ }
}

/// Reaps a child; `flags` as of waitpid.
#[inline]
pub fn reap(pid: pid_t, flags: c_int) -> Result<c_int, Error> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is writable; `pid` is a child of this process that nobody else waits
        // for.
        if unsafe { libc::waitpid(pid, &raw mut status, flags) } == pid {
            return Ok(status);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(Error::Os { step: "wait for a child".into(), source: error });
        }
    }
}

/// Forks; the child does `work` and exits with the status it gives.
///
/// # Safety
/// `work` calls only async-signal-safe functions: the child has one thread and whatever locks
/// others held.
#[inline]
pub(crate) unsafe fn fork(work: impl FnOnce() -> c_int) -> Result<pid_t, Error> {
    // SAFETY: the caller answers for what the child does.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = work();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(status) };
    }
    if pid < 0 { Err(Error::last_os("fork")) } else { Ok(pid) }
}

/// Forks a child that becomes the target's program.
#[inline]
pub(crate) fn fork_exec(target: &SpawnedProgram) -> Result<pid_t, Error> {
    let argv = target.argv();
    let exec = || {
        // SAFETY: path and vectors are valid; the child has its own copy of the memory they are in.
        unsafe { libc::execve(target.path.as_ptr(), argv.as_ptr(), environment()) };
        127
    };
    // SAFETY: the child calls only execve, which is async-signal-safe.
    unsafe { fork(exec) }
}

/// The second half of a lap: reads the child's output to its end, where it has a pipe, reaps the
/// child and judges it.
#[inline]
pub fn finish(
    method: &str,
    start: u64,
    returned: u64,
    pid: pid_t,
    output: Option<OwnedFd>,
) -> Result<Lap, Error> {
    if let Some(pipe) = output {
        drain(&pipe)?;
    }
    let status = reap(pid, 0)?;
    let reaped = now();
    Error::check_status(method, status)?;
    Ok(Lap { start, returned, reaped })
}

/// A close-on-exec pipe: read end, write end.
#[inline]
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let mut ends = [-1; 2];
    if new_pipe(&mut ends) != 0 {
        return Err(Error::last_os("make a pipe"));
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    let read = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let write = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    Ok((read, write))
}

#[cfg(not(target_os = "macos"))]
#[inline]
fn new_pipe(ends: &mut [c_int; 2]) -> c_int {
    // SAFETY: `ends` has room for the two descriptors the call writes.
    unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }
}

/// macOS has no pipe2. A child that another thread starts between these calls inherits the ends,
/// and with them the wait for its end; it is as short as the others.
#[cfg(target_os = "macos")]
fn new_pipe(ends: &mut [c_int; 2]) -> c_int {
    // SAFETY: `ends` has room for the two descriptors the call writes.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return -1;
    }
    for &mut end in ends {
        // SAFETY: a descriptor made above.
        unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    0
}

/// Reads until the end of file and returns the number of bytes.
#[inline]
pub(crate) fn drain(pipe: &OwnedFd) -> Result<usize, Error> {
    let mut buffer = [0_u8; 4096];
    let mut total = 0;
    loop {
        // SAFETY: the buffer is writable for its whole length.
        let count = unsafe { libc::read(pipe.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(count) {
            Ok(0) => return Ok(total),
            Ok(count) => total += count,
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EINTR) {
                    return Err(Error::Os { step: "read a child's output".into(), source: error });
                }
            }
        }
    }
}
