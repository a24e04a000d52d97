//! The child's signals as the program sees them (`forkless_speculate::signals`), and what exec
//! keeps of them.
#![expect(unsafe_code, reason = "installing and restoring actions")]

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use forkless_run::{AbortKind, AbortReason};
use forkless_speculate::signals::{self, Actions, SA_RESTORER, SIG_IGN};
use forkless_sys::signal::{self, AltStack, KernelAction, SigSet, Taken};
use forkless_sys::{Errno, process};

use crate::kernel::Args;
use crate::signals::{BLOCKED, OF_TIMERS, SIGSYS, SYNCHRONOUS};

use super::super::arm;
use super::super::slot::ThreadSlot;
use super::super::{program_memory, shared_pages, state};
use super::{FAULTS, abort, fault_action, fetch, need, stack};

static MASK: AtomicU64 = AtomicU64::new(0);
static PDEATHSIG: AtomicI32 = AtomicI32::new(0);
static ALT_START: AtomicUsize = AtomicUsize::new(0);
static ALT_FLAGS: AtomicI32 = AtomicI32::new(0);
static ALT_SIZE: AtomicUsize = AtomicUsize::new(0);

fn actions() -> &'static Actions {
    &state::get().actions
}

fn bit(signal: usize) -> u64 {
    signals::bit(signal)
}

/// The program's view of an action.
fn action(signal: usize) -> Result<KernelAction, Errno> {
    actions().get(signal, signal::action)
}

/// The program's view of the alternate stack.
fn alternate() -> AltStack {
    AltStack { start: ALT_START.load(Relaxed), flags: ALT_FLAGS.load(Relaxed), size: ALT_SIZE.load(Relaxed) }
}

fn set_alternate(stack: &AltStack) {
    ALT_START.store(stack.start, Relaxed);
    ALT_FLAGS.store(stack.flags, Relaxed);
    ALT_SIZE.store(stack.size, Relaxed);
}

/// Takes over what the parent kept apart, and installs the handlers of the synchronous signals.
pub(crate) fn begin(slot: &'static ThreadSlot) {
    MASK.store(slot.mask.load(Relaxed), Relaxed);
    let stack = slot.program_stack();
    set_alternate(&stack);
    actions().learn(SIGSYS as usize, &arm::program_action());
    for signal in FAULTS {
        // SAFETY: a handler written for any point of the program, with a restorer of ours.
        match unsafe { signal::set_action(signal, &fault_action()) } {
            Ok(old) => actions().learn(signal as usize, &old),
            Err(_) => abort(AbortKind::Setup),
        }
    }
    // Until here such a signal would have ended the child by its default action, and been lost.
    done(signal::set_mask(BLOCKED));
}

/// Exchanges the program's view of an action.
pub(crate) fn exchange(signal: usize, new: Option<&KernelAction>) -> Result<KernelAction, Errno> {
    let signal = signals::number(signal, new.is_some())?;
    let old = action(signal)?;
    if let Some(new) = new {
        if signals::flushes(signal, new.handler) {
            abort_if_pending(bit(signal));
        } else {
            abort_if_due(bit(signal));
        }
        actions().set(signal, new);
    }
    Ok(old)
}

/// The code that libc has its handlers return to. The kernel keeps it with each action that libc
/// sets. 0: not known.
static RESTORER: AtomicUsize = AtomicUsize::new(0);
/// The next action that is set is one that libc itself sets.
static ASKED_LIBC: AtomicBool = AtomicBool::new(false);

/// 0: libc is to set this action itself, which tells the code.
pub(crate) fn libcs_restorer() -> usize {
    let known = RESTORER.load(Relaxed);
    ASKED_LIBC.store(known == 0, Relaxed);
    known
}

/// In the parent: takes over what a child has learnt.
pub(crate) fn learn_restorer() {
    let known = shared_pages::get().restorer.load(Relaxed);
    if known != 0 {
        RESTORER.store(known, Relaxed);
    }
}

