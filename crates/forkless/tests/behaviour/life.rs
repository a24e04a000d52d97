//! Handles and what outlives them: drop policies, non-blocking starts by the thousand, starts after
//! a fork, prepared commands whose file goes or changes, threads that do everything at once.

use crate::faults::Dir;
use crate::support::guard::{self, mappings};
use crate::support::{cases, many, patience, report};
use forkless::{Command, OnDrop, Stdio, WaitError};
use forkless_sys::{process, sched};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A child that lives until this end of its pipe is closed, and whose own end shows in the pipe.
fn lasting(policy: OnDrop) -> (forkless::Child, std::io::PipeReader) {
    let (r, w) = std::io::pipe().unwrap();
    let mut c = Command::new("sleep");
    c.arg("60").stdout(w).on_drop(policy);
    (c.spawn().unwrap(), r)
}

fn ended(mut r: std::io::PipeReader) -> bool {
    r.read(&mut [0]).unwrap() == 0
}

fn dropping_kills_waits_or_lets_go_and_leaves_no_zombie() {
    crate::support::need_real_time();
    let (child, r) = lasting(OnDrop::Kill);
    drop(child);
    guard::assert_no_children();
    assert!(ended(r));
    // A drop that did not wait would find this program running.
    drop(Command::new("sleep").arg("0.2").on_drop(OnDrop::Wait).spawn().unwrap());
    guard::assert_no_children();
    // More than a pipe holds, and nobody to read it any more.
    let mut talkative = Command::new("sh");
    talkative.args(["-c", "yes; yes >&5"]).stdout(Stdio::piped()).fd(5, Stdio::piped()).on_drop(OnDrop::Wait);
    drop(talkative.spawn().unwrap());
    guard::assert_no_children();
    let (mut child, r) = lasting(OnDrop::Detach);
    child.set_on_drop(OnDrop::Kill);
    drop(child);
    assert!(ended(r));
    // Let go: they run on, and are reaped when they end. That is here: a drop that waited would
    // never return.
    let (r, w) = std::io::pipe().unwrap();
    let cat = || {
        let mut c = Command::new("cat");
        c.stdin(r.try_clone().unwrap()).stdout(Stdio::null());
        c
    };
    for _ in 0..20 {
        drop(cat().spawn().unwrap());
        drop(cat().spawn_nonblocking().unwrap());
        drop(Command::new("/does/not/exist").spawn_nonblocking().unwrap());
    }
    let alive = process::waitid(process::P_ALL, 0, process::WEXITED | process::WNOHANG | process::WNOWAIT);
    assert!(alive.is_ok(), "{alive:?}");
    drop(w);
    guard::settle(1);
    guard::assert_no_children();
}

fn an_ended_child_is_dropped_without_a_thread() {
    let mut c = Command::new("/bin/true");
    let child = c.spawn().unwrap();
    process::waitid(process::P_PID, child.id() as i32, process::WEXITED | process::WNOWAIT).unwrap();
    drop(child);
    guard::assert_no_children();
    assert_eq!(guard::threads().len(), 1);
}

fn thousands_in_flight_at_once() {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: hard.maximum, maximum: hard.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let (r, mut w) = std::io::pipe().unwrap();
    let mut c = Command::new("/bin/cat");
    c.stdin(r).stdout(Stdio::null());
    let mut children: Vec<_> = (0..many(2000)).map(|_| c.spawn_nonblocking().unwrap()).collect();
    let bad: Vec<_> =
        (0..many(200)).map(|_| Command::new("/does/not/exist").spawn_nonblocking().unwrap()).collect();
    w.write_all(b"x").unwrap();
    drop((w, c));
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    for mut child in bad {
        assert!(matches!(child.wait(), Err(WaitError::Start(e)) if e.raw_os_error() == Some(libc::ENOENT)));
    }
    rustix::process::setrlimit(rustix::process::Resource::Nofile, hard).unwrap();
}

fn thousands_dropped_at_once() {
    let began = Instant::now();
    for _ in 0..many(1500) {
        drop(Command::new("sleep").arg("1").spawn_nonblocking().unwrap());
    }
    println!("{:?} to start and drop", began.elapsed());
    guard::settle(1);
    guard::assert_no_children();
}

