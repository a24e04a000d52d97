//! Which mechanism ran, not only that it worked: the system calls of parent and child, by ptrace.

use crate::signals::{handle, reap_everything};
use crate::support::filter;
use crate::support::trace::{self, Act, Call, Trace};
use crate::support::{Case, cases, need_root, patience, until};
use forkless::{Command, OnDrop, Resource, SigSet, Stdio};
use forkless_sys::clone as c;
use forkless_sys::signal;
use std::sync::atomic::{AtomicUsize, Ordering};

const fn worker(name: &'static str, run: fn()) -> Case {
    Case { name, run, repeatable: false }
}

pub const WORKERS: &[Case] = &[
    worker("plain", plain),
    worker("piped", piped),
    worker("to_the_end", to_the_end),
    worker("to_the_end_with_a_handler", to_the_end_with_a_handler),
    worker("to_the_end_ignoring", to_the_end_ignoring),
    worker("to_the_end_with_a_thread", to_the_end_with_a_thread),
    worker("nonblocking", nonblocking),
    worker("nonblocking_with_many_open", nonblocking_with_many_open),
    worker("without_close_range", without_close_range),
    worker("inheriting", inheriting),
    worker("full", full),
    worker("full_nonblocking", full_nonblocking),
    worker("credentials", credentials),
    worker("cgroup", cgroup),
    worker("full_outcome", full_outcome),
    worker("nonblocking_outcome", nonblocking_outcome),
    worker("dying_parent", dying_parent),
    worker("looking", looking),
    worker("looking_without_clone3", looking_without_clone3),
    worker("becoming_without_clone3", becoming_without_clone3),
    worker("first_without_clone3", first_without_clone3),
];

fn warm() {
    Command::new("/bin/true").status().unwrap();
    Command::new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap();
}

fn plain() {
    warm();
    trace::begin();
    Command::new("/bin/true").spawn().unwrap().wait().unwrap();
    trace::end();
}

fn to_the_end() {
    warm();
    trace::begin();
    assert_eq!(Command::new("/bin/false").status().unwrap().code(), Some(1));
    trace::end();
}

fn to_the_end_with_a_handler() {
    handle(libc::SIGCHLD, reap_everything);
    to_the_end_somehow();
}

fn to_the_end_ignoring() {
    signal::reset(libc::SIGCHLD, true).unwrap();
    to_the_end_somehow();
}

fn to_the_end_with_a_thread() {
    std::thread::spawn(|| ()).join().unwrap();
    to_the_end_somehow();
}

/// The status; before Linux 6.15 it is lost.
fn to_the_end_somehow() {
    let _ = Command::new("/bin/true").status();
    trace::begin();
    match Command::new("/bin/false").status() {
        Ok(status) => assert_eq!(status.code(), Some(1)),
        Err(e) => assert_eq!((e.step(), e.raw_os_error()), (forkless::Step::Wait, Some(libc::ECHILD)), "{e}"),
    }
    trace::end();
}

fn piped() {
    warm();
    trace::begin();
    Command::new("/bin/true").output().unwrap();
    trace::end();
}

fn nonblocking() {
    warm();
    trace::begin();
    Command::new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap();
    trace::end();
}

/// Two holes at low numbers, so that the number of the next descriptor tells nothing of the rest.
fn nonblocking_with_many_open() {
    let mut files: Vec<_> = (0..600).map(|_| std::fs::File::open("/").unwrap()).collect();
    files.drain(..2);
    warm();
    trace::begin();
    Command::new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap();
    trace::end();
}

fn without_close_range() {
    let _strays: Vec<_> = (0..20).map(|_| std::fs::File::open("/").unwrap()).collect();
    filter::install(&[filter::refuse(libc::SYS_close_range, forkless_sys::Errno::ENOSYS)]);
    warm();
    trace::begin();
    Command::new("/bin/true").spawn().unwrap().wait().unwrap();
    trace::end();
}

fn inheriting() {
    warm();
    trace::begin();
    Command::new("/bin/true").inherit_descriptors(true).spawn().unwrap().wait().unwrap();
    trace::end();
}

