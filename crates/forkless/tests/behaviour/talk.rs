//! Talking with children: any size both ways, limits, deadlines that hold though another process
//! keeps the pipe, lines and chunks, pipelines.

use crate::support::{Case, cases, filter, guard, me, need_root, short_of, skip};
use forkless::{Command, End, OnDrop, Stdio, Step};
use forkless_sys::{Errno, process};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

fn sh(script: &str) -> Command {
    let mut c = Command::new("sh");
    c.args(["-c", script]);
    c
}

#[track_caller]
fn within<T>(limit: Duration, f: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let r = f();
    assert!(began.elapsed() < limit, "took {:?}", began.elapsed());
    r
}

fn a_hundred_megabytes_both_ways() {
    crate::support::need_real_time();
    let input: Vec<u8> = (0..100_000_000u32).map(|n| (n % 251) as u8).collect();
    let (status, said) = Command::new("cat").communicate().input(&input).run().unwrap();
    assert!(status.success());
    assert_eq!(said.end, End::Complete);
    assert!(said.stdout == input);
}

fn three_streams_at_once_and_merged() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo out-out-out-out; echo err-err-err-err >&2; echo five >&5; i=$((i+1)); done";
    let (status, said) = sh(script).communicate().capture(5).run().unwrap();
    assert!(status.success());
    assert_eq!((said.stdout.len(), said.stderr.len()), (32_000, 32_000));
    assert_eq!(said.others.len(), 1);
    assert_eq!((said.others[0].0, said.others[0].1.len()), (5, 10_000));
    let (_, said) = sh("echo a; echo b >&2; echo c").communicate().merged().run().unwrap();
    assert_eq!(said.stdout, b"a\nb\nc\n");
    assert!(said.stderr.is_empty());
}

fn a_conversation_leaves_the_command_as_it_was() {
    let mut c = sh("cat; echo err >&2");
    c.stdin(Stdio::null());
    let (_, said) = c.communicate().input("in").merged().capture(5).kill_group().run().unwrap();
    assert_eq!(said.stdout, b"inerr\n");
    let out = c.output().unwrap();
    assert_eq!((out.stdout, out.stderr), (vec![], b"err\n".to_vec()));
    let mut child = c.stderr(Stdio::null()).spawn().unwrap();
    assert!(child.take_pipe(5).is_none() && child.stdin.is_none());
    assert!(child.signal_group(0).is_err(), "no group was asked for");
    child.wait().unwrap();
}

