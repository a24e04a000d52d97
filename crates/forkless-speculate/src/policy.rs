//! Which system calls a speculative child may make, as data.
//!
//! A call is made if its effect is provably private to the child, and only once the memory that it
//! touches is present. Every other call aborts, and so does every number that is not listed. Each
//! call has its own decision. A call with commands has one for each command.
//!
//! Each row is a constant. [`judge`] reads no memory of the program and makes no call. The
//! preloaded library carries its ruling out. [`Ruling::Make`] names the memory to fetch before the
//! call ([`Need`]) and the consequences of the answer ([`Then`]).

use forkless_sys::Errno;
use linux_raw_sys::{general as k, ioctl as io, prctl as p};

use Ruling::Make;

/// The six argument registers of a system call.
pub type Args = [usize; 6];

/// The child, as far as a decision depends on it.
pub trait Child {
    /// Its number.
    fn pid(&self) -> i32;
    /// Whether a register names the descriptor that the library hides from the program.
    fn is_hidden(&self, fd: usize) -> bool;
    /// Whether the child opened the descriptor since the fork. An inherited one shares its open
    /// file description with the parent.
    fn is_private(&self, fd: usize) -> bool;
    /// Whether it is private, and nobody else can notice that it is read or written.
    fn is_usable(&self, fd: usize) -> bool;
    /// Whether the child lacks any byte of `addr..addr + len` that its parent has.
    fn lacks(&self, addr: usize, len: usize) -> bool;
    /// Whether its memory is limited by RLIMIT_DATA.
    fn has_data_limit(&self) -> bool;
    /// Whether a limit of its cgroup has room for so many bytes of new memory, and for what the
    /// child has taken before. Also for what the kernel takes for the child.
    fn may_take(&self, bytes: usize) -> bool;
    /// Where its heap ends.
    fn heap_end(&self) -> usize;
    /// Whether all mappings in `addr..addr + len` are known to be private.
    fn has_only_private(&self, addr: usize, len: usize) -> bool;
}

/// The policy's answer for one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ruling {
    /// The call is made.
    Make(Call),
    /// The call fails at once, as it would without the library's descriptor.
    Refuse(Errno),
    /// The library does the call's work.
    Emulate(Emulated),
    /// The speculation is undone.
    Abort(Cause),
}

/// A call that is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The needs before the call, in this order.
    pub needs: [Need; 3],
    /// The consequence of its answer.
    pub then: Then,
}

/// A need: the memory or the descriptor number that a call depends on. Arguments are named by their
/// position, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// Argument `arg` points to `len` bytes.
    Bytes {
        /// Position of the address.
        arg: u8,
        /// Bytes.
        len: u16,
    },
    /// Argument `arg` points to as many bytes as argument `len` says.
    Buffer {
        /// Position of the address.
        arg: u8,
        /// Position of the length.
        len: u8,
    },
    /// Argument `arg` points to as many group numbers as argument `count` says, 65,536 at most.
    Groups {
        /// Position of the address.
        arg: u8,
        /// Position of the count.
        count: u8,
    },
    /// Argument `arg` points to a set of processors of as many bytes as argument `len` says, 8,192
    /// at most.
    Processors {
        /// Position of the address.
        arg: u8,
        /// Position of the length.
        len: u8,
    },
    /// Argument `arg` points to a byte for each page of as much memory as argument `len` says.
    Pages {
        /// Position of the address.
        arg: u8,
        /// Position of the length of the memory.
        len: u8,
    },
    /// Argument 0 points to the name of a file.
    Path,
    /// Argument 1 points to the name of a file, which begins at the directory that argument 0 is.
    PathAt,
    /// Argument 1 points to an array of `struct iovec`, argument 2 is its length.
    Vectors,
    /// The call closes the descriptor that argument 1 is. The library's own must not be there.
    Vacant,
}

/// The consequence of a call's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// A new descriptor is private and usable.
    Opened,
    /// A new descriptor, the lowest free one, is a copy of argument 0.
    Duplicated,
    /// The same, the lowest free one from argument 2 on.
    DuplicatedFrom,
    /// Argument 1 is now a copy of argument 0.
    Replaced,
    /// Argument `arg` points to two new descriptors.
    OpenedPair {
        /// Position of the address.
        arg: u8,
    },
    /// Input or output. A failed call may have raised a signal (SIGPIPE, SIGXFSZ). The signal's
    /// handler would have run before the call returned.
    Transferred,
    /// Argument `arg` points to a structure that describes a file. It may count the library's
    /// descriptor.
    Described {
        /// Position of the address of the `struct stat` or `struct statx`.
        arg: u8,
    },
    /// The file that argument 0 names may be the library's.
    Found,
    /// The file that argument 1 names, from the directory that argument 0 is, may be the library's.
    FoundAt,
    /// The credentials may have changed.
    Credentials,
    /// New memory. Where the kernel refuses it, it may have counted mappings that a plain child
    /// does not have.
    Mapped,
}

