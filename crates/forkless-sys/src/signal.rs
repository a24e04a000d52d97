//! Signal masks and dispositions of all 64 signals. libc removes its own two (32 and 33) from every
//! mask; a child that shares memory must not run their handlers either.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

pub use crate::abi::{AltStack, Disposition, KernelAction, MAX_SIGNAL, SigSet};
use crate::calls::{self, Len, Op, Pid, Signal};
use crate::{Errno, Result};
use core::ptr::{null, null_mut};
use linux_raw_sys::general as k;

macro_rules! numbers {
    ($($(#[$about:meta])* $name:ident;)*) => {
        $($(#[$about])* pub const $name: i32 = k::$name as i32;)*
    };
}

// Numbers of `asm-generic/signal.h`.
numbers! {
    /// The end of the terminal.
    SIGHUP;
    /// The terminal's interrupt.
    SIGINT;
    /// The terminal's quit, which dumps core.
    SIGQUIT;
    /// An instruction that does not exist.
    SIGILL;
    /// A breakpoint.
    SIGTRAP;
    /// An access to memory that cannot be had.
    SIGBUS;
    /// An arithmetic fault.
    SIGFPE;
    /// The end that cannot be caught.
    SIGKILL;
    /// An access to memory that is not there.
    SIGSEGV;
    /// A write that nobody will read.
    SIGPIPE;
    /// A timer of wall time has expired.
    SIGALRM;
    /// A request to end.
    SIGTERM;
    /// The signal that a child's end sends to its parent.
    SIGCHLD;
    /// The end of a stop.
    SIGCONT;
    /// The stop that cannot be caught.
    SIGSTOP;
    /// The terminal's stop.
    SIGTSTP;
    /// A read from a terminal by another group than the one in front.
    SIGTTIN;
    /// A write to a terminal by another group than the one in front.
    SIGTTOU;
    /// The limit on processor time is passed.
    SIGXCPU;
    /// The limit on the size of files is passed.
    SIGXFSZ;
    /// A timer of the process's own time has expired.
    SIGVTALRM;
    /// A timer of processor time has expired.
    SIGPROF;
    /// A system call that a filter or Syscall User Dispatch hands to the program.
    SIGSYS;
}

/// The handler of an ignored signal.
pub const SIG_IGN: usize = 1;
/// The flag of an action whose handler is told who has sent the signal.
pub const SA_SIGINFO: usize = k::SA_SIGINFO as usize;
/// The flag of an action that runs on the alternate stack.
pub const SA_ONSTACK: usize = k::SA_ONSTACK as usize;
/// The flag of an action that lets interrupted calls begin again.
pub const SA_RESTART: usize = k::SA_RESTART as usize;
/// The flag of a SIGCHLD action whose children leave no zombie.
pub const SA_NOCLDWAIT: usize = k::SA_NOCLDWAIT as usize;
/// The flag of an action whose restorer counts.
pub const SA_RESTORER: usize = k::SA_RESTORER as usize;

/// `rt_sigprocmask(SIG_SETMASK)` of the calling thread; returns the mask it replaced.
#[inline(always)]
pub fn set_mask(mask: SigSet) -> Result<SigSet> {
    let mut old = SigSet::EMPTY;
    // SAFETY: the kernel reads eight bytes and writes eight.
    unsafe { calls::rt_sigprocmask(Op(k::SIG_SETMASK), &raw const mask, &raw mut old, Len(8)) }?;
    Ok(old)
}

/// The calling thread's mask.
#[inline]
pub fn mask() -> Result<SigSet> {
    let mut old = SigSet::EMPTY;
    // SAFETY: the kernel writes eight bytes.
    unsafe { calls::rt_sigprocmask(Op(k::SIG_SETMASK), null(), &raw mut old, Len(8)) }?;
    Ok(old)
}

/// Whether the kernel can read the eight aligned bytes around `at`. It reads them as a mask, for an
/// operation that does not exist, and so changes nothing (kernel/signal.c, `rt_sigprocmask`).
#[inline]
pub fn is_readable(at: usize) -> bool {
    let mask = (at & !7) as *const SigSet;
    // SAFETY: the kernel checks the address. No operation has this number.
    let answer = unsafe { calls::rt_sigprocmask(Op(u32::MAX), mask, null_mut(), Len(8)) };
    // No mask is none to read.
    !mask.is_null() && answer != Err(Errno::EFAULT)
}

/// `rt_sigpending(2)`: the blocked signals that are pending.
#[inline]
pub fn pending() -> Result<SigSet> {
    let mut set = SigSet::EMPTY;
    // SAFETY: the kernel writes eight bytes.
    unsafe { calls::rt_sigpending(&raw mut set, Len(8)) }?;
    Ok(set)
}

/// `rt_sigaction(2)`: the current action.
#[inline(always)]
pub fn action(signal: i32) -> Result<KernelAction> {
    let mut old = KernelAction::DEFAULT;
    // SAFETY: the kernel writes one action.
    unsafe { calls::rt_sigaction(Signal(signal), null(), &raw mut old, Len(8)) }?;
    Ok(old)
}

/// `rt_sigaction(2)`: replaces the action and returns the one before.
///
/// # Safety
/// The handler must be sound at any point of the program. The restorer must call `rt_sigreturn`.
#[inline(always)]
pub unsafe fn set_action(signal: i32, new: &KernelAction) -> Result<KernelAction> {
    let mut old = KernelAction::DEFAULT;
    // SAFETY: the kernel reads one action and writes one; the handler is sound by the caller's
    // contract.
    unsafe { calls::rt_sigaction(Signal(signal), &raw const *new, &raw mut old, Len(8)) }?;
    Ok(old)
}

/// `rt_sigaction(2)`: the current disposition. `EINVAL`: the number is no signal.
#[inline(always)]
pub fn disposition(signal: i32) -> Result<Disposition> {
    Ok(action(signal)?.disposition())
}

/// Signals that another process or the terminal sends, often to a whole group, and that end a
/// process by default: those from 1 to 31 without SIGKILL and without the faults of an instruction.
pub const SENT: SigSet = {
    const HUP_INT_QUIT: u64 = 0b111;
    const USR1_USR2: u64 = 1 << 9 | 1 << 11;
    const PIPE_ALRM_TERM_STKFLT: u64 = 0b1111 << 12;
    const XCPU_XFSZ_VTALRM_PROF: u64 = 0b1111 << 23;
    const IO_PWR: u64 = 0b11 << 28;
    SigSet(HUP_INT_QUIT | USR1_USR2 | PIPE_ALRM_TERM_STKFLT | XCPU_XFSZ_VTALRM_PROF | IO_PWR)
};

/// Whether the program has a handler for a signal of the set. One `rt_sigaction(2)` for each
/// signal.
#[inline]
pub fn any_handled(of: SigSet) -> bool {
    (1..=MAX_SIGNAL)
        .any(|signal| of.has(signal) && matches!(disposition(signal), Ok(Disposition::Handler(_))))
}

/// `rt_sigaction(2)`: sets the default action, or ignores the signal. `EINVAL` for `SIGKILL` and
/// `SIGSTOP`.
#[inline(always)]
pub fn reset(signal: i32, ignore: bool) -> Result<()> {
    let new = KernelAction { handler: usize::from(ignore), ..KernelAction::DEFAULT };
    // SAFETY: the kernel reads one action without a handler.
    unsafe { calls::rt_sigaction(Signal(signal), &raw const new, null_mut(), Len(8)) }.map(drop)
}

/// The calling thread's alternate stack, and whether it runs on it.
#[inline]
pub fn altstack() -> Result<AltStack> {
    let mut now = AltStack::NONE;
    // SAFETY: the kernel writes one stack_t.
    unsafe { calls::sigaltstack(null(), &raw mut now) }?;
    Ok(now)
}

/// `sigaltstack(2)` of the calling thread: replaces the stack and returns the old one. `EPERM`: the
/// thread runs on it.
///
/// # Safety
/// The memory must be writable, and used for nothing else until the stack is replaced.
#[inline]
pub unsafe fn set_altstack(new: &AltStack) -> Result<AltStack> {
    let mut old = AltStack::NONE;
    // SAFETY: the kernel reads one stack_t and writes one; the stack is usable by the caller's
    // contract.
    unsafe { calls::sigaltstack(&raw const *new, &raw mut old) }?;
    Ok(old)
}

/// `rt_sigtimedwait(2)` with a time-out of zero: takes one pending signal of the set. `EAGAIN`:
/// none is pending.
#[inline]
pub fn take_pending(set: SigSet) -> Result<i32> {
    let now = crate::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel reads the set and the time, and is asked for no siginfo_t.
    unsafe { calls::rt_sigtimedwait(&raw const set, null_mut(), &raw const now, Len(8)) }
        .map(|signal| signal as i32)
}

/// A pending signal that was taken, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Taken(
    /// `siginfo_t`, of 128 bytes.
    pub [i32; 32],
);

impl Taken {
    /// Its number.
    #[must_use]
    #[inline]
    pub const fn signal(&self) -> i32 {
        self.0[0]
    }

    /// `si_code`: zero or negative if a process sent it.
    #[must_use]
    #[inline]
    pub const fn code(&self) -> i32 {
        self.0[2]
    }

    /// `si_pid`: the sender, if the code says that a process sent it.
    #[must_use]
    #[inline]
    pub const fn sender(&self) -> i32 {
        self.0[4]
    }

    /// Sends it to the calling process with the same information. `rt_sigqueueinfo(2)` allows any
    /// sender only for the caller itself.
    #[inline]
    pub fn send_again(&self, me: i32) -> Result<()> {
        // SAFETY: the kernel reads one siginfo_t.
        unsafe { calls::rt_sigqueueinfo(Pid(me), Signal(self.signal()), &raw const self.0) }.map(drop)
    }

    /// `SI_USER`: `kill`, or the kernel for the process that made a call (a broken pipe).
    pub const USER: i32 = 0;
    /// `SI_KERNEL`: a timer, a limit, a terminal.
    pub const KERNEL: i32 = 0x80;
}

/// [`take_pending`], with the signal's origin.
#[inline]
pub fn take_pending_from(set: SigSet) -> Result<Taken> {
    let now = crate::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    // signal, error, code, padding, then the sender's pid.
    let mut info = [0i32; 32];
    // SAFETY: the kernel reads the set and the time, and writes one siginfo_t.
    unsafe { calls::rt_sigtimedwait(&raw const set, &raw mut info, &raw const now, Len(8)) }
        .map(|_| Taken(info))
}
