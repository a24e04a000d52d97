//! `fork` on an architecture whose kernels do not hand a child's system calls back to it.
//! Speculation needs that (syscall user dispatch; arm64 gets it with the generic system call
//! entry). Forks are libc's, and are counted for the report. Before one, memory may become huge
//! pages.

use core::sync::atomic::Ordering::Relaxed;

use forkless_run::{AbortKind, Counter};

use crate::{
    config, filters, huge, mappings,
    next::{self, Next},
    tally,
};

pub(crate) use crate::filters::sandboxed;
pub(crate) use crate::speculation::speculating;

/// The program installs a seccomp filter.
pub(crate) fn note_seccomp() {
    filters::note_filter();
    huge::pool::before_sandbox();
}

/// Whether children are in this thread's own PID namespace. Here no change is noted.
pub(crate) fn children_stay() -> bool {
    crate::namespace::line_s_child_stays()
}

/// Nothing waits here for threads at work when a filter comes for all of them.
pub(crate) const fn begin_work() -> bool {
    false
}

pub(crate) const fn end_work(_: bool) {}

/// Drops what this copy of another process's memory says of that process.
pub(crate) fn forget_parents() {
    mappings::advice::forget_holder();
}

/// `fork` and `_Fork` after the interposers: `site` is the address the program's call returns to.
pub(crate) fn speculate_or_fork(
    real: &'static Next<next::Fork>,
    site: usize,
    _: bool,
    _: fn() -> bool,
) -> i32 {
    let real = real.get().unwrap_or_else(|| crate::rt::abort());
    filters::learn();
    let sandboxed = sandboxed();
    if !sandboxed {
        huge::before_fork();
    }
    let pid = real();
    if !sandboxed {
        huge::after_fork(pid, true);
    }
    if config::fork() != config::Fork::Off && pid != 0 {
        count_in_record(site);
    }
    pid
}

fn count_in_record(site: usize) {
    tally::add(Counter::Forks, 1);
    tally::add(Counter::Plain, 1);
    if let Some(line) = tally::site(site) {
        line.forks.fetch_add(1, Relaxed);
        line.because(AbortKind::NoDispatch.into());
    }
}
