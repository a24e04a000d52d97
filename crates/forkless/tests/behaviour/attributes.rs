//! The attributes of a child: user, limits, scheduling, session, terminal, cgroup, death signal.

use crate::descriptors::report_with;
use crate::faults::Dir;
use crate::support::filter::{self, refuse};
use crate::support::report::LIMITS;
use crate::support::{Case, cases, me, need_root, patience, report, short_of, skip};
use forkless::{Command, Resource, Scheduler, Stdio, Step};
use forkless_sys::{Errno, process, sched};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

fn users_groups_and_directory_in_the_order_that_privilege_needs() {
    need_root();
    let r = report_with_public(|c| {
        c.uid(1234).gid(4321).groups(&[7, 8]);
    });
    assert_eq!(r.get("Uid"), "1234 1234 1234 1234");
    assert_eq!(r.get("Gid"), "4321 4321 4321 4321");
    assert_eq!(r.get("Groups"), "7 8");
    let r = report_with_public(|c| {
        c.uid(1234);
    });
    assert_eq!(r.get("Groups"), "", "root's own groups are not handed on");
    // The directory is entered as the new user.
    let dir = Dir::new();
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o700)).unwrap();
    let e = Command::new("/bin/true").uid(1234).current_dir(&dir.0).spawn().unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::Chdir, Some(libc::EACCES)), "{e}");
    assert!(Command::new("/bin/true").current_dir(&dir.0).status().unwrap().success());
    // Only root may raise this limit, so it is set before the user.
    let old = sched::getrlimit(7).unwrap();
    let r = report_with_public(|c| {
        c.uid(1234).rlimit(Resource::OpenFiles, old.hard, old.hard);
    });
    assert_eq!(r.get("limit.nofile"), format!("{} {}", old.hard, old.hard));
}

/// Regression: the process that prepared the command decided whether the groups are given up, and
/// not the process that starts it.
fn a_prepared_command_gives_up_the_groups_of_whoever_starts_it() {
    need_root();
    let groups = rustix::process::getgroups().unwrap();
    rustix::thread::set_thread_groups(&[rustix::process::Gid::from_raw(7)]).unwrap();
    // `id` shows the group besides.
    let mut c = Command::new("id");
    c.arg("-G").uid(1234).gid(1234);
    let by_another = std::thread::spawn(|| {
        // This thread alone.
        forkless_sys::ids::setresuid(1000, 1000, 0).unwrap();
        c.prepare().unwrap()
    });
    let prepared = by_another.join().unwrap();
    // The flag is the memory's.
    process::set_dumpable(1).unwrap();
    assert_eq!(prepared.output().unwrap().stdout, b"1234\n");
    rustix::thread::set_thread_groups(&groups).unwrap();
}

/// Regression: the real user decided, which in a set-user-ID program is the one that called it. Its
/// children got the groups of root.
fn whoever_may_set_groups_hands_none_on_to_another_user() {
    need_root();
    for who in ["effective root", "capability"] {
        for way in ["spawn", "nonblocking", "status", "output", "prepared", "pipeline", "std", "exec"] {
            let mut worker = std::process::Command::new(me());
            worker.args(["--bare", short_of("may_set_groups")]).env("WHO", who).env("WAY", way);
            let out = worker.output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout);
            let ids: Vec<String> =
                said.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            let want = ["Uid: 65534 65534 65534 65534", "Groups:"];
            assert_eq!(ids, want, "{who}, {way}: {}", String::from_utf8_lossy(&out.stderr));
        }
    }
}

