//! The actions a child can take, one system call or a few each. The parent chooses their order.

use crate::Report;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use forkless_sys::sched::{self, Rlimit};
use forkless_sys::signal::{self, Disposition, MAX_SIGNAL, SigSet};
use forkless_sys::{CPtr, Errno, Result, fd, ids, poll, process};

/// A descriptor of the parent that the child gets into its own table, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentDescriptor {
    /// Number in the parent.
    pub from: i32,
    /// Number in the child: free, and above every number the other actions use.
    pub to: i32,
}

/// The caller's own function, for all that no action offers.
#[derive(Clone, Copy)]
pub struct Hook {
    /// Returns 0, or a positive errno.
    pub call: unsafe extern "C" fn(*mut c_void) -> i32,
    /// Its argument; valid until the child has left.
    pub data: *mut c_void,
}

/// The caller's own function, in place of a program.
#[derive(Clone, Copy)]
pub struct Function {
    /// Returns the child's exit status.
    pub call: unsafe extern "C" fn(*mut c_void) -> i32,
    /// Its argument; valid until the child has left.
    pub data: *mut c_void,
    /// The signal mask it runs with.
    pub mask: SigSet,
}

/// One thing to do before exec.
#[derive(Clone, Copy)]
pub enum Action<'p> {
    /// Takes a private copy of the shared descriptor table below `first`, without the rest. Every
    /// other action on descriptors comes later: before, it would change the parent's table.
    Unshare {
        /// The lowest number that is not copied.
        first: u32,
    },
    /// Copies descriptors from the table of the thread that made the child, which must not have
    /// closed them yet.
    GetFromParent {
        /// The parent's process id.
        parent: i32,
        /// The thread's id.
        thread: i32,
        /// The descriptors.
        fds: &'p [ParentDescriptor],
    },
    /// Tells a waiting parent that the table is the child's own.
    Staged,
    /// dup2 of different numbers.
    Dup {
        /// Source.
        from: i32,
        /// Target; a descriptor of this number is closed.
        to: i32,
    },
    /// Clears close-on-exec of a descriptor that keeps its number: dup2 onto itself would leave the
    /// flag set.
    Keep {
        /// The descriptor.
        fd: i32,
    },
    /// Copies a source out of the way, to break a cycle.
    Save {
        /// Source.
        from: i32,
        /// Lowest number to use.
        min: i32,
    },
    /// Puts the source saved last in its place.
    Restore {
        /// Target.
        to: i32,
    },
    /// Copies a descriptor to `min` or above until the exec, if it is open. A shell copies a
    /// descriptor before it redirects it, and fails where no number is left.
    CopyUntilExec {
        /// Source.
        from: i32,
        /// Lowest number to use.
        min: i32,
    },
    /// Closes these numbers, open or not.
    Close {
        /// The numbers.
        fds: &'p [i32],
    },
    /// Closes `first..=last`, one by one where `close_range` is refused.
    CloseRange {
        /// Lowest number.
        first: u32,
        /// Highest number.
        last: u32,
        /// Whether `close_range(2)` may be used.
        by_range: bool,
        /// One more than the highest number that may be open, for the loop.
        limit: u32,
    },
    /// Marks `first..=last` close-on-exec, one by one where `close_range` is refused. It stands for
    /// `CloseRange` in a process that execs in place, which must still have its descriptors if the
    /// exec fails.
    CloexecRange {
        /// Lowest number.
        first: u32,
        /// Highest number.
        last: u32,
        /// Whether `close_range(2)` with `CLOSE_RANGE_CLOEXEC` may be used.
        by_range: bool,
        /// One more than the highest number that may be open, for the loop.
        limit: u32,
    },
    /// Opens a file at a number; `open(2)` then a move.
    Open {
        /// The path.
        path: CPtr<'p>,
        /// `O_*`.
        flags: u32,
        /// Permissions for `O_CREAT`, before the umask.
        mode: u32,
        /// Where it goes.
        to: i32,
    },
    /// Opens a file at a number as `Open` does, with permissions 0666, but fails rather than wait
    /// for another process (a lease, which may be the caller's own).
    OpenWithoutWaiting {
        /// The path of a regular file or of the null device.
        path: CPtr<'p>,
        /// `O_*`.
        flags: u32,
        /// Where it goes.
        to: i32,
    },
    /// Handlers to default where `CLONE_CLEAR_SIGHAND` was refused. Ignored signals stay ignored,
    /// as exec has it.
    ResetHandlers,
    /// Dispositions the program is to start with.
    Dispositions {
        /// To the default action.
        default: SigSet,
        /// To be ignored.
        ignore: SigSet,
    },
    /// A new session.
    Setsid,
    /// A process group: 0 for one of its own.
    Setpgid {
        /// The group.
        pgid: i32,
    },
    /// Makes a terminal the controlling one of the new session.
    ControllingTerminal {
        /// Number in the child.
        fd: i32,
    },
    /// Makes the child's group the terminal's foreground group. SIGTTOU, which this would raise, is
    /// blocked like all signals.
    Foreground {
        /// Number in the child.
        fd: i32,
    },
    /// Joins a cgroup where `CLONE_INTO_CGROUP` was refused. Comes before anything that lowers
    /// privilege.
    JoinCgroup {
        /// Path of its `cgroup.procs`.
        procs: CPtr<'p>,
    },
    /// The root directory, before credentials (needs CAP_SYS_CHROOT); the working directory becomes
    /// its `/`.
    Chroot {
        /// The path.
        path: CPtr<'p>,
    },
    /// The working directory, after credentials, so that it is checked with the program's own.
    Chdir {
        /// The path.
        path: CPtr<'p>,
    },
    /// Likewise, by descriptor.
    Fchdir {
        /// Number in the child.
        fd: i32,
    },
    /// The file mode creation mask.
    Umask {
        /// The mask.
        mask: u32,
    },
    /// One resource limit, before credentials (raising a hard one needs CAP_SYS_RESOURCE).
    Rlimit {
        /// `RLIMIT_*`.
        resource: u32,
        /// The limit.
        limit: Rlimit,
    },
    /// The nice value.
    Nice {
        /// -20 to 19.
        value: i32,
    },
    /// The scheduling policy.
    Scheduler {
        /// `SCHED_*`.
        policy: i32,
        /// 0 where the policy has none.
        priority: i32,
    },
    /// The CPUs it may run on.
    Affinity {
        /// One bit a CPU.
        mask: &'p [u64],
    },
    /// Supplementary groups; before the group and user, which give up the right to.
    Groups {
        /// The list; replaces all.
        groups: &'p [u32],
    },
    /// No supplementary groups, for a caller that may set them: the kernel says so (setgroups(2),
    /// `CAP_SETGID`). The real user does not tell: a set-user-ID program has its caller's, and
    /// would hand root's groups on. Comes before the user, which gives up the right to.
    DropGroups,
    /// The group, as setgid(2): all three ids for root, the effective one for others.
    Gid {
        /// The group.
        gid: u32,
    },
    /// The user, as setuid(2).
    Uid {
        /// The user.
        uid: u32,
    },
    /// The group, as setregid(2) with the group twice: the saved id follows.
    Regid {
        /// The group.
        gid: u32,
    },
    /// The user, as setreuid(2) with the user twice: the saved id follows.
    Reuid {
        /// The user.
        uid: u32,
    },
    /// A signal for the parent's death; after credentials, whose change clears it.
    DeathSignal {
        /// The signal.
        signal: i32,
        /// The process whose death counts. If it is gone already the signal is raised at once.
        parent: i32,
    },
    /// No gain of privilege by exec from here on.
    NoNewPrivs,
    /// The caller's own function, before the program.
    Hook(Hook),
    /// The caller's own function, in place of the program: the child ends when it returns.
    Run(Function),
}

