//! Children nobody holds a handle of any more, reaped when they end, so that none stays a zombie.
//!
//! A thread takes them in, and a second one (`watch.rs`) waits for their ends. Both exist only while there are such children.
//! Their descriptors are in a table of their own. So a program that closes all descriptors, or puts its own files in their places,
//! does not meet them; and in the program's table nothing is held.
//!
//! A child that cannot be watched is looked at by its number after ever longer pauses: the limit on descriptors may be used up, a
//! filter may refuse the calls, a tracer may have to reap it first. Where no thread can be made (glibc's pthread_create fails
//! where a filter says EPERM to clone3) children are looked at on later occasions: at each further drop and start.
//!
//! A number can have become another child's only where other code of the process reaps ours. Since Linux 6.9 the inode of a pidfd
//! tells the two apart.

mod watch;

use crate::child::handle::timespec;
use crate::kernel::process_state;
use crate::kernel::thread;
use crate::reap::handle as reap;
use crate::spec::stdio;
use forkless_sys::poll;
use forkless_sys::process::{self, WNOHANG};
use forkless_sys::{Errno, fd};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use watch::Watch;

/// What the threads here are made on: they make few calls.
const STACK: usize = 64 * 1024;

/// Between two looks at children that cannot be watched.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How many children a start or a drop looks at where no thread does.
const LOOKS: usize = 64;

/// A child, without a descriptor.
struct Orphan {
    pid: i32,
    /// Device and inode of its pidfd: the same for all before Linux 6.9.
    identity: Option<(u64, u64)>,
}

/// The dropped children of this process.
#[derive(Default)]
pub(crate) struct Orphans {
    home: Mutex<Home>,
    /// Raised to tell the thread that something is new; what it sleeps on.
    bell: AtomicU32,
}

#[derive(Default)]
struct Home {
    /// Those the thread has not taken yet; all of them where there is none.
    arrived: VecDeque<Orphan>,
    /// The thread exists, or is being made.
    attended: bool,
}

/// Children wait and there is no thread for them.
static UNATTENDED: AtomicBool = AtomicBool::new(false);

impl Orphans {
    fn lock(&self) -> MutexGuard<'_, Home> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        let _ = poll::futex_wake(&self.bell, 1);
    }
}

/// Reaps what has ended where no thread does.
pub(crate) fn sweep() {
    if UNATTENDED.load(Ordering::Relaxed) {
        look_at_some(&mut process_state::state().orphans.lock());
    }
}

fn look_at_some(home: &mut Home) {
    if !home.attended {
        for _ in 0..home.arrived.len().min(LOOKS) {
            let Some(o) = home.arrived.pop_front() else { break };
            if !ended(&o) {
                home.arrived.push_back(o);
            }
        }
    }
    UNATTENDED.store(!home.attended && !home.arrived.is_empty(), Ordering::Relaxed);
}

/// Takes over a child that still runs.
pub(crate) fn adopt(pid: i32, pidfd: Option<OwnedFd>) {
    let orphans = &process_state::state().orphans;
    let identity = pidfd.as_ref().and_then(identity);
    drop(pidfd);
    let mut home = orphans.lock();
    let first = home.arrived.is_empty();
    home.arrived.push_back(Orphan { pid, identity });
    if home.attended {
        drop(home);
        // Whoever was first has told the thread, which takes all that have arrived.
        if first {
            orphans.ring();
        }
        return;
    }
    home.attended = true;
    // The thread takes this lock, and nobody may wait for it while libc makes a thread (`thread.rs`).
    drop(home);
    if thread::start("forkless-reaper", STACK, attend).is_err() {
        let mut home = orphans.lock();
        home.attended = false;
        look_at_some(&mut home);
    }
}

fn identity(pidfd: &OwnedFd) -> Option<(u64, u64)> {
    fd::identity(pidfd.as_raw_fd(), c"".into(), fd::AT_EMPTY_PATH).ok()
}

/// A handle of the child, in the calling thread's table. `ESRCH` when the child has been reaped.
fn handle(o: &Orphan) -> Result<OwnedFd, Errno> {
    let pidfd = stdio::owned(process::pidfd_open(o.pid)?);
    if o.identity.is_some() && identity(&pidfd) != o.identity {
        return Err(Errno::ESRCH);
    }
    Ok(pidfd)
}

/// Whether it is gone, reaped here or by others.
fn ended(o: &Orphan) -> bool {
    match handle(o) {
        Ok(pidfd) => reaped(o.pid, Some(&pidfd)) != Some(false),
        Err(Errno::ESRCH) => true,
        Err(_) => reaped(o.pid, None) != Some(false),
    }
}

/// `None` when it is not ours to wait for.
fn reaped(pid: i32, pidfd: Option<&OwnedFd>) -> Option<bool> {
    match reap::forget(pid, pidfd, WNOHANG) {
        Ok(ended) => Some(ended),
        Err(Errno::EINTR) => Some(false),
        Err(_) => None,
    }
}

/// The thread: takes children in until none is left.
fn attend() {
    let orphans = &process_state::state().orphans;
    // Empty from the start: the kernel copies nothing that it would close at once (`dup_fd`, fs/file.c).
    let own_table = fd::close_range(0, u32::MAX, fd::CLOSE_RANGE_UNSHARE).is_ok();
    let mut watch = if own_table { Watch::new() } else { None };
    let mut unwatched = Vec::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let heard = orphans.bell.load(Ordering::Acquire);
        let arrived = std::mem::take(&mut orphans.lock().arrived);
        if !arrived.is_empty() {
            pause = FIRST_PAUSE;
        }
        match &watch {
            Some(watch) => unwatched.extend(arrived.into_iter().filter_map(|o| watch.add(o))),
            None => unwatched.extend(arrived),
        }
        if let Some(watch) = &watch {
            unwatched.append(&mut watch.given_back());
        }
        // A descriptor of this thread's must not be in the program's table, not for a moment: the program may close it.
        unwatched.retain(|o| if own_table { !ended(o) } else { reaped(o.pid, None) == Some(false) });
        if unwatched.is_empty() && watch.as_ref().is_none_or(|watch| watch.is_idle()) {
            let mut home = orphans.lock();
            if home.arrived.is_empty() {
                home.attended = false;
                return;
            }
            continue;
        }
        if watch.as_ref().is_some_and(|watch| watch.is_broken() && watch.is_idle()) {
            watch = None;
        }
        let timeout = (!unwatched.is_empty()).then(|| timespec(pause));
        let slept = poll::futex_wait(&orphans.bell, heard, timeout.as_ref());
        if slept == Err(Errno::ETIMEDOUT) {
            // However many there are, looking at them takes a hundredth of the time.
            let gentle = Duration::from_micros(200) * u32::try_from(unwatched.len()).unwrap_or(u32::MAX);
            pause = (pause * 2).min(LONGEST_PAUSE.max(gentle));
        }
    }
}
