//! The table: what every system call of a speculative child may do. A call is made when its effect is provably private to the child,
//! and only after the memory it touches is present; everything else aborts. Decided per call, and per command where a call is many.
#![expect(unsafe_code, reason = "the program's own system calls")]

use forkless_run::{AbortKind as Kind, AbortReason as Reason};
use forkless_sys::{Errno, process, sched};
use linux_raw_sys::{general as k, ioctl as io, prctl as p};

use crate::kernel::{self, Args};

use super::super::{memory, plan};
use super::{SIGKILL, abort, exec, fds, files, need, signals};

const EBADF: isize = -(Errno::EBADF.raw() as isize);
const EPIPE: isize = -(Errno::EPIPE.raw() as isize);
const EFBIG: isize = -(Errno::EFBIG.raw() as isize);

const STAT: usize = 144;
const STATX: usize = 256;
const STATFS: usize = 120;

/// Makes the call or gives up.
pub(crate) fn judge(nr: u32, a: &Args) -> isize {
    match nr {
        // Questions about oneself, and calls that change only what every process has of its own.
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
        | k::__NR_personality => pass(nr, a),
        k::__NR_setpgid if a[0] == 0 || a[0] as i32 == process::getpid() => pass(nr, a),

        k::__NR_execve => exec::execve(nr, a),
        k::__NR_execveat => exec::execveat(nr, a),

        k::__NR_rt_sigaction => signals::rt_sigaction(a),
        k::__NR_rt_sigprocmask => signals::rt_sigprocmask(a),
        k::__NR_sigaltstack => signals::sigaltstack(a),
        // Only the question whether a process exists.
        k::__NR_kill | k::__NR_tkill if a[1] == 0 => pass(nr, a),
        k::__NR_tgkill if a[2] == 0 => pass(nr, a),
        // There are no children to wait for: the kernel says ECHILD.
        k::__NR_wait4 => out(nr, a, a[1], 4),
        k::__NR_waitid => out(nr, a, a[2], 128),

        k::__NR_close => fds::close(a[0]),
        k::__NR_close_range => fds::close_range(a),
        k::__NR_dup => duplicate(nr, a, 0),
        k::__NR_dup2 | k::__NR_dup3 => dup_onto(nr, a),
        k::__NR_fcntl => fcntl(nr, a),
        k::__NR_ioctl => ioctl(nr, a),
        k::__NR_pipe | k::__NR_pipe2 => pair(nr, a, a[0]),
        k::__NR_socketpair => pair(nr, a, a[3]),
        k::__NR_eventfd | k::__NR_eventfd2 | k::__NR_epoll_create | k::__NR_epoll_create1 => {
            let answer = pass(nr, a);
            fds::opened(answer, 0, true);
            answer
        }

        k::__NR_open => files::open(fd_cwd(), a[0], a[1], a[2]),
        k::__NR_openat => files::open(a[0], a[1], a[2], a[3]),
        k::__NR_read | k::__NR_write | k::__NR_lseek | k::__NR_getdents64 if fds::is_hidden(a[0]) => EBADF,
        k::__NR_read | k::__NR_write | k::__NR_pread64 | k::__NR_pwrite64 => {
            need_usable(nr, a[0]);
            need::bytes(a[1], a[2]);
            transfer(nr, a)
        }
        k::__NR_readv | k::__NR_writev => {
            need_usable(nr, a[0]);
            need::iovec(a[1], a[2]);
            transfer(nr, a)
        }
        k::__NR_lseek if fds::is_private(a[0]) => pass(nr, a),
        k::__NR_getdents64 if fds::is_private(a[0]) => files::getdents64(a),

        k::__NR_stat | k::__NR_lstat => files::counted(nr, a[1], path_out(nr, a, a[0], a[1], STAT)),
        k::__NR_fstat => files::counted(nr, a[1], fd_out(nr, a, a[1], STAT)),
        // What libc makes of fstat.
        k::__NR_newfstatat if a[3] as u32 & k::AT_EMPTY_PATH != 0 && fds::is_hidden(a[0]) => EBADF,
        k::__NR_statx if a[2] as u32 & k::AT_EMPTY_PATH != 0 && fds::is_hidden(a[0]) => EBADF,
        k::__NR_newfstatat => files::counted(nr, a[2], path_at_out(nr, a, a[2], STAT)),
        k::__NR_statx => files::counted(nr, a[4], path_at_out(nr, a, a[4], STATX)),
        k::__NR_statfs => files::not_ours(fd_cwd(), a[0], path_out(nr, a, a[0], a[1], STATFS)),
        k::__NR_fstatfs => fd_out(nr, a, a[1], STATFS),
        k::__NR_access | k::__NR_chdir | k::__NR_chroot => files::not_ours(fd_cwd(), a[0], path(nr, a, a[0])),
        k::__NR_faccessat | k::__NR_faccessat2 => files::not_ours(a[0], a[1], path_at_out(nr, a, 0, 0)),
        k::__NR_readlink => path_out(nr, a, a[0], a[1], a[2]),
        k::__NR_readlinkat => path_at_out(nr, a, a[2], a[3]),
        k::__NR_getcwd => out(nr, a, a[0], a[1]),
        k::__NR_fchdir => fd_out(nr, a, 0, 0),

        k::__NR_setuid
        | k::__NR_setgid
        | k::__NR_setreuid
        | k::__NR_setregid
        | k::__NR_setresuid
        | k::__NR_setresgid
        | k::__NR_setfsuid
        | k::__NR_setfsgid => credentials(nr, a),
        k::__NR_setgroups => {
            need::bytes(a[1], a[0].min(65536) * 4);
            credentials(nr, a)
        }
        k::__NR_getgroups => out(nr, a, a[1], a[0].min(65536) * 4),
        k::__NR_getresuid | k::__NR_getresgid => {
            (0..3).for_each(|i| need::bytes(a[i], 4));
            pass(nr, a)
        }
        k::__NR_capget | k::__NR_capset => {
            need::bytes(a[0], 8);
            need::bytes(a[1], 24);
            credentials(nr, a)
        }
        k::__NR_prctl => prctl(nr, a),

        k::__NR_getrlimit | k::__NR_setrlimit => out(nr, a, a[1], 16),
        k::__NR_prlimit64 if a[0] == 0 || a[0] as i32 == process::getpid() => {
            need::bytes(a[2], 16);
            out(nr, a, a[3], 16)
        }
        k::__NR_getpriority => pass(nr, a),
        // PRIO_PROCESS, oneself.
        k::__NR_setpriority if a[0] == 0 && is_self(a[1]) => pass(nr, a),
        k::__NR_sched_getaffinity => out(nr, a, a[2], a[1].min(8192)),
        k::__NR_sched_setaffinity if is_self(a[0]) => out(nr, a, a[2], a[1].min(8192)),
        k::__NR_sched_getscheduler => pass(nr, a),
        k::__NR_sched_getparam => out(nr, a, a[1], 4),
        k::__NR_sched_setparam if is_self(a[0]) => out(nr, a, a[1], 4),
        k::__NR_sched_setscheduler if is_self(a[0]) => out(nr, a, a[2], 4),
        // IOPRIO_WHO_PROCESS, oneself.
        k::__NR_ioprio_get => pass(nr, a),
        k::__NR_ioprio_set if a[0] == 1 && is_self(a[1]) => pass(nr, a),

        k::__NR_clock_gettime | k::__NR_clock_getres => out(nr, a, a[1], 16),
        k::__NR_gettimeofday => {
            need::bytes(a[1], 8);
            out(nr, a, a[0], 16)
        }
        k::__NR_time => out(nr, a, a[0], 8),
        k::__NR_times => out(nr, a, a[0], 32),
        k::__NR_getrusage => out(nr, a, a[1], 144),
        k::__NR_uname => out(nr, a, a[0], 390),
        k::__NR_sysinfo => out(nr, a, a[0], 112),
        k::__NR_getrandom => out(nr, a, a[0], a[1]),
        k::__NR_getcpu => {
            need::bytes(a[1], 4);
            out(nr, a, a[0], 4)
        }
        k::__NR_setitimer | k::__NR_getitimer => {
            need::bytes(a[1], 32);
            out(nr, a, a[2], 32)
        }
        // FUTEX_WAKE and FUTEX_WAKE_BITSET, FUTEX_PRIVATE: nobody else waits there. Without that flag the kernel goes by the file, of a mapping
        // that may only be read, too (kernel/futex/core.c, get_futex_key).
        k::__NR_futex if matches!(a[1], 0x81 | 0x8a) => pass(nr, a),

        k::__NR_mmap => mmap(nr, a),
        k::__NR_brk => brk(nr, a),
        k::__NR_munmap => layout(nr, a),
        // Adding the right to write could open a shared mapping.
        k::__NR_mprotect if a[2] as u32 & k::PROT_WRITE == 0 => layout(nr, a),
        // Advice that drops or moves memory is a change of layout; MADV_REMOVE punches files.
        k::__NR_mincore => {
            need::bytes(a[2], a[1].div_ceil(4096));
            layout(nr, a)
        }
        k::__NR_madvise if matches!(a[2], 0..=4 | 8 | 10..=21) => layout(nr, a),

        _ => abort(Reason::new(Kind::Call, nr)),
    }
}

