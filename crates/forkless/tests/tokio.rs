//! `forkless::tokio` under both kinds of runtime.

use forkless::tokio::Command;
use forkless::{SigSet, Stdio};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The same body under a runtime of one thread and under one of several.
macro_rules! under_both {
    ($($name:ident $body:block)*) => {
        mod current_thread {
            use super::*;
            $(#[tokio::test(flavor = "current_thread")] async fn $name() $body)*
        }
        mod multi_thread {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() $body)*
        }
    };
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

under_both! {
    a_start_that_fails_is_an_error_of_spawn {
        for _ in 0..20 {
            let e = Command::new("/does/not/exist").spawn_async().await.unwrap_err();
            assert_eq!(e.to_string(), "exec /does/not/exist: No such file or directory");
            let e = Command::new("/bin/true").current_dir("/nowhere").spawn_async().await.unwrap_err();
            assert_eq!(e.step(), forkless::Step::Chdir);
        }
        let e = Command::new("/bin/true").current_dir("/nowhere").spawn().unwrap_err();
        assert_eq!((e.raw_os_error(), e.kind()), (Some(2), std::io::ErrorKind::NotFound));
        let e = Command::new("a\0b").status().await.unwrap_err();
        assert_eq!(e.kind(), std::io::ErrorKind::InvalidInput);
    }

    nothing_of_the_notification_reaches_the_program {
        for inherit in [false, true] {
            let mut c = Command::new("sh");
            c.args(["-c", "ls /proc/self/fd | wc -l; ls -l /proc/self/fd"]);
            c.as_inner_mut().inherit_descriptors(inherit).fd(9, Stdio::null()).stdout(Stdio::piped());
            let out = c.spawn_async().await.unwrap().wait_with_output().await.unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            // 0, 1, 2, 9 and the listing's own. Inheriting the rest adds nothing, since std opens
            // files close-on-exec.
            if !inherit {
                assert!(text.starts_with("5\n"), "{text}");
            }
        }
    }

    no_await_waits_for_a_pipe_that_nobody_can_reach {
        let command = || {
            let mut c = Command::new("sh");
            c.args(["-c", "timeout 100 cat <&7; timeout 100 head -c 1000000 /dev/zero >&8; test $? -ne 124"]);
            c.as_inner_mut().fd(7, Stdio::piped_input()).fd(8, Stdio::piped());
            c
        };
        assert!(command().status().await.unwrap().success());
        assert!(command().output().await.unwrap().status.success());
        let mut child = command().spawn().unwrap();
        let mut said = tokio::net::unix::pipe::Receiver::from_owned_fd(child.take_pipe(8).unwrap()).unwrap();
        let mut bytes = Vec::new();
        let (read, waited) = tokio::join!(said.read_to_end(&mut bytes), child.wait());
        assert!(waited.unwrap().success());
        assert_eq!(read.unwrap(), 1_000_000);
    }

    waiting_holds_up_nobody {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn_async().await.unwrap();
        // cat lives as long as this pipe.
        let mut input = child.stdin.take();
        let mut ticks = 0;
        let status = {
            let wait = child.wait();
            tokio::pin!(wait);
            loop {
                tokio::select! {
                    s = &mut wait => break s.unwrap(),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {
                        ticks += 1;
                        if ticks == 10 {
                            input = None;
                        }
                    }
                }
            }
        };
        assert!(status.success() && input.is_none(), "{ticks} ticks");
        assert!(child.wait().await.unwrap().success(), "and again");
    }

    a_wait_can_be_given_up_and_taken_up_again {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn_async().await.unwrap();
        let input = child.stdin.take();
        assert!(tokio::time::timeout(Duration::from_millis(20), child.wait()).await.is_err());
        assert!(child.try_wait().unwrap().is_none());
        drop(input);
        assert!(child.wait().await.unwrap().success());
    }

    pipes_are_awaited_in_both_directions {
        let mut c = Command::new("cat");
        let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn_async().await.unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let bytes = vec![7u8; 2_000_000];
        let sent = bytes.clone();
        let writing = tokio::spawn(async move { to.write_all(&sent).await.unwrap() });
        let mut got = Vec::new();
        from.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap();
        assert!(got == bytes && child.wait().await.unwrap().success());
    }

    output_reads_both_streams_at_once {
        let script = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; exit 3";
        let out = Command::new("sh").args(["-c", script]).output().await.unwrap();
        assert_eq!((out.stdout.len(), out.stderr.len(), out.status.code()), (300_000, 300_000, Some(3)));
    }

    kill_awaits_the_end_and_kill_on_drop_leaves_nothing {
        let mut child = Command::new("sleep").arg("60").spawn_async().await.unwrap();
        child.kill().await.unwrap();
        assert_eq!(child.wait().await.unwrap().signal(), Some(9));
        let child = Command::new("sleep").arg("60").kill_on_drop(true).spawn_async().await.unwrap();
        let pidfd = child.pidfd().unwrap().try_clone_to_owned().unwrap();
        drop(child);
        let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 300, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ended, Some(&limit)).unwrap(), 1, "not killed");
    }

    a_hundred_at_once_and_no_descriptor_left {
        let before = open_descriptors();
        let mut all = Vec::new();
        for i in 0..100 {
            all.push(tokio::spawn(async move {
                if i % 5 == 0 {
                    assert!(Command::new("/none").spawn_async().await.is_err());
                }
                Command::new("sh").args(["-c", "exit 4"]).status().await.unwrap().code()
            }));
        }
        for one in all {
            assert_eq!(one.await.unwrap(), Some(4));
        }
        // Other tests of this process open and close, too.
        for _ in 0..30_000 {
            if open_descriptors() <= before + 8 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{before} descriptors became {}", open_descriptors());
    }

    code_for_tokios_process_compiles_and_does_the_same {
        macro_rules! both {
            ($($body:tt)*) => {{
                let tokios = {
                    use ::tokio::process::{ChildStdout, Command};
                    use std::process::Stdio;
                    $($body)*
                };
                let ours = {
                    use forkless::tokio::{ChildStdout, Command};
                    use forkless::Stdio;
                    $($body)*
                };
                assert_eq!(ours, tokios, "ours (left) is not what tokio does");
            }};
        }
        both! {
            let mut c = Command::new("sh");
            c.args(["-c", "echo $0 $A $B; cat"]).arg0("x").env_clear().env("A", "1").envs([("B", "2")]);
            c.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
            let mut child = c.spawn().unwrap();
            assert!(child.id().is_some());
            drop(child.stdin.take());
            let status = child.wait().await.unwrap();
            let gone = (child.id(), child.try_wait().unwrap());
            child.start_kill().unwrap();
            // Moved out of the child, and on to another.
            let out: ChildStdout = child.stdout.unwrap();
            let out: Stdio = out.try_into().unwrap();
            let text = Command::new("cat").stdin(out).output().await.unwrap().stdout;
            // It starts when it is called, and borrows nothing.
            let (late, path) = (Command::new("true").status(), std::path::Path::new("/nowhere"));
            let e = Command::new("true").current_dir(path).spawn().unwrap_err();
            (status, gone, text, late.await.unwrap(), e.raw_os_error(), e.to_string())
        }
    }

    everything_else_is_reached_through_the_inner_command {
        let mut c = Command::new("sh");
        c.args(["-c", "umask; kill -TERM $$"]).env("A", "b");
        c.as_inner_mut().umask(0o027).signal_mask(SigSet::EMPTY).process_group(0);
        let out = c.output().await.unwrap();
        assert_eq!((out.stdout, out.status.signal()), (b"0027\n".to_vec(), Some(15)));
        let mut own: Command = forkless::Command::new("true").into();
        assert!(own.status().await.unwrap().success());
        assert_eq!(own.as_inner().get_program(), "true");
        assert!(own.spawn_async().await.unwrap().wait().await.unwrap().success());
    }
}

/// Regression: each wait said that the runtime is being shut down.
#[test]
fn a_child_is_awaited_in_another_runtime_than_it_was_before() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let first = runtime();
    let (mut child, input) = first.block_on(async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        tokio::select! {
            biased;
            ended = child.wait() => panic!("{ended:?}"),
            () = async {} => {}
        }
        (child, input)
    });
    drop(first);
    drop(input);
    assert!(runtime().block_on(child.wait()).unwrap().success());
}