impl Action<'_> {
    #[inline]
    pub(crate) fn take(&self, report: &Report, saved: &mut i32) -> Result<()> {
        match *self {
            Action::Unshare { first } => fd::close_range(first, u32::MAX, fd::CLOSE_RANGE_UNSHARE),
            Action::GetFromParent { parent, thread, fds } => get_from_parent(parent, thread, fds),
            Action::Staged => {
                report.staged.store(1, Ordering::Release);
                poll::futex_wake(&report.staged, 1).map(drop)
            }
            Action::Dup { from, to } => fd::dup3(from, to, 0),
            Action::Keep { fd } => fd::set_cloexec(fd, false),
            Action::Save { from, min } => {
                *saved = fd::dup_cloexec(from, min)?;
                Ok(())
            }
            Action::Restore { to } => {
                fd::dup3(*saved, to, 0)?;
                fd::close(*saved)
            }
            Action::CopyUntilExec { from, min } => match fd::dup_cloexec(from, min) {
                Err(Errno::EBADF) => Ok(()),
                copied => copied.map(drop),
            },
            Action::Close { fds } => {
                for &fd in fds {
                    let _ = fd::close(fd);
                }
                Ok(())
            }
            Action::CloseRange { first, last, by_range, limit } => {
                each_in_range(first, last, by_range, limit, 0, report)
            }
            Action::CloexecRange { first, last, by_range, limit } => {
                each_in_range(first, last, by_range, limit, fd::CLOSE_RANGE_CLOEXEC, report)
            }
            Action::Open { path, flags, mode, to } => {
                let at = fd::openat(fd::AT_FDCWD, path, flags, mode)?;
                place(at, to)
            }
            Action::OpenWithoutWaiting { path, flags, to } => {
                let at = fd::openat(fd::AT_FDCWD, path, flags | fd::O_NONBLOCK, 0o666)?;
                fd::set_status_flags(at, flags)?;
                place(at, to)
            }
            Action::ResetHandlers => reset_handlers(),
            Action::Dispositions { default, ignore } => dispositions(default, ignore),
            Action::Setsid => process::setsid().map(drop),
            Action::Setpgid { pgid } => process::setpgid(pgid),
            Action::ControllingTerminal { fd } => fd::set_controlling_terminal(fd, false),
            Action::Foreground { fd } => fd::set_foreground_group(fd, process::getpgrp()),
            Action::JoinCgroup { procs } => {
                let at = fd::openat(fd::AT_FDCWD, procs, fd::O_WRONLY | fd::O_CLOEXEC, 0)?;
                // "0" means the writer (cgroup_procs_write, kernel/cgroup/cgroup.c).
                let joined = fd::write(at, b"0").map(drop);
                fd::close(at)?;
                joined
            }
            Action::Chroot { path } => {
                process::chroot(path)?;
                // Without it the working directory stays outside, a way out of the new root.
                process::chdir(c"/".into())
            }
            Action::Chdir { path } => process::chdir(path),
            Action::Fchdir { fd } => process::fchdir(fd),
            Action::Umask { mask } => {
                process::umask(mask);
                Ok(())
            }
            Action::Rlimit { resource, limit } => sched::setrlimit(resource, limit),
            Action::Nice { value } => sched::set_nice(value),
            Action::Scheduler { policy, priority } => sched::set_scheduler(policy, priority),
            Action::Affinity { mask } => sched::set_affinity(mask),
            Action::Groups { groups } => ids::setgroups(groups),
            Action::DropGroups => match ids::setgroups(&[]) {
                Err(Errno::EPERM) => Ok(()),
                done => done,
            },
            Action::Gid { gid } => ids::setgid(gid),
            Action::Uid { uid } => ids::setuid(uid),
            Action::Regid { gid } => ids::setregid(gid, gid),
            Action::Reuid { uid } => ids::setreuid(uid, uid),
            Action::DeathSignal { signal, parent } => {
                process::set_pdeathsig(signal)?;
                // The parent may have died before the call above; 0 means it is outside this pid
                // namespace, where that cannot be told. Pending until the mask is lifted, so it
                // kills just before exec. Nor can it be told where a filter has kept the parent
                // from its own number.
                match process::getppid() {
                    0 => Ok(()),
                    now if now == parent || parent == 0 => Ok(()),
                    _ => process::kill_self(signal),
                }
            }
            Action::NoNewPrivs => process::set_no_new_privs(),
            Action::Hook(hook) => {
                // SAFETY: the caller of `pre_exec` vouched for the function.
                match unsafe { (hook.call)(hook.data) } {
                    0 => Ok(()),
                    e => Err(Errno::from_raw(e)),
                }
            }
            Action::Run(function) => {
                signal::set_mask(function.mask)?;
                // SAFETY: whoever laid out the launch vouched for the function.
                process::exit_group(unsafe { (function.call)(function.data) })
            }
        }
    }
}

