//! Arms a thread: blocks signals, takes a signal stack, installs the `SIGSYS` handler, turns
//! dispatch on. And takes all of it back.
//!
//! From here until the fork is resolved the slot keeps the program's view of its signal mask. The
//! program's handlers do not run in between. So none returns through a dispatched `rt_sigreturn`,
//! or is killed for one: a handler may have `SIGSYS` blocked.
//!
//! Fork handlers may wait for a signal, so they run first. Where there are any, the last one that
//! runs before libc forks is ours, and arms the thread ([`prepare`]).
#![expect(unsafe_code, reason = "signal stacks and handlers")]

use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_run::{AbortKind, AbortReason};
use forkless_sys::signal::{self, AltStack, KernelAction, SA_ONSTACK, SA_RESTORER, SA_SIGINFO, SigSet};
use forkless_sys::{Errno, dispatch, time};
use linux_raw_sys::general as k;

use crate::patience::{PATIENCE_SECONDS, Patience, wait_while};
use crate::signals::{BLOCKED, SIG_IGN, SIGSYS};
use crate::{memory_owner, rt, window};
use forkless_speculate::retry::retry;

use super::frame::{Frame, Info};
use super::slot::ThreadSlot;
use super::stacks::SlotStacks;
use super::{NO_DISPATCH, OrPlain, decide, state};

/// How a fork went.
#[derive(Clone, Copy)]
pub(crate) enum Resolution {
    Plain(AbortReason),
    Committed { bytes: usize },
    Aborted(AbortReason),
}

static HANDLER: SigsysHandler = SigsysHandler {
    lock: AtomicBool::new(false),
    users: AtomicU32::new(0),
    waiting: AtomicU32::new(0),
    ours: AtomicUsize::new(0),
    handler: AtomicUsize::new(0),
    flags: AtomicUsize::new(0),
    restorer: AtomicUsize::new(0),
    mask: AtomicU64::new(0),
};

/// The `SIGSYS` action is the process's, and arming is a thread's. The first armed thread installs
/// ours, and the last puts the program's back.
struct SigsysHandler {
    lock: AtomicBool,
    users: AtomicU32,
    /// Threads that wait for the program's own action ([`with_own_sigsys`]).
    waiting: AtomicU32,
    /// The address of ours: [`TrapHandler`].
    ours: AtomicUsize,
    // The program's action.
    handler: AtomicUsize,
    flags: AtomicUsize,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

/// The handler of `SIGSYS`. It stands above this module, so [`arm`] is given it.
pub(crate) type TrapHandler = extern "C" fn(i32, &Info, &mut Frame);

/// The code that our handlers return to. It is in our own text, or the call that ends the handler
/// would be dispatched itself.
#[unsafe(naked)]
extern "C" fn restorer() {
    naked_asm!("mov eax, {nr}", "syscall", "ud2", nr = const k::__NR_rt_sigreturn)
}

/// Our action for a signal, on our stack. All but the synchronous signals are blocked in it.
pub(crate) fn our_action(handler: usize) -> KernelAction {
    KernelAction {
        handler,
        flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: restorer as *const () as usize,
        mask: BLOCKED.0,
    }
}

/// Our action for `SIGSYS`. Only after [`arm`].
pub(crate) fn sigsys_action() -> KernelAction {
    our_action(HANDLER.ours.load(Relaxed))
}

/// A slot, for one fork.
pub(crate) struct Arming {
    slot: &'static ThreadSlot,
    times_taken: u32,
}

/// Arms the calling thread for one fork at `site`; with `after_handlers`, when libc has run the
/// fork handlers. `on_sigsys` handles its system calls from then on. `may_fail`: see
/// [`ThreadSlot::may_fail`].
pub(crate) fn arm(
    site: usize,
    after_handlers: bool,
    may_fail: bool,
    on_sigsys: TrapHandler,
) -> OrPlain<Arming> {
    let here = core::ptr::from_ref(&site) as usize;
    forget_left(here);
    if let Some(outer) = mine() {
        outer.stand_down();
        return Err(AbortKind::Nested);
    }
    let slot = claim().ok_or(AbortKind::Busy)?;
    HANDLER.ours.store(on_sigsys as *const () as usize, Relaxed);
    let times_taken = slot.times_taken.fetch_add(1, Relaxed) + 1;
    slot.taken_at.store(here, Relaxed);
    slot.site.store(site, Relaxed);
    slot.set_resolution(Resolution::Plain(AbortKind::Unusual.into()));
    slot.may_fail.store(may_fail, Relaxed);
    slot.has_handlers.store(after_handlers, Relaxed);
    slot.again.store(false, Relaxed);
    if after_handlers {
        slot.waiting.store(true, Relaxed);
    } else if let Err(kind) = slot.arm() {
        slot.free();
        return Err(kind);
    }
    Ok(Arming { slot, times_taken })
}

/// Frees what the calling thread took for a fork that it has left by a jump out of a signal handler
/// or a fork handler. The slot was taken in a frame that is no more. A fork that is merely
/// interrupted has its frame further up, or on another stack.
fn forget_left(here: usize) {
    let is_left = |slot: &&'static ThreadSlot| {
        !slot.armed.load(Relaxed) && (1..=here).contains(&slot.taken_at.load(Relaxed))
    };
    if let Some(slot) = mine().filter(is_left)
        && signal::altstack().is_ok_and(|stack| stack.flags & AltStack::ONSTACK == 0)
    {
        slot.waiting.store(false, Relaxed);
        slot.free();
    }
}