fn pass(nr: u32, a: &Args) -> isize {
    // SAFETY: the program's own call, judged private.
    unsafe { kernel::pass(nr, a) }
}

/// A call that reads or writes `len` bytes at `at`.
fn out(nr: u32, a: &Args, at: usize, len: usize) -> isize {
    if at != 0 {
        need::bytes(at, len);
    }
    pass(nr, a)
}

fn path(nr: u32, a: &Args, path: usize) -> isize {
    need::path(path);
    pass(nr, a)
}

fn path_out(nr: u32, a: &Args, path: usize, at: usize, len: usize) -> isize {
    need::path(path);
    out(nr, a, at, len)
}

/// The same for calls that begin with a directory and a path.
fn path_at_out(nr: u32, a: &Args, at: usize, len: usize) -> isize {
    need::path_at(a[0], a[1]);
    out(nr, a, at, len)
}

/// A question about a descriptor: allowed for inherited ones, denied for ours.
fn fd_out(nr: u32, a: &Args, at: usize, len: usize) -> isize {
    if fds::is_hidden(a[0]) { EBADF } else { out(nr, a, at, len) }
}

fn fd_cwd() -> usize {
    forkless_sys::fd::AT_FDCWD as usize
}

fn is_self(pid: usize) -> bool {
    pid as i32 == 0 || pid as i32 == process::getpid()
}

