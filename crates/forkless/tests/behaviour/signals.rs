//! No handler of the parent's ever runs in a child, the program starts with the signals it is
//! given, and nothing here needs SIGCHLD.

use crate::descriptors::report_with;
use crate::support::filter::{self, refuse};
use crate::support::{Case, cases, me, patience, short_of, skip};
use forkless::{Command, SigSet, Stdio, WaitError};
use forkless_sys::signal::{self, Disposition};
use forkless_sys::{Errno, process};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static HERE: AtomicI32 = AtomicI32::new(0);
static ELSEWHERE: AtomicI32 = AtomicI32::new(0);
static RUNS: AtomicI32 = AtomicI32::new(0);

/// Writes to memory the child shares, so the parent sees it.
extern "C" fn note_process(_: i32) {
    let me = process::getpid();
    RUNS.fetch_add(1, Ordering::Relaxed);
    if me != HERE.load(Ordering::Relaxed) {
        ELSEWHERE.store(me, Ordering::Relaxed);
    }
}

#[expect(unsafe_code, reason = "sigaction(2)")]
pub fn handle(signal: i32, f: extern "C" fn(i32)) {
    // SAFETY: the handlers of this file make system calls and atomic stores only; SA_RESTART is
    // what libc's signal() sets.
    unsafe { libc::signal(signal, f as *const () as usize) };
}

/// Signals the whole process group, children included, while they are started.
fn hammer_while(f: impl Fn()) {
    HERE.store(process::getpid(), Ordering::Relaxed);
    handle(libc::SIGUSR1, note_process);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                process::kill(0, libc::SIGUSR1).unwrap();
                std::hint::spin_loop();
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(700)
            || RUNS.load(Ordering::Relaxed) <= 100 && begun.elapsed() < patience()
        {
            f();
        }
        stop.store(true, Ordering::Relaxed);
    });
    signal::reset(libc::SIGUSR1, false).unwrap();
    assert!(RUNS.load(Ordering::Relaxed) > 100, "the handler hardly ran");
    assert_eq!(ELSEWHERE.load(Ordering::Relaxed), 0, "the handler ran in a child");
}

fn one_of_each() {
    // SIGUSR1 kills children whose mask has been lifted: any end is fine, the handler is what
    // counts.
    let _ = Command::new("/bin/true").spawn().map(|mut c| c.wait());
    let _ = Command::new("/bin/true").spawn_nonblocking().map(|mut c| c.wait());
    let _ = Command::new("/does/not/exist").spawn_nonblocking().map(|mut c| c.wait());
}

fn a_handler_of_the_parent_never_runs_in_a_child() {
    hammer_while(one_of_each);
}

/// The worker: the runner's process group is not to be hammered, so it makes its own.
fn hammered_without_clone3() {
    process::setpgid(0).unwrap();
    one_of_each();
    filter::install(&[refuse(libc::SYS_clone3, Errno::ENOSYS)]);
    hammer_while(one_of_each);
}

fn hammered_without_clone3_from_the_start() {
    process::setpgid(0).unwrap();
    filter::install(&[refuse(libc::SYS_clone3, Errno::ENOSYS)]);
    hammer_while(one_of_each);
}

fn bare(name: &'static str) -> std::process::ExitStatus {
    let out = std::process::Command::new(me()).args(["--bare", short_of(name)]).output().unwrap();
    print!("{}", String::from_utf8_lossy(&out.stdout));
    eprint!("{}", String::from_utf8_lossy(&out.stderr));
    if out.status.code() == Some(77) {
        crate::support::skip("no seccomp filters here");
    }
    out.status
}

fn nor_where_the_child_resets_the_handlers_itself() {
    assert!(bare("hammered_without_clone3").success());
    assert!(bare("hammered_without_clone3_from_the_start").success());
}