#[expect(unsafe_code, reason = "prctl(2)")]
fn may_set_groups() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let groups = [7, 9].map(rustix::process::Gid::from_raw);
    rustix::thread::set_thread_groups(&groups).unwrap();
    if std::env::var("WHO").unwrap() == "capability" {
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) }, 0);
        forkless_sys::ids::setresuid(54_321, 54_321, 54_321).unwrap();
        let both = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let sets = CapabilitySets { effective: both, permitted: both, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).unwrap();
    } else {
        // As a set-user-ID program of root's.
        forkless_sys::ids::setresuid(54_321, 0, 0).unwrap();
    }
    let args = ["-E", "^(Uid|Groups)", "/proc/self/status"];
    let mut c = Command::new("/bin/grep");
    c.args(args).uid(65_534);
    let ended = match std::env::var("WAY").unwrap().as_str() {
        "spawn" => c.spawn().unwrap().wait().unwrap(),
        "nonblocking" => c.spawn_nonblocking().unwrap().wait().unwrap(),
        "status" => c.status().unwrap(),
        "output" => {
            let out = c.output().unwrap();
            std::io::Write::write_all(&mut std::io::stdout(), &out.stdout).unwrap();
            out.status
        }
        "prepared" => c.prepare().unwrap().status().unwrap(),
        "pipeline" => {
            let mut cat = Command::new("/bin/cat");
            cat.uid(65_534);
            c.pipe(cat).status().unwrap()[0]
        }
        "std" => {
            use forkless::process::CommandExt as _;
            forkless::process::Command::new("/bin/grep").args(args).uid(65_534).status().unwrap()
        }
        "exec" => panic!("{}", c.exec()),
        other => panic!("no way {other}"),
    };
    assert!(ended.success(), "{ended}");
}

/// As `report_with`, by a copy that any user may execute.
fn report_with_public(prepare: impl FnOnce(&mut Command)) -> report::Report {
    let dir = Dir::new();
    let copy = dir.0.join("me");
    std::fs::copy(me(), &copy).unwrap();
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (mut r, w) = std::io::pipe().unwrap();
    let mut c = Command::new(&copy);
    c.args(report::args(900)).fd(900, w);
    prepare(&mut c);
    let mut child = c.spawn().unwrap();
    drop(c);
    let mut out = Vec::new();
    r.read_to_end(&mut out).unwrap();
    child.wait().unwrap();
    report::Report::parse(&out)
}

