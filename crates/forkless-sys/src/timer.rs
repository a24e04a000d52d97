//! POSIX timers of the calling process. Not inherited by clone, deleted at exec.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;
use crate::abi::Timespec;
use crate::calls::{self, Flags, Int, Op, Word};
use linux_raw_sys::general as k;

/// A timer's kernel id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(pub i32);

/// `timer_create(2)` on the monotonic clock, sending `signal` to the process. `EAGAIN`:
/// `RLIMIT_SIGPENDING` is used up.
#[inline]
pub fn create(signal: i32) -> Result<TimerId> {
    create_as(signal, 0)
}

/// [`create`] with the largest id, after which the kernel counts from 0 again. So the next timer,
/// also one made after an exec, gets id 0, as in a process without timers. Before Linux 6.15 it is
/// [`create`]. No other thread may create timers meanwhile.
#[inline]
pub fn create_last(signal: i32) -> Result<TimerId> {
    /// linux/prctl.h: while it is on, a timer gets the id that its creator asks for.
    const PR_TIMER_CREATE_RESTORE_IDS: u32 = 77;
    // SAFETY: the call writes no memory.
    let restore =
        |on| unsafe { calls::prctl(Op(PR_TIMER_CREATE_RESTORE_IDS), Word(on), Word(0), Word(0), Word(0)) };
    if restore(1).is_err() {
        return create(signal);
    }
    let timer = create_as(signal, i32::MAX);
    restore(0)?;
    timer
}

fn create_as(signal: i32, mut id: i32) -> Result<TimerId> {
    /// `struct sigevent` (`asm-generic/siginfo.h`): value, signal, kind of notification, padding to
    /// 64 bytes.
    #[repr(C)]
    struct SigEvent {
        value: usize,
        signo: i32,
        notify: i32,
        pad: [u32; 12],
    }
    const _: () = assert!(size_of::<SigEvent>() == 64);
    let event = SigEvent { value: 0, signo: signal, notify: k::SIGEV_SIGNAL as i32, pad: [0; 12] };
    // SAFETY: the kernel reads one sigevent, and reads and writes one int.
    unsafe { calls::timer_create(Op(k::CLOCK_MONOTONIC), (&raw const event).cast(), &raw mut id) }?;
    Ok(TimerId(id))
}

/// `timer_gettime(2)`: the time until it expires; zero after that, and when it is not armed.
#[inline]
pub fn left(timer: TimerId) -> Result<Timespec> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut now = [none, none];
    // SAFETY: the kernel writes one itimerspec: interval, then value.
    unsafe { calls::timer_gettime(Int(timer.0), &raw mut now) }.map(|_| now[1])
}

/// `timer_settime(2)`: expires once, `after` from now; zero disarms. Returns the time that was
/// left, zero when it was not armed.
#[inline]
pub fn set(timer: TimerId, after: Timespec) -> Result<Timespec> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (spec, mut old) = ([none, after], [none, none]);
    // SAFETY: the kernel reads one itimerspec (interval, then value) and writes one.
    unsafe { calls::timer_settime(Int(timer.0), Flags(0), &raw const spec, &raw mut old) }.map(|_| old[1])
}
