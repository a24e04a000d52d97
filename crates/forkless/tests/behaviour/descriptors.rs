//! The child's descriptors: exactly those it was given, whatever the numbers, however many are
//! open, whoever else opens and closes.

use crate::support::report::{self, Report};
use crate::support::{Case, cases, filter, me, need_root, short_of, skip};
use forkless::{Command, Stdio, Step};
use forkless_sys::{Errno, process};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A pipe whose write end the child reports to, so that 0, 1 and 2 are free for the case.
pub fn report_with(prepare: impl FnOnce(&mut Command)) -> Report {
    let (mut r, w) = std::io::pipe().unwrap();
    let mut c = Command::new(me());
    c.args(report::args(900)).fd(900, w);
    prepare(&mut c);
    let mut child = c.spawn().unwrap();
    drop(c);
    let mut out = Vec::new();
    r.read_to_end(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    Report::parse(&out)
}

fn nothing_but_what_was_given() {
    let plain = std::fs::File::open("/etc/passwd").unwrap();
    let inheritable = rustix::io::fcntl_dupfd_cloexec(&plain, 30).unwrap();
    rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty()).unwrap();
    assert_eq!(report_with(|_| {}).fds(), [0, 1, 2, 900]);
    let r = report_with(|c| {
        c.inherit_descriptors(true);
    });
    assert_eq!(
        r.fds(),
        [0, 1, 2, inheritable.as_raw_fd(), 900],
        "not close-on-exec, so inherited when asked for"
    );
    assert_eq!(r.fd(inheritable.as_raw_fd()), Some("/etc/passwd"));
}

fn swaps_cycles_and_copies() {
    // Files with names to tell them by, at numbers 20..26.
    let files: Vec<OwnedFd> = (0..6)
        .map(|i| {
            let f = File::open(
                ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/shells", "/etc/profile"]
                    [i],
            )
            .unwrap();
            let at = rustix::io::fcntl_dupfd_cloexec(&f, 20 + i as i32).unwrap();
            assert_eq!(at.as_raw_fd(), 20 + i as i32);
            at
        })
        .collect();
    let name =
        |n: usize| std::fs::read_link(format!("/proc/self/fd/{}", 20 + n)).unwrap().display().to_string();
    let copy = |n: usize| Stdio::from(files[n].try_clone().unwrap());
    let _ = copy;
    // Child number <- parent number, through borrowed numbers so that they collide.
    #[expect(unsafe_code, reason = "borrowed numbers stay open in `files`")]
    // SAFETY: `files` outlives every start below.
    let raw = |n: usize| unsafe { Stdio::from_raw_borrowed(20 + n as i32) };
    for map in [
        vec![(20, 1), (21, 0)],
        vec![(20, 1), (21, 2), (22, 0)],
        vec![(20, 1), (21, 2), (22, 3), (23, 4), (24, 5), (25, 0)],
        vec![(20, 5), (21, 5), (22, 5), (5, 5), (1, 5)],
        vec![(20, 0), (21, 0)],
        vec![(0, 3), (2, 4), (700, 0), (701, 0), (702, 702 - 700)],
        vec![(20, 1), (21, 0), (22, 3), (23, 2), (24, 0), (3, 1)],
    ] {
        for inherit in [false, true] {
            let r = report_with(|c| {
                c.inherit_descriptors(inherit);
                for &(to, from) in &map {
                    c.fd(to, raw(from));
                }
            });
            for &(to, from) in &map {
                assert_eq!(
                    r.fd(to),
                    Some(name(from).as_str()),
                    "{to} from {from} in {map:?}, inherit {inherit}"
                );
            }
            let mut want: Vec<i32> = map.iter().map(|m| m.0).chain([0, 1, 2, 900]).collect();
            want.sort_unstable();
            want.dedup();
            assert_eq!(r.fds(), want, "{map:?}, inherit {inherit}");
        }
    }
}

