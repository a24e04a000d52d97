//! POSIX timers of the calling process. Not inherited by clone, deleted at exec.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::{Result, time::Timespec};
use linux_raw_sys::general as k;

/// A timer's kernel id.
///
/// ```
/// # use forkless_sys::{Errno, timer};
/// let (one, other) = (timer::create(14)?, timer::create(14)?);
/// assert_ne!(one, other);
/// # Ok::<(), Errno>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(pub i32);

/// `timer_create(2)` on the monotonic clock, sending `signal` to the process. `EAGAIN` when `RLIMIT_SIGPENDING` is used up.
///
/// ```
/// # use forkless_sys::{Errno, time::Timespec, timer};
/// let timer = timer::create(14)?;
/// timer::set(timer, Timespec { tv_sec: 0, tv_nsec: 0 })?; // not armed
/// assert_eq!(timer::create(65), Err(Errno::EINVAL)); // no signal's
/// # Ok::<(), Errno>(())
/// ```
pub fn create(signal: i32) -> Result<TimerId> {
    create_as(signal, 0)
}

/// The same with the largest number there is, after which the kernel starts anew: the next timer, also one that is made after an exec, gets 0, as
/// in a process that has made none. Needs Linux 6.15; before that it is [`create`]. Only where no other thread makes timers.
///
/// ```
/// # use forkless_sys::{Errno, timer};
/// let last = timer::create_last(14)?;
/// let next = timer::create(14)?;
/// assert!((last.0 == i32::MAX && next.0 == 0) || next.0 == last.0 + 1);
/// # Ok::<(), Errno>(())
/// ```
pub fn create_last(signal: i32) -> Result<TimerId> {
    /// Of linux/prctl.h; a timer is then made with the number that is asked for.
    const PR_TIMER_CREATE_RESTORE_IDS: u32 = 77;
    // SAFETY: changes how timers are numbered.
    let restore = |on: u32| unsafe { call!(__NR_prctl, PR_TIMER_CREATE_RESTORE_IDS, on, 0u32, 0u32, 0u32) };
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
    unsafe { call!(__NR_timer_create, k::CLOCK_MONOTONIC, &raw const event, &raw mut id) }?;
    Ok(TimerId(id))
}

/// `timer_gettime(2)`: how long it still takes to go off; zero once it has, or when it is not armed.
///
/// ```
/// # use forkless_sys::{Errno, time::Timespec, timer};
/// let alarm = timer::create(14)?;
/// assert_eq!((timer::left(alarm)?.tv_sec, timer::left(alarm)?.tv_nsec), (0, 0));
/// timer::set(alarm, Timespec { tv_sec: 1000, tv_nsec: 0 })?;
/// assert!(timer::left(alarm)?.tv_sec > 900);
/// # Ok::<(), Errno>(())
/// ```
pub fn left(timer: TimerId) -> Result<Timespec> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut now = [none, none];
    // SAFETY: the kernel writes one itimerspec: interval, then value.
    unsafe { call!(__NR_timer_gettime, timer.0, now.as_mut_ptr()) }.map(|_| now[1])
}

/// `timer_settime(2)`, once, that long from now; zero disarms. Returns how long it had been from going off, zero when not armed.
///
/// ```
/// # use forkless_sys::{Errno, signal, time::{self, Timespec}, timer};
/// let alarm = signal::SigSet::EMPTY.with(14);
/// let old = signal::set_mask(alarm)?;
/// let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// timer::set(timer::create(14)?, millisecond)?;
/// while !signal::pending()?.has(14) {
///     time::nanosleep(millisecond)?;
/// }
/// assert_eq!(signal::take_pending(alarm), Ok(14));
/// signal::set_mask(old)?;
/// # Ok::<(), Errno>(())
/// ```
pub fn set(timer: TimerId, after: Timespec) -> Result<Timespec> {
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (spec, mut old) = ([none, after], [none, none]);
    // SAFETY: the kernel reads one itimerspec (interval, then value) and writes one.
    unsafe { call!(__NR_timer_settime, timer.0, 0u32, spec.as_ptr(), old.as_mut_ptr()) }.map(|_| old[1])
}
