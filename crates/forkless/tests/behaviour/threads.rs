//! The library's own threads beside the program's: signals that they must answer, locks that they
//! must not hold, attributes that they must not hand on.
#![expect(
    unsafe_code,
    reason = "libc's calls that change the credentials of every thread, and raw ones of a single thread"
)]

use crate::support::report::{self, Report};
use crate::support::{cases, guard, many, me, need_root, until};
use forkless::{Command, OnDrop, Stdio};
use forkless_sys::ids;
use forkless_sys::signal::SigSet;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the process after so many seconds, so that a hang is a failure.
struct Watchdog;

impl Watchdog {
    fn of(seconds: u32) -> Watchdog {
        // SAFETY: takes a number.
        unsafe { libc::alarm(if crate::support::emulated() { 10 * seconds } else { seconds }) };
        Watchdog
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // SAFETY: takes a number.
        unsafe { libc::alarm(0) };
    }
}

/// A thread that does nothing until this is dropped. The first thread answers libc's signals
/// whatever its mask: a program of one thread shows nothing.
struct Second(Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Second {
    fn begin() -> Second {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = wait.recv();
        });
        Second(Some((end, thread)))
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            thread.join().unwrap();
        }
    }
}

/// libc's function, which makes every thread do the same; with the present ids.
fn change_credentials() {
    let (user, group) = (ids::geteuid(), ids::getegid());
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::setresgid(group, group, group) }, 0);
}

/// The masks of the library's own threads.
fn masks_of_ours() -> Vec<(String, SigSet)> {
    let mut masks = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let line = |name: &str| {
            status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        if line("Name:").starts_with("forkless-") {
            let mask = u64::from_str_radix(&line("SigBlk:"), 16).unwrap();
            masks.push((line("Name:"), SigSet(mask)));
        }
    }
    masks
}

/// Waits until the library has so many threads and each of them answers libc's signals. No thread
/// ever lets a handler of the program's run.
///
/// glibc blocks its own signals too while a thread creates another, and until the new thread runs
/// (`nptl/pthread_create.c`). The new thread has its creator's name so long. So a look may find a
/// mask that libc cannot reach, and must be repeated.
fn assert_reachable(threads: usize) -> Vec<(String, SigSet)> {
    let mut masks = Vec::new();
    until("every thread of the library answers libc", || {
        masks = masks_of_ours();
        for (name, mask) in &masks {
            let program = (1..=31).filter(|n| ![libc::SIGKILL, libc::SIGSTOP].contains(n));
            assert!(program.chain(libc::SIGRTMIN()..=64).all(|n| mask.has(n)), "{name}: {mask:?}");
        }
        masks.len() >= threads && masks.iter().all(|(_, mask)| !mask.has(32) && !mask.has(33))
    });
    masks
}

fn credentials_change_beside_every_thread_of_the_library() {
    let _watchdog = Watchdog::of(300);
    let _second = Second::begin();
    let (r, w) = std::io::pipe().unwrap();
    let mut cat = Command::new("/bin/cat");
    drop(cat.stdin(r).stdout(Stdio::null()).spawn().unwrap());
    let mut mortal = std::thread::spawn(|| {
        let mut c = Command::new("sleep");
        c.arg("60").parent_death_signal(libc::SIGTERM).on_drop(OnDrop::Kill).spawn().unwrap()
    })
    .join()
    .unwrap();
    // The reaper, and the thread for the death signal.
    assert_reachable(2);
    change_credentials();
    mortal.kill().unwrap();
    mortal.wait().unwrap();
    drop((w, cat));
    guard::settle(1 + 1);
    change_credentials();
}

