//! Scheduling and limits of the calling thread or process.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;
pub use crate::abi::Rlimit;
use crate::calls::{self, Int, Len, Op, Pid};
use core::ptr::{null, null_mut};
use linux_raw_sys::general as k;

/// `prlimit64(2)` on the calling process: sets a limit.
#[inline(always)]
pub fn setrlimit(resource: u32, limit: Rlimit) -> Result<()> {
    // SAFETY: the kernel reads `limit`.
    unsafe { calls::prlimit64(Pid(0), Op(resource), &raw const limit, null_mut()) }.map(drop)
}

/// `prlimit64(2)` on the calling process: reads a limit.
#[inline]
pub fn getrlimit(resource: u32) -> Result<Rlimit> {
    let mut limit = Rlimit { soft: 0, hard: 0 };
    // SAFETY: the kernel writes `limit`.
    unsafe { calls::prlimit64(Pid(0), Op(resource), null(), &raw mut limit) }?;
    Ok(limit)
}

/// `setpriority(2)` of the calling thread: the nice value, -20 to 19.
#[inline(always)]
pub fn set_nice(nice: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setpriority(Op(k::PRIO_PROCESS), Pid(0), Int(nice)) }.map(drop)
}

/// `getpriority(2)` of the calling thread: the nice value.
#[inline]
pub fn nice() -> Result<i32> {
    // The system call answers 20 - nice, to stay positive (`getpriority(2)`, NOTES).
    // SAFETY: writes no memory.
    unsafe { calls::getpriority(Op(k::PRIO_PROCESS), Pid(0)) }.map(|n| 20 - n as i32)
}

/// `sched_setscheduler(2)` of the calling thread. `priority` is 0 for the policies that have none.
#[inline(always)]
pub fn set_scheduler(policy: i32, priority: i32) -> Result<()> {
    // SAFETY: the kernel reads one int (`struct sched_param`).
    unsafe { calls::sched_setscheduler(Pid(0), Int(policy), &raw const priority) }.map(drop)
}

/// `sched_getscheduler(2)` and `sched_getparam(2)` of the calling thread.
#[inline]
pub fn scheduler() -> Result<(i32, i32)> {
    // SAFETY: writes no memory.
    let policy = unsafe { calls::sched_getscheduler(Pid(0)) }? as i32;
    let mut priority = 0i32;
    // SAFETY: the kernel writes one int (`struct sched_param`).
    unsafe { calls::sched_getparam(Pid(0), &raw mut priority) }?;
    Ok((policy, priority))
}

/// `sched_setaffinity(2)` of the calling thread: one bit for each CPU.
#[inline(always)]
pub fn set_affinity(mask: &[u64]) -> Result<()> {
    // SAFETY: the kernel reads the slice.
    unsafe { calls::sched_setaffinity(Pid(0), Len(size_of_val(mask)), mask.as_ptr()) }.map(drop)
}

/// `sched_getaffinity(2)` of the calling thread into `mask`; returns the number of words written.
#[inline]
pub fn affinity(mask: &mut [u64]) -> Result<usize> {
    // SAFETY: the kernel writes at most the slice's size.
    unsafe { calls::sched_getaffinity(Pid(0), Len(size_of_val(mask)), mask.as_mut_ptr()) }
        .map(|bytes| bytes / 8)
}

/// `sched_yield(2)`.
#[inline]
pub fn yield_now() {
    // SAFETY: writes no memory.
    let _ = unsafe { calls::sched_yield() };
}
