//! execve: the commit.
#![expect(unsafe_code, reason = "the program's own exec")]

use forkless_sys::{fd, process};

use crate::kernel::{self, Args};

use super::super::outcome;
use super::{SIGKILL, abort, abort_if_time_is_over, files, need, signals};

/// `execve`, with the arguments of `execve`.
pub(crate) fn execve(nr: u32, args: &Args) -> isize {
    let [path, argv, envp, ..] = *args;
    need::path(path);
    need::vector(argv);
    need::vector(envp);
    files::not_ours(fd::AT_FDCWD as usize, path, commit(nr, args))
}

/// `execveat`.
pub(crate) fn execveat(nr: u32, args: &Args) -> isize {
    let [dir, path, argv, envp, ..] = *args;
    need::path_at(dir, path);
    need::vector(argv);
    need::vector(envp);
    files::not_ours(dir, path, commit(nr, args))
}

/// Gives the kernel what survives exec, executes, and takes everything back when that failed.
fn commit(nr: u32, args: &Args) -> isize {
    signals::abort_if_signalled();
    if process::set_pdeathsig(signals::pdeathsig()).is_err() {
        abort(forkless_run::AbortKind::Setup);
    }
    let outcome = outcome::get();
    outcome.set_executing(true);
    // Last: from here on a signal acts. By its default action it ends us, which is an abort like any other. A handler of the program's may
    // not come back: its first system call is an abort, and so is the end of the time limit, which goes on. An exec under way has nothing
    // to fear from that: its handler runs only when the exec has failed, and what is pending of it an exec discards (begin_new_exec,
    // fs/exec.c, flush_itimer_signals).
    signals::apply();
    // SAFETY: the program's own exec; what it points to is present.
    let answer = unsafe { kernel::pass(nr, args) };
    signals::suspend();
    outcome.set_executing(false);
    abort_if_time_is_over();
    if process::set_pdeathsig(SIGKILL).is_err() {
        abort(forkless_run::AbortKind::Setup);
    }
    answer
}