fn limits_and_stops_kill_the_child() {
    let (status, said) = sh("yes; exit 0").communicate().limit(100_000).run().unwrap();
    assert_eq!((said.end, said.stdout.len(), status.signal()), (End::Limit, 100_000, Some(libc::SIGKILL)));
    let (status, said) = sh("echo 12345; echo 6789 >&2").communicate().limit(6).run().unwrap();
    assert!(status.success() && said.end == End::Complete, "at the limit is not over it");
    let mut seen = 0;
    let stop = |_, piece: &[u8]| {
        seen += piece.len();
        if seen > 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let (status, said) = Command::new("yes").communicate().on_chunk(stop).run().unwrap();
    assert_eq!((said.end, status.signal()), (End::Stopped, Some(libc::SIGKILL)));
    assert!(said.stdout.is_empty() && seen > 1000);
}

fn a_line_over_the_limit_is_not_handed_over_and_a_stop_is_the_last_call() {
    let talk = |script: &str, stop_at: &str| {
        let mut lines = Vec::new();
        let each = |number, line: &[u8]| {
            let line = format!("{number}:{}", String::from_utf8_lossy(line));
            let stop = line == stop_at;
            lines.push(line);
            if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let (status, said) = sh(script).communicate().limit(5).on_line(each).run().unwrap();
        (lines, said.end, status.signal())
    };
    // A whole line in one piece, and one without an end.
    let over = talk("printf 'one\\n123456\\ntwo\\n'; sleep 60", "");
    assert_eq!(over, (vec![String::from("1:one")], End::Limit, Some(libc::SIGKILL)));
    let over = talk("printf 'one\\n123456'; sleep 60", "");
    assert_eq!(over, (vec![String::from("1:one")], End::Limit, Some(libc::SIGKILL)));
    let at_limit = talk("printf '12345\\n12345'", "");
    assert_eq!(at_limit, (vec![String::from("1:12345"), String::from("1:12345")], End::Complete, None));
    // The beginning of a line on standard error is not handed over after the stop.
    let stopped = talk("printf part >&2; sleep 0.1; echo stop; sleep 60", "1:stop");
    assert_eq!(stopped, (vec![String::from("1:stop")], End::Stopped, Some(libc::SIGKILL)));
    // Nor is a stop at the last line passed over.
    let stopped = talk("printf stop; exec >&- 2>&-; sleep 60", "1:stop");
    assert_eq!(stopped, (vec![String::from("1:stop")], End::Stopped, Some(libc::SIGKILL)));
}

fn lines_come_as_they_are_written() {
    let mut lines = Vec::new();
    // The second line waits until the first has been handed over.
    let (r, mut w) = std::io::pipe().unwrap();
    let mut c =
        sh("echo one; read go <&5; printf 'two\\nthr'; sleep 0.05; printf 'ee\\n\\nlast'; echo e >&2");
    let (status, _) = c
        .fd(5, r)
        .communicate()
        .on_line(|n, line| {
            lines.push((n, String::from_utf8_lossy(line).into_owned()));
            if lines.len() == 1 {
                w.write_all(b"go\n").unwrap();
            }
            ControlFlow::Continue(())
        })
        .run()
        .unwrap();
    assert!(status.success());
    let out: Vec<_> = lines.iter().filter(|l| l.0 == 1).map(|l| l.1.as_str()).collect();
    assert_eq!(out, ["one", "two", "three", "", "last"]);
    assert!(lines.iter().any(|l| l.0 == 2 && l.1 == "e"));
    let (_, said) = sh("yes | tr -d '\\n'")
        .communicate()
        .on_line(|_, _| ControlFlow::Continue(()))
        .limit(1 << 20)
        .run()
        .unwrap();
    assert_eq!(said.end, End::Limit, "a line without end");
}

fn a_deadline_holds_though_a_grandchild_keeps_the_pipe() {
    crate::support::need_real_time();
    for group in [false, true] {
        let (status, said) = in_time(
            |limit| {
                let mut c = sh("sleep 600 & echo $!; wait");
                let talk = c.communicate().timeout(limit);
                let talk = if group { talk.kill_group() } else { talk };
                within(AN_AGE, || talk.run().unwrap())
            },
            |(_, said)| said.stdout.ends_with(b"\n"),
        );
        assert_eq!((said.end, status.signal()), (End::Deadline, Some(libc::SIGKILL)));
        assert!(end_grandchild(&said.stdout) || group, "only with its group it is killed");
    }
    // The child itself has ended: its status counts.
    let mut c = sh("sleep 600 & echo $!; exit 4");
    let (status, said) = in_time(
        |limit| within(AN_AGE, || c.communicate().timeout(limit).run().unwrap()),
        |(status, _)| status.signal().is_none(),
    );
    assert_eq!((said.end, status.code()), (End::Deadline, Some(4)));
    assert!(end_grandchild(&said.stdout));
    let (status, said) = within(AN_AGE, || c.communicate().linger(Duration::from_millis(50)).run().unwrap());
    assert_eq!((said.end, status.code()), (End::Lingered, Some(4)));
    assert!(end_grandchild(&said.stdout));
}

/// Less than the ten minutes that the programs here sleep.
const AN_AGE: Duration = Duration::from_secs(300);

/// Runs it with a longer and longer deadline. A busy machine may come to the deadline before the
/// child has done its part.
fn in_time<T>(mut run: impl FnMut(Duration) -> T, is_done: impl Fn(&T) -> bool) -> T {
    for seconds in [1, 10] {
        let result = run(Duration::from_secs(seconds));
        if is_done(&result) {
            return result;
        }
    }
    run(Duration::from_secs(100))
}

/// Kills the process whose number a shell has written; returns whether it was there.
fn end_grandchild(said: &[u8]) -> bool {
    let pid = std::str::from_utf8(said).unwrap().trim().parse().unwrap();
    process::kill(pid, libc::SIGKILL).is_ok()
}

fn a_deadline_of_zero_is_over_at_once() {
    let (status, said) = within(AN_AGE, || {
        Command::new("sleep").arg("600").communicate().timeout(Duration::ZERO).run().unwrap()
    });
    assert_eq!((said.end, status.signal()), (End::Deadline, Some(libc::SIGKILL)));
    let mut c = Command::new("sleep").arg("60").on_drop(OnDrop::Kill).spawn().unwrap();
    assert!(matches!(c.wait_timeout(Duration::ZERO), Err(forkless::WaitError::Deadline)));
    assert!(matches!(c.wait_until(Some(Instant::now())), Err(forkless::WaitError::Deadline)));
}

fn a_child_may_close_its_pipes_and_live_on() {
    let (status, said) = sh("exec >&- 2>&-; sleep 0.1; exit 3").communicate().run().unwrap();
    assert_eq!((status.code(), said.end), (Some(3), End::Complete));
    let (status, said) = within(AN_AGE, || {
        sh("exec >&- 2>&-; exec sleep 600").communicate().timeout(Duration::from_millis(100)).run().unwrap()
    });
    assert_eq!((status.signal(), said.end), (Some(libc::SIGKILL), End::Deadline));
    let input = vec![0; 1 << 20];
    let (status, _) = sh("exec <&-; sleep 0.05; exit 5").communicate().input(&input).run().unwrap();
    assert_eq!(status.code(), Some(5), "a child that does not read is no error");
}

fn every_wait_lets_the_child_see_the_end_of_its_input() {
    for wait in [
        |c: &mut forkless::Child| c.wait(),
        |c: &mut forkless::Child| c.wait_timeout(AN_AGE),
        |c: &mut forkless::Child| c.wait_until(Some(Instant::now() + AN_AGE)),
        |c: &mut forkless::Child| c.wait_until(None),
    ] {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert!(within(AN_AGE, || wait(&mut child)).unwrap().success());
    }
}

fn writing_to_a_child_that_went_kills_nobody() {
    // As in a C program, where SIGPIPE has its default action.
    forkless_sys::signal::reset(libc::SIGPIPE, false).unwrap();
    let input = vec![0; 1 << 20];
    let got = sh("exit 5").communicate().input(&input).run();
    let pending = forkless_sys::signal::pending().unwrap();
    forkless_sys::signal::reset(libc::SIGPIPE, true).unwrap();
    assert_eq!(got.unwrap().0.code(), Some(5));
    assert!(!pending.has(libc::SIGPIPE));
}

/// As an unprivileged user: a program that has become root's for good (as sudo's does) cannot be
/// killed, and the deadline must hold all the same.
fn cannot_kill() {
    let program = std::env::var("SETUID_SLEEP").unwrap();
    nix_setuid();
    // The program lives as long as this file is there.
    let life = std::env::temp_dir().join(format!("forkless-stubborn-{}", std::process::id()));
    std::fs::write(&life, "").unwrap();
    // Until it has become root's, it can be killed.
    let talk = |limit| {
        let mut c = Command::new(&program);
        c.arg("--role=stubborn").arg(&life).communicate().timeout(limit).run()
    };
    let e = in_time(talk, Result::is_err).unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::Wait, Some(libc::EPERM)), "{e}");
    let mut c = Command::new(&program);
    drop(c.arg("--role=stubborn").arg(&life).on_drop(OnDrop::Kill).spawn().unwrap());
    let stubborn = format!("{program} --role=stubborn {}", life.display());
    for line in [stubborn.clone(), format!("{stubborn} | cat"), format!("true; {stubborn}")] {
        for outputs in [false, true] {
            let mut line = forkless::shell(&line);
            let run = |limit| {
                line.timeout(limit);
                if outputs { line.output().map(|out| out.status) } else { line.status() }
            };
            let not_killed = |ended: &Result<_, forkless::SpawnError>| {
                ended.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
            };
            let e = in_time(run, not_killed).unwrap_err();
            assert_eq!((e.step(), e.raw_os_error()), (Step::Wait, Some(libc::EPERM)), "{line:?}: {e}");
        }
    }
    // The last stage is started once the first has become root's, and fails.
    for policy in [OnDrop::Detach, OnDrop::Wait, OnDrop::Kill] {
        let mut first = Command::new(&program);
        first.arg("--role=stubborn").arg(&life).on_drop(policy);
        let mut last = Command::new("true");
        #[expect(unsafe_code, reason = "pre_exec is unsafe")]
        // SAFETY: one system call.
        unsafe {
            last.pre_exec(|| {
                let _ = forkless_sys::fd::read(0, &mut [0]);
                Err(std::io::Error::from_raw_os_error(libc::EDOM))
            })
        };
        let e = first.pipe(last).spawn().unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EDOM), "{e}");
    }
    let alive = process::waitid(process::P_ALL, 0, process::WEXITED | process::WNOHANG | process::WNOWAIT);
    assert!(alive.is_ok(), "{alive:?}");
    std::fs::remove_file(&life).unwrap();
    crate::support::guard::settle(1);
    crate::support::guard::assert_no_children();
}

