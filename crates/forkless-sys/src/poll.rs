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

pub use k::epoll_event as EpollEvent;

/// `epoll_create1(2)`, close-on-exec. The caller closes it.
///
/// ```
/// # use forkless_sys::{Errno, fd, poll};
/// let epoll = poll::epoll_create()?;
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// poll::epoll_add(epoll, read, 7)?;
/// fd::write(write, b"x")?;
/// let mut events = [poll::EpollEvent { events: 0, data: 0 }; 4];
/// assert_eq!(poll::epoll_wait(epoll, &mut events), Ok(1));
/// assert_eq!({ events[0].data }, 7);
/// # for n in [epoll, read, write] { fd::close(n)?; }
/// # Ok::<(), Errno>(())
/// ```
pub fn epoll_create() -> Result<i32> {
    // SAFETY: takes a number.
    unsafe { call!(__NR_epoll_create1, k::EPOLL_CLOEXEC) }.map(|fd| fd as i32)
}

/// `epoll_ctl(EPOLL_CTL_ADD)` for [`POLLIN`]; `data` comes back with each event.
///
/// ```
/// # use forkless_sys::{Errno, poll};
/// assert_eq!(poll::epoll_add(-1, 0, 0), Err(Errno::EBADF));
/// ```
pub fn epoll_add(epoll: i32, fd: i32, data: u64) -> Result<()> {
    let event = EpollEvent { events: k::EPOLLIN, data };
    // SAFETY: the kernel reads one event.
    unsafe { call!(__NR_epoll_ctl, epoll, k::EPOLL_CTL_ADD, fd, &raw const event) }.map(drop)
}

/// `epoll_pwait(2)` without a mask or a time-out: how many events were written, at least one.
///
/// ```
/// # use forkless_sys::{Errno, poll};
/// assert_eq!(poll::epoll_wait(-1, &mut [poll::EpollEvent { events: 0, data: 0 }]), Err(Errno::EBADF));
/// ```
pub fn epoll_wait(epoll: i32, events: &mut [EpollEvent]) -> Result<usize> {
    // SAFETY: the kernel writes at most as many events as there is room for.
    unsafe {
        call!(__NR_epoll_pwait, epoll, events.as_mut_ptr(), events.len() as i32, -1i32, null::<u64>(), 8usize)
    }
}

/// `pselect6(2)` without a signal mask, for descriptors below `number`; `None` waits for ever. Bit `n % 64` of word `n / 64` is
/// descriptor `n`, and stays set where it is ready. Unlike [`poll`], it does not ask for `RLIMIT_NOFILE`.
///
/// ```
/// # use forkless_sys::{Errno, fd, poll};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// fd::write(write, b"x")?;
/// let mut set = vec![0u64; read as usize / 64 + 1];
/// set[read as usize / 64] |= 1 << (read % 64);
/// assert_eq!(poll::select(read + 1, &mut set.clone(), &mut set, None), Ok(1));
/// # fd::close(read)?;
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
///
/// # Panics
/// When a set has no room for `number` bits.
pub fn select(
    number: i32,
    readable: &mut [u64],
    writable: &mut [u64],
    timeout: Option<Timespec>,
) -> Result<usize> {
    let words = usize::try_from(number).unwrap_or(0).div_ceil(64);
    assert!(readable.len() >= words && writable.len() >= words, "a set is too small");
    let mut left = timeout;
    let ts: *mut Timespec = left.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    // SAFETY: the kernel reads and writes whole words of both sets, which have room, and the copy of the time-out.
    unsafe {
        call!(
            __NR_pselect6,
            number,
            readable.as_mut_ptr(),
            writable.as_mut_ptr(),
            null::<u64>(),
            ts,
            null::<u64>()
        )
    }
}
