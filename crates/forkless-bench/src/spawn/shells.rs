//! Lines without a shell, in the state of a process in which users have them.

#![expect(unsafe_code, reason = "sigaction")]

use std::mem::MaybeUninit;

/// SIGXFSZ without a handler. The command has one, lest a limit of a file's size lose its results,
/// and in a process with a handler for a signal that ends others each line gets a shell (where
/// /bin/sh waits for its program). Only while nothing writes to a file.
pub(super) struct PlainSignals(Option<(libc::c_int, libc::sigaction)>);

impl PlainSignals {
    pub(super) fn take() -> PlainSignals {
        Self::take_one(libc::SIGXFSZ)
    }

    fn take_one(signal: libc::c_int) -> PlainSignals {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an answer is asked for, into a place of its type.
        if unsafe { libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr()) } != 0 {
            return PlainSignals(None);
        }
        // SAFETY: all its bits are valid, whether the call has written them or not.
        let before = unsafe { before.assume_init() };
        if [libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
            return PlainSignals(None);
        }
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        PlainSignals(Some((signal, before)))
    }
}

impl Drop for PlainSignals {
    fn drop(&mut self) {
        if let Some((signal, before)) = &self.0 {
            // SAFETY: an action that sigaction gave.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}

/// Whether a line of the program alone gets a shell here: because of this process's signals or
/// rights, or because of what /bin/sh is.
#[cfg(target_os = "linux")]
pub(super) fn line_gets_a_shell(target: &super::SpawnedProgram) -> bool {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let _plain = PlainSignals::take();
    let Ok(mut child) = forkless::shell(OsStr::from_bytes(target.command.to_bytes())).spawn() else {
        // No line, no shell: the measurement that follows says why.
        return false;
    };
    let is_direct = child.is_direct();
    let _ = child.wait();
    !is_direct
}

#[cfg(not(target_os = "linux"))]
pub(super) fn line_gets_a_shell(_: &super::SpawnedProgram) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a signal of its own: the command's tests measure beside it, in the same process.
    const SIGNAL: libc::c_int = libc::SIGUSR2;

    #[test]
    fn a_handler_is_put_back() {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(SIGNAL, handler) };
        // SAFETY: no handler is installed.
        let now = || unsafe { libc::signal(SIGNAL, libc::SIG_DFL) };
        let plain = PlainSignals::take_one(SIGNAL);
        assert_eq!(now(), libc::SIG_DFL);
        drop(plain);
        assert_eq!(now(), handler);
        drop(PlainSignals::take_one(SIGNAL));
        assert_eq!(now(), libc::SIG_DFL);
    }
}
