//! Bad input and faults: a typed error or the documented result, never a hang, and nothing left
//! behind.

use crate::support::guard::{self, mappings};
use crate::support::{Case, cases, me, need_root, patience, short_of};
use forkless::{Command, OnDrop, Resource, SpawnError, Stdio, Step, WaitError};
use forkless_sys::process;
use rustix::process::{Resource as R, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

/// A directory that is removed at the end of the case.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Dir {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let at = std::env::temp_dir().join(format!("forkless-test-{}-{n}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        Dir(at)
    }

    /// An executable file with this text.
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        let at = self.0.join(name);
        std::fs::write(&at, text).unwrap();
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o755)).unwrap();
        at
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The error of a start, the same whether it is waited for or comes with the wait.
#[track_caller]
fn error_of(mut c: Command) -> SpawnError {
    let blocking = c.spawn().unwrap_err();
    match c.spawn_nonblocking() {
        Err(e) => assert_eq!(e.to_string(), blocking.to_string()),
        Ok(mut child) => match child.wait() {
            Err(forkless::WaitError::Start(e)) => assert_eq!(e.to_string(), blocking.to_string()),
            other => panic!("{other:?}"),
        },
    }
    assert_eq!(c.status().unwrap_err().to_string(), blocking.to_string());
    assert_eq!(c.output().unwrap_err().to_string(), blocking.to_string());
    blocking
}

#[track_caller]
fn says(c: Command, step: Step, errno: i32, text: &str) {
    let e = error_of(c);
    assert_eq!((e.step(), e.raw_os_error()), (step, Some(errno)), "{e}");
    assert_eq!(e.to_string(), text);
}

fn new(program: &str) -> Command {
    Command::new(program)
}

fn bad_arguments_are_named() {
    says(
        new("a\0b"),
        Step::Command,
        libc::EINVAL,
        "command: the program's name has a NUL byte: Invalid argument",
    );
    let mut c = new("true");
    c.args(["x", "y\0z"]);
    says(c, Step::Command, libc::EINVAL, "command: argument 2 has a NUL byte: Invalid argument");
    let mut c = new("true");
    c.env("K", "v\0");
    let e = error_of(c);
    assert!(e.to_string().contains("\"K\""), "{e}");
    let mut c = new("true");
    c.current_dir("/a\0b");
    assert_eq!(error_of(c).step(), Step::Command);
    says(new(""), Step::Exec, libc::ENOENT, "exec \"\" (an empty name): No such file or directory");
    let mut c = new("true");
    c.args(vec!["x".repeat(100_000); 40]);
    let e = error_of(c);
    assert_eq!((e.step(), e.raw_os_error()), (Step::Exec, Some(libc::E2BIG)), "{e}");
    let mut c = new("true");
    c.current_dir("");
    says(c, Step::Chdir, libc::ENOENT, "chdir to \"\": No such file or directory");
    // One line, however many there are.
    let mut c = new("true");
    c.groups(&vec![1; 100_000]);
    let e = error_of(c);
    assert_eq!(e.step(), Step::Groups);
    assert_eq!(e.what(), Some("[1, 1, 1, 1, 1, 1, 1, 1] and 99992 more"), "{e}");
}

fn what_cannot_be_executed_is_named_with_the_reason() {
    let dir = Dir::new();
    says(new("/does/not/exist"), Step::Exec, libc::ENOENT, "exec /does/not/exist: No such file or directory");
    says(new("no-such-program"), Step::Exec, libc::ENOENT, "exec no-such-program: No such file or directory");
    says(new("/tmp"), Step::Exec, libc::EACCES, "exec /tmp: Permission denied");
    says(new("/etc/passwd/x"), Step::Exec, libc::ENOTDIR, "exec /etc/passwd/x: Not a directory");
    let plain = dir.0.join("plain");
    std::fs::write(&plain, "x").unwrap();
    says(
        new(plain.to_str().unwrap()),
        Step::Exec,
        libc::EACCES,
        &format!("exec {}: Permission denied", plain.display()),
    );
    let missing = dir.program("missing", "#!/no/such/interpreter\n");
    says(
        new(missing.to_str().unwrap()),
        Step::Exec,
        libc::ENOENT,
        &format!(
            "exec {} (the interpreter or loader it names is missing): No such file or directory",
            missing.display()
        ),
    );
    // Found in a search that went on after it, and from another directory.
    let mut c = new("missing");
    c.env("PATH", format!("/does/not/exist:{}:/also/not", dir.0.display())).current_dir("/");
    says(
        c,
        Step::Exec,
        libc::ENOENT,
        &format!(
            "exec {} (the interpreter or loader it names is missing): No such file or directory",
            missing.display()
        ),
    );
    let loops = dir.0.join("loop");
    std::os::unix::fs::symlink(&loops, &loops).unwrap();
    assert_eq!(error_of(new(loops.to_str().unwrap())).raw_os_error(), Some(libc::ELOOP));
}

