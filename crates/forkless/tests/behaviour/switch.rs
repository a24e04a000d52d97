//! Code written for `std::process` compiles against `forkless::process` and does the same.
#![expect(unsafe_code, reason = "pre_exec is unsafe")]

use crate::support::filter::{self, refuse};
use crate::support::{cases, me, report, skip};
use forkless::process::CommandExt as _;
use forkless::{SigSet, SpawnError, Step};
use forkless_sys::{Errno, process};

/// The same code twice, with the names of std and with those of this library.
macro_rules! both {
    ($($body:tt)*) => {{
        let std = {
            #[allow(unused_imports, reason = "not every body needs every name")]
            use std::os::unix::process::{CommandExt, ExitStatusExt};
            #[allow(unused_imports, reason = "as above")]
            use std::process::{self, Child, Command, Stdio};
            $($body)*
        };
        let ours = {
            #[allow(unused_imports, reason = "as above")]
            use forkless::process::{self, Child, Command, CommandExt, ExitStatusExt, Stdio};
            $($body)*
        };
        assert_eq!(ours, std, "ours (left) is not what std::process does");
        ours
    }};
}

fn fields_move_out_of_a_child() {
    let text = both! {
        fn start() -> std::io::Result<Child> {
            Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()
        }
        let mut child = start().unwrap();
        child.wait().unwrap();
        let out: process::ChildStdout = child.stdout.unwrap();
        std::io::read_to_string(out).unwrap()
    };
    assert_eq!(text, "hi\n");
    // A drop that waits must not wait for the pipe it still holds: fields are dropped in their
    // order.
    let mut c = forkless::Command::new("sh");
    c.args(["-c", "head -c 1000000 /dev/zero; :"]).stdout(forkless::Stdio::piped());
    drop(c.on_drop(forkless::OnDrop::Wait).spawn().unwrap());
    let child = forkless::process::Child::from(c.spawn().unwrap());
    drop(child);
    drop(forkless::Child::from(forkless::process::Child::from(c.spawn().unwrap())));
}

fn errors_are_the_operating_systems() {
    let shown = both! {
        let mut relative = Command::new("true");
        relative.current_dir("/nowhere");
        let failed = [
            Command::new("/nowhere").spawn().unwrap_err(),
            Command::new("no-such-program-anywhere").status().unwrap_err(),
            Command::new("/").output().unwrap_err(),
            relative.spawn().unwrap_err(),
            Command::new("/nowhere").arg0("x").exec(),
        ];
        failed.map(|e| (e.raw_os_error(), e.kind(), e.to_string()))
    };
    assert!(shown.iter().all(|(number, ..)| number.is_some()), "{shown:?}");
    // An exec that fails leaves it at its default, here and there.
    forkless_sys::signal::reset(libc::SIGPIPE, true).unwrap();
    let nul = both! {
        let e = Command::new("a\0b").spawn().unwrap_err();
        (e.raw_os_error(), e.kind())
    };
    assert_eq!(nul, (None, std::io::ErrorKind::InvalidInput));
    // A difference that the module lists: ours names the string.
    let mut c = forkless::process::Command::new("a\0b");
    c.arg("c\0d").current_dir("e\0f");
    assert_eq!((c.get_program().as_encoded_bytes(), c.get_current_dir()), (&b"a\0b"[..], None));
    assert!(c.get_args().eq(["c\0d"]));
    let said = c.status().unwrap_err().to_string();
    assert_eq!(said, "command: the program's name has a NUL byte: Invalid argument");
}

fn a_command_shows_itself_as_stds() {
    let lines = both! {
        let mut c = Command::new("some-program");
        let mut all = vec![format!("{c:?}")];
        c.arg("with space").arg("quote\"").env("FOO", "b a r").env_remove("GONE").env_remove("TOO");
        all.push(format!("{c:?}"));
        c.current_dir("/some/path").arg0("another");
        all.push(format!("{c:?}"));
        c.env_clear().env("ONLY", "1");
        all.push(format!("{c:?}"));
        all
    };
    assert_eq!(
        lines[3],
        r#"cd "/some/path" && env -i ONLY="1" ["some-program"] "another" "with space" "quote\"""#
    );
    let mut c = forkless::process::Command::new("x");
    c.as_inner_mut().umask(0o22).rlimit(forkless::Resource::Core, 0, 0);
    let all = format!("{c:#?}");
    assert!(all.contains("umask: Some") && all.contains("rlimits"), "{all}");
}

