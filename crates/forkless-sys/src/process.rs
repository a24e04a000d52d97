//! The calling process and its children: exec, exit, wait, sessions, attributes.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::{CPtr, Errno, Result};
use core::ffi::c_char;
use linux_raw_sys::{general as k, prctl as p};

pub use k::{P_ALL, P_PID, P_PIDFD, WEXITED, WNOHANG, WNOWAIT, WSTOPPED, WUNTRACED};
/// Wait for children whatever their exit signal (`__WALL`).
pub const WALL: u32 = 0x4000_0000;
/// Wait for children that the calling thread made, and for no other thread's (`__WNOTHREAD`).
pub const WNOTHREAD: u32 = 0x2000_0000;

/// `execve(2)`. Returns only to say why not.
///
/// # Safety
/// `argv` and `envp` end in a null pointer, and each entry before it points to a NUL-terminated string.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_sys::process;
/// # use std::os::unix::process::CommandExt as _;
/// let mut child = std::process::Command::new("true");
/// let instead = || {
///     let argv = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 3".as_ptr(), null()];
///     // SAFETY: both vectors end in null.
///     let errno = unsafe { process::execve(c"/bin/sh".into(), argv.as_ptr(), &null()) };
///     Err(std::io::Error::from_raw_os_error(errno.raw()))
/// };
/// // SAFETY: async-signal-safe.
/// unsafe { child.pre_exec(instead) };
/// assert_eq!(child.status().unwrap().code(), Some(3));
/// ```
#[inline(always)]
pub unsafe fn execve(path: CPtr<'_>, argv: *const *const c_char, envp: *const *const c_char) -> Errno {
    // SAFETY: the caller's contract; the kernel only reads.
    match unsafe { call!(__NR_execve, path, argv, envp) } {
        Err(e) => e,
        Ok(_) => Errno::EINVAL,
    }
}

/// `exit_group(2)`: no handler, no flush.
///
/// ```
/// # use forkless_sys::process;
/// # use std::os::unix::process::CommandExt as _;
/// let mut child = std::process::Command::new("true");
/// // SAFETY: async-signal-safe.
/// unsafe { child.pre_exec(|| process::exit_group(3)) };
/// assert_eq!(child.status().unwrap().code(), Some(3)); // `true` was never executed
/// ```
#[inline(always)]
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: writes no memory.
        let _ = unsafe { call!(__NR_exit_group, status) };
    }
}

/// How a child ended, or that it stopped: the fields of `siginfo_t` that `waitid(2)` fills.
///
/// ```
/// # use forkless_sys::process::{self, WaitInfo};
/// let pid = std::process::Command::new("false").spawn().unwrap().id() as i32;
/// let end = process::waitid(process::P_PID, pid, process::WEXITED).unwrap();
/// assert_eq!(end, WaitInfo { pid, code: 1, status: 1 }); // CLD_EXITED, with 1
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitInfo {
    /// The child; 0 when `WNOHANG` found none.
    pub pid: i32,
    /// `CLD_EXITED`, `CLD_KILLED`, `CLD_DUMPED`, `CLD_STOPPED`...
    pub code: i32,
    /// The exit status, or the signal.
    pub status: i32,
}

/// `waitid(2)` on one child by pid or pidfd (`id_type` is `P_PID` or `P_PIDFD`).
///
/// ```
/// # use forkless_sys::{Errno, process};
/// # use std::process::{Command, Stdio};
/// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
/// let pid = child.id() as i32;
/// assert_eq!(process::waitid(process::P_PID, pid, process::WEXITED | process::WNOHANG)?.pid, 0);
/// drop(child.stdin.take());
/// assert_eq!(process::waitid(process::P_PID, pid, process::WEXITED)?.pid, pid);
/// assert_eq!(process::waitid(process::P_PID, pid, process::WEXITED), Err(Errno::ECHILD));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn waitid(id_type: u32, id: i32, options: u32) -> Result<WaitInfo> {
    /// `siginfo_t` as far as `waitid` fills it: three ints, padding, then pid, uid, status (`asm-generic/siginfo.h`).
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
    unsafe { call!(__NR_waitid, id_type, id, &raw mut info, options, core::ptr::null::<u8>()) }?;
    Ok(WaitInfo { pid: info.pid, code: info.code, status: info.status })
}

