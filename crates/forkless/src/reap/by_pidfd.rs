//! Waiting for and signalling one child by its pidfd, or by its number where a filter refuses
//! pidfds to these calls.
//!
//! The number is safe while the child has not been reaped: no other process is given it. It can
//! have become another's only where pidfds are refused *and* other code of the process reaps our
//! children. So a signal is sent by number only to a process that is still our child. Whoever has
//! the child's timer (`timer.rs`) asks it before.

use crate::kernel;
use crate::kernel::descriptor::owned;
use crate::kernel::facilities;
use crate::kernel::poll::{poll, timespec};
use forkless_sys::poll::{POLLIN, PollFd};
use forkless_sys::process::{
    self, CLD_STOPPED, CLD_TRAPPED, P_PIDFD, WALL, WEXITED, WNOHANG, WNOWAIT, WaitInfo,
};
use forkless_sys::{Errno, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// `waitid(2)`, or what takes its place; `ECHILD` when the child is not ours to wait for, or no
/// longer.
pub(crate) fn wait(pid: i32, pidfd: Option<&OwnedFd>, options: u32) -> Result<WaitInfo> {
    let facilities = facilities::get();
    if let Some(fd) = pidfd.filter(|_| facilities.wait_pidfd.works()) {
        match process::waitid(P_PIDFD, fd.as_raw_fd(), options) {
            // A filter or a kernel before 5.4 refuses P_PIDFD. With good arguments waitid has no
            // such errors. EBADF: the program has closed the pidfd.
            Err(e) if !kernel::wait::is_answer(e) && e != Errno::EBADF => facilities.wait_pidfd.refuse(e),
            answer => {
                facilities.wait_pidfd.confirm();
                return answer;
            }
        }
    }
    if pidfd.is_some_and(|fd| process::pidfd_send_signal(fd.as_raw_fd(), 0, 0) == Err(Errno::ESRCH)) {
        // Other code has reaped it, so the number can be another child's.
        return Err(Errno::ECHILD);
    }
    kernel::wait::wait(pid, options)
}

/// Whether the child has stopped instead of ended.
///
/// Its tracer, any thread of this process, is told so whatever it waits for (`wait_task_stopped`,
/// kernel/exit.c).
pub(crate) fn is_stop(info: &WaitInfo) -> bool {
    matches!(info.code, CLD_TRAPPED | CLD_STOPPED)
}

/// Whether a child has stopped on its way to its end (`PTRACE_EVENT_EXIT`). Its tracer has to let
/// it go, which may be the thread that asks.
pub(crate) fn is_exit_stop(status: ExitStatus) -> bool {
    const PTRACE_EVENT_EXIT: i32 = 6;
    status.into_raw() >> 16 == PTRACE_EVENT_EXIT
}

/// Waits for the end of a child that is known to be ending, whatever its exit signal, and forgets
/// its status.
pub(crate) fn wait_for_end(pid: i32, pidfd: Option<&OwnedFd>) {
    loop {
        match wait(pid, pidfd, WEXITED | WALL) {
            Err(Errno::EINTR) => {}
            Ok(info) if is_stop(&info) => {}
            _ => return,
        }
    }
}

/// Forgets a child if it has ended, and says whether it has; `options` say whether to wait for
/// that. The news that it has stopped is left to its tracer.
pub(crate) fn forget_ended(pid: i32, pidfd: Option<&OwnedFd>, options: u32) -> Result<bool> {
    let options = match wait(pid, pidfd, WEXITED | WNOWAIT | options) {
        Ok(seen) if seen.pid == 0 || is_stop(&seen) => return Ok(false),
        Ok(_) => WNOHANG,
        Err(e) if kernel::wait::is_answer(e) => return Err(e),
        // Without waitid nobody can look first, and a stop is told here instead of to the tracer.
        Err(_) => options,
    };
    wait(pid, pidfd, WEXITED | options).map(|info| info.pid != 0 && !is_stop(&info))
}

/// Sends a signal to the child; `ESRCH` when it is gone.
pub(crate) fn signal(pid: i32, pidfd: Option<&OwnedFd>, signal: i32) -> Result<()> {
    let facilities = facilities::get();
    if let Some(fd) = pidfd.filter(|_| facilities.signal_pidfd.works()) {
        match process::pidfd_send_signal(fd.as_raw_fd(), signal, 0) {
            // EPERM is also the answer for a child that changed its user. Signal 0 to ourselves
            // tells a filter from that.
            Err(e @ (Errno::EPERM | Errno::ENOSYS)) if send_refused() => facilities.signal_pidfd.refuse(e),
            answer => {
                facilities.signal_pidfd.confirm();
                return answer;
            }
        }
    }
    match wait(pid, pidfd, WEXITED | WNOHANG | WNOWAIT) {
        Err(e) if kernel::wait::is_answer(e) => Err(Errno::ESRCH),
        // Without waitid nobody can look. A pidfd tells of the end, too.
        Err(_) if pidfd.is_some_and(has_ended) => Err(Errno::ESRCH),
        _ => process::kill(pid, signal),
    }
}

/// Whether the process has ended, reaped or not.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut p = [PollFd { fd: pidfd.as_raw_fd(), events: POLLIN, revents: 0 }];
    poll(&mut p, Some(timespec(Duration::ZERO))).is_ok_and(|n| n > 0)
}

/// Tries to wait for and to signal this process by its pidfd. Neither has an effect: it is not its
/// own child, and signal 0 is none.
pub(crate) fn probe(me: &OwnedFd) {
    let facilities = facilities::get();
    match process::waitid(P_PIDFD, me.as_raw_fd(), WEXITED | WNOHANG) {
        Ok(_) | Err(Errno::ECHILD) => facilities.wait_pidfd.confirm(),
        Err(e) => facilities.wait_pidfd.refuse(e),
    }
    match process::pidfd_send_signal(me.as_raw_fd(), 0, 0) {
        Ok(()) => facilities.signal_pidfd.confirm(),
        Err(e) => facilities.signal_pidfd.refuse(e),
    }
}

fn send_refused() -> bool {
    let Ok(me) = process::pidfd_open(process::getpid()) else { return true };
    let me = owned(me);
    process::pidfd_send_signal(me.as_raw_fd(), 0, 0).is_err()
}
