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
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// fd::close(write)?;
/// assert_eq!(fd::read(read, &mut [0]), Ok(0)); // end of file: nobody can write any more
/// # fd::close(read)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_close, fd) }.map(drop)
}

/// `close_range(2)`, Linux 5.9: `first..=last`.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(0)?;
/// fd::close_range(read as u32, read as u32, 0)?;
/// assert_eq!(fd::get_fd_flags(read), Err(Errno::EBADF));
/// match fd::close_range(write as u32, write as u32, fd::CLOSE_RANGE_CLOEXEC) {
///     Ok(()) => assert_eq!(fd::get_fd_flags(write), Ok(1)), // still open, FD_CLOEXEC
///     Err(e) => assert_eq!(e, Errno::EINVAL),               // before Linux 5.11
/// }
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_close_range, first, last, flags) }.map(drop)
}

/// `dup3(2)`; `EINVAL` when the two are equal.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// fd::dup3(write, 100, fd::O_CLOEXEC)?;
/// assert_eq!(fd::write(100, b"x"), Ok(1));
/// assert_eq!(fd::dup3(read, read, 0), Err(Errno::EINVAL));
/// # for n in [read, write, 100] {
/// #     fd::close(n)?;
/// # }
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn dup3(from: i32, to: i32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_dup3, from, to, flags) }.map(drop)
}

/// `fcntl(F_DUPFD_CLOEXEC)`: a copy at the lowest free number not below `min`.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let copy = fd::dup_cloexec(1, 50)?;
/// assert!(copy >= 50);
/// assert_eq!(fd::get_fd_flags(copy), Ok(1)); // FD_CLOEXEC
/// fd::close(copy)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn dup_cloexec(fd: i32, min: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_DUPFD_CLOEXEC, min) }.map(|n| n as i32)
}

/// `lseek(2)` that moves nothing: where the next read or write begins. `ESPIPE` for what has no position.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// # use std::io::{Seek as _, SeekFrom};
/// # use std::os::fd::AsRawFd as _;
/// let mut file = std::fs::File::open("/proc/self/exe").unwrap();
/// file.seek(SeekFrom::Start(7)).unwrap();
/// assert_eq!(fd::position(file.as_raw_fd()), Ok(7));
/// assert_eq!(fd::position(std::io::pipe().unwrap().0.as_raw_fd()), Err(Errno::ESPIPE));
/// ```
pub fn position(fd: i32) -> Result<u64> {
    // SAFETY: writes no memory. SEEK_CUR is 1.
    unsafe { call!(__NR_lseek, fd, 0usize, 1u32) }.map(|n| n as u64)
}

/// `fcntl(F_GETFD)`: the descriptor's flags; `EBADF` tells that it is closed.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// assert_eq!(fd::get_fd_flags(read), Ok(1)); // FD_CLOEXEC
/// fd::close(read)?;
/// assert_eq!(fd::get_fd_flags(read), Err(Errno::EBADF));
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn get_fd_flags(fd: i32) -> Result<u32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_GETFD) }.map(|n| n as u32)
}

/// `fcntl(F_SETFD)`: sets or clears close-on-exec.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// fd::set_cloexec(read, false)?; // a child is to have it
/// assert_eq!((fd::get_fd_flags(read), fd::get_fd_flags(write)), (Ok(0), Ok(1)));
/// # fd::close(read)?;
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_cloexec(fd: i32, on: bool) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_SETFD, u32::from(on)) }.map(drop)
}

/// `fcntl(F_GETFL)`: the open file description's status flags.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC | fd::O_NONBLOCK)?;
/// let asked = fd::O_NONBLOCK | fd::O_WRONLY;
/// assert_eq!(fd::get_status_flags(write)? & asked, asked);
/// assert_eq!(fd::get_status_flags(read)? & asked, fd::O_NONBLOCK);
/// # fd::close(read)?;
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn get_status_flags(fd: i32) -> Result<u32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_GETFL) }.map(|n| n as u32)
}

/// `fcntl(F_SETFL)`. Seen by everyone who shares the open file description.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// fd::set_status_flags(read, fd::get_status_flags(read)? | fd::O_NONBLOCK)?;
/// assert_eq!(fd::read(read, &mut [0]), Err(Errno::EAGAIN)); // instead of waiting
/// # fd::close(read)?;
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_status_flags(fd: i32, flags: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fcntl, fd, k::F_SETFL, flags) }.map(drop)
}

