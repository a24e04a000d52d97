//! Arming a thread: signals blocked, a signal stack of ours, the `SIGSYS` handler, dispatch on. And taking all of it back.
//!
//! The program's view of its signal mask is kept apart in the slot from here until the fork is resolved. Its handlers do not run
//! in between, so none ever returns through a dispatched `rt_sigreturn`, or is killed for one: a handler may have `SIGSYS` blocked.
//!
//! Its fork handlers may wait for a signal. So they run before: where there are any, the thread is armed by one of ours ([`prepare`]), the last that
//! runs before libc forks.
#![expect(unsafe_code, reason = "signal stacks and handlers")]

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_run::{AbortKind as Kind, AbortReason as Reason};
use forkless_sys::signal::{self, AltStack, KernelAction, SigSet};
use forkless_sys::{Errno, dispatch, sched};

use crate::insist::insist;
use crate::rt;
use crate::signals::{BLOCKED, SIGSYS};

use super::{Attempt, NO_DISPATCH, decide, tables, trap};

const SA_SIGINFO: usize = 4;
const SA_ONSTACK: usize = 0x0800_0000;
const SA_RESTORER: usize = 0x0400_0000;
/// A handler on the stack is no longer on it for the kernel, which takes the stack there is afterwards from the handler's frame. What comes on top of
/// the handler goes further down.
const SS_AUTODISARM: i32 = 1 << 31;

/// How a fork went.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    Plain(Reason),
    Committed { bytes: usize },
    Aborted(Reason),
}

/// A signal frame with AVX-512 state takes 3.5 KB, with AMX 11 KB; two may nest (a fault inside the dispatch handler), and the
/// handlers' own frames come on top.
const STACK: usize = 64 << 10;
/// Below it, for a process that serves the child (`source`): some calls deep, and without handlers.
const SERVER_STACK: usize = 16 << 10;
const SLOTS: usize = 8;

#[repr(C, align(4096))]
struct Stack {
    server: UnsafeCell<[u8; SERVER_STACK]>,
    own: UnsafeCell<[u8; STACK]>,
}
// SAFETY: only the thread that owns the slot, and the kernel on its behalf, uses the memory.
unsafe impl Sync for Stack {}

/// One for each slot.
pub(super) struct Stacks([Stack; SLOTS]);

/// A thread between [`arm`] and [`Turn::release`].
pub(crate) struct Slot {
    /// Thread pointer of the owner; 0 when free.
    owner: AtomicUsize,
    /// How often it was taken: who had it before may have lost it.
    turn: AtomicU32,
    /// Where on its stack the owner took it; 0 until it has said so.
    taken_at: AtomicUsize,
    /// To be armed when the program's fork handlers have run.
    waiting: AtomicBool,
    armed: AtomicBool,
    /// Counted among the plain forks that no memory may be marked for, until [`Turn::release`].
    plain: AtomicBool,
    pub(crate) site: AtomicUsize,
    /// The program's signal mask, as it sees it.
    pub(crate) mask: AtomicU64,
    /// The program's alternate stack was taken from it.
    has_stack: AtomicBool,
    alt_start: AtomicUsize,
    alt_flags: AtomicI32,
    alt_size: AtomicUsize,
    verdict: AtomicU8,
    number: AtomicUsize,
}

static TABLE: [Slot; SLOTS] = [const { Slot::unused() }; SLOTS];
static HANDLER: Handler = Handler {
    lock: AtomicBool::new(false),
    users: AtomicU32::new(0),
    handler: AtomicUsize::new(0),
    flags: AtomicUsize::new(0),
    restorer: AtomicUsize::new(0),
    mask: AtomicU64::new(0),
};