#[expect(unsafe_code, reason = "setresuid(2)")]
fn nix_setuid() {
    // SAFETY: this process is a worker of its own.
    assert_eq!(unsafe { libc::setresuid(54_321, 54_321, 54_321) }, 0);
}

fn a_deadline_holds_for_a_child_that_may_not_be_killed() {
    need_root();
    use std::os::unix::fs::PermissionsExt;
    let dir = std::env::temp_dir().join(format!("forkless-setuid-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let program = dir.join("stubborn");
    std::fs::copy(me(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let worker = std::process::Command::new(me())
        .args(["--bare", short_of("cannot_kill")])
        .env("SETUID_SLEEP", &program)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    eprint!("{}", String::from_utf8_lossy(&worker.stderr));
    if !worker.status.success() && String::from_utf8_lossy(&worker.stderr).contains("Result::unwrap_err") {
        skip("set-user-ID programs have no effect on this file system");
    }
    assert!(worker.status.success(), "{}", worker.status);
}

fn pipelines_report_every_stage_and_do_not_hang() {
    let out =
        sh("echo a; echo b; exit 3").pipe(Command::new("cat")).pipe(sh("wc -l; exit 5")).output().unwrap();
    assert_eq!((out.stdout, out.status.code()), (b"2\n".to_vec(), Some(5)));
    let all = sh("exit 1").pipe(sh("exit 2")).pipe(sh("exit 3")).status().unwrap();
    assert_eq!(all.iter().map(|s| s.code()).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    // `yes` ends by SIGPIPE once the last stage goes.
    let all = Command::new("yes").pipe(sh("head -n1 >/dev/null")).status().unwrap();
    assert_eq!((all[0].signal(), all[1].code()), (Some(libc::SIGPIPE), Some(0)));
    // Again, and with more than a pipe holds.
    let mut p = sh("head -c 300000 /dev/zero").pipe(Command::new("cat"));
    for _ in 0..2 {
        assert_eq!(p.output().unwrap().stdout.len(), 300_000);
    }
    p = sh("true").pipe(sh("cat >/dev/null"));
    assert_eq!(p.output().unwrap().stdout.len(), 0);
    assert!(p.status().unwrap().iter().all(|s| s.success()), "output() does not stick to status()");
    assert_eq!(p.stages().len(), 2);
}

fn a_pipeline_that_cannot_start_leaves_nothing() {
    let e = Command::new("yes")
        .pipe(Command::new("/does/not/exist"))
        .pipe(Command::new("cat"))
        .spawn()
        .unwrap_err();
    assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory");
}

fn a_pipelines_input_may_be_a_pipe() {
    let mut first = Command::new("cat");
    first.stdin(Stdio::piped());
    let mut last = Command::new("cat");
    last.stdout(Stdio::piped());
    let mut children = first.pipe(Command::new("cat")).pipe(last).spawn().unwrap();
    children.stages[0].stdin.take().unwrap().write_all(b"through three").unwrap();
    let mut said = String::new();
    children.stages[2].stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "through three");
    assert!(children.wait().unwrap().iter().all(|s| s.success()));
    let mut first = Command::new("cat");
    first.stdin(Stdio::piped());
    let out = first.pipe(Command::new("cat")).output().unwrap();
    assert!(out.status.success() && out.stdout.is_empty(), "nobody writes: the end is seen at once");
}

fn a_pipe_the_child_reads_from_at_a_number_that_is_written_to_by_custom() {
    let mut c = sh("cat <&1 >&2");
    c.stdout(Stdio::piped_input()).stderr(Stdio::piped());
    let mut child = c.spawn().unwrap();
    assert!(child.stdout.is_none(), "nothing can be read from it");
    std::fs::File::from(child.take_pipe(1).unwrap()).write_all(b"odd").unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "odd");
    child.wait().unwrap();
}

/// Reads an input that has no writer, and writes more than a pipe holds. `timeout` ends with 124
/// where it waited instead.
const ENDS: &str = "timeout 100 cat <&7 || exit; \
    timeout 100 head -c 1000000 /dev/zero >&8; test $? -ne 124 || exit; \
    timeout 100 head -c 1000000 /dev/zero >&2; test $? -ne 124 || exit";

fn with_pipes(script: &str) -> Command {
    let mut c = sh(&format!("{ENDS}; {script}"));
    c.fd(7, Stdio::piped_input()).fd(8, Stdio::piped()).stderr(Stdio::piped());
    c
}

/// Regression: the library held the only other end of these pipes, and the call never returned.
fn no_call_waits_for_a_pipe_that_nobody_can_reach() {
    let code = |status: std::process::ExitStatus| status.code();
    assert_eq!(code(with_pipes("exit 5").status().unwrap()), Some(5));
    assert_eq!(code(with_pipes("exit 5").output().unwrap().status), Some(5));
    let (status, said) = with_pipes("exit 5").communicate().run().unwrap();
    assert_eq!((code(status), said.end), (Some(5), End::Complete));
    assert!(said.others.is_empty());
    assert_eq!(said.stderr.len(), 1_000_000);
    let (status, said) = with_pipes("exit 5").communicate().capture(8).run().unwrap();
    assert_eq!((code(status), said.others[0].1.len()), (Some(5), 1_000_000));
    let prepared = with_pipes("exit 5").prepare().unwrap();
    assert_eq!(code(prepared.status().unwrap()), Some(5));
    assert_eq!(code(prepared.output().unwrap().status), Some(5));
    let child = with_pipes("exit 5").spawn().unwrap();
    assert_eq!(code(child.wait_with_output().unwrap().status), Some(5));
    let stages = || with_pipes("echo x").pipe(with_pipes("read x")).pipe(with_pipes("exit 5"));
    let codes: Vec<_> = stages().status().unwrap().into_iter().map(code).collect();
    assert_eq!(codes, [Some(0), Some(0), Some(5)]);
    assert_eq!(code(stages().output().unwrap().status), Some(5));
}

fn a_wait_closes_every_pipe_that_the_child_reads_from() {
    let reads = || {
        let mut c = sh("timeout 100 cat <&7 && echo end >&8");
        c.fd(7, Stdio::piped_input()).fd(8, Stdio::piped());
        c
    };
    // What it has written can still be read.
    let said = |mut child: forkless::Child| {
        let mut text = String::new();
        std::fs::File::from(child.take_pipe(8).unwrap()).read_to_string(&mut text).unwrap();
        text
    };
    let mut child = reads().spawn().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said(child), "end\n");
    let mut child = reads().spawn().unwrap();
    assert!(child.wait_timeout(Duration::from_secs(200)).unwrap().success());
    assert_eq!(said(child), "end\n");
    // The first stage ends after the last: the wait for it must not keep the last one's input open.
    let mut first = sh("timeout 100 cat <&7 && timeout 100 cat <&9");
    let (read, write) = std::io::pipe().unwrap();
    first.fd(9, std::os::fd::OwnedFd::from(read)).fd(7, Stdio::piped_input());
    let mut last = reads();
    last.fd(9, std::os::fd::OwnedFd::from(write));
    let mut stages = first.pipe(last);
    let mut children = stages.spawn().unwrap();
    drop(stages);
    assert!(children.wait().unwrap().iter().all(|s| s.success()));
}

/// A process under a filter that refuses a call of the talk.
fn refused_talk() {
    const F_SETFL: u32 = libc::F_SETFL as u32;
    let sleeper = || {
        let mut c = Command::new("sleep");
        c.arg("600");
        c
    };
    // The start is not what is refused.
    assert!(Command::new("true").status().unwrap().success());
    let (rule, shell_too) = match std::env::var("CALL").unwrap().as_str() {
        "ppoll" => (filter::refuse(libc::SYS_ppoll, Errno::EPERM), true),
        // A shell line's pipes stay as they are.
        _ => (filter::refuse_when(libc::SYS_fcntl, 1, u32::MAX, F_SETFL, Errno::EPERM), false),
    };
    filter::install(&[rule]);
    let refused = |e: forkless::SpawnError, what: &str| {
        assert_eq!(e.raw_os_error(), Some(libc::EPERM), "{what}: {e}");
        assert!(!guard::has_children(), "{what}: a child is left");
    };
    refused(sleeper().communicate().run().unwrap_err(), "communicate");
    refused(sleeper().communicate().kill_group().run().unwrap_err(), "communicate with its group");
    refused(sleeper().output().unwrap_err(), "output");
    refused(sleeper().prepare().unwrap().output().unwrap_err(), "prepared");
    refused(sleeper().pipe(sleeper()).output().unwrap_err(), "pipeline");
    if shell_too {
        refused(forkless::shell("/bin/sleep 600").output().unwrap_err(), "line");
        // Two pipelines: their output is read by a thread. Both end by themselves.
        let e = forkless::shell("/bin/true && /usr/bin/head -c 1000000 /dev/zero").output().unwrap_err();
        refused(e, "list");
    }
}

/// A process with room for less than the children write.
fn short_of_memory() {
    const ROOM: u64 = 100 << 20;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let used: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    // A thread that reads a list's output needs a stack, and an arena of libc's heap.
    let limit = used * 4096 + ROOM + (80 << 20);
    let limit = forkless_sys::sched::Rlimit { soft: limit, hard: limit };
    forkless_sys::sched::setrlimit(libc::RLIMIT_AS, limit).unwrap();
    let writer = || {
        let mut c = Command::new("head");
        c.args(["-c", "400000000", "/dev/zero"]);
        c
    };
    let refused = |e: forkless::SpawnError, what: &str| {
        assert_eq!((e.step(), e.kind()), (Step::Wait, std::io::ErrorKind::OutOfMemory), "{what}: {e}");
        assert!(!guard::has_children(), "{what}: a child is left");
    };
    refused(writer().output().unwrap_err(), "output");
    refused(writer().prepare().unwrap().output().unwrap_err(), "prepared");
    refused(writer().pipe(Command::new("cat")).output().unwrap_err(), "pipeline");
    refused(forkless::shell("head -c 400000000 /dev/zero").output().unwrap_err(), "line");
    let list = forkless::shell("/bin/true && /usr/bin/head -c 400000000 /dev/zero").output();
    refused(list.unwrap_err(), "list");
    // A line without an end.
    let mut c = writer();
    let lines = c.communicate().on_line(|_, _| ControlFlow::Continue(()));
    refused(lines.run().unwrap_err(), "lines");
    assert_eq!(Command::new("echo").output().unwrap().stdout, b"\n");
}

/// Regression: the program was aborted.
fn output_that_does_not_fit_in_memory_is_an_error() {
    let mut worker = std::process::Command::new(me());
    let status = worker.args(["--bare", "short_of_memory"]).status().unwrap();
    assert!(status.success(), "{status}");
}

/// Regression: the child went on.
fn a_callback_that_panics_leaves_no_child() {
    let panics = |_: i32, _: &[u8]| -> ControlFlow<()> { std::panic::resume_unwind(Box::new("on purpose")) };
    for (by_line, group) in [(true, false), (false, false), (true, true)] {
        let mut c = sh(if group { "echo line; sleep 600 & wait" } else { "echo line; exec sleep 600" });
        let talk = c.communicate();
        let talk = if by_line { talk.on_line(panics) } else { talk.on_chunk(panics) };
        let talk = if group { talk.kill_group() } else { talk };
        let run = std::panic::AssertUnwindSafe(|| talk.run());
        assert!(std::panic::catch_unwind(run).is_err());
        guard::assert_no_children();
    }
}

fn standard_input_is_not_captured() {
    let e = Command::new("true").communicate().capture(0).run().unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::Command, Some(libc::EINVAL)));
}

