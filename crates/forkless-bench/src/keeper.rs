//! A process that keeps another program, and everything that one starts, from outliving the measurement.
//!
//! Servers and their workers would live on when the measuring process is killed: a signal on its parent's death reaches a
//! program, but not the programs it has started. The keeper is the subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`) of all of
//! them, so that orphans become its own children; it holds the read end of a pipe whose other end only the measuring process
//! has, and when that closes, for whatever reason, it ends and reaps all it has. It signals its own children only, whose
//! numbers nobody else can have got meanwhile.
//!
//! As [`guard`](crate::guard) does, this library leaves it to its caller how to start itself as a program.

#![expect(unsafe_code, reason = "prctl, poll, pidfd_open, waitpid and kill")]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How the program hears that it is to end.
///
/// ```
/// use forkless_bench::keeper::Ending;
/// // Apache ends by a signal, a program of the bench at the end of its input.
/// assert_ne!(Ending::Terminate, Ending::Input);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its standard input, the pipe, comes to an end.
    Input,
    /// By SIGTERM; its standard input is `/dev/null`.
    Terminate,
}

/// How long a program may take to end when told to.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long what it leaves behind may take: a report being written, workers of a server.
const REST: Duration = Duration::from_millis(500);

/// Runs the program until it ends or the pipe on standard input is hung up, then ends what is left of it. Returns the status to
/// exit with: the program's own, 128 and the number of the signal that killed it, or 127 if it could not be started.
///
/// ```
/// use forkless_bench::keeper::{Ending, keep};
/// let status = keep(Ending::Terminate, &"sh".into(), &["-c".into(), "exit 3".into()]);
/// # // Where standard input is at its end at once, the program may have been told to end first.
/// assert!(status == 3 || status == 128 + 15);
/// ```
pub fn keep(ending: Ending, program: &OsString, arguments: &[OsString]) -> u8 {
    // SAFETY: affects which process adopts this one's orphaned descendants.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut command = Command::new(program);
    // A group of its own: servers end by a signal to their whole group (Apache does), which is not to reach the keeper.
    command.args(arguments).process_group(0);
    if ending == Ending::Terminate {
        command.stdin(Stdio::null());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("forkless: cannot start {}: {error}", program.display());
            return 127;
        }
    };
    let pid = child.id().cast_signed();
    if !ended_before_the_pipe(pid) {
        if ending == Ending::Terminate {
            // SAFETY: a child of this process that has not been waited for.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Has no effect on a child that was waited for.
        let _ = child.kill();
    }
    let status = child.wait();
    end_the_rest();
    status.map_or(127, code)
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Waits for the program's end (true) or the pipe's (false).
fn ended_before_the_pipe(pid: i32) -> bool {
    // SAFETY: takes a pid and flags.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(fd) = i32::try_from(fd) else { return true };
    if fd < 0 {
        // Before Linux 5.3: the pipe alone tells, and a program that ends by itself is found at the end of the suite.
        return poll(&mut [watched(0, 0)]).is_err();
    }
    // SAFETY: a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(fd) };
    // No events asked for: a hang-up is reported all the same, and what the pipe holds is the program's to read.
    let mut both = [watched(0, 0), watched(pidfd.as_raw_fd(), libc::POLLIN)];
    if poll(&mut both).is_err() {
        return false;
    }
    both[1].revents != 0
}

fn watched(fd: i32, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

fn poll(watched: &mut [libc::pollfd]) -> io::Result<()> {
    loop {
        // SAFETY: the pointer and the length are those of one slice.
        let ready = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, -1) };
        if ready > 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Waits for a moment for descendants that end by themselves, then kills until none is left.
fn end_the_rest() {
    let end = Instant::now() + REST;
    loop {
        // SAFETY: reaps any child; no status is asked for.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            -1 => return,
            0 => {
                if Instant::now() >= end {
                    children().into_iter().for_each(|child| {
                        // SAFETY: a child that has not been waited for, so its number is still its own.
                        unsafe { libc::kill(child, libc::SIGKILL) };
                    });
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => {}
        }
    }
}

/// This process's children: by the kernel's list, or where it is not built in (`CONFIG_PROC_CHILDREN`) by everybody's parent.
fn children() -> Vec<i32> {
    let own = std::process::id();
    if let Ok(list) = fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        return list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The second field is the program's name in parentheses, which may hold anything.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent == Some(own)
    };
    numbers.filter(is_child).collect()
}
