//! The seccomp filters that the program will start under: a container's, or those that systemd
//! makes of `SystemCallFilter=`. The library works under them, so they must not kill for its calls.
//! systemd's do by default for calls that they do not name.
//!
//! Nobody may read a filter without CAP_SYS_ADMIN. So a child tries the calls, with arguments that
//! the kernel refuses. A filter that decides by arguments may still kill for others.
#![expect(unsafe_code, reason = "a child that makes system calls")]

use std::ptr::null_mut;

use linux_raw_sys::general as k;

use super::environment::{children_stay, filters_in_force};
use crate::Filters;

/// A system call's name and number.
type Call = (&'static str, u32);

/// The name of a system call, from that of its number's constant.
pub(super) const fn of_constant(constant: &'static str) -> &'static str {
    constant.split_at("__NR_".len()).1
}

macro_rules! calls {
    ($list:ident = [$($constant:ident)*]; $(x86-64: $($old:ident)*;)?) => {
        const $list: &[Call] = &[
            $((of_constant(stringify!($constant)), k::$constant),)*
            $($(#[cfg(target_arch = "x86_64")] (of_constant(stringify!($old)), k::$old),)*)?
        ];
    };
}

// All that the library makes, except those that end a process. A test of `forkless run` compares
// these lists with the built file and with docs/guide/operate.md.
calls! { FORKS_AND_HUGE_PAGES = [
    __NR_clock_gettime __NR_clone __NR_close __NR_close_range __NR_fcntl __NR_fstat __NR_fstatfs
    __NR_futex __NR_getdents64 __NR_getpgid __NR_getpid __NR_getppid __NR_getresgid __NR_getresuid
    __NR_getrusage __NR_gettid __NR_ioctl __NR_kcmp __NR_kill __NR_madvise __NR_mincore __NR_mmap
    __NR_mprotect __NR_mremap __NR_munmap __NR_nanosleep __NR_newfstatat __NR_openat __NR_openat2
    __NR_ppoll __NR_prctl __NR_pread64 __NR_prlimit64 __NR_process_vm_readv __NR_read
    __NR_readlinkat __NR_rt_sigaction __NR_rt_sigpending __NR_rt_sigprocmask __NR_rt_sigqueueinfo
    __NR_rt_sigtimedwait __NR_sched_yield __NR_setpgid __NR_sigaltstack __NR_tgkill
    __NR_timer_create __NR_timer_gettime __NR_timer_settime __NR_unlinkat __NR_unshare __NR_wait4
    __NR_waitid __NR_write
]; x86-64: __NR_readlink __NR_stat; }

// And these where lines run without a shell.
calls! { LINES = [
    __NR_capget __NR_chdir __NR_clone3 __NR_dup3 __NR_execve __NR_faccessat __NR_getcwd __NR_lseek
    __NR_pipe2 __NR_setfsgid __NR_setfsuid __NR_statx
]; }

/// The name and number of every system call that the preloaded library makes of its own accord,
/// except those that end a process or a signal handler. A filter over a program should let them
/// pass, or refuse them with an error.
pub fn library_calls() -> impl Iterator<Item = (&'static str, u32)> {
    FORKS_AND_HUGE_PAGES.iter().chain(LINES).copied()
}

/// What the filters in force do to the library's calls.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// What the library is told.
    pub(super) known: Filters,
    /// The calls that a filter kills for.
    pub(super) kill_for: Killers,
    /// Whether filters are in force and could not be tried.
    pub(super) untried: bool,
}

/// Calls that a child does not survive.
#[derive(Debug, Default)]
pub(super) struct Killers {
    /// Up to [`MOST`] names.
    pub(super) names: Vec<&'static str>,
    /// Whether the trial ended before the last call: there may be others.
    pub(super) others: bool,
    /// Whether only lines need the calls.
    pub(super) only_lines: bool,
}

/// So many names tell an operator enough. Each costs a fork and a line in the kernel's log.
const MOST: usize = 8;

impl Tried {
    /// Finds out. Where there is no filter, nothing is tried.
    pub(super) fn look(lines: bool) -> Tried {
        let count = filters_in_force();
        let known = count.map_or(Filters::Uncounted, Filters::Counted);
        if count.unwrap_or(0) == 0 {
            return Tried { known, ..Tried::default() };
        }
        let of_lines = if lines { LINES } else { &[] };
        let calls: Vec<Call> = FORKS_AND_HUGE_PAGES.iter().chain(of_lines).copied().collect();
        // What cannot be tried may kill. In a new PID namespace the child of the trial would be the
        // init, and end it: every fork of the program would fail.
        let can_try = children_stay() == Some(true);
        let Some(kill_for) = can_try.then(|| killers(&calls)).flatten() else {
            return Tried { known: Filters::MayKill, untried: true, ..Tried::default() };
        };
        let are_trusted = kill_for.names.is_empty() || kill_for.only_lines;
        Tried { known: if are_trusted { known } else { Filters::MayKill }, kill_for, untried: false }
    }

    /// Whether lines can do without a shell.
    pub(super) fn allow_lines(&self) -> bool {
        !self.untried && self.kill_for.names.is_empty()
    }
}

/// Those of the calls that a child does not survive. `None`: it could not be found out.
fn killers(calls: &[Call]) -> Option<Killers> {
    let shared = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let page = unsafe { libc::mmap(null_mut(), size_of::<usize>(), shared, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    let found = find_killers(calls, page.cast());
    // SAFETY: this function's own mapping, which nothing uses any more.
    unsafe { libc::munmap(page, size_of::<usize>()) };
    found
}

/// `at` is shared with the children. No more than [`MOST`] of them are killed, and one ends.
fn find_killers(calls: &[Call], at: *mut usize) -> Option<Killers> {
    let prctl = calls.iter().position(|(_, nr)| *nr == k::__NR_prctl);
    let mut trial = Trial { calls, from: 0, prctl, at };
    let mut names = Vec::new();
    let (mut others, mut only_lines) = (false, true);
    while let Some(killed) = trial.next_killer()? {
        let (name, _) = calls.get(killed)?;
        if trial.prctl == Some(killed) {
            // It may have been the first call of all.
            trial.prctl = None;
        } else if killed >= trial.from {
            trial.from = killed + 1;
        } else {
            return None;
        }
        names.push(*name);
        only_lines &= killed >= FORKS_AND_HUGE_PAGES.len();
        if names.len() == MOST {
            others = trial.from < calls.len();
            break;
        }
    }
    Some(Killers { names, others, only_lines })
}

/// What the next child does.
struct Trial<'a> {
    calls: &'a [Call],
    /// The first call that it makes.
    from: usize,
    /// The index of `prctl`, unless a filter kills for it: then the child does without it.
    prctl: Option<usize>,
    /// In shared memory: the index of the call that the child is making.
    at: *mut usize,
}

impl Trial<'_> {
    /// Runs a child. Returns the index of the call that killed it, any number if the child is
    /// killed for no call of the list, and nothing if it made all calls. `None`: it ended in
    /// another way, or there is none.
    fn next_killer(&self) -> Option<Option<usize>> {
        // SAFETY: the page is mapped, and no child is alive.
        unsafe { self.at.write_volatile(usize::MAX) };
        // Not by libc: the program may block SIGCHLD, and would find one waiting. A child without
        // an exit signal ends without one.
        // SAFETY: the child has a copy of the memory, and calls only functions that are safe after
        // fork.
        let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as libc::pid_t;
        if child == 0 {
            // SAFETY: the page is mapped, and this is the child.
            unsafe { self.make_all() };
        }
        if child == -1 {
            return None;
        }
        let mut status = 0;
        // SAFETY: a child of this process's, and a status of its own.
        while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } == -1 {
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return None;
            }
        }
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            return Some(None);
        }
        let is_killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS;
        // SAFETY: the page is mapped, and the child that wrote it has ended.
        is_killed.then(|| Some(unsafe { self.at.read_volatile() }))
    }

    /// In a child: makes the calls.
    ///
    /// # Safety
    /// `at` points to shared memory. The caller is a child that nobody needs any more.
    unsafe fn make_all(&self) -> ! {
        // SAFETY: the caller's contract.
        let say = |index: usize| unsafe { self.at.write_volatile(index) };
        if let Some(prctl) = self.prctl {
            // Before the call, which may be the one that kills.
            say(prctl);
            // SAFETY: a killed child must leave no core file. `prctl` with these arguments touches
            // nothing else.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
        }
        for (index, &(_, nr)) in self.calls.iter().enumerate().skip(self.from) {
            if nr == k::__NR_prctl && self.prctl.is_none() {
                continue;
            }
            // -1 is no address, no descriptor, no process and no valid set of flags. As a process,
            // kill(2) would go through all processes.
            let process = if nr == k::__NR_kill { i64::from(i32::MAX) } else { -1 };
            say(index);
            // SAFETY: with these arguments no call does anything but to this child.
            unsafe { libc::syscall(nr.into(), process, -1i64, -1i64, -1i64, -1i64, -1i64) };
        }
        // A filter that kills for the end kills for no call of the list.
        say(usize::MAX);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a child of its own, under a filter that kills for some calls.
    fn under_a_filter(killing: &[u32], ends: impl Fn() -> bool) -> bool {
        let statement =
            |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
        for (index, nr) in killing.iter().enumerate() {
            let to_kill = (killing.len() - index) as u8;
            program.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *nr, to_kill, 0));
        }
        program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
        program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the child installs the filter, looks and ends. Other threads of the harness may
        // hold locks at the fork. `look` takes only those of malloc, which libc's `fork` holds
        // itself, so the child finds them free.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointer.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            let mode = libc::SECCOMP_MODE_FILTER;
            // SAFETY: the filter and its program are alive.
            let made = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) };
            let status = if made == 0 && ends() { 0 } else { 1 };
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: a status of its own.
        unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
    }

    #[test]
    fn a_filter_that_allows_all_is_trusted() {
        assert!(under_a_filter(&[], || {
            let seen = Tried::look(true);
            matches!(seen.known, Filters::Counted(1..)) && seen.allow_lines()
        }));
    }

    #[test]
    fn a_filter_that_kills_for_calls_of_forks_is_not_trusted_and_they_are_named() {
        assert!(under_a_filter(&[k::__NR_mincore, k::__NR_process_vm_readv], || {
            let seen = Tried::look(true);
            let kill_for = &seen.kill_for;
            seen.known == Filters::MayKill
                && kill_for.names == ["mincore", "process_vm_readv"]
                && !kill_for.others
                && !kill_for.only_lines
        }));
    }

    #[test]
    fn a_filter_that_kills_for_calls_of_lines_is_trusted_with_forks() {
        let killing = [k::__NR_setfsuid, k::__NR_setfsgid];
        assert!(under_a_filter(&killing, || {
            let seen = Tried::look(true);
            matches!(seen.known, Filters::Counted(1..))
                && !seen.allow_lines()
                && seen.kill_for.only_lines
                && seen.kill_for.names == ["setfsgid", "setfsuid"]
        }));
        assert!(under_a_filter(&killing, || Tried::look(false).allow_lines()));
    }

    /// Regression: the child called `prctl` before it said so. The trial named the first call of
    /// the list, began again behind it and never ended.
    #[test]
    fn a_filter_that_kills_for_prctl_is_found_out_once() {
        assert!(under_a_filter(&[k::__NR_prctl, k::__NR_mincore, k::__NR_clock_gettime], || {
            Tried::look(true).kill_for.names == ["prctl", "clock_gettime", "mincore"]
        }));
    }

    #[test]
    fn a_filter_that_kills_for_many_calls_is_tried_for_eight() {
        let killing: Vec<u32> =
            library_calls().filter(|(name, _)| name.contains("get")).map(|(_, nr)| nr).collect();
        assert!(killing.len() > MOST);
        assert!(under_a_filter(&killing, || {
            let kill_for = Tried::look(true).kill_for;
            kill_for.names.len() == MOST && kill_for.others && !kill_for.only_lines
        }));
    }
}
