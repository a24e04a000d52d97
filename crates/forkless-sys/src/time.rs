//! Time as the kernel counts it.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;

/// `struct timespec` with 64-bit seconds (`__kernel_timespec`).
///
/// ```
/// # use forkless_sys::time::{self, Timespec};
/// let Timespec { tv_sec, tv_nsec } = time::monotonic_coarse();
/// assert!(tv_sec >= 0 && (0..1_000_000_000).contains(&tv_nsec));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub tv_sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub tv_nsec: i64,
}

/// `nanosleep(2)`. May return early with `EINTR`.
///
/// ```
/// # use forkless_sys::{Errno, time::{self, Timespec}};
/// let begun = std::time::Instant::now();
/// time::nanosleep(Timespec { tv_sec: 0, tv_nsec: 1_000_000 })?;
/// assert!(begun.elapsed().as_millis() >= 1);
/// assert_eq!(time::nanosleep(Timespec { tv_sec: 0, tv_nsec: 1_000_000_000 }), Err(Errno::EINVAL));
/// # Ok::<(), Errno>(())
/// ```
pub fn nanosleep(time: Timespec) -> Result<()> {
    // SAFETY: the kernel reads `time`; the remaining time is not asked for.
    unsafe { call!(__NR_nanosleep, &raw const time, core::ptr::null::<u8>()) }.map(drop)
}

/// `clock_gettime(CLOCK_MONOTONIC_COARSE)`, from the kernel: a few milliseconds coarse.
///
/// ```
/// # use forkless_sys::time::{self, Timespec};
/// let before = time::monotonic_coarse();
/// std::thread::sleep(std::time::Duration::from_millis(20)); // more than a tick
/// let after = time::monotonic_coarse();
/// assert!((before.tv_sec, before.tv_nsec) < (after.tv_sec, after.tv_nsec));
/// ```
pub fn monotonic_coarse() -> Timespec {
    let mut now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; this clock exists on every kernel since 2.6.32.
    let _ =
        unsafe { call!(__NR_clock_gettime, linux_raw_sys::general::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now
}

/// `timerfd_create(2)` on the monotonic clock: a descriptor, close-on-exec and not blocking, that is readable once the time of
/// [`arm_timerfd`] is over. The caller closes it.
///
/// ```
/// # use forkless_sys::{Errno, fd, poll::{self, POLLIN, PollFd}, time::{self, Timespec}};
/// let timer = time::timerfd()?;
/// time::arm_timerfd(timer, Timespec { tv_sec: 0, tv_nsec: 1_000_000 })?;
/// let mut fds = [PollFd { fd: timer, events: POLLIN, revents: 0 }];
/// assert_eq!(poll::poll(&mut fds, None), Ok(1));
/// # fd::close(timer)?;
/// # Ok::<(), Errno>(())
/// ```
pub fn timerfd() -> Result<i32> {
    use linux_raw_sys::general as k;
    // SAFETY: takes two numbers.
    unsafe { call!(__NR_timerfd_create, k::CLOCK_MONOTONIC, k::TFD_CLOEXEC | k::TFD_NONBLOCK) }
        .map(|fd| fd as i32)
}

/// `timerfd_settime(2)`: once, that long from now. A time that was over before is forgotten: the descriptor is no longer readable.
///
/// ```
/// # use forkless_sys::{Errno, time::{self, Timespec}};
/// assert_eq!(time::arm_timerfd(-1, Timespec { tv_sec: 0, tv_nsec: 1 }), Err(Errno::EBADF));
/// ```
pub fn arm_timerfd(timer: i32, after: Timespec) -> Result<()> {
    /// `struct __kernel_itimerspec` (linux/time_types.h): the interval, zero for once, and the time.
    #[repr(C)]
    struct Once {
        interval: Timespec,
        value: Timespec,
    }
    let once = Once { interval: Timespec { tv_sec: 0, tv_nsec: 0 }, value: after };
    // SAFETY: the kernel reads one itimerspec; the old one is not asked for.
    unsafe { call!(__NR_timerfd_settime, timer, 0u32, &raw const once, core::ptr::null::<u8>()) }.map(drop)
}