fn a_script_without_interpreter_is_run_by_the_shell_as_execvp_does() {
    let dir = Dir::new();
    let script = dir.program("script", "echo \"$0 $1\"; exit 7\n");
    let out = Command::new(&script).arg("one").output().unwrap();
    assert_eq!(
        (out.status.code(), out.stdout),
        (Some(7), format!("{} one\n", script.display()).into_bytes())
    );
    let found = Command::new("script").env("PATH", &dir.0).arg("two").output().unwrap();
    assert_eq!(found.stdout, format!("{} two\n", script.display()).into_bytes());
    let mut c = Command::new(&script);
    c.scripts_without_interpreter(false);
    assert_eq!(error_of(c).raw_os_error(), Some(libc::ENOEXEC));
    let empty = dir.program("empty", "");
    assert!(Command::new(&empty).status().unwrap().success());
}

fn a_denied_file_in_path_does_not_hide_a_later_one_and_is_the_reason_if_there_is_none() {
    let (denied, good) = (Dir::new(), Dir::new());
    std::fs::write(denied.0.join("prog"), "x").unwrap();
    good.program("prog", "#!/bin/sh\nexit 3\n");
    let both = format!("{}:/etc/passwd:{}", denied.0.display(), good.0.display());
    assert_eq!(Command::new("prog").env("PATH", both).status().unwrap().code(), Some(3));
    let mut only = Command::new("prog");
    only.env("PATH", format!("{}:/does/not/exist", denied.0.display()));
    let e = error_of(only);
    assert_eq!(e.to_string(), format!("exec {}/prog: Permission denied", denied.0.display()));
}

fn a_directory_in_path_that_is_too_long_does_not_hide_a_later_one() {
    let good = Dir::new();
    good.program("prog", "#!/bin/sh\nexit 3\n");
    let path = format!("{}:{}", "/long".repeat(1000), good.0.display());
    assert_eq!(Command::new("prog").env("PATH", &path).status().unwrap().code(), Some(3));
    let mut missing = new("no-such-program");
    missing.env("PATH", format!("{path}:/does/not/exist"));
    says(missing, Step::Exec, libc::ENOENT, "exec no-such-program: No such file or directory");
    // It is left out wherever it stands, and the working directory does not take its place.
    let mut missing = new("prog");
    missing.current_dir(&good.0).env("PATH", format!("/does/not/exist:{}:/nor/this", "/long".repeat(1000)));
    says(missing, Step::Exec, libc::ENOENT, "exec prog: No such file or directory");
    let mut missing = new("no-such-program");
    missing.env("PATH", format!("/does/not/exist:/nor/this:{}", "/long".repeat(1000)));
    says(missing, Step::Exec, libc::ENOENT, "exec no-such-program: No such file or directory");
    // The error is that of the name's length, whatever the directories are, as with execvp(3).
    let mut long = new(&"n".repeat(256));
    long.env("PATH", format!("{path}:/does/not/exist"));
    assert_eq!(error_of(long).raw_os_error(), Some(libc::ENAMETOOLONG));
}

/// As glibc's execvp(3) since BZ 33626. Before, and in musl, such a name ended the search.
fn a_directory_in_path_with_a_name_that_is_too_long_does_not_hide_a_later_one() {
    let good = Dir::new();
    good.program("prog", "#!/bin/sh\nexit 3\n");
    let long = format!("/tmp/{}", "n".repeat(256));
    let path = format!("{long}:{}", good.0.display());
    assert_eq!(Command::new("prog").env("PATH", path).status().unwrap().code(), Some(3));
    // The last error, where no directory had the file.
    for (path, errno) in [
        (format!("{long}:/does/not/exist"), libc::ENOENT),
        (format!("/does/not/exist:{long}"), libc::ENAMETOOLONG),
        (format!("/{}", "n/".repeat(5000)), libc::ENAMETOOLONG),
    ] {
        let mut missing = new("no-such-program");
        missing.env("PATH", path);
        assert_eq!(error_of(missing).raw_os_error(), Some(errno));
    }
}

