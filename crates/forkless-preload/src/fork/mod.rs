//! Speculative fork (x86-64): the child of `fork` starts on almost no copied memory; exec commits, and anything another process
//! could notice undoes the child and makes the plain fork instead, as if nothing had happened.
//!
//! Order of events, and the module of each:
//! 1. [`fork_entry`], ordinary code: may this fork speculate? ([`decide`], [`size`])
//! 2. libc's own fork runs: the program's fork handlers, and after them [`arm`]: block signals, take a signal stack, turn dispatch on. Where there are
//!    no fork handlers, before it is called.
//! 3. [`trap`]: libc's clone arrives as `SIGSYS`.
//! 4. [`parent`]: mark memory, clone with `CLONE_VFORK`, which wakes us when the child has executed a program or ended; commit or replace.
//! 5. [`child`]: judge every system call until exec or abort.
//!
//! The vfork completion (kernel/fork.c, `mm_release`) is why there is no pipe and no race between a limit and an exec: only the
//! child itself decides to give up, and the parent looks when it is over.

use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use forkless_run::{AbortKind as Kind, AbortReason as Reason, Counter};
use forkless_sys::{process, sched, time};
use linux_raw_sys::prctl;

use crate::{
    config, huge, interpose, mappings,
    next::{self, Next},
    owner, tally,
};

mod arm;
pub(crate) mod child;
mod decide;
mod frame;
mod kept;
mod marks;
mod memory;
mod outcome;
mod parent;
mod plan;
mod sites;
mod size;
mod source;
mod tables;
mod trap;

pub(crate) use arm::prepare;
pub(crate) use decide::{
    children_stay, note_clone, note_clone3, note_namespaces, note_vmsplice, outside_window,
};
pub(crate) use outcome::LEN as OUTCOME_LEN;
pub(crate) use source::LEN as EXCHANGE_LEN;
pub(crate) use tables::LEN as TABLES_LEN;

/// Not 0 in a speculative child, from its first instruction to its exec or end. The interposers read it: where it is [`SHORT_CUTS`]
/// they go to the judgement themselves.
pub(crate) static SPECULATING: AtomicU8 = AtomicU8::new(0);

/// What [`SPECULATING`] is to be. Another library's functions, which may do more than libc's, are called in children as well: then the
/// system calls that they make are judged where they arrive, in the signal handler.
static WAY: AtomicU8 = AtomicU8::new(0);

/// Dispatch was refused once: it will be again.
static NO_DISPATCH: AtomicBool = AtomicBool::new(false);

/// Something here is no longer as it was at the load. A shell forks for every command, and each page written between two forks costs
/// it, or its child, a fault.
static TOUCHED: AtomicBool = AtomicBool::new(false);

/// Values of [`SPECULATING`].
pub(crate) const SHORT_CUTS: u8 = 1;
const DETOURS: u8 = 2;

pub(crate) fn speculating() -> bool {
    SPECULATING.load(Relaxed) != 0
}

/// Whether this is a speculative child in which libc's functions are passed over.
pub(crate) fn takes_short_cuts() -> bool {
    SPECULATING.load(Relaxed) == SHORT_CUTS
}

/// Chooses the way of all children of this program, before its first speculation: looking takes some microseconds.
fn choose_way() {
    if WAY.load(Relaxed) == 0 {
        WAY.store(if interpose::passes_others_over() { DETOURS } else { SHORT_CUTS }, Relaxed);
    }
}

/// From here on no child passes over libc's functions.
pub(crate) fn take_detours() {
    WAY.store(DETOURS, Relaxed);
    if speculating() {
        SPECULATING.store(DETOURS, Relaxed);
    }
}

/// The program gives an order to `prctl`: filters and dispatch of its own make its system calls its own business.
pub(crate) fn note_prctl(option: u32) {
    match option {
        prctl::PR_SET_SECCOMP => note_seccomp(),
        prctl::PR_CAPBSET_DROP => crate::shell::note_rights(),
        prctl::PR_SET_SYSCALL_USER_DISPATCH => decide::SANDBOXED.store(2, Relaxed),
        _ => {}
    }
}

/// Whether the program has rules of its own for system calls.
pub(crate) fn sandboxed() -> bool {
    decide::SANDBOXED.load(Relaxed) != 0
}

/// The program installs a seccomp filter.
pub(crate) fn note_seccomp() {
    let first = decide::SANDBOXED.swap(1, SeqCst) == 0;
    huge::pool::before_sandbox();
    // Under an earlier filter nobody is at work, and no call is sure to be allowed.
    if first && !speculating() {
        until_nobody_works();
    }
}

/// Threads that fork, or run a line, and may have found no filter. Counted beside other threads only.
static WORKING: AtomicU32 = AtomicU32::new(0);

/// The calling thread begins to make calls that a filter of the program's may not know. Before it looks for one. To be handed to [`end_work`].
pub(crate) fn begin_work() -> bool {
    let counts = !crate::filters::has_one_thread();
    if counts {
        WORKING.fetch_add(1, SeqCst);
    }
    counts
}

pub(crate) fn end_work(counted: bool) {
    if counted {
        // A copy begins anew, in the midst of a fork.
        let _ = WORKING.fetch_update(SeqCst, Relaxed, |n| n.checked_sub(1));
    }
}