/// Calls whose work the library does, or arranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emulated {
    /// `execve`.
    Exec,
    /// `execveat`.
    ExecAt,
    /// `rt_sigaction`.
    Action,
    /// `rt_sigprocmask`.
    Mask,
    /// `sigaltstack`.
    AltStack,
    /// `prctl(PR_SET_PDEATHSIG)`.
    SetPdeathsig,
    /// `prctl(PR_GET_PDEATHSIG)`.
    GetPdeathsig,
    /// `close`.
    Close,
    /// `close_range`.
    CloseRange,
    /// `open`.
    Open,
    /// `openat`.
    OpenAt,
    /// `getdents64`.
    ListDirectory,
    /// `fcntl(F_GETFL)` of an inherited descriptor.
    GetStatusFlags,
    /// `fcntl(F_SETFL)` of an inherited descriptor.
    SetStatusFlags,
    /// `connect` of a usable descriptor.
    Connect,
    /// `timer_create`.
    MakeTimer,
    /// `timer_settime`.
    SetTimer,
    /// `timer_gettime`, `timer_getoverrun` and `timer_delete`, of the timer that argument 0 names.
    Timer,
}

/// Why the speculation is undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The call with this number may be noticed.
    Call(u32),
    /// The call with this number uses a descriptor that the child has inherited.
    Inherited(u32),
    /// This command of a call (`fcntl`, `ioctl` or `prctl`) may be noticed.
    Command {
        /// The call's number.
        call: u32,
        /// The command.
        command: u32,
    },
    /// The call changes a range of memory that the child lacks, or its limit counts such memory.
    Layout,
    /// The new memory could exceed a limit that the parent is below, too.
    Memory,
}

/// More than the kernel's record of a mapping, file or timer takes.
const PAGE: usize = 4096;

const STAT: u16 = 144;
const STATX: u16 = 256;
const STATFS: u16 = 120;
/// `sockaddr_storage`.
const ADDRESS: u16 = 128;
/// linux/socket.h.
const AF_UNIX: u32 = 1;

/// The calls that set ids of users and groups, as a pattern.
macro_rules! sets_ids {
    () => {
        k::__NR_setuid
            | k::__NR_setgid
            | k::__NR_setreuid
            | k::__NR_setregid
            | k::__NR_setresuid
            | k::__NR_setresgid
            | k::__NR_setfsuid
            | k::__NR_setfsgid
    };
}

