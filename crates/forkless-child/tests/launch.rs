//! Children of `start_suspended`, made by its inner part, `start_remembering`: what they do, what
//! they report, and which clone made them.
#![expect(unsafe_code, reason = "starts children that share this process's memory")]

use forkless_child::{
    Action, Candidate, Exec, Failure, Function, Hook, Launch, ParentDescriptor, Phase, Report, Stack,
    start_remembering,
};
use forkless_sys::signal::{self, Disposition, SigSet};
use forkless_sys::{CPtr, Errno, fd, mm, process};
use std::ffi::{CStr, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGCHLD: u32 = 17;
/// SIGUSR1 of /proc/self/status.
const USR1_BIT: u64 = 1 << 9;

/// A launch of `sh -c LINE`, to be changed.
struct Start<'a> {
    files: &'a [Action<'a>],
    actions: &'a [Action<'a>],
    candidates: Vec<&'a CStr>,
    line: &'a CStr,
    mask: SigSet,
    exit_signal: u32,
    by_clone3: bool,
}

impl Start<'_> {
    fn of(line: &CStr) -> Start<'_> {
        Start {
            files: &[],
            actions: &[],
            candidates: vec![c"/bin/sh"],
            line,
            mask: SigSet::EMPTY,
            exit_signal: SIGCHLD,
            by_clone3: true,
        }
    }

    /// The child's wait status, its report, and whether `clone3` made it.
    fn run(&self) -> (i32, Report, bool) {
        const STACK: usize = 64 << 10;
        let candidates: Vec<_> = self
            .candidates
            .iter()
            .map(|path| Candidate { path: CPtr::from(*path), script_argv: null() })
            .collect();
        let argv = [c"sh".as_ptr(), c"-c".as_ptr(), self.line.as_ptr(), null()];
        let envp = [null()];
        let exec = Exec {
            candidates: &candidates,
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            mask: self.mask,
            no_core_dump: false,
            wait_for_writers: false,
            past_any_error: false,
        };
        let report = Report::new();
        let launch = Launch { files: self.files, actions: self.actions, exec, hint: 0, report: &report };
        let stack = mm::map_anonymous(STACK, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE).unwrap();
        let refused = AtomicBool::new(!self.by_clone3);
        let before = signal::set_mask(SigSet::ALL).unwrap();
        // SAFETY: all signals are blocked, the stack is fresh, and everything else lives until the
        // call returns.
        let pid = unsafe {
            start_remembering(&launch, Stack { lowest: stack, size: STACK }, self.exit_signal, &refused)
        };
        signal::set_mask(before).unwrap();
        let pid = pid.unwrap();
        if self.exit_signal == 0 {
            assert_eq!(process::wait4(pid, 0), Err(Errno::ECHILD));
        }
        let status = process::wait4(pid, process::WALL).unwrap();
        // SAFETY: the child is gone.
        unsafe { mm::munmap(stack, STACK) }.unwrap();
        (status, report, !refused.load(Ordering::Relaxed))
    }

    fn exit_code(&self) -> i32 {
        let (status, report, _) = self.run();
        assert_eq!((report.failure(), status & 0x7f), (None, 0));
        status >> 8
    }

    fn failure(&self) -> Failure {
        let (status, report, _) = self.run();
        assert_eq!(status, 127 << 8);
        report.failure().unwrap()
    }
}

fn failure(phase: Phase, index: usize, errno: Errno) -> Failure {
    Failure { phase, index, errno }
}

#[test]
fn a_child_becomes_the_program() {
    assert_eq!(Start::of(c"exit 3").exit_code(), 3);
}

#[test]
fn a_failure_names_its_part_and_entry() {
    let keep = [Action::Keep { fd: 1 }, Action::Keep { fd: -1 }];
    let start = Start { files: &keep, ..Start::of(c"") };
    assert_eq!(start.failure(), failure(Phase::Files, 1, Errno::EBADF));
    let chdir = [Action::Chdir { path: c"/".into() }, Action::Chdir { path: c"/dev/null".into() }];
    let start = Start { actions: &chdir, ..Start::of(c"") };
    assert_eq!(start.failure(), failure(Phase::Actions, 1, Errno::ENOTDIR));
    let start = Start { candidates: Vec::new(), ..Start::of(c"") };
    assert_eq!(start.failure(), failure(Phase::Exec, 0, Errno::ENOENT));
}

