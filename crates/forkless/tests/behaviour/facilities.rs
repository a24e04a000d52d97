//! A facility that the kernel or a filter refuses is replaced by another way, with the same result.
//! It is refused from the start, or only after it has worked. The refusals are seccomp filters,
//! each in a process of its own.

use crate::support::filter::{self, Rule, refuse, refuse_when};
use crate::support::guard;
use crate::support::report::{self, Report};
use crate::support::{cases, kernel, me, short_of, until};
use forkless::{Command, Facility, OnDrop, SigSet, Stdio, WaitError, facilities};
use forkless_sys::{Errno, signal};
use std::io::{Read, Write};
use std::time::Duration;

const PIDFD_FLAG: u32 = 0x1000;
const P_PIDFD: u32 = 3;
const PIDFD_GET_INFO: u32 = (3 << 30) | (64 << 16) | (0xFF << 8) | 11;

struct Refused {
    name: &'static str,
    rules: fn(Errno) -> Vec<Rule>,
    /// Facilities that must be reported as refused afterwards.
    shows: &'static [&'static str],
    /// Whether the status of a child that the kernel reaped is still to be had.
    keeps_status: bool,
}

/// Since this version the kernel keeps the status of a child that other code reaped.
const KEEPS_STATUS: (u32, u32) = (6, 15);

/// Facilities that came after Linux 5.10.
const LATER: &[(&str, (u32, u32))] = &[("CLOSE_RANGE_CLOEXEC", (5, 11)), ("PIDFD_GET_INFO", KEEPS_STATUS)];

const ALL: &[Refused] = &[
    Refused { name: "nothing", rules: |_| vec![], shows: &[], keeps_status: true },
    Refused {
        name: "clone3",
        rules: |e| vec![refuse(libc::SYS_clone3, e)],
        shows: &["clone3", "CLONE_CLEAR_SIGHAND", "CLONE_INTO_CGROUP"],
        keeps_status: true,
    },
    Refused {
        name: "clone3 and CLONE_PIDFD",
        rules: |e| {
            vec![refuse(libc::SYS_clone3, e), refuse_when(libc::SYS_clone, 0, PIDFD_FLAG, PIDFD_FLAG, e)]
        },
        shows: &["clone3"],
        keeps_status: true,
    },
    Refused {
        name: "every pidfd",
        rules: |e| {
            vec![
                refuse(libc::SYS_clone3, e),
                refuse_when(libc::SYS_clone, 0, PIDFD_FLAG, PIDFD_FLAG, e),
                refuse(libc::SYS_pidfd_open, e),
            ]
        },
        shows: &["clone3", "CLONE_PIDFD"],
        keeps_status: false,
    },
    Refused {
        name: "pidfd_open",
        rules: |e| vec![refuse(libc::SYS_pidfd_open, e)],
        shows: &["pidfd_getfd"],
        keeps_status: true,
    },
    Refused {
        name: "pidfd_send_signal",
        rules: |e| vec![refuse(libc::SYS_pidfd_send_signal, e)],
        shows: &["pidfd_send_signal"],
        keeps_status: true,
    },
    Refused {
        name: "waitid P_PIDFD",
        rules: |e| vec![refuse_when(libc::SYS_waitid, 0, u32::MAX, P_PIDFD, e)],
        shows: &["waitid P_PIDFD"],
        keeps_status: true,
    },
    // Its predecessor is all that libc's system(3) and waitpid(3) need.
    Refused {
        name: "waitid",
        rules: |e| vec![refuse(libc::SYS_waitid, e)],
        shows: &["waitid P_PIDFD"],
        keeps_status: true,
    },
    Refused {
        name: "waitid and pidfd_send_signal",
        rules: |e| vec![refuse(libc::SYS_waitid, e), refuse(libc::SYS_pidfd_send_signal, e)],
        shows: &["waitid P_PIDFD", "pidfd_send_signal"],
        keeps_status: true,
    },
    Refused {
        name: "close_range",
        rules: |e| vec![refuse(libc::SYS_close_range, e)],
        shows: &["close_range", "CLOSE_RANGE_UNSHARE"],
        keeps_status: true,
    },
    Refused {
        name: "CLOSE_RANGE_UNSHARE",
        rules: |e| vec![refuse_when(libc::SYS_close_range, 2, 2, 2, e)],
        shows: &["CLOSE_RANGE_UNSHARE"],
        keeps_status: true,
    },
    // As Yama does, which says EPERM.
    Refused {
        name: "pidfd_getfd",
        rules: |e| vec![refuse(libc::SYS_pidfd_getfd, e)],
        shows: &["pidfd_getfd"],
        keeps_status: true,
    },
    Refused {
        name: "PIDFD_GET_INFO",
        rules: |e| vec![refuse_when(libc::SYS_ioctl, 1, u32::MAX, PIDFD_GET_INFO, e)],
        shows: &["PIDFD_GET_INFO"],
        keeps_status: false,
    },
    Refused {
        name: "all of them",
        rules: |e| ALL[1..ALL.len() - 1].iter().flat_map(|r| (r.rules)(e)).collect(),
        shows: &["clone3", "CLONE_PIDFD", "close_range"],
        keeps_status: false,
    },
];