/// Decides about the call `nr` of a child.
pub fn judge(nr: u32, a: &Args, child: &impl Child) -> Ruling {
    match nr {
        // Questions about the caller, and calls that change only things that every process has of
        // its own.
        k::__NR_getpid
        | k::__NR_getppid
        | k::__NR_gettid
        | k::__NR_getuid
        | k::__NR_geteuid
        | k::__NR_getgid
        | k::__NR_getegid
        | k::__NR_getpgrp
        | k::__NR_getpgid
        | k::__NR_getsid
        | k::__NR_umask
        | k::__NR_setsid
        | k::__NR_sched_yield
        | k::__NR_sched_get_priority_max
        | k::__NR_sched_get_priority_min
        | k::__NR_set_tid_address
        | k::__NR_set_robust_list
        | k::__NR_rseq
        | k::__NR_alarm
        | k::__NR_personality => Make(const { make() }),
        k::__NR_setpgid if a[0] == 0 || a[0] as i32 == child.pid() => Make(const { make() }),

        k::__NR_execve => Ruling::Emulate(Emulated::Exec),
        k::__NR_execveat => Ruling::Emulate(Emulated::ExecAt),

        k::__NR_rt_sigaction => Ruling::Emulate(Emulated::Action),
        k::__NR_rt_sigprocmask => Ruling::Emulate(Emulated::Mask),
        k::__NR_sigaltstack => Ruling::Emulate(Emulated::AltStack),
        // Only the question whether a process exists.
        k::__NR_kill | k::__NR_tkill if a[1] == 0 => Make(const { make() }),
        k::__NR_tgkill if a[2] == 0 => Make(const { make() }),
        // There are no children to wait for: the kernel says ECHILD.
        k::__NR_wait4 => Make(const { make().bytes(1, 4) }),
        k::__NR_waitid => Make(const { make().bytes(2, 128) }),

        k::__NR_close => Ruling::Emulate(Emulated::Close),
        k::__NR_close_range => Ruling::Emulate(Emulated::CloseRange),
        k::__NR_dup => unless_hidden(child, a[0], const { make().then(Then::Duplicated) }),
        k::__NR_dup2 | k::__NR_dup3 if is_too_high(child, a[1]) => Ruling::Abort(Cause::Memory),
        k::__NR_dup2 | k::__NR_dup3 => {
            unless_hidden(child, a[0], const { make().vacant().then(Then::Replaced) })
        }
        k::__NR_fcntl => fcntl(a, child),
        k::__NR_ioctl => ioctl(a, child),
        k::__NR_pipe | k::__NR_pipe2 => Make(const { make().bytes(0, 8).then(Then::OpenedPair { arg: 0 }) }),
        k::__NR_socketpair => Make(const { make().bytes(3, 8).then(Then::OpenedPair { arg: 3 }) }),
        // Nobody knows it until it has a name or a peer (unix(7)).
        k::__NR_socket if a[0] as u32 == AF_UNIX => Make(const { make().then(Then::Opened) }),
        k::__NR_connect if child.is_usable(a[0]) => Ruling::Emulate(Emulated::Connect),
        // Shells ask whether their input is a socket. An address has 128 bytes at most.
        k::__NR_getsockname | k::__NR_getpeername => {
            unless_hidden(child, a[0], const { make().bytes(1, ADDRESS).bytes(2, 4) })
        }
        k::__NR_eventfd | k::__NR_eventfd2 | k::__NR_epoll_create | k::__NR_epoll_create1 => {
            Make(const { make().then(Then::Opened) })
        }

        k::__NR_open => Ruling::Emulate(Emulated::Open),
        k::__NR_openat => Ruling::Emulate(Emulated::OpenAt),
        k::__NR_read | k::__NR_write | k::__NR_lseek | k::__NR_getdents64 if child.is_hidden(a[0]) => {
            Ruling::Refuse(Errno::EBADF)
        }
        // What is written stays in a pipe or socket of the child's own.
        k::__NR_write if child.is_usable(a[0]) && !child.may_take(a[2]) => Ruling::Abort(Cause::Memory),
        k::__NR_read | k::__NR_write | k::__NR_pread64 | k::__NR_pwrite64 => {
            if_usable(nr, child, a[0], const { make().buffer(1, 2).then(Then::Transferred) })
        }
        k::__NR_readv | k::__NR_writev => {
            if_usable(nr, child, a[0], const { make().vectors().then(Then::Transferred) })
        }
        k::__NR_lseek if child.is_private(a[0]) => Make(const { make() }),
        // SEEK_CUR by nothing only tells the position (fs/read_write.c, generic_file_llseek_size).
        k::__NR_lseek if a[1] == 0 && a[2] as u32 == k::SEEK_CUR => Make(const { make() }),
        k::__NR_getdents64 if child.is_private(a[0]) => Ruling::Emulate(Emulated::ListDirectory),

        k::__NR_stat | k::__NR_lstat => {
            Make(const { make().path().bytes(1, STAT).then(Then::Described { arg: 1 }) })
        }
        k::__NR_fstat => {
            unless_hidden(child, a[0], const { make().bytes(1, STAT).then(Then::Described { arg: 1 }) })
        }
        // libc makes fstat of these.
        k::__NR_newfstatat if a[3] as u32 & k::AT_EMPTY_PATH != 0 && child.is_hidden(a[0]) => {
            Ruling::Refuse(Errno::EBADF)
        }
        k::__NR_statx if a[2] as u32 & k::AT_EMPTY_PATH != 0 && child.is_hidden(a[0]) => {
            Ruling::Refuse(Errno::EBADF)
        }
        k::__NR_newfstatat => {
            Make(const { make().path_at().bytes(2, STAT).then(Then::Described { arg: 2 }) })
        }
        k::__NR_statx => Make(const { make().path_at().bytes(4, STATX).then(Then::Described { arg: 4 }) }),
        k::__NR_statfs => Make(const { make().path().bytes(1, STATFS).then(Then::Found) }),
        k::__NR_fstatfs => unless_hidden(child, a[0], const { make().bytes(1, STATFS) }),
        k::__NR_access | k::__NR_chdir | k::__NR_chroot => Make(const { make().path().then(Then::Found) }),
        k::__NR_faccessat | k::__NR_faccessat2 => Make(const { make().path_at().then(Then::FoundAt) }),
        k::__NR_readlink => Make(const { make().path().buffer(1, 2) }),
        k::__NR_readlinkat => Make(const { make().path_at().buffer(2, 3) }),
        k::__NR_getcwd => Make(const { make().buffer(0, 1) }),
        k::__NR_fchdir => unless_hidden(child, a[0], const { make() }),

        sets_ids!() => Make(const { make().then(Then::Credentials) }),
        k::__NR_setgroups => Make(const { make().groups(1, 0).then(Then::Credentials) }),
        k::__NR_getgroups => Make(const { make().groups(1, 0) }),
        k::__NR_getresuid | k::__NR_getresgid => Make(const { make().bytes(0, 4).bytes(1, 4).bytes(2, 4) }),
        k::__NR_capget | k::__NR_capset => {
            Make(const { make().bytes(0, 8).bytes(1, 24).then(Then::Credentials) })
        }
        k::__NR_prctl => prctl(a),

        k::__NR_getrlimit | k::__NR_setrlimit => Make(const { make().bytes(1, 16) }),
        k::__NR_prlimit64 if a[0] == 0 || a[0] as i32 == child.pid() => {
            Make(const { make().bytes(2, 16).bytes(3, 16) })
        }
        k::__NR_getpriority => Make(const { make() }),
        // PRIO_PROCESS, of oneself.
        k::__NR_setpriority if a[0] == 0 && is_self(a[1], child) => Make(const { make() }),
        k::__NR_sched_getaffinity => Make(const { make().processors(2, 1) }),
        k::__NR_sched_setaffinity if is_self(a[0], child) => Make(const { make().processors(2, 1) }),
        k::__NR_sched_getscheduler => Make(const { make() }),
        k::__NR_sched_rr_get_interval => Make(const { make().bytes(1, 16) }),
        k::__NR_sched_getparam => Make(const { make().bytes(1, 4) }),
        k::__NR_sched_setparam if is_self(a[0], child) => Make(const { make().bytes(1, 4) }),
        k::__NR_sched_setscheduler if is_self(a[0], child) => Make(const { make().bytes(2, 4) }),
        // IOPRIO_WHO_PROCESS, of oneself.
        k::__NR_ioprio_get => Make(const { make() }),
        k::__NR_ioprio_set if a[0] == 1 && is_self(a[1], child) => Make(const { make() }),

        k::__NR_clock_gettime | k::__NR_clock_getres => Make(const { make().bytes(1, 16) }),
        k::__NR_gettimeofday => Make(const { make().bytes(1, 8).bytes(0, 16) }),
        k::__NR_time => Make(const { make().bytes(0, 8) }),
        k::__NR_times => Make(const { make().bytes(0, 32) }),
        k::__NR_getrusage => Make(const { make().bytes(1, 144) }),
        k::__NR_uname => Make(const { make().bytes(0, 390) }),
        k::__NR_sysinfo => Make(const { make().bytes(0, 112) }),
        k::__NR_getrandom => Make(const { make().buffer(0, 1) }),
        k::__NR_getcpu => Make(const { make().bytes(1, 4).bytes(0, 4) }),
        k::__NR_setitimer | k::__NR_getitimer => Make(const { make().bytes(1, 32).bytes(2, 32) }),
        // A process's timers are its own: clone does not copy them, exec deletes them
        // (timer_create(2)). One that is never set to expire does nothing.
        k::__NR_timer_create if !child.may_take(PAGE) => Ruling::Abort(Cause::Memory),
        k::__NR_timer_create => Ruling::Emulate(Emulated::MakeTimer),
        k::__NR_timer_settime => Ruling::Emulate(Emulated::SetTimer),
        k::__NR_timer_gettime | k::__NR_timer_getoverrun | k::__NR_timer_delete => {
            Ruling::Emulate(Emulated::Timer)
        }
        // FUTEX_WAKE and FUTEX_WAKE_BITSET, with FUTEX_PRIVATE: nobody else waits there. Without
        // that flag the kernel goes by the mapped file, even a file that may only be read
        // (kernel/futex/core.c, get_futex_key).
        k::__NR_futex if matches!(a[1], 0x81 | 0x8a) => Make(const { make() }),

        k::__NR_mmap => mmap(nr, a, child),
        k::__NR_brk => brk(a, child),
        k::__NR_munmap => change(a, child),
        k::__NR_mprotect => mprotect(nr, a, child),
        // Advice that drops or moves memory is a change of layout; MADV_REMOVE punches files.
        k::__NR_mincore => layout(a, child, const { make().pages(2, 1) }),
        k::__NR_madvise if matches!(a[2], 0..=4 | 8 | 10..=21) => change(a, child),

        _ => Ruling::Abort(Cause::Call(nr)),
    }
}

