//! Creating a child from a thread that lives as long as the child does.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that created the child ends
//! (`forget_original_parent`, kernel/exit.c). Nobody means that by the parent's death. So a start
//! that asks for the signal from another thread than the first makes a thread, which creates the
//! child and stays until it has ended.
//!
//! The caller makes that thread for this one start. So the kernel hands on to it, and through it to
//! the child, all that belongs to the calling thread alone: credentials, capabilities, securebits,
//! keyrings, no_new_privs, filters, Landlock, namespaces, scheduling, the directory and the
//! descriptors where they are the thread's own, and what later kernels add. A thread that serves
//! several starts would give one caller's to another's child.
#![expect(unsafe_code, reason = "lends the caller's borrows to a thread the caller waits for")]

use crate::error::{SpawnError, Step};
use crate::kernel::thread;
use crate::reap::by_pidfd;
use forkless_sys::{Errno, process};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Creates the child; returns its number, where there is one.
type Job = Box<dyn FnOnce() -> Option<i32> + Send>;

/// Between two looks at a child that has stopped.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The stack of the thread: a start needs little.
const STACK: usize = 256 * 1024;

/// Calls `create` in a thread of the child's own, which lives until the child that it names has
/// ended.
pub(super) fn create<T: Send>(
    create: impl FnOnce() -> Result<(i32, T), SpawnError> + Send,
) -> Result<T, SpawnError> {
    let (done, result) = channel();
    let job = move || match create() {
        Ok((pid, created)) => {
            let _ = done.send(Ok(created));
            Some(pid)
        }
        Err(e) => {
            let _ = done.send(Err(e));
            None
        }
    };
    let job: Box<dyn FnOnce() -> Option<i32> + Send + '_> = Box::new(job);
    // SAFETY: this function does not return before the job has run or been dropped: `recv` ends
    // with either, since the job owns the sending side. So its borrows are not used afterwards.
    let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() -> Option<i32> + Send + '_>, Job>(job) };
    let create_and_stay = move || job().into_iter().for_each(stay_until_ended);
    thread::start("forkless-pdeath", STACK, create_and_stay).map_err(|e| no_thread(&e))?;
    result.recv().unwrap_or_else(|_| {
        let what = String::from("the thread for the parent death signal is gone");
        Err(SpawnError::new(Step::Clone, what, libc::EAGAIN))
    })
}

fn no_thread(e: &std::io::Error) -> SpawnError {
    let errno = e.raw_os_error().unwrap_or(libc::EAGAIN);
    // copy_process (kernel/fork.c) refuses it, since a process is in one PID namespace.
    let why = if errno == libc::EINVAL {
        "thread for the parent death signal; a thread that has changed the PID namespace of its children can make none: \
         start the child from the first thread"
    } else {
        "thread for the parent death signal"
    };
    SpawnError::new(Step::Clone, String::from(why), errno)
}

/// Returns when this thread's child has ended, or another thread has reaped it. The status is left
/// alone.
fn stay_until_ended(pid: i32) {
    // Only children of this thread are waited for. So the number can mean another child only where
    // this one is gone.
    let options = process::WEXITED | process::WNOWAIT | process::WNOTHREAD;
    let mut pause = Duration::from_millis(1);
    loop {
        match process::waitid(process::P_PID, pid, options) {
            // This thread traces the child, since a function of the caller's asked for it
            // (PTRACE_TRACEME). The stop is left to be told to the caller's wait. Until it has been
            // told, a wait returns at once.
            Ok(info) if by_pidfd::is_stop(&info) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Ok(_) | Err(Errno::ECHILD) => return,
            Err(Errno::EINTR) => {}
            // A filter. To return would end the thread, and that would kill the child. A wait by
            // another call would take its status. Once that is taken there is no such process.
            Err(_) if process::kill(pid, 0) == Err(Errno::ESRCH) => return,
            Err(_) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