extern "C" fn ignore_it(_: i32) {}

#[expect(unsafe_code, reason = "signal(2)")]
fn set_signals() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, ignore_it as *const () as usize) };
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
}

/// A sample of everything, with the results it must have.
fn battery() {
    let high = rustix::io::fcntl_dupfd_cloexec(std::fs::File::open("/etc/passwd").unwrap(), 300).unwrap();
    for nonblocking in [false, true] {
        let (mut r, w) = std::io::pipe().unwrap();
        let mut c = Command::new(me());
        c.args(report::args(9))
            .fd(9, w)
            .stdin(high.try_clone().unwrap())
            .fd(7, Stdio::piped())
            .umask(0o027)
            .process_group(0);
        let mut child = if nonblocking { c.spawn_nonblocking() } else { c.spawn() }.unwrap();
        drop(c);
        let mut out = Vec::new();
        r.read_to_end(&mut out).unwrap();
        assert!(child.wait().unwrap().success());
        let r = Report::parse(&out);
        assert_eq!(r.fds(), [0, 1, 2, 7, 9]);
        assert_eq!(r.fd(0), Some("/etc/passwd"));
        assert_eq!((r.get("Umask"), r.get("pid")), ("0027", r.get("pgrp")));
        assert_eq!(r.signals("SigCgt"), 0, "a handler survived");
        assert_eq!(r.signals("SigBlk"), 0);
        let ours = (1..=64).filter(|n| signal::disposition(*n) == Ok(signal::Disposition::Ignore));
        let want = ours.fold(SigSet::EMPTY, SigSet::with).without(libc::SIGPIPE);
        assert!(want.has(libc::SIGUSR2));
        assert_eq!(r.signals("SigIgn"), want.0, "ignored stays ignored, SIGPIPE does not");
    }
    let e = Command::new("/does/not/exist").spawn().unwrap_err();
    assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory");
    let mut late = Command::new("/does/not/exist").spawn_nonblocking().unwrap();
    for _ in 0..2 {
        assert!(matches!(late.wait(), Err(WaitError::Start(e)) if e.step() == forkless::Step::Exec));
    }
    let mut sleeper = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
    assert!(sleeper.try_wait().unwrap().is_none());
    assert!(matches!(sleeper.wait_timeout(Duration::from_millis(5)), Err(WaitError::Deadline)));
    sleeper.signal(libc::SIGTERM).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleeper.wait().unwrap()), Some(libc::SIGTERM));
    sleeper.kill().unwrap();
    let mut group = Command::new("sh").args(["-c", "sleep 60 & wait"]).process_group(0).spawn().unwrap();
    group.kill_group().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&group.wait().unwrap()), Some(libc::SIGKILL));
    let mut gone = Command::new("sleep");
    drop(gone.arg("60").on_drop(OnDrop::Kill).spawn().unwrap());
    let mut alone = Command::new("true");
    drop(alone.spawn().unwrap());
    // A thread of the library's makes it, and must end after it. glibc makes no thread where clone3
    // is EPERM.
    let start = || Command::new("true").parent_death_signal(libc::SIGKILL).status();
    if let Ok(starting) = std::thread::Builder::new().spawn(start) {
        assert!(starting.join().unwrap().unwrap().success());
    }
    let input = vec![b'x'; 300_000];
    let (status, said) = Command::new("cat").communicate().input(&input).run().unwrap();
    assert!(status.success() && said.stdout == input);
    assert_eq!(Command::new("sh").args(["-c", "exit 7"]).status().unwrap().code(), Some(7));
    // A copy of its standard error is kept until its status is known.
    let said = forkless::shell("/bin/echo said").output().unwrap();
    assert_eq!((said.status.code(), said.stdout), (Some(0), b"said\n".to_vec()));
    // A grandchild that keeps the pipe for longer than the wait.
    let mut leaves = Command::new("sh");
    leaves.args(["-c", "sleep 60 & echo $!"]);
    let (status, said) = leaves.communicate().linger(Duration::from_millis(10)).run().unwrap();
    assert!(status.success());
    assert_eq!(said.end, forkless::End::Lingered);
    let left: i32 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    forkless_sys::process::kill(left, libc::SIGKILL).unwrap();
}