/// Our fork handler. The program's handlers may have forbidden the speculation.
pub(crate) extern "C" fn prepare() {
    let Some(slot) = mine().filter(|slot| slot.waiting.swap(false, Relaxed)) else { return };
    if let Err(kind) = decide::again().and_then(|()| slot.arm()) {
        slot.set_resolution(Resolution::Plain(kind.into()));
        slot.goes_plain();
    }
}

/// Takes a free slot. Waits, but not for ever: an owner may be waiting for the caller in a fork
/// handler, or have left its fork by a jump.
fn claim() -> Option<&'static ThreadSlot> {
    let me = rt::thread_pointer();
    let mut patience = Patience::short(20_000);
    loop {
        for slot in &state::get().slots {
            if slot.owner.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                return Some(slot);
            }
        }
        if !patience.turn() {
            return None;
        }
    }
}

/// The calling thread's slot.
pub(crate) fn mine() -> Option<&'static ThreadSlot> {
    let me = rt::thread_pointer();
    state::known()?.slots.iter().find(|slot| slot.owner.load(Relaxed) == me)
}

/// In a plain forked child. Only the forking thread lives on, and it is disarmed already. Nothing
/// is written without need: a page that the child writes is copied for it.
pub(crate) fn reset() {
    for slot in state::known().map_or(&[][..], |state| &state.slots) {
        if slot.owner.load(Relaxed) != 0 {
            slot.owner.store(0, Relaxed);
            slot.taken_at.store(0, Relaxed);
            slot.waiting.store(false, Relaxed);
            slot.armed.store(false, Relaxed);
            slot.plain.store(false, Relaxed);
            slot.has_stack.store(false, Relaxed);
        }
    }
    if HANDLER.users.load(Relaxed) != 0 {
        HANDLER.users.store(0, Relaxed);
        HANDLER.put_back();
    }
    if HANDLER.lock.load(Relaxed) {
        HANDLER.lock.store(false, Relaxed);
    }
    if HANDLER.waiting.load(Relaxed) != 0 {
        HANDLER.waiting.store(0, Relaxed);
    }
}

/// Makes a call that reads or sets the action of `SIGSYS`. Beside other threads that speculate it
/// waits until the action is the program's own, and no thread is armed meanwhile.
pub(crate) fn with_own_sigsys<T>(call: impl FnOnce() -> T) -> T {
    let before = begin_own_sigsys();
    let answer = call();
    if let Some(before) = before {
        end_own_sigsys(before);
    }
    answer
}