/// Gives a descriptor the number the program is to find it at.
fn place(at: i32, to: i32) -> Result<()> {
    if at == to {
        return fd::set_cloexec(at, false);
    }
    fd::dup3(at, to, 0)?;
    fd::close(at)
}

const RLIMIT_NOFILE: u32 = 7;

/// Gets descriptors of the parent by `pidfd_getfd`. It needs the right to attach to the parent
/// (`PTRACE_MODE_ATTACH_REALCREDS`), so it comes before credentials change.
fn get_from_parent(parent: i32, thread: i32, fds: &[ParentDescriptor]) -> Result<()> {
    // 0 for a parent outside this PID namespace (unshare(2), setns(2)): here its number is another
    // process's, or free.
    if process::getppid() == 0 {
        return Err(Errno::ESRCH);
    }
    // A process's pidfd leads to the table of its first thread (`pidfd_getfd`, kernel/pid.c). The
    // calling thread may have another.
    let (of, exact) = if thread == parent {
        (process::pidfd_open(parent)?, true)
    } else {
        match process::pidfd_open_thread(thread) {
            Ok(of) => (of, true),
            Err(Errno::EINVAL) => (process::pidfd_open(parent)?, false),
            Err(e) => return Err(e),
        }
    };
    for f in fds {
        let at = fd::pidfd_getfd(of, f.from)?;
        fd::dup3(at, f.to, fd::O_CLOEXEC)?;
        fd::close(at)?;
    }
    // Checked afterwards: the first thread may leave the common table at any time, and never comes
    // back to it.
    if !exact && !process::share_descriptors(parent, thread)? {
        return Err(Errno::ESRCH);
    }
    fd::close(of)
}

