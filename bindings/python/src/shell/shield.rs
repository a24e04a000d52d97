//! The signals while system(3) waits: SIGINT and SIGQUIT are ignored in the process, SIGCHLD is
//! blocked in the thread. (`forkless-capi` has the same for C, with handlers for fork(2).)
//!
//! The lock is taken by attached threads only, and never over a wait. Python forks in an attached
//! thread, and stops the others first where there are several, so no child finds the lock taken.

use forkless::{ShellLine, SigSet};
use libc::{SIGCHLD, SIGINT, SIGQUIT, c_int, sigaction, sigset_t};
use std::mem::MaybeUninit;
use std::process;
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The calls that wait, in all threads of one process.
struct Waiting {
    process: u32,
    calls: usize,
    /// The dispositions before the first of them.
    before: [Option<sigaction>; 2],
}

const IGNORED: [c_int; 2] = [SIGINT, SIGQUIT];

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { process: 0, calls: 0, before: [None; 2] });

impl Waiting {
    fn lock() -> MutexGuard<'static, Waiting> {
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        // In a forked process none of the calls waits.
        if waiting.process != process::id() {
            waiting.restore();
            waiting.process = process::id();
        }
        waiting
    }

    fn ignore(&mut self) {
        if self.calls == 0 {
            // SAFETY: all zeros is an action without flags and with an empty mask.
            let mut ignore: sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            ignore.sa_sigaction = libc::SIG_IGN;
            self.before = IGNORED.map(|signal| exchange(signal, &ignore));
        }
        self.calls += 1;
    }

    fn restore(&mut self) {
        self.calls = 0;
        for (signal, action) in IGNORED.into_iter().zip(&mut self.before) {
            if let Some(action) = action.take() {
                exchange(signal, &action);
            }
        }
    }
}

fn exchange(signal: c_int, to: &sigaction) -> Option<sigaction> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: a valid action, and room for the old one.
    let changed = unsafe { sigaction(signal, to, old.as_mut_ptr()) };
    // SAFETY: success filled it.
    (changed == 0).then(|| unsafe { old.assume_init() })
}

/// Exchanges the thread's mask.
fn exchange_mask(how: c_int, set: *const sigset_t) -> sigset_t {
    let mut old = MaybeUninit::zeroed();
    // SAFETY: null or an initialized set, and room for the old one.
    unsafe { libc::pthread_sigmask(how, set, old.as_mut_ptr()) };
    // SAFETY: all zeros is a set, and the call fills it.
    unsafe { old.assume_init() }
}

/// While it lives, signals are as system(3) demands. Made and dropped in an attached thread.
pub(super) struct Shield {
    mask: sigset_t,
    /// The signals, of SIGINT and SIGQUIT, that the program did not ignore before.
    default: SigSet,
}

impl Shield {
    pub(super) fn raise() -> Shield {
        let mut waiting = Waiting::lock();
        waiting.ignore();
        let mut default = SigSet::EMPTY;
        for (signal, action) in IGNORED.into_iter().zip(&waiting.before) {
            if action.is_some_and(|action| action.sa_sigaction != libc::SIG_IGN) {
                default = default.with(signal);
            }
        }
        drop(waiting);
        let mut block = exchange_mask(libc::SIG_BLOCK, null());
        // SAFETY: an initialized set.
        unsafe { libc::sigaddset(&raw mut block, SIGCHLD) };
        Shield { mask: exchange_mask(libc::SIG_BLOCK, &raw const block), default }
    }

    /// Gives the line the signals of the caller rather than those during the wait.
    pub(super) fn apply(&self, line: &mut ShellLine) {
        // SAFETY: an initialized set.
        let has = |signal: &c_int| unsafe { libc::sigismember(&raw const self.mask, *signal) == 1 };
        let mask = (1..=64).filter(has).fold(SigSet::EMPTY, SigSet::with);
        line.signal_mask(mask).default_signals(self.default);
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        let mut waiting = Waiting::lock();
        waiting.calls = waiting.calls.saturating_sub(1);
        if waiting.calls == 0 {
            waiting.restore();
        }
        drop(waiting);
        // Last: a pending SIGCHLD comes now, and its handler must find everything as it was.
        exchange_mask(libc::SIG_SETMASK, &raw const self.mask);
    }
}
