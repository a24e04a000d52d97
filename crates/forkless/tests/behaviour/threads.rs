//! The library's own threads beside the program's: what they must answer, what they must not hold, and what they must not give.
#![expect(
    unsafe_code,
    reason = "libc's calls that change the credentials of every thread, and raw ones of a single thread"
)]

use crate::support::{cases, guard, many};
use forkless::{Command, OnDrop, Stdio};
use forkless_sys::ids;
use forkless_sys::signal::SigSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the process after so many seconds, so that a hang is a failure.
struct Watchdog;

impl Watchdog {
    fn of(seconds: u32) -> Watchdog {
        // SAFETY: takes a number.
        unsafe { libc::alarm(if crate::support::emulated() { 10 * seconds } else { seconds }) };
        Watchdog
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // SAFETY: takes a number.
        unsafe { libc::alarm(0) };
    }
}

/// A thread that does nothing until this is dropped. The first thread answers libc's signals whatever its mask: a program of one
/// thread shows nothing.
struct Second(Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Second {
    fn begin() -> Second {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = wait.recv();
        });
        Second(Some((end, thread)))
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            thread.join().unwrap();
        }
    }
}

/// libc's, which asks every thread to do the same; to the ids there are.
fn change_credentials() {
    let (user, group) = (ids::geteuid(), ids::getegid());
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::setresgid(group, group, group) }, 0);
}

/// The masks of the library's own threads.
fn masks_of_ours() -> Vec<(String, SigSet)> {
    let mut masks = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let line = |name: &str| {
            status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        if line("Name:").starts_with("forkless-") {
            let mask = u64::from_str_radix(&line("SigBlk:"), 16).unwrap();
            masks.push((line("Name:"), SigSet(mask)));
        }
    }
    masks
}

/// A mask that keeps the program's handlers off a thread and lets libc reach it.
fn assert_reachable(masks: &[(String, SigSet)]) {
    for (name, mask) in masks {
        assert!(!mask.has(32) && !mask.has(33), "{name} does not answer libc: {mask:?}");
        let program = (1..=31).filter(|n| ![libc::SIGKILL, libc::SIGSTOP].contains(n));
        assert!(program.chain(libc::SIGRTMIN()..=64).all(|n| mask.has(n)), "{name}: {mask:?}");
    }
}

fn credentials_change_beside_every_thread_of_the_library() {
    let _watchdog = Watchdog::of(20);
    let _second = Second::begin();
    let (r, w) = std::io::pipe().unwrap();
    let mut cat = Command::new("/bin/cat");
    drop(cat.stdin(r).stdout(Stdio::null()).spawn().unwrap());
    let mut mortal = std::thread::spawn(|| {
        let mut c = Command::new("sleep");
        c.arg("60").parent_death_signal(libc::SIGTERM).on_drop(OnDrop::Kill).spawn().unwrap()
    })
    .join()
    .unwrap();
    let masks = masks_of_ours();
    assert!(masks.len() >= 2, "a reaper and a keeper: {masks:?}");
    assert_reachable(&masks);
    change_credentials();
    mortal.kill().unwrap();
    mortal.wait().unwrap();
    drop((w, cat));
    guard::settle(1 + 1);
    change_credentials();
}

fn starts_and_drops_go_on_beside_a_thread_that_changes_credentials() {
    let _watchdog = Watchdog::of(50);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let changing = s.spawn(|| {
            let mut changes = 0;
            while !stop.load(Ordering::Relaxed) {
                change_credentials();
                changes += 1;
            }
            changes
        });
        let workers: Vec<_> = (0..4)
            .map(|n| {
                s.spawn(move || {
                    for i in 0..many(50) {
                        let mut c = Command::new("/bin/true");
                        if (n + i) % 4 == 0 {
                            c.parent_death_signal(libc::SIGTERM);
                        }
                        match i % 3 {
                            // Each drop of a running child after the last one's end makes a thread.
                            0 => drop(Command::new("sleep").arg("0.01").spawn().unwrap()),
                            1 => assert!(c.status().unwrap().success()),
                            _ => drop(c.spawn().unwrap()),
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert!(changing.join().unwrap() > 0);
    });
    guard::settle(1);
}

/// The thread that reads the output of a line with several pipelines.
fn a_line_s_output_is_read_with_the_program_s_signals_blocked() {
    let own = std::thread::spawn(|| {
        let until = std::time::Instant::now() + crate::support::patience(10);
        loop {
            let masks = masks_of_ours();
            if !masks.is_empty() {
                return masks;
            }
            assert!(std::time::Instant::now() < until, "no thread of the library's");
        }
    });
    let (r, mut w) = std::io::pipe().unwrap();
    // The line's first program ends when the masks have been seen.
    let line = std::thread::spawn(|| forkless::shell("cat; cat /dev/null").stdin(r).output().unwrap());
    let masks = own.join().unwrap();
    w.write_all(b"one\n").unwrap();
    drop(w);
    assert_eq!(line.join().unwrap().stdout, b"one\n");
    assert!(masks.iter().any(|m| m.0 == "forkless-output"), "{masks:?}");
    assert_reachable(&masks);
}

cases! {
    a_line_s_output_is_read_with_the_program_s_signals_blocked,
    credentials_change_beside_every_thread_of_the_library,
    starts_and_drops_go_on_beside_a_thread_that_changes_credentials,
}
