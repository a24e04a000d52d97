//! The inherited state that Rust's runtime changes before `main`: it ignores SIGPIPE, and opens
//! /dev/null on standard descriptors that were closed. Both are recorded before, and given back to
//! the program that is executed in this process, or for a line.
#![expect(unsafe_code, reason = "runs before main, and touches descriptors std knows nothing of")]

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

/// The C library calls it before Rust's runtime starts.
#[used]
#[unsafe(link_section = ".init_array")]
static OBSERVE: extern "C" fn() = observe;

/// Puts both back. Only just before an exec: nothing may print afterwards.
pub(crate) fn give_back() {
    if SIGPIPE_IGNORED.load(Relaxed) {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
    for fd in 0..3 {
        if CLOSED.load(Relaxed) & 1 << fd != 0 {
            // SAFETY: /dev/null, opened by the runtime. It gets close-on-exec and stays open: where
            // exec fails, that must be said.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}
