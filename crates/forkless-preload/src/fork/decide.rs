//! Whether this fork may speculate: questions answered before anything is changed, the cheapest first.

use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use forkless_run::AbortKind as Kind;
use forkless_sys::{Errno, mm, process, sched, time};
use linux_raw_sys::general as k;

use crate::config::{self, Fork};
use crate::mappings::advice;
use crate::namespace;
use crate::owner;
use crate::{rt, small_file};

use super::{Attempt, NO_DISPATCH, outcome, sites, size, tables};

/// What copying one page table entry and tearing it down again costs, for the estimate in the report: 17 to 28 ms for the 262,144
/// pages of 1 GB, most of it in `dup_mmap` and `exit_mmap`.
pub(crate) const NANOS_PER_PAGE: u64 = 80;

/// Set when the program installs a seccomp filter or uses dispatch itself: its own rules for system calls are in force from then on.
pub(crate) static SANDBOXED: AtomicU32 = AtomicU32::new(0);

/// What the program has done that forks cannot look for, as bits.
static DONE: AtomicU8 = AtomicU8::new(0);
/// Pages were lent to a pipe. A plain fork makes the parent's next write go to a copy, and the pipe keeps what it was given.
const LENT: u8 = 1;
/// A process shares this one's descriptors, and not its memory, as far as is known. It would find numbers taken.
const SHARES_FILES: u8 = 2;

/// Plain forks under way while other threads might open a window.
static PLAIN: AtomicU32 = AtomicU32::new(0);
/// A thread is between MADV_DONTFORK and MADV_DOFORK.
static WINDOW: AtomicBool = AtomicBool::new(false);
/// Calls under way that move memory.
static MOVES: AtomicU32 = AtomicU32::new(0);
/// The tick, in nanoseconds, for which [`TRACED`] holds.
static LOOKED: AtomicI64 = AtomicI64::new(0);
static TRACED: AtomicBool = AtomicBool::new(false);
/// 1: no filter came with the program. 2: one did. 0: not asked yet.
static UNFILTERED: AtomicU8 = AtomicU8::new(0);
static NAMESPACE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// A line has looked where its child would be, and found what [`SAME`] says. Counts while [`NAMESPACE`] is [`UNKNOWN`].
static LINES_STAY: AtomicBool = AtomicBool::new(false);

/// Values of [`NAMESPACE`].
const UNKNOWN: u8 = 0;
/// Children are in the PID namespace of their parents.
const SAME: u8 = 1;
/// A thread has changed namespaces, so each fork looks where its own children would be.
const CHANGED: u8 = 2;

/// A thread is about to change namespaces.
pub(crate) fn note_namespaces() {
    NAMESPACE.store(CHANGED, Relaxed);
    crate::shell::note_rights();
}

/// The program has lent pages of its own to a pipe.
pub(crate) fn note_vmsplice() {
    DONE.fetch_or(LENT, Relaxed);
}

/// The program makes a process by `clone`.
pub(crate) fn note_clone(flags: u32) {
    // One that shares memory as well is known to the kernel, or executes something.
    if flags & (k::CLONE_FILES | k::CLONE_VM) == k::CLONE_FILES {
        DONE.fetch_or(SHARES_FILES, Relaxed);
    }
}

/// The same by `clone3`, with `struct clone_args` somewhere, of which the flags come first.
pub(crate) fn note_clone3(args: usize) {
    let mut flags = [0; 8];
    // Read by the kernel, which answers where the program points nowhere. Where a filter could kill for that, nothing is speculated.
    let known = SANDBOXED.load(Relaxed) == 0
        && is_unfiltered()
        && mm::read(process::getpid(), args, &mut flags) == Ok(flags.len());
    note_clone(if known { u64::from_ne_bytes(flags) as u32 } else { k::CLONE_FILES });
}