/// Everything that can be asked for at once.
fn everything() -> Command {
    let mut c = Command::new("/bin/true");
    c.stdout(Stdio::null())
        .fd(30, Stdio::null())
        .fd(31, Stdio::piped())
        .fd(32, Stdio::same_as(30))
        .current_dir("/")
        .env("A", "1")
        .umask(0o022)
        .rlimit(Resource::Core, 0, 0)
        .rlimit(Resource::OpenFiles, 500, 500)
        .nice(1)
        .affinity([0])
        .setsid(true)
        .parent_death_signal(libc::SIGKILL)
        .no_new_privs(true)
        .signal_mask(SigSet::EMPTY.with(libc::SIGHUP))
        .ignore_signals(SigSet::EMPTY.with(libc::SIGQUIT))
        .on_drop(OnDrop::Kill);
    if forkless_sys::ids::getuid() == 0 {
        c.uid(54_321).gid(54_321).groups(&[54_321, 54_322]);
    }
    c
}

fn full() {
    warm();
    trace::begin();
    everything().spawn().unwrap().wait().unwrap();
    trace::end();
}

fn full_nonblocking() {
    warm();
    let mut c = Command::new("/bin/true");
    c.fd(30, Stdio::null()).fd(31, Stdio::piped()).umask(0o022).rlimit(Resource::Core, 0, 0).setsid(true);
    trace::begin();
    c.spawn_nonblocking().unwrap().wait().unwrap();
    trace::end();
}

fn credentials() {
    warm();
    trace::begin();
    let mut c = Command::new("/bin/true");
    c.uid(1234);
    c.spawn_nonblocking().unwrap().wait().unwrap();
    c.status().unwrap();
    c.output().unwrap();
    c.prepare().unwrap().status().unwrap();
    trace::end();
}

/// A path that is no directory: the kernel refuses it, and so does the child that is to join.
fn cgroup() {
    warm();
    trace::begin();
    let mut c = Command::new("/bin/true");
    c.cgroup("/");
    assert!(c.spawn_nonblocking().is_err());
    assert!(c.status().is_err());
    assert!(c.output().is_err());
    assert!(c.prepare().unwrap().spawn_nonblocking().is_err());
    trace::end();
}

/// Whatever happens in the child: the start and the wait return, and nothing is left.
fn outcome(start: impl Fn() -> Result<forkless::Child, forkless::SpawnError>) {
    warm();
    let before = crate::support::guard::descriptors();
    let mask = forkless_sys::signal::mask().unwrap();
    trace::begin();
    match start() {
        Ok(mut child) => match child.wait_timeout(patience()) {
            Ok(status) => println!("{status}"),
            Err(e) => {
                assert!(matches!(e, forkless::WaitError::Start(_)), "{e}");
                println!("{e}");
            }
        },
        Err(e) => println!("{e}"),
    }
    trace::end();
    crate::support::guard::assert_no_children();
    assert_eq!(crate::support::guard::descriptors(), before);
    assert_eq!(forkless_sys::signal::mask().unwrap(), mask);
    assert!(Command::new("/bin/true").status().unwrap().success(), "the next start is not affected");
}

fn full_outcome() {
    outcome(|| everything().spawn());
}

fn nonblocking_outcome() {
    outcome(|| {
        let mut c = Command::new("/bin/true");
        c.fd(30, Stdio::null()).umask(0o022).rlimit(Resource::Core, 0, 0).setsid(true);
        c.spawn_nonblocking()
    });
}

fn dying_parent() {
    warm();
    trace::begin();
    let mut c = Command::new("/bin/true");
    let _ = c.parent_death_signal(libc::SIGKILL).spawn();
    trace::end();
}

static CHILDREN_TOLD_OF: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_child(_: i32) {
    CHILDREN_TOLD_OF.fetch_add(1, Ordering::Relaxed);
}

fn refuse_clone3() {
    filter::install(&[filter::refuse(libc::SYS_clone3, forkless_sys::Errno::ENOSYS)]);
}

fn looking() {
    handle(libc::SIGCHLD, count_child);
    trace::begin();
    for _ in 0..3 {
        assert!(forkless::facilities().iter().all(|f| f.state != forkless::Facility::Untried));
    }
    trace::end();
    assert_eq!(CHILDREN_TOLD_OF.load(Ordering::Relaxed), 0);
    crate::support::guard::assert_no_children();
}

fn looking_without_clone3() {
    refuse_clone3();
    looking();
}

fn becoming_without_clone3() {
    refuse_clone3();
    handle(libc::SIGCHLD, count_child);
    trace::begin();
    let error = Command::new("/does/not/exist").exec();
    trace::end();
    assert_eq!(error.to_string(), "exec /does/not/exist: No such file or directory");
    assert_eq!(CHILDREN_TOLD_OF.load(Ordering::Relaxed), 0);
}