fn high_numbers_and_a_full_table() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum },
    )
    .unwrap();
    let many: Vec<File> = (0..3000).map(|_| File::open("/dev/null").unwrap()).collect();
    let high = File::open("/etc/passwd").unwrap();
    assert!(high.as_raw_fd() >= 3000);
    for nonblocking in [false, true] {
        let (mut r, w) = std::io::pipe().unwrap();
        let mut c = Command::new(me());
        c.args(report::args(900))
            .fd(900, w)
            .fd(7, high.try_clone().unwrap())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = if nonblocking { c.spawn_nonblocking().unwrap() } else { c.spawn().unwrap() };
        drop(c);
        drop((child.stdin.take(), child.stderr.take()));
        let mut out = Vec::new();
        r.read_to_end(&mut out).unwrap();
        child.wait().unwrap();
        let r = Report::parse(&out);
        assert_eq!(r.fds(), [0, 1, 2, 7, 900]);
        assert_eq!(r.fd(7), Some("/etc/passwd"));
    }
    drop(many);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
}

fn null_closed_and_same_as() {
    let r = report_with(|c| {
        c.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::same_as(1))
            .fd(5, Stdio::same_as(0))
            .fd(9, Stdio::null());
    });
    assert_eq!(r.fds(), [0, 1, 2, 5, 9, 900]);
    assert!([0, 1, 2, 5, 9].iter().all(|n| r.fd(*n) == Some("/dev/null")));
    let r = report_with(|c| {
        c.stdin(Stdio::closed()).stdout(Stdio::closed()).stderr(Stdio::closed());
    });
    assert_eq!(r.fds(), [900]);
}

fn numbered_pipes_in_both_directions() {
    let mut c = Command::new("sh");
    c.args(["-c", "cat <&8 >&9"]).fd(8, Stdio::piped_input()).fd(9, Stdio::piped());
    let mut child = c.spawn().unwrap();
    let mut to = File::from(child.take_pipe(8).unwrap());
    to.write_all(b"round").unwrap();
    drop(to);
    let mut said = String::new();
    File::from(child.take_pipe(9).unwrap()).read_to_string(&mut said).unwrap();
    assert_eq!(said, "round");
    assert!(child.take_pipe(9).is_none());
    assert!(child.wait().unwrap().success());
}

/// Closes numbers below 3 for the time of a call.
#[expect(unsafe_code, reason = "closes and restores numbers the process owns")]
fn with_closed<T>(which: &[i32], f: impl FnOnce() -> T) -> T {
    let saved: Vec<(i32, OwnedFd)> = which
        .iter()
        .map(|&n| {
            // SAFETY: 0, 1 and 2 are open and nobody else uses them meanwhile.
            let copy = unsafe { libc::fcntl(n, libc::F_DUPFD_CLOEXEC, 500) };
            assert!(copy >= 500);
            forkless_sys::fd::close(n).unwrap();
            // SAFETY: just made.
            (n, unsafe { OwnedFd::from_raw_fd(copy) })
        })
        .collect();
    let result = f();
    for (n, copy) in saved {
        forkless_sys::fd::dup3(copy.as_raw_fd(), n, 0).unwrap();
    }
    result
}

fn every_combination_of_closed_0_1_2() {
    for bits in 0..8 {
        let closed: Vec<i32> = (0..3).filter(|n| bits & (1 << n) != 0).collect();
        for piped in 0..8 {
            for nonblocking in [false, true] {
                let out = with_closed(&closed, || {
                    let (mut r, w) = std::io::pipe().unwrap();
                    let mut c = Command::new(me());
                    c.args(report::args(900)).fd(900, w);
                    for n in (0..3).filter(|n| piped & (1 << n) != 0) {
                        c.fd(n, Stdio::piped());
                    }
                    let mut child =
                        if nonblocking { c.spawn_nonblocking().unwrap() } else { c.spawn().unwrap() };
                    drop(c);
                    let mut out = Vec::new();
                    r.read_to_end(&mut out).unwrap();
                    let status = child.wait().unwrap();
                    assert!(status.success());
                    assert_eq!(child.stdout.is_some(), piped & 2 != 0);
                    out
                });
                let r = Report::parse(&out);
                let want: Vec<i32> =
                    (0..3).filter(|n| bits & (1 << n) == 0 || piped & (1 << n) != 0).chain([900]).collect();
                assert_eq!(r.fds(), want, "closed {closed:?}, piped {piped:03b}, nonblocking {nonblocking}");
                for n in (0..3).filter(|n| piped & (1 << n) != 0) {
                    assert!(
                        r.fd(n).unwrap().starts_with("pipe:"),
                        "{n} of closed {closed:?}, piped {piped:03b}"
                    );
                }
            }
        }
    }
}