/// `None`: nothing is to be ended. Else the mask from before.
#[inline(never)]
fn begin_own_sigsys() -> Option<SigSet> {
    if !window::may_meet_speculations() {
        return None;
    }
    if memory_owner::is_copy() {
        memory_owner::take_over();
    } else if memory_owner::is_shared() {
        // A child of vfork has the actions as they were when it was made.
        if signal::action(SIGSYS).is_ok_and(|now| now.handler == HANDLER.ours.load(Relaxed)) {
            HANDLER.put_back();
        }
        return None;
    }
    // A handler might jump out of the call. SIGSYS itself stays as it is: `sigset` looks at it, and
    // changes it.
    let before = signal::mask().ok()?;
    let _ = signal::set_mask(with_sigsys_of(SigSet::ALL, before));
    HANDLER.keep_out();
    Some(before)
}

#[inline(never)]
fn end_own_sigsys(before: SigSet) {
    HANDLER.let_in();
    let after = signal::mask().unwrap_or(before);
    let _ = retry(|| signal::set_mask(with_sigsys_of(before, after)));
}

fn with_sigsys_of(set: SigSet, other: SigSet) -> SigSet {
    if other.has(SIGSYS) { set.with(SIGSYS) } else { set.without(SIGSYS) }
}

impl Arming {
    /// If libc's fork has failed so that a signal is delivered: errno from before.
    pub(crate) fn errno_before(&self) -> Option<i32> {
        let is_ours = self.slot.owner.load(Relaxed) == rt::thread_pointer();
        (is_ours && self.slot.again.swap(false, Relaxed)).then(|| self.slot.errno.load(Relaxed))
    }

    /// After libc's fork has returned. Only here the slot becomes free, and with it the stack that
    /// the handler ran on.
    pub(crate) fn release(self) -> Resolution {
        let slot = self.slot;
        if slot.owner.load(Relaxed) != rt::thread_pointer()
            || slot.times_taken.load(Relaxed) != self.times_taken
        {
            return Resolution::Plain(AbortKind::Unusual.into());
        }
        // Still armed if libc made no system call that could be the fork.
        slot.stand_down();
        let resolution = slot.resolution();
        slot.free();
        resolution
    }
}

impl ThreadSlot {
    fn index(&self) -> usize {
        (core::ptr::from_ref(self) as usize - state::get().slots.as_ptr() as usize) / size_of::<ThreadSlot>()
    }

    fn arm(&self) -> OrPlain<()> {
        // From here on only SIGSYS is delivered.
        let Ok(before) = signal::set_mask(SigSet::ALL) else { return Err(AbortKind::Setup) };
        self.mask.store(before.0, Relaxed);
        self.mask_before.store(before.0, Relaxed);
        let result = self.arm_blocked(before);
        let mask = if result.is_ok() { SigSet::ALL.without(SIGSYS) } else { before };
        let _ = retry(|| signal::set_mask(mask));
        result
    }

    fn arm_blocked(&self, before: SigSet) -> OrPlain<()> {
        // A SIGSYS that waits for the program would be delivered to our handler. An action that
        // ignores it would take it away.
        if before.has(SIGSYS) && signal::pending().is_ok_and(|waiting| waiting.has(SIGSYS)) {
            return Err(AbortKind::Unusual);
        }
        self.take_stack()?;
        let armed = HANDLER.install().and_then(|()| {
            let text = rt::text();
            // SAFETY: the handler is installed, its restorer lies in the range, SIGSYS is not
            // blocked when the program goes on.
            unsafe { dispatch::on(text.start, text.len()) }.map_err(|_| {
                NO_DISPATCH.store(true, Relaxed);
                HANDLER.remove();
                AbortKind::NoDispatch
            })
        });
        match armed {
            Ok(()) => self.armed.store(true, Relaxed),
            Err(_) => self.give_stack_back(),
        }
        armed
    }