fn first_without_clone3() {
    refuse_clone3();
    handle(libc::SIGCHLD, count_child);
    trace::begin();
    Command::new("/bin/true").spawn().unwrap().wait().unwrap();
    trace::end();
    assert_eq!(CHILDREN_TOLD_OF.load(Ordering::Relaxed), 1);
}

fn name(n: &'static str) -> String {
    format!("behaviour::{n}")
}

fn traced(n: &'static str) -> Trace {
    let t = trace::run(&name(n));
    t.ok();
    assert!(t.calls.iter().all(|c| !trace::is_fork(c.nr)), "fork or vfork was called");
    t
}

#[track_caller]
fn the_clone(t: &Trace) -> &Call {
    let all = t.creations();
    assert_eq!(all.len(), 1, "one process is created: {all:?}");
    all[0]
}

#[track_caller]
fn has(call: &Call, with: u32, without: u32) {
    assert_eq!(call.flags as u32 & with, with, "missing flags in {:#x}", call.flags);
    assert_eq!(call.flags as u32 & without, 0, "unwanted flags in {:#x}", call.flags);
}

fn spawning_shares_memory_and_table_and_waits_for_exec() {
    let t = traced("plain");
    let call = the_clone(&t);
    assert_eq!(call.nr, libc::SYS_clone3);
    has(
        call,
        c::CLONE_VM | c::CLONE_VFORK | c::CLONE_PIDFD | c::CLONE_FILES,
        c::CLONE_SIGHAND | c::CLONE_THREAD | c::CLONE_FS,
    );
    assert_ne!(call.flags & c::CLONE_CLEAR_SIGHAND, 0);
    let range: Vec<_> = t.of(libc::SYS_close_range);
    assert!(
        range.iter().any(|r| r.args[2] == 2 && r.pid != t.main),
        "CLOSE_RANGE_UNSHARE in the child: {range:?}"
    );
}

/// Where other code may reap the child, a pidfd keeps its status. Where no code can, the start
/// makes no pidfd.
fn only_a_wait_that_can_be_overtaken_takes_a_pidfd() {
    if cfg!(any(not(target_env = "gnu"), target_feature = "crt-static")) {
        crate::support::skip("this C library does not say whether the process has threads");
    }
    let t = traced("to_the_end");
    has(the_clone(&t), c::CLONE_VM | c::CLONE_FILES, c::CLONE_PIDFD | c::CLONE_VFORK);
    assert!(t.of(libc::SYS_waitid).iter().all(|w| w.args[0] == u64::from(libc::P_PID)), "by number");
    for worker in ["to_the_end_with_a_handler", "to_the_end_ignoring", "to_the_end_with_a_thread"] {
        let t = traced(worker);
        has(the_clone(&t), c::CLONE_VM | c::CLONE_FILES | c::CLONE_PIDFD, c::CLONE_VFORK);
        assert!(t.of(libc::SYS_waitid).iter().any(|w| w.args[0] == u64::from(libc::P_PIDFD)), "{worker}");
    }
}

fn the_parent_makes_few_calls_and_maps_nothing() {
    let t = traced("plain");
    let parent: Vec<i64> = t.calls.iter().filter(|c| c.pid == t.main).map(|c| c.nr).collect();
    // musl's free gives memory back to the kernel at once.
    let parent: Vec<i64> =
        parent.into_iter().filter(|&nr| cfg!(target_env = "gnu") || nr != libc::SYS_munmap).collect();
    for nr in [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mprotect,
        libc::SYS_brk,
        libc::SYS_rt_sigaction,
        libc::SYS_openat,
    ] {
        assert!(!parent.contains(&nr), "the parent called {nr}: {parent:?}");
    }
    // Two for the mask, clone, waitid, close of the pidfd, and a few to spare.
    assert!(parent.len() <= 8, "{parent:?}");
}

fn the_child_sets_one_disposition_and_allocates_nothing() {
    let t = traced("plain");
    let exec = t.calls.iter().position(|c| c.nr == libc::SYS_execve).expect("an exec");
    let child: Vec<i64> = t.calls[..exec].iter().filter(|c| c.pid != t.main).map(|c| c.nr).collect();
    assert_eq!(child.iter().filter(|n| **n == libc::SYS_rt_sigaction).count(), 1, "SIGPIPE alone: {child:?}");
    for nr in [libc::SYS_mmap, libc::SYS_brk, libc::SYS_munmap, libc::SYS_openat, libc::SYS_close] {
        assert!(!child.contains(&nr), "the child called {nr}: {child:?}");
    }
}

