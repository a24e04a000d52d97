//! Descriptors: making, moving, closing, and reading and writing through them.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::{CPtr, Result};
use core::mem::MaybeUninit;
use linux_raw_sys::general as k;

pub use k::{
    AT_EMPTY_PATH, AT_FDCWD, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_TRUNC,
    O_WRONLY,
};

/// In the child's new table only: `close_range` first takes a private copy of the part it does not close.
pub const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
/// Mark instead of close (Linux 5.11).
pub const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

/// `close(2)`. The descriptor is gone even on `EINTR`.
#[inline(always)]
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_close, fd) }.map(drop)
}

/// `close_range(2)`, Linux 5.9: `first..=last`.
#[inline(always)]
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_close_range, first, last, flags) }.map(drop)
}

/// `dup3(2)`; `EINVAL` when the two are equal.
#[inline(always)]
pub fn dup3(from: i32, to: i32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_dup3, from, to, flags) }.map(drop)
}

/// `fcntl(F_DUPFD_CLOEXEC)`: a copy at the lowest free number not below `min`.
#[inline(always)]
pub fn dup_cloexec(fd: i32, min: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_DUPFD_CLOEXEC, min) }.map(|n| n as i32)
}

/// `fcntl(F_GETFD)`: the descriptor's flags; `EBADF` tells that it is closed.
#[inline(always)]
pub fn get_fd_flags(fd: i32) -> Result<u32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_GETFD) }.map(|n| n as u32)
}

/// `fcntl(F_SETFD)`: sets or clears close-on-exec.
#[inline(always)]
pub fn set_cloexec(fd: i32, on: bool) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_SETFD, u32::from(on)) }.map(drop)
}

/// `fcntl(F_GETFL)`: the open file description's status flags.
#[inline(always)]
pub fn get_status_flags(fd: i32) -> Result<u32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_GETFL) }.map(|n| n as u32)
}

/// `fcntl(F_SETFL)`. Seen by everyone who shares the open file description.
#[inline(always)]
pub fn set_status_flags(fd: i32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_SETFL, flags) }.map(drop)
}

/// `pipe2(2)`: read end, write end.
#[inline(always)]
pub fn pipe2(flags: u32) -> Result<(i32, i32)> {
    let mut ends = [-1i32; 2];
    // SAFETY: the kernel writes two ints into `ends`.
    unsafe { call!(__NR_pipe2, ends.as_mut_ptr(), flags) }?;
    Ok((ends[0], ends[1]))
}

/// `openat(2)`.
#[inline(always)]
pub fn openat(dir: i32, path: CPtr<'_>, flags: u32, mode: u32) -> Result<i32> {
    // SAFETY: writes no memory; `CPtr` is NUL-terminated.
    unsafe { call!(__NR_openat, dir, path, flags, mode) }.map(|n| n as i32)
}

/// `newfstatat(2)`: device and inode of a file by its path, or of a descriptor for an empty path and `AT_EMPTY_PATH`.
#[inline(always)]
pub fn identity(dir: i32, path: CPtr<'_>, flags: u32) -> Result<(u64, u64)> {
    // struct stat begins with both on the supported architectures; 144 bytes at most.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes one struct stat; `CPtr` is NUL-terminated.
    unsafe { call!(__NR_newfstatat, dir, path, stat.as_mut_ptr(), flags) }?;
    Ok((stat[0], stat[1]))
}

/// `read(2)`.
#[inline(always)]
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    unsafe { call!(__NR_read, fd, buf.as_mut_ptr(), buf.len()) }
}

/// `getdents64(2)`: entries of a directory, as many as fit; none at its end.
///
/// Each is `struct linux_dirent64`: 16 bytes, the entry's length in 2, a type, and the name up to a NUL.
#[inline(always)]
pub fn getdents64(fd: i32, buf: &mut [MaybeUninit<u8>]) -> Result<&[u8]> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    let n = unsafe { call!(__NR_getdents64, fd, buf.as_mut_ptr(), buf.len()) }?;
    // SAFETY: the kernel has written the first `n` bytes, and `n` is at most the length.
    Ok(unsafe { core::slice::from_raw_parts(buf.as_ptr().cast(), n) })
}

/// `write(2)`.
#[inline(always)]
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_write, fd, buf.as_ptr(), buf.len()) }
}

/// `pidfd_getfd(2)`: a copy, close-on-exec, of a descriptor of another process.
#[inline(always)]
pub fn pidfd_getfd(pidfd: i32, target: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_pidfd_getfd, pidfd, target, 0u32) }.map(|n| n as i32)
}

/// `ioctl(TIOCSCTTY)`: makes the terminal the caller's controlling one; 1 steals it (root only).
#[inline(always)]
pub fn set_controlling_terminal(fd: i32, steal: bool) -> Result<()> {
    // SAFETY: the argument is a number, not an address (`ioctl_tty(2)`).
    unsafe { call!(__NR_ioctl, fd, linux_raw_sys::ioctl::TIOCSCTTY, u32::from(steal)) }.map(drop)
}

/// `tcsetpgrp(3)`: the terminal's foreground group. Block SIGTTOU before.
#[inline(always)]
pub fn set_foreground_group(fd: i32, pgid: i32) -> Result<()> {
    // SAFETY: the kernel reads one int.
    unsafe { call!(__NR_ioctl, fd, linux_raw_sys::ioctl::TIOCSPGRP, &raw const pgid) }.map(drop)
}

/// `pread64(2)` to an address: for copying between address spaces, where both sides are known by number.
///
/// # Safety
/// `to..to + len` must be memory of the caller's that nothing else refers to.
pub unsafe fn pread_raw(fd: i32, to: *mut u8, len: usize, offset: u64) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_pread64, fd, to, len, offset) }
}
