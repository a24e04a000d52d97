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

/// Whether the four aligned bytes around `at` can be written. They stay as they are: the kernel
/// writes them back as it reads them, in one atomic operation (`futex(2)`, `FUTEX_WAKE_OP`). A
/// thread that waits there as for a futex may wake without need.
#[inline]
pub fn is_writable(at: usize) -> bool {
    /// `word |= 0`, and then whether it was 0 (linux/futex.h, `FUTEX_OP`).
    const OR_NOTHING: u32 = k::FUTEX_OP_OR << 28;
    let own = AtomicU32::new(0);
    let word = (at & !3) as *mut u32;
    // SAFETY: the kernel checks the address, and changes nothing there.
    let answer = unsafe {
        let op = Op(k::FUTEX_WAKE_OP | k::FUTEX_PRIVATE_FLAG);
        calls::futex_op(own.as_ptr(), op, Num(0), Num(0), word, Num(OR_NOTHING))
    };
    !word.is_null() && answer.is_ok()
}
