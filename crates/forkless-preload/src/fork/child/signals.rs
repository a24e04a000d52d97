//! The child's signals as the program sees them. The real mask blocks all but the synchronous signals until exec, the real
//! actions stay as inherited: a child's mask and actions matter to nobody before its exec, and then only what exec keeps
//! does: the mask, and which signals are ignored (`flush_signal_handlers`, kernel/signal.c).
#![expect(unsafe_code, reason = "installing and restoring actions")]

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use forkless_run::{AbortKind as Kind, AbortReason as Reason};
use forkless_sys::signal::{self, AltStack, KernelAction, SigSet, Taken};
use forkless_sys::{Errno, process};

use crate::kernel::Args;
use crate::signals::{BLOCKED, OF_TIMERS, SIGSYS, SYNCHRONOUS};

use super::super::arm::{self, Slot};
use super::super::{memory, outcome, tables};
use super::need;
use super::{FAULTS, abort, fault_action};

const SIG_IGN: usize = 1;
const SIGKILL: usize = 9;
const SIGSTOP: usize = 19;
/// `UAPI_SA_FLAGS`: NOCLDSTOP, NOCLDWAIT, SIGINFO, EXPOSE_TAGBITS, RESTORER, ONSTACK, RESTART, NODEFER, RESETHAND.
const KNOWN_FLAGS: usize = 0xdc00_0807;
const SA_RESTORER: usize = 0x0400_0000;
const UNBLOCKABLE: u64 = 1 << (SIGKILL - 1) | 1 << (SIGSTOP - 1);

static MASK: AtomicU64 = AtomicU64::new(0);
static PDEATHSIG: AtomicI32 = AtomicI32::new(0);
static ALT_START: AtomicUsize = AtomicUsize::new(0);
static ALT_FLAGS: AtomicI32 = AtomicI32::new(0);
static ALT_SIZE: AtomicUsize = AtomicUsize::new(0);

fn actions() -> &'static Actions {
    &tables::get().actions
}

/// Actions learnt or set, by signal number; `known` says which.
pub(in super::super) struct Actions {
    known: AtomicU64,
    /// Set by the program since the fork.
    dirty: AtomicU64,
    /// Ignored at the fork.
    was_ignored: AtomicU64,
    handler: [AtomicUsize; 65],
    flags: [AtomicUsize; 65],
    restorer: [AtomicUsize; 65],
    mask: [AtomicU64; 65],
}

fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// Takes over what the parent kept apart, and installs the handlers of the synchronous signals.
pub(crate) fn begin(slot: &'static Slot) {
    MASK.store(slot.mask.load(Relaxed), Relaxed);
    let stack = slot.program_stack();
    ALT_START.store(stack.start, Relaxed);
    ALT_FLAGS.store(stack.flags, Relaxed);
    ALT_SIZE.store(stack.size, Relaxed);
    actions().learn(SIGSYS as usize, &arm::program_action());
    for signal in FAULTS {
        // SAFETY: a handler written for any point of the program, with a restorer of ours.
        match unsafe { signal::set_action(signal, &fault_action()) } {
            Ok(old) => actions().learn(signal as usize, &old),
            Err(_) => abort(Kind::Setup),
        }
    }
    // Until here a signal of these would have ended the child by its default, and been lost.
    done(signal::set_mask(BLOCKED));
}

impl Actions {
    fn learn(&self, signal: usize, action: &KernelAction) {
        self.set(signal, action);
        self.known.store(self.known.load(Relaxed) | bit(signal), Relaxed);
        if action.handler == SIG_IGN {
            self.was_ignored.store(self.was_ignored.load(Relaxed) | bit(signal), Relaxed);
        }
    }

    fn set(&self, signal: usize, action: &KernelAction) {
        self.handler[signal].store(action.handler, Relaxed);
        self.flags[signal].store(action.flags, Relaxed);
        self.restorer[signal].store(action.restorer, Relaxed);
        self.mask[signal].store(action.mask, Relaxed);
    }

    fn get(&self, signal: usize) -> Result<KernelAction, Errno> {
        if self.known.load(Relaxed) & bit(signal) == 0 {
            self.learn(signal, &signal::action(signal as i32)?);
        }
        Ok(KernelAction {
            handler: self.handler[signal].load(Relaxed),
            flags: self.flags[signal].load(Relaxed),
            restorer: self.restorer[signal].load(Relaxed),
            mask: self.mask[signal].load(Relaxed),
        })
    }
}