fn a_file_open_for_writing_is_waited_for_and_not_for_ever() {
    let dir = Dir::new();
    let busy = dir.0.join("busy");
    std::fs::copy("/bin/true", &busy).unwrap();
    let writer = File::options().write(true).open(&busy).unwrap();
    let e = Command::new(&busy).spawn().unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::ETXTBSY), "{e}");
    drop(writer);
    // On a busy machine the writer may come too late.
    let waited_for = || {
        let writer = File::options().write(true).open(&busy).unwrap();
        let t = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(15));
            drop(writer);
        });
        let started = Command::new(&busy).status();
        t.join().unwrap();
        match started {
            Ok(status) => status.success(),
            Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => false,
            Err(e) => panic!("{e}"),
        }
    };
    assert!((0..100).any(|_| waited_for()));
}

/// Two threads that each write a program and start it. Without retries one fails, because the
/// other's child still has the file open (golang.org/issue/22315).
fn writing_and_starting_programs_in_two_threads() {
    let dir = Dir::new();
    std::thread::scope(|s| {
        for t in 0..3 {
            let dir = &dir;
            s.spawn(move || {
                for i in 0..25 {
                    let at = dir.0.join(format!("p{t}-{i}"));
                    {
                        let mut f = File::create(&at).unwrap();
                        f.write_all(b"#!/bin/sh\nexit 0\n").unwrap();
                        f.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
                    }
                    let status = if i % 2 == 0 {
                        Command::new(&at).status()
                    } else {
                        Command::new(&at).inherit_descriptors(true).status()
                    };
                    assert!(status.unwrap().success());
                }
            });
        }
    });
}

fn a_vanished_directory() {
    let dir = Dir::new();
    let gone = dir.0.join("gone");
    std::fs::create_dir(&gone).unwrap();
    let here = std::env::current_dir().unwrap();
    std::env::set_current_dir(&gone).unwrap();
    std::fs::remove_dir(&gone).unwrap();
    assert!(Command::new("/bin/true").status().unwrap().success(), "an inherited one is no matter");
    assert_eq!(Command::new("./true").status().unwrap_err().raw_os_error(), Some(libc::ENOENT));
    std::env::set_current_dir(&here).unwrap();
    let mut c = new("true");
    c.current_dir(&gone);
    says(c, Step::Chdir, libc::ENOENT, &format!("chdir to {}: No such file or directory", gone.display()));
    // The program is missing here, not the directory.
    let mut c = new("/does/not/exist");
    c.current_dir("/");
    assert_eq!(error_of(c).step(), Step::Exec);
}

fn no_descriptor_left_is_an_error_at_every_place() {
    let old = getrlimit(R::Nofile);
    let mut kinds = std::collections::BTreeSet::new();
    let mut last = false;
    for free in 0..14 {
        let next = File::open("/dev/null").unwrap();
        let lowest = std::os::fd::AsRawFd::as_raw_fd(&next) as u64;
        drop(next);
        setrlimit(R::Nofile, Rlimit { current: Some(lowest + free), maximum: old.maximum }).unwrap();
        let before = guard::descriptors();
        for nonblocking in [false, true] {
            let mut c = Command::new("/bin/true");
            c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let got = if nonblocking { c.spawn_nonblocking() } else { c.spawn() };
            last = got.is_ok();
            match got {
                Ok(mut child) => assert!(child.wait().unwrap().success()),
                Err(e) => {
                    assert_eq!(e.raw_os_error(), Some(libc::EMFILE), "{e}");
                    kinds.insert(format!("{:?}", e.step()));
                }
            }
        }
        setrlimit(R::Nofile, old).unwrap();
        guard::assert_no_children();
        // The listing itself could not be opened under the lowest limits.
        if !before.is_empty() {
            assert_eq!(guard::descriptors(), before, "with {free} left");
        }
    }
    assert!(last, "six are enough");
    // The pidfd is not among them: a start does without.
    assert!(kinds.contains("Pipe") && !kinds.contains("Clone"), "{kinds:?}");
}

