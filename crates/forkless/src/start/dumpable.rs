//! The state of this process that a child may change, and that is put back: the dumpable flag and
//! errno.
#![expect(unsafe_code, reason = "libc's errno, which a child shares")]

use crate::kernel::process_state::PerProcess;
use forkless_sys::{ids, process};
use std::sync::atomic::AtomicI32;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Puts the dumpable flag back that a child's change of credentials clears (`commit_creds`): the
/// flag belongs to the shared memory.
///
/// It stays cleared until the last such child has left. That keeps the child's new user from
/// reading this process through the child. It also stays cleared where the program has changed its
/// own credentials meanwhile, which clears it, too. That the program has cleared it by `prctl`
/// meanwhile cannot be told: the guide says so.
pub(super) struct Dumpable {
    before: Credentials,
}

/// Starts that change credentials just now, and the flag before the first of them.
#[derive(Default)]
struct Holders {
    count: usize,
    flag: i32,
}

fn holders() -> MutexGuard<'static, Holders> {
    static HOLDERS: PerProcess<Mutex<Holders>> = PerProcess::new();
    HOLDERS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

type Credentials = (forkless_sys::Result<[u32; 3]>, forkless_sys::Result<[u32; 3]>);

/// The credentials of this thread. libc changes them in all threads, in this one as soon as its
/// signals are no longer blocked.
fn credentials() -> Credentials {
    (ids::getresuid(), ids::getresgid())
}

impl Dumpable {
    pub(super) fn hold() -> Dumpable {
        let mut holders = holders();
        if holders.count == 0 {
            holders.flag = process::dumpable().unwrap_or(0);
        }
        holders.count += 1;
        Dumpable { before: credentials() }
    }
}

impl Drop for Dumpable {
    fn drop(&mut self) {
        let mut holders = holders();
        holders.count -= 1;
        if credentials() != self.before {
            holders.flag = 0;
        }
        // Only 1 can be set, and 0 and 2 were not lost.
        if holders.count == 0 && holders.flag == 1 && process::dumpable() != Ok(1) {
            let _ = process::set_dumpable(1);
        }
    }
}

/// libc's errno of this thread.
pub(super) fn errno() -> &'static AtomicI32 {
    // SAFETY: always succeeds.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own word; a child that shares the thread pointer runs only while this
    // thread is suspended.
    unsafe { AtomicI32::from_ptr(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program that became another user between a start's clone and its return had
    /// the flag put back.
    #[test]
    fn the_dumpable_flag_stays_cleared_when_the_program_becomes_another_user() {
        // SAFETY: as documented.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: only root can become another user");
            return;
        }
        // SAFETY: the child makes system calls only, and takes a lock that nobody holds.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let _ = process::set_dumpable(1);
            let held = Dumpable::hold();
            let became = ids::setresuid(u32::MAX, 54_321, u32::MAX);
            drop(held);
            let is_cleared = became.is_ok() && process::dumpable() != Ok(1);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_cleared { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: as documented.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }
}