/// Whether a call changes what files the child may open: its root, its ids or its limits.
#[must_use]
pub const fn changes_view(nr: u32, a: &Args) -> bool {
    if nr == k::__NR_prlimit64 {
        // Without a new limit it is a question.
        return a[2] != 0;
    }
    matches!(nr, sets_ids!() | k::__NR_setgroups | k::__NR_capset | k::__NR_chroot | k::__NR_setrlimit)
}

const fn make() -> Call {
    Call { needs: [Need::Nothing; 3], then: Then::Nothing }
}

impl Call {
    const fn need(self, need: Need) -> Call {
        let [a, b, c] = self.needs;
        let needs = match (a, b) {
            (Need::Nothing, _) => [need, b, c],
            (_, Need::Nothing) => [a, need, c],
            _ => [a, b, need],
        };
        Call { needs, ..self }
    }

    const fn bytes(self, arg: u8, len: u16) -> Call {
        self.need(Need::Bytes { arg, len })
    }

    const fn buffer(self, arg: u8, len: u8) -> Call {
        self.need(Need::Buffer { arg, len })
    }

    const fn groups(self, arg: u8, count: u8) -> Call {
        self.need(Need::Groups { arg, count })
    }

    const fn processors(self, arg: u8, len: u8) -> Call {
        self.need(Need::Processors { arg, len })
    }

    const fn pages(self, arg: u8, len: u8) -> Call {
        self.need(Need::Pages { arg, len })
    }

    const fn path(self) -> Call {
        self.need(Need::Path)
    }

    const fn path_at(self) -> Call {
        self.need(Need::PathAt)
    }

    const fn vectors(self) -> Call {
        self.need(Need::Vectors)
    }

    const fn vacant(self) -> Call {
        self.need(Need::Vacant)
    }

    const fn then(self, then: Then) -> Call {
        Call { then, ..self }
    }
}

/// A question about a descriptor, or a copy of it: allowed for inherited ones, refused for the
/// hidden one.
fn unless_hidden(child: &impl Child, fd: usize, call: Call) -> Ruling {
    if child.is_hidden(fd) { Ruling::Refuse(Errno::EBADF) } else { Make(call) }
}

/// Input or output: only on a descriptor that the child opened itself and nobody else can see.
fn if_usable(nr: u32, child: &impl Child, fd: usize, call: Call) -> Ruling {
    if child.is_usable(fd) { Make(call) } else { Ruling::Abort(Cause::Inherited(nr)) }
}

fn is_self(pid: usize, child: &impl Child) -> bool {
    pid as i32 == 0 || pid as i32 == child.pid()
}

/// Whether a descriptor may not have so high a number: the table reaches up to it, with eight bytes
/// each, and its size is a power of two (fs/file.c, alloc_fdtable).
fn is_too_high(child: &impl Child, number: usize) -> bool {
    const HIGH: usize = 4096;
    let number = number as u32 as usize;
    number >= HIGH && !child.may_take(number * 16)
}