/// One worker: the filter is named by the environment.
fn worker() {
    let env = |k: &str| std::env::var(k).expect(k);
    let what = &ALL[env("WHAT").parse::<usize>().unwrap()];
    let errno = if env("ERRNO") == "EPERM" { Errno::EPERM } else { Errno::ENOSYS };
    set_signals();
    let before = guard::descriptors();
    let mask = signal::mask().unwrap();
    if env("WHEN") == "later" {
        battery();
        let _ = facilities();
    }
    let ready = Command::new("/bin/true").prepare().unwrap();
    if env("WHEN") == "later" {
        ready.status().unwrap();
    }
    filter::install(&(what.rules)(errno));
    // Whichever way of starting comes first meets the refusal.
    match env("FIRST").as_str() {
        "status" => assert!(Command::new("/bin/true").status().unwrap().success()),
        "prepared" => assert!(ready.status().unwrap().success()),
        "nonblocking" => {
            assert!(Command::new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap().success())
        }
        "output" => assert_eq!(Command::new("echo").output().unwrap().stdout, b"\n"),
        _ => {}
    }
    battery();
    let table = facilities();
    for name in what.shows {
        let f = table.iter().find(|f| f.name == *name).unwrap();
        assert_eq!(f.state, Facility::Refused(errno.raw()), "{name} is to show as refused");
    }
    if what.name == "nothing" {
        for f in &table {
            let since = LATER.iter().find(|(name, _)| *name == f.name).map_or((5, 10), |(_, since)| *since);
            assert_eq!(f.state == Facility::Works, kernel() >= since, "{}: {:?}", f.name, f.state);
        }
    }
    // The reaper of dropped children ends with them. Where it cannot be made, the next start does
    // its work.
    until("the dropped child is reaped", || {
        let _ = Command::new("").spawn();
        !guard::has_children()
    });
    guard::settle(1);
    guard::assert_no_children();
    signal::reset(libc::SIGCHLD, true).unwrap();
    // It ends after its start has returned. Where the clone gives no pidfd, pidfd_open comes later,
    // and the kernel must not have forgotten the child by then.
    let keeps_status = what.keeps_status && kernel() >= KEEPS_STATUS;
    let mut until_told = Command::new("sh");
    until_told.args(["-c", "read line; exit 5"]).stdin(Stdio::piped());
    let mut reaped = until_told.spawn().unwrap();
    drop(reaped.stdin.take());
    match reaped.wait() {
        Ok(status) => assert!(keeps_status && status.code() == Some(5), "{status}"),
        Err(WaitError::Unknown) => assert!(!keeps_status, "the status was to be had"),
        Err(e) => panic!("{e}"),
    }
    drop(reaped);
    assert_eq!(guard::descriptors(), before);
    assert_eq!(signal::mask().unwrap(), mask);
}

fn workers(when: &str) {
    for (i, what) in ALL.iter().enumerate() {
        for (n, errno) in ["EPERM", "ENOSYS"].into_iter().enumerate() {
            // Not every combination: each way of starting meets each refusal with one of the two
            // errors.
            let ways =
                if n == 0 { ["spawn", "status", "output"] } else { ["prepared", "nonblocking", "spawn"] };
            for first in ways {
                let out = std::process::Command::new(me())
                    .args(["--bare", short_of(concat!(module_path!(), "::worker"))])
                    .envs([
                        ("WHAT", i.to_string().as_str()),
                        ("ERRNO", errno),
                        ("WHEN", when),
                        ("FIRST", first),
                    ])
                    .output()
                    .unwrap();
                std::io::stdout().write_all(&out.stdout).unwrap();
                std::io::stderr().write_all(&out.stderr).unwrap();
                if out.status.code() == Some(77) {
                    crate::support::skip("no seccomp filters here");
                }
                assert!(
                    out.status.success(),
                    "{} refused with {errno}, {when}, {first} first: {}",
                    what.name,
                    out.status
                );
            }
        }
    }
}

