//! Waiting for descriptors and for words of memory.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;
use crate::time::Timespec;
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use linux_raw_sys::general as k;

pub use k::pollfd as PollFd;
/// Something to read, or a peer gone.
pub const POLLIN: i16 = k::POLLIN as i16;
/// Room to write.
pub const POLLOUT: i16 = k::POLLOUT as i16;
/// An error is pending, or the reading side of a pipe is gone.
pub const POLLERR: i16 = k::POLLERR as i16;
/// The other side hung up.
pub const POLLHUP: i16 = k::POLLHUP as i16;

/// `ppoll(2)` without a signal mask; `None` waits for ever. The number of ready descriptors, 0 on time-out.
pub fn poll(fds: &mut [PollFd], timeout: Option<Timespec>) -> Result<usize> {
    // The kernel writes the time left back; a copy keeps the caller's value.
    let mut left = timeout;
    let ts: *mut Timespec = left.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    // SAFETY: the kernel writes `revents` of the slice and the copy of the time-out.
    unsafe { call!(__NR_ppoll, fds.as_mut_ptr(), fds.len(), ts, null::<u64>(), 8usize) }
}

/// `futex(FUTEX_WAIT)`, not private: the kernel's own wake for CLONE_CHILD_CLEARTID is a shared one (`mm_release`).
/// Returns at once with `EAGAIN` when the word is not `expected`.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<&Timespec>) -> Result<()> {
    let ts = timeout.map_or(null(), core::ptr::from_ref);
    // SAFETY: the kernel reads the word.
    unsafe { call!(__NR_futex, word.as_ptr(), k::FUTEX_WAIT, expected, ts) }.map(drop)
}

/// `futex(FUTEX_WAKE)`, not private: wakes at most `count` waiters.
pub fn futex_wake(word: &AtomicU32, count: u32) -> Result<usize> {
    // SAFETY: the kernel uses the address only.
    unsafe { call!(__NR_futex, word.as_ptr(), k::FUTEX_WAKE, count) }
}
