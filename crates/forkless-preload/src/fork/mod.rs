//! Speculative fork (x86-64). The child of `fork` starts on almost no copied memory. Its exec
//! commits. Anything that another process could notice aborts, and the plain fork is made as if
//! nothing had happened.
//!
//! Order of events, and the module of each:
//! 1. [`speculate_or_fork`], ordinary code: may this fork speculate? ([`decide`], [`threshold`],
//!    and [`site`] for the history of the call site)
//! 2. libc's own fork runs the program's fork handlers. After them the thread is armed ([`arm`]):
//!    block signals, take a signal stack ([`stacks`]), install [`trap`], turn dispatch on. A
//!    program without fork handlers is armed before libc's fork is called.
//! 3. [`trap`]: libc's clone arrives as `SIGSYS`. The parent finds its registers in [`frame`].
//! 4. [`parent`]: list memory ([`exclusions`]), look for a limit of memory ([`room`]), mark the
//!    memory, open it for the child ([`memory_source`]), and clone with `CLONE_VFORK`. Beside other
//!    threads a [`helper`] lists, looks, marks and opens. The kernel wakes the parent when the
//!    child has executed a program or ended. Then commit, or make the plain fork.
//! 5. [`child`]: judge every system call until exec or abort. The child tells its parent the rest
//!    in [`shared_pages`].
//!
//! Imports point down only: `trap` is at the top, above `parent`, `child`, `memory_source`, `arm`,
//! `exclusions` and `decide`. The tables of all ([`state`]) and the [`stacks`] are at the bottom.
//!
//! Because of the vfork completion (kernel/fork.c, `mm_release`) there is no pipe, and no race
//! between a time limit and an exec. Only the child itself decides to give up, and the parent looks
//! when the child has left its memory.

use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use forkless_run::{AbortKind, AbortReason, Counter};
use forkless_sys::{process, time};

use crate::patience::{PATIENCE_SECONDS, wait_while};
use crate::{
    config, errno, filters, huge, mappings, memory_owner,
    next::{self, Next},
    speculation, tally, window,
};

pub(crate) use crate::filters::sandboxed;
pub(crate) use crate::speculation::speculating;

mod arm;
pub(crate) mod child;
mod decide;
mod exclusions;
mod frame;
mod helper;
mod memory_source;
mod parent;
mod program_memory;
mod room;
mod shared_pages;
mod site;
mod slot;
mod stacks;
mod state;
mod threshold;
mod trap;

pub(crate) use arm::{prepare, with_own_sigsys};
pub(crate) use decide::{
    children_stay, is_alone, note_clone, note_clone3, note_fanotify, note_namespaces, note_second_libc,
    note_tracer, note_userfaultfd, note_vmsplice,
};

pub(crate) use helper::note_mq_notify;

/// Dispatch was refused once, so it will be refused again.
static NO_DISPATCH: AtomicBool = AtomicBool::new(false);

/// The program installs a seccomp filter.
pub(crate) fn note_seccomp() {
    let first = filters::note_filter();
    huge::pool::before_sandbox();
    // Under an earlier filter no thread is at work, and no call is sure to be allowed.
    if first && !speculating() {
        until_nobody_works();
    }
}

/// Threads that fork or run a line, and may have found no filter. Counted beside other threads
/// only.
static WORKING: AtomicU32 = AtomicU32::new(0);

/// The calling thread begins to make calls that a filter of the program's may not know. Called
/// before the thread looks for a filter. The answer goes to [`end_work`].
pub(crate) fn begin_work() -> bool {
    let counts = !filters::has_one_thread();
    if counts {
        WORKING.fetch_add(1, SeqCst);
    }
    counts
}

pub(crate) fn end_work(counted: bool) {
    if counted {
        // A copy of the process begins at 0, in the midst of a fork.
        let _ = WORKING.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
    }
}

/// A filter may be in force for all threads at once (`SECCOMP_FILTER_FLAG_TSYNC`). A thread at work
/// then makes calls that the filter may not know. So the filter waits, but not for ever: the thread
/// may wait for a lock that the caller holds, or have left its work by a jump.
fn until_nobody_works() {
    let own = u32::from(arm::mine().is_some());
    // A program that has not looked for filters has no thread at work. And it may have a filter
    // that forbids the calls below.
    if WORKING.load(SeqCst) <= own || filters::has_one_thread() || !filters::are_learnt() {
        return;
    }
    // A copy of the process has only this thread.
    if process::thread_count() == Some(1) {
        WORKING.store(0, SeqCst);
        return;
    }
    let end = time::monotonic_coarse().tv_sec + PATIENCE_SECONDS;
    wait_while(|| WORKING.load(SeqCst) > own && time::monotonic_coarse().tv_sec <= end);
}

/// `fork` and `_Fork`, after the interposers. `site` is the address that the program's call returns
/// to. `arm_after_handlers`: libc runs fork handlers, and the last of them arms the thread
/// ([`arm::prepare`]).
/// `passes_others_over`: whether a child that passes over libc's functions would pass over another
/// library's.
pub(crate) fn speculate_or_fork(
    real: &'static Next<next::Fork>,
    site: usize,
    arm_after_handlers: bool,
    passes_others_over: fn() -> bool,
) -> i32 {
    let real = real.get().unwrap_or_else(|| crate::rt::abort());
    if speculating() {
        return real();
    }
    let counted = config::fork() != config::Fork::Off && begin_work();
    filters::learn();
    let pid = if sandboxed() {
        fork_sandboxed(real, site)
    } else {
        fork_unfiltered(real, site, arm_after_handlers, passes_others_over)
    };
    if pid != 0 {
        end_work(counted);
    }
    pid
}