/// command-fds, jobservers and socket activation depend on this.
fn descriptors_are_inherited_as_std_does() {
    let plain = std::fs::File::open("/etc/passwd").unwrap();
    let stray = rustix::io::fcntl_dupfd_cloexec(&plain, 40).unwrap();
    rustix::io::fcntl_setfd(&stray, rustix::io::FdFlags::empty()).unwrap();
    let fds = both! {
        let out = Command::new(me()).args(report::args(1)).output().unwrap();
        let r = report::Report::parse(&out.stdout);
        (r.fd(40).map(str::to_owned), r.fds().len())
    };
    assert_eq!(fds.0.as_deref(), Some("/etc/passwd"));
}

fn stds_commands_become_ours_or_are_refused() {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};
    let ours = |prepare: fn(&mut Command)| {
        let mut c = Command::new("/usr/bin/env");
        prepare(&mut c);
        forkless::Command::from_std(&c)
    };
    let print = ours(|c| {
        c.env("DROPPED", "1").env_clear().env("A", "1").current_dir("/usr").args([
            "sh",
            "-c",
            "echo $A $PWD",
        ]);
    });
    assert_eq!(print.unwrap().output().unwrap().stdout, b"1 /usr\n");
    let kept = ours(|c| {
        c.env("A", "2").env_remove("PATH");
    });
    let out = String::from_utf8(kept.unwrap().output().unwrap().stdout).unwrap();
    assert!(out.lines().any(|l| l == "A=2") && out.lines().count() > 1);
    assert!(!out.lines().any(|l| l.starts_with("PATH=")));
    let refused: [fn(&mut Command); 7] = [
        |c| _ = c.arg0("x"),
        |c| _ = c.uid(1),
        |c| _ = c.gid(1),
        |c| _ = c.process_group(0),
        |c| _ = c.stdin(Stdio::null()),
        |c| _ = c.stdout(Stdio::piped()),
        |c| _ = c.stderr(Stdio::inherit()),
    ];
    for (i, prepare) in refused.into_iter().enumerate() {
        let e: SpawnError = ours(prepare).unwrap_err();
        assert_eq!((e.step(), e.raw_os_error()), (Step::Command, Some(libc::EOPNOTSUPP)), "{i}");
    }
}

fn our_commands_become_stds_or_are_refused() {
    use forkless::{Command, OnDrop, Resource, Scheduler, SigSet, Stdio};
    let mut c = Command::new("sh");
    c.args(["-c", "cat; echo $0 $A $B $PWD; umask"]).arg0("x").env_clear().env("A", "1").current_dir("/usr");
    c.inherit_descriptors(true).stdin(Stdio::null()).process_group(0);
    let narrow = || {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o27));
        Ok(())
    };
    // SAFETY: one system call.
    unsafe { c.pre_exec(narrow) };
    assert_eq!(c.into_std().unwrap().output().unwrap().stdout, b"x 1 /usr\n0027\n");
    let refused: [fn(&mut Command); 16] = [
        |c| _ = c.inherit_descriptors(false),
        |c| _ = c.umask(0),
        |c| _ = c.rlimit(Resource::Core, 0, 0),
        |c| _ = c.nice(1),
        |c| _ = c.scheduler(Scheduler::Batch),
        |c| _ = c.affinity([0]),
        |c| _ = c.parent_death_signal(9),
        |c| _ = c.no_new_privs(true),
        |c| _ = c.chroot("/"),
        |c| _ = c.setsid(true),
        |c| _ = c.groups(&[]),
        |c| _ = c.signal_mask(SigSet::EMPTY),
        |c| _ = c.inherit_signals(true),
        |c| _ = c.fd(3, Stdio::null()),
        |c| _ = c.on_drop(OnDrop::Kill),
        |c| _ = c.stdin(Stdio::closed()),
    ];
    for (i, prepare) in refused.into_iter().enumerate() {
        let mut c = Command::new("true");
        prepare(c.inherit_descriptors(true));
        let e = c.into_std().unwrap_err();
        assert_eq!((e.step(), e.raw_os_error()), (Step::Command, Some(libc::EOPNOTSUPP)), "{i}");
    }
}