fn starts_and_drops_go_on_beside_a_thread_that_changes_credentials() {
    let _watchdog = Watchdog::of(500);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let changing = s.spawn(|| {
            let mut changes = 0;
            while !stop.load(Ordering::Relaxed) {
                change_credentials();
                changes += 1;
            }
            changes
        });
        let workers: Vec<_> = (0..4)
            .map(|n| {
                s.spawn(move || {
                    for i in 0..many(50) {
                        let mut c = Command::new("/bin/true");
                        if (n + i) % 4 == 0 {
                            c.parent_death_signal(libc::SIGTERM);
                        }
                        match i % 3 {
                            // Each drop of a running child after the last one's end makes a thread.
                            0 => drop(Command::new("sleep").arg("0.01").spawn().unwrap()),
                            1 => assert!(c.status().unwrap().success()),
                            _ => drop(c.spawn().unwrap()),
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(changing.join().unwrap() > 0);
    });
    guard::settle(1);
}

/// The thread that reads the output of a line with several pipelines.
fn a_line_s_output_is_read_with_the_program_s_signals_blocked() {
    let own = std::thread::spawn(|| assert_reachable(1));
    let (r, mut w) = std::io::pipe().unwrap();
    // The line's first program ends when the masks have been seen.
    let line = std::thread::spawn(|| forkless::shell("cat; cat /dev/null").stdin(r).output().unwrap());
    let masks = own.join().unwrap();
    w.write_all(b"one\n").unwrap();
    drop(w);
    assert_eq!(line.join().unwrap().stdout, b"one\n");
    assert!(masks.iter().any(|m| m.0 == "forkless-output"), "{masks:?}");
}

/// Attributes of a child of this thread, with a death signal and without. Both run this program,
/// through a descriptor that any user may read.
fn both_reports() -> [Report; 2] {
    let file = std::fs::File::open(me()).unwrap();
    [false, true].map(|with_signal| {
        let (mut r, w) = std::io::pipe().unwrap();
        let mut c = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        c.args(report::args(900)).fd(900, w).fd(file.as_raw_fd(), Stdio::inherit());
        if with_signal {
            c.parent_death_signal(libc::SIGUSR1);
        }
        let mut child = c.spawn().unwrap();
        drop(c);
        let mut out = Vec::new();
        r.read_to_end(&mut out).unwrap();
        assert!(child.wait().unwrap().success());
        Report::parse(&out)
    })
}

/// The reports differ in the signal, and in facts of one process alone.
fn assert_same_identity([without, with]: [Report; 2]) {
    assert_eq!(with.number("pdeathsig"), i64::from(libc::SIGUSR1));
    let kept = |r: &Report| {
        let mut all = r.0.clone();
        all.retain(|key, _| !["pdeathsig", "pid", "fds"].contains(&key.as_str()));
        all
    };
    assert_eq!(kept(&without), kept(&with), "the death signal changed what the child is");
}

/// Runs it in a thread of its own, which it changes for good.
fn in_a_thread(body: impl FnOnce() + Send) {
    std::thread::scope(|s| s.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// By a raw system call, and so for the calling thread alone.
fn raw(number: i64, arguments: [i64; 3]) {
    let [a, b, c] = arguments;
    // SAFETY: numbers only.
    let done = unsafe { libc::syscall(number, a, b, c) };
    assert_eq!(done, 0, "system call {number}: {}", std::io::Error::last_os_error());
}

fn drop_privileges() {
    raw(libc::SYS_setresgid, [65534; 3]);
    raw(libc::SYS_setresuid, [65534; 3]);
    forkless_sys::process::set_no_new_privs().unwrap();
}

fn a_death_signal_gives_a_child_no_other_thread_s_privileges() {
    need_root();
    // Whichever thread asks first, the other thread's child must have none of its attributes.
    for unprivileged_first in [false, true] {
        let privileged = || {
            in_a_thread(|| {
                let both = both_reports();
                assert_eq!((both[1].get("Uid"), both[1].get("NoNewPrivs")), ("0 0 0 0", "0"));
                assert_same_identity(both);
            });
        };
        if !unprivileged_first {
            privileged();
        }
        in_a_thread(|| {
            drop_privileges();
            let both = both_reports();
            assert_eq!(both[1].get("Uid"), "65534 65534 65534 65534");
            assert_eq!((both[1].get("NoNewPrivs"), both[1].get("CapEff")), ("1", "0000000000000000"));
            assert_same_identity(both);
        });
        privileged();
    }
    // The change of user has cleared it, for the whole process.
    forkless_sys::process::set_dumpable(1).unwrap();
    guard::settle(1);
}

fn a_death_signal_keeps_what_is_the_calling_thread_s_own() {
    need_root();
    in_a_thread(|| assert_same_identity(both_reports()));
    in_a_thread(|| {
        // Directory, umask and namespaces of this thread alone; a descriptor table of its own.
        let own = libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
        raw(libc::SYS_unshare, [own.into(), 0, 0]);
        std::env::set_current_dir("/proc").unwrap();
        forkless_sys::process::umask(0o077);
        // SAFETY: both take numbers.
        unsafe { libc::prctl(libc::PR_SET_SECUREBITS, 1 << 2) };
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 123_456) };
        crate::support::filter::install(&[crate::support::filter::refuse(
            libc::SYS_mlockall,
            forkless_sys::Errno::EPERM,
        )]);
        let both = both_reports();
        let it = &both[1];
        assert_eq!((it.get("cwd"), it.get("Umask"), it.get("Seccomp")), ("/proc", "0077", "2"));
        assert_eq!((it.get("securebits"), it.get("timerslack")), ("4", "123456"));
        assert_same_identity(both);
    });
    let both = std::thread::spawn(both_reports).join().unwrap();
    assert_eq!((both[1].get("Seccomp"), both[1].get("securebits")), ("0", "0"), "another thread's");
}

fn a_death_signal_is_refused_where_no_thread_can_be_made() {
    need_root();
    in_a_thread(|| {
        raw(libc::SYS_unshare, [libc::CLONE_NEWPID.into(), 0, 0]);
        let error = Command::new("/bin/true").parent_death_signal(15).status().unwrap_err();
        assert_eq!((error.step(), error.raw_os_error()), (forkless::Step::Clone, Some(libc::EINVAL)));
        assert!(error.to_string().contains("PID namespace"), "{error}");
    });
}

fn a_keeper_ends_with_its_child_however_that_is_reaped() {
    let keepers = || masks_of_ours().iter().filter(|m| m.0 == "forkless-pdeath").count();
    let start = || {
        let mut c = Command::new("/bin/cat");
        let c = c.stdin(Stdio::piped()).stdout(Stdio::null()).parent_death_signal(libc::SIGTERM);
        std::thread::scope(|s| s.spawn(|| c.spawn().unwrap()).join().unwrap())
    };
    let mut waited = start();
    let dropped = start();
    let stolen = start();
    assert_eq!(keepers(), 3);
    assert!(waited.wait().unwrap().success(), "it died with the thread that started it");
    let number = stolen.id() as i32;
    drop((dropped, stolen));
    // The reaper may have been first.
    let _ =
        forkless_sys::process::waitid(forkless_sys::process::P_PID, number, forkless_sys::process::WEXITED);
    guard::settle(1);
}

cases! {
    a_death_signal_gives_a_child_no_other_thread_s_privileges,
    a_death_signal_is_refused_where_no_thread_can_be_made,
    a_keeper_ends_with_its_child_however_that_is_reaped,
    a_line_s_output_is_read_with_the_program_s_signals_blocked,
    credentials_change_beside_every_thread_of_the_library,
    starts_and_drops_go_on_beside_a_thread_that_changes_credentials;
    once a_death_signal_keeps_what_is_the_calling_thread_s_own,
}