/// `rt_sigaction`.
pub(crate) fn rt_sigaction(args: &Args) -> isize {
    let [signal, new, old, size, ..] = *args;
    if size != 8 {
        return -(Errno::EINVAL.raw() as isize);
    }
    need::bytes(new, size_of::<KernelAction>());
    need::bytes(old, size_of::<KernelAction>());
    let new = (new != 0).then(|| program_memory::value::<KernelAction>(new));
    if ASKED_LIBC.swap(false, Relaxed)
        && let Some(new) = new.filter(|new| new.flags & SA_RESTORER != 0)
    {
        RESTORER.store(new.restorer, Relaxed);
        shared_pages::get().restorer.store(new.restorer, Relaxed);
    }
    match exchange(signal, new.as_ref()) {
        Ok(before) => {
            if old != 0 {
                program_memory::store(old, before);
            }
            0
        }
        Err(e) => -(e.raw() as isize),
    }
}

/// What a mask becomes by `rt_sigprocmask(how, set)`.
pub(crate) fn new_mask(mask: u64, how: usize, set: usize, size: usize) -> Result<u64, Errno> {
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    if set == 0 {
        return Ok(mask);
    }
    signals::changed(mask, how, program_memory::word(set) as u64)
}

/// `rt_sigprocmask`.
pub(crate) fn rt_sigprocmask(args: &Args) -> isize {
    let [how, set, old, size, ..] = *args;
    need::bytes(set, 8);
    need::bytes(old, 8);
    let before = mask();
    match new_mask(before, how, set, size) {
        Ok(after) => set_mask(after),
        Err(e) => return -(e.raw() as isize),
    }
    if old != 0 {
        program_memory::store(old, before);
    }
    0
}

pub(crate) fn mask() -> u64 {
    MASK.load(Relaxed)
}

pub(crate) fn set_mask(mask: u64) {
    // Also of an ignored signal: until now it would not have waited, and from here on it does.
    abort_if_pending(mask & !self::mask());
    MASK.store(mask, Relaxed);
}

/// Aborts for waiting signals of which it could no longer be told whether they would wait.
fn abort_if_pending(signals: u64) {
    let waiting = if signals == 0 { 0 } else { signal::pending().unwrap_or_default().0 & signals };
    if waiting != 0 {
        abort(AbortReason::new(AbortKind::Signal, waiting.trailing_zeros() + 1));
    }
}

/// `sigaltstack`: the kernel keeps ours.
pub(crate) fn sigaltstack(args: &Args) -> isize {
    let [new, old, ..] = *args;
    need::bytes(new, size_of::<AltStack>());
    need::bytes(old, size_of::<AltStack>());
    let before = alternate();
    if new != 0 {
        match signals::alternate(program_memory::value::<AltStack>(new)) {
            Ok(stack) => set_alternate(&stack),
            Err(e) => return -(e.raw() as isize),
        }
    }
    if old != 0 {
        program_memory::store(old, before);
    }
    0
}

/// `prctl(PR_SET_PDEATHSIG)`: ours stays until exec.
pub(crate) fn set_pdeathsig(signal: usize) -> isize {
    if signal > 64 {
        return -(Errno::EINVAL.raw() as isize);
    }
    PDEATHSIG.store(signal as i32, Relaxed);
    0
}

/// The kernel cleared it.
pub(crate) fn clear_pdeathsig() {
    PDEATHSIG.store(0, Relaxed);
}

pub(crate) fn pdeathsig() -> i32 {
    PDEATHSIG.load(Relaxed)
}

/// Aborts for waiting signals that the program would have had delivered by now. Their effect is the
/// program's business, so the replacement gets them.
pub(crate) fn abort_if_signalled() {
    abort_if_due(u64::MAX);
}

/// The same for some signals, before they get another action. Afterwards it could not be told what
/// they would have done.
fn abort_if_due(signals: u64) {
    let signals = signals & !mask();
    // Many actions are set for a signal that is ignored. Then the kernel need not be asked.
    if signals == 0 || (signals.is_power_of_two() && !is_meant(signals.trailing_zeros() as usize + 1)) {
        return;
    }
    let due = signal::pending().unwrap_or_default().0 & signals;
    for signal in 1..=64 {
        if due & bit(signal) != 0 && is_meant(signal) {
            abort(AbortReason::new(AbortKind::Signal, signal as u32));
        }
    }
}