pub(crate) fn decide(site: usize) -> Attempt<()> {
    if NO_DISPATCH.load(Relaxed) {
        return Err(Kind::NoDispatch);
    }
    its_own_rules()?;
    // What a file has to be opened for comes after the look for threads: another one could get a number that is not the lowest.
    let usage = process::memory_usage();
    let guess = usage.map_or(Some(false), |usage| size::guess(usage, site));
    if guess == Some(true) {
        return Err(Kind::Small);
    }
    stays_strict()?;
    if guess.is_none() && usage.is_ok_and(size::is_small) {
        return Err(Kind::Small);
    }
    if !sites::worth_trying(site) {
        return Err(Kind::Learned);
    }
    if advice::overflowed() {
        return Err(Kind::Advice);
    }
    if traced() || rt::is_translated() {
        return Err(Kind::Traced);
    }
    stays_in_namespace()?;
    in_own_memory()?;
    if !tables::map() || !outcome::prepare() {
        return Err(Kind::Setup);
    }
    Ok(())
}

/// A process that shares another's memory (`vfork`) would take that process's tables and stacks for its own.
fn in_own_memory() -> Attempt<()> {
    // `stays_strict` has asked the kernel.
    let is_sure = config::fork() == Fork::Strict && is_unfiltered();
    let is_shared = || {
        if owner::is_marked() {
            owner::is_shared()
        } else {
            // There is one thread, and yet somebody else: another process.
            is_unfiltered()
                && process::unshare_memory() == Err(Errno::EINVAL)
                && process::thread_count() == Some(1)
        }
    };
    if !is_sure && is_shared() {
        return Err(Kind::Shared);
    }
    if owner::mark() { Ok(()) } else { Err(Kind::Setup) }
}

/// What fork handlers may have changed since.
pub(crate) fn again() -> Attempt<()> {
    its_own_rules()?;
    stays_strict()?;
    stays_in_namespace()
}

pub(crate) fn its_own_rules() -> Attempt<()> {
    match SANDBOXED.load(Relaxed) {
        0 => match DONE.load(Relaxed) {
            0 => Ok(()),
            done if done & LENT != 0 => Err(Kind::Lent),
            _ => Err(Kind::Files),
        },
        1 => Err(Kind::Sandbox),
        _ => Err(Kind::DispatchTaken),
    }
}

fn stays_strict() -> Attempt<()> {
    if config::fork() != Fork::Strict {
        return Ok(());
    }
    match single_threaded() {
        Some(true) => Ok(()),
        Some(false) => Err(Kind::Threads),
        None => Err(Kind::NoProc),
    }
}

/// Whether no filter came with the program. One may kill whoever makes a call it does not know.
pub(crate) fn is_unfiltered() -> bool {
    if UNFILTERED.load(Relaxed) == 0 {
        UNFILTERED.store(if process::seccomp_mode() == Ok(0) { 1 } else { 2 }, Relaxed);
    }
    UNFILTERED.load(Relaxed) == 1
}

/// Whether the process has one thread, and no other process changes its memory; `None` when that cannot be found out.
fn single_threaded() -> Option<bool> {
    if is_unfiltered() {
        match process::unshare_memory() {
            Ok(()) => return Some(true),
            Err(Errno::EINVAL) => return Some(false),
            Err(_) => {}
        }
    }
    process::thread_count().map(|n| n == 1)
}

/// Whether a debugger would see our signals. Reading the status file costs 11 us, so the answer holds for a tick of the clock, at most 10 ms.
fn traced() -> bool {
    let now = time::monotonic_coarse();
    let now = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    if now == LOOKED.load(Relaxed) {
        return TRACED.load(Relaxed);
    }
    let answer = read_tracer().unwrap_or(false);
    TRACED.store(answer, Relaxed);
    LOOKED.store(now, Relaxed);
    answer
}

/// Looked up once, for it is inherited over exec; and again each time after the program has changed namespaces.
fn stays_in_namespace() -> Attempt<()> {
    if NAMESPACE.load(Relaxed) == SAME {
        return Ok(());
    }
    let stay = namespace::children_stay().map_err(|errno| match errno {
        Errno::EMFILE | Errno::ENFILE => Kind::Descriptors,
        _ => Kind::NoProc,
    });
    if !stay? {
        return Err(Kind::Namespace);
    }
    // Unless another thread has changed its own meanwhile.
    let _ = NAMESPACE.compare_exchange(UNKNOWN, SAME, Relaxed, Relaxed);
    Ok(())
}