/// `kill(2)`. A negative pid names a process group.
///
/// ```
/// # use forkless_sys::process;
/// # use std::os::unix::process::ExitStatusExt as _;
/// # use std::process::{Command, Stdio};
/// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
/// process::kill(child.id() as i32, 9).unwrap();
/// assert_eq!(child.wait().unwrap().signal(), Some(9));
/// ```
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_kill, pid, signal) }.map(drop)
}

/// `pidfd_open(2)`, close-on-exec.
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// let pid = std::process::Command::new("true").spawn().unwrap().id() as i32;
/// let pidfd = process::pidfd_open(pid)?; // not reaped, so the pid is still its
/// assert_eq!(process::waitid(process::P_PIDFD, pidfd, process::WEXITED)?.pid, pid);
/// fd::close(pidfd)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn pidfd_open(pid: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_pidfd_open, pid, 0u32) }.map(|n| n as i32)
}

/// `pidfd_open(2)` of a single thread (`PIDFD_THREAD`), close-on-exec. `EINVAL` before Linux 6.9.
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// match process::pidfd_open_thread(process::gettid()) {
///     Ok(pidfd) => fd::close(pidfd)?,
///     Err(e) => assert!(matches!(e, Errno::EINVAL | Errno::EPERM | Errno::ENOSYS)),
/// }
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn pidfd_open_thread(tid: i32) -> Result<i32> {
    // O_EXCL (include/uapi/linux/pidfd.h).
    const PIDFD_THREAD: u32 = 0o200;
    // SAFETY: writes no memory.
    unsafe { call!(__NR_pidfd_open, tid, PIDFD_THREAD) }.map(|n| n as i32)
}

/// Whether two threads, of one process or of two, have one descriptor table (`kcmp(2)` with `KCMP_FILES`).
///
/// ```
/// # use forkless_sys::{Errno, process};
/// let first = process::getpid();
/// let shared = std::thread::spawn(move || process::share_descriptors(first, process::gettid())).join().unwrap();
/// // Refused in many a container.
/// assert!(matches!(shared, Ok(true) | Err(Errno::EPERM | Errno::ENOSYS)));
/// ```
pub fn share_descriptors(a: i32, b: i32) -> Result<bool> {
    const KCMP_FILES: u32 = 2;
    // SAFETY: writes no memory.
    unsafe { call!(__NR_kcmp, a, b, KCMP_FILES, 0usize, 0usize) }.map(|order| order == 0)
}

/// `pidfd_send_signal(2)`: signal 0 only checks. Flags since Linux 6.9.
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// # use std::os::unix::process::ExitStatusExt as _;
/// # use std::process::{Command, Stdio};
/// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
/// let pidfd = process::pidfd_open(child.id() as i32)?;
/// process::pidfd_send_signal(pidfd, 15, 0)?;
/// assert_eq!(child.wait().unwrap().signal(), Some(15));
/// assert_eq!(process::pidfd_send_signal(pidfd, 0, 0), Err(Errno::ESRCH)); // never another process
/// fd::close(pidfd)?;
/// # Ok::<(), Errno>(())
/// ```
pub fn pidfd_send_signal(pidfd: i32, signal: i32, flags: u32) -> Result<()> {
    // SAFETY: a null siginfo makes the kernel fill in one like kill's.
    unsafe { call!(__NR_pidfd_send_signal, pidfd, signal, core::ptr::null::<u8>(), flags) }.map(drop)
}