#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn every_signal_is_blocked_and_every_handler_gone_until_exec() {
    static MASK: AtomicU64 = AtomicU64::new(0);
    static HANDLERS: AtomicI32 = AtomicI32::new(-1);
    handle(libc::SIGUSR1, note_process);
    MASK.store(0, Ordering::Relaxed);
    let mut c = Command::new("/bin/true");
    // SAFETY: system calls and atomic stores, into memory that is shared: that is how the parent
    // gets to know.
    unsafe {
        c.pre_exec(|| {
            MASK.store(signal::mask().map_or(0, |m| m.0), Ordering::Relaxed);
            let caught = (1..=64).filter(|n| matches!(signal::disposition(*n), Ok(Disposition::Handler(_))));
            HANDLERS.store(caught.count() as i32, Ordering::Relaxed);
            Ok(())
        });
    }
    assert!(c.status().unwrap().success());
    signal::reset(libc::SIGUSR1, false).unwrap();
    // All but SIGKILL and SIGSTOP, libc's own 32 and 33 among them, which no libc call can block.
    let all = SigSet::ALL.without(libc::SIGKILL).without(libc::SIGSTOP);
    assert_eq!(MASK.load(Ordering::Relaxed), all.0);
    assert_eq!(HANDLERS.load(Ordering::Relaxed), 0);
}

fn masks_and_dispositions_are_as_asked() {
    let old = signal::set_mask(SigSet::EMPTY.with(libc::SIGUSR2)).unwrap();
    let plain = report_with(|_| {});
    let inherited = report_with(|c| {
        c.inherit_signals(true);
    });
    let set = report_with(|c| {
        c.signal_mask(SigSet::EMPTY.with(libc::SIGHUP).with(34));
    });
    signal::set_mask(old).unwrap();
    assert_eq!(plain.signals("SigBlk"), SigSet::EMPTY.with(libc::SIGUSR2).0, "as std, and as fork");
    assert_eq!(inherited.signals("SigBlk"), SigSet::EMPTY.with(libc::SIGUSR2).0);
    assert_eq!(set.signals("SigBlk"), SigSet::EMPTY.with(libc::SIGHUP).with(34).0);
    let pipe = SigSet::EMPTY.with(libc::SIGPIPE);
    assert_eq!(plain.signals("SigIgn") & pipe.0, 0);
    assert_eq!(
        inherited.signals("SigIgn") & pipe.0,
        pipe.0,
        "Rust ignores SIGPIPE, and so does a child that inherits"
    );
    let back = report_with(|c| {
        c.signal_mask(SigSet::EMPTY.with(libc::SIGHUP)).inherit_signals(true).inherit_signals(false);
    });
    assert_eq!((back.signals("SigBlk"), back.signals("SigIgn")), (0, plain.signals("SigIgn")), "the default");
    let r = report_with(|c| {
        c.ignore_signals(SigSet::EMPTY.with(libc::SIGHUP).with(libc::SIGPIPE))
            .default_signals(SigSet::EMPTY.with(libc::SIGHUP));
    });
    assert_eq!(r.signals("SigIgn") & SigSet::EMPTY.with(libc::SIGHUP).0, 0, "the last word counts");
    assert_eq!(r.signals("SigIgn") & pipe.0, pipe.0);
    signal::reset(libc::SIGUSR2, true).unwrap();
    let kept = report_with(|_| {});
    let reset = report_with(|c| {
        c.default_signals(SigSet::EMPTY.with(libc::SIGUSR2));
    });
    signal::reset(libc::SIGUSR2, false).unwrap();
    assert_ne!(kept.signals("SigIgn") & SigSet::EMPTY.with(libc::SIGUSR2).0, 0);
    assert_eq!(reset.signals("SigIgn") & SigSet::EMPTY.with(libc::SIGUSR2).0, 0);
    let e = Command::new("true").ignore_signals(SigSet::EMPTY.with(libc::SIGKILL)).spawn().unwrap_err();
    assert_eq!(e.step(), forkless::Step::Signals);
}

