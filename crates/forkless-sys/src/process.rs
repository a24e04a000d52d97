//! The calling process and its children: exec, exit, wait, sessions, attributes.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::calls::{self, Fd, Flags, Int, Len, Mode, Op, Pid, Signal, Word};
use crate::{CPtr, Errno, Result};
use core::ffi::c_char;
use linux_raw_sys::{general as k, prctl as p};

pub use k::{
    P_ALL, P_PID, P_PIDFD, S_IFCHR, S_IFDIR, S_IFMT, S_IFREG, S_IFSOCK, WEXITED, WNOHANG, WNOWAIT, WSTOPPED,
    WUNTRACED,
};
/// [`WaitInfo::code`] of a child that has exited (`asm-generic/siginfo.h`, as those below).
pub const CLD_EXITED: i32 = k::CLD_EXITED as i32;
/// Of a child that a signal has killed.
pub const CLD_KILLED: i32 = k::CLD_KILLED as i32;
/// Of a child that a signal has killed, and that left a core.
pub const CLD_DUMPED: i32 = k::CLD_DUMPED as i32;
/// Of a child that has stopped for its tracer.
pub const CLD_TRAPPED: i32 = k::CLD_TRAPPED as i32;
/// Of a child that a signal has stopped.
pub const CLD_STOPPED: i32 = k::CLD_STOPPED as i32;

/// Wait for children whatever their exit signal (`__WALL`).
pub const WALL: u32 = 0x4000_0000;
/// Wait for children that the calling thread made, and for no other thread's (`__WNOTHREAD`).
pub const WNOTHREAD: u32 = 0x2000_0000;

/// `execve(2)`. Returns only when it fails.
///
/// # Safety
/// `argv` and `envp` end in a null pointer, and each entry before it points to a NUL-terminated
/// string.
#[inline(always)]
pub unsafe fn execve(path: CPtr<'_>, argv: *const *const c_char, envp: *const *const c_char) -> Errno {
    // SAFETY: the caller's contract; the kernel only reads.
    match unsafe { calls::execve(path, argv, envp) } {
        Err(e) => e,
        Ok(_) => Errno::EINVAL,
    }
}

/// `exit_group(2)`: runs no exit handler and flushes no buffer.
#[inline(always)]
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: writes no memory.
        let _ = unsafe { calls::exit_group(Int(status)) };
    }
}

/// `exit(2)`: ends the calling thread alone.
#[inline(always)]
pub fn exit_thread() -> ! {
    loop {
        // SAFETY: writes no memory but the word that the thread was made with.
        let _ = unsafe { calls::exit(Int(0)) };
    }
}

/// How a child ended or stopped: the fields of `siginfo_t` that `waitid(2)` fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitInfo {
    /// The child; 0 when `WNOHANG` found none.
    pub pid: i32,
    /// [`CLD_EXITED`], [`CLD_KILLED`], [`CLD_DUMPED`], [`CLD_STOPPED`]...
    pub code: i32,
    /// The exit status, or the signal.
    pub status: i32,
}

/// `waitid(2)` on one child by pid or pidfd (`id_type` is `P_PID` or `P_PIDFD`).
#[inline(always)]
pub fn waitid(id_type: u32, id: i32, options: u32) -> Result<WaitInfo> {
    /// `siginfo_t` as far as `waitid` fills it: three ints, padding, then pid, uid, status
    /// (`asm-generic/siginfo.h`).
    #[repr(C, align(8))]
    struct Info {
        signo: i32,
        errno: i32,
        code: i32,
        pad: i32,
        pid: i32,
        uid: u32,
        status: i32,
        rest: [i32; 25],
    }
    const _: () = assert!(size_of::<Info>() == 128);
    let mut info = Info { signo: 0, errno: 0, code: 0, pad: 0, pid: 0, uid: 0, status: 0, rest: [0; 25] };
    // SAFETY: the kernel writes at most one siginfo_t of 128 bytes; no rusage is asked for.
    unsafe {
        calls::waitid(Op(id_type), Int(id), (&raw mut info).cast(), Flags(options), core::ptr::null_mut())
    }?;
    Ok(WaitInfo { pid: info.pid, code: info.code, status: info.status })
}

/// `kill(2)`. A negative pid names a process group.
#[inline]
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::kill(Pid(pid), Signal(signal)) }.map(drop)
}

