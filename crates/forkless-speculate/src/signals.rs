//! A speculative child's signals as the program sees them, kept apart from the kernel's.
//!
//! The kernel's mask blocks all but the synchronous signals until exec, and its actions stay as
//! inherited. A child's mask and actions matter to nobody before its exec. Exec keeps the mask, and
//! which signals are ignored (`flush_signal_handlers`, kernel/signal.c).

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use forkless_sys::signal::{AltStack, KernelAction, SIGKILL, SIGSTOP};
pub use forkless_sys::signal::{SA_RESTORER, SIG_IGN};
use forkless_sys::{Errno, Result};

/// `UAPI_SA_FLAGS`: NOCLDSTOP, NOCLDWAIT, SIGINFO, EXPOSE_TAGBITS, RESTORER, ONSTACK, RESTART,
/// NODEFER, RESETHAND.
const KNOWN_FLAGS: usize = 0xdc00_0807;
const UNBLOCKABLE: u64 = 1 << (SIGKILL - 1) | 1 << (SIGSTOP - 1);

/// A signal's bit in a mask.
#[must_use]
pub fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// The signal that a register names. `EINVAL`: there is none, or its action is to be set and cannot
/// be.
pub fn number(register: usize, is_set: bool) -> Result<usize> {
    // An int.
    let signal = register as u32 as usize;
    let is_known = (1..=64).contains(&signal) && !(is_set && UNBLOCKABLE & bit(signal) != 0);
    if is_known { Ok(signal) } else { Err(Errno::EINVAL) }
}

/// Actions by signal number, learnt from the kernel or set by the program. All zeros at first.
pub struct Actions {
    known: AtomicU64,
    /// Set by the program since the fork.
    set: AtomicU64,
    /// Ignored at the fork.
    was_ignored: AtomicU64,
    handler: [AtomicUsize; 65],
    flags: [AtomicUsize; 65],
    restorer: [AtomicUsize; 65],
    mask: [AtomicU64; 65],
}

impl Actions {
    /// None is known.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Actions {
        Actions {
            known: AtomicU64::new(0),
            set: AtomicU64::new(0),
            was_ignored: AtomicU64::new(0),
            handler: [const { AtomicUsize::new(0) }; 65],
            flags: [const { AtomicUsize::new(0) }; 65],
            restorer: [const { AtomicUsize::new(0) }; 65],
            mask: [const { AtomicU64::new(0) }; 65],
        }
    }

    /// Learns a signal's action at the time of the fork.
    pub fn learn(&self, signal: usize, action: &KernelAction) {
        self.write(signal, action);
        self.known.store(self.known.load(Relaxed) | bit(signal), Relaxed);
        if action.handler == SIG_IGN {
            self.was_ignored.store(self.was_ignored.load(Relaxed) | bit(signal), Relaxed);
        }
    }

    fn write(&self, signal: usize, action: &KernelAction) {
        self.handler[signal].store(action.handler, Relaxed);
        self.flags[signal].store(action.flags, Relaxed);
        self.restorer[signal].store(action.restorer, Relaxed);
        self.mask[signal].store(action.mask, Relaxed);
    }

    /// A signal's action. `ask` asks the kernel for one that is not known.
    pub fn get(&self, signal: usize, ask: impl FnOnce(i32) -> Result<KernelAction>) -> Result<KernelAction> {
        if self.known.load(Relaxed) & bit(signal) == 0 {
            self.learn(signal, &ask(signal as i32)?);
        }
        Ok(KernelAction {
            handler: self.handler[signal].load(Relaxed),
            flags: self.flags[signal].load(Relaxed),
            restorer: self.restorer[signal].load(Relaxed),
            mask: self.mask[signal].load(Relaxed),
        })
    }

    /// Sets the action of a known signal. Like the kernel it drops unknown flags, and from the mask
    /// the signals that cannot be blocked (`do_sigaction`, kernel/signal.c).
    pub fn set(&self, signal: usize, new: &KernelAction) {
        let kept = KernelAction { flags: new.flags & KNOWN_FLAGS, mask: new.mask & !UNBLOCKABLE, ..*new };
        self.write(signal, &kept);
        self.set.store(self.set.load(Relaxed) | bit(signal), Relaxed);
    }

    /// Signals whose action the kernel must be told before exec, and whether they are to be
    /// ignored. `ours`: signals with an action of the library's.
    pub fn differences(&self, ours: u64) -> impl Iterator<Item = (usize, bool)> {
        // Caught signals become default at exec by themselves. Among the library's signals only an
        // ignored one has to be set, whether the program ignored it before the fork or since.
        let was_ignored = self.was_ignored.load(Relaxed);
        let mut candidates = self.set.load(Relaxed) | (was_ignored & ours);
        core::iter::from_fn(move || {
            while candidates != 0 {
                let signal = candidates.trailing_zeros() as usize + 1;
                candidates &= candidates - 1;
                let ignored = self.handler[signal].load(Relaxed) == SIG_IGN;
                let kernel_ignores = was_ignored & bit(signal) & !ours != 0;
                if ignored != kernel_ignores {
                    return Some((signal, ignored));
                }
            }
            None
        })
    }
}

