//! Whether this fork may speculate. The questions change nothing, and the cheapest come first.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use forkless_run::AbortKind;
use forkless_sys::{Errno, mm, process, time};
use linux_raw_sys::general as k;

use crate::config::{self, Fork};
use crate::filters;
use crate::mappings::advice;
use crate::memory_owner;
use crate::namespace;
use crate::{proc, rt, speculation, window};

use super::helper::look;
use super::{NO_DISPATCH, OrPlain, shared_pages, site, state, threshold};

/// Nanoseconds to copy one page table entry and to tear it down again, for the estimate in the
/// report. 1 GB has 262,144 pages and takes 17 to 28 ms, most of it in `dup_mmap` and `exit_mmap`.
pub(crate) const NANOS_PER_PAGE: u64 = 80;

/// Bits for what the program has done, and a fork cannot look for.
static HAS_DONE: AtomicU8 = AtomicU8::new(0);
/// Pages were lent to a pipe. After a plain fork the parent's next write goes to a copy, and the
/// pipe keeps the old page.
const LENT: u8 = 1;
/// A process shares this one's descriptors and, as far as is known, not its memory. It would find
/// numbers taken.
const SHARES_FILES: u8 = 2;
/// The loader has a second libc, whose functions nobody stands before.
const SECOND_LIBC: u8 = 4;
/// The program has made a descriptor of `userfaultfd`: a monitor is told of faults, and of forks.
/// Or one of `fanotify`, by which it grants others' opens and execs.
const SERVES: u8 = 8;

/// The tick, in nanoseconds, for which [`TRACED`] holds.
static LOOKED: AtomicU64 = AtomicU64::new(0);
static TRACED: AtomicBool = AtomicBool::new(false);
/// 1: no filter came with the program. 2: one did. 0: not asked yet.
static UNFILTERED: AtomicU8 = AtomicU8::new(0);
static NAMESPACE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// A line has looked where its child would be, and found [`SAME`]. Counts while [`NAMESPACE`] is
/// [`UNKNOWN`].
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
}

/// The program has lent pages of its own to a pipe.
pub(crate) fn note_vmsplice() {
    HAS_DONE.fetch_or(LENT, Relaxed);
}

/// The program is about to load a libc beside its own. That one's fork would not wait until no
/// memory is marked, so none is marked from here on.
pub(crate) fn note_second_libc() {
    note_for_good(SECOND_LIBC);
}

/// The program has made a descriptor of `userfaultfd`, of which no other thread knows yet. The
/// kernel ends no clone of memory that is registered for events of forks until the monitor has read
/// the event (fs/userfaultfd.c, `dup_userfaultfd_complete`). The monitor may be a thread that moves
/// or protects memory first, and so waits until no memory is marked. So none is marked from here
/// on. And a child that is made twice, or executes on little memory, gives the monitor other events
/// than a plain one.
pub(crate) fn note_userfaultfd() {
    note_for_good(SERVES);
}

/// The program has made a group of `fanotify`, which watches nothing yet. With these flags the
/// kernel waits for the group's answer in an open and an exec. A thread that is to answer may first
/// allocate, fork or move memory, and so wait until another thread's child has executed a program:
/// libc's locks and the window are held as long.
pub(crate) fn note_fanotify(flags: u32) {
    /// `FAN_CLASS_CONTENT` and `FAN_CLASS_PRE_CONTENT` (linux/fanotify.h).
    const GRANTS: u32 = 4 | 8;
    if flags & GRANTS != 0 && !speculation::speculating() {
        note_for_good(SERVES);
    }
}

/// Notes what keeps all later forks plain, those under way in other threads included.
fn note_for_good(bit: u8) {
    let is_new = HAS_DONE.fetch_or(bit, Relaxed) & bit == 0;
    if window::may_meet_speculations() {
        if is_new {
            window::begin_plain();
        }
        // For children that were made before. Another thread may be waiting for them as well.
        window::outside(|| ());
    }
}

/// The program makes a process by `clone`.
pub(crate) fn note_clone(flags: u32) {
    // The kernel tells of a process that shares memory as well (`in_own_memory`), unless it
    // executes a program.
    if flags & (k::CLONE_FILES | k::CLONE_VM) == k::CLONE_FILES {
        HAS_DONE.fetch_or(SHARES_FILES, Relaxed);
    }
}