/// Opens files until there is no number left.
fn with_a_full_table<T>(body: impl FnOnce() -> T) -> T {
    let old = getrlimit(R::Nofile);
    setrlimit(R::Nofile, Rlimit { current: Some(64), maximum: old.maximum }).unwrap();
    let mut all = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    let result = body();
    drop(all);
    setrlimit(R::Nofile, old).unwrap();
    result
}

/// Regression: EMFILE, since there was no number for the pidfd. std's starts need none where
/// nothing is a pipe.
fn a_full_table_stops_no_start() {
    let prepared = new("/bin/false").prepare().unwrap();
    let (children, others) = with_a_full_table(|| {
        let sleeper = || {
            let mut c = new("/bin/sleep");
            c.arg("60");
            c
        };
        let children = [sleeper().spawn(), sleeper().spawn_nonblocking(), prepared.spawn()];
        let waited = new("/bin/true").spawn().map(|mut child| child.wait_timeout(patience()));
        let as_std = forkless::process::Command::new("/bin/true").spawn().map(|mut child| child.wait());
        let dropped = sleeper().on_drop(forkless::OnDrop::Kill).spawn().map(drop);
        (children, (waited, as_std, dropped))
    });
    let mut children = children.map(Result::unwrap);
    assert!(children.iter().all(|child| child.pidfd().is_none()));
    for child in &mut children[..2] {
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
    assert_eq!(children[2].wait().unwrap().code(), Some(1));
    assert!(others.0.unwrap().unwrap().success());
    assert!(others.1.unwrap().unwrap().success());
    others.2.unwrap();
    guard::assert_no_children();
}

/// A process of the given number, which leads a group and waits to be killed. `None` where another
/// process has the number.
#[expect(unsafe_code, reason = "clone3 with a number")]
fn process_of_number(number: i32) -> Option<i32> {
    let mut args = forkless_sys::clone::args();
    args.exit_signal = libc::SIGCHLD as u64;
    args.set_tid = (&raw const number) as u64;
    args.set_tid_size = 1;
    // SAFETY: without a stack it is a fork, and the child makes system calls only.
    let made = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) };
    match made {
        0 => loop {
            let _ = process::setpgid(0);
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        },
        -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST) => None,
        -1 => crate::support::skip("a process of a given number needs CAP_CHECKPOINT_RESTORE"),
        pid => Some(i32::try_from(pid).unwrap()),
    }
}

/// Regression: without a pidfd the child was known by its number alone, and signals and waits
/// reached the child that was given the number next.
fn a_number_given_out_again_is_not_taken_for_the_child() {
    type Use = (&'static str, fn(forkless::Child));
    let uses: [Use; 9] = [
        ("kill", |mut child| child.kill().unwrap()),
        ("kill_group", |mut child| {
            assert_eq!(child.kill_group().unwrap_err().raw_os_error(), Some(libc::ESRCH));
        }),
        ("wait", |mut child| assert!(matches!(child.wait(), Err(WaitError::Unknown)))),
        ("try_wait", |mut child| assert!(matches!(child.try_wait(), Err(WaitError::Unknown)))),
        ("wait_timeout", |mut child| {
            assert!(matches!(child.wait_timeout(patience()), Err(WaitError::Unknown)));
        }),
        ("wait_with_output", |child| assert_eq!(child.wait_with_output().unwrap_err().step(), Step::Wait)),
        ("a drop that kills", |mut child| child.set_on_drop(OnDrop::Kill)),
        ("a drop that waits", |mut child| child.set_on_drop(OnDrop::Wait)),
        ("a drop", drop),
    ];
    for (what, use_it) in uses {
        let (child, other) = loop {
            let mut c = new("/bin/true");
            c.process_group(0);
            let child = with_a_full_table(|| c.spawn()).unwrap();
            assert!(child.pidfd().is_none());
            let number = child.id() as i32;
            // Other code of the program waits for any child.
            assert_eq!(process::waitid(process::P_PID, number, process::WEXITED).unwrap().pid, number);
            match process_of_number(number) {
                Some(other) => break (child, other),
                None => drop(child),
            }
        };
        assert_eq!(other, child.id() as i32);
        use_it(child);
        let lives = process::waitid(process::P_PID, other, process::WEXITED | process::WNOHANG);
        assert_eq!(lives.map(|info| info.pid), Ok(0), "{what} reached another process");
        process::kill(other, libc::SIGKILL).unwrap();
        process::waitid(process::P_PID, other, process::WEXITED).unwrap();
    }
}

#[cfg(feature = "tokio")]
fn awaits_with_a_full_table() {
    use forkless::tokio::Command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let start = || Command::new("/bin/sleep").arg("0.05").spawn();
        let mut before = start().unwrap();
        let old = getrlimit(R::Nofile);
        setrlimit(R::Nofile, Rlimit { current: Some(64), maximum: old.maximum }).unwrap();
        let mut all = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            all.push(file);
        }
        let mut then = start();
        let ends = [before.wait().await, async { then.as_mut().map_err(|e| e.kind())?.wait().await }.await];
        drop(all);
        setrlimit(R::Nofile, old).unwrap();
        ends.into_iter().for_each(|end| assert!(end.unwrap().success()));
    });
}