#[test]
fn the_search_goes_on_after_a_file_that_may_not_be_executed_but_reports_it() {
    let start = Start { candidates: vec![c"/nonexistent", c"/dev/null", c"/nonexistent"], ..Start::of(c"") };
    assert_eq!(start.failure(), failure(Phase::Exec, 1, Errno::EACCES));
    let start = Start { candidates: vec![c"/nonexistent", c"/dev/null", c"/bin/sh"], ..Start::of(c"exit 4") };
    let (status, report, _) = start.run();
    assert_eq!((status, report.tried()), (4 << 8, 2));
}

#[test]
fn a_report_is_forgotten_or_taken_over_whole() {
    let (_, report, _) = Start { candidates: Vec::new(), ..Start::of(c"") }.run();
    let other = Report::new();
    other.copy_from(&report);
    assert_eq!(other.failure(), Some(failure(Phase::Exec, 0, Errno::ENOENT)));
    assert_eq!(other.staged.load(Ordering::Acquire), 1);
    other.reset();
    assert_eq!((other.failure(), other.tried(), other.refused()), (None, 0, None));
    assert_eq!(other.staged.load(Ordering::Acquire), 0);
}

/// `clone(2)` cannot reset handlers, so the child does.
#[test]
fn the_programs_handlers_are_gone_however_the_child_is_made() {
    extern "C" fn handler(_: i32) {}
    unsafe extern "C" fn look(_: *mut c_void) -> i32 {
        i32::from(signal::disposition(SIGUSR2) == Ok(Disposition::Default))
    }
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(SIGUSR2, handler as *const () as libc::sighandler_t) };
    for by_clone3 in [true, false] {
        let run = [Action::Run(Function { call: look, data: std::ptr::null_mut(), mask: SigSet::ALL })];
        let (status, report, made_by_clone3) = Start { actions: &run, by_clone3, ..Start::of(c"") }.run();
        assert_eq!((status, report.failure()), (1 << 8, None));
        // A container's filter may refuse clone3.
        assert!(made_by_clone3 == by_clone3 || forkless_sys::clone::clone3_allowed().is_err());
    }
    assert!(matches!(signal::disposition(SIGUSR2), Ok(Disposition::Handler(_))));
}

#[test]
fn only_a_wait_with_wall_finds_a_child_without_an_exit_signal() {
    let (status, _, _) = Start { exit_signal: 0, candidates: Vec::new(), ..Start::of(c"") }.run();
    assert_eq!(status, 127 << 8);
}

#[test]
fn a_function_runs_in_place_of_a_program_with_its_mask() {
    unsafe extern "C" fn note(data: *mut c_void) -> i32 {
        let mask = signal::mask().unwrap_or_default();
        // SAFETY: the parent's variable, which it does not use meanwhile.
        unsafe { *data.cast::<(i32, SigSet)>() = (process::getpid(), mask) };
        42
    }
    let mut seen = (0, SigSet::ALL);
    let mask = SigSet::EMPTY.with(SIGUSR1);
    let run = [Action::Run(Function { call: note, data: (&raw mut seen).cast(), mask })];
    let (status, report, _) = Start { actions: &run, ..Start::of(c"exit 1") }.run();
    assert_eq!((status, report.failure()), (42 << 8, None));
    assert_eq!(seen.1, mask);
    assert!(seen.0 != 0 && seen.0 != process::getpid());
}

#[test]
fn a_hook_comes_before_the_program_and_may_refuse_it() {
    unsafe extern "C" fn count(data: *mut c_void) -> i32 {
        // SAFETY: the parent's variable, which it does not use meanwhile.
        let calls = unsafe { &mut *data.cast::<i32>() };
        *calls += 1;
        if *calls == 1 { 0 } else { Errno::EIO.raw() }
    }
    let mut calls = 0;
    let hook = Action::Hook(Hook { call: count, data: (&raw mut calls).cast() });
    let hooks = [hook, hook];
    assert_eq!(Start { actions: &hooks[..1], ..Start::of(c"exit 5") }.exit_code(), 5);
    calls = 0;
    let start = Start { actions: &hooks, ..Start::of(c"") };
    assert_eq!(start.failure(), failure(Phase::Actions, 1, Errno::EIO));
    assert_eq!(calls, 2);
}

