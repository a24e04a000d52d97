//! Everything at once: threads that start children in every way, beside threads that change state
//! of the whole process.
//!
//! Bounded by numbers of operations. `FORKLESS_TORTURE=20000 cargo test -p forkless --test
//! behaviour torture` has each starting thread do so many (`FORKLESS_TORTURE_THREADS` says how many
//! threads) and lasts as long as that takes; the short form is part of every test run. From 100,000
//! operations on the process may hold no more memory and descriptors in the last tenth than in the
//! first.
#![expect(unsafe_code, reason = "hooks, libc's calls on credentials, handlers and the environment, fork(2)")]

use crate::descriptors::report_with;
use crate::signals::handle;
use crate::support::{asked_for, cases, guard, many, patience};
use forkless::{Command, OnDrop, Prepared, Resource, SigSet, Stdio, WaitError};
use forkless_sys::sched::{self, Rlimit};
use forkless_sys::signal;
use forkless_sys::{ids, process};
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static HERE: AtomicI32 = AtomicI32::new(0);
static ELSEWHERE: AtomicI32 = AtomicI32::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Writes to memory that a child shares on its way, so the parent sees it.
extern "C" fn one_handler(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    if process::getpid() != HERE.load(Ordering::Relaxed) {
        ELSEWHERE.store(process::getpid(), Ordering::Relaxed);
    }
}

extern "C" fn other_handler(signal: i32) {
    one_handler(signal);
}

