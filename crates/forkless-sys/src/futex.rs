//! Waits for a word of memory that another process changes.
#![expect(unsafe_code, reason = "each call states why the kernel writes no memory")]

use crate::calls::{self, Num, Op};
use core::sync::atomic::AtomicU32;

use crate::Result;
use linux_raw_sys::general as k;

/// `futex(2)`, `FUTEX_WAIT`: waits for [`wake`]. `EAGAIN`: the word is not `expected`. `EINTR`: a
/// signal came.
///
/// The word may be in memory that processes share: their waiters are in one queue.
#[inline(always)]
pub fn wait(word: &AtomicU32, expected: u32) -> Result<()> {
    // SAFETY: the kernel reads the word; no time limit is given.
    unsafe { calls::futex(word.as_ptr(), Op(k::FUTEX_WAIT), Num(expected), core::ptr::null()) }.map(drop)
}

/// `futex(2)`, `FUTEX_WAKE`: wakes every waiter, and returns how many there were.
#[inline(always)]
pub fn wake(word: &AtomicU32) -> Result<usize> {
    // SAFETY: the kernel uses the address as a key, and reads nothing.
    unsafe { calls::futex(word.as_ptr(), Op(k::FUTEX_WAKE), Num(i32::MAX as u32), core::ptr::null()) }
}