fn without_privilege_the_step_is_named() {
    need_root();
    let out = std::process::Command::new(me()).args(["--bare", short_of("unprivileged")]).output().unwrap();
    eprint!("{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success());
}

#[expect(unsafe_code, reason = "setresuid(2)")]
fn unprivileged() {
    // SAFETY: this process is a worker of its own.
    assert_eq!(unsafe { libc::setresgid(54_321, 54_321, 54_321) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setresuid(54_321, 54_321, 54_321) }, 0);
    let dumpable = process::dumpable();
    type Prepare = fn(&mut Command) -> &mut Command;
    let refused: [(Prepare, Step, &str); 7] = [
        (|c| c.uid(0), Step::Uid, "setuid 0: Operation not permitted"),
        (|c| c.gid(0), Step::Gid, "setgid 0: Operation not permitted"),
        (|c| c.groups(&[1]), Step::Groups, "setgroups [1]: Operation not permitted"),
        (|c| c.chroot("/"), Step::Chroot, "chroot to /: Operation not permitted"),
        (|c| c.nice(-20), Step::Nice, "nice -20: "),
        (|c| c.scheduler(Scheduler::Fifo(10)), Step::Scheduler, "sched_setscheduler policy 1 priority 10: "),
        (|c| c.rlimit(Resource::OpenFiles, u64::MAX, u64::MAX), Step::Rlimit, "setrlimit RLIMIT_NOFILE: "),
    ];
    for (prepare, step, text) in refused {
        let mut c = Command::new("/bin/true");
        let e = prepare(&mut c).spawn().unwrap_err();
        assert_eq!(e.step(), step, "{e}");
        assert!(e.to_string().starts_with(text), "{e}");
        let e = prepare(&mut c).status().unwrap_err();
        assert_eq!(e.step(), step, "{e}");
    }
    // Regression: the first was set, and the second may not raise it.
    let mut c = Command::new("sh");
    c.args(["-c", "ulimit -Hn"]).rlimit(Resource::OpenFiles, 50, 50).rlimit(Resource::OpenFiles, 60, 60);
    assert_eq!(c.output().unwrap().stdout, b"60\n");
    // To the user it is already: no privilege needed.
    assert!(Command::new("/bin/true").uid(54_321).gid(54_321).status().unwrap().success());
    assert_eq!(process::dumpable(), dumpable);
}

/// A change of credentials in shared memory clears the parent's dumpable flag. It must be back
/// afterwards. It must not be back while any such child is still in this memory: the child's new
/// user could read the parent through it.
#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn the_dumpable_flag_is_cleared_while_a_child_of_another_user_is_in_our_memory() {
    need_root();
    static WORST: AtomicI32 = AtomicI32::new(0);
    assert_eq!(process::dumpable(), Ok(1));
    let start = |pause: i64| {
        let mut c = Command::new("/bin/true");
        c.uid(1234);
        // SAFETY: system calls and an atomic.
        unsafe {
            c.pre_exec(move || {
                let until = pause;
                for _ in 0..until {
                    let _ = forkless_sys::time::nanosleep(forkless_sys::time::Timespec {
                        tv_sec: 0,
                        tv_nsec: 1_000_000,
                    });
                    if process::dumpable() == Ok(1) {
                        WORST.store(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            });
        }
        assert!(c.status().unwrap().success());
    };
    std::thread::scope(|s| {
        s.spawn(|| start(60));
        s.spawn(|| (0..20).for_each(|_| start(1)));
        s.spawn(|| (0..10).for_each(|_| start(3)));
    });
    assert_eq!(WORST.load(Ordering::Relaxed), 0, "traceable while another user's child was in our memory");
    assert_eq!(process::dumpable(), Ok(1));
}

/// Regression: a function's own change of credentials, by raw system calls, was not counted. The
/// flag stayed cleared for good, or a start with a user that ended meanwhile put it back.
#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn the_dumpable_flag_is_cleared_while_a_hook_is_another_user() {
    need_root();
    static BECAME: AtomicI32 = AtomicI32::new(0);
    static ENDED: AtomicI32 = AtomicI32::new(0);
    static SEEN: AtomicI32 = AtomicI32::new(-1);
    fn wait_for(word: &AtomicI32) -> std::io::Result<()> {
        for _ in 0..100_000 {
            if word.load(Ordering::SeqCst) == 1 {
                return Ok(());
            }
            let _ =
                forkless_sys::time::nanosleep(forkless_sys::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
        }
        Err(std::io::Error::from_raw_os_error(libc::ETIME))
    }
    assert_eq!(process::dumpable(), Ok(1));
    let mut by_method = Command::new("/bin/true");
    // SAFETY: system calls and an atomic.
    unsafe { by_method.uid(1234).pre_exec(|| wait_for(&BECAME)) };
    let mut by_hook = Command::new("/bin/true");
    let become_another = || {
        forkless_sys::ids::setresuid(1234, 1234, 1234)
            .map_err(|e| std::io::Error::from_raw_os_error(e.raw()))?;
        BECAME.store(1, Ordering::SeqCst);
        wait_for(&ENDED)?;
        SEEN.store(process::dumpable().unwrap_or(-1), Ordering::SeqCst);
        Ok(())
    };
    // SAFETY: system calls and atomics.
    unsafe { by_hook.pre_exec(become_another) };
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(by_method.status().unwrap().success());
            ENDED.store(1, Ordering::SeqCst);
        });
        s.spawn(|| assert!(by_hook.status().unwrap().success()));
    });
    assert_ne!(SEEN.load(Ordering::SeqCst), 1, "its user could read this memory");
    assert_eq!(process::dumpable(), Ok(1));
    // With no other start beside it.
    assert!(by_hook.status().unwrap().success());
    assert_eq!(process::dumpable(), Ok(1));
}