type Way = (&'static str, fn(&Prepared));
type Change = (&'static str, fn(u64));

/// The ways to start a child and to be done with it.
const WAYS: [Way; 24] = [
    ("status", |_| assert!(new("/bin/true").status().unwrap().success())),
    ("status of a failure", |_| assert_eq!(new("/bin/false").status().unwrap().code(), Some(1))),
    ("output", |_| assert_eq!(new("/bin/echo").arg("said").output().unwrap().stdout, b"said\n")),
    ("wait", |_| assert!(new("/bin/true").spawn().unwrap().wait().unwrap().success())),
    ("nonblocking", |_| assert!(new("/bin/true").spawn_nonblocking().unwrap().wait().unwrap().success())),
    ("nonblocking failure", |_| {
        let failed = new("/does/not/exist").spawn_nonblocking().unwrap().wait();
        assert!(matches!(failed, Err(WaitError::Start(e)) if e.raw_os_error() == Some(libc::ENOENT)));
    }),
    ("failure", |_| {
        let e = new("/does/not/exist").spawn().unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ENOENT), "{e}");
    }),
    ("failed step", |_| {
        let e = new("/bin/true").current_dir("/does/not/exist").spawn().unwrap_err();
        assert_eq!(e.step(), forkless::Step::Chdir, "{e}");
    }),
    ("drop of a running child", |_| drop(new("/bin/sleep").arg("0.02").spawn().unwrap())),
    ("drop at once", |_| drop(new("/bin/true").spawn_nonblocking().unwrap())),
    ("drop that kills", |_| drop(new("/bin/sleep").arg("60").on_drop(OnDrop::Kill).spawn().unwrap())),
    ("drop that waits", |_| drop(new("/bin/true").on_drop(OnDrop::Wait).spawn().unwrap())),
    ("deadline", |_| {
        let mut child = new("/bin/sleep").arg("60").spawn().unwrap();
        assert!(matches!(child.wait_timeout(Duration::from_micros(10)), Err(WaitError::Deadline)));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }),
    ("group", |_| {
        let mut child = new("/bin/sleep").arg("60").process_group(0).spawn().unwrap();
        child.signal_group(libc::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }),
    ("death signal", |_| {
        assert!(new("/bin/true").parent_death_signal(libc::SIGTERM).status().unwrap().success());
    }),
    ("death signal, dropped", |_| {
        drop(new("/bin/sleep").arg("0.02").parent_death_signal(libc::SIGTERM).spawn().unwrap());
    }),
    ("prepared", |ready| assert!(ready.status().unwrap().success())),
    ("conversation", |_| {
        let said = new("/bin/cat").communicate().input(&[b'x'; 100_000]).run().unwrap();
        assert_eq!(said.1.stdout.len(), 100_000);
    }),
    ("stopped conversation", |_| {
        let mut yes = new("/usr/bin/yes");
        let said = yes.communicate().on_line(|_, _| ControlFlow::Break(())).run().unwrap();
        assert_eq!(said.1.end, forkless::End::Stopped);
    }),
    ("line", |_| {
        assert_eq!(forkless::shell("cat /dev/null; printenv PATH | wc -l").output().unwrap().stdout, b"1\n")
    }),
    ("pipeline", |_| {
        let mut echo = new("/bin/echo");
        echo.arg("one");
        assert_eq!(echo.pipe(new("/bin/cat")).output().unwrap().stdout, b"one\n");
    }),
    ("hook", |_| {
        let ran = std::sync::Arc::new(AtomicBool::new(false));
        let seen = ran.clone();
        let mut c = new("/bin/true");
        // SAFETY: one store.
        unsafe {
            c.pre_exec(move || {
                seen.store(true, Ordering::Relaxed);
                Ok(())
            });
        }
        assert!(c.status().unwrap().success());
        assert!(ran.load(Ordering::Relaxed));
    }),
    ("attributes", |_| {
        let mut c = new("/bin/true");
        c.umask(0o077).nice(1).rlimit(Resource::Core, 0, 0).current_dir("/");
        if ids::geteuid() == 0 {
            c.uid(1234).gid(1234).groups(&[1, 2]);
        }
        assert!(c.status().unwrap().success());
    }),
    ("descriptors", |_| {
        let kept = File::open("/etc/passwd").unwrap();
        let report = report_with(|c| {
            c.fd(7, kept).stdin(Stdio::null());
        });
        assert_eq!(report.fds(), [0, 1, 2, 7, 900], "a child has what it was not given");
        assert_eq!(report.signals("SigCgt"), 0);
    }),
];

fn new(program: &str) -> Command {
    let mut c = Command::new(program);
    c.stderr(Stdio::null());
    c
}

/// Changes state of the whole process and puts it back, until the starts are done.
const CHANGES: [Change; 7] = [
    ("credentials", |_| {
        let (user, group) = (ids::geteuid(), ids::getegid());
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::setresgid(group, group, group) }, 0);
        if user == 0 {
            // SAFETY: reads no group.
            assert_eq!(unsafe { libc::setgroups(0, std::ptr::null()) }, 0);
        }
    }),
    ("environment", |round| {
        let name = format!("FORKLESS_TORTURE_{}", round % 50);
        // SAFETY: nothing here reads the environment but through std and the library, which take
        // std's lock.
        unsafe { std::env::set_var(&name, "x".repeat(round as usize % 100)) };
        // SAFETY: as above.
        unsafe { std::env::remove_var(&name) };
    }),
    ("directory", |round| std::env::set_current_dir(["/", "/usr", "/etc"][round as usize % 3]).unwrap()),
    ("limits", |round| {
        // Above the number of descriptors that all threads here have open at once.
        let hard = sched::getrlimit(NOFILE).unwrap().hard;
        let soft = if round % 2 == 0 { hard } else { hard.min(1024) };
        sched::setrlimit(NOFILE, Rlimit { soft, hard }).unwrap();
        let core = sched::getrlimit(CORE).unwrap().hard;
        sched::setrlimit(CORE, Rlimit { soft: core.min(round % 2), hard: core }).unwrap();
    }),
    ("handlers", |round| {
        for number in [libc::SIGUSR1, libc::SIGUSR2] {
            match round % 3 {
                0 => handle(number, one_handler),
                1 => handle(number, other_handler),
                _ => signal::reset(number, true).unwrap(),
            }
        }
        // To the process and to this thread: whichever thread takes it, none of the library's does.
        process::kill(process::getpid(), libc::SIGUSR1).unwrap();
        process::tgkill(process::getpid(), process::gettid(), libc::SIGUSR2).unwrap();
    }),
    ("descriptors", |_| {
        // Inheritable, so that only the library keeps them from the children.
        let file = File::open("/etc/passwd").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let copy = rustix::io::dup(&file).unwrap();
        let to = std::fs::read_link(format!("/proc/self/fd/{}", copy.as_raw_fd())).unwrap();
        assert_eq!(to.to_str(), Some("/etc/passwd"), "a number of this thread's leads elsewhere");
    }),
    ("forks", |_| {
        // SAFETY: the new process ends at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            process::exit_group(0);
        }
        assert!(pid > 0, "{}", std::io::Error::last_os_error());
        while process::waitid(process::P_PID, pid, process::WEXITED) == Err(forkless_sys::Errno::EINTR) {}
    }),
];

const NOFILE: u32 = 7;
const CORE: u32 = 4;

/// The state of the process before.
struct Before {
    limits: [(u32, Rlimit); 2],
    directory: std::path::PathBuf,
}

impl Before {
    fn now() -> Before {
        Before {
            limits: [NOFILE, CORE].map(|n| (n, sched::getrlimit(n).unwrap())),
            directory: std::env::current_dir().unwrap(),
        }
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        for (number, limit) in self.limits {
            sched::setrlimit(number, limit).unwrap();
        }
        std::env::set_current_dir(&self.directory).unwrap();
        for number in [libc::SIGUSR1, libc::SIGUSR2] {
            signal::reset(number, false).unwrap();
        }
    }
}

