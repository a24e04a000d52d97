//! POSIX timers of the calling process. Not inherited by clone, deleted at exec.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::calls::{self, Flags, Int, Op, Word};
use crate::{Result, time::Timespec};
use linux_raw_sys::general as k;

/// A timer's kernel id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(pub i32);

/// `timer_create(2)` on the monotonic clock, sending `signal` to the process. `EAGAIN` when `RLIMIT_SIGPENDING` is used up.
pub fn create(signal: i32) -> Result<TimerId> {
    create_as(signal, 0)
}

/// The same with the largest number there is, after which the kernel starts anew: the next timer, also one that is made after an exec, gets 0, as
/// in a process that has made none. Needs Linux 6.15; before that it is [`create`]. Only where no other thread makes timers.
pub fn create_last(signal: i32) -> Result<TimerId> {
    /// Of linux/prctl.h; a timer is then made with the number that is asked for.
    const PR_TIMER_CREATE_RESTORE_IDS: u32 = 77;
    // SAFETY: changes how timers are numbered.
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
    /// `struct sigevent` (`asm-generic/siginfo.h`): value, signal, kind of notification, padding to 64 bytes.
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

/// `timer_gettime(2)`: how long it still takes to go off; zero once it has, or when it is not armed.
pub fn left(timer: TimerId) -> Result<Timespec> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut now = [none, none];
    // SAFETY: the kernel writes one itimerspec: interval, then value.
    unsafe { calls::timer_gettime(Int(timer.0), &raw mut now) }.map(|_| now[1])
}

/// `timer_settime(2)`, once, that long from now; zero disarms. Returns how long it had been from going off, zero when not armed.
pub fn set(timer: TimerId, after: Timespec) -> Result<Timespec> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (spec, mut old) = ([none, after], [none, none]);
    // SAFETY: the kernel reads one itimerspec (interval, then value) and writes one.
    unsafe { calls::timer_settime(Int(timer.0), Flags(0), &raw const spec, &raw mut old) }.map(|_| old[1])
}