/// Sends the calling process a signal.
///
/// Where a filter refuses getpid(2) there is no number of it, and 0 would name the whole process
/// group. `kill(2)` takes a thread's number for its process, too.
#[inline]
pub fn kill_self(signal: i32) -> Result<()> {
    let me = match getpid() {
        0 => gettid(),
        me => me,
    };
    if me == 0 { Err(Errno::EPERM) } else { kill(me, signal) }
}

/// `pidfd_open(2)`, close-on-exec.
#[inline(always)]
pub fn pidfd_open(pid: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { calls::pidfd_open(Pid(pid), Flags(0)) }.map(|n| n as i32)
}

/// `pidfd_open(2)` of a single thread (`PIDFD_THREAD`), close-on-exec. `EINVAL` before Linux 6.9.
#[inline(always)]
pub fn pidfd_open_thread(tid: i32) -> Result<i32> {
    // O_EXCL (include/uapi/linux/pidfd.h).
    const PIDFD_THREAD: u32 = 0o200;
    // SAFETY: writes no memory.
    unsafe { calls::pidfd_open(Pid(tid), Flags(PIDFD_THREAD)) }.map(|n| n as i32)
}

/// Whether two threads, of one process or of two, have one descriptor table (`kcmp(2)` with
/// `KCMP_FILES`).
#[inline]
pub fn share_descriptors(a: i32, b: i32) -> Result<bool> {
    const KCMP_FILES: u32 = 2;
    // SAFETY: writes no memory.
    unsafe { calls::kcmp(Pid(a), Pid(b), Op(KCMP_FILES), Word(0), Word(0)) }.map(|order| order == 0)
}

/// `pidfd_send_signal(2)`: signal 0 only checks that the process exists. Flags need Linux 6.9.
#[inline]
pub fn pidfd_send_signal(pidfd: i32, signal: i32, flags: u32) -> Result<()> {
    // SAFETY: a null siginfo makes the kernel fill in one like kill's.
    unsafe { calls::pidfd_send_signal(Fd(pidfd), Signal(signal), core::ptr::null(), Flags(flags)) }.map(drop)
}

/// The wait status of a process that has been reaped, kept by its pidfd: `PIDFD_GET_INFO` with
/// `PIDFD_INFO_EXIT` (Linux 6.15). `Ok(None)` while it has not been reaped; `ENOTTY` or `EINVAL` on
/// kernels without it.
#[inline]
pub fn pidfd_exit_status(pidfd: i32) -> Result<Option<i32>> {
    /// `struct pidfd_info`, first version with an exit code (`include/uapi/linux/pidfd.h`).
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroupid: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const INFO_EXIT: u64 = 1 << 3;
    // _IOWR(PIDFS_IOCTL_MAGIC = 0xFF, 11, struct): the size is part of the number and the kernel
    // accepts any from version 0 on.
    const GET_INFO: u32 = (3 << 30) | ((size_of::<Info>() as u32) << 16) | (0xFF << 8) | 11;
    const _: () = assert!(size_of::<Info>() == 64, "PIDFD_INFO_SIZE_VER0");
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    // SAFETY: the kernel writes at most the size encoded in the request.
    unsafe { calls::ioctl(Fd(pidfd), Op(GET_INFO), (&raw mut info).cast()) }?;
    Ok((info.mask & INFO_EXIT != 0).then_some(info.exit_code))
}

/// `getpid(2)`, uncached: right after any kind of clone. 0 where a filter refuses it.
#[inline(always)]
pub fn getpid() -> i32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { calls::getpid() }.unwrap_or(0) as i32
}

/// `gettid(2)`. 0 where a filter refuses it.
#[inline(always)]
pub fn gettid() -> i32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { calls::gettid() }.unwrap_or(0) as i32
}

/// `getppid(2)`: 0 when the parent is outside the pid namespace, the pid of the new parent once the
/// first has died.
#[inline(always)]
pub fn getppid() -> i32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { calls::getppid() }.unwrap_or(0) as i32
}

/// `setsid(2)`: returns the new session.
#[inline(always)]
pub fn setsid() -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { calls::setsid() }.map(|n| n as i32)
}