/// Pipes and the pidfd take the lowest free numbers. Where a named number is not open, they could
/// take it.
fn a_closed_descriptor_is_an_error_and_never_one_of_the_librarys_own() {
    let lowest = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let says = |c: &mut Command, what: &str| {
        for nonblocking in [false, true] {
            c.stdin(Stdio::piped());
            let e = if nonblocking { c.spawn_nonblocking() } else { c.spawn() }.unwrap_err();
            assert_eq!((e.step(), e.raw_os_error()), (Step::Descriptors, Some(libc::EBADF)), "{e}");
            assert_eq!(e.what(), Some(what));
        }
    };
    says(Command::new("true").fd(lowest, Stdio::inherit()), &format!("{lowest} from {lowest}"));
    // SAFETY: the number is nobody's. The test is about a number that is not open.
    #[expect(unsafe_code, reason = "breaks a promise on purpose")]
    let closed = unsafe { Stdio::from_raw_borrowed(lowest) };
    says(Command::new("true").fd(7, closed), &format!("7 from {lowest}"));
    with_closed(&[1], || {
        says(Command::new("true").fd(7, Stdio::same_as(1)), "7 from 1");
        // Connected, so the caller's own does not matter.
        let out = Command::new("sh").args(["-c", "echo hi >&7"]).fd(7, Stdio::same_as(1)).output().unwrap();
        assert_eq!(out.stdout, b"hi\n");
    });
}

fn numbers_beyond_any_table_are_an_error_of_the_start() {
    for n in [i32::MAX, i32::MAX - 1, 1 << 30, -1] {
        for inherit in [false, true] {
            let e =
                Command::new("true").fd(n, Stdio::null()).inherit_descriptors(inherit).spawn().unwrap_err();
            assert!(matches!(e.step(), forkless::Step::Command | forkless::Step::Descriptors), "{n}: {e}");
        }
    }
}

/// The child must not look its parent's number up in a PID namespace where another process has it.
#[expect(unsafe_code, reason = "unshare(2) and fork(2)")]
fn a_child_in_another_pid_namespace_gets_its_parents_descriptors() {
    need_root();
    ends_well(|| {
        // SAFETY: takes flags.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            skip("PID namespaces are refused");
        }
        ends_well(starts_beside_another_number_one);
    });
}

/// In a process of its own.
#[expect(unsafe_code, reason = "unshare(2) and fork(2)")]
fn ends_well(body: fn()) {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let ended = std::panic::catch_unwind(body);
        // SAFETY: takes a number.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let ended = process::waitid(process::P_PID, pid, process::WEXITED).unwrap();
    if ended.status == 77 {
        skip("PID namespaces are refused");
    }
    assert_eq!((ended.code, ended.status), (1, 0));
}

#[expect(unsafe_code, reason = "unshare(2) and fork(2)")]
fn starts_beside_another_number_one() {
    const NUMBER: i32 = 100;
    let hold = |text: &[u8]| {
        let (r, mut w) = std::io::pipe().unwrap();
        w.write_all(text).unwrap();
        forkless_sys::fd::dup3(r.as_raw_fd(), NUMBER, forkless_sys::fd::O_CLOEXEC).unwrap();
    };
    assert_eq!(process::getpid(), 1);
    // SAFETY: takes flags.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    hold(b"another process's");
    // SAFETY: this process has one thread.
    let other = unsafe { libc::fork() };
    if other == 0 {
        // SAFETY: takes a number.
        unsafe { libc::alarm(500) };
        loop {
            // SAFETY: waits for the signal.
            unsafe { libc::pause() };
        }
    }
    hold(b"the parent's");
    // SAFETY: nobody else owns it.
    let mine = unsafe { OwnedFd::from_raw_fd(NUMBER) };
    // A start that waits for the exec is one that fetches.
    let child = Command::new("/bin/cat").stdin(mine).stdout(Stdio::piped()).spawn().unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    process::kill(other, 9).unwrap();
    process::waitid(process::P_PID, other, process::WEXITED).unwrap();
    assert_eq!(String::from_utf8(said).unwrap(), "the parent's");
}

