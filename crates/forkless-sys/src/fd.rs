//! Descriptors: making, moving, closing, and reading and writing through them.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::calls::{self, Fd, Flags, Len, Mode, Num, Offset, Op, Pid, Word};
use crate::{CPtr, Result};
use core::mem::MaybeUninit;
use linux_raw_sys::general as k;

pub use k::{
    AT_EMPTY_PATH, AT_FDCWD, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK,
    O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
};

/// `close_range` first gives the caller a private descriptor table, without the descriptors it
/// closes.
pub const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
/// `close_range` sets close-on-exec instead of closing (Linux 5.11).
pub const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

/// `close(2)`. The descriptor is gone even on `EINTR`.
#[inline(always)]
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::close(Fd(fd)) }.map(drop)
}

/// `close_range(2)`, Linux 5.9: `first..=last`.
#[inline(always)]
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::close_range(Num(first), Num(last), Flags(flags)) }.map(drop)
}

/// `dup3(2)`; `EINVAL` when the two are equal.
#[inline(always)]
pub fn dup3(from: i32, to: i32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::dup3(Fd(from), Fd(to), Flags(flags)) }.map(drop)
}

/// `fcntl(F_DUPFD_CLOEXEC)`: a copy at the lowest free number not below `min`.
#[inline(always)]
pub fn dup_cloexec(fd: i32, min: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { calls::fcntl(Fd(fd), Op(k::F_DUPFD_CLOEXEC), Word(min as usize)) }.map(|n| n as i32)
}

/// `lseek(2)` by zero bytes: where the next read or write begins. `ESPIPE`: the file has no
/// position.
#[inline]
pub fn position(fd: i32) -> Result<u64> {
    // SAFETY: writes no memory. SEEK_CUR is 1.
    unsafe { calls::lseek(Fd(fd), Offset(0), Op(1)) }.map(|n| n as u64)
}

/// `fcntl(F_GETFD)`: the descriptor's flags. `EBADF`: it is closed.
#[inline(always)]
pub fn get_fd_flags(fd: i32) -> Result<u32> {
    // SAFETY: writes no memory.
    unsafe { calls::fcntl(Fd(fd), Op(k::F_GETFD), Word(0)) }.map(|n| n as u32)
}

/// `fcntl(F_SETFD)`: sets or clears close-on-exec.
#[inline(always)]
pub fn set_cloexec(fd: i32, on: bool) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::fcntl(Fd(fd), Op(k::F_SETFD), Word(usize::from(on))) }.map(drop)
}

/// `fcntl(F_GETFL)`: the open file description's status flags.
#[inline(always)]
pub fn get_status_flags(fd: i32) -> Result<u32> {
    // SAFETY: writes no memory.
    unsafe { calls::fcntl(Fd(fd), Op(k::F_GETFL), Word(0)) }.map(|n| n as u32)
}

/// `fcntl(F_SETFL)`. Every process that shares the open file description sees the change.
#[inline(always)]
pub fn set_status_flags(fd: i32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::fcntl(Fd(fd), Op(k::F_SETFL), Word(flags as usize)) }.map(drop)
}

/// Whether two descriptors of the calling process have one open file description, by `kcmp(2)` with
/// `KCMP_FILE`. `ENOSYS`: the kernel has no kcmp.
#[inline]
pub fn have_one_description(one: i32, other: i32) -> Result<bool> {
    /// linux/kcmp.h.
    const KCMP_FILE: u32 = 0;
    let own = Pid(crate::process::getpid());
    // SAFETY: writes no memory.
    unsafe { calls::kcmp(own, own, Op(KCMP_FILE), Word(one as usize), Word(other as usize)) }
        .map(|order| order == 0)
}

/// `pipe2(2)`: read end, write end.
#[inline(always)]
pub fn pipe2(flags: u32) -> Result<(i32, i32)> {
    let mut ends = [-1i32; 2];
    // SAFETY: the kernel writes two ints into `ends`.
    unsafe { calls::pipe2(&raw mut ends, Flags(flags)) }?;
    Ok((ends[0], ends[1]))
}