#[cfg(not(feature = "tokio"))]
fn awaits_with_a_full_table() {
    std::process::exit(77);
}

/// Regression: the wait failed with EMFILE, since there was no number to watch the pidfd by. In
/// another process: tokio keeps sockets.
fn a_full_table_stops_no_awaited_wait() {
    let worker = short_of("awaits_with_a_full_table");
    let out = std::process::Command::new(me()).args(["--bare", worker]).output().unwrap();
    if out.status.code() == Some(77) {
        crate::support::skip("without the feature tokio");
    }
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// system(3) needs no descriptor. A second thread exists, so that a pidfd would be taken.
fn running_to_the_end_needs_no_descriptor() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    let prepared = new("/bin/false").prepare().unwrap();
    let (status, of_prepared, line, asks) = with_a_full_table(|| {
        let status = new("/bin/true").status();
        let of_prepared = prepared.status();
        let line = forkless::shell("exit 3").status();
        // The first line asks /bin/sh for its traits, which takes a pipe: the shell runs that line.
        (status, of_prepared, line, forkless::shell("/bin/true").status())
    });
    assert!(status.unwrap().success());
    assert_eq!(of_prepared.unwrap().code(), Some(1));
    assert_eq!(line.unwrap().code(), Some(3));
    assert!(asks.unwrap().success());
    let mut later = forkless::shell("/bin/true").spawn().unwrap();
    assert!(later.is_direct(), "that it could not be asked once was remembered");
    assert!(later.wait().unwrap().success());
    drop(done);
    let _ = thread.join();
}

fn a_limit_lowered_for_the_child_does_not_lose_its_descriptors() {
    let (mut r, w) = std::io::pipe().unwrap();
    let mut c = Command::new("sh");
    c.args(["-c", "echo x >&60"]).fd(60, w).rlimit(Resource::OpenFiles, 20, 20);
    let status = c.status();
    drop(c);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut r, &mut said).unwrap();
    // dash cannot open numbers beyond the limit, but may use one it was given.
    let _ = status;
    let mut high = Command::new("/bin/true");
    high.fd(1 << 24, Stdio::null());
    let e = error_of(high);
    assert_eq!((e.step(), e.raw_os_error()), (Step::Descriptors, Some(libc::EBADF)), "{e}");
}

fn too_many_processes() {
    let worker = |name: &'static str| {
        let out = std::process::Command::new(me()).args(["--bare", short_of(name)]).output().unwrap();
        eprint!("{}", String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{name}: {}", out.status);
    };
    need_root();
    worker("nproc");
    worker("little_memory");
}