/// The mask is the calling thread's, also where a start waits for nothing or goes through another
/// thread.
fn every_way_of_starting_hands_on_the_callers_mask() {
    let line = ["-q".to_owned(), format!("^SigBlk:.*{:x}$", SigSet::EMPTY.with(libc::SIGUSR2).0)];
    let all = || {
        let mut c = Command::new("grep");
        c.args(&line).arg("/proc/self/status");
        assert!(c.status().unwrap().success());
        assert!(c.output().unwrap().status.success());
        assert!(c.spawn().unwrap().wait().unwrap().success());
        assert!(c.spawn_nonblocking().unwrap().wait().unwrap().success());
        assert!(c.parent_death_signal(libc::SIGTERM).status().unwrap().success());
        assert!(c.prepare().unwrap().status().unwrap().success());
    };
    let old = signal::set_mask(SigSet::EMPTY.with(libc::SIGUSR2)).unwrap();
    all();
    // A new thread has its creator's mask; the library's own, which starts for it, has another.
    std::thread::scope(|s| s.spawn(all).join().unwrap());
    signal::set_mask(old).unwrap();
}

/// A launch that is still there serves the next start only if nothing it depends on has changed
/// since.
fn a_prepared_command_is_laid_out_anew_when_the_callers_mask_changes() {
    let line = |signal| ["-q".to_owned(), format!("^SigBlk:.*{:x}$", SigSet::EMPTY.with(signal).0)];
    let prepared = |signal: i32| {
        let mut c = Command::new("grep");
        c.args(line(signal)).arg("/proc/self/status").inherit_signals(true);
        c.prepare().unwrap()
    };
    let (ten, twelve) = (prepared(10), prepared(12));
    let before = signal::mask().unwrap();
    for blocked in [10, 10, 12, 10, 12, 12] {
        signal::set_mask(SigSet::EMPTY.with(blocked)).unwrap();
        assert_eq!(ten.status().unwrap().success(), blocked == 10, "{blocked} blocked");
        assert_eq!(ten.status().unwrap().success(), blocked == 10, "{blocked} blocked, again");
        assert_eq!(twelve.status().unwrap().success(), blocked == 12, "{blocked} blocked, another command");
        assert_eq!(
            ten.spawn().unwrap().wait().unwrap().success(),
            blocked == 10,
            "{blocked} blocked, spawned"
        );
    }
    signal::set_mask(before).unwrap();
}

fn a_signal_that_comes_during_a_start_is_not_lost() {
    handle(libc::SIGUSR1, note_process);
    HERE.store(process::getpid(), Ordering::Relaxed);
    let before = RUNS.load(Ordering::Relaxed);
    for _ in 0..50 {
        let ours = process::getpid();
        let t = std::thread::spawn(move || process::kill(ours, libc::SIGUSR1).unwrap());
        Command::new("/bin/true").status().unwrap();
        t.join().unwrap();
    }
    signal::reset(libc::SIGUSR1, false).unwrap();
    assert!(RUNS.load(Ordering::Relaxed) > before);
}