/// Exchanges the program's view of an action, of which the kernel keeps what it knows (`do_sigaction`, kernel/signal.c).
pub(crate) fn exchange(signal: usize, new: Option<&KernelAction>) -> Result<KernelAction, Errno> {
    // An int.
    let signal = signal as u32 as usize;
    if signal == 0 || signal > 64 || (new.is_some() && UNBLOCKABLE & bit(signal) != 0) {
        return Err(Errno::EINVAL);
    }
    let old = actions().get(signal)?;
    if let Some(new) = new {
        if flushes(signal, new.handler) {
            abort_if_pending(bit(signal));
        } else {
            abort_if_due(bit(signal));
        }
        let kept = KernelAction { flags: new.flags & KNOWN_FLAGS, mask: new.mask & !UNBLOCKABLE, ..*new };
        actions().set(signal, &kept);
        actions().dirty.store(actions().dirty.load(Relaxed) | bit(signal), Relaxed);
    }
    Ok(old)
}

/// What libc has its handlers return to, which the kernel keeps with each action that libc sets. 0: not known.
static RESTORER: AtomicUsize = AtomicUsize::new(0);
/// The next action that is set is libc's own.
static ASKED_LIBC: AtomicBool = AtomicBool::new(false);

/// 0: libc is to set this action itself, which says it.
pub(crate) fn libcs_restorer() -> usize {
    let known = RESTORER.load(Relaxed);
    ASKED_LIBC.store(known == 0, Relaxed);
    known
}