/// `pipe2(2)`: read end, write end.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// fd::write(write, b"report")?;
/// let mut buf = [0; 16];
/// assert_eq!(fd::read(read, &mut buf), Ok(6));
/// # fd::close(read)?;
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn pipe2(flags: u32) -> Result<(i32, i32)> {
    let mut ends = [-1i32; 2];
    // SAFETY: the kernel writes two ints into `ends`.
    unsafe { call!(__NR_pipe2, ends.as_mut_ptr(), flags) }?;
    Ok((ends[0], ends[1]))
}

/// `openat(2)`.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let null = fd::openat(fd::AT_FDCWD, c"/dev/null".into(), fd::O_RDWR | fd::O_CLOEXEC, 0)?;
/// assert_eq!(fd::write(null, b"gone"), Ok(4));
/// fd::close(null)?;
/// let missing = fd::openat(fd::AT_FDCWD, c"/nonexistent".into(), fd::O_RDONLY, 0);
/// assert_eq!(missing, Err(Errno::ENOENT));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn openat(dir: i32, path: CPtr<'_>, flags: u32, mode: u32) -> Result<i32> {
    // SAFETY: writes no memory; `CPtr` is NUL-terminated.
    unsafe { call!(__NR_openat, dir, path, flags, mode) }.map(|n| n as i32)
}

/// `openat2(2)` with `RESOLVE_NO_XDEV` (Linux 5.6): opens nothing that lies on another mount than `dir` (`EXDEV`), neither by a
/// symbolic link nor because something is mounted over the file or a directory on the way.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let root = fd::openat(fd::AT_FDCWD, c"/proc".into(), fd::O_PATH | fd::O_CLOEXEC, 0)?;
/// match fd::open_below(root, c"self/status".into(), fd::O_RDONLY | fd::O_CLOEXEC) {
///     Ok(file) => fd::close(file)?,
///     Err(e) => assert!(matches!(e, Errno::ENOSYS | Errno::EPERM)), // a kernel without it, a container's filter
/// }
/// assert!(fd::open_below(root, c"self/root/etc".into(), fd::O_RDONLY).is_err()); // beyond the mount
/// # fd::close(root)?;
/// # Ok::<(), Errno>(())
/// ```
pub fn open_below(dir: i32, path: CPtr<'_>, flags: u32) -> Result<i32> {
    let how = k::open_how { flags: flags.into(), mode: 0, resolve: k::RESOLVE_NO_XDEV.into() };
    // SAFETY: the kernel reads one struct; `CPtr` is NUL-terminated.
    unsafe { call!(__NR_openat2, dir, path, &raw const how, size_of::<k::open_how>()) }.map(|n| n as i32)
}

/// `fstatfs(2)`: the type of the file system that a descriptor's file is on, as `PROC_SUPER_MAGIC` of linux/magic.h.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let root = fd::openat(fd::AT_FDCWD, c"/proc".into(), fd::O_PATH | fd::O_CLOEXEC, 0)?;
/// assert_eq!(fd::file_system(root)?, i64::from(linux_raw_sys::general::PROC_SUPER_MAGIC));
/// # fd::close(root)?;
/// # Ok::<(), Errno>(())
/// ```
pub fn file_system(fd: i32) -> Result<i64> {
    // struct statfs begins with it on the supported architectures; 120 bytes.
    let mut statfs = [0i64; 15];
    // SAFETY: the kernel writes one struct statfs.
    unsafe { call!(__NR_fstatfs, fd, statfs.as_mut_ptr()) }?;
    Ok(statfs[0])
}

/// `newfstatat(2)`: device and inode of a file by its path, or of a descriptor for an empty path and `AT_EMPTY_PATH`.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let root = fd::openat(fd::AT_FDCWD, c"/".into(), fd::O_PATH | fd::O_CLOEXEC, 0)?;
/// let by_path = fd::identity(fd::AT_FDCWD, c"/".into(), 0)?;
/// assert_eq!(fd::identity(root, c"".into(), fd::AT_EMPTY_PATH), Ok(by_path));
/// assert_ne!(fd::identity(fd::AT_FDCWD, c"/proc".into(), 0), Ok(by_path));
/// # fd::close(root)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn identity(dir: i32, path: CPtr<'_>, flags: u32) -> Result<(u64, u64)> {
    // struct stat begins with both on the supported architectures; 144 bytes at most.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes one struct stat; `CPtr` is NUL-terminated.
    unsafe { call!(__NR_newfstatat, dir, path, stat.as_mut_ptr(), flags) }?;
    Ok((stat[0], stat[1]))
}