fn ignoring_sigchld_loses_no_status_where_the_kernel_keeps_it() {
    signal::reset(libc::SIGCHLD, true).unwrap();
    let keeps = forkless::facilities()
        .iter()
        .any(|f| f.name == "PIDFD_GET_INFO" && f.state == forkless::Facility::Works);
    let results = [
        Command::new("sh").args(["-c", "exit 5"]).spawn().unwrap().wait(),
        Command::new("sh").args(["-c", "exit 5"]).spawn_nonblocking().unwrap().wait(),
        Command::new("sh").args(["-c", "sleep 0.02; exit 5"]).spawn().unwrap().wait_timeout(patience()),
    ];
    let mut killed = Command::new("sleep").arg("60").spawn().unwrap();
    killed.kill().unwrap();
    let killed = killed.wait();
    let failed = Command::new("/does/not/exist").spawn_nonblocking().unwrap().wait();
    let output = Command::new("echo").arg("x").output();
    signal::reset(libc::SIGCHLD, false).unwrap();
    assert!(matches!(failed, Err(WaitError::Start(_))), "{failed:?}");
    if keeps {
        assert!(results.iter().all(|r| matches!(r, Ok(s) if s.code() == Some(5))), "{results:?}");
        assert_eq!(killed.unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(output.unwrap().stdout, b"x\n");
    } else {
        assert!(results.iter().all(|r| matches!(r, Err(WaitError::Unknown))), "{results:?}");
    }
}

pub extern "C" fn reap_everything(_: i32) {
    while matches!(process::waitid(process::P_ALL, 0, process::WEXITED | process::WNOHANG), Ok(i) if i.pid != 0)
    {
    }
}

/// Many programs have this handler. The library must work beside it, and lose no status where the
/// kernel keeps it.
fn a_handler_that_waits_for_everybodys_children_does_no_harm() {
    let keeps = forkless::facilities()
        .iter()
        .any(|f| f.name == "PIDFD_GET_INFO" && f.state == forkless::Facility::Works);
    handle(libc::SIGCHLD, reap_everything);
    for i in 0..60 {
        let mut c = Command::new("sh");
        c.args(["-c", "exit 9"]);
        let got = match i % 3 {
            0 => c.spawn().unwrap().wait(),
            1 => c.spawn_nonblocking().unwrap().wait(),
            _ => c.spawn().unwrap().wait_timeout(patience()),
        };
        match got {
            Ok(s) => assert_eq!(s.code(), Some(9)),
            Err(WaitError::Unknown) => assert!(!keeps, "the status was to be had"),
            Err(e) => panic!("{e}"),
        }
        assert!(matches!(Command::new("/none").spawn(), Err(e) if e.step() == forkless::Step::Exec));
    }
    signal::reset(libc::SIGCHLD, false).unwrap();
    reap_everything(0);
}

fn a_stopped_child_is_neither_ended_nor_lost() {
    let mut c = Command::new("sh").args(["-c", "kill -STOP $$; exit 6"]).spawn().unwrap();
    // A SIGCONT before the stop would be lost, and the child stopped for ever.
    let stat = format!("/proc/{}/stat", c.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(c.try_wait().unwrap().is_none());
    assert!(matches!(c.wait_timeout(Duration::from_millis(30)), Err(WaitError::Deadline)));
    c.signal(libc::SIGCONT).unwrap();
    assert_eq!(c.wait().unwrap().code(), Some(6));
    let mut c = Command::new("sh").args(["-c", "kill -STOP $$"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(10));
    c.kill().unwrap();
    assert_eq!(c.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(c.signal(1000).is_err(), "no such signal");
}

fn a_group_is_signalled_whole_and_only_where_the_child_leads_one() {
    let (mut r, w) = std::io::pipe().unwrap();
    let mut c = Command::new("sh");
    c.args(["-c", "sleep 60 & echo x; wait"]).process_group(0).stdout(w);
    let mut child = c.spawn().unwrap();
    drop(c);
    let mut byte = [0; 2];
    std::io::Read::read_exact(&mut r, &mut byte).unwrap();
    child.signal_group(libc::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    // The end of the pipe: the sleep is gone, too.
    assert_eq!(std::io::Read::read(&mut r, &mut byte).unwrap(), 0);
    let mut alone = Command::new("sleep").arg("60").spawn().unwrap();
    assert_eq!(alone.signal_group(libc::SIGTERM).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    alone.kill().unwrap();
    alone.wait().unwrap();
}

/// pthread_cancel(3) must not end a thread in the middle of a start, as it does in the middle of a
/// libc call.
#[expect(unsafe_code, reason = "a C program's threads")]
fn a_cancelled_thread_finishes_its_start() {
    static DONE: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" {
        fn pthread_cancel(thread: libc::pthread_t) -> i32;
        fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
    }
    extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        // The first start of the process reads a file, and so has the most places where libc would
        // act on it.
        let mut command = Command::new("/bin/true");
        let child = command.stdout(forkless::Stdio::piped()).spawn();
        let mut before = 0;
        // SAFETY: writes one int. What follows closes descriptors through libc, where the
        // cancellation may act.
        unsafe { pthread_setcancelstate(1, &raw mut before) };
        DONE.store(before == 0 && child.is_ok_and(|mut c| c.wait().is_ok()), Ordering::Relaxed);
        std::ptr::null_mut()
    }
    extern "C" fn cancelled_already(data: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: no preconditions.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: this thread lives; the cancellation is pending from here on.
        unsafe { pthread_cancel(this) };
        body(data)
    }
    let mut t = std::mem::MaybeUninit::uninit();
    // SAFETY: a plain thread without attributes or data.
    let made = unsafe {
        libc::pthread_create(t.as_mut_ptr(), std::ptr::null(), cancelled_already, std::ptr::null_mut())
    };
    assert_eq!(made, 0);
    // SAFETY: made above.
    let t = unsafe { t.assume_init() };
    // SAFETY: joined once.
    unsafe { libc::pthread_join(t, std::ptr::null_mut()) };
    assert!(DONE.load(Ordering::Relaxed), "the start was cut short");
}

/// Asks which shell this is, with a handler for SIGCHLD: how often it ran.
fn runs_while_the_shell_is_asked() -> i32 {
    HERE.store(process::getpid(), Ordering::Relaxed);
    handle(libc::SIGCHLD, note_process);
    let traits = forkless::shell_traits();
    if traits == forkless_shell::ShellTraits::UNKNOWN {
        skip("this machine's /bin/sh is none whose lines can be run without it");
    }
    assert_eq!(forkless::shell_traits(), traits);
    signal::reset(libc::SIGCHLD, false).unwrap();
    RUNS.load(Ordering::Relaxed)
}

#[expect(unsafe_code, reason = "waitpid(2)")]
fn the_shell_that_is_asked_is_no_child_of_the_program() {
    let mut held = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = held.id() as i32;
    let seen = std::thread::spawn(|| {
        let mut seen = Vec::new();
        loop {
            // SAFETY: no status is asked for.
            match unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } {
                -1 if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
                -1 => return seen,
                ended => seen.push(ended),
            }
        }
    });
    assert_eq!(runs_while_the_shell_is_asked(), 0);
    drop(held.stdin.take());
    assert_eq!(seen.join().unwrap(), [pid]);
    assert_eq!(ELSEWHERE.load(Ordering::Relaxed), 0);
}

fn the_shell_is_asked_as_a_child_where_it_cannot_be_hidden() {
    filter::install(&[refuse(libc::SYS_close_range, Errno::ENOSYS)]);
    assert!(runs_while_the_shell_is_asked() > 0);
}

cases![
    every_signal_is_blocked_and_every_handler_gone_until_exec,
    masks_and_dispositions_are_as_asked,
    every_way_of_starting_hands_on_the_callers_mask,
    a_prepared_command_is_laid_out_anew_when_the_callers_mask_changes,
    a_signal_that_comes_during_a_start_is_not_lost,
    ignoring_sigchld_loses_no_status_where_the_kernel_keeps_it,
    a_handler_that_waits_for_everybodys_children_does_no_harm,
    a_stopped_child_is_neither_ended_nor_lost,
    a_group_is_signalled_whole_and_only_where_the_child_leads_one,
    ; once
    a_handler_of_the_parent_never_runs_in_a_child,
    nor_where_the_child_resets_the_handlers_itself,
    a_cancelled_thread_finishes_its_start,
    the_shell_that_is_asked_is_no_child_of_the_program,
    the_shell_is_asked_as_a_child_where_it_cannot_be_hidden,
];
pub const WORKERS: &[Case] = &[
    Case { name: "hammered_without_clone3", run: hammered_without_clone3, repeatable: false },
    Case {
        name: "hammered_without_clone3_from_the_start",
        run: hammered_without_clone3_from_the_start,
        repeatable: false,
    },
];
