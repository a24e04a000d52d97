//! Children nobody holds a handle of any more, reaped when they end, so that none stays a zombie.
//!
//! One thread, with every signal blocked, which exists only while there are such children. Where a thread cannot be made (glibc's
//! pthread_create fails where a filter says EPERM to clone3) they are reaped on later occasions instead: at each further drop and start.

use crate::own;
use crate::reap;
use crate::thread;
use forkless_sys::poll::{self, POLLIN, PollFd};
use forkless_sys::process::{WEXITED, WNOHANG};
use forkless_sys::{Errno, fd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, PoisonError};

struct Orphan {
    pid: i32,
    pidfd: Option<OwnedFd>,
}

#[derive(Default)]
pub(crate) struct Home {
    waiting: Vec<Orphan>,
    /// Writing to it tells the thread to look again.
    bell: Option<OwnedFd>,
}

fn lock() -> MutexGuard<'static, Home> {
    own::state().orphans.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Children wait and there is no thread for them.
static UNATTENDED: AtomicBool = AtomicBool::new(false);

/// Reaps what has ended where no thread does.
pub(crate) fn sweep() {
    if UNATTENDED.load(Ordering::Relaxed) {
        let mut home = lock();
        home.waiting.retain(|o| !ended(o));
        UNATTENDED.store(home.bell.is_none() && !home.waiting.is_empty(), Ordering::Relaxed);
    }
}

/// Takes over a child that still runs.
pub(crate) fn adopt(pid: i32, pidfd: Option<OwnedFd>) {
    let mut home = lock();
    if home.bell.is_none() {
        home.waiting.retain(|o| !ended(o));
    }
    home.waiting.push(Orphan { pid, pidfd });
    if let Some(bell) = &home.bell {
        let _ = fd::write(bell.as_raw_fd(), b"!");
        return;
    }
    UNATTENDED.store(true, Ordering::Relaxed);
    let Ok((heard, bell)) = crate::stdio::pipe() else { return };
    // A full pipe rings as well as one more byte, and whoever writes holds the lock that the reader needs.
    let _ = fd::set_status_flags(bell.as_raw_fd(), fd::O_WRONLY | fd::O_NONBLOCK);
    home.bell = Some(bell);
    // The thread takes this lock, and nobody may wait for it while libc makes a thread (`thread.rs`).
    drop(home);
    match thread::start("forkless-reaper", 64 * 1024, move || run(&heard)) {
        Ok(()) => UNATTENDED.store(false, Ordering::Relaxed),
        Err(_) => {
            lock().bell = None;
            UNATTENDED.store(true, Ordering::Relaxed);
        }
    }
}

fn ended(o: &Orphan) -> bool {
    match reap::wait(o.pid, o.pidfd.as_ref(), WEXITED | WNOHANG) {
        Ok(info) => info.pid != 0,
        Err(Errno::EINTR) => false,
        Err(_) => true,
    }
}

fn run(heard: &OwnedFd) {
    loop {
        let mut fds = vec![PollFd { fd: heard.as_raw_fd(), events: POLLIN, revents: 0 }];
        let mut without_pidfd = false;
        {
            let mut home = lock();
            home.waiting.retain(|o| !ended(o));
            if home.waiting.is_empty() {
                // Under the lock, so that the next adoption starts a new thread.
                home.bell = None;
                return;
            }
            for o in &home.waiting {
                match &o.pidfd {
                    // Only this thread closes them, in `retain` above or at the next adoption's, whose bell wakes the poll.
                    Some(f) => fds.push(PollFd { fd: f.as_raw_fd(), events: POLLIN, revents: 0 }),
                    None => without_pidfd = true,
                }
            }
        }
        let pause = without_pidfd.then(|| crate::child::timespec(std::time::Duration::from_millis(20)));
        if poll::poll(&mut fds, pause).is_ok() && fds[0].revents != 0 {
            let mut buf = [0; 64];
            let _ = fd::read(heard.as_raw_fd(), &mut buf);
        }
    }
}
