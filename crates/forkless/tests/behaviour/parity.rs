//! The same code with `std::process::Command` and with this library's: same status, same output,
//! and the child sees the same of itself.

use crate::support::report::{self, Report};
use crate::support::{cases, me, need_root};
use forkless_sys::signal::{self, SigSet};
use std::collections::BTreeMap;

/// Runs the same body with both, named `Command` and `Stdio` in it, and returns both results.
macro_rules! both {
    ($body:expr) => {{
        let std = {
            #[allow(unused_imports, reason = "not every body needs every name")]
            use std::os::unix::process::CommandExt;
            #[allow(unused_imports, reason = "as above")]
            use std::process::{Command, Stdio};
            $body
        };
        let ours = {
            #[allow(unused_imports, reason = "as above")]
            use forkless::{Command, Stdio};
            $body
        };
        (std, ours)
    }};
}

/// Removes the facts that may differ between two children that were started the same way.
fn comparable(out: &[u8]) -> BTreeMap<String, String> {
    let mut r = Report::parse(out).0;
    for volatile in ["pid", "fds", "pgrp"] {
        r.remove(volatile);
    }
    r
}

#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>((std, ours): (T, T)) -> T {
    assert_eq!(ours, std, "ours (left) is not what std::process does");
    ours
}

fn a_plain_child_sees_the_same_world() {
    same(both!(comparable(&Command::new(me()).args(report::args(1)).output().unwrap().stdout)));
}

fn arguments_environment_and_directory() {
    same(both!({
        let out = Command::new(me())
            .arg0("another name")
            .args(report::args(1))
            .args(["A", "B", "PATH", "C", "", "with space", "ünïcode"])
            .env("A", "1")
            .env("B", "x=y")
            .envs([("C", "2")])
            .env_remove("PATH")
            .current_dir("/usr/share")
            .output()
            .unwrap();
        comparable(&out.stdout)
    }));
    same(both!({
        let mut c = Command::new(me());
        c.args(report::args(1)).args(["HOME", "Z"]).env("Z", "gone").env_clear().env("HOME", "/h");
        (comparable(&c.output().unwrap().stdout), format!("{:?}", c.get_envs().collect::<Vec<_>>()))
    }));
    same(both!({
        let mut c = Command::new("program");
        c.args(["a", "b c"]).env("k", "v").env_remove("r").current_dir("/d");
        (
            c.get_program().to_owned(),
            c.get_args().map(ToOwned::to_owned).collect::<Vec<_>>(),
            c.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect::<Vec<_>>(),
            c.get_current_dir().map(ToOwned::to_owned),
        )
    }));
}

fn exit_codes_and_signals_in_the_status() {
    for script in
        ["exit 0", "exit 3", "exit 255", "kill -TERM $$", "kill -KILL $$", "ulimit -c 0; kill -ABRT $$"]
    {
        same(both!(Command::new("sh").args(["-c", script]).status().unwrap()));
    }
}

fn the_three_defaults_of_standard_streams() {
    same(both!({
        let out = Command::new("sh").args(["-c", "cat; echo out; echo err >&2"]).output().unwrap();
        (out.status, out.stdout, out.stderr)
    }));
    same(both!({
        let mut c = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut c.stdin.take().unwrap(), b"through").unwrap();
        let out = c.wait_with_output().unwrap();
        (out.status, out.stdout)
    }));
    same(both!({
        let mut c = Command::new("true").spawn().unwrap();
        (c.stdin.is_some(), c.stdout.is_some(), c.stderr.is_some(), c.wait().unwrap(), c.wait().unwrap())
    }));
    same(both!({
        let file = std::fs::File::open("/etc/passwd").unwrap();
        Command::new("cat").stdin(file).output().unwrap().stdout
    }));
    same(both!({
        let out = Command::new(me())
            .args(report::args(1))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .unwrap();
        let r = Report::parse(&out.stdout);
        (r.fd(0).map(str::to_owned), r.fd(2).map(str::to_owned), r.fds())
    }));
}

fn errors_have_the_same_kind() {
    let dir = std::env::temp_dir();
    let long = vec!["x".repeat(100_000); 40];
    same(both!(Command::new("/does/not/exist").status().unwrap_err().kind()));
    same(both!(Command::new("no-such-program-in-path").status().unwrap_err().kind()));
    same(both!(Command::new("").status().unwrap_err().kind()));
    same(both!(Command::new(&dir).status().unwrap_err().kind()));
    let own = crate::faults::Dir::new();
    let no_program = own.0.join("text");
    std::fs::write(&no_program, "text").unwrap();
    same(both!(Command::new(&no_program).status().unwrap_err().kind()));
    same(both!(Command::new("nul\0inside").status().unwrap_err().kind()));
    same(both!(Command::new("true").arg("a\0b").status().unwrap_err().kind()));
    same(both!(Command::new("true").env("a\0b", "c").status().unwrap_err().kind()));
    same(both!(Command::new("true").current_dir("/does/not/exist").status().unwrap_err().kind()));
    same(both!(Command::new("true").current_dir(&no_program).status().unwrap_err().kind()));
    same(both!(Command::new("true").args(&long).status().unwrap_err().kind()));
}

