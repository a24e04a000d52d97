//! The inherited state that Rust's runtime changes before `main`: it ignores SIGPIPE, and opens
//! /dev/null on standard descriptors that were closed. Both are recorded before, and given back to
//! the program that is executed in this process, or for a line. The standard library's `Command`
//! gives its child SIGPIPE's default action, whatever this process inherited: a child that is to
//! start as from the user's shell gets both by `hand_on`.
#![expect(unsafe_code, reason = "runs before main, and touches descriptors std knows nothing of")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// Bit n: descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for the action and changes nothing.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: filled in.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

extern "C" fn observe() {
    SIGPIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
    for fd in 0..3 {
        // SAFETY: a question about a number.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.store(CLOSED.load(Relaxed) | 1 << fd, Relaxed);
        }
    }
}

/// Has the child ignore SIGPIPE if this process was started so.
pub(crate) fn hand_on_signals(command: &mut Command) {
    if SIGPIPE_IGNORED.load(Relaxed) {
        // SAFETY: the closure makes one async-signal-safe call.
        unsafe { command.pre_exec(ignore_sigpipe) };
    }
}

/// Has the child start with SIGPIPE and the standard descriptors as this process did. It must
/// inherit all three.
pub(crate) fn hand_on(command: &mut Command) {
    hand_on_signals(command);
    if CLOSED.load(Relaxed) != 0 {
        // SAFETY: the closure makes async-signal-safe calls alone.
        unsafe { command.pre_exec(close_at_exec) };
    }
}

fn ignore_sigpipe() -> io::Result<()> {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
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

/// Puts both back. Only just before an exec: nothing may print afterwards.
pub(crate) fn give_back() {
    if SIGPIPE_IGNORED.load(Relaxed) {
        let _ = ignore_sigpipe();
    }
    let _ = close_at_exec();
}
