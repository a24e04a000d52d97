//! The program's own rules for system calls: a seccomp filter, or syscall user dispatch.
//!
//! A filter may also have come with the program: a process of the tree installed it and executed
//! this program, and that process's library could not follow. Filters that were in force when
//! `forkless run` started (a container's) are known to it, and are worked under. Without it those
//! of the namespace's first process are taken for the container's.
#![expect(unsafe_code, reason = "a variable of libc's")]

use core::ffi::{CStr, c_char};
use core::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Relaxed, SeqCst},
};

use forkless_run::Filters;
use forkless_sys::process;

use crate::next::{self, Next};
use crate::{config, proc, small_file, speculation};

/// Children of `fork` inherit the answer as they inherit the filters. Later filters of the
/// program's are noted where it installs them.
static LEARNT: AtomicBool = AtomicBool::new(false);

/// The program's own rules, in force once it makes them.
static RULES: AtomicU8 = AtomicU8::new(0);

/// Values of [`RULES`]; 0: none.
const FILTER: u8 = 1;
#[cfg(target_arch = "x86_64")]
const DISPATCH: u8 = 2;

/// Whether the program has rules of its own for system calls.
pub(crate) fn sandboxed() -> bool {
    RULES.load(Relaxed) != 0
}

/// Whether the rules are a use of dispatch.
#[cfg(target_arch = "x86_64")]
pub(crate) fn are_dispatch() -> bool {
    RULES.load(Relaxed) == DISPATCH
}

/// The program installs a seccomp filter. Returns whether it had no rules before.
pub(crate) fn note_filter() -> bool {
    RULES.swap(FILTER, SeqCst) == 0
}

/// At the load. Where a filter may kill, nothing is asked: it may kill for the question, too.
pub(crate) fn configure(known: Filters) {
    if known == Filters::MayKill {
        RULES.store(FILTER, Relaxed);
    }
}

/// The program turns on dispatch.
#[cfg(target_arch = "x86_64")]
pub(crate) fn note_dispatch() {
    RULES.store(DISPATCH, Relaxed);
}

/// Whether this program has found out.
#[cfg(target_arch = "x86_64")]
pub(crate) fn are_learnt() -> bool {
    LEARNT.load(Relaxed)
}

/// Before the first system call that libc would not make: finds out, once a program, whether
/// filters have come since `forkless run` started. A filter may kill for a call that it does not
/// know.
pub(crate) fn learn() {
    if !LEARNT.load(Relaxed) {
        learn_now();
    }
}

#[inline(never)]
fn learn_now() {
    if speculation::speculating() {
        return;
    }
    LEARNT.store(true, Relaxed);
    if !sandboxed() && have_come() {
        RULES.store(FILTER, Relaxed);
    }
}

/// Whether a filter may kill for a call. Nothing is kept: the program may make its filter after
/// this.
pub(crate) fn are_in_force() -> bool {
    sandboxed() || !LEARNT.load(Relaxed) && have_come()
}

/// Before an exec: whether filters are in force, or the process is traced. Nothing is kept, for the
/// process may share the memory of another. A read of the status file takes longer than all else.
pub(crate) fn are_in_force_or_traced() -> bool {
    if sandboxed() || speculation::speculating() {
        // A traced process does not speculate, and a process that does has found out.
        return sandboxed();
    }
    if LEARNT.load(Relaxed) || !has_one_thread() {
        return !LEARNT.load(Relaxed) && have_come() || proc::tracer() != Some(false);
    }
    let status = status(OWN_STATUS);
    status.filters.is_none_or(are_more_than_containers) || status.is_traced != Some(false)
}

/// The loader has opened and read files in this way a moment ago. Beside other threads no
/// descriptor may be taken. Then `prctl` tells less, but more filters know it than any other call
/// of ours.
fn have_come() -> bool {
    if may_open_files()
        && let Some(count) = status(OWN_STATUS).filters
    {
        return are_more_than_containers(count);
    }
    config::filters().unwrap_or(0) == 0 && process::seccomp_mode() != Ok(0)
}

/// Whether one of so many filters is not the container's. It may open a file.
pub(crate) fn are_more_than_containers(count: u32) -> bool {
    count > 0 && count > config::filters().unwrap_or_else(containers)
}

/// Filters of the container, where no launcher has counted them: those of the first process, under
/// which every program of the container was started. 0 where they are not to be seen: each filter
/// is then one that has come.
fn containers() -> u32 {
    status(c"/proc/1/status").filters.unwrap_or(0)
}

/// Whether the program has one thread. musl does not say so before 1.2.6: there the library has
/// seen no thread made.
fn may_open_files() -> bool {
    has_one_thread() || !next::is_glibc() && !THREADED.load(Relaxed)
}

/// A thread was made, as far as `pthread_create` tells.
static THREADED: AtomicBool = AtomicBool::new(false);

/// Before the program's first thread. Where no launcher has counted filters, they are looked for
/// now: beside threads nobody could tell the container's from others, and a program that makes
/// threads and then forks would be left alone in every container.
pub(crate) fn before_first_thread() {
    if config::filters().is_none() {
        learn();
    }
    THREADED.store(true, Relaxed);
}

/// glibc's `__libc_single_threaded` (2.32), a variable.
pub(crate) fn has_one_thread() -> bool {
    // SAFETY: an address, whatever lies there.
    static VARIABLE: Next<usize> = unsafe { Next::new(c"__libc_single_threaded") };
    // SAFETY: a variable of one byte, which libc alone changes.
    VARIABLE.get().is_some_and(|at| unsafe { (at as *const c_char).read_volatile() } != 0)
}

const OWN_STATUS: &CStr = c"/proc/self/status";

/// Facts of a status file. `None`: it cannot be read.
struct Status {
    /// `Seccomp_filters` (Linux 5.9), or 1 where there is only a mode.
    filters: Option<u32>,
    /// By `TracerPid`, which comes before.
    is_traced: Option<bool>,
}

fn status(path: &CStr) -> Status {
    let (mut mode, mut filters, mut is_traced) = (None, None, None);
    small_file::lines(path, |line| {
        let number = |name: &CStr| {
            let digits = line.strip_prefix(name.to_bytes())?;
            forkless_speculate::text::decimal(digits).map(|n| n as u32)
        };
        is_traced = is_traced.or_else(|| number(c"TracerPid:\t").map(|pid| pid != 0));
        mode = mode.or_else(|| number(c"Seccomp:\t"));
        filters = number(c"Seccomp_filters:\t");
        filters.is_none()
    });
    Status { filters: filters.or_else(|| mode.map(|mode| u32::from(mode != 0))), is_traced }
}
