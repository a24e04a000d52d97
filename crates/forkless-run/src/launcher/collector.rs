//! The collector: the process that waits for the program's end and writes the report. The launching
//! process becomes the program, so another process must.
//!
//! The collector is forked twice, so that the program has no child it did not make. It leads a
//! session of its own, so that the terminal's signals do not reach it. It holds no descriptor but
//! the report's, so that it keeps no pipe open.
#![expect(unsafe_code, reason = "forks this single-threaded process")]

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use super::environment;
use super::record_file::RecordFile;
use super::report::{Destination, Report};

/// Whether a collector may be started here. Its first process would be the init of a new PID
/// namespace, and end it: every fork of the program would fail.
pub(super) fn can_start() -> std::io::Result<()> {
    if environment::children_stay() == Some(false) {
        return Err(std::io::Error::other("children get a new PID namespace, which the collector would end"));
    }
    Ok(())
}

/// Starts the collector for the process that calls it, which goes on to execute the program.
pub(super) fn start(
    record: RecordFile,
    destination: &Destination,
    render: impl Fn(&Report) -> String,
) -> std::io::Result<()> {
    can_start()?;
    let pid = getpid();
    let root = pidfd_open(pid, PidfdFlags::empty())?;
    twice(|| {
        collect(&record, pid, root.as_fd(), destination, &render);
    })?;
    // The collector removes it.
    std::mem::forget(record);
    Ok(())
}

/// Runs `f` in a grandchild. Only this thread exists, so the grandchild may do what it likes.
fn twice(f: impl FnOnce()) -> std::io::Result<()> {
    // Not by libc: the program may block SIGCHLD, and would find one waiting. A child without an
    // exit signal ends without one.
    // SAFETY: this process has one thread, and the child has a copy of the memory.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            // Not by libc here either: musl makes the call `fork`, and the trial cannot try it
            // without making a process.
            // SAFETY: as above.
            let code = match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
                -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN),
                0 => {
                    f();
                    0
                }
                _ => 0,
            };
            // SAFETY: ends without running destructors, which this process's parent has to run.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child just made.
            unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, libc::__WALL) };
            match status {
                0 => Ok(()),
                // A limit of processes may have had room for the first alone.
                _ if libc::WIFEXITED(status) => {
                    Err(std::io::Error::from_raw_os_error(libc::WEXITSTATUS(status)))
                }
                _ => Err(std::io::Error::from_raw_os_error(libc::EAGAIN)),
            }
        }
    }
}

fn collect(
    file: &RecordFile,
    pid: Pid,
    root: BorrowedFd<'_>,
    destination: &Destination,
    render: &impl Fn(&Report) -> String,
) {
    let write = || {
        // Before the files are gone: some are of other users, and not mapped here.
        let report = file.report();
        file.remove();
        let _ = destination.write(&render(&report));
    };
    // A report that cannot be written is the end of the report alone: the program waits for an
    // answer.
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let keep = [destination.as_raw_fd(), root.as_raw_fd()];
    for fd in 0..3 {
        if !keep.contains(&fd) {
            // SAFETY: nothing in this process uses it any more.
            unsafe { libc::close(fd) };
        }
    }
    close_others(keep);
    let record = file.record();
    let began = Instant::now();
    // When, and what the root's record said then.
    let mut written: Option<(Instant, Report)> = None;
    // The library of the root process says when that is about to end. It waits for an answer
    // without a system call, which the program may have forbidden itself. A process that is killed
    // says nothing.
    loop {
        if let Some(ending) = record.announced() {
            let is_the_roots = record.is_certain() || !waits_for_a_child(pid);
            // A child that has waited for long takes its end back before its parent goes on.
            if record.announced() == Some(ending) {
                // Written again, where an earlier end was that of a process which shared the root's
                // memory.
                if is_the_roots {
                    write();
                    written = Some((Instant::now(), Report::of(record)));
                }
                record.answer(ending);
            }
        }
        // Often enough that a program that ends by itself hardly waits, rarely enough to cost
        // nothing.
        let pause = if began.elapsed() < Duration::from_secs(1) { 5 } else { 10 };
        let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: pause * 1_000_000 };
        match poll(&mut [PollFd::new(&root, PollFlags::IN)], Some(&time)) {
            Ok(0) => {}
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    // Where the root lived on after a report, and counted, a process that shared its memory had
    // announced an end. An end that is only slow (under valgrind) is none of these.
    let lived_on =
        |(at, said): (Instant, Report)| at.elapsed() > Duration::from_secs(1) && said != Report::of(record);
    if written.is_none_or(lived_on) {
        write();
    }
}

/// Whether a thread of a process is suspended until a child that shares its memory executes a
/// program or ends (`vfork`, which waits in state D: kernel/fork.c, `wait_for_vfork_done`). Then
/// that child may have announced an end by `_exit`.
fn waits_for_a_child(pid: Pid) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    })
}

/// Closes what the program's starter left open: the collector must not hold it.
fn close_others(keep: [i32; 2]) {
    let mut keep = keep;
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep {
        if fd >= from {
            // SAFETY: nothing in this process uses the range.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
            from = fd + 1;
        }
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, from, u32::MAX, 0) };
}