/// Regression: the child went on.
fn a_talk_that_fails_leaves_no_child() {
    for call in ["ppoll", "fcntl"] {
        let mut worker = std::process::Command::new(me());
        let status = worker.args(["--bare", "refused_talk"]).env("CALL", call).status().unwrap();
        if status.code() == Some(77) {
            crate::support::skip("no seccomp filters here");
        }
        assert!(status.success(), "{call}: {status}");
    }
}

cases![
    three_streams_at_once_and_merged,
    a_conversation_leaves_the_command_as_it_was,
    limits_and_stops_kill_the_child,
    a_line_over_the_limit_is_not_handed_over_and_a_stop_is_the_last_call,
    lines_come_as_they_are_written,
    a_deadline_holds_though_a_grandchild_keeps_the_pipe,
    a_deadline_of_zero_is_over_at_once,
    a_child_may_close_its_pipes_and_live_on,
    every_wait_lets_the_child_see_the_end_of_its_input,
    writing_to_a_child_that_went_kills_nobody,
    pipelines_report_every_stage_and_do_not_hang,
    a_pipeline_that_cannot_start_leaves_nothing,
    a_pipelines_input_may_be_a_pipe,
    a_pipe_the_child_reads_from_at_a_number_that_is_written_to_by_custom,
    no_call_waits_for_a_pipe_that_nobody_can_reach,
    a_wait_closes_every_pipe_that_the_child_reads_from,
    a_talk_that_fails_leaves_no_child,
    a_callback_that_panics_leaves_no_child,
    standard_input_is_not_captured,
    output_that_does_not_fit_in_memory_is_an_error,
    ; once
    a_hundred_megabytes_both_ways,
    a_deadline_holds_for_a_child_that_may_not_be_killed,
];
pub const WORKERS: &[Case] = &[
    Case { name: "cannot_kill", run: cannot_kill, repeatable: false },
    Case { name: "short_of_memory", run: short_of_memory, repeatable: false },
    Case { name: "refused_talk", run: refused_talk, repeatable: false },
];