#[test]
fn dispositions_and_mask_are_those_asked_for() {
    let line = c"while read -r name value; do case $name in SigBlk:) blocked=$value;; SigIgn:) ignored=$value;; esac; \
        done < /proc/self/status; echo $blocked $ignored >&3";
    let (read, write) = fd::pipe2(fd::O_CLOEXEC).unwrap();
    let files = [Action::Dup { from: write, to: 3 }];
    let actions =
        [Action::Dispositions { default: SigSet::EMPTY.with(SIGUSR2), ignore: SigSet::EMPTY.with(SIGUSR1) }];
    let mask = SigSet::EMPTY.with(SIGUSR1);
    assert_eq!(Start { files: &files, actions: &actions, mask, ..Start::of(line) }.exit_code(), 0);
    let mut text = [0; 64];
    let n = fd::read(read, &mut text).unwrap();
    let numbers: Vec<u64> = String::from_utf8_lossy(&text[..n])
        .split_whitespace()
        .map(|number| u64::from_str_radix(number, 16).unwrap())
        .collect();
    assert_eq!((numbers[0], numbers[1] & USR1_BIT), (USR1_BIT, USR1_BIT));
    fd::close(read).unwrap();
    fd::close(write).unwrap();
}

#[test]
fn listed_descriptors_are_closed_open_or_not() {
    let files = [
        Action::Open { path: c"/dev/null".into(), flags: fd::O_RDONLY, mode: 0, to: 7 },
        Action::Open { path: c"/dev/null".into(), flags: fd::O_RDONLY, mode: 0, to: 9 },
        Action::Close { fds: &[7, 8, -1] },
    ];
    let line = c"test ! -e /proc/self/fd/7 && test -e /proc/self/fd/9";
    assert_eq!(Start { files: &files, ..Start::of(line) }.exit_code(), 0);
}

#[test]
fn a_copy_until_exec_is_gone_in_the_program_and_none_is_made_of_a_closed_descriptor() {
    unsafe extern "C" fn look(_: *mut c_void) -> i32 {
        i32::from(fd::get_fd_flags(200) == Ok(1))
    }
    let open = Action::Open { path: c"/dev/null".into(), flags: fd::O_RDONLY, mode: 0, to: 9 };
    let files =
        [open, Action::CopyUntilExec { from: 9, min: 200 }, Action::CopyUntilExec { from: -1, min: 200 }];
    let run = [Action::Run(Function { call: look, data: std::ptr::null_mut(), mask: SigSet::ALL })];
    let (status, report, _) = Start { files: &files, actions: &run, ..Start::of(c"") }.run();
    assert_eq!((status, report.failure()), (1 << 8, None));
    let line = c"test -e /proc/self/fd/9 && test ! -e /proc/self/fd/200";
    assert_eq!(Start { files: &files, ..Start::of(line) }.exit_code(), 0);
}

#[test]
fn a_file_opened_without_waiting_is_blocking_and_inheritable() {
    unsafe extern "C" fn look(_: *mut c_void) -> i32 {
        const O_NONBLOCK: u32 = 0o4000;
        let flags = fd::get_status_flags(9).unwrap_or(O_NONBLOCK);
        i32::from(flags & O_NONBLOCK == 0 && fd::get_fd_flags(9) == Ok(0))
    }
    let files = [Action::OpenWithoutWaiting { path: c"/dev/null".into(), flags: fd::O_RDWR, to: 9 }];
    let run = [Action::Run(Function { call: look, data: std::ptr::null_mut(), mask: SigSet::ALL })];
    assert_eq!(Start { files: &files, actions: &run, ..Start::of(c"") }.run().0, 1 << 8);
}

#[test]
fn a_refused_close_range_is_reported_and_replaced() {
    let open = Action::Open { path: c"/dev/null".into(), flags: fd::O_RDONLY, mode: 0, to: 9 };
    let files = [open, Action::CloseRange { first: 9, last: 9, by_range: true, limit: 1024 }];
    let (status, report, _) = Start { files: &files, ..Start::of(c"test ! -e /proc/self/fd/9") }.run();
    assert_eq!((status, report.failure()), (0, None));
    assert_eq!(report.refused(), fd::close_range(1 << 20, 1 << 20, 0).err());
}

#[test]
fn descriptors_are_got_from_the_parents_table() {
    let (read, write) = fd::pipe2(fd::O_CLOEXEC).unwrap();
    let fds = [ParentDescriptor { from: write, to: 100 }];
    let (parent, thread) = (process::getpid(), process::gettid());
    let files = [Action::GetFromParent { parent, thread, fds: &fds }, Action::Dup { from: 100, to: 9 }];
    let (status, report, _) = Start { files: &files, ..Start::of(c"echo x >&9") }.run();
    match report.failure() {
        None => {
            let mut text = [0; 2];
            assert_eq!((status, fd::read(read, &mut text), &text), (0, Ok(2), b"x\n"));
        }
        // A container's filter.
        Some(failure) => assert!(matches!(failure.errno, Errno::EPERM | Errno::ENOSYS | Errno::ESRCH)),
    }
    fd::close(read).unwrap();
    fd::close(write).unwrap();
}
