//! The prototype of every system call that this crate makes. An argument in the wrong place does
//! not compile.
//!
//! Every position has a kind of its own: [`Fd`], [`Pid`], [`Signal`], [`Addr`], [`Len`], [`Flags`]
//! and so on, or a pointer to what the kernel reads or writes there. No integer converts to a kind
//! by itself: the caller names the kind.
//!
//! The promise ends at this table. The public functions of this crate take descriptors, pids and
//! signals as `i32`. Two arguments of one kind, as the two descriptors of `dup3`, can still change
//! places.
//!
//! It is public, though hidden, because only an example can show that something does not compile:
//!
//! ```
//! use forkless_sys::calls::{self, Fd, Len};
//! let mut byte = 0u8;
//! // SAFETY: the kernel would write one byte, which is there; the descriptor is none.
//! assert!(unsafe { calls::read(Fd(-1), &raw mut byte, Len(1)) }.is_err());
//! ```
//!
//! A pointer in the place of a length, a signal in the place of a process, or a bare number
//! anywhere:
//!
//! ```compile_fail,E0308
//! use forkless_sys::calls::{self, Fd, Len};
//! let mut byte = 0u8;
//! let _ = unsafe { calls::read(Fd(-1), Len(1), &raw mut byte) };
//! ```
//!
//! ```compile_fail,E0308
//! use forkless_sys::calls::{self, Pid, Signal};
//! let _ = unsafe { calls::kill(Signal(0), Pid(1)) };
//! ```
//!
//! ```compile_fail,E0308
//! let _ = unsafe { forkless_sys::calls::close(-1) };
//! ```
#![expect(unsafe_code, reason = "each function passes its arguments on; the contract is its caller's")]

use core::ffi::{c_char, c_void};

use linux_raw_sys::general as k;

use crate::abi::{AltStack, KernelAction, Rlimit, SigSet, Timespec};
use crate::{CPtr, Errno, Reg, Result, raw};

/// A type that may stand in a position of a prototype.
pub trait Argument: Copy {
    /// The register the kernel gets.
    fn reg(self) -> Reg;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($of:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(transparent)]
        pub struct $kind(pub $of);

        impl Argument for $kind {
            #[inline(always)]
            fn reg(self) -> Reg {
                // `int` is sign-extended, as the kernel's own prototypes expect.
                Reg(self.0 as isize as usize)
            }
        }
    )*};
}
kinds! {
    /// A descriptor; -1 for none, `AT_FDCWD` for the working directory.
    Fd(i32);
    /// A process, a thread or a group; 0 for the caller, a negative number for a group.
    Pid(i32);
    /// A signal; 0 for none.
    Signal(i32);
    /// Any other `int`.
    Int(i32);
    /// An address that the kernel looks up and does not read.
    Addr(usize);
    /// A number of bytes or of elements.
    Len(usize);
    /// An argument whose meaning an [`Op`] before it decides.
    Word(usize);
    /// A position in a file.
    Offset(u64);
    /// Any other `unsigned int`.
    Num(u32);
    /// Which operation, resource or clock is meant.
    Op(u32);
    /// Bits of one call.
    Flags(u32);
    /// Bits of `PROT_*`.
    Prot(u32);
    /// Bits of a file's mode.
    Mode(u32);
    /// A user or a group.
    Id(u32);
}

impl<T> Argument for *const T {
    #[inline(always)]
    fn reg(self) -> Reg {
        Reg(self.cast::<c_void>() as usize)
    }
}

impl<T> Argument for *mut T {
    #[inline(always)]
    fn reg(self) -> Reg {
        Reg(self.cast::<c_void>() as usize)
    }
}

impl Argument for CPtr<'_> {
    #[inline(always)]
    fn reg(self) -> Reg {
        self.as_ptr().reg()
    }
}

