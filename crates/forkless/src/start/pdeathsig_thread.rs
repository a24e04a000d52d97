//! Starting children from a thread that lives as long as they do.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that created the child ends (`forget_original_parent`, kernel/exit.c), which is not
//! what anybody means by the parent's death. So a start that asks for it from another thread than the first makes a thread, which
//! creates the child and stays until the child has ended.
//!
//! The caller makes that thread for this one start. So the kernel hands on to it, and through it to the child, all that belongs to
//! the calling thread alone: credentials, capabilities, securebits, keyrings, no_new_privs, filters, Landlock, namespaces, the
//! directory and the descriptors where they are the thread's own, scheduling and what later kernels add. A thread that serves
//! several starts would give one caller's to another's child.
#![expect(unsafe_code, reason = "lends the caller's borrows to a thread the caller waits for")]

use crate::error::{SpawnError, Step as At};
use crate::kernel::thread;
use crate::reap::handle as reap;
use crate::start::attempt::{self as start, Request, Started, Until};
use forkless_sys::signal::SigSet;
use forkless_sys::{Errno, process};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Makes the child; its number, where there is one.
type Job = Box<dyn FnOnce() -> Option<i32> + Send>;

/// Between two looks at a child that has stopped.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// What a child is made on: a start needs little.
const STACK: usize = 256 * 1024;

/// As [`start::start_as`], from a thread of the child's own. A new thread's mask is another, so the caller's is handed on.
pub(crate) fn start(request: Request<'_>, caller_mask: SigSet) -> Result<Started, SpawnError> {
    // The thread is the child's parent, so the caller learns here whether the child became the program.
    let request = Request { until: Until::Exec, ..request };
    let (done, result) = channel();
    let job = move || {
        let made = start::start_as(request, caller_mask);
        let pid = made.as_ref().ok().map(|started| started.pid);
        let _ = done.send(made);
        pid
    };
    let job: Box<dyn FnOnce() -> Option<i32> + Send + '_> = Box::new(job);
    // SAFETY: this function does not return before the job has run or been dropped: `recv` ends with either, since the job owns the
    // sending side. So its borrows are not used afterwards.
    let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() -> Option<i32> + Send + '_>, Job>(job) };
    let keep = move || job().into_iter().for_each(until_ended);
    thread::start("forkless-keeper", STACK, keep).map_err(|e| no_thread(&e))?;
    result.recv().unwrap_or_else(|_| {
        Err(SpawnError::new(At::Clone, String::from("the keeper thread is gone"), libc::EAGAIN))
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
    SpawnError::new(At::Clone, String::from(why), errno)
}

/// Until this thread's child has ended, or another thread has reaped it. The status is left alone.
fn until_ended(pid: i32) {
    // Of this thread's own children: so the number can mean another child only where this one is gone.
    let options = process::WEXITED | process::WNOWAIT | process::WNOTHREAD;
    let mut pause = Duration::from_millis(1);
    loop {
        match process::waitid(process::P_PID, pid, options) {
            // Traced by this thread, since a function of the caller's asked for it (PTRACE_TRACEME). It is left to be told to whoever waits,
            // and until it has been, a wait returns at once.
            Ok(info) if reap::is_stop(&info) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Ok(_) | Err(Errno::ECHILD) => return,
            Err(Errno::EINTR) => {}
            // A filter: to return would end the thread, and that would kill the child.
            Err(_) => std::thread::park(),
        }
    }
}