fn the_search_uses_the_path_the_child_will_have() {
    let dir = std::env::temp_dir().join(format!("forkless-path-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink("/bin/echo", dir.join("only-here")).unwrap();
    same(both!(Command::new("only-here").env("PATH", &dir).arg("x").output().unwrap().stdout));
    same(both!(Command::new("only-here").env("PATH", "/bin").status().unwrap_err().kind()));
    same(both!(Command::new("sh").env_clear().args(["-c", "exit 4"]).status().unwrap()));
    same(both!(Command::new("./only-here").current_dir(&dir).output().unwrap().status));
    same(both!(Command::new("only-here").env("PATH", "").current_dir(&dir).output().unwrap().status));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn groups_users_and_process_groups() {
    need_root();
    let ids = |out: &[u8]| {
        let r = Report::parse(out);
        ["Uid", "Gid", "Groups"].map(|k| r.get(k).to_owned())
    };
    let report = "/proc/self/status";
    let pick = |out: Vec<u8>| {
        let text = String::from_utf8(out).unwrap();
        text.lines()
            .filter(|l| ["Uid:", "Gid:", "Groups:"].iter().any(|k| l.starts_with(k)))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let _ = ids;
    same(both!(pick(Command::new("cat").arg(report).uid(1234).output().unwrap().stdout)));
    same(both!(pick(Command::new("cat").arg(report).gid(4321).output().unwrap().stdout)));
    let got = same(both!(pick(Command::new("cat").arg(report).uid(1234).gid(4321).output().unwrap().stdout)));
    assert_eq!(got[0], "Uid:\t1234\t1234\t1234\t1234");
    same(both!({
        let out = Command::new(me()).args(report::args(1)).process_group(0).output().unwrap();
        let r = Report::parse(&out.stdout);
        r.get("pid") == r.get("pgrp")
    }));
}

fn killing_twice_and_after_the_end_is_fine() {
    same(both!({
        let mut c = Command::new("sleep").arg("60").spawn().unwrap();
        let first = c.try_wait().unwrap();
        let killed = c.kill().is_ok();
        let status = c.wait().unwrap();
        (first, killed, status, c.kill().is_ok(), c.try_wait().unwrap())
    }));
}

#[expect(unsafe_code, reason = "pre_exec is unsafe")]
fn pre_exec_runs_last_and_its_error_is_the_starts() {
    // SAFETY: both closures make one system call or none.
    same(both!(unsafe {
        let mut c = Command::new("sh");
        c.args(["-c", "umask"]).pre_exec(|| {
            forkless_sys::process::umask(0o111);
            Ok(())
        });
        c.output().unwrap().stdout
    }));
    // SAFETY: as above.
    same(both!(unsafe {
        let mut c = Command::new("true");
        c.pre_exec(|| Err(std::io::Error::from_raw_os_error(libc::EDOM)));
        c.status().unwrap_err().raw_os_error() == Some(libc::EDOM)
    }));
}

/// The mask is the caller's, an ignored signal stays ignored, and SIGPIPE is not ignored.
fn signals_blocked_and_ignored() {
    let blocked = SigSet::EMPTY.with(libc::SIGUSR1).with(libc::SIGTERM);
    let old = signal::set_mask(blocked).unwrap();
    signal::reset(libc::SIGUSR2, true).unwrap();
    let lines = same(both!({
        let mut c = Command::new("grep");
        c.args(["^Sig[BI]", "/proc/self/status"]).output().unwrap().stdout
    }));
    signal::reset(libc::SIGUSR2, false).unwrap();
    signal::set_mask(old).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.contains(&format!("SigBlk:\t{:016x}\n", blocked.0)), "{lines}");
    let ignored = lines.split("SigIgn:").nth(1).map(|l| u64::from_str_radix(l.trim(), 16).unwrap()).unwrap();
    let (kept, pipe) = (SigSet::EMPTY.with(libc::SIGUSR2).0, SigSet::EMPTY.with(libc::SIGPIPE).0);
    assert_eq!(ignored & (kept | pipe), kept, "{lines}");
}

/// Their assertions are theirs.
fn the_examples_run() {
    let built = me().ancestors().nth(2).unwrap().join("examples");
    for name in ["switch", "limits", "deadline", "nonblocking", "descriptors"] {
        let program = built.join(name);
        if !program.exists() {
            crate::support::skip("the examples are not built: cargo test without --test builds them");
        }
        let out = std::process::Command::new(program).output().unwrap();
        assert!(out.status.success(), "{name}: {out:?}");
    }
}

cases![
    the_examples_run,
    a_plain_child_sees_the_same_world,
    arguments_environment_and_directory,
    exit_codes_and_signals_in_the_status,
    the_three_defaults_of_standard_streams,
    errors_have_the_same_kind,
    signals_blocked_and_ignored,
    the_search_uses_the_path_the_child_will_have,
    groups_users_and_process_groups,
    killing_twice_and_after_the_end_is_fine,
    pre_exec_runs_last_and_its_error_is_the_starts,
];
