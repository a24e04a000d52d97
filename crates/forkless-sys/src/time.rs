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