/// The `SIGSYS` action is the process's, arming is a thread's: the first thread installs ours, the last puts the program's back.
struct Handler {
    lock: AtomicBool,
    users: AtomicU32,
    handler: AtomicUsize,
    flags: AtomicUsize,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

/// An action of ours on a signal, on our stack. Everything but the synchronous signals is blocked in it.
pub(crate) fn our_action(handler: usize) -> KernelAction {
    KernelAction {
        handler,
        flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
        restorer: trap::restorer as *const () as usize,
        mask: BLOCKED.0,
    }
}

/// A slot, for one fork.
pub(crate) struct Turn {
    slot: &'static Slot,
    turn: u32,
}

/// Arms the calling thread for one fork at `site`; with `late`, when libc has run the fork handlers.
pub(crate) fn arm(site: usize, late: bool) -> Attempt<Turn> {
    let here = core::ptr::from_ref(&site) as usize;
    forget_left(here);
    if let Some(outer) = mine() {
        outer.stand_down();
        return Err(Kind::Nested);
    }
    let slot = claim().ok_or(Kind::Busy)?;
    let turn = slot.turn.fetch_add(1, Relaxed) + 1;
    slot.taken_at.store(here, Relaxed);
    slot.site.store(site, Relaxed);
    slot.set_verdict(Verdict::Plain(Kind::Unusual.into()));
    if late {
        slot.waiting.store(true, Relaxed);
    } else if let Err(kind) = slot.arm() {
        slot.free();
        return Err(kind);
    }
    Ok(Turn { slot, turn })
}

/// Frees what the calling thread took in a fork that it has left by a jump out of a signal handler or a fork handler: in a frame that is no more. What
/// interrupts a fork under way runs further down on its stack, or on the alternate one.
fn forget_left(here: usize) {
    let is_left =
        |slot: &&'static Slot| !slot.armed.load(Relaxed) && (1..=here).contains(&slot.taken_at.load(Relaxed));
    if let Some(slot) = mine().filter(is_left)
        && signal::altstack().is_ok_and(|stack| stack.flags & AltStack::ONSTACK == 0)
    {
        slot.waiting.store(false, Relaxed);
        slot.free();
    }
}

/// The fork handler of ours: what the others have done may forbid the speculation.
pub(crate) extern "C" fn prepare() {
    let Some(slot) = mine().filter(|slot| slot.waiting.swap(false, Relaxed)) else { return };
    if let Err(kind) = decide::again().and_then(|()| slot.arm()) {
        slot.set_verdict(Verdict::Plain(kind.into()));
        slot.goes_plain();
    }
}

/// A free slot. Not waited for without end: who has one may be waiting in a fork handler for the caller, or have left it by a jump.
fn claim() -> Option<&'static Slot> {
    const PATIENCE: usize = 20_000;
    let me = rt::thread_pointer();
    for _ in 0..PATIENCE {
        for slot in &TABLE {
            if slot.owner.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                return Some(slot);
            }
        }
        sched::yield_now();
    }
    None
}

/// The calling thread's slot.
pub(crate) fn mine() -> Option<&'static Slot> {
    let me = rt::thread_pointer();
    TABLE.iter().find(|s| s.owner.load(Relaxed) == me)
}