fn umask_limits_and_scheduling() {
    let now: Vec<_> = (0..16).map(|r| sched::getrlimit(r).unwrap()).collect();
    use Resource::*;
    let all = [
        Cpu,
        FileSize,
        Data,
        Stack,
        Core,
        Rss,
        Processes,
        OpenFiles,
        LockedMemory,
        AddressSpace,
        FileLocks,
        PendingSignals,
        MessageQueues,
        Nice,
        RealtimePriority,
        RealtimeTime,
    ];
    let lower = |v: u64, n: u64| if v == u64::MAX { (1 << 40) + n } else { v };
    let r = report_with(|c| {
        for (i, resource) in all.into_iter().enumerate() {
            let hard = lower(now[i].hard, i as u64);
            c.rlimit(resource, lower(now[i].soft, i as u64).min(hard), hard);
        }
        c.umask(0o137).nice(7).scheduler(Scheduler::Batch).affinity([0]);
    });
    for (i, name) in LIMITS.into_iter().enumerate() {
        let hard = lower(now[i].hard, i as u64);
        assert_eq!(
            r.get(&format!("limit.{name}")),
            format!("{} {hard}", lower(now[i].soft, i as u64).min(hard))
        );
    }
    assert_eq!(
        (r.get("Umask"), r.get("nice"), r.get("policy"), r.get("Cpus_allowed_list")),
        ("0137", "7", "Ok((3, 0))", "0")
    );
    let r = report_with(|c| {
        c.scheduler(Scheduler::Idle);
    });
    assert_eq!(r.get("policy"), "Ok((5, 0))");
    let e = Command::new("true").affinity([4000]).spawn().unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::Affinity, Some(libc::EINVAL)));
    let e = Command::new("true").affinity([1 << 20]).spawn().unwrap_err();
    assert_eq!(e.step(), Step::Command);
    let e = Command::new("true").rlimit(Resource::Core, 2, 1).spawn().unwrap_err();
    assert_eq!(e.step(), Step::Rlimit);
}

fn no_new_privileges_and_chroot() {
    let r = report_with(|c| {
        c.no_new_privs(true);
    });
    assert_eq!(r.get("NoNewPrivs"), "1");
    assert_eq!(report_with(|_| {}).get("NoNewPrivs"), "0");
    need_root();
    if !Path::new("/usr/lib64/ld-linux-x86-64.so.2").exists() {
        skip("no programs below /usr that run with it as root directory");
    }
    let out = Command::new("/bin/ls").chroot("/usr").arg("/").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).lines().any(|l| l == "bin"), "{out:?}");
    let out = Command::new("/bin/pwd").chroot("/usr").output().unwrap();
    assert_eq!(out.stdout, b"/\n", "the old directory would be a way out");
    let out = Command::new("/bin/pwd").chroot("/usr").current_dir("/lib").output().unwrap();
    assert_eq!(out.stdout, b"/lib\n");
    let e = Command::new("/bin/true").chroot("/does/not/exist").spawn().unwrap_err();
    assert_eq!(e.step(), Step::Chroot);
}

fn sessions_and_process_groups() {
    let r = report_with(|c| {
        c.setsid(true);
    });
    assert!(r.get("pid") == r.get("session") && r.get("pid") == r.get("pgrp"));
    let r = report_with(|c| {
        c.setsid(true).process_group(0);
    });
    assert_eq!(r.get("pid"), r.get("session"), "a session leader leads its group already");
    let r = report_with(|c| {
        c.process_group(0);
    });
    assert_eq!(r.get("pid"), r.get("pgrp"));
    assert_ne!(r.get("pid"), r.get("session"));
    let mut leader = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
    let r = report_with(|c| {
        c.process_group(leader.id() as i32);
    });
    assert_eq!(r.number("pgrp"), i64::from(leader.id()));
    leader.kill().unwrap();
    leader.wait().unwrap();
    let e = Command::new("true").process_group(1).spawn().unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::ProcessGroup, Some(libc::EPERM)));
}

fn a_terminal_of_its_own_and_the_foreground() {
    let Ok(pty) = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY)
    else {
        skip("no pseudoterminals here");
    };
    rustix::io::fcntl_setfd(&pty, rustix::io::FdFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&pty).unwrap();
    rustix::pty::unlockpt(&pty).unwrap();
    let name = rustix::pty::ptsname(&pty, Vec::new()).unwrap();
    let Ok(terminal) = std::fs::File::options()
        .read(true)
        .write(true)
        .open(Path::new(std::ffi::OsStr::new(name.to_str().unwrap())))
    else {
        skip("the pseudoterminal's other side cannot be opened: no devpts for this ptmx");
    };
    let r = report_with(|c| {
        c.stdin(terminal.try_clone().unwrap()).controlling_terminal(0).foreground(0);
    });
    assert_ne!(r.number("tty"), 0, "no controlling terminal");
    assert_eq!(r.number("tpgid"), r.number("pid"), "not in the foreground");
    assert_eq!(r.get("pid"), r.get("session"));
    let e = Command::new("true").stdin(Stdio::null()).controlling_terminal(0).spawn().unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::Terminal, Some(libc::ENOTTY)), "{e}");
    // Hang-up reaches the session.
    let mut sleeper = Command::new("sleep");
    let mut sleeper = sleeper.arg("60").stdin(terminal).controlling_terminal(0).spawn().unwrap();
    drop(pty);
    let status = sleeper.wait_timeout(patience()).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGHUP));
}