fn fcntl(a: &Args, child: &impl Child) -> Ruling {
    if child.is_hidden(a[0]) {
        return Ruling::Refuse(Errno::EBADF);
    }
    match a[1] as u32 {
        k::F_DUPFD | k::F_DUPFD_CLOEXEC if is_too_high(child, a[2]) => Ruling::Abort(Cause::Memory),
        k::F_DUPFD | k::F_DUPFD_CLOEXEC => Make(const { make().then(Then::DuplicatedFrom) }),
        k::F_GETFD | k::F_SETFD | k::F_GETPIPE_SZ | k::F_GET_SEALS => Make(const { make() }),
        // The flags are the open file description's, so the parent's too unless it is new.
        k::F_GETFL | k::F_SETFL if child.is_private(a[0]) => Make(const { make() }),
        k::F_GETFL => Ruling::Emulate(Emulated::GetStatusFlags),
        k::F_SETFL => Ruling::Emulate(Emulated::SetStatusFlags),
        command => Ruling::Abort(Cause::Command { call: k::__NR_fcntl, command }),
    }
}

fn ioctl(a: &Args, child: &impl Child) -> Ruling {
    if child.is_hidden(a[0]) {
        return Ruling::Refuse(Errno::EBADF);
    }
    match a[1] as u32 {
        io::FIOCLEX | io::FIONCLEX => Make(const { make() }),
        io::TCGETS => Make(const { make().bytes(2, 64) }),
        io::TIOCGWINSZ => Make(const { make().bytes(2, 8) }),
        io::TIOCGPGRP | io::TIOCGSID | io::FIONREAD => Make(const { make().bytes(2, 4) }),
        io::FIONBIO if child.is_private(a[0]) => Make(const { make().bytes(2, 4) }),
        command => Ruling::Abort(Cause::Command { call: k::__NR_ioctl, command }),
    }
}

fn prctl(a: &Args) -> Ruling {
    match a[0] as u32 {
        p::PR_SET_PDEATHSIG => Ruling::Emulate(Emulated::SetPdeathsig),
        p::PR_GET_PDEATHSIG => Ruling::Emulate(Emulated::GetPdeathsig),
        p::PR_SET_NAME | p::PR_GET_NAME => Make(const { make().bytes(1, 16) }),
        p::PR_GET_CHILD_SUBREAPER => Make(const { make().bytes(1, 4) }),
        p::PR_GET_DUMPABLE
        | p::PR_GET_KEEPCAPS
        | p::PR_SET_KEEPCAPS
        | p::PR_CAPBSET_READ
        | p::PR_CAPBSET_DROP
        | p::PR_CAP_AMBIENT
        | p::PR_GET_SECUREBITS
        | p::PR_SET_SECUREBITS
        | p::PR_GET_TIMERSLACK
        | p::PR_SET_TIMERSLACK
        | p::PR_GET_NO_NEW_PRIVS
        | p::PR_SET_NO_NEW_PRIVS => Make(const { make() }),
        command => Ruling::Abort(Cause::Command { call: k::__NR_prctl, command }),
    }
}

fn mmap(nr: u32, a: &Args, child: &impl Child) -> Ruling {
    let [addr, len, rights, flags, fd, _] = *a;
    let flags = flags as u32;
    // Shared memory needs no system call to be noticed. Only private memory is new memory.
    if flags & k::MAP_TYPE != k::MAP_PRIVATE {
        return Ruling::Abort(Cause::Call(nr));
    }
    if flags & k::MAP_ANONYMOUS == 0 && !child.is_usable(fd) {
        return Ruling::Abort(Cause::Inherited(nr));
    }
    // A place that is only wished for is refused, too, where the library has reserved it.
    if addr != 0 && child.lacks(addr, len) {
        return Ruling::Abort(Cause::Layout);
    }
    // A mapping, and tables with eight bytes for each page that is read. To read a hole of a file
    // in memory makes a page of the file's (mm/shmem.c, shmem_fault).
    let takes_pages = flags & k::MAP_ANONYMOUS == 0 || rights as u32 & k::PROT_WRITE != 0;
    new_memory(child, if takes_pages { len } else { PAGE + len / 512 })
}

/// Memory that is absent does not count as data: a plain child would meet RLIMIT_DATA sooner. At
/// the limit of a cgroup the kernel ends the process with the most memory. A plain child's counts
/// its parent's, so that is the child; a speculative child has little, so it would be the parent.
fn new_memory(child: &impl Child, bytes: usize) -> Ruling {
    if child.has_data_limit() {
        Ruling::Abort(Cause::Layout)
    } else if !child.may_take(bytes) {
        Ruling::Abort(Cause::Memory)
    } else {
        Make(const { make().then(Then::Mapped) })
    }
}

/// The heap may grow. Shrinking it could give up memory that is absent.
fn brk(a: &Args, child: &impl Child) -> Ruling {
    // A question.
    if a[0] == 0 {
        return Make(const { make() });
    }
    let now = child.heap_end();
    if a[0] < now && child.lacks(a[0], now - a[0]) {
        return Ruling::Abort(Cause::Layout);
    }
    new_memory(child, a[0].saturating_sub(now))
}

/// A change to a range of mappings: not where the child lacks them.
fn layout(a: &Args, child: &impl Child, call: Call) -> Ruling {
    if child.lacks(a[0], a[1]) { Ruling::Abort(Cause::Layout) } else { Make(call) }
}

/// The same for a change that may split mappings.
fn change(a: &Args, child: &impl Child) -> Ruling {
    if child.may_take(PAGE) { layout(a, child, const { make() }) } else { Ruling::Abort(Cause::Memory) }
}

