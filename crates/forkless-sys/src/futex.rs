//! Waiting for a word that another process changes.
#![expect(unsafe_code, reason = "each call states why the kernel writes no memory")]

use crate::calls::{self, Num, Op};
use core::sync::atomic::AtomicU32;

use crate::Result;
use linux_raw_sys::general as k;

/// `futex(2)`, `FUTEX_WAIT`: until somebody wakes the word. `EAGAIN` where it has another value already, `EINTR` after a signal.
///
/// The word may be in memory that processes share; the waiters of all of them are one queue.
#[inline(always)]
pub fn wait(word: &AtomicU32, expected: u32) -> Result<()> {
    // SAFETY: the kernel reads the word; no time limit is given.
    unsafe { calls::futex(word.as_ptr(), Op(k::FUTEX_WAIT), Num(expected), core::ptr::null()) }.map(drop)
}

/// `futex(2)`, `FUTEX_WAKE`: everybody who waits for the word.
#[inline(always)]
pub fn wake(word: &AtomicU32) -> Result<usize> {
    // SAFETY: the kernel takes the word's address for a name, and reads nothing.
    unsafe { calls::futex(word.as_ptr(), Op(k::FUTEX_WAKE), Num(i32::MAX as u32), core::ptr::null()) }
}