/// A number that is fetched instead of copied.
const FAR: i32 = 100;

/// Runs in a thread with a descriptor table of its own. Each thread has a pipe at [`FAR`] that
/// holds the thread's name.
#[expect(unsafe_code, reason = "unshare(2) of one thread")]
fn in_a_table_of_its_own(body: impl FnOnce() + Send) {
    let hold = |text: &[u8]| {
        let (r, mut w) = std::io::pipe().unwrap();
        w.write_all(text).unwrap();
        forkless_sys::fd::dup3(r.as_raw_fd(), FAR, forkless_sys::fd::O_CLOEXEC).unwrap();
    };
    hold(b"the first thread's");
    std::thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: takes flags.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            hold(b"the thread's own");
            body();
        });
    });
    forkless_sys::fd::close(FAR).unwrap();
}

/// Regression: descriptors of 64 and more were fetched from the first thread's table.
fn a_thread_with_a_table_of_its_own_hands_on_its_own_descriptors() {
    const PIDFD_THREAD: u32 = 0o200;
    let before_6_9 =
        || filter::refuse_when(libc::SYS_pidfd_open, 1, PIDFD_THREAD, PIDFD_THREAD, Errno::EINVAL);
    let without_kcmp = || filter::refuse(libc::SYS_kcmp, Errno::EPERM);
    for filters in [vec![], vec![before_6_9()], vec![before_6_9(), without_kcmp()]] {
        in_a_table_of_its_own(|| {
            // This thread's alone.
            if !filters.is_empty() {
                filter::install(&filters);
            }
            #[expect(unsafe_code, reason = "a number that is open until the thread ends")]
            // SAFETY: nobody closes it.
            let own = || unsafe { Stdio::from_raw_borrowed(FAR) };
            let cat = |c: &mut Command| {
                let mut child = c.stdin(own()).stdout(Stdio::piped()).spawn().unwrap();
                let mut said = String::new();
                child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
                child.wait().unwrap();
                said
            };
            // Each child reads on where the last one has stopped.
            let mut c = Command::new("head");
            assert_eq!(cat(c.args(["-c", "10"])), "the thread", "{filters:?}");
            assert_eq!(Command::new("head").args(["-c", "3"]).stdin(own()).output().unwrap().stdout, b"'s ");
            assert_eq!(Command::new("head").args(["-c", "3"]).stdin(own()).output().unwrap().stdout, b"own");
        });
    }
}

/// The stray descriptor has a number that one loop closes, and that is free in the other table.
#[expect(unsafe_code, reason = "unshare(2) of one thread")]
fn becomes_a_program_in_a_table_of_its_own() {
    std::thread::spawn(|| {
        // SAFETY: takes flags.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let null = File::open("/dev/null").unwrap();
        forkless_sys::fd::dup3(null.as_raw_fd(), FAR, 0).unwrap();
        filter::install(&[filter::refuse(libc::SYS_close_range, Errno::ENOSYS)]);
        panic!("{}", Command::new("test").args(["-e", &format!("/proc/self/fd/{FAR}")]).exec());
    })
    .join()
    .unwrap();
}

fn exec_in_place_closes_what_the_calling_thread_has_open() {
    let worker = short_of("becomes_a_program_in_a_table_of_its_own");
    let ended = std::process::Command::new(me()).args(["--bare", worker]).output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
}

pub const WORKERS: &[Case] = &[Case {
    name: "becomes_a_program_in_a_table_of_its_own",
    run: becomes_a_program_in_a_table_of_its_own,
    repeatable: false,
}];

cases![
    nothing_but_what_was_given,
    swaps_cycles_and_copies,
    high_numbers_and_a_full_table,
    null_closed_and_same_as,
    numbered_pipes_in_both_directions,
    every_combination_of_closed_0_1_2,
    a_closed_descriptor_is_an_error_and_never_one_of_the_librarys_own,
    numbers_beyond_any_table_are_an_error_of_the_start,
    exec_in_place_closes_what_the_calling_thread_has_open;
    once a_thread_with_a_table_of_its_own_hands_on_its_own_descriptors, a_child_in_another_pid_namespace_gets_its_parents_descriptors,
];
