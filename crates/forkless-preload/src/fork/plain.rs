//! `fork` where no kernel hands a child's system calls back to it, which speculation needs (syscall user dispatch; arm64 gets it with the generic
//! system call entry): forks are libc's, counted for the report, and memory may become huge pages before one.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use forkless_run::{AbortKind as Kind, Counter};
use linux_raw_sys::prctl;

use crate::{
    config, huge, mappings,
    next::{self, Next},
    tally,
};

/// No table is kept of speculations.
pub(crate) const TABLES_LEN: usize = 0;
/// No child shares a page.
pub(crate) const OUTCOME_LEN: usize = 0;
/// Nor any with a server.
pub(crate) const EXCHANGE_LEN: usize = 0;

/// Never in a speculative child.
pub(crate) const fn speculating() -> bool {
    false
}

/// The program has installed a seccomp filter.
static SANDBOXED: AtomicBool = AtomicBool::new(false);

/// Whether the program has rules of its own for system calls.
pub(crate) fn sandboxed() -> bool {
    SANDBOXED.load(Relaxed)
}

/// The program gives an order to `prctl`.
pub(crate) fn note_prctl(option: u32) {
    match option {
        prctl::PR_SET_SECCOMP => note_seccomp(),
        prctl::PR_CAPBSET_DROP => crate::shell::note_rights(),
        _ => {}
    }
}

/// The program installs a seccomp filter.
pub(crate) fn note_seccomp() {
    SANDBOXED.store(true, Relaxed);
    huge::pool::before_sandbox();
}

/// One came with the program that this process executes.
pub(crate) fn note_inherited_filter() {
    SANDBOXED.store(true, Relaxed);
}

/// Whether children are in this thread's own PID namespace: nobody notes here when that changes.
pub(crate) fn children_stay() -> bool {
    crate::namespace::line_s_child_stays()
}

/// Nobody waits here for threads at work, when a filter comes for all of them.
pub(crate) const fn begin_work() -> bool {
    false
}

pub(crate) const fn end_work(_: bool) {}

/// What this copy of another process's memory says of that process.
pub(crate) fn forget_parents() {
    mappings::advice::forget_holder();
}

/// Makes a call that moves memory: nothing here marks any.
pub(crate) fn outside_window<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// `fork` and `_Fork` after the interposers: `site` is the address the program's call returns to.
pub(crate) fn fork_entry(real: &'static Next<next::Fork>, site: usize, _: bool) -> i32 {
    let real = real.get().unwrap_or_else(|| crate::rt::abort());
    crate::filters::learn();
    if !sandboxed() {
        huge::before_fork();
    }
    let pid = real();
    if config::fork() != config::Fork::Off && pid != 0 {
        report(site);
    }
    pid
}

fn report(site: usize) {
    tally::add(Counter::Forks, 1);
    tally::add(Counter::Plain, 1);
    if let Some(line) = tally::site(site) {
        line.forks.fetch_add(1, Relaxed);
        line.because(Kind::NoDispatch.into());
    }
}
