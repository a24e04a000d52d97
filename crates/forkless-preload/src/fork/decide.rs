//! Whether this fork may speculate: questions answered before anything is changed, the cheapest first.

use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use forkless_record::Kind;
use forkless_sys::{CPtr, fd, process, sched, time};

use crate::config::{self, Fork};
use crate::mappings::advice;

use super::{Attempt, NO_DISPATCH, outcome, sites};

/// What copying one page table entry and tearing it down again costs, for the estimate in the report: 17 to 28 ms for the 262,144
/// pages of 1 GB, most of it in `dup_mmap` and `exit_mmap`.
pub(crate) const NANOS_PER_PAGE: u64 = 80;

at_hand! {
    /// Set when the program installs a seccomp filter or uses dispatch itself: its own rules for system calls are in force from then on.
    pub(crate) static SANDBOXED: AtomicU32 = AtomicU32::new(0);
}

/// Plain forks under way while other threads might open a window.
static PLAIN: AtomicU32 = AtomicU32::new(0);
/// A thread is between MADV_DONTFORK and MADV_DOFORK.
static WINDOW: AtomicBool = AtomicBool::new(false);

pub(crate) fn decide(site: usize) -> Attempt<()> {
    if NO_DISPATCH.load(Relaxed) {
        return Err(Kind::NoDispatch);
    }
    match SANDBOXED.load(Relaxed) {
        0 => {}
        1 => return Err(Kind::Sandbox),
        _ => return Err(Kind::DispatchTaken),
    }
    // The peak, so never too small; survives exec, so it may be too large, and the listing decides.
    if process::max_rss_kib().unwrap_or(u64::MAX) * 1024 < config::minimum() as u64 {
        return Err(Kind::Small);
    }
    if !sites::worth_trying(site) {
        return Err(Kind::Learned);
    }
    if advice::overflowed() {
        return Err(Kind::Advice);
    }
    if config::fork() == Fork::Strict {
        match process::thread_count() {
            Some(1) => {}
            Some(_) => return Err(Kind::Threads),
            None => return Err(Kind::NoProc),
        }
    }
    if traced() {
        return Err(Kind::Traced);
    }
    stays_in_namespace()?;
    if !outcome::prepare() {
        return Err(Kind::Setup);
    }
    Ok(())
}

/// Whether a debugger would see our signals. Reading the status file costs 11 us, so the answer holds for 20 ms.
fn traced() -> bool {
    static CHECKED_MS: AtomicI64 = AtomicI64::new(i64::MIN);
    static ANSWER: AtomicBool = AtomicBool::new(false);
    let now = time::monotonic_coarse();
    let now = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    if now < CHECKED_MS.load(Relaxed).saturating_add(20) {
        return ANSWER.load(Relaxed);
    }
    let answer = read_tracer().unwrap_or(false);
    ANSWER.store(answer, Relaxed);
    CHECKED_MS.store(now, Relaxed);
    answer
}

/// Whether a child would be in this thread's own PID namespace. After `unshare(CLONE_NEWPID)` the first child is the init of a new one, and
/// with it the namespace ends: the fork that replaced it would fail with ENOMEM (kernel/pid.c, `alloc_pid`). In a namespace that was entered
/// by `setns` a child cannot tell whether its parent lives. Looked up each time, for `unshare` is in force beyond an exec.
fn stays_in_namespace() -> Attempt<()> {
    // `pid:[NUMBER]`. Reading the links takes half of what it takes to look at what is behind them.
    let mut names = [[0; 24]; 2];
    let [own, children] = &mut names;
    fd::readlinkat(fd::AT_FDCWD, CPtr::from(c"/proc/thread-self/ns/pid"), own).map_err(|_| Kind::NoProc)?;
    // Nothing is behind the second link before the new namespace has an init.
    let read = fd::readlinkat(fd::AT_FDCWD, CPtr::from(c"/proc/thread-self/ns/pid_for_children"), children);
    if read.is_ok() && own == children { Ok(()) } else { Err(Kind::Namespace) }
}

/// `TracerPid` of /proc/self/status; `None` when it cannot be read, which the steps that need /proc will meet too.
fn read_tracer() -> Option<bool> {
    let file =
        fd::openat(fd::AT_FDCWD, CPtr::from(c"/proc/self/status"), fd::O_RDONLY | fd::O_CLOEXEC, 0).ok()?;
    let mut text = [0u8; 512];
    let n = fd::read(file, &mut text);
    let _ = fd::close(file);
    let text = &text[..n.ok()?];
    const KEY: &[u8] = b"TracerPid:\t";
    let at = text.windows(KEY.len()).position(|w| w == KEY)?;
    text.get(at + KEY.len()).map(|digit| *digit != b'0')
}

/// Makes a fork that does not speculate, never while another thread has memory marked: its child would lack it.
///
/// A plain fork waits for an open window before libc's fork takes any lock. A thread about to open one, which holds libc's
/// locks, never waits for plain forks: it gives up ([`open_window`]).
pub(crate) fn plain<T>(fork: impl FnOnce() -> T) -> T {
    if config::fork() != Fork::Speculate {
        return fork();
    }
    super::touched();
    PLAIN.fetch_add(1, SeqCst);
    while WINDOW.load(SeqCst) {
        sched::yield_now();
    }
    let result = fork();
    PLAIN.fetch_sub(1, SeqCst);
    result
}

/// Enters the window, waiting for another speculation to leave it.
pub(crate) fn open_window() -> Attempt<()> {
    while WINDOW.swap(true, SeqCst) {
        sched::yield_now();
    }
    if PLAIN.load(SeqCst) != 0 {
        close_window();
        return Err(Kind::Busy);
    }
    Ok(())
}

pub(crate) fn close_window() {
    WINDOW.store(false, SeqCst);
}

/// In a plain forked child: threads that were in the middle of something are not here.
pub(crate) fn reset() {
    PLAIN.store(0, Relaxed);
    WINDOW.store(false, Relaxed);
}