/// The message's backtrace is taken under locks of this process's: a child that died of it, since
/// the unwinder read past the child's stack, left them held, and the next panic waited for ever.
fn panicked() {
    let mut c = forkless::process::Command::new("true");
    // SAFETY: the panic is under test; no other thread is there to hold a lock.
    unsafe { c.pre_exec(|| panic!("in the child")) };
    for _ in 0..3 {
        assert_eq!(c.status().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert!(std::panic::catch_unwind(|| panic!("in the parent")).is_err());
    }
    // The plain clone has an entry of its own.
    filter::install(&[refuse(libc::SYS_clone3, Errno::ENOSYS)]);
    assert_eq!(c.status().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    assert!(std::panic::catch_unwind(|| panic!("in the parent")).is_err());
}

fn a_hook_that_panics_with_a_backtrace_leaves_no_lock_held() {
    for backtrace in ["1", "full"] {
        let mut worker = std::process::Command::new(me());
        let out =
            worker.args(["--bare", "switch::panicked"]).env("RUST_BACKTRACE", backtrace).output().unwrap();
        if out.status.code() == Some(77) {
            crate::support::skip("no seccomp filters here");
        }
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{backtrace}: {:?}: {said}", out.status);
        assert!(said.contains("in the child") && said.contains("stack backtrace"), "{said}");
    }
}

/// The first child dies in a panic hook, in this memory. Later children run their functions and
/// programs.
fn died_panicking() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static PANICS: AtomicBool = AtomicBool::new(true);
    // SAFETY: ends the child.
    std::panic::set_hook(Box::new(|_| unsafe { libc::_exit(101) }));
    let narrow = |mask| {
        move || {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
            if PANICS.load(Ordering::Relaxed) { panic!("in the child") } else { Ok(()) }
        }
    };
    let command = move || {
        let mut c = forkless::process::Command::new("sh");
        // SAFETY: one system call, and a panic, which is under test.
        unsafe { c.args(["-c", "umask"]).pre_exec(narrow(0o27)) };
        c
    };
    // A thread for each: a thread whose child died so counts as panicking for good.
    let died = |status: std::process::ExitStatus| assert_eq!(status.code(), Some(101));
    let die = move || {
        let mut c = command();
        died(c.status().unwrap());
        c
    };
    let mut c = std::thread::spawn(die).join().unwrap();
    let mut longer = std::thread::spawn(die).join().unwrap();
    let mut plain = forkless::Command::new("sh");
    // SAFETY: as above.
    unsafe { plain.args(["-c", "umask"]).pre_exec(narrow(0o27)) };
    let prepared = plain.prepare().unwrap();
    std::thread::scope(|s| _ = s.spawn(|| died(prepared.status().unwrap())));
    PANICS.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(c.output().unwrap().stdout, b"0027\n");
        assert_eq!(prepared.output().unwrap().stdout, b"0027\n");
    }
    // SAFETY: as above.
    unsafe { longer.pre_exec(narrow(0o77)) };
    assert_eq!(longer.output().unwrap().stdout, b"0077\n");
}

/// Regression: such a command ran without its functions from then on.
fn hooks_run_after_one_has_died_while_it_panicked() {
    let ended = std::process::Command::new(me()).args(["--bare", "switch::died_panicking"]).output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
}

/// std's hooks have the stack of the thread that starts.
fn a_hook_has_room_on_its_stack() {
    let mut c = forkless::process::Command::new("true");
    let deep = || {
        let mut room = [0u8; 1 << 20];
        std::hint::black_box(&mut room)[1] = 1;
        if room[0] == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(libc::EDOM)) }
    };
    // SAFETY: it uses its own stack alone.
    unsafe { c.pre_exec(deep) };
    assert!(c.status().unwrap().success());
}

/// A caller that takes the pieces apart reaps the child: the library does not do it first.
fn a_child_in_pieces_is_its_takers() {
    use rustix::process::{Pid, WaitOptions, waitpid};
    let parts = forkless::Command::new("sh").args(["-c", "exit 4"]).spawn().unwrap().into_parts();
    assert!(!parts.waited_for && parts.pidfd.is_some());
    // A start looks for dropped children that have ended.
    assert!(forkless::Command::new("true").status().unwrap().success());
    let (_, status) = waitpid(Pid::from_raw(parts.pid as i32), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(4));
    let parts = forkless::Command::new("/nowhere").spawn_nonblocking().unwrap().into_parts();
    let (_, status) = waitpid(Pid::from_raw(parts.pid as i32), WaitOptions::empty()).unwrap().unwrap();
    assert!(status.exited());
}

