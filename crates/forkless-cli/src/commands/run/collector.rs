//! The process that waits for PROGRAM's end and prints the report. `run` itself becomes PROGRAM, so somebody else must.
//!
//! It is forked twice, so that PROGRAM has no child it did not make; leads a session of its own, so that the terminal's signals are
//! not its; and holds no descriptor but the report's, so that it keeps no pipe open.
#![expect(unsafe_code, reason = "forks this single-threaded process")]

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::record::RecordFile;
use super::report;

/// Starts the collector for the process that calls it, which goes on to execute PROGRAM.
pub(super) fn start(record: RecordFile) -> anyhow::Result<()> {
    let root = pidfd_open(getpid(), PidfdFlags::empty())?;
    let result = twice(|| {
        collect(&record, root.as_fd());
    });
    // The descriptors close at exec (std and pidfd_open set close-on-exec).
    std::mem::forget(record);
    Ok(result?)
}

/// Runs `f` in a grandchild. Only this thread exists, so the grandchild may do what it likes.
fn twice(f: impl FnOnce()) -> std::io::Result<()> {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            // SAFETY: as above.
            if unsafe { libc::fork() } == 0 {
                f();
            }
            // SAFETY: ends without running anybody's destructors twice.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child just made.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            Ok(())
        }
    }
}

fn collect(file: &RecordFile, root: BorrowedFd<'_>) {
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let keep = [file.output.as_raw_fd(), root.as_raw_fd()];
    for fd in 0..3 {
        if !keep.contains(&fd) {
            // SAFETY: nothing in this process uses it any more.
            unsafe { libc::close(fd) };
        }
    }
    close_others(keep);
    // The library of the root process says when it is about to exit, and waits for us; a process that is killed says nothing.
    let record = file.record();
    let began = Instant::now();
    loop {
        if record.is_done() {
            break;
        }
        // Often enough that a program that exits by itself hardly waits, rarely enough to cost nothing.
        let pause = if began.elapsed() < Duration::from_secs(1) { 5 } else { 50 };
        let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: pause * 1_000_000 };
        match poll(&mut [PollFd::new(&root, PollFlags::IN)], Some(&time)) {
            Ok(0) => {}
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    file.remove();
    let _ = report::write(record, &file.output, file.json);
    record.set_rendered();
}

/// Descriptors PROGRAM's starter left open must not be held by us.
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