/// The wait status of a process that has been reaped, kept by its pidfd: `PIDFD_GET_INFO` with `PIDFD_INFO_EXIT` (Linux 6.15).
/// `Ok(None)` while it has not been reaped; `ENOTTY` or `EINVAL` on kernels without it.
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// let mut child = std::process::Command::new("false").spawn().unwrap();
/// let pidfd = process::pidfd_open(child.id() as i32)?;
/// child.wait().unwrap();
/// match process::pidfd_exit_status(pidfd) {
///     Ok(status) => assert_eq!(status, Some(1 << 8)),
///     Err(e) => assert!(matches!(e, Errno::ENOTTY | Errno::EINVAL)), // before Linux 6.15
/// }
/// fd::close(pidfd)?;
/// # Ok::<(), Errno>(())
/// ```
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
    // _IOWR(PIDFS_IOCTL_MAGIC = 0xFF, 11, struct): the size is part of the number and the kernel accepts any from version 0 on.
    const GET_INFO: u32 = (3 << 30) | ((size_of::<Info>() as u32) << 16) | (0xFF << 8) | 11;
    const _: () = assert!(size_of::<Info>() == 64, "PIDFD_INFO_SIZE_VER0");
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    // SAFETY: the kernel writes at most the size encoded in the request.
    unsafe { call!(__NR_ioctl, pidfd, GET_INFO, &raw mut info) }?;
    Ok((info.mask & INFO_EXIT != 0).then_some(info.exit_code))
}

/// `getpid(2)`, from the kernel and so right after any kind of clone.
///
/// ```
/// assert_eq!(forkless_sys::process::getpid() as u32, std::process::id());
/// ```
#[inline(always)]
pub fn getpid() -> i32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { call!(__NR_getpid) }.unwrap_or(0) as i32
}

/// `gettid(2)`.
///
/// ```
/// # use forkless_sys::process;
/// assert_eq!(process::gettid(), process::getpid()); // in the first thread
/// assert_ne!(std::thread::spawn(process::gettid).join().unwrap(), process::getpid());
/// ```
#[inline(always)]
pub fn gettid() -> i32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { call!(__NR_gettid) }.unwrap_or(0) as i32
}

/// `getppid(2)`: 0 when the parent is outside the pid namespace, another process once it has died.
///
/// ```
/// assert_eq!(forkless_sys::process::getppid() as u32, std::os::unix::process::parent_id());
/// ```
#[inline(always)]
pub fn getppid() -> i32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { call!(__NR_getppid) }.unwrap_or(0) as i32
}

/// `setsid(2)`: the new session.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// assert_eq!(process::setsid(), Ok(process::getpid()));
/// assert_eq!(process::getpgrp(), process::getpid());
/// assert_eq!(process::setsid(), Err(Errno::EPERM)); // it leads a group by now
/// ```
#[inline(always)]
pub fn setsid() -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setsid) }.map(|n| n as i32)
}

/// `setpgid(2)` of the caller; 0 makes a group of its own.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// process::setpgid(0)?;
/// assert_eq!(process::getpgrp(), process::getpid());
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn setpgid(pgid: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setpgid, 0i32, pgid) }.map(drop)
}

/// `setpgid(2)` of a child: `EACCES` once it has executed a program. 0 makes a group of its own.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// # use std::process::{Command, Stdio};
/// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
/// assert_eq!(process::setpgid_of(child.id() as i32, 0), Err(Errno::EACCES)); // it runs
/// # drop(child.stdin.take());
/// # child.wait().unwrap();
/// ```
pub fn setpgid_of(pid: i32, pgid: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setpgid, pid, pgid) }.map(drop)
}

/// `chdir(2)`.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// process::chdir(c"/".into())?;
/// assert_eq!(std::env::current_dir().unwrap().as_os_str(), "/");
/// assert_eq!(process::chdir(c"/dev/null".into()), Err(Errno::ENOTDIR));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn chdir(path: CPtr<'_>) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_chdir, path) }.map(drop)
}