/// Input and output only on what the child opened itself and nobody else can see.
fn need_usable(nr: u32, fd: usize) {
    if !fds::is_usable(fd) {
        abort(Reason::new(Kind::Inherited, nr));
    }
}

/// Input or output. What fails may have raised a signal (SIGPIPE, SIGXFSZ), whose handler would have run before the call returned.
fn transfer(nr: u32, a: &Args) -> isize {
    let answer = pass(nr, a);
    if answer == EPIPE || answer == EFBIG {
        signals::abort_if_signalled();
    }
    answer
}

fn duplicate(nr: u32, a: &Args, lowest: usize) -> isize {
    if fds::is_hidden(a[0]) {
        return EBADF;
    }
    let answer = pass(nr, a);
    fds::duplicated(answer, a[0], lowest);
    answer
}

fn dup_onto(nr: u32, a: &Args) -> isize {
    if fds::is_hidden(a[0]) {
        return EBADF;
    }
    fds::vacate(a[1]);
    let answer = pass(nr, a);
    if answer >= 0 {
        fds::replaced(a[0] as u32 as usize, a[1] as u32 as usize);
    }
    answer
}

fn pair(nr: u32, a: &Args, at: usize) -> isize {
    need::bytes(at, 8);
    let answer = pass(nr, a);
    let (first, second) = if answer == 0 { memory::value::<(i32, i32)>(at) } else { (0, 0) };
    fds::opened_pair(answer, first, second);
    answer
}

fn fcntl(nr: u32, a: &Args) -> isize {
    if fds::is_hidden(a[0]) {
        return EBADF;
    }
    match a[1] as u32 {
        k::F_DUPFD | k::F_DUPFD_CLOEXEC => duplicate(nr, a, a[2]),
        k::F_GETFD | k::F_SETFD | k::F_GETFL | k::F_GETPIPE_SZ | k::F_GET_SEALS => pass(nr, a),
        // The open file description's, so the parent's too unless it is new.
        k::F_SETFL if fds::is_private(a[0]) => pass(nr, a),
        k::F_SETFL => abort(Reason::new(Kind::Inherited, nr)),
        other => abort(Reason::new(Kind::Command, other)),
    }
}