fn fork_unfiltered(
    real: next::Fork,
    site: usize,
    arm_after_handlers: bool,
    passes_others_over: fn() -> bool,
) -> i32 {
    if memory_owner::is_copy() {
        // Made past `fork`, by libc's forkpty or daemon, or without libc.
        memory_owner::take_over();
    }
    huge::before_fork();
    if config::fork() == config::Fork::Off {
        let pid = real();
        huge::after_fork(pid, true);
        return pid;
    }
    tally::add(Counter::Forks, 1);
    let attempt = decide::decide(site).and_then(|()| {
        speculation::touch();
        speculation::choose(passes_others_over);
        arm::arm(site, arm_after_handlers, !arm_after_handlers, trap::on_sigsys)
    });
    let (pid, resolution) = match attempt {
        Ok(arming) => {
            let mut pid = real();
            let mut armed = Ok(arming);
            if pid < 0 {
                (pid, armed) = again(armed, real, site);
            }
            // The speculative child, back from libc's fork: it goes on in the program. Everything
            // below is the parent's, or a plain fork's.
            if speculating() {
                return pid;
            }
            (pid, armed.map_or_else(|kind| arm::Resolution::Plain(kind.into()), arm::Arming::release))
        }
        Err(kind) => (window::plain(|| real()), arm::Resolution::Plain(kind.into())),
    };
    huge::after_fork(pid, !matches!(resolution, arm::Resolution::Committed { .. }));
    if pid == 0 {
        in_plain_child();
    } else {
        count_in_record(site, resolution);
    }
    pid
}

/// libc's fork has failed. If it failed so that a signal was delivered, it is made again. It does
/// not fail twice: signals may come all the time.
#[cold]
#[inline(never)]
fn again(armed: OrPlain<arm::Arming>, real: next::Fork, site: usize) -> (i32, OrPlain<arm::Arming>) {
    let Some(number) = armed.as_ref().ok().and_then(arm::Arming::errno_before) else { return (-1, armed) };
    if let Ok(arming) = armed {
        arming.release();
    }
    errno::set(number);
    match decide::decide(site).and_then(|()| arm::arm(site, false, false, trap::on_sigsys)) {
        Ok(arming) => (real(), Ok(arming)),
        Err(kind) => (window::plain(|| real()), Err(kind)),
    }
}

/// A fork under the program's own rules. No system call is added, in the child neither: the program
/// may have forbidden itself what it does not call.
#[cold]
#[inline(never)]
fn fork_sandboxed(real: next::Fork, site: usize) -> i32 {
    if config::fork() == config::Fork::Off {
        return real();
    }
    tally::add(Counter::Forks, 1);
    if memory_owner::is_copy() {
        // A window that was open in the parent is never closed here.
        window::reset();
    }
    let pid = window::plain(|| real());
    if pid == 0 {
        window::reset();
        WORKING.store(0, Relaxed);
    } else {
        count_in_record(
            site,
            arm::Resolution::Plain(decide::its_own_rules().err().unwrap_or(AbortKind::Sandbox).into()),
        );
    }
    pid
}

/// In the child of a plain fork: the library's state belongs to its parent.
fn in_plain_child() {
    if !speculation::is_touched() {
        return;
    }
    if memory_owner::is_copy() {
        memory_owner::take_over();
    } else {
        forget_parents();
    }
}

/// Drops what this copy of another process's memory says of that process.
pub(crate) fn forget_parents() {
    shared_pages::forget();
    arm::reset();
    helper::reset();
    window::reset();
    WORKING.store(0, Relaxed);
    mappings::advice::forget_holder();
}

#[inline]
fn count_in_record(site: usize, resolution: arm::Resolution) {
    if let Some(record) = tally::record() {
        count_in(record, site, resolution);
    }
}

/// Lies far from what every fork calls (layout.ld): most runs ask for no report.
#[cold]
#[inline(never)]
fn count_in(record: &forkless_run::Record, site: usize, resolution: arm::Resolution) {
    let line = tally::site(site);
    let count = |f: fn(&forkless_run::SiteCounters) -> &core::sync::atomic::AtomicU64| {
        if let Some(line) = line {
            f(line).fetch_add(1, Relaxed);
        }
    };
    let because = |reason: AbortReason| {
        if let Some(line) = line {
            line.because(reason);
        }
    };
    count(|s| &s.forks);
    match resolution {
        arm::Resolution::Plain(reason) => {
            record.add(Counter::Plain, 1);
            because(reason);
        }
        arm::Resolution::Committed { bytes } => {
            record.add(Counter::Speculated, 1);
            record.add(Counter::Committed, 1);
            record.add(Counter::BytesSpared, bytes as u64);
            record.add(Counter::NanosSaved, bytes as u64 / 4096 * decide::NANOS_PER_PAGE);
            count(|s| &s.speculated);
            count(|s| &s.committed);
            if let Some(counter) = shared_pages::get().line() {
                tally::add_line(counter);
            }
        }
        arm::Resolution::Aborted(reason) => {
            record.add(Counter::Speculated, 1);
            record.add(Counter::Aborted, 1);
            count(|s| &s.speculated);
            count(|s| &s.aborted);
            because(reason);
        }
    }
}

/// In a speculative child: what becomes of a shell that it executes.
pub(crate) fn note_line(counter: Counter) {
    shared_pages::get().note_line(counter);
}

/// Counts closes that were answered. A speculative child may not write the record.
pub(crate) fn count_closes(n: u64) {
    if speculating() {
        shared_pages::get().closes.fetch_add(n, Relaxed);
    } else {
        tally::add(Counter::Closes, n);
    }
}

/// A value, or the abort kind for which this fork stays plain.
type OrPlain<T> = Result<T, AbortKind>;