#[expect(unsafe_code, reason = "setresuid(2)")]
fn nproc() {
    Command::new("/bin/true").status().unwrap();
    setrlimit(R::Nproc, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    // SAFETY: this process is a worker of its own.
    assert_eq!(unsafe { libc::setresuid(54_399, 54_399, 54_399) }, 0);
    let before = guard::descriptors();
    for _ in 0..3 {
        let e = Command::new("/bin/true").stdin(Stdio::piped()).spawn().unwrap_err();
        assert_eq!((e.step(), e.raw_os_error()), (Step::Clone, Some(libc::EAGAIN)), "{e}");
        assert_eq!(Command::new("/bin/true").spawn_nonblocking().unwrap_err().step(), Step::Clone);
    }
    assert_eq!(guard::descriptors(), before);
    guard::assert_no_children();
    assert_eq!(forkless_sys::signal::mask().unwrap().0, 0);
}

/// The first start of a process needs memory for a stack.
fn little_memory() {
    let warm = forkless::facilities().len();
    assert!(warm > 0);
    let mut flying: Vec<_> =
        (0..2).map(|_| Command::new("/bin/sleep").arg("0.3").spawn_nonblocking().unwrap()).collect();
    let size = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = size.split(' ').next().unwrap().parse().unwrap();
    let old = getrlimit(R::As);
    setrlimit(R::As, Rlimit { current: Some(pages * 4096 + 16 * 1024), maximum: old.maximum }).unwrap();
    let maps = mappings();
    let mut errors = 0;
    for _ in 0..8 {
        // Not executed with this limit: it is the child's as well.
        match Command::new("/does/not/exist").spawn_nonblocking() {
            Ok(c) => flying.push(c),
            Err(e) => {
                assert_eq!((e.step(), e.raw_os_error()), (Step::Stack, Some(libc::ENOMEM)), "{e}");
                errors += 1;
            }
        }
    }
    setrlimit(R::As, old).unwrap();
    assert!(mappings() <= maps + 2);
    for mut c in flying {
        let _ = c.wait();
    }
    println!("{errors} refused");
    assert!(Command::new("/bin/true").status().unwrap().success());
    guard::assert_no_children();
}

fn the_last_word_for_a_number_counts() {
    let (mut r, w) = std::io::pipe().unwrap();
    let mut c = Command::new("sh");
    c.args(["-c", "echo x >&5"]).fd(5, Stdio::null()).fd(5, w);
    c.status().unwrap();
    drop(c);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut r, &mut said).unwrap();
    assert_eq!(said, "x\n");
}

fn messages_are_one_line_and_say_the_thing() {
    let says = |prepare: fn(&mut Command) -> &mut Command, text: &str| {
        let mut c = new("/bin/true");
        prepare(&mut c);
        assert_eq!(error_of(c).to_string(), text);
    };
    let e = error_of(new("/x\nroot: login \u{1b}[31m\u{e9}"));
    assert_eq!(e.to_string(), "exec /x\\nroot: login \\u{1b}[31m\u{e9}: No such file or directory");
    assert_eq!(e.what(), Some("/x\nroot: login \u{1b}[31m\u{e9}"), "the thing is as it is");
    says(
        |c| c.fd(-1, Stdio::null()),
        "command: no table of descriptors has the number -1: Bad file descriptor",
    );
    says(|c| c.affinity([1, 4_000_000_000]), "command: no machine has a CPU 4000000000: Invalid argument");
    says(|c| c.affinity([65_000, 65_003]), "sched_setaffinity to CPUs [65000, 65003]: Invalid argument");
    says(|c| c.rlimit(forkless::Resource::Core, 2, 1), "setrlimit RLIMIT_CORE: Invalid argument");
}

/// The limit of the program itself comes later.
fn a_number_beyond_the_limit_is_told_with_the_limit() {
    let before = getrlimit(R::Nofile);
    let beyond = 300;
    let limit = before.current.map_or(300, |limit| limit.min(300));
    setrlimit(R::Nofile, Rlimit { current: Some(limit), maximum: before.maximum }).unwrap();
    for stdio in [Stdio::from(std::fs::File::open("/dev/null").unwrap()), Stdio::null()] {
        let mut c = new("/bin/true");
        c.fd(beyond, stdio);
        let e = error_of(c);
        assert_eq!(e.step(), Step::Descriptors);
        let text = e.to_string();
        assert!(text.starts_with(&format!("descriptor {beyond} from ")), "{text}");
        assert!(text.ends_with(&format!(" (RLIMIT_NOFILE is {limit}): Bad file descriptor")), "{text}");
    }
    setrlimit(R::Nofile, before).unwrap();
}

fn same_as_is_settled_before_the_start() {
    let mut c = new("true");
    c.stderr(Stdio::same_as(9));
    let e = error_of(c);
    assert_eq!(
        e.to_string(),
        "command: descriptor 2 the same as 9, which the child does not get: Bad file descriptor"
    );
    let mut c = new("true");
    c.stdin(Stdio::same_as(1)).stdout(Stdio::same_as(0));
    assert_eq!(error_of(c).step(), Step::Command);
    let mut c = new("true");
    c.stdin(Stdio::closed()).stdout(Stdio::same_as(0));
    assert_eq!(error_of(c).step(), Step::Command);
    let out = Command::new("sh")
        .args(["-c", "echo through >&7"])
        .fd(7, Stdio::same_as(8))
        .fd(8, Stdio::same_as(1))
        .output()
        .unwrap();
    assert_eq!(out.stdout, b"through\n");
}

