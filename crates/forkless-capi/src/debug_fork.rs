//! popen-noshell's `FORK` mode, for debugging and comparison: the one place in this project that
//! forks.
//!
//! Not kept of popen-noshell: stdio in the child, which would write the parent's buffers out a
//! second time.
#![expect(unsafe_code, reason = "fork, and a child that makes system calls only")]

use crate::error::Failure;
use crate::ffi::Vector;
use libc::{c_int, pid_t};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Exit codes of popen-noshell's children.
pub(crate) const EXEC_FAILED: c_int = 255;
pub(crate) const BAD_STDERR_MODE: c_int = 254;

/// A program to start.
pub(crate) struct Program<'a> {
    pub(crate) file: &'a CStr,
    pub(crate) argv: Vector<'a>,
    /// Whether the caller reads.
    pub(crate) read: bool,
    pub(crate) stderr_mode: c_int,
}

impl Program<'_> {
    /// Starts it; the caller's end of the pipe, and the child.
    pub(crate) fn start(&self) -> Result<(OwnedFd, pid_t), Failure> {
        let mut ends = [0; 2];
        // SAFETY: room for both ends.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: just made, and owned by nothing else; as the next.
        let reader = unsafe { OwnedFd::from_raw_fd(ends[0]) };
        // SAFETY: as above.
        let writer = unsafe { OwnedFd::from_raw_fd(ends[1]) };
        let (ours, theirs) = if self.read { (reader, writer) } else { (writer, reader) };
        let name = self.file.to_string_lossy();
        let exec_failed = format!("exec {name}: failed in the child, error ");
        let bad_mode = format!("popen_noshell: unknown stderr_mode {}\n", self.stderr_mode);
        // SAFETY: the child makes system calls only, and leaves by exec or _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error().into()),
            0 => self.in_child(theirs.as_raw_fd(), &exec_failed, &bad_mode),
            pid => Ok((ours, pid)),
        }
    }

    /// In the forked child, possibly of a program with threads: nothing here takes a lock.
    fn in_child(&self, pipe: c_int, exec_failed: &str, bad_mode: &str) -> ! {
        let (mine, other) = if self.read { (1, 0) } else { (0, 1) };
        let check = |result: c_int| {
            if result < 0 {
                leave(EXEC_FAILED)
            }
            result
        };
        // The pipe first moves out of the way: it may have the number of a standard stream.
        // SAFETY: this process's own copy of the descriptor; no pointer.
        let pipe = check(unsafe { libc::fcntl(pipe, libc::F_DUPFD_CLOEXEC, 3) });
        // SAFETY: a static path.
        let null = check(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) });
        let onto = |from: c_int, to: c_int| {
            if from == to {
                // SAFETY: no pointer. dup2 would leave close-on-exec set.
                check(unsafe { libc::fcntl(to, libc::F_SETFD, 0) });
            } else {
                // SAFETY: no pointer.
                check(unsafe { libc::dup2(from, to) });
            }
        };
        onto(null, other);
        onto(pipe, mine);
        match self.stderr_mode {
            0 => {}
            1 => onto(null, 2),
            2 => onto(1, 2),
            _ => {
                say(bad_mode.as_bytes());
                leave(BAD_STDERR_MODE)
            }
        }
        // SAFETY: NUL-terminated strings and a vector that ends with NULL.
        unsafe { libc::execvp(self.file.as_ptr(), self.argv.as_ptr()) };
        let errno = crate::guard::errno();
        say(exec_failed.as_bytes());
        say(&decimal(errno));
        leave(EXEC_FAILED)
    }
}

/// A small number and a newline, without allocating.
fn decimal(n: c_int) -> [u8; 4] {
    let digit = |n: c_int| b'0' + (n.rem_euclid(10)) as u8;
    [digit(n / 100), digit(n / 10), digit(n), b'\n']
}

fn say(bytes: &[u8]) {
    // SAFETY: as many bytes as there are.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

fn leave(code: c_int) -> ! {
    // SAFETY: ends this process without the parent's exit handlers and buffers.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_without_allocating() {
        assert_eq!(&decimal(2), b"002\n");
        assert_eq!(&decimal(133), b"133\n");
    }
}