/// `setpgid(2)` of the caller; 0 makes a new group.
#[inline(always)]
pub fn setpgid(pgid: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setpgid(Pid(0), Pid(pgid)) }.map(drop)
}

/// `setpgid(2)` of a child: `EACCES` once it has executed a program. 0 makes a new group.
#[inline]
pub fn setpgid_of(pid: i32, pgid: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setpgid(Pid(pid), Pid(pgid)) }.map(drop)
}

/// `chdir(2)`.
#[inline(always)]
pub fn chdir(path: CPtr<'_>) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::chdir(path) }.map(drop)
}

/// `fchdir(2)`.
#[inline(always)]
pub fn fchdir(fd: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::fchdir(Fd(fd)) }.map(drop)
}

/// `chroot(2)`. Does not change the working directory.
#[inline(always)]
pub fn chroot(path: CPtr<'_>) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::chroot(path) }.map(drop)
}

/// `umask(2)`: returns the old mask.
#[inline(always)]
pub fn umask(mask: u32) -> u32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { calls::umask(Mode(mask)) }.unwrap_or(0) as u32
}

/// `prctl(PR_SET_PDEATHSIG)`. Cleared by a change of credentials and by exec of a set-id program.
#[inline(always)]
pub fn set_pdeathsig(signal: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::prctl(Op(p::PR_SET_PDEATHSIG), Word(signal as usize), Word(0), Word(0), Word(0)) }
        .map(drop)
}

/// `prctl(PR_SET_NO_NEW_PRIVS)`. Cannot be undone.
#[inline(always)]
pub fn set_no_new_privs() -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::prctl(Op(p::PR_SET_NO_NEW_PRIVS), Word(1), Word(0), Word(0), Word(0)) }.map(drop)
}

/// `prctl(PR_GET_DUMPABLE)`: 0, 1 or 2 (`proc_sys_fs(5)`, suid_dumpable).
#[inline]
pub fn dumpable() -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { calls::prctl(Op(p::PR_GET_DUMPABLE), Word(0), Word(0), Word(0), Word(0)) }.map(|n| n as i32)
}

/// `prctl(PR_GET_THP_DISABLE)`: whether transparent huge pages are off for the process, by its own
/// call or an inherited one.
#[inline]
pub fn thp_disabled() -> Result<bool> {
    // SAFETY: writes no memory. The kernel refuses other arguments than zero.
    unsafe { calls::prctl(Op(p::PR_GET_THP_DISABLE), Word(0), Word(0), Word(0), Word(0)) }.map(|n| n != 0)
}

/// `prctl(PR_SET_DUMPABLE)`: 0 or 1. A property of the memory, so shared with every process that
/// shares it.
#[inline]
pub fn set_dumpable(value: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::prctl(Op(p::PR_SET_DUMPABLE), Word(value as usize), Word(0), Word(0), Word(0)) }.map(drop)
}

/// `getpgid(2)` of the caller: its process group.
#[inline(always)]
pub fn getpgrp() -> i32 {
    // SAFETY: cannot fail for the caller itself, writes no memory.
    unsafe { calls::getpgid(Pid(0)) }.unwrap_or(0) as i32
}

/// `getpgid(2)`: the group of a process.
#[inline]
pub fn getpgid(pid: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { calls::getpgid(Pid(pid)) }.map(|group| group as i32)
}

/// `tgkill(2)`: one thread of a process.
#[inline]
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::tgkill(Pid(pid), Pid(tid), Signal(signal)) }.map(drop)
}

/// The memory figures of `getrusage(2)`.
#[derive(Clone, Copy, Debug)]
pub struct MemoryUsage {
    /// The largest resident set so far, in KiB (`ru_maxrss`). Survives exec.
    pub max_rss_kib: u64,
    /// Page faults of all threads, minor and major. Survives exec; a child of fork begins at zero.
    pub faults: u64,
}

/// [`MemoryUsage`] of the calling process.
#[inline]
pub fn memory_usage() -> Result<MemoryUsage> {
    // Two timevals come first, then ru_maxrss; ru_minflt is the ninth word, ru_majflt the tenth;
    // 144 bytes in all.
    let mut usage = [0u64; 18];
    // SAFETY: the kernel writes one struct rusage.
    unsafe { calls::getrusage(Int(0), &raw mut usage) }?;
    Ok(MemoryUsage { max_rss_kib: usage[4], faults: usage[8] + usage[9] })
}