/// A function that runs in the child has the last word about the mask, as with std.
fn a_hook_sets_the_mask_of_the_program() {
    let set = |signals: &[i32]| {
        let set = signals.iter().fold(SigSet::EMPTY, |set, n| set.with(*n));
        forkless_sys::signal::set_mask(set).unwrap()
    };
    let before = set(&[libc::SIGUSR1, libc::SIGUSR2]);
    let usr1 = SigSet::EMPTY.with(libc::SIGUSR1).0;
    for (how, signals) in
        [(libc::SIG_SETMASK, 0), (libc::SIG_SETMASK, usr1), (libc::SIG_UNBLOCK, usr1), (libc::SIG_UNBLOCK, 0)]
    {
        let seen = both! {
            let mut c = Command::new("grep");
            c.args(["SigBlk", "/proc/self/status"]);
            let change = move || {
                change_mask(how, signals, false);
                Ok(())
            };
            // SAFETY: one system call.
            unsafe { c.pre_exec(change) };
            String::from_utf8(c.output().unwrap().stdout).unwrap()
        };
        assert!(seen.starts_with("SigBlk:"), "{seen}");
    }
    both! {
        let mut c = Command::new("grep");
        c.args(["SigBlk", "/proc/self/status"]);
        let change = || {
            change_mask(libc::SIG_BLOCK, u64::MAX, true);
            Ok(())
        };
        // SAFETY: two system calls.
        unsafe { c.pre_exec(change) };
        String::from_utf8(c.output().unwrap().stdout).unwrap()
    };
    forkless_sys::signal::set_mask(before).unwrap();
}

/// By libc's function, and back again if so wanted.
fn change_mask(how: i32, signals: u64, back: bool) {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a set begins with the kernel's 64 bits.
    unsafe { set.as_mut_ptr().cast::<u64>().write(signals) };
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: two sets.
    unsafe { libc::sigprocmask(how, set.as_ptr(), old.as_mut_ptr()) };
    if back {
        // SAFETY: the set that was there.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    }
}

/// Code that takes std's child across a `catch_unwind` may take this one.
fn a_child_crosses_a_caught_panic() {
    let status = both! {
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        std::panic::catch_unwind(move || child.wait().unwrap().code()).unwrap()
    };
    assert_eq!(status, Some(3));
}

fn null_is_opened_as_std_opens_it() {
    let seen = both! {
        let mut c = Command::new("sh");
        c.args(["-c", "cat /proc/$$/fdinfo/0 /proc/$$/fdinfo/1 | grep flags >&2"]);
        c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let out = c.spawn().unwrap().wait_with_output().unwrap();
        String::from_utf8(out.stderr).unwrap()
    };
    assert_eq!(seen.lines().count(), 2, "{seen}");
}

/// Becomes root of a user namespace that may not set groups, as in a rootless container.
fn a_user_is_set_where_groups_may_not_be() {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let ended = std::panic::catch_unwind(sets_a_user_without_groups);
        // SAFETY: takes a number.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let ended = process::waitid(process::P_PID, pid, process::WEXITED).unwrap();
    if ended.status == 77 {
        skip("user namespaces are refused");
    }
    assert_eq!((ended.code, ended.status), (1, 0));
}

fn sets_a_user_without_groups() {
    // SAFETY: takes flags.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        skip("user namespaces are refused");
    }
    for (file, text) in [("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")] {
        if let Err(e) = std::fs::write(format!("/proc/self/{file}"), text) {
            skip(&format!("{file}: {e}"));
        }
    }
    let answer = both! {
        let answer = Command::new("true").uid(0).gid(0).status();
        answer.map(|s| s.code()).map_err(|e| e.raw_os_error())
    };
    assert_eq!(answer, Ok(Some(0)));
    let error = forkless::Command::new("true").uid(0).groups(&[]).status().unwrap_err();
    assert_eq!(error.step(), Step::Groups);
}

cases![
    fields_move_out_of_a_child,
    errors_are_the_operating_systems,
    a_command_shows_itself_as_stds,
    descriptors_are_inherited_as_std_does,
    stds_commands_become_ours_or_are_refused,
    our_commands_become_stds_or_are_refused,
    a_child_in_pieces_is_its_takers,
    a_hook_has_room_on_its_stack,
    a_hook_that_panics_with_a_backtrace_leaves_no_lock_held,
    hooks_run_after_one_has_died_while_it_panicked,
    a_hook_sets_the_mask_of_the_program,
    a_child_crosses_a_caught_panic,
    null_is_opened_as_std_opens_it,
    a_user_is_set_where_groups_may_not_be,
];
pub const WORKERS: &[crate::support::Case] = &[
    crate::support::Case { name: "switch::panicked", run: panicked, repeatable: false },
    crate::support::Case { name: "switch::died_panicking", run: died_panicking, repeatable: false },
];