/// In a plain forked child: only the forking thread lives on, and it is disarmed already. Nothing is written that need not be: a page that
/// the child writes is copied for it.
pub(crate) fn reset() {
    for slot in &TABLE {
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
}

impl Turn {
    /// After libc's fork has returned. The slot, and with it the stack the handler ran on, becomes free only here.
    pub(crate) fn release(self) -> Verdict {
        let slot = self.slot;
        if slot.owner.load(Relaxed) != rt::thread_pointer() || slot.turn.load(Relaxed) != self.turn {
            return Verdict::Plain(Kind::Unusual.into());
        }
        // Still armed if libc made no system call that could have been the fork.
        slot.stand_down();
        let verdict = slot.verdict();
        slot.free();
        verdict
    }
}

impl Slot {
    const fn unused() -> Slot {
        Slot {
            owner: AtomicUsize::new(0),
            turn: AtomicU32::new(0),
            taken_at: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            plain: AtomicBool::new(false),
            site: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
            has_stack: AtomicBool::new(false),
            alt_start: AtomicUsize::new(0),
            alt_flags: AtomicI32::new(0),
            alt_size: AtomicUsize::new(0),
            verdict: AtomicU8::new(0),
            number: AtomicUsize::new(0),
        }
    }

    fn index(&self) -> usize {
        (core::ptr::from_ref(self) as usize - TABLE.as_ptr() as usize) / size_of::<Slot>()
    }

    fn arm(&self) -> Attempt<()> {
        // Nothing but SIGSYS is delivered from here on.
        let Ok(before) = signal::set_mask(SigSet::ALL) else { return Err(Kind::Setup) };
        self.mask.store(before.0, Relaxed);
        let result = self.arm_blocked(before);
        let mask = if result.is_ok() { SigSet::ALL.without(SIGSYS) } else { before };
        let _ = insist(|| signal::set_mask(mask));
        result
    }

    fn arm_blocked(&self, before: SigSet) -> Attempt<()> {
        // One that waits for the program would be delivered, and by an action that ignores it taken away.
        if before.has(SIGSYS) && signal::pending().is_ok_and(|waiting| waiting.has(SIGSYS)) {
            return Err(Kind::Unusual);
        }
        self.take_stack()?;
        let armed = HANDLER.install().and_then(|()| {
            let text = rt::text();
            // SAFETY: the handler is installed, its restorer lies in the range, SIGSYS is not blocked when the program goes on.
            unsafe { dispatch::on(text.start, text.len()) }.map_err(|_| {
                NO_DISPATCH.store(true, Relaxed);
                HANDLER.remove();
                Kind::NoDispatch
            })
        });
        match armed {
            Ok(()) => self.armed.store(true, Relaxed),
            Err(_) => self.give_stack_back(),
        }
        armed
    }

    fn stack(&self) -> &'static Stack {
        &tables::get().stacks.0[self.index()]
    }

    /// Where the stack for a server begins.
    pub(crate) fn server_stack(&self) -> *mut c_void {
        self.stack().server.get().cast::<c_void>().wrapping_byte_add(SERVER_STACK)
    }

    fn take_stack(&self) -> Attempt<()> {
        let ours = AltStack { start: self.stack().own.get() as usize, flags: SS_AUTODISARM, size: STACK };
        // SAFETY: the slot's stack is this thread's until release.
        let old = match unsafe { signal::set_altstack(&ours) } {
            Ok(old) => old,
            // The program forks from a handler on its own alternate stack, which cannot be exchanged under it.
            Err(Errno::EPERM) => return Err(Kind::AltStack),
            Err(_) => return Err(Kind::Setup),
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
            let _ = insist(|| unsafe { signal::set_altstack(&self.program_stack()) });
        }
    }

    /// Puts everything back from inside the handler: what the kernel restores at the handler's return is written into its frame. From
    /// then on the program's handlers run, on its own stack, and may jump away.
    pub(crate) fn disarm(&self, frame: &mut super::frame::Frame) {
        let _ = insist(dispatch::off);
        HANDLER.remove();
        frame.mask = self.mask.load(Relaxed);
        if self.has_stack.swap(false, Relaxed) {
            frame.stack = self.program_stack();
        }
        self.armed.store(false, Relaxed);
    }

    /// The fork becomes a plain one: no memory may be marked while it is made, and it is not made while some is.
    pub(crate) fn goes_plain(&self) {
        if !self.plain.swap(true, Relaxed) {
            decide::begin_plain();
        }
    }

    /// A fork handler of the program forks itself: the fork that was to be armed becomes a plain one, and so is the inner.
    pub(crate) fn stand_down(&self) {
        if self.waiting.swap(false, Relaxed) {
            self.goes_plain();
        }
        if self.armed.swap(false, Relaxed) {
            let _ = insist(dispatch::off);
            HANDLER.remove();
            self.give_stack_back();
            let _ = insist(|| signal::set_mask(SigSet(self.mask.load(Relaxed))));
            self.goes_plain();
        }
    }

    /// Gives the slot to whoever wants one.
    fn free(&self) {
        self.give_stack_back();
        if self.plain.swap(false, Relaxed) {
            decide::end_plain();
        }
        self.taken_at.store(0, Relaxed);
        self.owner.store(0, Release);
    }

    pub(crate) fn set_verdict(&self, verdict: Verdict) {
        let (kind, number) = match verdict {
            Verdict::Plain(r) => (0, r.raw() as usize),
            Verdict::Committed { bytes } => (1, bytes),
            Verdict::Aborted(r) => (2, r.raw() as usize),
        };
        self.verdict.store(kind, Relaxed);
        self.number.store(number, Relaxed);
    }

    fn verdict(&self) -> Verdict {
        let number = self.number.load(Relaxed);
        let reason = Reason::from_raw(number as u32).unwrap_or(Kind::Unusual.into());
        match self.verdict.load(Relaxed) {
            1 => Verdict::Committed { bytes: number },
            2 => Verdict::Aborted(reason),
            _ => Verdict::Plain(reason),
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

impl Handler {
    fn locked(&self, f: impl FnOnce()) {
        // Signals are blocked, so the holder is never interrupted by another user of the lock on its own thread.
        while self.lock.swap(true, Acquire) {
            sched::yield_now();
        }
        f();
        self.lock.store(false, Release);
    }

    fn install(&self) -> Attempt<()> {
        let mut result = Ok(());
        self.locked(|| {
            if self.users.load(Relaxed) == 0 {
                let ours = our_action(trap::on_sigsys as *const () as usize);
                // SAFETY: a handler written for any point of the program, with a restorer of ours.
                match unsafe { signal::set_action(SIGSYS, &ours) } {
                    Ok(old) => {
                        self.handler.store(old.handler, Relaxed);
                        self.flags.store(old.flags, Relaxed);
                        self.restorer.store(old.restorer, Relaxed);
                        self.mask.store(old.mask, Relaxed);
                    }
                    Err(_) => {
                        result = Err(Kind::Setup);
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
        let _ = insist(|| unsafe { signal::set_action(SIGSYS, &program_action()) });
    }
}