    fn stacks(&self) -> &'static SlotStacks {
        &state::get().stacks[self.index()]
    }

    /// Where the stack of a memory server or attendant begins.
    pub(crate) fn attending_stack(&self) -> *mut c_void {
        self.stacks().attending_stack()
    }

    fn take_stack(&self) -> OrPlain<()> {
        // SAFETY: the slot's stack is this thread's until release.
        let old = match unsafe { signal::set_altstack(&self.stacks().signal_stack()) } {
            Ok(old) => old,
            // The program forks from a handler on its own alternate stack, which cannot be
            // exchanged under it.
            Err(Errno::EPERM) => return Err(AbortKind::AltStack),
            Err(_) => return Err(AbortKind::Setup),
        };
        self.alt_start.store(old.start, Relaxed);
        self.alt_flags.store(old.flags, Relaxed);
        self.alt_size.store(old.size, Relaxed);
        self.has_stack.store(true, Relaxed);
        Ok(())
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Relaxed)
    }

    /// Whether the program has `SIGSYS` blocked.
    pub(crate) fn blocks_sigsys(&self) -> bool {
        SigSet(self.mask.load(Relaxed)).has(SIGSYS)
    }

    /// The program's alternate stack.
    pub(crate) fn program_stack(&self) -> AltStack {
        AltStack {
            start: self.alt_start.load(Relaxed),
            flags: self.alt_flags.load(Relaxed),
            size: self.alt_size.load(Relaxed),
        }
    }

    fn give_stack_back(&self) {
        if self.has_stack.swap(false, Relaxed) {
            // SAFETY: the stack the program had set itself.
            let _ = retry(|| unsafe { signal::set_altstack(&self.program_stack()) });
        }
    }

    /// Puts everything back from inside the handler. What the kernel restores when the handler
    /// returns is written into its frame. From then on the program's handlers run on the program's
    /// own stack, and may jump away.
    pub(crate) fn disarm(&self, frame: &mut Frame) {
        let _ = retry(dispatch::off);
        HANDLER.remove();
        frame.mask = self.mask.load(Relaxed);
        if self.has_stack.swap(false, Relaxed) {
            frame.stack = self.program_stack();
        }
        self.armed.store(false, Relaxed);
    }

    /// Whether a signal waits that would have been delivered before the fork, had the thread not
    /// been armed.
    pub(crate) fn keeps_a_signal(&self) -> bool {
        let blocked = SigSet(self.mask_before.load(Relaxed));
        signal::pending().is_ok_and(|waiting| waiting.0 & !blocked.0 != 0)
    }

    /// The fork becomes a plain one. No memory may be marked while it is made.
    pub(crate) fn goes_plain(&self) {
        if !self.plain.swap(true, Relaxed) {
            window::begin_plain();
        }
    }

    /// A fork handler of the program forks itself. The fork that was to be armed becomes a plain
    /// one, and so does the inner one.
    pub(crate) fn stand_down(&self) {
        if self.waiting.swap(false, Relaxed) {
            self.goes_plain();
        }
        if self.armed.swap(false, Relaxed) {
            let _ = retry(dispatch::off);
            HANDLER.remove();
            self.give_stack_back();
            let _ = retry(|| signal::set_mask(SigSet(self.mask.load(Relaxed))));
            self.goes_plain();
        }
    }

    /// Gives the slot to whoever wants one.
    fn free(&self) {
        self.give_stack_back();
        if self.plain.swap(false, Relaxed) {
            window::end_plain();
        }
        self.taken_at.store(0, Relaxed);
        self.owner.store(0, Release);
    }

    pub(crate) fn set_resolution(&self, resolution: Resolution) {
        let (kind, number) = match resolution {
            Resolution::Plain(r) => (0, r.raw() as usize),
            Resolution::Committed { bytes } => (1, bytes),
            Resolution::Aborted(r) => (2, r.raw() as usize),
        };
        self.resolution.store(kind, Relaxed);
        self.number.store(number, Relaxed);
    }

    fn resolution(&self) -> Resolution {
        let number = self.number.load(Relaxed);
        let reason = AbortReason::from_raw(number as u32).unwrap_or(AbortKind::Unusual.into());
        match self.resolution.load(Relaxed) {
            1 => Resolution::Committed { bytes: number },
            2 => Resolution::Aborted(reason),
            _ => Resolution::Plain(reason),
        }
    }
}

