//! Writing to a process that may have ended. The command gives SIGPIPE its default action, so that
//! `forkless ... | head` ends quietly. The same signal would end it without a word where a process
//! of its own is gone, with the reason unread.

#![expect(unsafe_code, reason = "signal masks are set through libc")]

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::ptr;

/// Writes all, and fails with EPIPE where nobody reads any more. Only the calling thread notices.
///
/// # Errors
/// As [`Write::write_all`].
pub fn write_all(pipe: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set in.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled in; the signal exists.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: filled in.
    let set = unsafe { set.assume_init() };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: an initialised set; the old one is filled in.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let was_pending = is_pending();
    let written = pipe.write_all(bytes).and_then(|()| pipe.flush());
    // The signal of a write is the writing thread's (pipe(7)), so it is there already: the wait
    // does not last. None is sent where it is ignored.
    if written.is_err() && !was_pending && is_pending() {
        let mut signal = 0;
        // SAFETY: an initialised set, and a place for the number.
        unsafe { libc::sigwait(&raw const set, &raw mut signal) };
    }
    // SAFETY: the mask of before, which was filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    written
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: fills the set in.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: zeroed, and filled in.
    unsafe { libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_an_error_and_no_death() {
        // SAFETY: the default action, as the command has it. Were the signal let through, this
        // process would end here.
        let ignored = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (reader, mut writer) = io::pipe().unwrap();
        write_all(&mut writer, b"read\n").unwrap();
        drop(reader);
        for _ in 0..2 {
            let error = write_all(&mut writer, b"unread\n").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            assert!(!is_pending(), "no signal is left for later");
        }
        // SAFETY: as it was.
        unsafe { libc::signal(libc::SIGPIPE, ignored) };
    }
}
