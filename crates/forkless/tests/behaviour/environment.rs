//! The environment a child gets is whole, whatever other threads do to the parent's meanwhile.
#![expect(unsafe_code, reason = "an environment that safe code of older editions, or C, makes")]

use crate::support::{cases, me};
use forkless::Command;
use std::ffi::{CString, c_char};
use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Changes the environment as safe code may in the editions to 2021.
fn set(name: &str, value: Option<&str>) {
    match value {
        // SAFETY: all readers of these tests take std's lock, which is under test.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(name) },
    }
}

/// Reading `environ` bare dies of SIGSEGV here: the vector moves as it grows, and values are freed.
fn raced() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 0..2 {
            let stop = &stop;
            s.spawn(move || {
                let long = "x".repeat(3000);
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("FORKLESS_RACE_{thread}_{}", round % 200);
                    set(&name, Some(&long[..1 + round * 37 % 2999]));
                    // Else this thread takes the lock again before a starting thread has run.
                    std::thread::yield_now();
                    if round % 200 == 199 {
                        (0..200).for_each(|i| set(&format!("FORKLESS_RACE_{thread}_{i}"), None));
                    }
                }
            });
        }
        for _ in 0..300 {
            let out = Command::new("printenv").arg("FORKLESS_KEPT").output().unwrap();
            assert_eq!(out.stdout, b"kept\n");
            let status = Command::new("true").env("FORKLESS_SET", "1").status().unwrap();
            assert_eq!((status.code(), status.signal()), (Some(0), None));
            assert!(forkless::shell("test -n \"$FORKLESS_KEPT\"").status().unwrap().success());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn other_threads_may_change_it_during_starts() {
    // In a process of its own, so that its death can be told from a failure.
    let mut worker = std::process::Command::new(me());
    let out = worker.args(["--bare", "environment::raced"]).env("FORKLESS_KEPT", "kept").output().unwrap();
    assert!(out.status.success(), "{:?}: {}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// With one thread the live vector is handed on, with two a copy of it: the child cannot tell.
fn an_entry_without_a_value_is_handed_on_to_no_child() {
    let strings: Vec<CString> =
        ["NO_VALUE", "A=1", "A=2", "=C:=D", "PATH=/usr/bin:/bin"].map(|s| CString::new(s).unwrap()).into();
    let mut vector: Vec<*mut c_char> = strings.iter().map(|s| s.as_ptr().cast_mut()).collect();
    vector.push(std::ptr::null_mut());
    // SAFETY: one thread; strings and vector live to the end of the test.
    let before = unsafe { environ };
    // SAFETY: as above.
    unsafe { environ = vector.as_mut_ptr() };
    let printed = || {
        let out = Command::new("/usr/bin/env").output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let alone = printed();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let second = std::thread::spawn(move || wait.recv());
    let beside = printed();
    drop(go);
    let _ = second.join();
    let changed = Command::new("/usr/bin/env").env("A", "3").output().unwrap();
    // SAFETY: one thread again.
    unsafe { environ = before };
    assert_eq!(alone, "A=1\nA=2\n=C:=D\nPATH=/usr/bin:/bin\n");
    assert_eq!(alone, beside);
    assert_eq!(changed.stdout, b"=C:=D\nPATH=/usr/bin:/bin\nA=3\n");
}

/// Regression: a command that changes one variable handed on all entries of another name. Most
/// programs take the first of them.
fn of_several_variables_of_one_name_the_last_is_handed_on_with_changes() {
    let strings: Vec<CString> =
        ["A=1", "PATH=/usr/bin:/bin", "A=2", "B=1", "PATH=/later"].map(|s| CString::new(s).unwrap()).into();
    let mut vector: Vec<*mut c_char> = strings.iter().map(|s| s.as_ptr().cast_mut()).collect();
    vector.push(std::ptr::null_mut());
    // SAFETY: one thread; strings and vector live to the end of the test.
    let before = unsafe { environ };
    // SAFETY: as above.
    unsafe { environ = vector.as_mut_ptr() };
    // By its name: searched as this process's environment says.
    let std = std::process::Command::new("env").env("B", "2").output();
    let ours = Command::new("env").env("B", "2").output();
    let removed = Command::new("env").env_remove("B").output();
    // SAFETY: one thread again.
    unsafe { environ = before };
    let sorted = |out: Vec<u8>| {
        let text = String::from_utf8(out).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let ours = sorted(ours.unwrap().stdout);
    assert_eq!(ours, sorted(std.unwrap().stdout));
    assert_eq!(ours, ["A=2", "B=2", "PATH=/later"]);
    assert_eq!(sorted(removed.unwrap().stdout), ["A=2", "PATH=/later"]);
}

cases![
    other_threads_may_change_it_during_starts,
    ; once
    of_several_variables_of_one_name_the_last_is_handed_on_with_changes,
    an_entry_without_a_value_is_handed_on_to_no_child,
];
pub const WORKERS: &[crate::support::Case] =
    &[crate::support::Case { name: "environment::raced", run: raced, repeatable: false }];