/// The number of threads of the process, also of those made without libc. The directory
/// /proc/self/task has two links more (fs/proc/base.c, `proc_task_getattr`). `None` without /proc.
#[inline]
pub fn thread_count() -> Option<u64> {
    let path = CPtr::from(c"/proc/self/task");
    // struct stat: dev, ino, then nlink, or (asm-generic/stat.h) mode and nlink in half a word
    // each; 144 bytes at most.
    let mut stat = [0u64; 18];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel reads a constant string and writes one struct stat.
    unsafe { calls::stat(path, &raw mut stat) }.ok()?;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe { calls::newfstatat(Fd(k::AT_FDCWD), path, &raw mut stat, Flags(0)) }.ok()?;
    let links = if cfg!(target_arch = "x86_64") { stat[2] } else { stat[2] >> 32 };
    links.checked_sub(2)
}

/// `unshare(2)` of `CLONE_VM`, which changes nothing. `EINVAL`: the process has several threads, or
/// shares its memory with another process (kernel/fork.c, `check_unshare_flags`;
/// lib/is_single_threaded.c). It takes a tenth of the time of [`thread_count`]. A sandbox may
/// refuse it, with an error of its choice.
#[inline]
pub fn unshare_memory() -> Result<()> {
    // SAFETY: with this flag alone the call only checks.
    unsafe { calls::unshare(Flags(k::CLONE_VM)) }.map(drop)
}

/// Whether the process has one thread, as [`unshare_memory`], but whoever shares its memory:
/// `unshare(CLONE_THREAD)` changes nothing either.
#[inline]
pub fn unshare_thread() -> Result<()> {
    // SAFETY: with this flag alone the call only checks.
    unsafe { calls::unshare(Flags(k::CLONE_THREAD)) }.map(drop)
}

/// `prctl(PR_GET_SECCOMP)`: 0 without a filter, 2 with one.
#[inline]
pub fn seccomp_mode() -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { calls::prctl(Op(p::PR_GET_SECCOMP), Word(0), Word(0), Word(0), Word(0)) }.map(|n| n as i32)
}

/// `wait4(2)` for one child, with [`WALL`] or nothing as `options`. Returns the wait status as
/// `waitpid(3)` does.
#[inline(always)]
pub fn wait4(pid: i32, options: u32) -> Result<i32> {
    wait4_status(pid, options).map(|status| status.unwrap_or(0))
}

/// Likewise with [`WNOHANG`] among the options: `None` while the child runs.
#[inline(always)]
pub fn wait4_status(pid: i32, options: u32) -> Result<Option<i32>> {
    let mut status = 0i32;
    // SAFETY: the kernel writes one int; no rusage is asked for.
    let ended = unsafe { calls::wait4(Pid(pid), &raw mut status, Flags(options), core::ptr::null_mut()) }?;
    Ok((ended != 0).then_some(status))
}

/// Device, inode and mode of a file (`stat(2)`, following links).
#[inline]
pub fn stat(path: CPtr<'_>) -> Result<(u64, u64, u32)> {
    // struct stat: dev, ino; then x86-64 has nlink before mode, aarch64 (asm-generic/stat.h) mode
    // at once.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes one struct stat of at most 144 bytes.
    unsafe { calls::newfstatat(Fd(k::AT_FDCWD), path, &raw mut stat, Flags(0)) }?;
    let mode = if cfg!(target_arch = "x86_64") { stat[3] } else { stat[2] };
    Ok((stat[0], stat[1], mode as u32))
}

/// Whether the *real* user may execute the file, as `access(2)` answers it: `faccessat(2)` has no
/// flags. The effective user is another one in set-id programs.
#[inline]
pub fn may_execute(path: CPtr<'_>) -> Result<()> {
    // SAFETY: writes no memory. X_OK is 1.
    unsafe { calls::faccessat(Fd(k::AT_FDCWD), path, Mode(1)) }.map(drop)
}

/// `getcwd(2)`: the length without the NUL that follows. `ENOENT` when the directory was removed,
/// `ERANGE` when `buf` is too short.
#[inline]
pub fn getcwd(buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most the buffer.
    let len = unsafe { calls::getcwd(buf.as_mut_ptr(), Len(buf.len())) }?;
    Ok(len - 1)
}
