//! State that belongs to one process and must not be found by another: the pool of slots, the dropped children, and what the
//! kernel was found to allow.
//!
//! A fork copies memory but neither threads nor the right to wait for children; worse, it copies locks as they are, so that one held
//! by another thread at that moment stays held for ever. So all of it hangs on a pointer in a page that the kernel wipes on fork
//! (`MADV_WIPEONFORK`): the new process finds nothing and begins anew.
#![expect(unsafe_code, reason = "a pointer kept in a mapping of its own")]

use crate::alone::SingleThreaded;
use crate::facilities::All;
use crate::orphans::Orphans;
use crate::slot::Pool;
use forkless_sys::{mm, process};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// What this process has.
#[derive(Default)]
pub(crate) struct State {
    pub pool: Pool,
    pub facilities: All,
    pub orphans: Orphans,
    /// Starts that change credentials just now, and the dumpable flag before the first of them.
    pub dumpable: Mutex<(usize, i32)>,
    pub single_threaded: SingleThreaded,
    /// This process's PID namespace, as its link in /proc says it: it never has another.
    pub pid_namespace: OnceLock<forkless_sys::namespace::PidNamespace>,
    /// Whose it is, where the page is not wiped.
    pid: i32,
    /// Of the process that this one was forked from.
    before: AtomicPtr<State>,
}

/// The newest state, which leads to the older ones. Never read here: a leak checker does not look into mappings (LeakSanitizer's roots
/// are globals, stacks and registers), and would call all of it lost in every program that uses the library.
static REACHABLE: AtomicPtr<State> = AtomicPtr::new(null_mut());

const PAGE: usize = 64 * 1024;

/// Whether a fork hides the state: then the stacks need not be copied either. Without it (old sandboxes) the process is asked for its
/// number every time.
static FORGOTTEN_BY_FORK: AtomicBool = AtomicBool::new(false);

pub(crate) fn forgotten_by_fork() -> bool {
    FORGOTTEN_BY_FORK.load(Ordering::Relaxed)
}

/// The address of the pointer. Not a `OnceLock`: that is a lock, too.
fn home() -> &'static AtomicPtr<State> {
    static HOME: AtomicUsize = AtomicUsize::new(0);
    let mut at = HOME.load(Ordering::Acquire);
    if at == 0 {
        at = make_home(&HOME);
    }
    // SAFETY: the address of a mapping, or of a leaked box, that is never unmapped and holds only this pointer; zero bytes are a null
    // `AtomicPtr`.
    unsafe { &*(at as *const AtomicPtr<State>) }
}

#[cold]
fn make_home(home: &AtomicUsize) -> usize {
    let new = wiped_on_fork();
    match home.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        // Two threads at once: the other's page is used, and this one is left alone, once in a program's life.
        Err(first) => first,
    }
}

fn wiped_on_fork() -> usize {
    if let Ok(at) = mm::map_anonymous(PAGE, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE) {
        // SAFETY: fresh memory, whose contents nobody else knows of.
        let wiped = unsafe { mm::madvise(at, PAGE, mm::MADV_WIPEONFORK) };
        FORGOTTEN_BY_FORK.store(wiped.is_ok(), Ordering::Relaxed);
        return at as usize;
    }
    Box::into_raw(Box::new(AtomicPtr::<State>::new(null_mut()))) as usize
}

/// This process's.
#[inline]
pub(crate) fn state() -> &'static State {
    let home = home();
    let mut at = home.load(Ordering::Acquire);
    if at.is_null() || !forgotten_by_fork() {
        at = state_of_this_process(home, at);
    }
    // SAFETY: states are never freed.
    unsafe { &*at }
}

/// Which process this is, as far as one forked from another needs to be told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(usize);

/// This process's.
pub(crate) fn mark() -> Mark {
    // States are never freed, so no two that live in one memory have the same address.
    Mark(std::ptr::from_ref(state()) as usize)
}

/// Makes the state, unless the one at `at` is this process's.
#[cold]
fn state_of_this_process(home: &AtomicPtr<State>, at: *mut State) -> *mut State {
    // SAFETY: not null, so published below; never freed.
    if !at.is_null() && unsafe { (*at).pid } == process::getpid() {
        return at;
    }
    let new = Box::into_raw(Box::new(State { pid: process::getpid(), ..State::default() }));
    match home.compare_exchange(at, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let before = REACHABLE.swap(new, Ordering::AcqRel);
            // SAFETY: published just now; never freed.
            unsafe { &(*new).before }.store(before, Ordering::Relaxed);
            new
        }
        Err(first) => {
            // SAFETY: `new` was not published.
            drop(unsafe { Box::from_raw(new) });
            first
        }
    }
}
