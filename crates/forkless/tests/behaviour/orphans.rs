//! Children whose handle was dropped while they ran: how they are reaped, at which cost, and under
//! a program that closes, limits and reaps whatever it likes.
#![expect(unsafe_code, reason = "fork(2) and ptrace(2), to be a tracer")]

use crate::support::trace;
use crate::support::{asked_for, cases, guard, many, patience, skip, until};
use forkless::{Child, Command, Stdio};
use forkless_sys::process::{self, P_ALL, P_PID, WEXITED, WNOHANG, WNOWAIT};
use forkless_sys::sched::{self, Rlimit};
use forkless_sys::{Errno, fd};
use std::fs::File;
use std::io::{PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

const NOFILE: u32 = 7;

/// Children that end when the pipe is closed.
fn waiting(number: usize) -> (Vec<Child>, PipeWriter) {
    let (r, w) = std::io::pipe().unwrap();
    let mut cat = Command::new("/bin/cat");
    cat.stdin(r).stdout(Stdio::null());
    ((0..number).map(|_| cat.spawn().unwrap()).collect(), w)
}

/// The limit on descriptors while this lives.
struct Limited(Rlimit);

impl Limited {
    fn to(soft: u64) -> Limited {
        let before = sched::getrlimit(NOFILE).unwrap();
        sched::setrlimit(NOFILE, Rlimit { soft, hard: before.hard }).unwrap();
        Limited(before)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        sched::setrlimit(NOFILE, self.0).unwrap();
    }
}

fn no_child_is_left() -> bool {
    process::waitid(P_ALL, 0, WEXITED | WNOHANG | WNOWAIT) == Err(Errno::ECHILD)
}

fn our_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .filter(|name| name.starts_with("forkless-"))
        .collect()
}

/// Calls that a thread which waits for children makes, and a starting `cat` does not.
fn made_to_wait(seen: &trace::Trace) -> usize {
    let kinds =
        [libc::SYS_waitid, libc::SYS_ppoll, libc::SYS_futex, libc::SYS_epoll_pwait, libc::SYS_pidfd_open];
    kinds.iter().map(|nr| seen.of(*nr).len()).sum()
}

const DROPPED: usize = 200;

fn drops_many() {
    let (children, w) = waiting(DROPPED);
    trace::begin();
    drop(children);
    trace::end();
    drop(w);
    until("reaped", no_child_is_left);
}

/// A drop does not look at all waiting children.
fn a_drop_costs_the_same_however_many_wait() {
    let seen = trace::run(concat!(module_path!(), "::drops_many"));
    let looks = seen.of(libc::SYS_waitid).len();
    assert!((DROPPED..=2 * DROPPED).contains(&looks), "{looks} waits for {DROPPED} drops");
    assert!(made_to_wait(&seen) < 8 * DROPPED, "{} calls", made_to_wait(&seen));
}

fn waits_without_descriptors() {
    let (children, w) = waiting(3);
    let limited = Limited::to(0);
    trace::begin();
    drop(children);
    std::thread::sleep(Duration::from_millis(500));
    trace::end();
    drop(w);
    until("reaped, though it cannot be watched", no_child_is_left);
    drop(limited);
}

/// Fewer calls on a busy machine, never more: a loop without a pause makes a hundred thousand.
fn no_descriptor_left_is_no_reason_to_spin() {
    let seen = trace::run(concat!(module_path!(), "::waits_without_descriptors"));
    assert!(libc::WIFEXITED(seen.status) && libc::WEXITSTATUS(seen.status) == 0, "{:x}", seen.status);
    assert!((3..400).contains(&made_to_wait(&seen)), "{} calls", made_to_wait(&seen));
}

fn some_that_are_watched_and_some_that_cannot_be() {
    let (children, w) = waiting(30);
    let limited = Limited::to(16);
    drop(children);
    until("both kinds wait", || our_threads().len() == 2);
    drop(w);
    until("reaped", no_child_is_left);
    drop(limited);
    guard::settle(1);
}