/// Below a child's stack there must be no accessible memory, so that an overflow ends there.
#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn a_guard_lies_below_every_stack() {
    static SEEN: std::sync::Mutex<(usize, String)> = std::sync::Mutex::new((0, String::new()));
    let mut c = Command::new("/bin/true");
    // SAFETY: one thread, so the heap's lock is free; the child reads the mappings that it shares.
    unsafe {
        c.pre_exec(|| {
            let here = 0u8;
            *SEEN.lock().unwrap() = (&raw const here as usize, std::fs::read_to_string("/proc/self/maps")?);
            Ok(())
        });
    }
    assert!(c.status().unwrap().success());
    let (at, maps) = SEEN.lock().unwrap().clone();
    let ranges: Vec<(usize, usize, &str)> = maps
        .lines()
        .map(|l| {
            let (range, rest) = l.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let number = |s| usize::from_str_radix(s, 16).unwrap();
            (number(from), number(to), &rest[..4])
        })
        .collect();
    let stack = ranges.iter().position(|r| (r.0..r.1).contains(&at)).expect("the stack is mapped");
    let (below, own) = (ranges[stack - 1], ranges[stack]);
    assert_eq!(own.2, "rw-p");
    assert!(own.1 - own.0 >= 2 << 20, "{own:x?}");
    assert!(below.1 == own.0 && below.2 == "---p" && below.1 - below.0 >= 64 * 1024, "no guard: {below:x?}");
    let after = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!after.contains(&format!("{:x}-{:x} rw-p", own.0, own.1)), "unmapped when the child has left");
}

/// A hook that overflows its stack dies on the guard instead of running into other memory.
#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn an_overflowing_hook_kills_the_child_alone() {
    if crate::support::kernel() < (5, 16) {
        crate::support::skip(
            "before Linux 5.16 a child that crashes while it shares memory takes its parent along",
        );
    }
    fn deep(n: u64) -> u64 {
        let mut room = [n; 512];
        std::hint::black_box(&mut room);
        if n == 0 { 0 } else { deep(n - 1) + room[3] }
    }
    // The pages around the stack belong to others: neighbours to be hit.
    let neighbours: Vec<Vec<u8>> = (0..4).map(|_| vec![7u8; 256 * 1024]).collect();
    let mut c = Command::new("/bin/true");
    // SAFETY: overflows on purpose.
    unsafe { c.pre_exec(|| if deep(100_000) == 1 { Err(std::io::Error::other("no")) } else { Ok(()) }) };
    c.rlimit(Resource::Core, 0, 0).on_drop(OnDrop::Kill);
    let status = c.spawn().unwrap().wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
    assert!(neighbours.iter().flatten().all(|b| *b == 7));
}

cases![
    bad_arguments_are_named,
    what_cannot_be_executed_is_named_with_the_reason,
    a_script_without_interpreter_is_run_by_the_shell_as_execvp_does,
    a_denied_file_in_path_does_not_hide_a_later_one_and_is_the_reason_if_there_is_none,
    a_directory_in_path_that_is_too_long_does_not_hide_a_later_one,
    a_directory_in_path_with_a_name_that_is_too_long_does_not_hide_a_later_one,
    a_file_open_for_writing_is_waited_for_and_not_for_ever,
    writing_and_starting_programs_in_two_threads,
    a_vanished_directory,
    no_descriptor_left_is_an_error_at_every_place,
    running_to_the_end_needs_no_descriptor,
    a_full_table_stops_no_start,
    a_number_given_out_again_is_not_taken_for_the_child,
    a_full_table_stops_no_awaited_wait,
    a_limit_lowered_for_the_child_does_not_lose_its_descriptors,
    the_last_word_for_a_number_counts,
    messages_are_one_line_and_say_the_thing,
    a_number_beyond_the_limit_is_told_with_the_limit,
    same_as_is_settled_before_the_start,
    a_guard_lies_below_every_stack,
    ; once
    too_many_processes,
    an_overflowing_hook_kills_the_child_alone,
];
pub const WORKERS: &[Case] = &[
    Case { name: "nproc", run: nproc, repeatable: false },
    Case { name: "awaits_with_a_full_table", run: awaits_with_a_full_table, repeatable: false },
    Case { name: "little_memory", run: little_memory, repeatable: false },
];