/// A new directory in a cgroup file system.
struct Group(PathBuf);

impl Group {
    fn new(below: &str) -> Group {
        need_root();
        let at = Path::new(below).join(format!("forkless-test-{}", std::process::id()));
        if let Err(e) = std::fs::create_dir(&at) {
            skip(&format!("no cgroup can be made below {below}: {e}"));
        }
        Group(at)
    }

    fn name(&self) -> String {
        self.0.file_name().unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn unified() -> Option<&'static str> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|d| Path::new(d).join("cgroup.controllers").exists())
}

fn born_in_a_cgroup() {
    let Some(root) = unified() else { skip("no unified cgroup hierarchy is mounted") };
    let group = Group::new(root);
    for nonblocking in [false, true] {
        let mut c = Command::new("cat");
        c.arg("/proc/self/cgroup").stdout(Stdio::piped()).cgroup(&group.0);
        let child = if nonblocking { c.spawn_nonblocking() } else { c.spawn() }.unwrap();
        let out = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.lines().any(|l| l.starts_with("0::") && l.ends_with(&group.name())), "{text}");
    }
    let e = Command::new("true").cgroup("/does/not/exist").spawn().unwrap_err();
    assert_eq!(e.to_string(), "join cgroup /does/not/exist: No such file or directory");
    let e = Command::new("true").cgroup("/tmp").spawn().unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::Cgroup, Some(libc::ENOENT)), "{e}");
    // Where the birth there is refused, the child joins.
    let out = std::process::Command::new(me())
        .args(["--bare", short_of("joins_a_cgroup")])
        .env("GROUP", &group.0)
        .output()
        .unwrap();
    eprint!("{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{}", out.status);
}

fn joins_a_cgroup() {
    let dir = std::env::var("GROUP").unwrap();
    filter::install(&[refuse(libc::SYS_clone3, Errno::ENOSYS)]);
    let name = Path::new(&dir).file_name().unwrap().to_str().unwrap().to_owned();
    let out = Command::new("cat").arg("/proc/self/cgroup").cgroup(&dir).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.lines().any(|l| l.ends_with(&name)), "{text}");
    let p = {
        let mut c = Command::new("cat");
        c.arg("/proc/self/cgroup").cgroup(&dir);
        c.prepare().unwrap()
    };
    for _ in 0..2 {
        assert!(String::from_utf8_lossy(&p.output().unwrap().stdout).contains(&name));
    }
}

/// A cgroup that has no memory to give.
fn full_group() -> Group {
    let version_1 = "/sys/fs/cgroup/memory";
    let (root, limit) = match unified() {
        _ if Path::new(version_1).join("cgroup.procs").exists() => (version_1, "memory.limit_in_bytes"),
        Some(root) => (root, "memory.max"),
        None => skip("no cgroup hierarchy is mounted"),
    };
    let group = Group::new(root);
    if let Err(e) = std::fs::write(group.0.join(limit), "4096") {
        drop(group);
        skip(&format!("memory is not limited below {root}: {e}"));
    }
    group
}

/// Regression: the kernel kills all processes that share the memory of its victim, and the child
/// shared this process's memory.
fn a_cgroup_out_of_memory_ends_the_child_alone() {
    let group = full_group();
    let worker = short_of("starts_in_a_full_cgroup");
    let ended = std::process::Command::new(me()).args(["--bare", worker]).env("GROUP", &group.0).output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{} {}", ended.status, String::from_utf8_lossy(&ended.stderr));
}

fn starts_in_a_full_cgroup() {
    let group = std::env::var("GROUP").unwrap();
    // A first start proves the facilities, so that nothing else makes the start wait for the exec.
    // The arguments need memory.
    assert!(Command::new("true").status().unwrap().success());
    let mut c = Command::new("true");
    c.arg("x".repeat(100_000)).cgroup(&group);
    for _ in 0..2 {
        let _ = c.spawn_nonblocking().map(|mut child| child.wait());
        let _ = c.status();
        let _ = c.output();
        let _ = c.communicate().run();
    }
    let prepared = c.prepare().unwrap();
    let _ = prepared.output();
    let _ = prepared.status();
}