fn closing_every_descriptor_leaves_no_zombie_and_hits_no_file() {
    for when in ["at once", "once watched"] {
        let (children, w) = waiting(20);
        // The program's own closes it, and is not told.
        let _ = w.into_raw_fd();
        let ends: Vec<i32> = children.iter().map(|c| c.id() as i32).collect();
        drop(children);
        if when == "once watched" {
            until("watched", || our_threads().contains(&String::from("forkless-watch")));
        }
        // The children are stopped, so that they do not end before the program's files have their
        // numbers.
        for pid in &ends {
            process::kill(*pid, libc::SIGSTOP).unwrap();
        }
        fd::close_range(3, u32::MAX, 0).unwrap();
        let path = std::env::temp_dir().join(format!("forkless-orphans-{}", process::getpid()));
        let files: Vec<File> = (0..100).map(|_| File::create(&path).unwrap()).collect();
        for pid in &ends {
            process::kill(*pid, libc::SIGCONT).unwrap();
        }
        until(when, no_child_is_left);
        guard::settle(1);
        let inode = std::fs::metadata(&path).unwrap().ino();
        for mut file in files {
            assert_eq!(file.metadata().unwrap().ino(), inode, "{when}: the program's file was closed");
            assert_eq!(file.metadata().unwrap().len(), 0, "{when}: written to");
            assert_eq!(file.read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EBADF), "write only");
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Nothing of the reaper's is in the table that the program sees.
fn dropped_children_hold_no_descriptor() {
    let (children, w) = waiting(5);
    let number = |of: &Child| of.id() as i32;
    let ids: Vec<i32> = children.iter().map(number).collect();
    let before = guard::descriptors().len();
    drop(children);
    assert_eq!(guard::descriptors().len(), before - ids.len());
    until("watched", || our_threads().len() == 2);
    assert_eq!(guard::descriptors().len(), before - ids.len());
    drop(w);
    until("reaped", no_child_is_left);
}

/// The program waits for any child, as pid 1 and shells do.
fn children_that_others_reap_are_given_up() {
    let (children, w) = waiting(10);
    drop((children, w));
    while let Ok(_) | Err(Errno::EINTR) = process::waitid(P_ALL, 0, WEXITED) {}
    guard::settle(1);
}

/// A tracer takes the end of a child first. Until then the pidfd is ready, and there is no status.
fn a_child_that_is_traced_is_not_waited_for_in_a_loop() {
    let (mut children, w) = waiting(1);
    let child = children.pop().unwrap();
    let pid = child.id() as i32;
    let (mut told, tell) = std::io::pipe().unwrap();
    // SAFETY: the new process makes system calls only.
    let tracer = unsafe { libc::fork() };
    if tracer == 0 {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: takes numbers.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) };
        // Not the pipe that the child reads from, of which this has a copy.
        let _ = fd::write(tell.as_raw_fd(), if seized == 0 { b"y" } else { b"n" });
        let _ = fd::close_range(3, u32::MAX, 0);
        // SAFETY: takes a number.
        unsafe { libc::alarm(500) };
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    drop(tell);
    let mut answer = [0];
    told.read_exact(&mut answer).unwrap();
    if answer != *b"y" {
        let _ = process::kill(tracer, libc::SIGKILL);
        let _ = process::waitid(P_PID, tracer, WEXITED);
        skip("ptrace is refused");
    }
    drop(child);
    until("watched", || our_threads().len() == 2);
    drop(w);
    // SIGKILL ends it past the tracer.
    process::kill(pid, libc::SIGKILL).unwrap();
    until("given up by the thread that watches", || our_threads() == ["forkless-reaper"]);
    process::kill(tracer, libc::SIGKILL).unwrap();
    process::waitid(P_PID, tracer, WEXITED).unwrap();
    until("reaped", no_child_is_left);
    guard::settle(1);
}

fn waits_hold_where_the_limit_was_lowered() {
    let mut talk = Command::new("/bin/sh");
    talk.args(["-c", "cat; echo to the other >&2"]);
    let mut child = talk.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut quick, w) = waiting(2);
    let limited = Limited::to(0);
    child.stdin.take().unwrap().write_all(b"said\n").unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!((&out.stdout[..], &out.stderr[..]), (&b"said\n"[..], &b"to the other\n"[..]));
    let late = quick[0].wait_timeout(Duration::from_millis(20));
    assert!(matches!(late, Err(forkless::WaitError::Deadline)));
    drop(w);
    for child in &mut quick {
        assert!(child.wait_timeout(patience()).unwrap().success());
    }
    drop(limited);
}

/// `FORKLESS_DROPS` says how many.
fn thousands_that_wait_are_dropped() {
    let all = sched::getrlimit(NOFILE).unwrap();
    let limited = Limited::to(all.hard);
    let number = asked_for("FORKLESS_DROPS").unwrap_or(many(1000));
    if all.hard < number as u64 + 100 {
        skip(&format!("{number} pidfds are more than the limit on descriptors allows"));
    }
    let (mut children, w) = waiting(number);
    for child in &mut children {
        assert!(child.try_wait().unwrap().is_none(), "it runs");
    }
    let began = Instant::now();
    drop(children);
    println!("{:?} to drop {number} running children", began.elapsed());
    drop(w);
    until("reaped", no_child_is_left);
    drop(limited);
    guard::settle(1);
}

pub const WORKERS: &[crate::support::Case] = &[
    crate::support::Case {
        name: concat!(module_path!(), "::drops_many"),
        run: drops_many,
        repeatable: false,
    },
    crate::support::Case {
        name: concat!(module_path!(), "::waits_without_descriptors"),
        run: waits_without_descriptors,
        repeatable: false,
    },
];

cases! {
    a_child_that_is_traced_is_not_waited_for_in_a_loop,
    a_drop_costs_the_same_however_many_wait,
    children_that_others_reap_are_given_up,
    closing_every_descriptor_leaves_no_zombie_and_hits_no_file,
    dropped_children_hold_no_descriptor,
    no_descriptor_left_is_no_reason_to_spin,
    some_that_are_watched_and_some_that_cannot_be,
    thousands_that_wait_are_dropped,
    waits_hold_where_the_limit_was_lowered,
}
