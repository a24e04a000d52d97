//! Children without a handle, reaped when they end, so that none stays a zombie.
//!
//! A thread takes them in, and a second thread (`watch.rs`) waits for their ends. Both exist only
//! while there are such children. Their descriptors are in a table of their own. So a program that
//! closes all descriptors, or puts its own files in their places, does not meet them; and nothing
//! is held in the program's table.
//!
//! A child that cannot be watched is looked at by its number, after ever longer pauses. The limit
//! on descriptors may be used up, a filter may refuse the calls, or a tracer may have to reap it
//! first. Where no thread can be made (glibc's pthread_create fails where a filter says EPERM to
//! clone3), children are looked at on later occasions: at each further drop and start.

use super::orphan::Orphan;
use super::timer::ReapTimer;
use super::wakeup::wakeup;
use super::watch::Watch;
use crate::kernel::poll::timespec;
use crate::kernel::process_state::PerProcess;
use crate::kernel::thread;
use forkless_sys::{Errno, fd};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two looks at children that cannot be watched.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How many children a start or a drop looks at where no thread does.
const LOOKS: usize = 64;

/// The dropped children of this process that no thread has taken.
#[derive(Default)]
struct Intake {
    /// All of the dropped children where there is no thread.
    arrived: VecDeque<Orphan>,
    /// The thread exists, or is being made.
    attended: bool,
}

/// Whether children wait in the intake and there is no thread for them.
static UNATTENDED: AtomicBool = AtomicBool::new(false);

fn intake() -> MutexGuard<'static, Intake> {
    static INTAKE: PerProcess<Mutex<Intake>> = PerProcess::new();
    INTAKE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reaps children that have ended, where no thread does.
pub(crate) fn sweep() {
    if UNATTENDED.load(Ordering::Relaxed) {
        look_at_some(&mut intake());
    }
}

fn look_at_some(intake: &mut Intake) {
    if !intake.attended {
        for _ in 0..intake.arrived.len().min(LOOKS) {
            let Some(o) = intake.arrived.pop_front() else { break };
            if !o.is_gone() {
                intake.arrived.push_back(o);
            }
        }
    }
    UNATTENDED.store(!intake.attended && !intake.arrived.is_empty(), Ordering::Relaxed);
}

/// Takes over a child that still runs.
pub(crate) fn adopt(pid: i32, pidfd: Option<OwnedFd>, reap_timer: Option<Box<ReapTimer>>) {
    // Closes the pidfd: nothing is held in the program's table.
    let orphan = Orphan::new(pid, pidfd, reap_timer);
    let mut all = intake();
    let first = all.arrived.is_empty();
    all.arrived.push_back(orphan);
    if all.attended {
        drop(all);
        // The drop that came first has told the thread, which takes all that have arrived.
        if first {
            wakeup().raise();
        }
        return;
    }
    all.attended = true;
    // The thread takes this lock, and nobody may wait for it while libc makes a thread
    // (`thread.rs`).
    drop(all);
    if thread::start("forkless-reaper", thread::SMALL_STACK, attend).is_err() {
        let mut all = intake();
        all.attended = false;
        look_at_some(&mut all);
    }
}

/// The thread: takes children in until none is left.
fn attend() {
    // Empty from the start: the kernel copies nothing that it would close at once (`dup_fd`,
    // fs/file.c).
    let own_table = fd::close_range(0, u32::MAX, fd::CLOSE_RANGE_UNSHARE).is_ok();
    let mut watch = if own_table { Watch::new() } else { None };
    let mut unwatched = Vec::new();
    let mut pause = FIRST_PAUSE;
    loop {
        // Before the look at the intake: a child that comes after it must end the sleep below.
        let heard = wakeup().heard();
        let arrived = std::mem::take(&mut intake().arrived);
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
        // A descriptor of this thread's must not be in the program's table, not for a moment: the
        // program may close it.
        unwatched.retain(|o| if own_table { !o.is_gone() } else { o.reap(None) == Some(false) });
        if unwatched.is_empty() && watch.as_ref().is_none_or(|watch| watch.is_idle()) {
            let mut all = intake();
            if all.arrived.is_empty() {
                all.attended = false;
                return;
            }
            continue;
        }
        if watch.as_ref().is_some_and(|watch| watch.is_broken() && watch.is_idle()) {
            watch = None;
        }
        let timeout = (!unwatched.is_empty()).then(|| timespec(pause));
        if wakeup().sleep(heard, timeout.as_ref()) == Err(Errno::ETIMEDOUT) {
            // However many there are, looking at them takes a hundredth of the time.
            let gentle = Duration::from_micros(200) * u32::try_from(unwatched.len()).unwrap_or(u32::MAX);
            pause = (pause * 2).min(LONGEST_PAUSE.max(gentle));
        }
    }
}
