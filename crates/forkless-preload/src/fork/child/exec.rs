//! execve: the commit.
#![expect(unsafe_code, reason = "the program's own exec")]

use forkless_run::AbortKind;
use forkless_sys::{fd, process};

use crate::kernel::{self, Args};

use super::super::shared_pages;
use super::{DEATH, abort, fetch, files, need, signals, status_flags, time_limit};

/// `execve`, with the arguments of `execve`.
pub(crate) fn execve(nr: u32, args: &Args) -> isize {
    let [path, argv, envp, ..] = *args;
    need::path(path);
    let length = need::vector(argv) + need::vector(envp);
    let answer = commit(nr, args, length);
    files::abort_if_answer_is_ours(fd::AT_FDCWD as usize, path, answer);
    answer
}

/// `execveat`.
pub(crate) fn execveat(nr: u32, args: &Args) -> isize {
    let [dir, path, argv, envp, ..] = *args;
    need::path_at(dir, path);
    let length = need::vector(argv) + need::vector(envp);
    let answer = commit(nr, args, length);
    files::abort_if_answer_is_ours(dir, path, answer);
    answer
}

/// Gives the kernel what survives exec, and executes. When that failed, everything is taken back.
///
/// `length`: bytes of arguments and environment. The kernel copies them while this memory is still
/// there, and only then gives it up.
fn commit(nr: u32, args: &Args, length: usize) -> isize {
    signals::abort_if_signalled();
    if !fetch::has_room(length) {
        abort(AbortKind::Budget);
    }
    let outcome = shared_pages::get();
    if outcome.has_read_late() {
        abort(AbortKind::Late);
    }
    if process::set_pdeathsig(signals::pdeathsig()).is_err() {
        abort(AbortKind::Setup);
    }
    status_flags::apply();
    signals::make_room();
    outcome.set_executing(true);
    // Last, for from here on signals act. One whose default action ends the child is an abort like
    // any other. A handler of the program's may not return: its first system call is an abort. So
    // is the end of the time limit, which goes on. It cannot harm an exec under way: its handler
    // runs only after the exec has failed, and an exec discards it while it waits (begin_new_exec,
    // fs/exec.c, flush_itimer_signals).
    let stack = signals::apply();
    // SAFETY: the program's own exec; what it points to is present.
    let answer = unsafe { kernel::pass(nr, args) };
    signals::suspend(&stack);
    outcome.exec_has_failed();
    time_limit::abort_if_over();
    if process::set_pdeathsig(DEATH).is_err() {
        abort(AbortKind::Setup);
    }
    answer
}
