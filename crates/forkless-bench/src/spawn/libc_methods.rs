//! The methods that every system gives a C program: vfork, posix_spawn, fork, system, popen.

#![expect(unsafe_code, reason = "the workloads are the C functions themselves")]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::Arc;

use libc::{c_char, c_int, c_long, pid_t};

use super::raw::vfork_exec;
use super::worker::{Lap, SpawnedProgram, Worker, environment, finish, fork_exec, pipe, reap};
use crate::clock::now;
use crate::error::Error;

/// `vfork_exec` and `vfork_exec_pipes`.
pub(super) struct Vfork {
    pub(super) target: Arc<SpawnedProgram>,
    pub(super) piped: bool,
}

impl Vfork {
    #[inline]
    fn start(&self, stdout: c_int) -> Result<pid_t, Error> {
        let argv = self.target.argv();
        let mut failure: c_int = 0;
        // SAFETY: the path and vectors outlive the call; no signal handler is installed while a
        // suite runs.
        let pid: c_long = unsafe {
            vfork_exec(self.target.path.as_ptr(), argv.as_ptr(), environment(), stdout, &raw mut failure)
        };
        let pid = pid_t::try_from(pid).unwrap_or(-1);
        if pid < 0 {
            return Err(Error::errno("vfork", -pid));
        }
        // SAFETY: `failure` is a local; volatile because the compiler does not see the child write
        // to it.
        let failure = unsafe { ptr::read_volatile(&raw const failure) };
        if failure != 0 {
            reap(pid, 0)?;
            return Err(Error::errno("exec the child program after vfork", failure));
        }
        Ok(pid)
    }
}

impl Worker for Vfork {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        if !self.piped {
            let pid = self.start(-1)?;
            return finish("vfork_exec", start, now(), pid, None);
        }
        let (read, write) = pipe()?;
        let pid = self.start(write.as_raw_fd())?;
        let returned = now();
        drop(write);
        finish("vfork_exec_pipes", start, returned, pid, Some(read))
    }
}

/// `posix_spawn` and `posix_spawn_pipes`.
pub(super) struct PosixSpawn {
    pub(super) target: Arc<SpawnedProgram>,
    pub(super) piped: bool,
}

impl PosixSpawn {
    fn start(&self, actions: *const libc::posix_spawn_file_actions_t) -> Result<pid_t, Error> {
        let argv = self.target.argv();
        let mut pid = 0;
        // SAFETY: path and vectors are valid; `actions` is null or initialised. posix_spawn takes
        // `char *const *` for historical reasons and does not write through it.
        let errno = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                self.target.path.as_ptr(),
                actions,
                ptr::null(),
                argv.as_ptr().cast(),
                environment().cast(),
            )
        };
        if errno == 0 { Ok(pid) } else { Err(Error::errno("posix_spawn", errno)) }
    }
}

impl Worker for PosixSpawn {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        if !self.piped {
            let pid = self.start(ptr::null())?;
            return finish("posix_spawn", start, now(), pid, None);
        }
        let (read, write) = pipe()?;
        let mut actions = FileActions::new()?;
        actions.dup2(write.as_raw_fd(), 1)?;
        let pid = self.start(actions.as_ptr())?;
        drop(actions);
        let returned = now();
        drop(write);
        finish("posix_spawn_pipes", start, returned, pid, Some(read))
    }
}

/// `posix_spawn_file_actions_t` that destroys itself.
pub(super) struct FileActions(MaybeUninit<libc::posix_spawn_file_actions_t>);

impl FileActions {
    pub(super) fn new() -> Result<FileActions, Error> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the call initialises the memory it is given.
        let errno = unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
        FileActions::checked(errno)?;
        Ok(FileActions(actions))
    }

    pub(super) fn dup2(&mut self, from: c_int, to: c_int) -> Result<(), Error> {
        // SAFETY: initialised in `new`.
        FileActions::checked(unsafe { libc::posix_spawn_file_actions_adddup2(self.0.as_mut_ptr(), from, to) })
    }

    #[cfg(target_os = "linux")]
    pub(super) fn close(&mut self, descriptor: c_int) -> Result<(), Error> {
        // SAFETY: initialised in `new`.
        FileActions::checked(unsafe {
            libc::posix_spawn_file_actions_addclose(self.0.as_mut_ptr(), descriptor)
        })
    }

    #[cfg(target_os = "linux")]
    pub(super) fn open_null(&mut self, descriptor: c_int) -> Result<(), Error> {
        let path = c"/dev/null".as_ptr();
        // SAFETY: initialised in `new`; the path is a static string.
        FileActions::checked(unsafe {
            libc::posix_spawn_file_actions_addopen(self.0.as_mut_ptr(), descriptor, path, libc::O_RDWR, 0o600)
        })
    }

    pub(super) fn as_ptr(&self) -> *const libc::posix_spawn_file_actions_t {
        self.0.as_ptr()
    }

    fn checked(errno: c_int) -> Result<(), Error> {
        if errno == 0 { Ok(()) } else { Err(Error::errno("prepare posix_spawn's file actions", errno)) }
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and destroyed only here.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

/// `fork_exec`.
pub(super) struct Fork {
    pub(super) target: Arc<SpawnedProgram>,
}

impl Worker for Fork {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        let pid = fork_exec(&self.target)?;
        finish("fork_exec", start, now(), pid, None)
    }
}

