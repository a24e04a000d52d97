//! Waits for descriptors and for words of memory.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;
use crate::calls::{self, Fd, Flags, Int, Len, Num, Op};
use crate::time::Timespec;
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicU32;
use linux_raw_sys::general as k;

pub use k::pollfd as PollFd;
/// There is data to read, or the peer is gone.
pub const POLLIN: i16 = k::POLLIN as i16;
/// There is room to write.
pub const POLLOUT: i16 = k::POLLOUT as i16;

/// `ppoll(2)` without a signal mask; `None` waits for ever. Returns the number of ready
/// descriptors, 0 after the time-out.
#[inline]
pub fn poll(fds: &mut [PollFd], timeout: Option<Timespec>) -> Result<usize> {
    // The kernel writes the time left back; a copy keeps the caller's value.
    let mut left = timeout;
    let left = left.as_mut().map_or(null_mut(), core::ptr::from_mut);
    // SAFETY: the kernel writes `revents` of the slice and the copy of the time-out.
    unsafe { calls::ppoll(fds.as_mut_ptr(), Len(fds.len()), left, null(), Len(8)) }
}

/// `futex(FUTEX_WAIT)`, not private: the kernel's own wake for CLONE_CHILD_CLEARTID is a shared one
/// (`mm_release`). Returns at once with `EAGAIN` when the word is not `expected`.
#[inline]
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<&Timespec>) -> Result<()> {
    let timeout = timeout.map_or(null(), core::ptr::from_ref);
    // SAFETY: the kernel reads the word.
    unsafe { calls::futex(word.as_ptr(), Op(k::FUTEX_WAIT), Num(expected), timeout) }.map(drop)
}

/// `futex(FUTEX_WAKE)`, not private: wakes at most `count` waiters.
#[inline]
pub fn futex_wake(word: &AtomicU32, count: u32) -> Result<usize> {
    // SAFETY: the kernel uses the address only.
    unsafe { calls::futex(word.as_ptr(), Op(k::FUTEX_WAKE), Num(count), null()) }
}

pub use k::epoll_event as EpollEvent;

/// `epoll_create1(2)`, close-on-exec. The caller closes it.
#[inline]
pub fn epoll_create() -> Result<i32> {
    // SAFETY: takes a number.
    unsafe { calls::epoll_create1(Flags(k::EPOLL_CLOEXEC)) }.map(|fd| fd as i32)
}

/// `epoll_ctl(EPOLL_CTL_ADD)` for [`POLLIN`]; `data` comes back with each event.
#[inline]
pub fn epoll_add(epoll: i32, fd: i32, data: u64) -> Result<()> {
    let event = EpollEvent { events: k::EPOLLIN, data };
    // SAFETY: the kernel reads one event.
    unsafe { calls::epoll_ctl(Fd(epoll), Op(k::EPOLL_CTL_ADD), Fd(fd), &raw const event) }.map(drop)
}

/// `epoll_pwait(2)` without a mask or a time-out: returns how many events were written, at least
/// one.
#[inline]
pub fn epoll_wait(epoll: i32, events: &mut [EpollEvent]) -> Result<usize> {
    // SAFETY: the kernel writes at most as many events as there is room for.
    unsafe {
        calls::epoll_pwait(Fd(epoll), events.as_mut_ptr(), Int(events.len() as i32), Int(-1), null(), Len(8))
    }
}

/// `pselect6(2)` without a signal mask, for descriptors below `number`; `None` waits for ever. Bit
/// `n % 64` of word `n / 64` is descriptor `n`, and stays set if it is ready. Unlike [`poll`], it
/// works whatever `RLIMIT_NOFILE` is.
///
/// # Panics
/// If a set has no room for `number` bits.
#[inline]
pub fn select(
    number: i32,
    readable: &mut [u64],
    writable: &mut [u64],
    timeout: Option<Timespec>,
) -> Result<usize> {
    let words = usize::try_from(number).unwrap_or(0).div_ceil(64);
    assert!(readable.len() >= words && writable.len() >= words, "a set is too small");
    let mut left = timeout;
    let left = left.as_mut().map_or(null_mut(), core::ptr::from_mut);
    // SAFETY: the kernel reads and writes whole words of both sets, which have room, and the copy
    // of the time-out.
    unsafe {
        calls::pselect6(Int(number), readable.as_mut_ptr(), writable.as_mut_ptr(), null_mut(), left, null())
    }
}