macro_rules! prototypes {
    ($($name:ident = $nr:ident ($($arg:ident: $kind:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($nr), "`: the kernel's answer as a value or an error.")]
        ///
        /// # Safety
        /// The kernel may write only to memory that the caller owns.
        #[inline(always)]
        pub unsafe fn $name($($arg: $kind),*) -> Result<usize> {
            #[allow(unused_mut, unused_assignments, reason = "calls without arguments")]
            let args = {
                let mut args = [Reg::ZERO; 6];
                let mut i = 0;
                $( args[i] = Argument::reg($arg); i += 1; )*
                let _ = i;
                args
            };
            // SAFETY: the caller's contract.
            Errno::check(unsafe { raw::syscall(k::$nr, args) })
        }
    )*};
}
// As in the kernel's include/linux/syscalls.h. A multiplexed call has one line for each way its
// arguments are read.
prototypes! {
    capget = __NR_capget(header: *const [u32; 2], sets: *mut [u32; 6]);
    chdir = __NR_chdir(path: CPtr<'_>);
    chroot = __NR_chroot(path: CPtr<'_>);
    clock_gettime = __NR_clock_gettime(clock: Op, now: *mut Timespec);
    clone3 = __NR_clone3(args: *const k::clone_args, size: Len);
    close = __NR_close(fd: Fd);
    close_range = __NR_close_range(first: Num, last: Num, flags: Flags);
    dup3 = __NR_dup3(from: Fd, to: Fd, flags: Flags);
    epoll_create1 = __NR_epoll_create1(flags: Flags);
    epoll_ctl = __NR_epoll_ctl(epoll: Fd, op: Op, fd: Fd, event: *const k::epoll_event);
    epoll_pwait = __NR_epoll_pwait(
        epoll: Fd, events: *mut k::epoll_event, max: Int, timeout: Int, mask: *const SigSet, mask_size: Len
    );
    execve = __NR_execve(path: CPtr<'_>, argv: *const *const c_char, envp: *const *const c_char);
    exit = __NR_exit(status: Int);
    exit_group = __NR_exit_group(status: Int);
    faccessat = __NR_faccessat(dir: Fd, path: CPtr<'_>, access: Mode);
    fchdir = __NR_fchdir(fd: Fd);
    fcntl = __NR_fcntl(fd: Fd, op: Op, argument: Word);
    fstatfs = __NR_fstatfs(fd: Fd, to: *mut [i64; 15]);
    futex = __NR_futex(word: *mut u32, op: Op, value: Num, timeout: *const Timespec);
    futex_op = __NR_futex(
        word: *mut u32, op: Op, value: Num, other_value: Num, other: *mut u32, operation: Num
    );
    getcwd = __NR_getcwd(to: *mut u8, size: Len);
    getdents64 = __NR_getdents64(fd: Fd, to: *mut u8, size: Len);
    getegid = __NR_getegid();
    geteuid = __NR_geteuid();
    getgid = __NR_getgid();
    getpgid = __NR_getpgid(pid: Pid);
    getpid = __NR_getpid();
    getppid = __NR_getppid();
    getpriority = __NR_getpriority(which: Op, of: Pid);
    getresgid = __NR_getresgid(real: *mut u32, effective: *mut u32, saved: *mut u32);
    getresuid = __NR_getresuid(real: *mut u32, effective: *mut u32, saved: *mut u32);
    getrusage = __NR_getrusage(of: Int, to: *mut [u64; 18]);
    gettid = __NR_gettid();
    getuid = __NR_getuid();
    ioctl = __NR_ioctl(fd: Fd, op: Op, argument: *mut c_void);
    ioctl_number = __NR_ioctl(fd: Fd, op: Op, argument: Num);
    kcmp = __NR_kcmp(a: Pid, b: Pid, op: Op, first: Word, second: Word);
    kill = __NR_kill(pid: Pid, signal: Signal);
    lseek = __NR_lseek(fd: Fd, offset: Offset, from: Op);
    madvise = __NR_madvise(from: *mut c_void, len: Len, advice: Op);
    mincore = __NR_mincore(from: Addr, len: Len, to: *mut u8);
    mmap = __NR_mmap(at: Addr, len: Len, prot: Prot, flags: Flags, fd: Fd, offset: Offset);
    mprotect = __NR_mprotect(from: *mut c_void, len: Len, prot: Prot);
    mremap = __NR_mremap(from: Addr, old: Len, new: Len, flags: Flags, to: Addr);
    munmap = __NR_munmap(from: *mut c_void, len: Len);
    nanosleep = __NR_nanosleep(time: *const Timespec, left: *mut Timespec);
    newfstatat = __NR_newfstatat(dir: Fd, path: CPtr<'_>, to: *mut [u64; 18], flags: Flags);
    openat = __NR_openat(dir: Fd, path: CPtr<'_>, flags: Flags, mode: Mode);
    openat2 = __NR_openat2(dir: Fd, path: CPtr<'_>, how: *const k::open_how, size: Len);
    pidfd_getfd = __NR_pidfd_getfd(pidfd: Fd, of_it: Fd, flags: Flags);
    pidfd_open = __NR_pidfd_open(pid: Pid, flags: Flags);
    pidfd_send_signal = __NR_pidfd_send_signal(pidfd: Fd, signal: Signal, info: *const [i32; 32], flags: Flags);
    pipe2 = __NR_pipe2(ends: *mut [i32; 2], flags: Flags);
    ppoll = __NR_ppoll(fds: *mut k::pollfd, number: Len, left: *mut Timespec, mask: *const SigSet, mask_size: Len);
    prctl = __NR_prctl(op: Op, a: Word, b: Word, c: Word, d: Word);
    pread64 = __NR_pread64(fd: Fd, to: *mut u8, size: Len, offset: Offset);
    prlimit64 = __NR_prlimit64(pid: Pid, resource: Op, new: *const Rlimit, old: *mut Rlimit);
    process_vm_readv = __NR_process_vm_readv(
        pid: Pid, to: *const [usize; 2], to_number: Len, from: *const [usize; 2], from_number: Len, flags: Flags
    );
    pselect6 = __NR_pselect6(
        number: Int, readable: *mut u64, writable: *mut u64, other: *mut u64, left: *mut Timespec, mask: *const [usize; 2]
    );
    read = __NR_read(fd: Fd, to: *mut u8, size: Len);
    readlinkat = __NR_readlinkat(dir: Fd, path: CPtr<'_>, to: *mut u8, size: Len);
    rt_sigaction = __NR_rt_sigaction(signal: Signal, new: *const KernelAction, old: *mut KernelAction, mask_size: Len);
    rt_sigpending = __NR_rt_sigpending(to: *mut SigSet, mask_size: Len);
    rt_sigprocmask = __NR_rt_sigprocmask(how: Op, new: *const SigSet, old: *mut SigSet, mask_size: Len);
    rt_sigqueueinfo = __NR_rt_sigqueueinfo(pid: Pid, signal: Signal, info: *const [i32; 32]);
    rt_sigtimedwait = __NR_rt_sigtimedwait(
        mask: *const SigSet, info: *mut [i32; 32], timeout: *const Timespec, mask_size: Len
    );
    sched_getaffinity = __NR_sched_getaffinity(tid: Pid, size: Len, to: *mut u64);
    sched_getparam = __NR_sched_getparam(tid: Pid, priority: *mut i32);
    sched_getscheduler = __NR_sched_getscheduler(tid: Pid);
    sched_setaffinity = __NR_sched_setaffinity(tid: Pid, size: Len, mask: *const u64);
    sched_setscheduler = __NR_sched_setscheduler(tid: Pid, policy: Int, priority: *const i32);
    sched_yield = __NR_sched_yield();
    setfsgid = __NR_setfsgid(group: Id);
    setfsuid = __NR_setfsuid(user: Id);
    setgid = __NR_setgid(group: Id);
    setgroups = __NR_setgroups(number: Len, groups: *const u32);
    setpgid = __NR_setpgid(pid: Pid, group: Pid);
    setpriority = __NR_setpriority(which: Op, of: Pid, nice: Int);
    setregid = __NR_setregid(real: Id, effective: Id);
    setresuid = __NR_setresuid(real: Id, effective: Id, saved: Id);
    setreuid = __NR_setreuid(real: Id, effective: Id);
    setsid = __NR_setsid();
    setuid = __NR_setuid(user: Id);
    sigaltstack = __NR_sigaltstack(new: *const AltStack, old: *mut AltStack);
    statx = __NR_statx(dir: Fd, path: CPtr<'_>, flags: Flags, wanted: Num, to: *mut k::statx);
    tgkill = __NR_tgkill(pid: Pid, tid: Pid, signal: Signal);
    timer_delete = __NR_timer_delete(id: Int);
    timer_create = __NR_timer_create(clock: Op, event: *const [u32; 16], id: *mut i32);
    timer_gettime = __NR_timer_gettime(id: Int, to: *mut [Timespec; 2]);
    timer_settime = __NR_timer_settime(id: Int, flags: Flags, new: *const [Timespec; 2], old: *mut [Timespec; 2]);
    timerfd_create = __NR_timerfd_create(clock: Op, flags: Flags);
    timerfd_settime = __NR_timerfd_settime(fd: Fd, flags: Flags, new: *const [Timespec; 2], old: *mut [Timespec; 2]);
    umask = __NR_umask(mask: Mode);
    unlinkat = __NR_unlinkat(dir: Fd, path: CPtr<'_>, flags: Flags);
    unshare = __NR_unshare(flags: Flags);
    wait4 = __NR_wait4(pid: Pid, status: *mut i32, options: Flags, usage: *mut [u64; 18]);
    waitid = __NR_waitid(kind: Op, pid_or_pidfd: Int, info: *mut c_void, options: Flags, usage: *mut [u64; 18]);
    write = __NR_write(fd: Fd, from: *const u8, size: Len);
}
// arm64 has no `stat`.
#[cfg(target_arch = "x86_64")]
prototypes! {
    stat = __NR_stat(path: CPtr<'_>, to: *mut [u64; 18]);
}