fn nonblocking_does_not_suspend_the_caller() {
    let t = traced("nonblocking");
    let call = the_clone(&t);
    has(call, c::CLONE_VM | c::CLONE_PIDFD | c::CLONE_CHILD_CLEARTID, c::CLONE_VFORK);
    let t = traced("full_nonblocking");
    has(the_clone(&t), c::CLONE_VM | c::CLONE_CHILD_CLEARTID, c::CLONE_VFORK);
}

fn a_large_table_is_not_copied_even_with_holes() {
    let t = traced("nonblocking");
    has(the_clone(&t), c::CLONE_VM, c::CLONE_FILES);
    let t = traced("nonblocking_with_many_open");
    has(the_clone(&t), c::CLONE_VM | c::CLONE_FILES, c::CLONE_VFORK);
}

/// The exit signal of each process that `clone(2)` made.
fn exit_signals(t: &Trace) -> Vec<u64> {
    assert!(t.creations().iter().all(|call| call.nr == libc::SYS_clone || call.ret == Some(-38)));
    t.of(libc::SYS_clone).iter().map(|call| call.flags & 0xff).collect()
}

/// Regression: a handler for SIGCHLD was told of the children that try facilities.
fn facilities_are_tried_and_nobody_is_told_of_the_trials() {
    let t = traced("looking");
    let trials: Vec<_> = t.creations().into_iter().filter(|call| call.ret > Some(0)).collect();
    assert!(trials.len() <= 4, "one for each look, one for the cgroup: {trials:?}");
    // The memory once, and one for each look.
    assert_eq!(exit_signals(&traced("looking_without_clone3")), [0; 4]);
}

/// Regression: an exec in place without clone3 made a child, and so did the first start, both with
/// a SIGCHLD.
fn whether_memory_is_shared_is_tried_by_starts_alone_and_unseen() {
    assert_eq!(exit_signals(&traced("becoming_without_clone3")), []);
    let signals = exit_signals(&traced("first_without_clone3"));
    assert_eq!(signals, [0, libc::SIGCHLD as u64]);
}

/// Not one call for each number up to the limit, which takes a second where calls are as slow as
/// under gVisor.
fn without_close_range_only_what_is_open_is_closed() {
    let t = traced("without_close_range");
    let closed = t.of(libc::SYS_close).iter().filter(|call| call.pid != t.main).count();
    assert!((20..60).contains(&closed), "{closed} calls of close");
    assert!(t.of(libc::SYS_getdents64).iter().any(|call| call.pid != t.main));
}

fn inheriting_copies_the_table() {
    let t = traced("inheriting");
    has(the_clone(&t), c::CLONE_VM, c::CLONE_FILES);
    assert!(t.of(libc::SYS_close_range).iter().all(|r| r.pid == t.main));
}

fn every_feature_at_once_stays_on_the_fast_path_in_the_right_order() {
    need_root();
    let t = traced("full");
    has(the_clone(&t), c::CLONE_VM | c::CLONE_VFORK, 0);
    let child = t.children();
    let at = |nr: i64| child.iter().position(|c| c.nr == nr).unwrap_or_else(|| panic!("{nr} is not called"));
    let prctl = |op: i32| {
        child.iter().position(|c| c.nr == libc::SYS_prctl && c.args[0] == op as u64).expect("prctl")
    };
    let order = [
        at(libc::SYS_setsid),
        at(libc::SYS_prlimit64),
        at(libc::SYS_setgroups),
        at(libc::SYS_setgid),
        at(libc::SYS_setuid),
        at(libc::SYS_chdir),
        prctl(libc::PR_SET_PDEATHSIG),
        at(libc::SYS_rt_sigprocmask),
        at(libc::SYS_execve),
    ];
    assert!(order.is_sorted(), "{order:?} of {child:?}");
    assert!(
        at(libc::SYS_rt_sigaction) < at(libc::SYS_rt_sigprocmask),
        "signals are let through before they are reset"
    );
}

fn credentials_suspend_the_caller_however_it_starts() {
    need_root();
    let t = traced("credentials");
    let all = t.creations();
    assert_eq!(all.len(), 4);
    all.iter().for_each(|call| has(call, c::CLONE_VM | c::CLONE_VFORK, 0));
}