fn ioctl(nr: u32, a: &Args) -> isize {
    if fds::is_hidden(a[0]) {
        return EBADF;
    }
    match a[1] as u32 {
        io::FIOCLEX | io::FIONCLEX => pass(nr, a),
        io::TCGETS => out(nr, a, a[2], 64),
        io::TIOCGWINSZ => out(nr, a, a[2], 8),
        io::TIOCGPGRP | io::TIOCGSID | io::FIONREAD => out(nr, a, a[2], 4),
        io::FIONBIO if fds::is_private(a[0]) => out(nr, a, a[2], 4),
        other => abort(Reason::new(Kind::Command, other)),
    }
}

/// Changes of credentials clear PR_SET_PDEATHSIG (kernel/cred.c, commit_creds), which keeps us from outliving the parent. When the kernel
/// has cleared ours, the program's own is gone as well; a call that changed nothing clears neither.
fn credentials(nr: u32, a: &Args) -> isize {
    let answer = pass(nr, a);
    if answer >= 0 {
        let mut now = 0i32;
        let get = [p::PR_GET_PDEATHSIG as usize, (&raw mut now) as usize, 0, 0, 0, 0];
        if pass(k::__NR_prctl, &get) != 0 {
            abort(Kind::Setup);
        }
        if now == 0 {
            signals::clear_pdeathsig();
            if process::set_pdeathsig(SIGKILL).is_err() {
                abort(Kind::Setup);
            }
        }
    }
    answer
}

fn prctl(nr: u32, a: &Args) -> isize {
    match a[0] as u32 {
        p::PR_SET_PDEATHSIG => signals::set_pdeathsig(a[1]),
        p::PR_GET_PDEATHSIG => {
            need::bytes(a[1], 4);
            memory::store(a[1], signals::pdeathsig());
            0
        }
        p::PR_SET_NAME | p::PR_GET_NAME => out(nr, a, a[1], 16),
        p::PR_GET_CHILD_SUBREAPER => out(nr, a, a[1], 4),
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
        | p::PR_SET_NO_NEW_PRIVS => pass(nr, a),
        other => abort(Reason::new(Kind::Command, other)),
    }
}

fn mmap(nr: u32, a: &Args) -> isize {
    let [addr, len, _, flags, fd, _] = *a;
    let flags = flags as u32;
    // Shared memory needs no system call to be noticed; only memory of one's own is new memory.
    if flags & k::MAP_TYPE != k::MAP_PRIVATE {
        abort(Reason::new(Kind::Call, nr));
    }
    if flags & k::MAP_ANONYMOUS == 0 && !fds::is_usable(fd) {
        abort(Reason::new(Kind::Inherited, nr));
    }
    if flags & k::MAP_FIXED != 0 && plan::absent().overlaps(addr, len) {
        abort(Kind::Layout);
    }
    within_data_limit();
    pass(nr, a)
}

/// What is absent does not count as data, by which the limit goes that a plain child would meet.
fn within_data_limit() {
    const NONE: u64 = u64::MAX;
    if sched::getrlimit(k::RLIMIT_DATA).map_or(NONE, |limit| limit.soft) != NONE {
        abort(Kind::Layout);
    }
}

/// The heap may grow; shrinking it could give up memory that is absent.
fn brk(nr: u32, a: &Args) -> isize {
    let now = pass(nr, &[0; 6]);
    if a[0] != 0 && a[0] < now as usize && plan::absent().overlaps(a[0], now as usize - a[0]) {
        abort(Kind::Layout);
    }
    if a[0] == 0 {
        return now;
    }
    within_data_limit();
    pass(nr, a)
}

/// A change to a range of mappings: not where the child lacks them.
fn layout(nr: u32, a: &Args) -> isize {
    if plan::absent().overlaps(a[0], a[1]) {
        abort(Kind::Layout);
    }
    pass(nr, a)
}