fn a_version_1_cgroup_is_joined() {
    let Some(root) = ["pids", "freezer", "cpuacct"]
        .into_iter()
        .map(|c| format!("/sys/fs/cgroup/{c}"))
        .find(|d| Path::new(d).join("cgroup.procs").exists())
    else {
        skip("no version 1 cgroup hierarchy is mounted");
    };
    let group = Group::new(&root);
    let out = Command::new("cat").arg("/proc/self/cgroup").cgroup(&group.0).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.lines().any(|l| l.ends_with(&group.name())), "{text}");
}

/// Starts a child with a death signal, in the way that `HOW` names, prints the child's number, and
/// dies.
fn mortal() {
    let how = std::env::var("HOW").unwrap();
    let user = how.contains("user");
    let start = move || {
        let mut c = Command::new("sleep");
        c.arg("60").stdout(Stdio::null()).parent_death_signal(libc::SIGTERM);
        if user {
            c.uid(1234).gid(1234);
        }
        c.spawn().unwrap()
    };
    let child = if how.contains("thread") { std::thread::spawn(start).join().unwrap() } else { start() };
    // The thread is gone: the child must not be.
    std::thread::sleep(Duration::from_millis(60));
    let alive = process::kill(child.id() as i32, 0).is_ok()
        && !std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") Z ");
    println!("{} {alive}", child.id());
    let _ = process::kill(process::getpid(), libc::SIGKILL);
}

/// In a process group of its own, which a signal to 0 would reach whole.
fn unnumbered() {
    let mut witness = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let mut command = Command::new("true");
    command.parent_death_signal(libc::SIGTERM);
    let prepared = command.prepare().unwrap();
    filter::install(&[refuse(libc::SYS_getpid, Errno::EPERM)]);
    assert!(prepared.status().unwrap().success());
    assert!(Command::new("true").parent_death_signal(libc::SIGTERM).status().unwrap().success());
    assert!(witness.try_wait().unwrap().is_none(), "the whole group was signalled");
    witness.kill().unwrap();
    witness.wait().unwrap();
}

/// Regression: the number that a filter keeps secret was taken for 0, and the child signalled its
/// whole process group.
fn a_death_signal_where_getpid_is_refused_reaches_nobody() {
    use std::os::unix::process::CommandExt as _;
    let mut worker = std::process::Command::new(me());
    let status = worker.args(["--bare", short_of("unnumbered")]).process_group(0).status().unwrap();
    if status.code() == Some(77) {
        skip("no seccomp filters here");
    }
    assert!(status.success(), "{status}");
}