/// The mask after `rt_sigprocmask(how, set)`.
pub fn changed(mask: u64, how: usize, set: u64) -> Result<u64> {
    let mask = match how {
        0 => mask | set,
        1 => mask & !set,
        2 => set,
        _ => return Err(Errno::EINVAL),
    };
    Ok(mask & !UNBLOCKABLE)
}

/// Whether the kernel throws away a waiting signal that gets this handler (`sig_handler_ignored`,
/// kernel/signal.c).
#[must_use]
pub fn flushes(signal: usize, handler: usize) -> bool {
    /// SIGCHLD, SIGCONT, SIGURG and SIGWINCH.
    const IGNORED_BY_DEFAULT: u64 = 1 << 16 | 1 << 17 | 1 << 22 | 1 << 27;
    handler == SIG_IGN || handler == 0 && IGNORED_BY_DEFAULT & bit(signal) != 0
}

/// The alternate stack that `sigaltstack(new)` sets (`do_sigaltstack`, kernel/signal.c).
pub fn alternate(new: AltStack) -> Result<AltStack> {
    const ONSTACK: i32 = 1;
    const DISABLE: i32 = 2;
    const AUTODISARM: i32 = 1 << 31;
    const SMALLEST: usize = 2048;
    let (start, size) = match new.flags & !AUTODISARM {
        DISABLE => (0, 0),
        0 | ONSTACK if new.size < SMALLEST => return Err(Errno::ENOMEM),
        0 | ONSTACK => (new.start, new.size),
        _ => return Err(Errno::EINVAL),
    };
    // ONSTACK says that it is in use.
    Ok(AltStack { start, flags: new.flags & AUTODISARM | if size == 0 { DISABLE } else { 0 }, size })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const SIGINT: usize = forkless_sys::signal::SIGINT as usize;
    const SIGSEGV: usize = forkless_sys::signal::SIGSEGV as usize;
    const OURS: u64 = 1 << (SIGSEGV - 1);

    fn action(handler: usize) -> KernelAction {
        KernelAction { handler, ..KernelAction::DEFAULT }
    }

    fn never(_: i32) -> Result<KernelAction> {
        panic!("the kernel is asked for an action that is known")
    }

    fn differences(actions: &Actions) -> Vec<(usize, bool)> {
        actions.differences(OURS).collect()
    }

    #[test]
    fn an_action_is_asked_for_once_and_kept_as_the_kernel_keeps_it() {
        let actions = Actions::new();
        let first = actions.get(SIGINT, |signal| {
            assert_eq!(signal, 2);
            Ok(action(0x1234))
        });
        assert_eq!(first, Ok(action(0x1234)));
        let new = KernelAction { handler: 0x5678, flags: usize::MAX, restorer: 7, mask: u64::MAX };
        actions.set(SIGINT, &new);
        let kept = KernelAction { flags: KNOWN_FLAGS, mask: !(1 << 8 | 1 << 18), ..new };
        assert_eq!(actions.get(SIGINT, never), Ok(kept));
    }

    #[test]
    fn the_kernel_is_told_what_exec_keeps_and_no_more() {
        let actions = Actions::new();
        actions.learn(SIGINT, &action(0x1234));
        actions.set(SIGINT, &action(0x5678));
        assert_eq!(differences(&actions), [], "both are default after exec");
        actions.set(SIGINT, &action(SIG_IGN));
        assert_eq!(differences(&actions), [(SIGINT, true)]);
        let actions = Actions::new();
        actions.learn(SIGINT, &action(SIG_IGN));
        assert_eq!(differences(&actions), []);
        actions.set(SIGINT, &action(0));
        assert_eq!(differences(&actions), [(SIGINT, false)]);
    }

    #[test]
    fn a_signal_of_ours_that_was_ignored_is_ignored_again() {
        let actions = Actions::new();
        actions.learn(SIGSEGV, &action(SIG_IGN));
        assert_eq!(differences(&actions), [(SIGSEGV, true)]);
        actions.set(SIGSEGV, &action(0x1234));
        assert_eq!(differences(&actions), []);
    }

    #[test]
    fn numbers_are_ints_from_1_to_64_and_two_cannot_be_set() {
        assert_eq!(number(0, false), Err(Errno::EINVAL));
        assert_eq!(number(65, false), Err(Errno::EINVAL));
        assert_eq!(number(5 | 1 << 32, true), Ok(5));
        assert_eq!((number(9, false), number(9, true)), (Ok(9), Err(Errno::EINVAL)));
        assert_eq!((number(19, false), number(19, true)), (Ok(19), Err(Errno::EINVAL)));
    }

    #[test]
    fn what_is_ignored_is_thrown_away() {
        assert!(flushes(SIGINT, SIG_IGN) && !flushes(SIGINT, 0) && !flushes(SIGINT, 0x1234));
        assert!([17, 18, 23, 28].iter().all(|signal| flushes(*signal, 0)));
    }

    #[test]
    fn alternate_stacks_are_set_as_the_kernel_sets_them() {
        let stack = AltStack { start: 0x1000, flags: 0, size: 8192 };
        assert_eq!(alternate(stack), Ok(stack));
        assert_eq!(alternate(AltStack { flags: 1, ..stack }), Ok(stack));
        assert_eq!(alternate(AltStack { size: 2047, ..stack }), Err(Errno::ENOMEM));
        assert_eq!(alternate(AltStack { flags: 4, ..stack }), Err(Errno::EINVAL));
        assert_eq!(alternate(AltStack { flags: 2, ..stack }), Ok(AltStack { start: 0, flags: 2, size: 0 }));
        let disarms = AltStack { flags: 1 << 31, ..stack };
        assert_eq!(alternate(disarms), Ok(disarms));
    }

    proptest! {
        #[test]
        fn a_mask_never_has_what_cannot_be_blocked(mask in any::<u64>(), how in 0usize..4, set in any::<u64>()) {
            match changed(mask, how, set) {
                Ok(after) => {
                    prop_assert_eq!(after & UNBLOCKABLE, 0);
                    let other = !UNBLOCKABLE & !set;
                    prop_assert_eq!(after & other, if how == 2 { 0 } else { mask & other });
                    prop_assert_eq!(after & set & !UNBLOCKABLE, if how == 1 { 0 } else { set & !UNBLOCKABLE });
                }
                Err(e) => prop_assert_eq!((e, how), (Errno::EINVAL, 3)),
            }
        }
    }
}
