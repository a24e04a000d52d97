//! The process, its children, its credentials and its attributes.
#![expect(unsafe_code, reason = "an exec between fork and exec")]

mod common;

use core::ptr::null;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use common::{in_child, must, status_of};
use forkless_sys::process::{self, P_PID, P_PIDFD, WEXITED, WNOHANG, WaitInfo};
use forkless_sys::sched::{self, Rlimit};
use forkless_sys::{Errno, dispatch, fd, ids};

/// A field of the calling thread's /proc/thread-self/status.
fn status(name: &str) -> String {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

#[test]
fn a_child_is_waited_for_by_pid_and_by_pidfd() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id().cast_signed();
    assert_eq!(process::waitid(P_PID, pid, WEXITED | WNOHANG).unwrap().pid, 0, "it runs");
    // `spawn` returns when the child has left this memory. The kernel notes the exec a moment later
    // (fs/exec.c, begin_new_exec).
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    assert_eq!(process::setpgid_of(pid, 0), Err(Errno::EACCES), "it has executed a program");
    let pidfd = process::pidfd_open(pid).unwrap();
    process::pidfd_send_signal(pidfd, 9, 0).unwrap();
    let end = process::waitid(P_PIDFD, pidfd, WEXITED).unwrap();
    assert_eq!(end, WaitInfo { pid, code: 2, status: 9 }, "CLD_KILLED");
    assert_eq!(process::pidfd_send_signal(pidfd, 0, 0), Err(Errno::ESRCH));
    match process::pidfd_exit_status(pidfd) {
        Ok(status) => assert_eq!(status, Some(9)),
        Err(e) => assert!(matches!(e, Errno::ENOTTY | Errno::EINVAL), "{e}"), // before Linux 6.15
    }
    fd::close(pidfd).unwrap();
    assert!(child.wait().is_err(), "already reaped");

    let pid = Command::new("false").spawn().unwrap().id().cast_signed();
    assert_eq!(process::wait4(pid, 0), Ok(1 << 8));
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    process::kill(child.id().cast_signed(), 15).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

#[test]
fn exec_and_exit_end_this_program() {
    assert_eq!(status_of(|| process::exit_group(3)).unwrap().code(), Some(3));
    let exec = || {
        let argv = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 4".as_ptr(), null()];
        // SAFETY: both vectors end in null.
        Err(unsafe { process::execve(c"/bin/sh".into(), argv.as_ptr(), &null()) })
    };
    assert_eq!(status_of(exec).unwrap().code(), Some(4));
}

#[test]
fn ids_of_the_process_its_thread_its_parent_and_its_group() {
    assert_eq!(process::getpid().cast_unsigned(), std::process::id());
    assert_eq!(process::getppid().cast_unsigned(), std::os::unix::process::parent_id());
    assert_eq!(process::getpgid(process::getpid()), Ok(process::getpgrp()));
    let first = process::getpid();
    in_child(|| must(process::thread_count() == Some(1) && process::unshare_memory() != Err(Errno::EINVAL)));
    let share = move || {
        assert!(process::thread_count() > Some(1));
        let refused = process::unshare_memory();
        assert!(matches!(refused, Err(Errno::EINVAL | Errno::EPERM)), "{refused:?}"); // EPERM: a sandbox
        (process::gettid(), process::share_descriptors(first, process::gettid()))
    };
    let (tid, shared) = std::thread::spawn(share).join().unwrap();
    assert_ne!(tid, first);
    assert!(matches!(shared, Ok(true) | Err(Errno::EPERM | Errno::ENOSYS)), "a container's filter");
    match process::pidfd_open_thread(process::gettid()) {
        Ok(pidfd) => fd::close(pidfd).unwrap(),
        Err(e) => assert!(matches!(e, Errno::EINVAL | Errno::EPERM | Errno::ENOSYS), "{e}"),
    }
    in_child(|| {
        process::setpgid(0)?;
        must(process::getpgrp() == process::getpid() && process::setsid() == Err(Errno::EPERM))
    });
    in_child(|| must(process::setsid()? == process::getpid() && process::getpgrp() == process::getpid()));
}

#[test]
fn directory_root_mask_and_attributes_of_the_process() {
    in_child(|| {
        let mut buf = [0; 4096];
        process::chdir(c"/proc".into())?;
        must(process::getcwd(&mut buf) == Ok(5) && &buf[..5] == b"/proc")?;
        must(process::getcwd(&mut buf[..1]) == Err(Errno::ERANGE))?;
        must(process::chdir(c"/dev/null".into()) == Err(Errno::ENOTDIR))?;
        let root = fd::openat(fd::AT_FDCWD, c"/".into(), fd::O_PATH | fd::O_CLOEXEC, 0)?;
        process::fchdir(root)?;
        must(process::getcwd(&mut buf) == Ok(1))?;
        let before = process::umask(0o077);
        must(process::umask(before) == 0o077)?;
        process::set_dumpable(0)?;
        must(process::dumpable() == Ok(0) && process::set_dumpable(2) == Err(Errno::EINVAL))?;
        process::set_dumpable(1)?;
        process::set_pdeathsig(15)?;
        process::set_pdeathsig(0)?;
        must(process::set_pdeathsig(65) == Err(Errno::EINVAL))?;
        sched::setrlimit(4, Rlimit { soft: 0, hard: 0 })?; // RLIMIT_CORE
        must(sched::getrlimit(4) == Ok(Rlimit { soft: 0, hard: 0 }))?;
        must(sched::getrlimit(1000) == Err(Errno::EINVAL))?;
        sched::set_nice(19)?;
        must(sched::nice() == Ok(19))
    });
    in_child(|| match process::chroot(c"/proc".into()) {
        Ok(()) => {
            process::stat(c"/self/status".into())?;
            process::exit_group(0) // `true` is outside the new root
        }
        Err(e) => must(e == Errno::EPERM),
    });
    assert_eq!(process::may_execute(c"/bin/sh".into()), Ok(()));
    assert_eq!(process::may_execute(c"/dev/null".into()), Err(Errno::EACCES), "not even by root");
    let thread = std::thread::spawn(|| {
        process::set_no_new_privs().unwrap();
        status("NoNewPrivs:")
    });
    assert_eq!(thread.join().unwrap(), "1");
    assert_eq!(process::seccomp_mode().unwrap().to_string(), status("Seccomp:"));
    assert!(process::thp_disabled().is_ok());
}

#[test]
fn memory_usage_counts_pages_and_faults() {
    let before = process::memory_usage().unwrap();
    let filled = std::hint::black_box(vec![1u8; 8 << 20]);
    let after = process::memory_usage().unwrap();
    assert!(after.max_rss_kib > 4 << 10 && after.faults > before.faults, "{before:?} {after:?}");
    drop(filled);
}

#[test]
fn scheduler_and_affinity_are_set_as_they_were_read() {
    let (policy, priority) = sched::scheduler().unwrap();
    sched::set_scheduler(policy, priority).unwrap();
    assert_eq!(sched::set_scheduler(policy, 1000), Err(Errno::EINVAL));
    let thread = std::thread::spawn(|| {
        let mut mask = [0; 128];
        let words = sched::affinity(&mut mask).unwrap();
        let first = mask.iter().position(|word| *word != 0).unwrap();
        let mut one = [0; 128];
        one[first] = 1 << mask[first].trailing_zeros();
        sched::set_affinity(&one[..words]).unwrap();
        assert_eq!((sched::affinity(&mut mask), mask), (Ok(words), one));
    });
    thread.join().unwrap();
    sched::yield_now();
}

/// Each in a thread: credentials are the thread's own here.
#[test]
fn credentials_are_the_calling_threads() {
    let file = std::fs::metadata("/proc/self").unwrap();
    assert_eq!((ids::geteuid(), ids::getegid()), (file.uid(), file.gid()));
    let [real, effective, _] = ids::getresuid().unwrap();
    assert_eq!([real, effective], [ids::getuid(), ids::geteuid()]);
    let [real, effective, _] = ids::getresgid().unwrap();
    assert_eq!([real, effective], [ids::getgid(), ids::getegid()]);
    assert_eq!(ids::file_ids(), Ok([ids::geteuid(), ids::getegid()]));
    let own = ids::capabilities().unwrap();
    assert_eq!(format!("{:016x}", own.effective), status("CapEff:"));
    let bounding = u64::from_str_radix(&status("CapBnd:"), 16).unwrap();
    assert_eq!(ids::bounding_capabilities(), Ok(bounding & ids::OF_A_SHELL));
    assert_eq!(ids::setuid(u32::MAX), Err(Errno::EINVAL));
    ids::setuid(ids::getuid()).unwrap();
    ids::setgid(ids::getgid()).unwrap();
    let groups = std::thread::spawn(|| ids::setgroups(&[]).map(|()| status("Groups:"))).join().unwrap();
    assert!(groups == Ok(String::new()) || groups == Err(Errno::EPERM), "{groups:?}");
    let changed = std::thread::spawn(|| {
        if ids::getresuid() == Ok([0; 3]) && ids::are_a_shells(ids::bounding_capabilities) {
            assert!(!ids::are_a_shells(|| Ok(0)), "an exec would take its capabilities");
            ids::setresuid(ids::KEEP, 65534, ids::KEEP).unwrap();
            assert!(!ids::are_a_shells(ids::bounding_capabilities), "the ids differ");
        }
    });
    changed.join().unwrap();
    assert_eq!(ids::geteuid(), file.uid(), "this thread has its own");
}

#[test]
fn a_dispatched_call_without_a_handler_ends_the_process() {
    let ended = status_of(|| {
        sched::setrlimit(4, Rlimit { soft: 0, hard: 0 })?; // RLIMIT_CORE
        // SAFETY: the next call, the exec, is meant to end the child.
        unsafe { dispatch::on(1, 1) }
    });
    match ended {
        Ok(status) => assert_eq!(status.signal(), Some(31), "SIGSYS"),
        Err(e) => assert_eq!(e, Errno::EINVAL), // not on this kernel or architecture
    }
    assert!(matches!(dispatch::off(), Ok(()) | Err(Errno::EINVAL)));
}