fn mprotect(nr: u32, a: &Args, child: &impl Child) -> Ruling {
    const ALL: usize = (k::PROT_READ | k::PROT_WRITE | k::PROT_EXEC) as usize;
    let [addr, len, rights, ..] = *a;
    if rights as u32 & k::PROT_WRITE == 0 {
        return change(a, child);
    }
    // PROT_GROWSDOWN changes more than the range.
    if rights & !ALL != 0 {
        return Ruling::Abort(Cause::Call(nr));
    }
    if child.lacks(addr, len) {
        return Ruling::Abort(Cause::Layout);
    }
    // Adding the right to write could open a shared mapping.
    if !child.has_only_private(addr, len) {
        return Ruling::Abort(Cause::Call(nr));
    }
    // Private memory that may be written counts as data (mm/mprotect.c, mprotect_fixup).
    new_memory(child, len)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// A child that has inherited 0 to 9, has opened 10 to 19 of which 15 to 19 are usable, and
    /// lacks a range.
    struct Test;

    const HIDDEN: usize = 240;
    const PRIVATE: usize = 10;
    const USABLE: usize = 15;
    const LACKS: core::ops::Range<usize> = 0x10_0000..0x20_0000;
    const SHARED: core::ops::Range<usize> = 0x70_0000..0x80_0000;
    const ROOM: usize = 0x100_0000;

    impl Child for Test {
        fn pid(&self) -> i32 {
            77
        }
        fn is_hidden(&self, fd: usize) -> bool {
            fd as i32 == HIDDEN as i32
        }
        fn is_private(&self, fd: usize) -> bool {
            (10..20).contains(&fd)
        }
        fn is_usable(&self, fd: usize) -> bool {
            (15..20).contains(&fd)
        }
        fn lacks(&self, addr: usize, len: usize) -> bool {
            addr < LACKS.end && LACKS.start < addr.saturating_add(len)
        }
        fn has_data_limit(&self) -> bool {
            false
        }
        fn may_take(&self, bytes: usize) -> bool {
            bytes <= ROOM
        }
        fn heap_end(&self) -> usize {
            0x30_0000
        }
        fn has_only_private(&self, addr: usize, len: usize) -> bool {
            addr.saturating_add(len) <= SHARED.start || SHARED.end <= addr
        }
    }

    fn ruling(nr: u32, args: &[usize]) -> Ruling {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        judge(nr, &all, &Test)
    }

    fn is_made(ruling: Ruling) -> bool {
        matches!(ruling, Make(_))
    }

    #[test]
    fn calls_that_others_notice_abort_and_say_their_number() {
        for nr in [
            k::__NR_exit_group,
            k::__NR_fork,
            k::__NR_vfork,
            k::__NR_clone,
            k::__NR_clone3,
            k::__NR_pause,
            k::__NR_connect,
            k::__NR_sendto,
            k::__NR_sendmsg,
            k::__NR_recvfrom,
            k::__NR_flock,
            k::__NR_unlink,
            k::__NR_rename,
            k::__NR_mkdir,
            k::__NR_chmod,
            k::__NR_chown,
            k::__NR_truncate,
            k::__NR_ftruncate,
            k::__NR_fallocate,
            k::__NR_ptrace,
            k::__NR_shmat,
            k::__NR_semop,
            k::__NR_msgsnd,
            k::__NR_mremap,
            k::__NR_nanosleep,
            k::__NR_poll,
            k::__NR_select,
            k::__NR_rt_sigreturn,
            k::__NR_rt_sigsuspend,
            k::__NR_seccomp,
            k::__NR_io_uring_setup,
            k::__NR_userfaultfd,
            k::__NR_setns,
            k::__NR_unshare,
            k::__NR_mount,
            k::__NR_reboot,
            k::__NR_sync,
            k::__NR_membarrier,
            k::__NR_process_madvise,
        ] {
            assert_eq!(ruling(nr, &[0; 6]), Ruling::Abort(Cause::Call(nr)), "call {nr}");
        }
    }

    #[test]
    fn only_oneself_may_be_changed() {
        assert!(is_made(ruling(k::__NR_setpgid, &[0, 5])));
        assert!(is_made(ruling(k::__NR_setpgid, &[77, 5])));
        assert!(!is_made(ruling(k::__NR_setpgid, &[78, 5])));
        assert!(is_made(ruling(k::__NR_prlimit64, &[77])));
        assert!(!is_made(ruling(k::__NR_prlimit64, &[1])));
        assert!(is_made(ruling(k::__NR_setpriority, &[0, 77])));
        // PRIO_PGRP and PRIO_USER, of oneself.
        assert!(!is_made(ruling(k::__NR_setpriority, &[1, 0])));
        assert!(!is_made(ruling(k::__NR_setpriority, &[2, 0])));
        assert!(is_made(ruling(k::__NR_kill, &[1, 0])));
        assert!(!is_made(ruling(k::__NR_kill, &[77, 1])));
        assert!(!is_made(ruling(k::__NR_tgkill, &[77, 77, 6])));
    }

    #[test]
    fn a_child_that_changes_its_root_ids_or_limits_sees_other_files() {
        for nr in [k::__NR_chroot, k::__NR_setuid, k::__NR_setgroups, k::__NR_capset, k::__NR_setrlimit] {
            assert!(changes_view(nr, &[0; 6]), "call {nr}");
        }
        for nr in [k::__NR_chdir, k::__NR_getrlimit, k::__NR_getuid, k::__NR_prlimit64] {
            assert!(!changes_view(nr, &[0; 6]), "call {nr}");
        }
        assert!(changes_view(k::__NR_prlimit64, &[0, 7, 0x1000, 0, 0, 0]));
    }

    #[test]
    fn an_inherited_descriptor_is_neither_read_nor_written_nor_moved() {
        assert!(!is_made(ruling(k::__NR_connect, &[3, 0x1000, 110])));
        assert_eq!(ruling(k::__NR_connect, &[PRIVATE, 0, 110]), Ruling::Abort(Cause::Call(k::__NR_connect)));
        // AF_INET, AF_NETLINK: ports and counters of the whole system.
        for family in [2, 10, 16] {
            assert!(!is_made(ruling(k::__NR_socket, &[family, 1, 0])), "{family}");
        }
        assert!(is_made(ruling(k::__NR_socket, &[1, 1, 0])));
        for nr in
            [k::__NR_read, k::__NR_write, k::__NR_readv, k::__NR_writev, k::__NR_pread64, k::__NR_pwrite64]
        {
            assert_eq!(ruling(nr, &[0, 0x1000, 8]), Ruling::Abort(Cause::Inherited(nr)));
            assert_eq!(ruling(nr, &[PRIVATE, 0x1000, 8]), Ruling::Abort(Cause::Inherited(nr)));
            assert!(is_made(ruling(nr, &[USABLE, 0x1000, 8])));
        }
        for (offset, whence) in [(10, 1), (0, 0), (0, 2), (0, 3), (0, 4)] {
            assert!(!is_made(ruling(k::__NR_lseek, &[3, offset, whence])), "{offset} {whence}");
        }
        assert!(is_made(ruling(k::__NR_lseek, &[3, 0, 1])), "only told");
        assert!(is_made(ruling(k::__NR_lseek, &[PRIVATE, 10, 1])));
        let set_flags = k::F_SETFL as usize;
        let later = Ruling::Emulate(Emulated::SetStatusFlags);
        assert_eq!(ruling(k::__NR_fcntl, &[3, set_flags, 0]), later);
        assert!(is_made(ruling(k::__NR_fcntl, &[PRIVATE, set_flags, 0])));
        assert!(!is_made(ruling(k::__NR_ioctl, &[3, io::FIONBIO as usize, 0])));
    }

    #[test]
    fn locks_and_owners_of_files_are_commands_that_abort() {
        for command in
            [k::F_SETLK, k::F_SETLKW, k::F_SETOWN, k::F_SETSIG, k::F_SETLEASE, k::F_NOTIFY, k::F_ADD_SEALS]
        {
            let ruling = ruling(k::__NR_fcntl, &[USABLE, command as usize, 0]);
            assert_eq!(ruling, Ruling::Abort(Cause::Command { call: k::__NR_fcntl, command }));
        }
        assert!(!is_made(ruling(k::__NR_ioctl, &[USABLE, io::TIOCSPGRP as usize, 0])));
        assert!(!is_made(ruling(k::__NR_prctl, &[p::PR_SET_DUMPABLE as usize, 0])));
    }

    #[test]
    fn shared_memory_is_never_made_nor_opened_for_writing() {
        let (shared, private) = (k::MAP_SHARED as usize, k::MAP_PRIVATE as usize);
        let anonymous = k::MAP_ANONYMOUS as usize;
        assert!(!is_made(ruling(k::__NR_mmap, &[0, 4096, 3, shared | anonymous, usize::MAX, 0])));
        assert!(is_made(ruling(k::__NR_mmap, &[0, 4096, 3, private | anonymous, usize::MAX, 0])));
        assert!(!is_made(ruling(k::__NR_mmap, &[0, 4096, 1, private, 3, 0])));
        assert!(is_made(ruling(k::__NR_mmap, &[0, 4096, 1, private, USABLE, 0])));
        let too_much = Ruling::Abort(Cause::Memory);
        assert_eq!(ruling(k::__NR_brk, &[0x30_0001 + ROOM]), too_much);
        assert!(is_made(ruling(k::__NR_brk, &[0x30_0000 + ROOM])));
        assert_eq!(ruling(k::__NR_mmap, &[0, ROOM + 1, 3, private | anonymous, usize::MAX, 0]), too_much);
        assert_eq!(ruling(k::__NR_mprotect, &[0x200_0000, ROOM + 1, 3]), too_much);
        assert!(is_made(ruling(k::__NR_mmap, &[0, ROOM + 1, 0, private | anonymous, usize::MAX, 0])));
        assert_eq!(ruling(k::__NR_mmap, &[0, ROOM + 1, 1, private, USABLE, 0]), too_much);
        assert_eq!(ruling(k::__NR_mmap, &[0, ROOM + 1, 0, private, USABLE, 0]), too_much);
        assert_eq!(ruling(k::__NR_write, &[USABLE, 0x1000, ROOM + 1]), too_much);
        assert_eq!(ruling(k::__NR_dup2, &[0, ROOM]), too_much);
        assert_eq!(ruling(k::__NR_fcntl, &[0, k::F_DUPFD as usize, ROOM]), too_much);
        assert!(is_made(ruling(k::__NR_dup2, &[0, 4095])));
        let (read, write) = (k::PROT_READ as usize, k::PROT_WRITE as usize);
        assert!(is_made(ruling(k::__NR_mprotect, &[0x1000, 4096, write])));
        assert!(is_made(ruling(k::__NR_mprotect, &[SHARED.start, 4096, read])));
        assert!(!is_made(ruling(k::__NR_mprotect, &[SHARED.start, 4096, write])));
        assert!(!is_made(ruling(k::__NR_mprotect, &[SHARED.start - 4096, 8192, write])));
        let down = k::PROT_GROWSDOWN as usize;
        assert!(!is_made(ruling(k::__NR_mprotect, &[0x1000, 4096, write | down])));
        assert!(is_made(ruling(k::__NR_mprotect, &[0x1000, 4096, k::PROT_READ as usize])));
    }

    #[test]
    fn mappings_that_the_child_lacks_are_not_changed() {
        let fixed = (k::MAP_PRIVATE | k::MAP_ANONYMOUS | k::MAP_FIXED) as usize;
        let within = [LACKS.start + 4096, 4096, 0, fixed, 0, 0];
        for nr in [k::__NR_munmap, k::__NR_mprotect, k::__NR_madvise, k::__NR_mincore, k::__NR_mmap] {
            assert_eq!(ruling(nr, &within), Ruling::Abort(Cause::Layout), "call {nr}");
        }
        assert_eq!(ruling(k::__NR_brk, &[LACKS.start]), Ruling::Abort(Cause::Layout));
        assert!(is_made(ruling(k::__NR_brk, &[0x28_0000])));
        assert!(is_made(ruling(k::__NR_brk, &[0])));
        // MADV_REMOVE (9) punches a hole into a file.
        assert!(!is_made(ruling(k::__NR_madvise, &[0x1000, 4096, 9])));
    }

    #[test]
    fn a_futex_is_woken_only_where_no_other_process_waits() {
        assert!(is_made(ruling(k::__NR_futex, &[0x1000, 0x81])));
        assert!(!is_made(ruling(k::__NR_futex, &[0x1000, 0x01])), "shared");
        assert!(!is_made(ruling(k::__NR_futex, &[0x1000, 0x80])), "FUTEX_WAIT");
    }

    #[test]
    fn what_a_call_touches_is_named_in_the_order_of_the_call() {
        let Make(call) = ruling(k::__NR_newfstatat, &[USABLE, 0x1000, 0x2000]) else { panic!() };
        assert_eq!(call.needs[0], Need::PathAt);
        assert_eq!(call.needs[1], Need::Bytes { arg: 2, len: 144 });
        assert_eq!(call.then, Then::Described { arg: 2 });
        // Both: the old limit is written over the new one otherwise.
        let Make(call) = ruling(k::__NR_prlimit64, &[0, 7, 0x1000, 0x2000]) else { panic!() };
        assert_eq!(call.needs[..2], [Need::Bytes { arg: 2, len: 16 }, Need::Bytes { arg: 3, len: 16 }]);
        let Make(call) = ruling(k::__NR_getresuid, &[0x1000, 0x2000, 0x3000]) else { panic!() };
        assert!(call.needs.iter().all(|need| matches!(need, Need::Bytes { len: 4, .. })));
    }

    /// Calls whose first argument is a descriptor.
    const OF_DESCRIPTORS: &[u32] = &[
        k::__NR_read,
        k::__NR_write,
        k::__NR_readv,
        k::__NR_writev,
        k::__NR_pread64,
        k::__NR_pwrite64,
        k::__NR_lseek,
        k::__NR_getdents64,
        k::__NR_fstat,
        k::__NR_fstatfs,
        k::__NR_fchdir,
        k::__NR_dup,
        k::__NR_dup2,
        k::__NR_dup3,
        k::__NR_fcntl,
        k::__NR_ioctl,
        k::__NR_connect,
    ];

    proptest! {
        #[test]
        fn no_call_is_made_on_the_hidden_descriptor(
            nr in prop::sample::select(OF_DESCRIPTORS), rest in any::<[usize; 5]>(), high in any::<u32>()
        ) {
            // The kernel looks at the lower half of the register only.
            let fd = HIDDEN | (high as usize) << 32;
            let args = [fd, rest[0], rest[1], rest[2], rest[3], rest[4]];
            let ruling = judge(nr, &args, &Test);
            prop_assert!(
                matches!(ruling, Ruling::Refuse(_) | Ruling::Abort(_)),
                "{ruling:?}"
            );
        }

        #[test]
        fn numbers_that_are_not_listed_abort(nr in 500u32.., args in any::<[usize; 6]>()) {
            prop_assert_eq!(judge(nr, &args, &Test), Ruling::Abort(Cause::Call(nr)));
        }

        /// No arguments make a call that changes the layout of absent memory.
        #[test]
        fn layout_calls_stay_clear_of_what_is_absent(
            nr in prop::sample::select(&[k::__NR_munmap, k::__NR_mprotect, k::__NR_madvise, k::__NR_mincore][..]),
            start in 0usize..0x40, pages in 1usize..0x40, third in any::<usize>()
        ) {
            let (at, len) = (start << 16, pages << 16);
            let made = is_made(judge(nr, &[at, len, third, 0, 0, 0], &Test));
            prop_assert!(!made || at + len <= LACKS.start || at >= LACKS.end);
        }
    }

    /// The numbers that may be made or emulated with arguments of 0, so that none is added by
    /// mistake.
    #[test]
    fn the_number_of_calls_that_may_be_made_is_as_reviewed() {
        let allowed: Vec<u32> =
            (0..500).filter(|nr| !matches!(ruling(*nr, &[0; 6]), Ruling::Abort(_))).collect();
        assert_eq!(allowed.len(), LISTED, "{allowed:?}");
    }

    const LISTED: usize = 113;
}