/// The same by `clone3`. Whether it is known to fork: the child has a copy of the memory, and the
/// stack where it is.
pub(crate) fn note_clone3(args: usize) -> bool {
    // `struct clone_args`: the flags come first, the stack is the sixth.
    let mut fields = [0; 48];
    // The kernel reads them, and answers with an error where the program points nowhere. A filter
    // could kill for the call, so under one nothing is asked.
    let known = !filters::sandboxed()
        && is_unfiltered()
        && mm::read(process::getpid(), args, &mut fields) == Ok(fields.len());
    let field = |at: usize| fields[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    note_clone(if known { field(0) as u32 } else { k::CLONE_FILES });
    known && field(0) as u32 & k::CLONE_VM == 0 && field(40) == 0
}

pub(crate) fn decide(at: usize) -> OrPlain<()> {
    if NO_DISPATCH.load(Relaxed) {
        return Err(AbortKind::NoDispatch);
    }
    its_own_rules()?;
    // Questions that open a file come after the look for threads: beside them a helper opens it.
    let usage = process::memory_usage();
    let guess = usage.map_or(Some(false), |usage| threshold::guess(usage, at));
    if guess == Some(true) {
        return Err(AbortKind::Small);
    }
    // Before the first helper, which valgrind's tools would take for a thread of the program's.
    if rt::is_translated() {
        return Err(AbortKind::Traced);
    }
    stays_strict()?;
    let beside_threads = beside_threads()?;
    if beside_threads {
        // Before the first look: its helper would work in another process's tables.
        in_own_memory()?;
    }
    if guess.is_none()
        && let Ok(usage) = usage
        && threshold::is_small(usage, beside_threads)?
    {
        return Err(AbortKind::Small);
    }
    if !site::worth_trying(at) {
        return Err(AbortKind::Learned);
    }
    if advice::overflowed() {
        return Err(AbortKind::Advice);
    }
    if traced(beside_threads)? {
        return Err(AbortKind::Traced);
    }
    stays_in_namespace(beside_threads)?;
    if !beside_threads {
        in_own_memory()?;
    }
    if !state::map() || !shared_pages::prepare() {
        return Err(AbortKind::Setup);
    }
    Ok(())
}

/// A process that shares another's memory (`vfork`) would take that process's tables and stacks for
/// its own.
fn in_own_memory() -> OrPlain<()> {
    // `stays_strict` has asked the kernel.
    let is_sure = config::fork() == Fork::Strict && is_unfiltered();
    let is_shared = || {
        if memory_owner::has_owner() {
            memory_owner::is_shared()
        } else {
            // The kernel sees another user of the memory, and there is one thread: another process.
            is_unfiltered()
                && process::unshare_memory() == Err(Errno::EINVAL)
                && process::unshare_thread().is_ok()
        }
    };
    if !is_sure && is_shared() {
        return Err(AbortKind::Shared);
    }
    if memory_owner::claim() { Ok(()) } else { Err(AbortKind::Setup) }
}

/// What fork handlers may have changed since the first look.
pub(crate) fn again() -> OrPlain<()> {
    its_own_rules()?;
    stays_strict()?;
    stays_in_namespace(beside_threads()?)
}

pub(crate) fn its_own_rules() -> OrPlain<()> {
    if filters::sandboxed() {
        return Err(if filters::are_dispatch() { AbortKind::DispatchTaken } else { AbortKind::Sandbox });
    }
    match HAS_DONE.load(Relaxed) {
        0 => Ok(()),
        done if done & SECOND_LIBC != 0 => Err(AbortKind::SecondLibc),
        done if done & SERVES != 0 => Err(AbortKind::Serves),
        done if done & LENT != 0 => Err(AbortKind::Lent),
        _ => Err(AbortKind::Files),
    }
}

fn stays_strict() -> OrPlain<()> {
    if config::fork().serves_threads() {
        return Ok(());
    }
    match is_alone() {
        Some(true) => Ok(()),
        Some(false) => Err(AbortKind::Threads),
        None => Err(AbortKind::NoProc),
    }
}

/// Whether no filter came with the program. A filter may kill for a call that it does not know.
pub(crate) fn is_unfiltered() -> bool {
    if UNFILTERED.load(Relaxed) == 0 {
        UNFILTERED.store(if process::seccomp_mode() == Ok(0) { 1 } else { 2 }, Relaxed);
    }
    UNFILTERED.load(Relaxed) == 1
}

/// Whether threads may run beside the child that is about to be made. With signals blocked, so that
/// no handler makes a thread afterwards. If so, no file is opened in this one.
///
/// A process that shares this one's memory, or a thread, that libc does not know of, does not wait
/// for the window: its forks and moves are made as those of the only thread (`window`).
pub(crate) fn beside_threads() -> OrPlain<bool> {
    // `stays_strict` has asked.
    let beside = config::fork().serves_threads() && is_alone() != Some(true);
    if beside && filters::has_one_thread() { Err(AbortKind::Shared) } else { Ok(beside) }
}

/// Whether the process has one thread, and no other process shares its memory. `None`: that cannot
/// be found out.
pub(crate) fn is_alone() -> Option<bool> {
    if is_unfiltered() {
        match process::unshare_memory() {
            Ok(()) => return Some(true),
            Err(Errno::EINVAL) => return Some(false),
            Err(_) => {}
        }
    }
    process::thread_count().map(|n| n == 1)
}

/// The process asks to be traced. The next fork looks for the tracer.
pub(crate) fn note_tracer() {
    LOOKED.store(0, Relaxed);
}

/// Whether a debugger would see our signals. Reading the status file costs 11 us, so the answer
/// holds for a tick of the clock, 10 ms at most.
fn traced(beside_threads: bool) -> OrPlain<bool> {
    let now = time::monotonic_coarse().nanos();
    if now == LOOKED.load(Relaxed) {
        return Ok(TRACED.load(Relaxed));
    }
    // The steps that need /proc meet what cannot be read.
    let answer = look(beside_threads, proc::tracer)?.unwrap_or(false);
    TRACED.store(answer, Relaxed);
    LOOKED.store(now, Relaxed);
    Ok(answer)
}

/// Looked up once, for exec keeps it. Looked up each time after the program has changed namespaces.
fn stays_in_namespace(beside_threads: bool) -> OrPlain<()> {
    if NAMESPACE.load(Relaxed) == SAME {
        return Ok(());
    }
    let stay = look(beside_threads, namespace::children_stay)?.map_err(|errno| match errno {
        Errno::EMFILE | Errno::ENFILE => AbortKind::Descriptors,
        _ => AbortKind::NoProc,
    });
    if !stay? {
        return Err(AbortKind::Namespace);
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
    // A change is one thread's, so after one each thread has to look.
    let stays = namespace::line_s_child_stays();
    if stays && known == UNKNOWN {
        LINES_STAY.store(true, Relaxed);
    }
    stays
}