/// `openat(2)`.
#[inline(always)]
pub fn openat(dir: i32, path: CPtr<'_>, flags: u32, mode: u32) -> Result<i32> {
    // SAFETY: writes no memory; `CPtr` is NUL-terminated.
    unsafe { calls::openat(Fd(dir), path, Flags(flags), Mode(mode)) }.map(|n| n as i32)
}

/// `openat2(2)` with `RESOLVE_NO_XDEV` (Linux 5.6). `EXDEV`: the file lies on another mount than
/// `dir`, through a symbolic link or because something is mounted over the file or over a directory
/// of its path.
#[inline]
pub fn open_below(dir: i32, path: CPtr<'_>, flags: u32) -> Result<i32> {
    let how = k::open_how { flags: flags.into(), mode: 0, resolve: k::RESOLVE_NO_XDEV.into() };
    // SAFETY: the kernel reads one struct; `CPtr` is NUL-terminated.
    unsafe { calls::openat2(Fd(dir), path, &raw const how, Len(size_of::<k::open_how>())) }.map(|n| n as i32)
}

/// `fstatfs(2)`: the type of the descriptor's file system, such as `PROC_SUPER_MAGIC`
/// (linux/magic.h).
#[inline]
pub fn file_system(fd: i32) -> Result<i64> {
    // struct statfs begins with the type on both architectures; it has 120 bytes.
    let mut statfs = [0i64; 15];
    // SAFETY: the kernel writes one struct statfs.
    unsafe { calls::fstatfs(Fd(fd), &raw mut statfs) }?;
    Ok(statfs[0])
}

/// `newfstatat(2)`: device and inode of a file by its path, or of a descriptor for an empty path
/// and `AT_EMPTY_PATH`.
#[inline(always)]
pub fn identity(dir: i32, path: CPtr<'_>, flags: u32) -> Result<(u64, u64)> {
    // struct stat begins with device and inode on both architectures; it has 144 bytes at most.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes one struct stat; `CPtr` is NUL-terminated.
    unsafe { calls::newfstatat(Fd(dir), path, &raw mut stat, Flags(flags)) }?;
    Ok((stat[0], stat[1]))
}

/// Of a descriptor's file: mode, owner, and size in bytes.
#[inline]
pub fn about(fd: i32) -> Result<(u32, u32, u64)> {
    let mut stat = [0u64; 18];
    let path = CPtr::from(c"");
    // SAFETY: the kernel writes one struct stat of at most 144 bytes.
    unsafe { calls::newfstatat(Fd(fd), path, &raw mut stat, Flags(k::AT_EMPTY_PATH)) }?;
    // After device and inode, x86-64 has nlink of 64 bits, mode, uid; aarch64 (asm-generic/stat.h)
    // has mode, nlink of 32 bits, uid. The size is the seventh word on both.
    let (mode, uid) = if cfg!(target_arch = "x86_64") {
        (stat[3] as u32, (stat[3] >> 32) as u32)
    } else {
        (stat[2] as u32, stat[3] as u32)
    };
    Ok((mode, uid, stat[6]))
}

/// When a descriptor's file was created, in nanoseconds since 1970 (`statx(2)`, `stx_btime`). 0:
/// its file system does not record it.
#[inline]
pub fn birth(fd: i32) -> Result<u64> {
    let mut all = MaybeUninit::<k::statx>::zeroed();
    let path = CPtr::from(c"");
    // SAFETY: the kernel writes one struct statx.
    unsafe { calls::statx(Fd(fd), path, Flags(k::AT_EMPTY_PATH), Num(k::STATX_BTIME), all.as_mut_ptr()) }?;
    // SAFETY: the structure has only numbers, zeroed here.
    let all = unsafe { all.assume_init() };
    let made = (all.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000) + u64::from(all.stx_btime.tv_nsec);
    Ok(if all.stx_mask & k::STATX_BTIME == 0 { 0 } else { made })
}

