//! The processes that a started program leaves behind. The calling process becomes their parent,
//! reaps them as init does, and ends them.
//!
//! It signals its own children only: nobody else can have got their numbers meanwhile.

#![expect(unsafe_code, reason = "prctl, signal, waitpid and kill")]

use std::fs;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Makes this process the parent of every descendant whose own parent has ended (prctl(2),
/// `PR_SET_CHILD_SUBREAPER`).
pub fn adopt() {
    // SAFETY: affects which process adopts this one's orphaned descendants.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    // A parent that ignored SIGCHLD would have the kernel reap, and the status of a program would
    // be lost.
    // SAFETY: the default action, which is to do nothing; no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Reaps this process's children until none is left but `spared`. `due` is given the time that has
/// passed since the call, and the children that are left. It says which signal these get now, if
/// any, or breaks off: a process of another user may not be signalled.
pub fn end_all_but(spared: &[i32], mut due: impl FnMut(Duration, &[i32]) -> ControlFlow<(), Option<i32>>) {
    let begin = Instant::now();
    loop {
        reap();
        let left: Vec<i32> = children().into_iter().filter(|child| !spared.contains(child)).collect();
        if left.is_empty() {
            return;
        }
        match due(begin.elapsed(), &left) {
            ControlFlow::Break(()) => return,
            ControlFlow::Continue(None) => {}
            ControlFlow::Continue(Some(signal)) => left.into_iter().for_each(|child| {
                // SAFETY: a child that has not been waited for, so its number is still its own.
                unsafe { libc::kill(child, signal) };
            }),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reaps every child that has ended.
fn reap() {
    // SAFETY: reaps any child; no status is asked for.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// This process's children: by the kernel's list, or where it is not built in
/// (`CONFIG_PROC_CHILDREN`) by everybody's parent. Some may be zombies.
#[must_use]
pub fn children() -> Vec<i32> {
    let own = std::process::id();
    if let Ok(list) = fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        return list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The second field is the program's name in parentheses, which may hold anything.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent == Some(own)
    };
    numbers.filter(is_child).collect()
}