/// Regression: see `attributes::a_cgroup_out_of_memory_ends_the_child_alone`.
fn a_cgroup_suspends_the_caller_however_it_starts() {
    let t = traced("cgroup");
    let all = t.creations();
    assert!(all.len() >= 4, "{all:?}");
    all.iter().for_each(|call| has(call, c::CLONE_VM | c::CLONE_VFORK, 0));
}

fn output_makes_two_pipes_and_one_process() {
    let t = traced("piped");
    the_clone(&t);
    assert_eq!(t.of(libc::SYS_pipe2).len(), 2);
}

/// Every system call of the child between clone and exec, in turn, is where it is killed or
/// refused.
fn at_each_call_of_the_child(worker: &'static str, act: fn(&Call) -> Act) {
    let mut reached = 0;
    for k in 0.. {
        let mut seen = 0;
        let mut done = false;
        let mut child = None;
        let t = trace::run_with(&name(worker), |call, before| {
            let main = before.first().map_or(call.pid, |c| c.pid);
            if call.pid == main || child.is_some_and(|c| c != call.pid) || done {
                return Act::Let;
            }
            child = Some(call.pid);
            let now = seen;
            seen += 1;
            if now == k && call.nr != libc::SYS_exit_group {
                done = true;
                return act(call);
            }
            Act::Let
        });
        t.ok();
        let last = t.calls.iter().filter(|c| Some(c.pid) == child).nth(k);
        reached += 1;
        // Calls after a successful exec are the program's.
        if last.is_none_or(|c| c.nr == libc::SYS_execve) || k > 60 {
            break;
        }
    }
    assert!(reached > 4, "{reached} calls were reached");
}

fn a_child_killed_at_any_call_is_a_child_that_was_killed() {
    at_each_call_of_the_child("full_outcome", |_| Act::Kill);
    at_each_call_of_the_child("nonblocking_outcome", |_| Act::Kill);
}

fn a_refusal_of_any_call_in_the_child_is_an_error_and_leaves_nothing() {
    at_each_call_of_the_child("full_outcome", |_| Act::Fail(libc::EIO));
    at_each_call_of_the_child("full_outcome", |_| Act::Fail(libc::EPERM));
    at_each_call_of_the_child("nonblocking_outcome", |_| Act::Fail(libc::EACCES));
}

fn a_parent_that_dies_before_the_death_signal_is_set_takes_its_child_along() {
    let mut main = 0;
    let t = trace::run_with(&name("dying_parent"), |call, before| {
        if let Some(first) = before.first() {
            main = first.pid;
        }
        if call.nr == libc::SYS_prctl && call.args[0] == libc::PR_SET_PDEATHSIG as u64 {
            let _ = forkless_sys::process::kill(main, 9);
            // Until the traced process is gone it is still the child's parent.
            until("the parent is gone", || {
                let stat = std::fs::read_to_string(format!("/proc/{}/status", call.pid)).unwrap_or_default();
                !stat.contains(&format!("PPid:\t{main}\n"))
            });
        }
        Act::Let
    });
    assert!(
        t.of(libc::SYS_execve).iter().all(|c| c.ret != Some(0)),
        "the program was started though its parent was gone"
    );
}

cases![
    spawning_shares_memory_and_table_and_waits_for_exec,
    only_a_wait_that_can_be_overtaken_takes_a_pidfd,
    the_parent_makes_few_calls_and_maps_nothing,
    the_child_sets_one_disposition_and_allocates_nothing,
    nonblocking_does_not_suspend_the_caller,
    a_large_table_is_not_copied_even_with_holes,
    facilities_are_tried_and_nobody_is_told_of_the_trials,
    whether_memory_is_shared_is_tried_by_starts_alone_and_unseen,
    without_close_range_only_what_is_open_is_closed,
    inheriting_copies_the_table,
    every_feature_at_once_stays_on_the_fast_path_in_the_right_order,
    output_makes_two_pipes_and_one_process,
    credentials_suspend_the_caller_however_it_starts,
    a_cgroup_suspends_the_caller_however_it_starts,
    ; once
    a_child_killed_at_any_call_is_a_child_that_was_killed,
    a_refusal_of_any_call_in_the_child_is_an_error_and_leaves_nothing,
    a_parent_that_dies_before_the_death_signal_is_set_takes_its_child_along,
];
