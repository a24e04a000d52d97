//! Structures that the kernel reads and writes, in its layout. The modules of the calls that take
//! them export them.

use linux_raw_sys::general as k;

/// `struct timespec` with 64-bit seconds (`__kernel_timespec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub tv_sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub tv_nsec: i64,
}

impl Timespec {
    const SECOND: u64 = 1_000_000_000;

    /// So many nanoseconds.
    #[inline]
    #[must_use]
    pub const fn of_nanos(nanos: u64) -> Timespec {
        Timespec { tv_sec: (nanos / Self::SECOND) as i64, tv_nsec: (nanos % Self::SECOND) as i64 }
    }

    /// In nanoseconds. A time of a clock that counts from the start of the system, or a length.
    #[inline]
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.tv_sec as u64 * Self::SECOND + self.tv_nsec as u64
    }
}

/// `struct rlimit64`: both in the resource's own unit; `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rlimit {
    /// The limit that the kernel enforces.
    pub soft: u64,
    /// The highest soft limit that needs no privilege.
    pub hard: u64,
}

/// The number of signals, the highest being this one (`_NSIG`).
pub const MAX_SIGNAL: i32 = 64;

/// A set of signals as the kernel stores it: bit `n - 1` for signal `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct SigSet(pub u64);

impl SigSet {
    /// No signal.
    pub const EMPTY: SigSet = SigSet(0);
    /// Every signal, libc's own included.
    pub const ALL: SigSet = SigSet(u64::MAX);

    /// The set and `signal`; out-of-range numbers change nothing.
    #[must_use]
    #[inline]
    pub const fn with(self, signal: i32) -> SigSet {
        if signal < 1 || signal > MAX_SIGNAL { self } else { SigSet(self.0 | 1 << (signal - 1)) }
    }

    /// The set without `signal`.
    #[must_use]
    #[inline]
    pub const fn without(self, signal: i32) -> SigSet {
        SigSet(self.0 & !SigSet::EMPTY.with(signal).0)
    }

    /// Whether `signal` is in the set.
    #[inline]
    pub const fn has(self, signal: i32) -> bool {
        self.0 & SigSet::EMPTY.with(signal).0 != 0
    }

    /// The signals in both.
    #[must_use]
    #[inline]
    pub const fn and(self, other: SigSet) -> SigSet {
        SigSet(self.0 & other.0)
    }
}

/// The kernel's treatment of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// The signal's default action.
    Default,
    /// The signal is discarded. Survives exec.
    Ignore,
    /// A function runs: its address.
    Handler(usize),
}

/// `struct sigaction` in the kernel's layout, which is not libc's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KernelAction {
    /// 0: the default action, 1: ignored, else the address of a function.
    pub handler: usize,
    /// `SA_*`.
    pub flags: usize,
    /// The code that a handler returns to, with `SA_RESTORER`. arm64 has the field and does not use
    /// it.
    pub restorer: usize,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

impl KernelAction {
    /// The default action.
    pub const DEFAULT: KernelAction = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };

    /// Decodes the handler.
    #[inline(always)]
    pub fn disposition(&self) -> Disposition {
        match self.handler {
            0 => Disposition::Default,
            1 => Disposition::Ignore,
            h => Disposition::Handler(h),
        }
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<KernelAction>() == size_of::<k::kernel_sigaction>());
    assert!(offset_of!(KernelAction, mask) == offset_of!(k::kernel_sigaction, sa_mask));
};

/// `stack_t`: the stack of handlers that have `SA_ONSTACK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AltStack {
    /// Lowest address.
    pub start: usize,
    /// `SS_DISABLE`, `SS_ONSTACK`, `SS_AUTODISARM`.
    pub flags: i32,
    /// Bytes.
    pub size: usize,
}

impl AltStack {
    /// No alternate stack (`SS_DISABLE`).
    pub const NONE: AltStack = AltStack { start: 0, flags: 2, size: 0 };
    /// Bit of `flags`: the thread runs on it now.
    pub const ONSTACK: i32 = 1;
}