/// The program's own `SIGSYS` action.
pub(crate) fn program_action() -> KernelAction {
    KernelAction {
        handler: HANDLER.handler.load(Relaxed),
        flags: HANDLER.flags.load(Relaxed),
        restorer: HANDLER.restorer.load(Relaxed),
        mask: HANDLER.mask.load(Relaxed),
    }
}

impl SigsysHandler {
    /// With signals blocked, so no other user of the lock on this thread interrupts the holder. A
    /// SIGSYS of the program's may, in `sigset`, and its handler may jump away. So the lock is not
    /// waited for for ever.
    fn lock(&self) {
        let mut end = None;
        let mut is_in_time = || {
            let now = time::monotonic_coarse().tv_sec;
            now <= *end.get_or_insert(now + PATIENCE_SECONDS)
        };
        wait_while(|| self.lock.swap(true, Acquire) && is_in_time());
    }

    fn unlock(&self) {
        self.lock.store(false, Release);
    }

    fn locked(&self, f: impl FnOnce()) {
        self.lock();
        f();
        self.unlock();
    }

    /// Takes the lock when nobody has ours installed. It does not wait for ever: a thread may have
    /// been killed in its fork.
    fn keep_out(&self) {
        let end = time::monotonic_coarse().tv_sec + PATIENCE_SECONDS;
        self.waiting.fetch_add(1, Relaxed);
        wait_while(|| {
            self.lock();
            let waits = self.users.load(Relaxed) != 0 && time::monotonic_coarse().tv_sec <= end;
            if waits {
                self.unlock();
            }
            waits
        });
    }

    fn let_in(&self) {
        self.unlock();
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// Lets threads go first that wait in [`SigsysHandler::keep_out`]: there may always be another
    /// thread that is armed.
    fn give_way(&self) {
        let mut patience = Patience::short(1000);
        while self.waiting.load(Relaxed) != 0 && patience.turn() {}
    }

    fn install(&self) -> OrPlain<()> {
        let mut result = Ok(());
        self.give_way();
        self.locked(|| {
            if self.users.load(Relaxed) == 0 {
                // SAFETY: a handler written for any point of the program, with a restorer of ours.
                match unsafe { signal::set_action(SIGSYS, &sigsys_action()) } {
                    Ok(old) if old.handler == SIG_IGN && decide::beside_threads() != Ok(false) => {
                        // What another thread starts by `posix_spawn` meanwhile would not ignore
                        // the signal.
                        // SAFETY: the action the program had.
                        let _ = retry(|| unsafe { signal::set_action(SIGSYS, &old) });
                        result = Err(AbortKind::Ignored);
                        return;
                    }
                    Ok(old) => {
                        self.handler.store(old.handler, Relaxed);
                        self.flags.store(old.flags, Relaxed);
                        self.restorer.store(old.restorer, Relaxed);
                        self.mask.store(old.mask, Relaxed);
                    }
                    Err(_) => {
                        result = Err(AbortKind::Setup);
                        return;
                    }
                }
            }
            self.users.fetch_add(1, Relaxed);
        });
        result
    }

    fn remove(&self) {
        self.locked(|| {
            if self.users.fetch_sub(1, Relaxed) == 1 {
                self.put_back();
            }
        });
    }

    fn put_back(&self) {
        // SAFETY: the action the program had.
        let _ = retry(|| unsafe { signal::set_action(SIGSYS, &program_action()) });
    }
}