/// The same for a line's child.
pub(crate) fn children_stay() -> bool {
    let known = NAMESPACE.load(Relaxed);
    if known == SAME || known == UNKNOWN && LINES_STAY.load(Relaxed) {
        return true;
    }
    // After a change each thread has to look: the change was one thread's.
    let stays = namespace::line_s_child_stays();
    if stays && known == UNKNOWN {
        LINES_STAY.store(true, Relaxed);
    }
    stays
}

/// `TracerPid` of /proc/self/status; `None` when it cannot be read, which the steps that need /proc will meet too.
fn read_tracer() -> Option<bool> {
    let mut tracer = None;
    small_file::status_lines(|line| {
        tracer = line.strip_prefix(b"TracerPid:\t").map(|pid| pid != b"0");
        tracer.is_none()
    });
    tracer
}

/// Makes a fork that does not speculate, never while another thread has memory marked: its child would lack it.
///
/// A plain fork waits for an open window before libc's fork takes any lock. A thread about to open one, which holds libc's
/// locks, never waits for plain forks: it gives up ([`open_window`]).
pub(crate) fn plain<T>(fork: impl FnOnce() -> T) -> T {
    if config::fork() != Fork::Speculate {
        return fork();
    }
    begin_plain();
    let result = fork();
    end_plain();
    result
}

/// From here on no window is opened, until [`end_plain`].
pub(crate) fn begin_plain() {
    super::touched();
    PLAIN.fetch_add(1, SeqCst);
    until_closed();
}

pub(crate) fn end_plain() {
    PLAIN.fetch_sub(1, SeqCst);
}

/// Makes a call that moves or marks memory, never while another thread has memory marked: what is marked in part lies in several mappings, and cannot be
/// moved or grow as one (EFAULT, mm/mremap.c); what is marked takes its mark along. Nor one that marks memory for the program, whose mark would be
/// taken back with ours.
///
/// It holds no lock that a fork takes, so unlike a plain fork it is waited for.
pub(crate) fn outside_window<T>(call: impl FnOnce() -> T) -> T {
    if config::fork() != Fork::Speculate {
        return call();
    }
    super::touched();
    if owner::is_copy() {
        // A window that was open in the parent is never closed here.
        owner::take_over(super::forget_parents);
    }
    loop {
        MOVES.fetch_add(1, SeqCst);
        if !WINDOW.load(SeqCst) {
            break;
        }
        MOVES.fetch_sub(1, SeqCst);
        until_closed();
    }
    let result = call();
    MOVES.fetch_sub(1, SeqCst);
    result
}

fn until_closed() {
    while WINDOW.load(SeqCst) {
        if super::sandboxed() {
            core::hint::spin_loop();
        } else {
            sched::yield_now();
        }
    }
}

/// Enters the window, waiting for another speculation to leave it.
pub(crate) fn open_window() -> Attempt<()> {
    while WINDOW.swap(true, SeqCst) {
        sched::yield_now();
    }
    // Not for ever: this may be a fork in a signal handler, in the midst of such a call. And a handler that jumps out of the call, or out
    // of a plain fork, leaves it counted: without another thread there is nobody to wait for.
    const PATIENCE: usize = 1000;
    let mut turns = 0;
    while MOVES.load(SeqCst) != 0 && turns < PATIENCE {
        sched::yield_now();
        turns += 1;
    }
    if (PLAIN.load(SeqCst) != 0 || turns == PATIENCE) && process::thread_count() != Some(1) {
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
    if PLAIN.load(Relaxed) != 0 || WINDOW.load(Relaxed) || MOVES.load(Relaxed) != 0 {
        PLAIN.store(0, Relaxed);
        WINDOW.store(false, Relaxed);
        MOVES.store(0, Relaxed);
    }
}
