//! Before Linux 5.16 a core dump of the child kills every process that shares its memory; the child
//! ends by SIGKILL instead.
#![expect(unsafe_code, reason = "lays out a launch by hand and carries it out in a forked process")]

use forkless_child::{Action, Candidate, Exec, Launch, Report, carry_out};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{CPtr, process};
use std::ptr::null;

const SIGQUIT: i32 = 3;

/// The signal that ends a child which has a SIGQUIT pending when its mask is lifted: its parent is
/// not the one it expects.
fn ends_by(no_core_dump: bool) -> i32 {
    let path = c"/bin/true";
    let argv = [path.as_ptr(), null()];
    let envp = [null()];
    let candidates = [Candidate { path: CPtr::from(path), script_argv: null() }];
    let actions = [
        Action::Rlimit { resource: 4, limit: forkless_sys::sched::Rlimit { soft: 0, hard: 0 } },
        Action::DeathSignal { signal: SIGQUIT, parent: 1 << 30 },
    ];
    let exec = Exec {
        candidates: &candidates,
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        mask: SigSet::EMPTY,
        no_core_dump,
        wait_for_writers: true,
        past_any_error: false,
    };
    let report = Report::new();
    let launch = Launch { files: &[], actions: &actions, exec, hint: 0, report: &report };
    // A shell starts programs in the background with SIGQUIT ignored.
    // SAFETY: no handler; the process has this one test.
    unsafe { libc::signal(SIGQUIT, libc::SIG_DFL) };
    // SAFETY: the new process makes system calls only.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let _ = signal::set_mask(SigSet::ALL);
        carry_out(&launch);
        process::exit_group(99);
    }
    assert!(pid > 0);
    let end = process::waitid(process::P_PID, pid, process::WEXITED).unwrap();
    assert_ne!(end.code, 1, "ended by itself with {}", end.status);
    end.status
}

#[test]
fn a_signal_that_would_dump_core_kills_instead_where_a_dump_takes_all_along() {
    assert_eq!(ends_by(true), 9);
    assert_eq!(ends_by(false), SIGQUIT);
}
