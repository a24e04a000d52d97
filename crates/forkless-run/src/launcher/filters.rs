//! The seccomp filters that the program will start under: a container's, or those that systemd
//! makes of `SystemCallFilter=`. The library works under them, so they must not kill for its calls.
//! systemd's do by default for calls that they do not name.
//!
//! Nobody may read a filter without CAP_SYS_ADMIN. So a child tries the calls, with arguments that
//! the kernel refuses. A filter that decides by arguments may still kill for others.
#![expect(unsafe_code, reason = "a child that makes system calls")]

use std::ptr::null_mut;

use forkless_sys::signal::{SigSet, set_mask};
use linux_raw_sys::general as k;
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};

use super::environment::{children_stay, filters_in_force};
use super::{Warning, complaint};
use crate::Filters;

/// A system call's name and number.
type Call = (&'static str, u32);

/// The name of a system call, from that of its number's constant.
pub(super) const fn of_constant(constant: &'static str) -> &'static str {
    constant.split_at("__NR_".len()).1
}

macro_rules! calls {
    ($list:ident = [$($constant:ident)*]; $(x86-64: $($old:ident)*;)? $(others: $($new:ident)*;)?) => {
        const $list: &[Call] = &[
            $((of_constant(stringify!($constant)), k::$constant),)*
            $($(#[cfg(target_arch = "x86_64")] (of_constant(stringify!($old)), k::$old),)*)?
            $($(#[cfg(not(target_arch = "x86_64"))] (of_constant(stringify!($new)), k::$new),)*)?
        ];
    };
}

// These are tried first: a killed child must leave no core file.
calls! { PROTECTION = [__NR_prlimit64 __NR_prctl]; }

// Then those of a line on standard error, before so many have killed that the trial ends. The line
// that names the calls must not kill.
calls! { COMPLAINT = [
    __NR_rt_sigprocmask __NR_ppoll __NR_rt_sigpending __NR_write __NR_rt_sigtimedwait
]; }

// All that the library makes, except those that end a process. A test of `forkless run` compares
// these lists with the built file and with docs/guide/operate.md.
calls! { FORKS_AND_HUGE_PAGES = [
    __NR_clock_gettime __NR_clone __NR_close __NR_close_range __NR_exit __NR_fcntl __NR_fstat
    __NR_fstatfs __NR_futex __NR_getdents64 __NR_getpgid __NR_getpid __NR_getppid __NR_getresgid
    __NR_getresuid __NR_getrusage __NR_gettid __NR_ioctl __NR_kcmp __NR_kill __NR_madvise
    __NR_mincore __NR_mmap __NR_mprotect __NR_mremap __NR_munmap __NR_nanosleep __NR_newfstatat
    __NR_openat __NR_openat2 __NR_ppoll __NR_prctl __NR_pread64 __NR_prlimit64
    __NR_process_vm_readv __NR_read __NR_readlinkat __NR_rt_sigaction __NR_rt_sigpending
    __NR_rt_sigprocmask __NR_rt_sigqueueinfo __NR_rt_sigreturn __NR_rt_sigtimedwait
    __NR_sched_yield __NR_setpgid __NR_sigaltstack __NR_tgkill __NR_timer_create
    __NR_timer_gettime __NR_timer_settime __NR_unlinkat __NR_unshare __NR_wait4 __NR_waitid
    __NR_write
]; x86-64: __NR_readlink __NR_stat; }

// And these where lines run without a shell.
calls! { LINES = [
    __NR_capget __NR_chdir __NR_clone3 __NR_dup3 __NR_execve __NR_faccessat __NR_getcwd __NR_lseek
    __NR_pipe2 __NR_setfsgid __NR_setfsuid __NR_statx
]; }

// The command's own, when it asks the shell.
calls! { QUESTION = [__NR_pidfd_open]; }

// The command's and its collector's, for a report. A test of `forkless run` finds a missing one.
// `setsid` takes effect, in the trial's child alone.
calls! { REPORT = [
    __NR_chdir __NR_clone __NR_close __NR_close_range __NR_ftruncate __NR_getdents64 __NR_getpid
    __NR_lseek __NR_newfstatat __NR_openat __NR_pidfd_open __NR_ppoll __NR_read __NR_rt_sigaction
    __NR_rt_sigpending __NR_rt_sigprocmask __NR_rt_sigtimedwait __NR_setsid __NR_statx __NR_wait4
    __NR_write
]; x86-64: __NR_chmod __NR_mkdir __NR_rmdir __NR_unlink;
   others: __NR_fchmodat __NR_mkdirat __NR_unlinkat; }

fn has(list: &[Call], nr: u32) -> bool {
    list.iter().any(|(_, other)| *other == nr)
}

/// The name and number of every system call that the preloaded library makes of its own accord,
/// except those that end a process. A filter over a program should let them pass, or refuse them
/// with an error.
pub fn library_calls() -> impl Iterator<Item = (&'static str, u32)> {
    FORKS_AND_HUGE_PAGES.iter().chain(LINES).copied()
}

/// The name and number of every system call that the command tries before it makes a report.
pub fn report_calls() -> impl Iterator<Item = (&'static str, u32)> {
    REPORT.iter().copied()
}

/// What calls are made for, and so tried for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Purposes {
    /// Forks and huge pages.
    pub(super) preload: bool,
    /// Lines without a shell, where the library acts at all.
    pub(super) lines: bool,
    /// A report.
    pub(super) report: bool,
}

impl Purposes {
    /// In the order of the trial.
    fn all(self) -> Vec<Call> {
        let Purposes { preload, lines, report } = self;
        let lines = preload && lines;
        let lists = [
            (true, PROTECTION),
            (true, COMPLAINT),
            (preload, FORKS_AND_HUGE_PAGES),
            (lines, LINES),
            (lines, QUESTION),
            (report, REPORT),
        ];
        let mut all: Vec<Call> = Vec::new();
        for (_, list) in lists.into_iter().filter(|(is_wanted, _)| *is_wanted) {
            for call in list {
                if !has(&all, call.1) {
                    all.push(*call);
                }
            }
        }
        // A handler needs others of the calls, and the child ends by the last.
        all.sort_by_key(|(_, nr)| match *nr {
            k::__NR_rt_sigreturn => 1,
            k::__NR_exit => 2,
            _ => 0,
        });
        all
    }
}

/// What the filters in force do to the calls.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// What the library is told.
    pub(super) known: Filters,
    /// The library's calls that a filter kills for.
    pub(super) kill_for: Killers,
    /// Whether only lines need them.
    pub(super) only_lines: bool,
    /// The report's calls that a filter kills for.
    pub(super) kill_report_for: Killers,
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
}

impl Killers {
    pub(super) fn are_none(&self) -> bool {
        self.names.is_empty() && !self.others
    }
}

/// So many names tell an operator enough. Each costs a fork and a line in the kernel's log.
const MOST: usize = 8;

impl Tried {
    /// Finds out. Where there is no filter, nothing is tried.
    pub(super) fn look(purposes: Purposes) -> Tried {
        if !purposes.preload && !purposes.report {
            return Tried::default();
        }
        let count = filters_in_force();
        let known = count.map_or(Filters::Uncounted, Filters::Counted);
        if count.unwrap_or(0) == 0 {
            return Tried { known, ..Tried::default() };
        }
        // What cannot be tried may kill. In a new PID namespace the child of the trial would be the
        // init, and end it: every fork of the program would fail.
        let can_try = children_stay() == Some(true);
        let Some((killers, others)) = can_try.then(|| killers(&purposes.all())).flatten() else {
            return Tried { known: Filters::MayKill, untried: true, ..Tried::default() };
        };
        if killers.iter().any(|(_, nr)| has(COMPLAINT, *nr)) {
            complaint::silence();
        }
        let among = |lists: &[&[Call]]| -> Vec<&'static str> {
            // After a trial that ended early nobody knows which others are needed.
            let these = killers.iter().filter(|(_, nr)| others || lists.iter().any(|list| has(list, *nr)));
            these.map(|(name, _)| *name).collect()
        };
        let kill_for = if purposes.preload {
            Killers { names: among(&[FORKS_AND_HUGE_PAGES, LINES, QUESTION]), others }
        } else {
            Killers::default()
        };
        let only_lines = !others && among(&[FORKS_AND_HUGE_PAGES]).is_empty();
        let are_trusted = kill_for.are_none() || only_lines;
        let kill_report_for =
            if purposes.report { Killers { names: among(&[REPORT]), others } } else { Killers::default() };
        let known = if are_trusted { known } else { Filters::MayKill };
        Tried { known, kill_for, only_lines, kill_report_for, untried: false }
    }

    /// What a user is told.
    pub(super) fn warning(&self) -> Option<Warning> {
        if self.untried {
            return Some(Warning::FilterUntried);
        }
        let Killers { names: calls, others } = &self.kill_for;
        let (calls, others, only_lines) = (calls.clone(), *others, self.only_lines);
        (!self.kill_for.are_none()).then_some(Warning::FilterKills { calls, others, only_lines })
    }

    /// Whether lines can do without a shell.
    pub(super) fn allow_lines(&self) -> bool {
        !self.untried && self.kill_for.are_none()
    }
}

/// Those of the calls that a child does not survive, and whether there may be others. `None`: it
/// could not be found out.
fn killers(calls: &[Call]) -> Option<(Vec<Call>, bool)> {
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
fn find_killers(calls: &[Call], at: *mut usize) -> Option<(Vec<Call>, bool)> {
    let mut trial = Trial { calls, from: 0, killers: Vec::new(), at };
    while let Some(killed) = trial.next_killer()? {
        let call = *calls.get(killed)?;
        if trial.kills(call.1) {
            return None;
        }
        trial.killers.push(call);
        trial.from = trial.from.max(killed + 1);
        if trial.killers.len() == MOST {
            return Some((trial.killers, killed + 1 < calls.len()));
        }
    }
    Some((trial.killers, false))
}

/// What the next child does.
struct Trial<'a> {
    calls: &'a [Call],
    /// The first call that it makes, but for the trial's own.
    from: usize,
    /// The calls that have killed. The child does without them.
    killers: Vec<Call>,
    /// In shared memory: the index of the call that the child is making.
    at: *mut usize,
}

impl Trial<'_> {
    fn kills(&self, nr: u32) -> bool {
        has(&self.killers, nr)
    }

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
        for (index, &(_, nr)) in self.calls.iter().enumerate() {
            let was_made = index < self.from && !has(PROTECTION, nr);
            if was_made || self.kills(nr) {
                continue;
            }
            // Before the call, which may be the one that kills.
            say(index);
            match nr {
                k::__NR_prlimit64 => limit_core_files(),
                // SAFETY: touches nothing but the child.
                k::__NR_prctl => _ = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) },
                k::__NR_rt_sigreturn => self.return_from_a_handler(),
                // Not `exit_group`, which every program makes.
                k::__NR_exit => {
                    // SAFETY: ends the child, which has one thread.
                    unsafe { libc::syscall(libc::SYS_exit, 0) };
                    // A thread that is refused its end would go on.
                    // SAFETY: as above.
                    unsafe { libc::_exit(1) }
                }
                nr => {
                    // -1 is no address, no descriptor, no process and no valid set of flags. As a
                    // process, kill(2) would go through all processes.
                    let process = if nr == k::__NR_kill { i64::from(i32::MAX) } else { -1 };
                    // SAFETY: with these arguments no call does anything but to this child.
                    unsafe { libc::syscall(nr.into(), process, -1i64, -1i64, -1i64, -1i64, -1i64) };
                }
            }
        }
        // A filter that kills for the end kills for no call of the list.
        say(usize::MAX);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) }
    }

    /// In a child: runs a handler, by calls that were tried before.
    fn return_from_a_handler(&self) {
        const NEEDED: [u32; 4] = [k::__NR_rt_sigaction, k::__NR_rt_sigprocmask, k::__NR_getpid, k::__NR_kill];
        // Ignored, if a filter refuses the handler.
        const SIGNAL: i32 = libc::SIGURG;
        extern "C" fn handler(_: libc::c_int) {}
        if NEEDED.into_iter().any(|nr| self.kills(nr)) {
            return;
        }
        let action = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the child's own handler, which does nothing.
        unsafe { libc::signal(SIGNAL, action) };
        let _ = set_mask(SigSet::ALL.without(SIGNAL));
        let _ = kill_process(getpid(), Signal::URG);
    }
}