fn refused_from_the_start() {
    workers("first");
}

fn refused_after_it_has_worked() {
    workers("later");
}

/// The first child of a new PID namespace is its init.
#[expect(unsafe_code, reason = "unshare(2)")]
fn in_a_new_namespace() {
    // SAFETY: takes flags.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        crate::support::skip("PID namespaces are refused");
    }
    filter::install(&[refuse(libc::SYS_clone3, Errno::ENOSYS)]);
    let _ = facilities();
    assert_eq!(Command::new("sh").args(["-c", "echo $$"]).output().unwrap().stdout, b"1\n");
}

/// Regression: where clone3 is refused, the trial of shared memory was the init. The namespace
/// ended with it, and the program's child could not be made (`ENOMEM`).
fn no_trial_takes_the_init_of_a_new_pid_namespace() {
    let mut worker = std::process::Command::new(me());
    let status = worker.args(["--bare", short_of("in_a_new_namespace")]).status().unwrap();
    if status.code() == Some(77) {
        crate::support::skip("PID namespaces or seccomp filters are refused");
    }
    assert!(status.success(), "{status}");
}

/// In an emulator that carries a vfork out as a fork.
fn emulated() {
    let shares = facilities().iter().any(|f| f.name == "CLONE_VM" && f.state.works());
    println!("memory is shared: {shares}");
    let before = guard::descriptors();
    let maps = guard::mappings();
    for _ in 0..3 {
        let out = Command::new("sh")
            .args(["-c", "cat; umask; echo err >&2; exit 3"])
            .umask(0o027)
            .output()
            .unwrap();
        assert_eq!(
            (out.status.code(), out.stdout, out.stderr),
            (Some(3), b"0027\n".to_vec(), b"err\n".to_vec())
        );
        let e = Command::new("/does/not/exist").spawn().unwrap_err();
        assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory");
        let e = Command::new("true").current_dir("/nowhere").status().unwrap_err();
        assert_eq!(e.to_string(), "chdir to /nowhere: No such file or directory");
        let (mut r, w) = std::io::pipe().unwrap();
        let mut c = Command::new("sh");
        c.args(["-c", "echo through >&7"]).fd(7, w);
        let mut child = c.spawn_nonblocking().unwrap();
        drop(c);
        let mut said = String::new();
        r.read_to_string(&mut said).unwrap();
        assert!(said == "through\n" && child.wait().unwrap().success());
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(sleeper.try_wait().unwrap().is_none(), "the start waited for the end of the program");
        sleeper.kill().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleeper.wait().unwrap()), Some(9));
    }
    assert_eq!(guard::descriptors(), before);
    assert!(guard::mappings() <= maps + 8);
    guard::assert_no_children();
}

fn an_emulator_whose_vfork_is_a_fork() {
    let emulator = format!("qemu-{}", std::env::consts::ARCH);
    let run = std::process::Command::new(&emulator).arg(me()).args(["--bare", short_of("emulated")]).output();
    let out = match run {
        Ok(out) => out,
        Err(e) => crate::support::skip(&format!("{emulator} (Debian's qemu-user): {e}")),
    };
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    if said.contains("memory is shared: true") {
        crate::support::skip(&format!("this {emulator} shares memory after all"));
    }
}

cases![; once refused_from_the_start, refused_after_it_has_worked, an_emulator_whose_vfork_is_a_fork,
    no_trial_takes_the_init_of_a_new_pid_namespace];
pub const WORKERS: &[crate::support::Case] = &[
    crate::support::Case { name: concat!(module_path!(), "::worker"), run: worker, repeatable: false },
    crate::support::Case { name: "in_a_new_namespace", run: in_a_new_namespace, repeatable: false },
    crate::support::Case { name: "emulated", run: emulated, repeatable: false },
];
