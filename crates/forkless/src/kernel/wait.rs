//! Waiting for a child by its number.
//!
//! A filter may know waitid's predecessor alone: libc's system(3) and waitpid(3) need no more.

use forkless_sys::process::{
    self, CLD_DUMPED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, P_PID, WEXITED, WNOWAIT, WaitInfo,
};
use forkless_sys::{Errno, Result};

/// `waitid(2)`, or `wait4(2)` where that is refused. With `WNOWAIT`, which wait4 does not have, the
/// refusal is the answer.
pub(crate) fn wait(pid: i32, options: u32) -> Result<WaitInfo> {
    match process::waitid(P_PID, pid, options) {
        // With good arguments waitid has no other errors.
        Err(refused) if !is_answer(refused) && options & WNOWAIT == 0 => {
            match process::wait4_status(pid, options & !WEXITED) {
                Ok(Some(status)) => Ok(info(pid, status)),
                Ok(None) => Ok(WaitInfo { pid: 0, code: 0, status: 0 }),
                Err(e) => Err(if is_answer(e) { e } else { refused }),
            }
        }
        answer => answer,
    }
}

/// Whether the kernel answers a wait so, and not a filter.
pub(crate) fn is_answer(e: Errno) -> bool {
    matches!(e, Errno::ECHILD | Errno::EINTR)
}

/// A status word of wait(2) as `waitid` tells it (`wait_task_zombie`, kernel/exit.c).
fn info(pid: i32, status: i32) -> WaitInfo {
    let (code, status) = match (status & 0x7f, status >> 8) {
        (0, code) => (CLD_EXITED, code & 0xff),
        (0x7f, stop) => (CLD_STOPPED, stop),
        (signal, _) => (if status & 0x80 != 0 { CLD_DUMPED } else { CLD_KILLED }, signal),
    };
    WaitInfo { pid, code, status }
}