/// `fchdir(2)`.
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// let root = fd::openat(fd::AT_FDCWD, c"/".into(), fd::O_PATH | fd::O_CLOEXEC, 0)?;
/// process::fchdir(root)?;
/// assert_eq!(std::env::current_dir().unwrap().as_os_str(), "/");
/// # fd::close(root)?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn fchdir(fd: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_fchdir, fd) }.map(drop)
}

/// `chroot(2)`. Does not change the working directory.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// match process::chroot(c"/proc".into()) {
///     Ok(()) => assert!(process::stat(c"/self/status".into()).is_ok()),
///     Err(e) => assert_eq!(e, Errno::EPERM), // without CAP_SYS_CHROOT
/// }
/// ```
#[inline(always)]
pub fn chroot(path: CPtr<'_>) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_chroot, path) }.map(drop)
}

/// `umask(2)`: the mask before.
///
/// ```
/// # use forkless_sys::process;
/// let before = process::umask(0o077);
/// assert_eq!(process::umask(before), 0o077);
/// ```
#[inline(always)]
pub fn umask(mask: u32) -> u32 {
    // SAFETY: cannot fail, writes no memory.
    unsafe { call!(__NR_umask, mask) }.unwrap_or(0) as u32
}

/// `prctl(PR_SET_PDEATHSIG)`. Cleared by a change of credentials and by exec of a set-id program.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// process::set_pdeathsig(15)?;
/// process::set_pdeathsig(0)?; // none after all
/// assert_eq!(process::set_pdeathsig(65), Err(Errno::EINVAL));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_pdeathsig(signal: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_prctl, p::PR_SET_PDEATHSIG, signal) }.map(drop)
}

/// `prctl(PR_SET_NO_NEW_PRIVS)`. Cannot be undone.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// process::set_no_new_privs()?;
/// let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
/// assert!(status.contains("NoNewPrivs:\t1"));
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn set_no_new_privs() -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_prctl, p::PR_SET_NO_NEW_PRIVS, 1usize, 0usize, 0usize, 0usize) }.map(drop)
}

/// `prctl(PR_GET_DUMPABLE)`: 0, 1 or 2 (`proc_sys_fs(5)`, suid_dumpable).
///
/// ```
/// # use forkless_sys::{Errno, process};
/// process::set_dumpable(1)?;
/// assert_eq!(process::dumpable(), Ok(1));
/// # Ok::<(), Errno>(())
/// ```
pub fn dumpable() -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_prctl, p::PR_GET_DUMPABLE) }.map(|n| n as i32)
}

/// `prctl(PR_GET_THP_DISABLE)`: whether the process gets no transparent huge pages, by its own order or by one it inherited.
///
/// ```
/// # use forkless_sys::process;
/// if process::thp_disabled() == Ok(true) {
///     println!("no transparent huge pages here, whatever the system's setting");
/// }
/// ```
pub fn thp_disabled() -> Result<bool> {
    // SAFETY: no pointers; the kernel insists on the zeros.
    unsafe { call!(__NR_prctl, p::PR_GET_THP_DISABLE, 0usize, 0usize, 0usize, 0usize) }.map(|n| n != 0)
}

/// `prctl(PR_SET_DUMPABLE)`: 0 or 1. A property of the memory, so shared with every process that shares it.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// process::set_dumpable(0)?; // no core, no debugger of the same user
/// assert_eq!(process::dumpable(), Ok(0));
/// assert_eq!(process::set_dumpable(2), Err(Errno::EINVAL)); // the kernel's alone to give
/// # Ok::<(), Errno>(())
/// ```
pub fn set_dumpable(value: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_prctl, p::PR_SET_DUMPABLE, value) }.map(drop)
}

/// `getpgid(2)` of the caller: its process group.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// process::setpgid(0)?;
/// assert_eq!(process::getpgrp(), process::getpid());
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub fn getpgrp() -> i32 {
    // SAFETY: cannot fail for the caller itself, writes no memory.
    unsafe { call!(__NR_getpgid, 0i32) }.unwrap_or(0) as i32
}

