//! Scheduling and limits of the calling thread or process.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;
use core::ptr::null;

/// `struct rlimit64`: both in the resource's own unit, `u64::MAX` for none.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// let limit = sched::getrlimit(7)?; // RLIMIT_NOFILE: what is open has numbers below it
/// assert!(limit.soft > 2 && limit.soft <= limit.hard);
/// # Ok::<(), Errno>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rlimit {
    /// What is enforced.
    pub soft: u64,
    /// Up to where the soft limit may be raised without privilege.
    pub hard: u64,
}

/// `prlimit64(2)` on the calling process: sets a limit.
///
/// ```
/// # use forkless_sys::{Errno, sched::{self, Rlimit}};
/// let none = Rlimit { soft: 0, hard: 0 };
/// sched::setrlimit(4, none)?; // RLIMIT_CORE, in bytes
/// assert_eq!(sched::getrlimit(4), Ok(none));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn setrlimit(resource: u32, limit: Rlimit) -> Result<()> {
    // SAFETY: the kernel reads `limit`.
    unsafe { call!(__NR_prlimit64, 0i32, resource, &raw const limit, null::<Rlimit>()) }.map(drop)
}

/// `prlimit64(2)` on the calling process: reads a limit.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// let limit = sched::getrlimit(4)?;
/// sched::setrlimit(4, limit)?; // one may always keep it
/// assert_eq!(sched::getrlimit(1000), Err(Errno::EINVAL));
/// # Ok::<(), Errno>(())
/// ```
pub fn getrlimit(resource: u32) -> Result<Rlimit> {
    let mut limit = Rlimit { soft: 0, hard: 0 };
    // SAFETY: the kernel writes `limit`.
    unsafe { call!(__NR_prlimit64, 0i32, resource, null::<Rlimit>(), &raw mut limit) }?;
    Ok(limit)
}

/// `setpriority(2)` of the calling thread: the nice value, -20 to 19.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// let nicer = (sched::nice()? + 1).min(19);
/// sched::set_nice(nicer)?;
/// assert_eq!(sched::nice(), Ok(nicer));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_nice(nice: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setpriority, 0i32, 0i32, nice) }.map(drop)
}

/// `getpriority(2)` of the calling thread: the nice value.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// sched::set_nice(19)?;
/// assert_eq!(sched::nice(), Ok(19));
/// # Ok::<(), Errno>(())
/// ```
pub fn nice() -> Result<i32> {
    // The system call answers 20 - nice, to stay positive (`getpriority(2)`, NOTES).
    // SAFETY: writes no memory.
    unsafe { call!(__NR_getpriority, 0i32, 0i32) }.map(|n| 20 - n as i32)
}

/// `sched_setscheduler(2)` of the calling thread. `priority` is 0 for the policies that have none.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// let (policy, priority) = sched::scheduler()?;
/// sched::set_scheduler(policy, priority)?;
/// assert_eq!(sched::set_scheduler(policy, 1000), Err(Errno::EINVAL));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_scheduler(policy: i32, priority: i32) -> Result<()> {
    // SAFETY: the kernel reads one int (`struct sched_param`).
    unsafe { call!(__NR_sched_setscheduler, 0i32, policy, &raw const priority) }.map(drop)
}

/// `sched_getscheduler(2)` and `sched_getparam(2)` of the calling thread.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// let (policy, priority) = sched::scheduler()?;
/// sched::set_scheduler(policy, priority)?;
/// assert_eq!(sched::scheduler(), Ok((policy, priority)));
/// # Ok::<(), Errno>(())
/// ```
pub fn scheduler() -> Result<(i32, i32)> {
    // SAFETY: writes no memory.
    let policy = unsafe { call!(__NR_sched_getscheduler, 0i32) }? as i32;
    let mut priority = 0i32;
    // SAFETY: the kernel writes one int (`struct sched_param`).
    unsafe { call!(__NR_sched_getparam, 0i32, &raw mut priority) }?;
    Ok((policy, priority))
}

/// `sched_setaffinity(2)` of the calling thread: one bit a CPU.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// let mut mask = [0; 128];
/// let words = sched::affinity(&mut mask)?;
/// let only = mask.iter().position(|word| *word != 0).unwrap();
/// let mut one = [0; 128];
/// one[only] = 1 << mask[only].trailing_zeros();
/// sched::set_affinity(&one[..words])?;
/// assert_eq!(sched::affinity(&mut mask), Ok(words));
/// assert_eq!(mask, one);
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_affinity(mask: &[u64]) -> Result<()> {
    // SAFETY: the kernel reads the slice.
    unsafe { call!(__NR_sched_setaffinity, 0i32, size_of_val(mask), mask.as_ptr()) }.map(drop)
}

/// `sched_getaffinity(2)` of the calling thread into `mask`; the number of words written.
///
/// ```
/// # use forkless_sys::{Errno, sched};
/// let mut mask = [0; 128];
/// let words = sched::affinity(&mut mask)?;
/// let cpus: u32 = mask[..words].iter().map(|word| word.count_ones()).sum();
/// assert!(cpus as usize >= std::thread::available_parallelism().unwrap().get());
/// # Ok::<(), Errno>(())
/// ```
pub fn affinity(mask: &mut [u64]) -> Result<usize> {
    // SAFETY: the kernel writes at most the slice's size.
    unsafe { call!(__NR_sched_getaffinity, 0i32, size_of_val(mask), mask.as_mut_ptr()) }
        .map(|bytes| bytes / 8)
}

/// `sched_yield(2)`.
///
/// ```
/// # use core::sync::atomic::{AtomicBool, Ordering};
/// # use forkless_sys::sched;
/// let done = AtomicBool::new(false);
/// std::thread::scope(|scope| {
///     scope.spawn(|| done.store(true, Ordering::Release));
///     while !done.load(Ordering::Acquire) {
///         sched::yield_now(); // the other may need this CPU
///     }
/// });
/// assert!(done.into_inner());
/// ```
pub fn yield_now() {
    // SAFETY: writes no memory.
    let _ = unsafe { call!(__NR_sched_yield) };
}