/// When the file behind a descriptor was made, in nanoseconds since 1970 (`statx(2)`, `stx_btime`); 0 where its file system does not say.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// # use std::os::fd::AsRawFd as _;
/// let file = std::fs::File::open("/proc/self/exe").unwrap();
/// let made = file.metadata().unwrap().created().map_or(0, |made| {
///     made.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
/// });
/// assert_eq!(fd::birth(file.as_raw_fd()), Ok(made));
/// assert_eq!(fd::birth(std::io::pipe().unwrap().0.as_raw_fd()), Ok(0));
/// # Ok::<(), Errno>(())
/// ```
pub fn birth(fd: i32) -> Result<u64> {
    let mut all = MaybeUninit::<k::statx>::zeroed();
    let path = CPtr::from(c"");
    // SAFETY: the kernel writes one struct statx.
    unsafe { call!(__NR_statx, fd, path, k::AT_EMPTY_PATH, k::STATX_BTIME, all.as_mut_ptr()) }?;
    // SAFETY: numbers, all of them written here or by the kernel.
    let all = unsafe { all.assume_init() };
    let made = (all.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000) + u64::from(all.stx_btime.tv_nsec);
    Ok(if all.stx_mask & k::STATX_BTIME == 0 { 0 } else { made })
}

/// `readlinkat(2)`: how many bytes of the link's text were written to `text`; no NUL ends it.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let mut text = [0; 32];
/// let long = fd::readlinkat(fd::AT_FDCWD, c"/proc/self/ns/pid".into(), &mut text)?;
/// assert!(text[..long].starts_with(b"pid:["));
/// assert_eq!(fd::readlinkat(fd::AT_FDCWD, c"/".into(), &mut text), Err(Errno::EINVAL)); // no link
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn readlinkat(dir: i32, path: CPtr<'_>, text: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most the length of `text`; `CPtr` is NUL-terminated.
    unsafe { call!(__NR_readlinkat, dir, path, text.as_mut_ptr(), text.len()) }
}

/// `read(2)`.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// # let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// # fd::write(write, b"abc")?;
/// let mut buf = [0; 2];
/// assert_eq!((fd::read(read, &mut buf), &buf), (Ok(2), b"ab"));
/// assert_eq!(fd::read(read, &mut buf), Ok(1)); // less than asked for
/// assert_eq!(buf[0], b'c');
/// # fd::close(read)?;
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    unsafe { call!(__NR_read, fd, buf.as_mut_ptr(), buf.len()) }
}

/// `getdents64(2)`: entries of a directory, as many as fit; none at its end.
///
/// Each is `struct linux_dirent64`: 16 bytes, the entry's length in 2, a type, and the name up to a NUL.
///
/// ```
/// # use core::{ffi::CStr, mem::MaybeUninit};
/// # use forkless_sys::{Errno, fd};
/// let dir = fd::openat(fd::AT_FDCWD, c"/proc/self".into(), fd::O_DIRECTORY | fd::O_CLOEXEC, 0)?;
/// let mut buf = [const { MaybeUninit::uninit() }; 2048];
/// let entries = fd::getdents64(dir, &mut buf)?;
/// let length = usize::from(u16::from_ne_bytes([entries[16], entries[17]]));
/// let first = CStr::from_bytes_until_nul(&entries[19..length]).unwrap();
/// let found = fd::openat(dir, first.into(), fd::O_PATH | fd::O_CLOEXEC, 0)?;
/// # fd::close(found)?;
/// # fd::close(dir)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn getdents64(fd: i32, buf: &mut [MaybeUninit<u8>]) -> Result<&[u8]> {
    // SAFETY: the kernel writes at most `buf.len()` bytes.
    let n = unsafe { call!(__NR_getdents64, fd, buf.as_mut_ptr(), buf.len()) }?;
    // SAFETY: the kernel has written the first `n` bytes, and `n` is at most the length.
    Ok(unsafe { core::slice::from_raw_parts(buf.as_ptr().cast(), n) })
}