/// `getpgid(2)`: the group of a process.
///
/// ```
/// # use forkless_sys::process;
/// assert_eq!(process::getpgid(process::getpid()), Ok(process::getpgrp()));
/// ```
pub fn getpgid(pid: i32) -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_getpgid, pid) }.map(|group| group as i32)
}

/// `tgkill(2)`: one thread of a process.
///
/// ```
/// # use forkless_sys::{Errno, process, signal};
/// let usr1 = signal::SigSet::EMPTY.with(10);
/// let old = signal::set_mask(usr1)?;
/// process::tgkill(process::getpid(), process::gettid(), 10)?;
/// assert_eq!(signal::take_pending(usr1), Ok(10));
/// signal::set_mask(old)?;
/// # Ok::<(), Errno>(())
/// ```
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_tgkill, pid, tid, signal) }.map(drop)
}

/// What `getrusage(2)` tells of the memory of a process: [`memory_usage`].
///
/// ```
/// # use forkless_sys::process::{self, MemoryUsage};
/// let MemoryUsage { max_rss_kib, faults } = process::memory_usage().unwrap();
/// assert!(max_rss_kib > 100 && faults > 25);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryUsage {
    /// The largest resident set the process has had, in KiB (`ru_maxrss`). Survives exec.
    pub max_rss_kib: u64,
    /// Page faults of all its threads, minor and major. Survives exec; a child of fork begins with none.
    pub faults: u64,
}

/// The calling process's own.
///
/// ```
/// # use forkless_sys::process;
/// let before = process::memory_usage().unwrap();
/// let filled = std::hint::black_box(vec![1u8; 8 << 20]);
/// let after = process::memory_usage().unwrap();
/// assert!(after.max_rss_kib > 4 << 10);
/// assert!(after.faults > before.faults);
/// # drop(filled);
/// ```
pub fn memory_usage() -> Result<MemoryUsage> {
    // Two timevals come first, then ru_maxrss; ru_minflt is the ninth word, ru_majflt the tenth; 144 bytes in all.
    let mut usage = [0u64; 18];
    // SAFETY: the kernel writes one struct rusage.
    unsafe { call!(__NR_getrusage, 0i32, usage.as_mut_ptr()) }?;
    Ok(MemoryUsage { max_rss_kib: usage[4], faults: usage[8] + usage[9] })
}

/// Threads of the process: the directory /proc/self/task has two links more than that (fs/proc/base.c, `proc_task_getattr`).
/// Counts every thread, however it was made. `None` without /proc.
///
/// ```
/// # use forkless_sys::process;
/// let here = process::thread_count().unwrap();
/// let there = std::thread::spawn(process::thread_count).join().unwrap();
/// assert_eq!(there, Some(here + 1));
/// ```
pub fn thread_count() -> Option<u64> {
    let path = c"/proc/self/task".as_ptr();
    // struct stat: dev, ino, then nlink, or (asm-generic/stat.h) mode and nlink in half a word each; 144 bytes at most.
    let mut stat = [0u64; 18];
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel reads a constant string and writes one struct stat.
    unsafe { call!(__NR_stat, path, stat.as_mut_ptr()) }.ok()?;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe { call!(__NR_newfstatat, k::AT_FDCWD, path, stat.as_mut_ptr(), 0u32) }.ok()?;
    let links = if cfg!(target_arch = "x86_64") { stat[2] } else { stat[2] >> 32 };
    links.checked_sub(2)
}

/// `unshare(2)` of `CLONE_VM`, which changes nothing and is refused (`EINVAL`) unless the process has one thread, and shares its memory
/// with no other process (kernel/fork.c, `check_unshare_flags`; lib/is_single_threaded.c): a tenth of what [`thread_count`] takes.
/// A sandbox may refuse it, too, with an error of its choice.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// let refused = std::thread::spawn(process::unshare_memory).join().unwrap(); // beside the one that waits
/// assert!(matches!(refused, Err(Errno::EINVAL | Errno::EPERM)));
/// ```
pub fn unshare_memory() -> Result<()> {
    // SAFETY: with this flag alone the call only checks.
    unsafe { call!(__NR_unshare, k::CLONE_VM) }.map(drop)
}