/// In the parent: what a child has learnt.
pub(crate) fn learn_restorer() {
    let known = outcome::get().restorer.load(Relaxed);
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
    let new = (new != 0).then(|| memory::value::<KernelAction>(new));
    if ASKED_LIBC.swap(false, Relaxed)
        && let Some(new) = new.filter(|new| new.flags & SA_RESTORER != 0)
    {
        RESTORER.store(new.restorer, Relaxed);
        outcome::get().restorer.store(new.restorer, Relaxed);
    }
    match exchange(signal, new.as_ref()) {
        Ok(before) => {
            if old != 0 {
                memory::store(old, before);
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
    changed(mask, how, memory::word(set) as u64)
}

/// What a mask becomes when `set` is blocked, unblocked or put in its place.
pub(crate) fn changed(mask: u64, how: usize, set: u64) -> Result<u64, Errno> {
    let mask = match how {
        0 => mask | set,
        1 => mask & !set,
        2 => set,
        _ => return Err(Errno::EINVAL),
    };
    Ok(mask & !UNBLOCKABLE)
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
        memory::store(old, before);
    }
    0
}

pub(crate) fn mask() -> u64 {
    MASK.load(Relaxed)
}

pub(crate) fn set_mask(mask: u64) {
    // Of one that is ignored, too: it would not have waited, and from here on it does.
    abort_if_pending(mask & !self::mask());
    MASK.store(mask, Relaxed);
}

/// Whether the kernel throws away what waits of a signal that gets this action (`sig_handler_ignored`, kernel/signal.c).
fn flushes(signal: usize, handler: usize) -> bool {
    /// SIGCHLD, SIGCONT, SIGURG and SIGWINCH.
    const IGNORED_BY_DEFAULT: u64 = 1 << 16 | 1 << 17 | 1 << 22 | 1 << 27;
    handler == SIG_IGN || handler == 0 && IGNORED_BY_DEFAULT & bit(signal) != 0
}

/// Signals of which it could not be told any more whether they would wait.
fn abort_if_pending(signals: u64) {
    let waiting = if signals == 0 { 0 } else { signal::pending().unwrap_or_default().0 & signals };
    if waiting != 0 {
        abort(Reason::new(Kind::Signal, waiting.trailing_zeros() + 1));
    }
}

/// `sigaltstack`: the kernel keeps ours.
pub(crate) fn sigaltstack(args: &Args) -> isize {
    const ONSTACK: i32 = 1;
    const DISABLE: i32 = 2;
    const AUTODISARM: i32 = 1 << 31;
    const SMALLEST: usize = 2048;
    let [new, old, ..] = *args;
    need::bytes(new, size_of::<AltStack>());
    need::bytes(old, size_of::<AltStack>());
    let before = AltStack {
        start: ALT_START.load(Relaxed),
        flags: ALT_FLAGS.load(Relaxed),
        size: ALT_SIZE.load(Relaxed),
    };
    if new != 0 {
        let new = memory::value::<AltStack>(new);
        let (start, size) = match new.flags & !AUTODISARM {
            DISABLE => (0, 0),
            0 | ONSTACK if new.size < SMALLEST => return -(Errno::ENOMEM.raw() as isize),
            0 | ONSTACK => (new.start, new.size),
            _ => return -(Errno::EINVAL.raw() as isize),
        };
        ALT_START.store(start, Relaxed);
        // ONSTACK says that it is in use (do_sigaltstack, kernel/signal.c).
        ALT_FLAGS.store(new.flags & AUTODISARM | if size == 0 { DISABLE } else { 0 }, Relaxed);
        ALT_SIZE.store(size, Relaxed);
    }
    if old != 0 {
        memory::store(old, before);
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

/// Signals that wait for the child and that the program would have had delivered by now. Their effect is the program's
/// business: the replacement gets them.
pub(crate) fn abort_if_signalled() {
    abort_if_due(u64::MAX);
}

/// The same of some signals, before they get another action: from then on it cannot be told what they would have done.
fn abort_if_due(signals: u64) {
    let signals = signals & !mask();
    // Much of what is set is about a signal that is ignored: no question of the kernel.
    if signals == 0 || (signals.is_power_of_two() && !is_meant(signals.trailing_zeros() as usize + 1)) {
        return;
    }
    let due = signal::pending().unwrap_or_default().0 & signals;
    for signal in 1..=64 {
        if due & bit(signal) != 0 && is_meant(signal) {
            abort(Reason::new(Kind::Signal, signal as u32));
        }
    }
}

fn is_meant(signal: usize) -> bool {
    actions().get(signal).is_ok_and(|a| a.handler != SIG_IGN)
}

/// Somebody sent a signal that cannot be kept waiting.
pub(crate) fn sent(signal: i32) {
    if is_meant(signal as usize) {
        outcome::get().pending.fetch_or(bit(signal as usize), Relaxed);
    }
}

/// What waits for a child that gives up goes to its replacement, but not what the child brought about itself: its replacement will, and
/// may have a handler for it by then.
pub(crate) fn hand_over() {
    while let Ok(taken) = signal::take_pending_from(BLOCKED) {
        if !is_own(&taken) && is_meant(taken.signal() as usize) && !outcome::get().keep_signal(&taken) {
            sent(taken.signal());
        }
    }
}

fn is_own(taken: &Taken) -> bool {
    match taken.code() {
        // Timers and limits of its own; SIGINT from a terminal has the same code.
        Taken::KERNEL => OF_TIMERS.has(taken.signal()),
        // A broken pipe, a file past its limit: the kernel names the caller as the sender.
        Taken::USER => taken.sender() == process::getpid(),
        _ => false,
    }
}

/// Gives the kernel what exec keeps. [`suspend`] takes it back. What cannot be given undoes the speculation.
pub(crate) fn apply() {
    each_difference(|signal, ignored| {
        if ignored {
            // Of one that is blocked, too, the kernel would throw away what waits.
            abort_if_pending(bit(signal) & mask());
        }
        let action = KernelAction { handler: usize::from(ignored), ..KernelAction::DEFAULT };
        // SAFETY: ignore or default.
        done(unsafe { signal::set_action(signal as i32, &action) });
    });
    done(signal::set_mask(SigSet(mask())));
}

/// After an exec that failed: speculating goes on.
pub(crate) fn suspend() {
    done(signal::set_mask(BLOCKED));
    each_difference(|signal, _| {
        if FAULTS.contains(&(signal as i32)) {
            // SAFETY: as in `begin`.
            done(unsafe { signal::set_action(signal as i32, &fault_action()) });
        } else if signal == SIGSYS as usize {
            let ours = arm::our_action(super::super::trap::on_sigsys as *const () as usize);
            // SAFETY: the dispatch handler.
            done(unsafe { signal::set_action(SIGSYS, &ours) });
        }
    });
}

fn done<T>(result: forkless_sys::Result<T>) {
    if result.is_err() {
        abort(Kind::Setup);
    }
}

/// Signals for which the kernel must be told before exec, and whether they are to be ignored.
fn each_difference(mut each: impl FnMut(usize, bool)) {
    // Caught synchronous signals become default at exec by themselves; only an ignored one has to be set, whether the
    // program ignored it before the fork or since.
    let ours = SYNCHRONOUS.0;
    let mut candidates = actions().dirty.load(Relaxed) | (actions().was_ignored.load(Relaxed) & ours);
    while candidates != 0 {
        let signal = candidates.trailing_zeros() as usize + 1;
        candidates &= candidates - 1;
        let ignored = actions().handler[signal].load(Relaxed) == SIG_IGN;
        let kernel_ignores = actions().was_ignored.load(Relaxed) & bit(signal) & !ours != 0;
        if ignored != kernel_ignores {
            each(signal, ignored);
        }
    }
}
