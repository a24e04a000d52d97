//! Time as the kernel counts it.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;

/// `struct timespec` with 64-bit seconds (`__kernel_timespec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub tv_sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub tv_nsec: i64,
}

/// `nanosleep(2)`. May return early with `EINTR`.
pub fn nanosleep(time: Timespec) -> Result<()> {
    // SAFETY: the kernel reads `time`; the remaining time is not asked for.
    unsafe { call!(__NR_nanosleep, &raw const time, core::ptr::null::<u8>()) }.map(drop)
}