#[expect(unsafe_code, reason = "PR_SET_CHILD_SUBREAPER")]
fn the_death_signal_comes_with_the_process_and_not_with_a_thread() {
    // SAFETY: takes a number.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut hows = vec!["main", "thread"];
    if forkless_sys::ids::getuid() == 0 {
        hows.extend(["main user", "thread user"]);
    }
    for how in hows {
        let mut worker = std::process::Command::new(me())
            .args(["--bare", short_of("mortal")])
            .env("HOW", how)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(worker.stdout.take().unwrap()).read_line(&mut line).unwrap();
        worker.wait().unwrap();
        let (pid, alive) = line.trim().split_once(' ').unwrap_or_else(|| panic!("{how}: {line:?}"));
        assert_eq!(alive, "true", "{how}: the child died with the thread");
        let pid: i32 = pid.parse().unwrap();
        let until = Instant::now() + patience();
        loop {
            // This process is its parent now, since the old one is gone.
            match process::waitid(process::P_PID, pid, process::WEXITED | process::WNOHANG) {
                Ok(i) if i.pid == pid => {
                    assert_eq!(i.status, libc::SIGTERM, "{how}");
                    break;
                }
                Ok(_) => assert!(Instant::now() < until, "{how}: the child outlived its parent"),
                Err(e) => panic!("{how}: {e}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // SAFETY: takes a number.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0) };
}

fn the_death_signal_is_set_after_the_user_and_threads_hand_on_what_is_theirs() {
    let r = std::thread::spawn(|| {
        sched::set_affinity(&[1]).unwrap();
        sched::set_nice(3).unwrap();
        let old = forkless_sys::signal::set_mask(forkless::SigSet::EMPTY.with(libc::SIGHUP)).unwrap();
        let r = report_with(|c| {
            c.parent_death_signal(libc::SIGUSR1).inherit_signals(true);
        });
        forkless_sys::signal::set_mask(old).unwrap();
        r
    })
    .join()
    .unwrap();
    assert_eq!(r.number("pdeathsig"), i64::from(libc::SIGUSR1));
    assert_eq!((r.get("nice"), r.get("Cpus_allowed_list")), ("3", "0"));
    assert_eq!(r.signals("SigBlk"), 1 << (libc::SIGHUP - 1));
    need_root();
    let r = report_with_public(|c| {
        c.uid(1234).parent_death_signal(libc::SIGUSR1);
    });
    assert_eq!(r.number("pdeathsig"), i64::from(libc::SIGUSR1), "cleared by the change of user");
}

/// exec in place.
fn becomes() {
    let mut c = Command::new(me());
    c.args(report::args(1))
        .umask(0o123)
        .parent_death_signal(libc::SIGUSR1)
        .fd(7, Stdio::null())
        .arg0("new name");
    let e = c.exec();
    panic!("{e}");
}

fn fails_to_become() {
    let before = crate::support::guard::descriptors();
    let mask = forkless_sys::signal::set_mask(forkless::SigSet::EMPTY.with(libc::SIGHUP)).unwrap();
    let e = Command::new("/does/not/exist").exec();
    assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory");
    assert_eq!(forkless_sys::signal::set_mask(mask).unwrap(), forkless::SigSet::EMPTY.with(libc::SIGHUP));
    assert_eq!(crate::support::guard::descriptors(), before);
}

fn exec_in_place_becomes_the_program_or_stays_whole() {
    let out = std::process::Command::new(me()).args(["--bare", short_of("becomes")]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let r = report::Report::parse(&out.stdout);
    assert_eq!((r.get("Umask"), r.number("pdeathsig")), ("0123", i64::from(libc::SIGUSR1)));
    assert_eq!(r.fds(), [0, 1, 2, 7]);
    assert!(r.get("cmdline").starts_with("new name|"));
    let out =
        std::process::Command::new(me()).args(["--bare", short_of("fails_to_become")]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
}

cases![
    users_groups_and_directory_in_the_order_that_privilege_needs,
    a_prepared_command_gives_up_the_groups_of_whoever_starts_it,
    whoever_may_set_groups_hands_none_on_to_another_user,
    the_dumpable_flag_is_cleared_while_a_child_of_another_user_is_in_our_memory,
    the_dumpable_flag_is_cleared_while_a_hook_is_another_user,
    umask_limits_and_scheduling,
    no_new_privileges_and_chroot,
    sessions_and_process_groups,
    a_terminal_of_its_own_and_the_foreground,
    born_in_a_cgroup,
    a_version_1_cgroup_is_joined,
    a_cgroup_out_of_memory_ends_the_child_alone,
    the_death_signal_comes_with_the_process_and_not_with_a_thread,
    a_death_signal_where_getpid_is_refused_reaches_nobody,
    the_death_signal_is_set_after_the_user_and_threads_hand_on_what_is_theirs,
    without_privilege_the_step_is_named,
    exec_in_place_becomes_the_program_or_stays_whole,
];
pub const WORKERS: &[Case] = &[
    Case { name: "mortal", run: mortal, repeatable: false },
    Case { name: "unnumbered", run: unnumbered, repeatable: false },
    Case { name: "may_set_groups", run: may_set_groups, repeatable: false },
    Case { name: "unprivileged", run: unprivileged, repeatable: false },
    Case { name: "joins_a_cgroup", run: joins_a_cgroup, repeatable: false },
    Case { name: "starts_in_a_full_cgroup", run: starts_in_a_full_cgroup, repeatable: false },
    Case { name: "becomes", run: becomes, repeatable: false },
    Case { name: "fails_to_become", run: fails_to_become, repeatable: false },
];
