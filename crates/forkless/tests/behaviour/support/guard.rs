//! State that a case must leave as it found it: descriptors, children, threads, mappings, signal
//! mask and dispositions, working directory, umask, dumpable flag.

use super::Case;
use forkless_sys::signal::{self, Disposition, SigSet};
use forkless_sys::{Errno, process};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Debug, PartialEq, Eq)]
struct State {
    descriptors: BTreeMap<i32, String>,
    mask: SigSet,
    dispositions: Vec<Disposition>,
    cwd: Option<std::path::PathBuf>,
    status: Vec<String>,
    dumpable: i32,
}

/// Lines of `/proc/self/status` that no start may change.
const KEPT: [&str; 11] = [
    "Umask:",
    "Uid:",
    "Gid:",
    "Groups:",
    "SigQ:",
    "ShdPnd:",
    "SigPnd:",
    "CapEff:",
    "CapPrm:",
    "Cpus_allowed:",
    "NSsid:",
];

impl State {
    fn now() -> State {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        State {
            descriptors: descriptors(),
            mask: signal::mask().expect("rt_sigprocmask"),
            // 32 and 33 are libc's own, installed when it makes the first thread.
            dispositions: (1..=64)
                .filter(|n| ![32, 33].contains(n))
                .map(|n| signal::disposition(n).expect("a signal"))
                .collect(),
            cwd: std::env::current_dir().ok(),
            status: status
                .lines()
                .filter(|l| KEPT.iter().any(|k| l.starts_with(k) && *k != "SigQ:"))
                .map(str::to_owned)
                .collect(),
            dumpable: process::dumpable().unwrap_or(-1),
        }
    }
}

/// Open descriptors and the files that they lead to.
pub fn descriptors() -> BTreeMap<i32, String> {
    let Ok(dir) = std::fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    dir.flatten()
        .filter_map(|e| {
            let n: i32 = e.file_name().to_str()?.parse().ok()?;
            let to = std::fs::read_link(e.path()).ok()?;
            // The listing's own.
            (!to.starts_with("/proc/") || !to.ends_with("fd")).then(|| (n, to.display().to_string()))
        })
        .collect()
}

pub fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |m| m.lines().count())
}

/// Threads, by name.
pub fn threads() -> Vec<String> {
    let Ok(dir) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    dir.flatten()
        .filter_map(|e| std::fs::read_to_string(e.path().join("comm")).ok())
        .map(|n| n.trim_end().to_owned())
        .collect()
}

/// No child, running or zombie.
pub fn assert_no_children() {
    assert!(!has_children(), "a child is left");
}

/// Whether there is a child, running or zombie.
pub fn has_children() -> bool {
    match process::waitid(process::P_ALL, 0, process::WEXITED | process::WNOHANG | process::WNOWAIT) {
        Ok(_) => true,
        Err(Errno::ECHILD) => false,
        // A filter of the test's own.
        Err(_) => {
            let of = |thread: &std::path::Path| std::fs::read_to_string(thread.join("children"));
            of("/proc/thread-self".as_ref()).expect("a kernel with CONFIG_PROC_CHILDREN");
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            // Another thread may end just now.
            threads.map(|thread| of(&thread.path())).any(|numbers| numbers.is_ok_and(|n| !n.is_empty()))
        }
    }
}

/// Waits until only the named threads are left: the library's reaper ends a moment after its last
/// child.
pub fn settle(threads_before: usize) {
    let until = Instant::now() + super::patience();
    while threads().len() > threads_before {
        assert!(Instant::now() < until, "threads left: {:?}", threads());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a case and compares. Mappings may grow at first (allocator arenas, cached stacks, the
/// pool's slots) but not for ever: a leak grows in every round. On a busy machine more threads live
/// at once than in the round before, so the first rounds may all grow.
pub fn around(case: &Case) {
    let mut grew = Vec::new();
    for _ in 0..12 {
        let before = State::now();
        let threads_before = threads().len();
        let maps = mappings();
        let began = Instant::now();
        (case.run)();
        assert_no_children();
        settle(threads_before);
        let after = State::now();
        assert_eq!(before, after, "left behind");
        let now = mappings();
        grew.push((maps, now));
        if now <= maps || !case.repeatable || began.elapsed() > Duration::from_secs(5) {
            return;
        }
    }
    // musl maps the memory of this function, and unmaps it: then every round begins with as
    // many.
    let leaks = grew.windows(2).all(|rounds| rounds[0].0 < rounds[1].0);
    assert!(!leaks, "mappings grow with every run: {grew:?}");
}