/// `system`. The caller is blocked all the way: both times are the same.
pub(super) struct System {
    pub(super) target: Arc<SpawnedProgram>,
    pub run: fn(&CStr) -> c_int,
    pub(super) name: &'static str,
}

/// libc's function.
pub(super) fn libc_system(line: &CStr) -> c_int {
    // SAFETY: a NUL-terminated string.
    unsafe { libc::system(line.as_ptr()) }
}

impl Worker for System {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        let status = (self.run)(&self.target.command);
        let reaped = now();
        if status == -1 {
            return Err(Error::last_os(format!("{}()", self.name)));
        }
        raise_interruption(status);
        Error::check_status(self.name, status)?;
        Ok(Lap { start, returned: reaped, reaped })
    }
}

/// Takes a line's death by the keyboard's signal for this process's, too. system(3) ignores SIGINT
/// and SIGQUIT while it waits: Ctrl-C ends the line, and the measurement would go on.
fn raise_interruption(status: c_int) {
    let signal = libc::WTERMSIG(status);
    if libc::WIFSIGNALED(status) && [libc::SIGINT, libc::SIGQUIT].contains(&signal) {
        // SAFETY: any signal may be raised; its action is the process's own.
        unsafe { libc::raise(signal) };
    }
}

/// `popen` and `forkless_popen`: the functions that open and close.
pub(super) struct Popen {
    pub(super) target: Arc<SpawnedProgram>,
    pub(super) open: fn(&CStr) -> *mut libc::FILE,
    /// Called once, with what `open` gave.
    pub(super) close: unsafe extern "C" fn(*mut libc::FILE) -> c_int,
    pub(super) name: &'static str,
}

/// libc's function. "e" keeps other children from inheriting the pipe; macOS does not know it.
pub(super) fn libc_popen(line: &CStr) -> *mut libc::FILE {
    let mode = if cfg!(target_os = "macos") { c"r" } else { c"re" };
    // SAFETY: command and mode are NUL-terminated strings.
    unsafe { libc::popen(line.as_ptr(), mode.as_ptr()) }
}

impl Worker for Popen {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        let stream = (self.open)(&self.target.command);
        let returned = now();
        if stream.is_null() {
            return Err(Error::last_os(format!("{}()", self.name)));
        }
        let read = read_stream(stream);
        // SAFETY: the stream came from the function that goes with it, and is closed once.
        let status = unsafe { (self.close)(stream) };
        let reaped = now();
        read?;
        if status == -1 {
            return Err(Error::last_os(format!("closing the stream of {}()", self.name)));
        }
        Error::check_status(self.name, status)?;
        Ok(Lap { start, returned, reaped })
    }
}

/// Reads a stdio stream to its end, as the users of popen do.
pub(super) fn read_stream(stream: *mut libc::FILE) -> Result<(), Error> {
    let mut line = [0 as c_char; 128];
    // SAFETY: the stream is open, the buffer as long as said.
    while !unsafe { libc::fgets(line.as_mut_ptr(), 128, stream) }.is_null() {}
    // SAFETY: the stream is still open.
    if unsafe { libc::ferror(stream) } != 0 {
        return Err(Error::Os { step: "read a child's output".into(), source: io::Error::last_os_error() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static SEEN: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count(_: c_int) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_line_that_an_interruption_ends_interrupts_its_caller() {
        // SAFETY: the handler only counts.
        let before = unsafe { libc::signal(libc::SIGQUIT, count as *const () as libc::sighandler_t) };
        let of_the_line = |line: &CStr| {
            let target = SpawnedProgram { path: line.to_owned(), command: line.to_owned() };
            let lap = System { target: Arc::new(target), run: libc_system, name: "system" }.spawn();
            (lap.is_err(), SEEN.swap(0, Ordering::Relaxed))
        };
        // The shell alone dies; this process gets no signal from anywhere else.
        assert_eq!(of_the_line(c"ulimit -c 0; kill -QUIT $$"), (true, 1));
        assert_eq!(of_the_line(c"kill -TERM $$"), (true, 0));
        assert_eq!(of_the_line(c"exit 3"), (true, 0));
        assert_eq!(of_the_line(c"exit 0"), (false, 0));
        // SAFETY: the action of before.
        unsafe { libc::signal(libc::SIGQUIT, before) };
    }
}