fn is_meant(signal: usize) -> bool {
    action(signal).is_ok_and(|a| a.handler != SIG_IGN)
}

/// A signal was sent that cannot be kept waiting.
pub(crate) fn sent(signal: i32) {
    if is_meant(signal as usize) {
        shared_pages::get().pending.fetch_or(bit(signal as usize), Relaxed);
    }
}

/// Signals that wait for a child that gives up go to its replacement. Not those that the child
/// brought about itself: its replacement will bring them about, too, and may have a handler by
/// then.
pub(crate) fn hand_over() {
    while let Ok(taken) = signal::take_pending_from(BLOCKED) {
        if !is_own(&taken) && is_meant(taken.signal() as usize) && !shared_pages::get().keep_signal(&taken) {
            sent(taken.signal());
        }
    }
}

fn is_own(taken: &Taken) -> bool {
    match taken.code() {
        // Its own timers and limits. SIGINT from a terminal has the same code.
        Taken::KERNEL => OF_TIMERS.has(taken.signal()),
        // A broken pipe, or a file past its limit: the kernel names the caller as the sender.
        Taken::USER => taken.sender() == process::getpid(),
        _ => false,
    }
}

/// Makes this the kernel's alternate stack, and returns the one that it had.
fn exchange_stack(new: &AltStack) -> AltStack {
    // SAFETY: the program's own, or ours for the child's handlers.
    match unsafe { signal::set_altstack(new) } {
        Ok(old) => old,
        Err(_) => abort(AbortKind::Setup),
    }
}

/// Before [`apply`]: the kernel pushes a signal's frame without asking, and ends a process whose
/// stack has no room. A frame has 1 to 12 KiB (`AT_MINSIGSTKSZ`). The rest is for the handler.
pub(crate) fn make_room() {
    const FRAMES: usize = 32 << 10;
    let here = 0u8;
    let here = (&raw const here).addr();
    stack::need(here.saturating_sub(FRAMES));
    fetch_below(here, FRAMES);
    let theirs = alternate();
    fetch_below(theirs.start.saturating_add(theirs.size), theirs.size.min(FRAMES));
}

/// Fetches each page: memory that is absent may lie between pages that are not.
fn fetch_below(end: usize, bytes: usize) {
    for at in (end.saturating_sub(bytes)..end).step_by(4096) {
        fetch::fetch(at);
    }
    if bytes != 0 {
        fetch::fetch(end - 1);
    }
}

/// Gives the kernel what exec keeps. A refusal undoes the speculation. [`suspend`] takes it back,
/// and is given the answer.
///
/// Exec keeps the flags of the alternate stack (fs/exec.c clears its address and size alone), and
/// ours has `SS_AUTODISARM`.
pub(crate) fn apply() -> AltStack {
    for (signal, ignored) in actions().differences(SYNCHRONOUS.0) {
        if ignored {
            // Also of a blocked signal the kernel would throw away what waits.
            abort_if_pending(bit(signal) & mask());
        }
        let action = KernelAction { handler: usize::from(ignored), ..KernelAction::DEFAULT };
        // SAFETY: ignore or default.
        done(unsafe { signal::set_action(signal as i32, &action) });
    }
    let ours = exchange_stack(&alternate());
    done(signal::set_mask(SigSet(mask())));
    ours
}

/// After an exec that failed: speculating goes on.
pub(crate) fn suspend(stack: &AltStack) {
    done(signal::set_mask(BLOCKED));
    exchange_stack(stack);
    for (signal, _) in actions().differences(SYNCHRONOUS.0) {
        if FAULTS.contains(&(signal as i32)) {
            // SAFETY: as in `begin`.
            done(unsafe { signal::set_action(signal as i32, &fault_action()) });
        } else if signal == SIGSYS as usize {
            // SAFETY: the dispatch handler.
            done(unsafe { signal::set_action(SIGSYS, &arm::sigsys_action()) });
        }
    }
}

fn done<T>(result: forkless_sys::Result<T>) {
    if result.is_err() {
        abort(AbortKind::Setup);
    }
}
