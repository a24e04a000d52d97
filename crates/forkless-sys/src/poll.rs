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
///
/// ```
/// # use forkless_sys::poll::{self, POLLIN, PollFd};
/// # use forkless_sys::{Errno, fd, time::Timespec};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// let mut fds = [PollFd { fd: read, events: POLLIN, revents: 0 }];
/// assert_eq!(poll::poll(&mut fds, Some(Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0));
/// fd::write(write, b"x")?;
/// assert_eq!((poll::poll(&mut fds, None), fds[0].revents), (Ok(1), POLLIN));
/// # fd::close(read)?;
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
pub fn poll(fds: &mut [PollFd], timeout: Option<Timespec>) -> Result<usize> {
    // The kernel writes the time left back; a copy keeps the caller's value.
    let mut left = timeout;
    let ts: *mut Timespec = left.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    // SAFETY: the kernel writes `revents` of the slice and the copy of the time-out.
    unsafe { call!(__NR_ppoll, fds.as_mut_ptr(), fds.len(), ts, null::<u64>(), 8usize) }
}

/// `futex(FUTEX_WAIT)`, not private: the kernel's own wake for CLONE_CHILD_CLEARTID is a shared one (`mm_release`).
/// Returns at once with `EAGAIN` when the word is not `expected`.
///
/// ```
/// # use core::sync::atomic::AtomicU32;
/// # use forkless_sys::{Errno, poll, time::Timespec};
/// let word = AtomicU32::new(1);
/// assert_eq!(poll::futex_wait(&word, 0, None), Err(Errno::EAGAIN)); // it is 1 already
/// let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// assert_eq!(poll::futex_wait(&word, 1, Some(&millisecond)), Err(Errno::ETIMEDOUT));
/// ```
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<&Timespec>) -> Result<()> {
    let ts = timeout.map_or(null(), core::ptr::from_ref);
    // SAFETY: the kernel reads the word.
    unsafe { call!(__NR_futex, word.as_ptr(), k::FUTEX_WAIT, expected, ts) }.map(drop)
}

/// `futex(FUTEX_WAKE)`, not private: wakes at most `count` waiters.
///
/// ```
/// # use core::sync::atomic::{AtomicU32, Ordering};
/// # use forkless_sys::poll;
/// let word = AtomicU32::new(0);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         while word.load(Ordering::Acquire) == 0 {
///             let _ = poll::futex_wait(&word, 0, None);
///         }
///     });
///     word.store(1, Ordering::Release);
///     assert!(poll::futex_wake(&word, 1).unwrap() <= 1); // 0 when it had not begun to wait
/// });
/// ```
pub fn futex_wake(word: &AtomicU32, count: u32) -> Result<usize> {
    // SAFETY: the kernel uses the address only.
    unsafe { call!(__NR_futex, word.as_ptr(), k::FUTEX_WAKE, count) }
}