/// A filter may be in force for all threads at once (`SECCOMP_FILTER_FLAG_TSYNC`). One at work then makes calls which the filter may not know.
/// Not waited for without end: it may wait for a lock that the caller holds, or have left its work by a jump.
fn until_nobody_works() {
    const PATIENCE: i64 = 2;
    let own = u32::from(arm::mine().is_some());
    // A program that has not looked for filters has nobody at work, and may have one that forbids what follows.
    if WORKING.load(SeqCst) <= own || crate::filters::has_one_thread() || !crate::filters::are_learnt() {
        return;
    }
    // The others of a copy are not here.
    if process::thread_count() == Some(1) {
        WORKING.store(0, SeqCst);
        return;
    }
    let end = time::monotonic_coarse().tv_sec + PATIENCE;
    while WORKING.load(SeqCst) > own && time::monotonic_coarse().tv_sec <= end {
        sched::yield_now();
    }
}

/// Whether other threads run beside a speculation.
pub(crate) fn meets_threads() -> bool {
    config::fork() == config::Fork::Speculate
}

/// A filter came with the program that this process executes.
pub(crate) fn note_inherited_filter() {
    decide::SANDBOXED.store(1, Relaxed);
}

fn touched() {
    if !TOUCHED.load(Relaxed) {
        TOUCHED.store(true, Relaxed);
    }
}

/// `fork` and `_Fork` after the interposers: `site` is the address the program's call returns to. `late`: fork handlers are run, of which the last
/// is [`arm::prepare`].
pub(crate) fn fork_entry(real: &'static Next<next::Fork>, site: usize, late: bool) -> i32 {
    let real = real.get().unwrap_or_else(|| crate::rt::abort());
    if speculating() {
        return real();
    }
    let counted = config::fork() != config::Fork::Off && begin_work();
    crate::filters::learn();
    let pid = if sandboxed() { fork_sandboxed(real, site) } else { fork_unfiltered(real, site, late) };
    if pid != 0 {
        end_work(counted);
    }
    pid
}

fn fork_unfiltered(real: next::Fork, site: usize, late: bool) -> i32 {
    if owner::is_copy() {
        // Made past `fork`, by libc's forkpty or daemon, or without libc.
        owner::take_over(forget_parents);
    }
    huge::before_fork();
    if config::fork() == config::Fork::Off {
        return real();
    }
    tally::add(Counter::Forks, 1);
    let attempt = decide::decide(site).and_then(|()| {
        touched();
        choose_way();
        arm::arm(site, late)
    });
    let (pid, verdict) = match attempt {
        Ok(turn) => {
            let pid = real();
            if speculating() {
                return pid;
            }
            (pid, turn.release())
        }
        Err(kind) => (decide::plain(|| real()), arm::Verdict::Plain(kind.into())),
    };
    if pid == 0 {
        in_plain_child();
    } else {
        report(site, verdict);
    }
    pid
}

/// Nothing is asked and nothing given back, in the child neither: the program may have forbidden itself what it does not call.
#[cold]
#[inline(never)]
fn fork_sandboxed(real: next::Fork, site: usize) -> i32 {
    if config::fork() == config::Fork::Off {
        return real();
    }
    tally::add(Counter::Forks, 1);
    if owner::is_copy() {
        // A window that was open in the parent is never closed here.
        decide::reset();
    }
    let pid = decide::plain(|| real());
    if pid == 0 {
        decide::reset();
        WORKING.store(0, Relaxed);
    } else {
        report(site, arm::Verdict::Plain(decide::its_own_rules().err().unwrap_or(Kind::Sandbox).into()));
    }
    pid
}

/// The child of a plain fork: what it inherited of ours belongs to its parent.
fn in_plain_child() {
    if !TOUCHED.load(Relaxed) {
        return;
    }
    if owner::is_copy() {
        owner::take_over(forget_parents);
    } else {
        forget_parents();
    }
}

/// What this copy of another process's memory says of that process.
pub(crate) fn forget_parents() {
    outcome::forget();
    arm::reset();
    decide::reset();
    WORKING.store(0, Relaxed);
    mappings::advice::forget_holder();
}

fn report(site: usize, verdict: arm::Verdict) {
    let Some(record) = tally::record() else { return };
    let line = tally::site(site);
    let count = |f: fn(&forkless_run::Site) -> &core::sync::atomic::AtomicU64| {
        if let Some(line) = line {
            f(line).fetch_add(1, Relaxed);
        }
    };
    let because = |reason: Reason| {
        if let Some(line) = line {
            line.because(reason);
        }
    };
    count(|s| &s.forks);
    match verdict {
        arm::Verdict::Plain(reason) => {
            record.add(Counter::Plain, 1);
            because(reason);
        }
        arm::Verdict::Committed { bytes } => {
            record.add(Counter::Speculated, 1);
            record.add(Counter::Committed, 1);
            record.add(Counter::BytesSpared, bytes as u64);
            record.add(Counter::NanosSaved, bytes as u64 / 4096 * decide::NANOS_PER_PAGE);
            count(|s| &s.speculated);
            count(|s| &s.committed);
        }
        arm::Verdict::Aborted(reason) => {
            record.add(Counter::Speculated, 1);
            record.add(Counter::Aborted, 1);
            count(|s| &s.speculated);
            count(|s| &s.aborted);
            because(reason);
        }
    }
    if !matches!(verdict, arm::Verdict::Plain(_)) {
        let outcome = outcome::get();
        record.add(Counter::PagesFetched, outcome.pages.load(Relaxed));
        record.add(Counter::Traps, outcome.traps.load(Relaxed));
        record.add(Counter::Direct, outcome.direct.load(Relaxed));
    }
}

/// Why a step of the way was not taken.
type Attempt<T> = Result<T, Kind>;
