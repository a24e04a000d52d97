//! The effect of a fork by the program on the state of `forkless_system` and `forkless_popen`.
//!
//! A forked process forgets the library's own state (docs/decisions/0004), but not this state: the
//! streams of `forkless_popen` are open in the new process, too, and later children must still
//! close them. So the state is kept whole as libc keeps its own: the fork holds the locks.
//! Otherwise a thread that does not exist in the new process could hold one there.
#![expect(unsafe_code, reason = "pthread_atfork")]

use crate::streams::{self, Streams};
use forkless::shield::{self, Waiting};
use std::cell::{Cell, RefCell};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    /// pthread_atfork(3).
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}

type Held = (MutexGuard<'static, Waiting>, MutexGuard<'static, Streams>);

thread_local! {
    /// The locks, while this thread is in fork.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    /// How many forks this thread is in: a fork handler may fork.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Called before either lock is first taken.
pub(crate) fn register() {
    // Not a `Once`, which is a lock. A second thread may go on a moment before the first has
    // registered, once in a program's life.
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.load(Ordering::Relaxed) && !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: functions that stay, since the library is never unloaded. Without memory for it,
        // a fork is as it was.
        unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}

extern "C" fn prepare() {
    if DEPTH.replace(DEPTH.get() + 1) > 0 {
        return;
    }
    // No other place takes both.
    let held = (shield::waiting(), streams::streams());
    let _ = HELD.try_with(|h| *h.borrow_mut() = Some(held));
}

extern "C" fn parent() {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    if DEPTH.get() == 0 {
        let _ = HELD.try_with(|h| h.borrow_mut().take());
    }
}

extern "C" fn child() {
    let _ = HELD.try_with(|h| {
        if let Some((waiting, streams)) = &mut *h.borrow_mut() {
            // The calls under way belong to other threads, which do not exist here.
            waiting.forget();
            streams.forget_calls();
        }
    });
    parent();
}
