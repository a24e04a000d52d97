//! The inherited state that Rust's runtime or this program changes. The runtime ignores SIGPIPE,
//! and opens /dev/null on standard descriptors that were closed. `main` gives SIGPIPE and SIGCHLD
//! their default actions: while SIGCHLD is ignored, the kernel reaps each child and no wait hears
//! of it. All is recorded before, and given back to the program that is executed in this process,
//! or for a line. The standard library's `Command` gives its child SIGPIPE's default action,
//! whatever this process inherited: a child that is to start as from the user's shell gets all by
//! `hand_on`.
#![expect(unsafe_code, reason = "runs before main, and touches descriptors std knows nothing of")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

pub(crate) use forkless_bench::trial::is_ignored;

/// The signals whose action is changed.
const CHANGED: [i32; 2] = [libc::SIGPIPE, libc::SIGCHLD];
/// Bit n: signal n was ignored.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Bit n: descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn observe() {
    let ignored = CHANGED.into_iter().filter(|&signal| is_ignored(signal));
    IGNORED.store(ignored.fold(0, |set, signal| set | 1 << signal), Relaxed);
    for fd in 0..3 {
        // SAFETY: a question about a number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.store(CLOSED.load(Relaxed) | 1 << fd, Relaxed);
        }
    }
}

/// Whether a standard descriptor was closed when this process was started.
pub(crate) fn was_closed(fd: u8) -> bool {
    CLOSED.load(Relaxed) & 1 << fd != 0
}

/// Has the child ignore SIGPIPE and SIGCHLD if this process was started so.
pub(crate) fn hand_on_signals(command: &mut Command) {
    if IGNORED.load(Relaxed) != 0 {
        // SAFETY: the closure makes async-signal-safe calls alone.
        unsafe { command.pre_exec(ignore_again) };
    }
}

/// Has the child start with both signals and the standard descriptors as this process did. It must
/// inherit all three descriptors.
pub(crate) fn hand_on(command: &mut Command) {
    hand_on_signals(command);
    if CLOSED.load(Relaxed) != 0 {
        // SAFETY: the closure makes async-signal-safe calls alone.
        unsafe { command.pre_exec(close_at_exec) };
    }
}

fn ignore_again() -> io::Result<()> {
    for signal in CHANGED {
        if IGNORED.load(Relaxed) & 1 << signal != 0 {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    Ok(())
}

/// The standard descriptors that were closed are closed by an exec. Until then they stay open:
/// where it fails, that must be said.
fn close_at_exec() -> io::Result<()> {
    for fd in 0..3 {
        if CLOSED.load(Relaxed) & 1 << fd != 0 {
            // SAFETY: /dev/null, opened by the runtime.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// The C library calls it before Rust's runtime starts.
#[used]
#[unsafe(link_section = ".init_array")]
static OBSERVE: extern "C" fn() = observe;

/// Puts all back. Only just before an exec or a line: nothing may print afterwards.
pub(crate) fn give_back() {
    let _ = ignore_again();
    let _ = close_at_exec();
}