fn stacks_are_used_again() {
    for _ in 0..50 {
        Command::new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap();
    }
    let before = mappings();
    for _ in 0..120 {
        Command::new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap();
        assert!(Command::new("/bin/true").status().unwrap().success());
        let _ = Command::new("/none").spawn_nonblocking().unwrap().wait();
    }
    assert!(mappings() <= before + 4, "{before} mappings became {}", mappings());
}

#[expect(unsafe_code, reason = "fork(2), to be in the new process")]
fn a_forked_process_starts_children_of_its_own() {
    // Threads that are in the middle of everything when the fork comes. They end when this one
    // fails, too: the scope waits for them.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let patience = u32::try_from(patience().as_secs()).unwrap();
    std::thread::scope(|s| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            let stop = &stop;
            s.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    drop(Command::new("/bin/true").on_drop(OnDrop::Wait).spawn_nonblocking());
                    drop(Command::new("/bin/true").spawn());
                    let mut c = Command::new("/bin/true");
                    if forkless_sys::ids::getuid() == 0 {
                        c.uid(1234);
                    }
                    let _ = c.parent_death_signal(libc::SIGTERM).status();
                }
            });
        }
        let (held, _r) = lasting(OnDrop::Kill);
        let mut held = Some(held);
        for i in 0..many(150) {
            // SAFETY: the new process uses what the library promises to work there, and leaves
            // without cleaning up.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: ends the process if it hangs.
                unsafe { libc::alarm(patience) };
                let mut c = Command::new("/bin/true");
                if forkless_sys::ids::getuid() == 0 {
                    c.gid(1234);
                }
                let ok = c.status().is_ok_and(|s| s.success())
                    && Command::new("/bin/true")
                        .spawn_nonblocking()
                        .is_ok_and(|mut c| c.wait().is_ok_and(|s| s.success()))
                    && Command::new("/none")
                        .spawn_nonblocking()
                        .is_ok_and(|mut c| matches!(c.wait(), Err(WaitError::Start(_))))
                    && Command::new("/bin/true")
                        .parent_death_signal(libc::SIGTERM)
                        .status()
                        .is_ok_and(|s| s.success())
                    && Command::new("echo").output().is_ok_and(|o| o.stdout == b"\n");
                drop(Command::new("/bin/true").spawn());
                // It is a child of the parent, and must not be killed from here.
                drop(held.take());
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(!ok)) };
            }
            assert!(pid > 0);
            let info = forkless_sys::process::waitid(
                forkless_sys::process::P_PID,
                pid,
                forkless_sys::process::WEXITED,
            )
            .unwrap();
            assert_eq!((info.code, info.status), (1, 0), "the forked process of round {i} failed or hung");
        }
        let mut held = held.unwrap();
        assert!(held.try_wait().unwrap().is_none(), "killed by a forked process that dropped its copy");
        held.kill().unwrap();
        held.wait().unwrap();
    });
    guard::settle(1);
}

fn a_prepared_command_survives_removal_replacement_and_upgrade() {
    let (a, b) = (Dir::new(), Dir::new());
    a.program("prog", "#!/bin/sh\necho first\n");
    let mut c = Command::new("prog");
    c.env("PATH", format!("{}:{}", a.0.display(), b.0.display()));
    let p = c.prepare().unwrap();
    let says = |text: &str| assert_eq!(String::from_utf8(p.output().unwrap().stdout).unwrap(), text);
    says("first\n");
    // An upgrade: another file by the same name.
    let new = a.program("new", "#!/bin/sh\necho second\n");
    std::fs::rename(new, a.0.join("prog")).unwrap();
    says("second\n");
    std::fs::remove_file(a.0.join("prog")).unwrap();
    assert_eq!(p.spawn().unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert_eq!(p.status().unwrap_err().raw_os_error(), Some(libc::ENOENT));
    // Elsewhere in the path: found again, and remembered.
    b.program("prog", "#!/bin/sh\necho third\n");
    says("third\n");
    assert!(p.status().unwrap().success());
    assert!(p.spawn().unwrap().wait().unwrap().success());
    assert_eq!(p.found_at(), 1);
    // Gone again, while remembered; and denied is not gone.
    std::fs::rename(b.0.join("prog"), a.0.join("prog")).unwrap();
    says("third\n");
    std::fs::set_permissions(a.0.join("prog"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(p.spawn().unwrap_err().raw_os_error(), Some(libc::EACCES));
}

fn a_prepared_command_is_used_by_threads_at_once() {
    let mut c = Command::new("sh");
    c.args(["-c", "exit $N"]).env("N", "5");
    let p = c.prepare().unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(p.status().unwrap().code(), Some(5));
                    assert_eq!(p.spawn_nonblocking().unwrap().wait().unwrap().code(), Some(5));
                }
            });
        }
    });
}