fn each_in_range(
    first: u32,
    last: u32,
    by_range: bool,
    mut limit: u32,
    flags: u32,
    report: &Report,
) -> Result<()> {
    if first > last {
        return Ok(());
    }
    if by_range {
        match fd::close_range(first, last, flags) {
            // A filter installed since the parent tried it. The parent may not be waiting, so the
            // child closes one by one.
            Err(e @ (Errno::ENOSYS | Errno::EPERM | Errno::EACCES | Errno::EINVAL)) => {
                report.refused.store(e.raw(), Ordering::Relaxed);
                limit = sched::getrlimit(RLIMIT_NOFILE).map_or(1 << 20, |l| l.hard.min(1 << 20) as u32);
            }
            done => return done,
        }
    }
    // EBADF is the usual answer; close(2) has closed the descriptor also when it says EINTR or EIO.
    let one = |n: u32| {
        let _ = if flags == 0 { fd::close(n as i32) } else { fd::set_cloexec(n as i32, true) };
    };
    let wanted = |n: u32| (first..=last).contains(&n);
    // The list is exact, since the table is this child's own. Where a call costs microseconds
    // (gVisor, a supervisor of seccomp), tens of thousands of calls for numbers that are not open
    // took a second.
    if limit - first.min(limit) > FEW
        && each_open(|n| {
            if wanted(n) {
                one(n)
            }
        })
        .is_ok()
    {
        return Ok(());
    }
    let mut n = first;
    while n <= last && n < limit {
        one(n);
        n += 1;
    }
    Ok(())
}

/// For up to so many numbers the directory is not worth opening.
const FEW: u32 = 64;

/// Calls `act` for every open descriptor of this thread, whose table need not be the first
/// thread's. An error, as where /proc is not mounted or no descriptor is left, may come after some
/// calls.
fn each_open(mut act: impl FnMut(u32)) -> Result<()> {
    let flags = fd::O_RDONLY | fd::O_DIRECTORY | fd::O_CLOEXEC;
    let list = fd::openat(fd::AT_FDCWD, c"/proc/thread-self/fd".into(), flags, 0)?;
    // Not zeroed: that would call memset, which the child side must not.
    let mut entries = [const { MaybeUninit::uninit() }; 1024];
    let done = loop {
        match fd::getdents64(list, &mut entries) {
            Ok([]) => break Ok(()),
            // The kernel finds its place again by number (`proc_readfd_common`, fs/proc/fd.c), so
            // closing meanwhile loses none.
            Ok(some) => numbers(some, |n| {
                if n as i32 != list {
                    act(n)
                }
            }),
            Err(e) => break Err(e),
        }
    };
    fd::close(list)?;
    done
}

/// The names that are numbers, among the entries `getdents64` gave.
fn numbers(mut entries: &[u8], mut each: impl FnMut(u32)) {
    const NAME: usize = 19;
    while let Some(&[low, high]) = entries.get(16..18) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let (Some(name), Some(rest)) = (entries.get(NAME..length), entries.get(length..)) else { return };
        let mut number = Some(0u32);
        for &c in name {
            if c == 0 {
                break;
            }
            number = match c {
                b'0'..=b'9' => number.map(|n| n.wrapping_mul(10).wrapping_add(u32::from(c - b'0'))),
                _ => None,
            };
        }
        if let Some(number) = number {
            each(number);
        }
        entries = rest;
    }
}

pub(crate) fn reset_handlers() -> Result<()> {
    let mut n = 1;
    while n <= MAX_SIGNAL {
        if let Ok(Disposition::Handler(_)) = signal::disposition(n) {
            signal::reset(n, false)?;
        }
        n += 1;
    }
    Ok(())
}

fn dispositions(default: SigSet, ignore: SigSet) -> Result<()> {
    let mut n = 1;
    while n <= MAX_SIGNAL {
        if default.has(n) {
            signal::reset(n, false)?;
        }
        if ignore.has(n) {
            signal::reset(n, true)?;
        }
        n += 1;
    }
    Ok(())
}