/// `prctl(PR_GET_SECCOMP)`: 0 without a filter, 2 with one.
///
/// ```
/// # use forkless_sys::process;
/// let mode = process::seccomp_mode().unwrap();
/// let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
/// assert!(status.contains(&format!("Seccomp:\t{mode}\n")));
/// ```
pub fn seccomp_mode() -> Result<i32> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_prctl, p::PR_GET_SECCOMP) }.map(|n| n as i32)
}

/// `wait4(2)` for one child, with [`WALL`] or nothing as `options`: the wait status as `waitpid(3)` has it.
///
/// ```
/// # use forkless_sys::process;
/// let pid = std::process::Command::new("false").spawn().unwrap().id() as i32;
/// assert_eq!(process::wait4(pid, 0), Ok(1 << 8)); // exited with 1
/// ```
#[inline(always)]
pub fn wait4(pid: i32, options: u32) -> Result<i32> {
    let mut status = 0i32;
    // SAFETY: the kernel writes one int; no rusage is asked for.
    unsafe { call!(__NR_wait4, pid, &raw mut status, options, core::ptr::null::<u8>()) }?;
    Ok(status)
}

/// Device, inode and mode of a file (`stat(2)`, following links).
///
/// ```
/// # use forkless_sys::{Errno, fd, process};
/// let (device, inode, mode) = process::stat(c"/".into())?;
/// assert_eq!(mode & 0o170000, 0o040000); // S_IFDIR
/// assert_eq!(fd::identity(fd::AT_FDCWD, c"/".into(), 0), Ok((device, inode)));
/// # Ok::<(), Errno>(())
/// ```
pub fn stat(path: CPtr<'_>) -> Result<(u64, u64, u32)> {
    // struct stat: dev, ino; then x86-64 has nlink before mode, aarch64 (asm-generic/stat.h) mode at once.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes one struct stat of at most 144 bytes.
    unsafe { call!(__NR_newfstatat, k::AT_FDCWD, path, stat.as_mut_ptr(), 0u32) }?;
    let mode = if cfg!(target_arch = "x86_64") { stat[3] } else { stat[2] };
    Ok((stat[0], stat[1], mode as u32))
}

/// Whether the file may be executed by the effective user (`faccessat(2)` knows only the real one; they differ in set-id programs,
/// where this answers for the real one, as `access(2)`).
///
/// ```
/// # use forkless_sys::{Errno, process};
/// assert_eq!(process::may_execute(c"/bin/sh".into()), Ok(()));
/// assert_eq!(process::may_execute(c"/dev/null".into()), Err(Errno::EACCES)); // not even by root
/// ```
pub fn may_execute(path: CPtr<'_>) -> Result<()> {
    // SAFETY: writes no memory. X_OK is 1.
    unsafe { call!(__NR_faccessat, k::AT_FDCWD, path, 1u32) }.map(drop)
}

/// `getcwd(2)`: the length without the NUL that follows. `ENOENT` when the directory was removed, `ERANGE` when `buf` is too short.
///
/// ```
/// # use forkless_sys::{Errno, process};
/// let mut buf = [0; 4096];
/// let length = process::getcwd(&mut buf)?;
/// assert_eq!(buf[..length], *std::env::current_dir().unwrap().as_os_str().as_encoded_bytes());
/// assert_eq!(process::getcwd(&mut buf[..1]), Err(Errno::ERANGE));
/// # Ok::<(), Errno>(())
/// ```
pub fn getcwd(buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most the buffer.
    let len = unsafe { call!(__NR_getcwd, buf.as_mut_ptr(), buf.len()) }?;
    Ok(len - 1)
}