#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn hooks_of_a_prepared_command_run_one_at_a_time() {
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    let mut c = Command::new("/bin/true");
    // SAFETY: atomics and one sleep.
    unsafe {
        c.pre_exec(|| {
            MOST.fetch_max(INSIDE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _ =
                forkless_sys::time::nanosleep(forkless_sys::time::Timespec { tv_sec: 0, tv_nsec: 200_000 });
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
    }
    let p = c.prepare().unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..20).for_each(|_| assert!(p.status().unwrap().success())));
        }
    });
    assert_eq!(MOST.load(Ordering::SeqCst), 1);
}

#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn a_panic_in_a_hook_fails_the_start_alone() {
    let mut c = Command::new("/bin/true");
    // SAFETY: panics on purpose.
    unsafe { c.pre_exec(|| panic!("on purpose")) };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let e = c.spawn().unwrap_err();
    std::panic::set_hook(hook);
    assert_eq!((e.step(), e.raw_os_error()), (forkless::Step::PreExec, Some(libc::ECANCELED)), "{e}");
}

/// Threads open, close and start children all the time, and share one descriptor table with
/// children on their way. No child ever has more than it was given. No thread ever finds one of its
/// numbers closed, or taken by another file.
fn threads_that_open_close_and_start_never_see_or_lose_a_descriptor() {
    let filler: Vec<File> = (0..400).map(|_| File::open("/dev/null").unwrap()).collect();
    let stop = AtomicBool::new(false);
    let starts = AtomicU32::new(0);
    std::thread::scope(|s| {
        for t in 0..3u32 {
            let (stop, starts) = (&stop, &starts);
            s.spawn(move || {
                let mut i = 0;
                while !stop.load(Ordering::Relaxed) {
                    i += 1;
                    let (mut r, w) = std::io::pipe().unwrap();
                    let mut c = Command::new(crate::support::me());
                    c.args(report::args(9)).fd(9, w).stdin(Stdio::piped()).stderr(Stdio::null());
                    if i % 5 == 0 {
                        c.fd(60 + t as i32, File::open("/etc/passwd").unwrap());
                    }
                    let mut child = if i % 2 == 0 { c.spawn_nonblocking() } else { c.spawn() }.unwrap();
                    drop(c);
                    let mut out = Vec::new();
                    r.read_to_end(&mut out).unwrap();
                    child.stdin.take().unwrap().write_all(b"mine").unwrap_or_default();
                    assert!(child.wait().unwrap().success());
                    let fds = report::Report::parse(&out).fds();
                    let mut want = vec![0, 1, 2, 9];
                    if i % 5 == 0 {
                        want.push(60 + t as i32);
                    }
                    assert_eq!(fds, want, "a child has what it was not given");
                    starts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..2 {
            let stop = &stop;
            s.spawn(move || {
                let mut mine = std::collections::VecDeque::new();
                let mut i = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    i += 1;
                    // Inheritable, so that only the library keeps it from the children.
                    let path = ["/etc/passwd", "/etc/group", "/etc/shells"][(i % 3) as usize];
                    let f = File::open(path).unwrap();
                    rustix::io::fcntl_setfd(&f, rustix::io::FdFlags::empty()).unwrap();
                    mine.push_back((f, path));
                    if mine.len() > 20 {
                        let (f, path): (File, _) = mine.pop_front().unwrap();
                        let at = std::fs::read_link(format!("/proc/self/fd/{}", f.as_raw_fd()))
                            .expect("still open");
                        assert_eq!(at.to_str(), Some(path), "a number of mine leads elsewhere");
                        drop(f);
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs(3));
        let late = Instant::now() + patience();
        while starts.load(Ordering::Relaxed) < 20 && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(filler);
    println!("{} starts", starts.load(Ordering::Relaxed));
    assert!(starts.load(Ordering::Relaxed) >= 20);
}

fn killing_at_any_moment_of_a_start() {
    let mut ends = std::collections::BTreeMap::new();
    for i in 0..400u64 {
        let mut child = Command::new("/bin/true").stdin(Stdio::piped()).spawn_nonblocking().unwrap();
        let until = Instant::now() + Duration::from_micros(i % 200);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        *ends.entry(status.to_string()).or_insert(0) += 1;
        assert!(status.success() || status.to_string().contains("SIGKILL"), "{status}");
    }
    println!("{ends:?}");
    assert!(ends.keys().any(|k| k.contains("SIGKILL")));
}

/// Posix record locks belong to a process's table, and are dropped when anybody who shares it
/// closes the file.
fn record_locks_of_the_parent_survive_starts() {
    let dir = Dir::new();
    let path = dir.0.join("locked");
    let file = File::create(&path).unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let others_see = || {
        // std's child: it is the judge.
        let out = std::process::Command::new("sh")
            .arg("-c")
            .arg(format!("cat /proc/locks | grep -c ':{} '", inode(&path)))
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    assert_eq!(others_see(), "1");
    for nonblocking in [false, true] {
        for _ in 0..20 {
            let mut c = Command::new("/bin/true");
            let mut child = if nonblocking { c.spawn_nonblocking() } else { c.spawn() }.unwrap();
            child.wait().unwrap();
            let mut c = Command::new("/bin/true");
            c.fd(5, file.try_clone().unwrap());
        }
    }
    // Dropping the copies above released it, as close(2) does for any descriptor of the file; take
    // it again and only start.
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for _ in 0..20 {
        Command::new("/bin/true").status().unwrap();
        Command::new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap();
    }
    assert_eq!(others_see(), "1", "a start dropped the lock");
}

fn inode(path: &std::path::Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
}

/// Regression: the wait took the child for ended, and looked for its status for a second.
#[expect(unsafe_code, reason = "fork(2)")]
fn a_forked_process_cannot_wait_for_its_parents_children() {
    let (mut child, _r) = lasting(OnDrop::Kill);
    let mut inherited = forkless::process::Child::from(lasting(OnDrop::Kill).0);
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let refused = |e: WaitError| matches!(e, WaitError::Os(e) if e.raw_os_error() == Some(libc::ECHILD));
        let all = child.try_wait().is_err_and(refused)
            && child.wait_timeout(patience()).is_err_and(refused)
            && child.wait().is_err_and(refused)
            && inherited.wait().is_err_and(|e| e.raw_os_error() == Some(libc::ECHILD));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!all)) };
    }
    let ended = process::waitid(process::P_PID, pid, process::WEXITED).unwrap();
    assert_eq!((ended.code, ended.status), (1, 0));
    assert!(child.try_wait().unwrap().is_none() && inherited.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    inherited.kill().unwrap();
    inherited.wait().unwrap();
}

/// Regression: the child made its group after the start had returned, and there was none to signal
/// or to join.
fn a_group_is_there_when_a_start_returns() {
    // On one processor the child does not run before this thread waits.
    let mut before = [0; 128];
    let words = sched::affinity(&mut before).unwrap();
    let mut one = [0; 128];
    let only = before.iter().position(|word| *word != 0).unwrap();
    one[only] = 1 << before[only].trailing_zeros();
    sched::set_affinity(&one[..words]).unwrap();
    let mut leader = Command::new("/bin/sleep");
    leader.arg("60").process_group(0);
    let mut session = Command::new("/bin/sleep");
    session.arg("60").setsid(true);
    for _ in 0..many(50) {
        for c in [&mut leader, &mut session] {
            let mut child = c.spawn_nonblocking().unwrap();
            child.kill_group().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
        let mut child = leader.spawn_nonblocking().unwrap();
        let group = child.id() as i32;
        let mut other =
            Command::new("/bin/sleep").arg("60").process_group(group).spawn_nonblocking().unwrap();
        child.kill_group().unwrap();
        let ends = [child.wait().unwrap().signal(), other.wait().unwrap().signal()];
        assert_eq!(ends, [Some(libc::SIGKILL); 2]);
    }
    // A child that is stopped on its way does not get that far.
    let mut child = session.spawn_nonblocking().unwrap();
    child.signal(libc::SIGSTOP).unwrap();
    child.kill_group().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    // A child that has executed no program leads no group once it has been waited for.
    let mut none = Command::new("/does/not/exist").setsid(true).spawn_nonblocking().unwrap();
    let _ = none.kill_group();
    assert!(matches!(none.wait(), Err(WaitError::Start(_)) | Ok(_)));
    assert_eq!(none.kill_group().unwrap_err().raw_os_error(), Some(libc::ESRCH));
    sched::set_affinity(&before[..words]).unwrap();
}

/// A command whose program stops at its exec, traced by the thread that starts it.
#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn traced(program: &str) -> Command {
    let trace_me = || {
        // SAFETY: no addresses with this request.
        match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let mut c = Command::new(program);
    // SAFETY: one system call.
    unsafe { c.pre_exec(trace_me) };
    c
}

/// Lets it go on, as soon as it has stopped.
#[expect(unsafe_code, reason = "ptrace takes addresses")]
fn go_on(pid: u32, request: u32) {
    let end = Instant::now() + patience();
    // SAFETY: no addresses with these requests.
    while unsafe { libc::ptrace(request, pid as i32, 0, 0) } != 0 {
        assert!(Instant::now() < end, "{}", std::io::Error::last_os_error());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Regression: a stop was taken for the end. A tracer is told of it whatever it waits for.
fn a_stop_told_to_the_tracer_is_not_the_end() {
    let stopped = |status: ExitStatus| {
        assert_eq!(
            (status.stopped_signal(), status.code(), status.signal()),
            (Some(libc::SIGTRAP), None, None)
        );
    };
    let waits: [fn(&mut forkless::Child) -> ExitStatus; 3] = [
        |child| child.wait().unwrap(),
        |child| {
            loop {
                if let Some(status) = child.try_wait().unwrap() {
                    return status;
                }
            }
        },
        |child| {
            loop {
                match child.wait_timeout(Duration::from_millis(1)) {
                    Err(WaitError::Deadline) => {}
                    status => return status.unwrap(),
                }
            }
        },
    ];
    for wait in waits {
        let mut child = traced("/bin/true").spawn().unwrap();
        stopped(wait(&mut child));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(process::kill(child.id() as i32, 0), Ok(()));
        go_on(child.id(), libc::PTRACE_CONT);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    // Dropped before the stop has been told, and after.
    let threads = guard::threads().len();
    for told in [false, true] {
        for policy in [OnDrop::Detach, OnDrop::Wait, OnDrop::Kill] {
            let mut child = traced("/bin/true").on_drop(policy).spawn().unwrap();
            let pid = child.id();
            if told {
                stopped(child.wait().unwrap());
                go_on(pid, libc::PTRACE_DETACH);
            }
            drop(child);
            if !told && policy != OnDrop::Kill {
                go_on(pid, libc::PTRACE_DETACH);
            }
        }
    }
    guard::settle(threads);
    guard::assert_no_children();
    let (status, said) = traced("/bin/true").communicate().timeout(Duration::from_millis(1)).run().unwrap();
    assert_eq!((status.signal(), said.end), (Some(libc::SIGKILL), forkless::End::Deadline));
}

/// Regression: the thread for the death signal took the stop for the end and ended, and the child
/// got the signal.
fn a_child_traced_by_the_keeper_lives() {
    std::thread::spawn(|| {
        let mut child = traced("/bin/true").parent_death_signal(libc::SIGKILL).spawn().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.stopped_signal(), Some(libc::SIGTRAP), "{status}");
        for _ in 0..100 {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::sleep(Duration::from_millis(1));
        }
        // A thread of the library's traces the child.
        child.signal(libc::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    })
    .join()
    .unwrap();
}

cases![
    dropping_kills_waits_or_lets_go_and_leaves_no_zombie,
    an_ended_child_is_dropped_without_a_thread,
    stacks_are_used_again,
    a_prepared_command_survives_removal_replacement_and_upgrade,
    a_prepared_command_is_used_by_threads_at_once,
    hooks_of_a_prepared_command_run_one_at_a_time,
    a_panic_in_a_hook_fails_the_start_alone,
    killing_at_any_moment_of_a_start,
    a_forked_process_cannot_wait_for_its_parents_children,
    a_group_is_there_when_a_start_returns,
    a_stop_told_to_the_tracer_is_not_the_end,
    a_child_traced_by_the_keeper_lives,
    record_locks_of_the_parent_survive_starts,
    ; once
    thousands_in_flight_at_once,
    thousands_dropped_at_once,
    a_forked_process_starts_children_of_its_own,
    threads_that_open_close_and_start_never_see_or_lose_a_descriptor,
];
