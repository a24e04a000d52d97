//! The library's own threads. Each of them is made here.
//!
//! Such a thread runs no handler of the program's, so it blocks the program's signals. It must
//! answer libc's own: a change of credentials sends a signal to every thread, and waits until each
//! has answered (setuid(2), "C library/kernel differences").
//!
//! The caller must hold no lock of this library while a thread is made. `pthread_create` waits for
//! a lock of glibc's, which a thread in `setresuid` holds until every thread has answered.
#![expect(unsafe_code, reason = "libc's set of every signal")]

use forkless_sys::signal::{self, SigSet};
use std::io;
use std::mem::MaybeUninit;

/// The stack of a thread that makes few calls.
pub(crate) const SMALL_STACK: usize = 64 * 1024;

/// Starts a thread that inherits all but the mask from the caller.
pub(crate) fn start(name: &str, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _blocked = Blocked::begin()?;
    std::thread::Builder::new().name(name.into()).stack_size(stack).spawn(body).map(drop)
}

/// The caller's mask, put back when this is dropped. Until then the caller blocks the program's
/// signals, and so does a thread that it makes.
pub(crate) struct Blocked(SigSet);

impl Blocked {
    pub(crate) fn begin() -> io::Result<Blocked> {
        let old = signal::set_mask(of_the_program()).map_err(|e| io::Error::from_raw_os_error(e.raw()))?;
        Ok(Blocked(old))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let restored = signal::set_mask(self.0);
        debug_assert!(restored.is_ok());
    }
}

/// Every signal but those that libc keeps for itself: 32 and 33 in glibc, 32 to 34 in musl. The
/// `sigfillset` of each leaves its own out (glibc `signal/sigfillset.c`, musl
/// `src/signal/sigfillset.c`).
fn of_the_program() -> SigSet {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: writes one set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: a set begins with the kernel's 64 bits in glibc and in musl, and is larger.
    SigSet(unsafe { set.as_ptr().cast::<u64>().read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_s_signals_are_blocked_and_libc_s_are_not() {
        let set = of_the_program();
        assert!((1..32).all(|n| set.has(n)));
        assert!(!set.has(32) && !set.has(33), "glibc's and musl's own");
        assert!((libc::SIGRTMIN()..=64).all(|n| set.has(n)));
    }

    #[test]
    fn the_caller_s_mask_is_restored_also_when_no_thread_can_be_made() {
        let before = signal::mask().unwrap();
        assert!(start("none", usize::MAX / 2, || {}).is_err());
        assert_eq!(signal::mask().unwrap(), before);
    }
}