/// The most that the process held while something was going on.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Private memory, kilobytes.
    memory: u64,
    descriptors: usize,
    samples: usize,
}

impl Held {
    fn sample(&mut self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        self.memory = self.memory.max(memory.trim().trim_end_matches(" kB").parse().unwrap());
        self.descriptors = self.descriptors.max(std::fs::read_dir("/proc/self/fd").unwrap().count());
        self.samples += 1;
    }

    /// A long run holds no more in its last tenth than in its first one.
    fn assert_flat(first: Held, last: Held) {
        println!("in the first tenth at most {first:?}, in the last {last:?}");
        assert!(first.samples > 0 && last.samples > 0, "too short a run to tell");
        assert!(last.memory <= first.memory + 16 * 1024, "memory grows: {first:?}, {last:?}");
        assert!(last.descriptors <= 2 * first.descriptors, "descriptors grow: {first:?}, {last:?}");
    }
}

/// Operations from which on a run is long.
const LONG: usize = 100_000;

/// Ends the process when no thread makes progress any more, and names the operation of each.
/// Returns what the process held in the first and the last tenth of `total` operations.
fn watch(total: usize, done: &AtomicUsize, doing: &[AtomicUsize], joined: &AtomicBool) -> [Held; 2] {
    let mut last = 0;
    let mut held = [Held::default(); 2];
    let mut late = Instant::now() + patience();
    while !joined.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        let now = done.load(Ordering::Relaxed);
        if now < total / 10 {
            held[0].sample();
        } else if now > total - total / 10 {
            held[1].sample();
        }
        if now != last {
            last = now;
            late = Instant::now() + patience();
        }
        if Instant::now() > late {
            let names: Vec<_> = doing.iter().map(|way| WAYS[way.load(Ordering::Relaxed)].0).collect();
            let _ = writeln!(std::io::stderr(), "nothing gets on after {now} operations: {names:?}");
            process::exit_group(1);
        }
    }
    held
}

fn everything_at_once() {
    let each = asked_for("FORKLESS_TORTURE").unwrap_or(many(72));
    let threads = asked_for("FORKLESS_TORTURE_THREADS").unwrap_or(6);
    let before = Before::now();
    HERE.store(process::getpid(), Ordering::Relaxed);
    handle(libc::SIGUSR1, one_handler);
    handle(libc::SIGUSR2, one_handler);
    let ready = Command::new("/bin/true").prepare().unwrap();
    let (done, over, joined) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let doing: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|s| {
        // First, since making a thread may hang.
        let watching = s.spawn(|| watch(threads * each, &done, &doing, &joined));
        let starting: Vec<_> = (0..threads)
            .map(|t| {
                let (done, doing, ready) = (&done, &doing, &ready);
                s.spawn(move || {
                    // Each with a mask of its own.
                    let mask = SigSet::EMPTY.with(libc::SIGRTMIN() + t as i32 % 20).with(libc::SIGHUP);
                    signal::set_mask(mask).unwrap();
                    for i in 0..each {
                        // Each thread goes through the ways in an order of its own.
                        let way = (i * [1, 5, 7, 11, 13, 17][t % 6] + t) % WAYS.len();
                        doing[t].store(way, Ordering::Relaxed);
                        WAYS[way].1(ready);
                        assert_eq!(signal::mask().unwrap(), mask, "{} changed the mask", WAYS[way].0);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let changing = CHANGES.map(|(name, change)| {
            let over = &over;
            s.spawn(move || {
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    change(round);
                    round += 1;
                    // So that a machine with few processors gets on with the starts, too.
                    std::thread::sleep(Duration::from_micros(100));
                }
                println!("{name}: {round} times");
                assert!(round > 0);
            })
        });
        let mut ended: Vec<_> = starting.into_iter().map(|t| t.join()).collect();
        over.store(true, Ordering::Relaxed);
        ended.extend(changing.map(|t| t.join()));
        joined.store(true, Ordering::Relaxed);
        let watched = watching.join();
        for ended in ended {
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        let [first, last] = watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if threads * each >= LONG {
            Held::assert_flat(first, last);
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), threads * each);
    assert_eq!(ELSEWHERE.load(Ordering::Relaxed), 0, "a handler ran in a child");
    println!("{} operations, {} signals handled", threads * each, HANDLED.load(Ordering::Relaxed));
    drop(before);
    drop(ready);
    guard::settle(1);
}

cases! {
    ; once everything_at_once,
}
