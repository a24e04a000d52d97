//! Time as the kernel counts it.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;
pub use crate::abi::Timespec;
use crate::calls::{self, Fd, Flags, Int, Op};
use linux_raw_sys::general as k;

/// `nanosleep(2)`. May return early with `EINTR`.
#[inline]
pub fn nanosleep(time: Timespec) -> Result<()> {
    // SAFETY: the kernel reads `time`; a null pointer asks for no remaining time.
    unsafe { calls::nanosleep(&raw const time, core::ptr::null_mut()) }.map(drop)
}

/// `clock_gettime(CLOCK_MONOTONIC_COARSE)` by a system call. Its resolution is a few milliseconds.
#[inline]
pub fn monotonic_coarse() -> Timespec {
    let mut now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; this clock exists on every kernel since 2.6.32.
    let _ = unsafe { calls::clock_gettime(Op(k::CLOCK_MONOTONIC_COARSE), &raw mut now) };
    now
}

/// `clock_gettime(CLOCK_THREAD_CPUTIME_ID)`: the processor time of the calling thread.
#[inline]
pub fn of_thread() -> Timespec {
    let mut time = Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; this clock always exists.
    let _ = unsafe { calls::clock_gettime(Op(k::CLOCK_THREAD_CPUTIME_ID), &raw mut time) };
    time
}

/// `clock_gettime(CLOCK_MONOTONIC)` by a system call.
#[inline]
pub fn monotonic() -> Timespec {
    let mut now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; this clock always exists.
    let _ = unsafe { calls::clock_gettime(Op(k::CLOCK_MONOTONIC), &raw mut now) };
    now
}

/// `timer_create(2)` on the processor clock of a process. The timer is not set, and would not send
/// a signal. The caller deletes it.
#[inline]
pub fn timer_of_process(pid: i32) -> Result<i32> {
    // A whole process's clock of the scheduler (`make_process_cpuclock`, linux/posix-timers.h).
    const CPUCLOCK_SCHED: i32 = 2;
    const SIGEV_NONE: u32 = 1;
    let clock = (!pid << 3) | CPUCLOCK_SCHED;
    // `struct sigevent` (asm-generic/siginfo.h): a value of 8 bytes, the signal, the kind.
    let mut event = [0u32; 16];
    event[3] = SIGEV_NONE;
    let mut id = -1;
    // SAFETY: the kernel reads one sigevent and writes one id.
    unsafe { calls::timer_create(Op(clock as u32), &raw const event, &raw mut id) }?;
    Ok(id)
}

/// `timer_settime(2)`: stops a timer. `ESRCH` once the process whose clock it has was reaped
/// (`posix_cpu_timer_set`, kernel/time/posix-cpu-timers.c).
#[inline]
pub fn stop_timer(id: i32) -> Result<()> {
    let never = [Timespec { tv_sec: 0, tv_nsec: 0 }; 2];
    // SAFETY: the kernel reads one itimerspec; a null pointer asks for no old one.
    unsafe { calls::timer_settime(Int(id), Flags(0), &raw const never, core::ptr::null_mut()) }.map(drop)
}

/// `timer_delete(2)`.
#[inline]
pub fn delete_timer(id: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::timer_delete(Int(id)) }.map(drop)
}

/// `timerfd_create(2)` on the monotonic clock, close-on-exec and non-blocking. The descriptor is
/// readable after the time of [`arm_timerfd`]. The caller closes it.
#[inline]
pub fn timerfd() -> Result<i32> {
    // SAFETY: takes two numbers.
    unsafe { calls::timerfd_create(Op(k::CLOCK_MONOTONIC), Flags(k::TFD_CLOEXEC | k::TFD_NONBLOCK)) }
        .map(|fd| fd as i32)
}

/// `timerfd_settime(2)`: expires once, `after` from now. An earlier expiry is forgotten: the
/// descriptor is no longer readable.
#[inline]
pub fn arm_timerfd(timer: i32, after: Timespec) -> Result<()> {
    // `struct __kernel_itimerspec` (linux/time_types.h): the interval, zero for once, and the time.
    let once = [Timespec { tv_sec: 0, tv_nsec: 0 }, after];
    // SAFETY: the kernel reads one itimerspec; a null pointer asks for no old one.
    unsafe { calls::timerfd_settime(Fd(timer), Flags(0), &raw const once, core::ptr::null_mut()) }.map(drop)
}