/// In a child: has it leave no core file. A limit of 1 also keeps one from a program that
/// core_pattern names (the kernel's fs/coredump.c); a process may not exceed its hard limit.
fn limit_core_files() {
    let maximum = getrlimit(Resource::Core).maximum;
    let current = Some(maximum.map_or(1, |most| most.min(1)));
    let _ = setrlimit(Resource::Core, Rlimit { current, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(lines: bool) -> Tried {
        Tried::look(Purposes { preload: true, lines, report: false })
    }

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
            let seen = look(true);
            matches!(seen.known, Filters::Counted(1..)) && seen.allow_lines()
        }));
    }

    #[test]
    fn a_filter_that_kills_for_calls_of_forks_is_not_trusted_and_they_are_named() {
        assert!(under_a_filter(&[k::__NR_mincore, k::__NR_process_vm_readv], || {
            let seen = look(true);
            let kill_for = &seen.kill_for;
            seen.known == Filters::MayKill
                && kill_for.names == ["mincore", "process_vm_readv"]
                && !kill_for.others
                && !seen.only_lines
        }));
    }

    #[test]
    fn a_filter_that_kills_for_calls_of_lines_is_trusted_with_forks() {
        let killing = [k::__NR_setfsuid, k::__NR_setfsgid];
        assert!(under_a_filter(&killing, || {
            let seen = look(true);
            matches!(seen.known, Filters::Counted(1..))
                && !seen.allow_lines()
                && seen.only_lines
                && seen.kill_for.names == ["setfsgid", "setfsuid"]
        }));
        assert!(under_a_filter(&killing, || look(false).allow_lines()));
    }

    /// Regression: the child called `prctl` before it said so. The trial named the first call of
    /// the list, began again behind it and never ended.
    #[test]
    fn a_filter_that_kills_for_prctl_is_found_out_once() {
        assert!(under_a_filter(&[k::__NR_prctl, k::__NR_mincore, k::__NR_clock_gettime], || {
            look(true).kill_for.names == ["prctl", "clock_gettime", "mincore"]
        }));
    }

    /// Regression: neither was tried. A program with a thread, and any other, was killed at a fork.
    #[test]
    fn a_filter_that_kills_for_the_end_of_a_thread_or_of_a_handler_is_found_out() {
        assert!(under_a_filter(&[k::__NR_exit, k::__NR_rt_sigreturn], || {
            let seen = look(false);
            seen.known == Filters::MayKill && seen.kill_for.names == ["rt_sigreturn", "exit"]
        }));
    }

    /// Regression: a child that was killed for `prctl`, by which it was to leave no core file, left
    /// one.
    #[test]
    fn a_trial_leaves_no_core_file() {
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        let folder = std::env::temp_dir().join(format!("forkless-cores-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let leaves_none = under_a_filter(&[k::__NR_prctl, k::__NR_mincore], || {
            let maximum = getrlimit(Resource::Core).maximum;
            setrlimit(Resource::Core, Rlimit { current: maximum, maximum }).unwrap();
            std::env::set_current_dir(&folder).unwrap();
            look(true).kill_for.names == ["prctl", "mincore"]
        });
        let left = std::fs::read_dir(&folder).map(Iterator::count);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(leaves_none);
        if getrlimit(Resource::Core).maximum == Some(0) {
            println!("skipped: no process may leave a core file here (RLIMIT_CORE)");
            return;
        }
        if pattern.starts_with(['|', '/']) {
            println!("skipped: core files are made elsewhere ({})", pattern.trim());
            return;
        }
        assert_eq!(left.unwrap(), 0, "core files");
    }

    /// What only a report needs changes nothing for the program, and the other way round.
    #[test]
    fn a_report_is_refused_for_its_own_calls_alone() {
        let all = Purposes { preload: true, lines: true, report: true };
        assert!(under_a_filter(&[k::__NR_setsid], || {
            let seen = Tried::look(all);
            matches!(seen.known, Filters::Counted(1..))
                && seen.allow_lines()
                && seen.kill_report_for.names == ["setsid"]
        }));
        assert!(under_a_filter(&[k::__NR_mincore], || {
            let seen = Tried::look(all);
            seen.known == Filters::MayKill && seen.kill_report_for.are_none()
        }));
        // With the library switched off.
        assert!(under_a_filter(&[k::__NR_mincore, k::__NR_setsid], || {
            let seen = Tried::look(Purposes { preload: false, ..all });
            seen.kill_for.are_none() && seen.kill_report_for.names == ["setsid"]
        }));
    }

    #[test]
    fn a_filter_that_kills_for_many_calls_is_tried_for_eight() {
        let killing: Vec<u32> =
            library_calls().filter(|(name, _)| name.contains("get")).map(|(_, nr)| nr).collect();
        assert!(killing.len() > MOST);
        assert!(under_a_filter(&killing, || {
            let seen = look(true);
            seen.kill_for.names.len() == MOST && seen.kill_for.others && !seen.only_lines
        }));
    }
}
