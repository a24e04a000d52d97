//! The signals while system(3) waits: SIGINT and SIGQUIT are ignored in the process, SIGCHLD is
//! blocked in the thread. For the C library's `forkless_system` and the Python package's `system`;
//! each has to care for a fork by another thread during the wait.
#![expect(unsafe_code, reason = "sigaction and pthread_sigmask")]

use super::line::ShellLine;
use forkless_sys::signal::SigSet;
use libc::{SIGCHLD, SIGINT, SIGQUIT, c_int, sigaction, sigset_t};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The calls that wait, in all threads, and the dispositions before the first of them.
#[doc(hidden)]
#[derive(Debug)]
pub struct Waiting {
    calls: usize,
    before: Option<[sigaction; 2]>,
}

/// Held for two calls of sigaction, never while a child is started or waited for.
static WAITING: Mutex<Waiting> = Mutex::new(Waiting { calls: 0, before: None });

/// The calls that wait, locked.
#[doc(hidden)]
pub fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    /// Puts the dispositions back, though calls may wait.
    #[doc(hidden)]
    pub fn forget(&mut self) {
        self.calls = 0;
        for (signal, action) in [SIGINT, SIGQUIT].into_iter().zip(self.before.take().iter().flatten()) {
            // SAFETY: an action that sigaction gave.
            unsafe { sigaction(signal, action, null_mut()) };
        }
    }
}

/// The signals as the caller had them, for the child.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Original {
    mask: SigSet,
    /// The signals, of SIGINT and SIGQUIT, that the program did not ignore before.
    default: SigSet,
}

impl Original {
    /// Gives a line's children the signals of the caller rather than those during the wait.
    #[doc(hidden)]
    pub fn apply(&self, to: &mut ShellLine) {
        to.signal_mask(self.mask).default_signals(self.default);
    }
}

/// While it lives, signals are as system(3) demands.
#[doc(hidden)]
#[derive(Debug)]
pub struct Shield {
    mask: sigset_t,
    /// The caller's, for the line.
    pub original: Original,
}

fn change(signal: c_int, to: &sigaction) -> Option<sigaction> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: a valid action, and room for the old one.
    let changed = unsafe { sigaction(signal, to, old.as_mut_ptr()) };
    // SAFETY: success filled it.
    (changed == 0).then(|| unsafe { old.assume_init() })
}

fn ignoring() -> sigaction {
    // SAFETY: all zeros is an action without flags and with an empty mask.
    let mut action: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = libc::SIG_IGN;
    action
}

fn has(set: &sigset_t, signal: c_int) -> bool {
    // SAFETY: an initialised set.
    unsafe { libc::sigismember(set, signal) == 1 }
}

impl Shield {
    /// Sets the signals aside until the shield is dropped, in the same thread.
    #[doc(hidden)]
    #[must_use]
    pub fn raise() -> Shield {
        let mut w = waiting();
        if w.calls == 0 {
            let ignore = ignoring();
            // Neither can fail: both signals exist and may be ignored.
            w.before = change(SIGINT, &ignore).zip(change(SIGQUIT, &ignore)).map(|(i, q)| [i, q]);
        }
        w.calls += 1;
        let before = w.before;
        drop(w);
        let mut chld = MaybeUninit::uninit();
        // SAFETY: initialises the set.
        unsafe { libc::sigemptyset(chld.as_mut_ptr()) };
        // SAFETY: an initialised set.
        unsafe { libc::sigaddset(chld.as_mut_ptr(), SIGCHLD) };
        let mut mask = MaybeUninit::zeroed();
        // SAFETY: an initialised set, and room for the old one.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, chld.as_ptr(), mask.as_mut_ptr()) };
        // SAFETY: filled by the call above, which cannot fail.
        let mask: sigset_t = unsafe { mask.assume_init() };
        let bits = (1..=64).filter(|n| has(&mask, *n)).fold(0, |bits, n| bits | 1u64 << (n - 1));
        let mut default = SigSet::EMPTY;
        for (signal, action) in [SIGINT, SIGQUIT].into_iter().zip(before.iter().flatten()) {
            if action.sa_sigaction != libc::SIG_IGN {
                default = default.with(signal);
            }
        }
        Shield { mask, original: Original { mask: SigSet(bits), default } }
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        let mut w = waiting();
        w.calls -= 1;
        if w.calls == 0 {
            w.forget();
        }
        drop(w);
        // Last: a pending SIGCHLD comes now, and its handler must find everything as it was.
        // SAFETY: the set this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, null_mut()) };
    }
}