/// `unlinkat(2)` of a file that is no directory.
#[inline]
pub fn unlink(path: CPtr<'_>) -> Result<()> {
    // SAFETY: writes no memory; `CPtr` is NUL-terminated.
    unsafe { calls::unlinkat(Fd(k::AT_FDCWD), path, Flags(0)) }.map(drop)
}

/// `readlinkat(2)`: the number of bytes written to `text`, without a NUL at the end.
#[inline(always)]
pub fn readlinkat(dir: i32, path: CPtr<'_>, text: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most the length of `text`; `CPtr` is NUL-terminated.
    unsafe { calls::readlinkat(Fd(dir), path, text.as_mut_ptr(), Len(text.len())) }
}

/// `read(2)`.
#[inline(always)]
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    unsafe { calls::read(Fd(fd), buf.as_mut_ptr(), Len(buf.len())) }
}

/// `pread64(2)`.
#[inline(always)]
pub fn read_at(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    unsafe { calls::pread64(Fd(fd), buf.as_mut_ptr(), Len(buf.len()), Offset(offset)) }
}

/// `getdents64(2)`: the next entries of a directory, as many as fit. An empty slice: the end.
///
/// Each is `struct linux_dirent64`: 16 bytes, the entry's length in 2, a type, and the name up to a
/// NUL.
#[inline(always)]
pub fn getdents64(fd: i32, buf: &mut [MaybeUninit<u8>]) -> Result<&[u8]> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    let n = unsafe { calls::getdents64(Fd(fd), buf.as_mut_ptr().cast(), Len(buf.len())) }?;
    // SAFETY: the kernel has written the first `n` bytes, and `n` is at most the length.
    Ok(unsafe { core::slice::from_raw_parts(buf.as_ptr().cast(), n) })
}

/// `write(2)`.
#[inline(always)]
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: writes no memory.
    unsafe { calls::write(Fd(fd), buf.as_ptr(), Len(buf.len())) }
}

/// `pidfd_getfd(2)`: a copy, close-on-exec, of a descriptor of another process.
#[inline(always)]
pub fn pidfd_getfd(pidfd: i32, target: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { calls::pidfd_getfd(Fd(pidfd), Fd(target), Flags(0)) }.map(|n| n as i32)
}

/// `ioctl(TIOCSCTTY)`: makes the terminal the caller's controlling one. `steal` takes it from
/// another session (root only).
#[inline(always)]
pub fn set_controlling_terminal(fd: i32, steal: bool) -> Result<()> {
    // SAFETY: the argument is a number, not an address (`ioctl_tty(2)`).
    unsafe { calls::ioctl_number(Fd(fd), Op(linux_raw_sys::ioctl::TIOCSCTTY), Num(u32::from(steal))) }
        .map(drop)
}

/// `tcsetpgrp(3)`: sets the terminal's foreground group. Block SIGTTOU first: a background process
/// is stopped by it otherwise.
#[inline(always)]
pub fn set_foreground_group(fd: i32, pgid: i32) -> Result<()> {
    let mut group = pgid;
    // SAFETY: the kernel reads one int.
    unsafe { calls::ioctl(Fd(fd), Op(linux_raw_sys::ioctl::TIOCSPGRP), (&raw mut group).cast()) }.map(drop)
}

/// `pread64(2)`.
#[inline]
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    unsafe { calls::pread64(Fd(fd), buf.as_mut_ptr(), Len(buf.len()), calls::Offset(offset)) }
}

/// `pread64(2)` to a raw address, for copies from another address space (`/proc/PID/mem`).
///
/// # Safety
/// `to..to + len` must be writable memory of the caller that no reference covers.
#[inline]
pub unsafe fn pread_raw(fd: i32, to: *mut u8, len: usize, offset: u64) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe { calls::pread64(Fd(fd), to, Len(len), Offset(offset)) }
}