/// `write(2)`.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// assert_eq!(fd::write(write, b"abc"), Ok(3));
/// fd::close(read)?;
/// assert_eq!(fd::write(write, b"abc"), Err(Errno::EPIPE)); // SIGPIPE where it is not ignored
/// # fd::close(write)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_write, fd, buf.as_ptr(), buf.len()) }
}

/// `pidfd_getfd(2)`: a copy, close-on-exec, of a descriptor of another process.
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// let pidfd = process::pidfd_open(process::getpid())?;
/// match fd::pidfd_getfd(pidfd, write) {
///     Ok(copy) => {
///         assert_eq!(fd::write(copy, b"x"), Ok(1));
///         assert_eq!(fd::read(read, &mut [0]), Ok(1));
/// #       fd::close(copy)?;
///     }
///     Err(e) => assert!(matches!(e, Errno::EPERM | Errno::ENOSYS)), // a container's filter
/// }
/// # for n in [pidfd, read, write] {
/// #     fd::close(n)?;
/// # }
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn pidfd_getfd(pidfd: i32, target: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_pidfd_getfd, pidfd, target, 0u32) }.map(|n| n as i32)
}

/// `ioctl(TIOCSCTTY)`: makes the terminal the caller's controlling one; 1 steals it (root only).
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// process::setsid()?; // what had a terminal has none now
/// if let Ok(terminal) = fd::openat(fd::AT_FDCWD, c"/dev/ptmx".into(), fd::O_RDWR | fd::O_CLOEXEC, 0) {
///     fd::set_controlling_terminal(terminal, false)?;
///     let current = fd::openat(fd::AT_FDCWD, c"/dev/tty".into(), fd::O_RDWR | fd::O_CLOEXEC, 0);
///     assert_ne!(current, Err(Errno::ENXIO)); // what it says without one
/// }
/// # let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// assert_eq!(fd::set_controlling_terminal(read, false), Err(Errno::ENOTTY)); // a pipe
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_controlling_terminal(fd: i32, steal: bool) -> Result<()> {
    // SAFETY: the argument is a number, not an address (`ioctl_tty(2)`).
    unsafe { call!(__NR_ioctl, fd, linux_raw_sys::ioctl::TIOCSCTTY, u32::from(steal)) }.map(drop)
}

/// `tcsetpgrp(3)`: the terminal's foreground group. Block SIGTTOU before.
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// # process::setsid()?;
/// # let terminal = fd::openat(fd::AT_FDCWD, c"/dev/ptmx".into(), fd::O_RDWR | fd::O_CLOEXEC, 0);
/// # if let Ok(terminal) = terminal {
/// // In a new session whose controlling terminal this is.
/// # assert_eq!(fd::set_foreground_group(terminal, process::getpgrp()), Err(Errno::ENOTTY));
/// # fd::set_controlling_terminal(terminal, false)?;
/// fd::set_foreground_group(terminal, process::getpgrp())?;
/// assert_eq!(fd::set_foreground_group(terminal, 1), Err(Errno::EPERM)); // a group of another session
/// # }
/// # let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// # assert_eq!(fd::set_foreground_group(read, process::getpgrp()), Err(Errno::ENOTTY));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_foreground_group(fd: i32, pgid: i32) -> Result<()> {
    // SAFETY: the kernel reads one int.
    unsafe { call!(__NR_ioctl, fd, linux_raw_sys::ioctl::TIOCSPGRP, &raw const pgid) }.map(drop)
}

/// `pread64(2)` to an address: for copying between address spaces, where both sides are known by number.
///
/// # Safety
/// `to..to + len` must be memory of the caller's that nothing else refers to.
///
/// ```
/// # use forkless_sys::{Errno, fd};
/// let program = fd::openat(fd::AT_FDCWD, c"/proc/self/exe".into(), fd::O_CLOEXEC, 0)?;
/// let mut magic = [0; 3];
/// // SAFETY: three bytes of ours, referred to by nothing else.
/// assert_eq!(unsafe { fd::pread_raw(program, magic.as_mut_ptr(), 3, 1) }, Ok(3));
/// assert_eq!(&magic, b"ELF");
/// # fd::close(program)?;
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn pread_raw(fd: i32, to: *mut u8, len: usize, offset: u64) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_pread64, fd, to, len, offset) }
}
