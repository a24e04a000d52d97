//! Waiting for a word that another process changes.
#![expect(unsafe_code, reason = "each call states why the kernel writes no memory")]

use core::sync::atomic::AtomicU32;

use crate::Result;
use linux_raw_sys::general as k;

/// `futex(2)`, `FUTEX_WAIT`: until somebody wakes the word. `EAGAIN` where it has another value already, `EINTR` after a signal.
///
/// The word may be in memory that processes share; the waiters of all of them are one queue.
///
/// ```
/// # use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// # use forkless_sys::{Errno, futex};
/// let word = AtomicU32::new(1);
/// assert_eq!(futex::wait(&word, 0), Err(Errno::EAGAIN)); // it is 1
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         word.store(2, Relaxed);
///         futex::wake(&word)
///     });
///     while word.load(Relaxed) == 1 {
///         let _ = futex::wait(&word, 1);
///     }
/// });
/// ```
#[inline(always)]
pub fn wait(word: &AtomicU32, expected: u32) -> Result<()> {
    // SAFETY: the kernel reads the word; no time limit is given.
    unsafe { call!(__NR_futex, word.as_ptr(), k::FUTEX_WAIT, expected, core::ptr::null::<u8>()) }.map(drop)
}

/// `futex(2)`, `FUTEX_WAKE`: everybody who waits for the word.
///
/// ```
/// # use core::sync::atomic::AtomicU32;
/// assert_eq!(forkless_sys::futex::wake(&AtomicU32::new(0)), Ok(0)); // nobody waited
/// ```
#[inline(always)]
pub fn wake(word: &AtomicU32) -> Result<usize> {
    // SAFETY: the kernel takes the word's address for a name, and reads nothing.
    unsafe { call!(__NR_futex, word.as_ptr(), k::FUTEX_WAKE, i32::MAX) }
}
