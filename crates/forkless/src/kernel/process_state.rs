//! State that belongs to one process. A process forked from it must not find that state.
//!
//! A fork copies memory, but neither threads nor the right to wait for children. It also copies
//! locks as they are: a lock that another thread held at that moment stays held for ever. So each
//! [`PerProcess`] is reached through a pointer in a page that the kernel wipes on fork
//! (`MADV_WIPEONFORK`). The new process finds a null pointer and begins anew.
#![expect(unsafe_code, reason = "pointers kept in a mapping of their own")]

use forkless_sys::mm::{self, LARGEST_PAGE};
use forkless_sys::process;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A value that every process has one of, made when the process first asks for it.
///
/// Values are never freed: another thread may be using them.
pub(crate) struct PerProcess<T: 'static> {
    /// Address of the pointer to this process's value, 0 before the first use. Not a `OnceLock`:
    /// that is a lock, too.
    pointer: AtomicUsize,
    /// The newest value, which leads to the older ones. Never read here: a leak checker does not
    /// look into mappings (LeakSanitizer's roots are globals, stacks and registers). It would call
    /// the value lost in every program that uses the library.
    newest: AtomicPtr<Owned<T>>,
}

/// A value with the process it belongs to.
struct Owned<T> {
    value: T,
    /// Tells the owner where the pointer is not wiped.
    pid: i32,
    /// The value of the process that this one was forked from.
    before: AtomicPtr<Owned<T>>,
}

/// Whether some pointer is not wiped by a fork, as in old sandboxes. Then every use asks for the
/// process's number. Set before such a pointer is used, and never unset.
static A_POINTER_SURVIVES: AtomicBool = AtomicBool::new(false);

/// Whether a process forked from this one finds none of this state; known once there is some.
pub(crate) fn is_wiped_by_fork() -> bool {
    !A_POINTER_SURVIVES.load(Ordering::Relaxed)
}

impl<T: Default + Sync + 'static> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess { pointer: AtomicUsize::new(0), newest: AtomicPtr::new(null_mut()) }
    }

    /// The value of this process.
    #[inline]
    pub(crate) fn get(&self) -> &'static T {
        &self.owned().value
    }

    #[inline]
    fn owned(&self) -> &'static Owned<T> {
        let pointer = self.pointer();
        let mut at = pointer.load(Ordering::Acquire);
        if at.is_null() || !is_wiped_by_fork() {
            at = self.owned_by_this_process(pointer, at);
        }
        // SAFETY: values are never freed.
        unsafe { &*at }
    }

    fn pointer(&self) -> &'static AtomicPtr<Owned<T>> {
        let mut at = self.pointer.load(Ordering::Acquire);
        if at == 0 {
            at = self.place_pointer();
        }
        // SAFETY: the address of a word that is never freed and holds only this pointer; zero bytes
        // are a null `AtomicPtr`.
        unsafe { &*(at as *const AtomicPtr<Owned<T>>) }
    }

    #[cold]
    fn place_pointer(&self) -> usize {
        let new = wiped_word();
        match self.pointer.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            // Two threads at once: the other's word is used. This one is left alone, once in a
            // program's life.
            Err(first) => first,
        }
    }

    /// Makes the value, unless the one at `at` is this process's.
    #[cold]
    fn owned_by_this_process(&self, pointer: &AtomicPtr<Owned<T>>, at: *mut Owned<T>) -> *mut Owned<T> {
        // SAFETY: not null, so published below; never freed.
        if !at.is_null() && unsafe { (*at).pid } == process::getpid() {
            return at;
        }
        let before = AtomicPtr::new(null_mut());
        let new = Box::into_raw(Box::new(Owned { value: T::default(), pid: process::getpid(), before }));
        match pointer.compare_exchange(at, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let before = self.newest.swap(new, Ordering::AcqRel);
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
}

/// The address of a zeroed word that a fork wipes, where the kernel can.
fn wiped_word() -> usize {
    const WORD: usize = size_of::<usize>();
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    static USED: AtomicUsize = AtomicUsize::new(0);
    let mut page = PAGE.load(Ordering::Acquire);
    if page == 0 {
        let new = wiped_page();
        page = match PAGE.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            // Another thread's page is used. This one is left alone, once in a program's life.
            Err(first) => first,
        };
    }
    match USED.fetch_add(1, Ordering::Relaxed) {
        used if used < LARGEST_PAGE / WORD => page + used * WORD,
        // Only after thousands of threads have asked for a word at once.
        _ => wiped_page(),
    }
}

/// The address of [`LARGEST_PAGE`] zero bytes, which are never freed.
fn wiped_page() -> usize {
    let Ok(at) = mm::map_anonymous(LARGEST_PAGE, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE) else {
        A_POINTER_SURVIVES.store(true, Ordering::Relaxed);
        let words = vec![0_usize; LARGEST_PAGE / size_of::<usize>()];
        return Box::leak(words.into_boxed_slice()).as_mut_ptr() as usize;
    };
    // SAFETY: fresh memory, whose contents nobody else knows of.
    if unsafe { mm::madvise(at, LARGEST_PAGE, mm::MADV_WIPEONFORK) }.is_err() {
        A_POINTER_SURVIVES.store(true, Ordering::Relaxed);
    }
    at as usize
}

/// A value that differs between a process and every process forked from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity(usize);

/// The identity of this process.
pub(crate) fn identity() -> Identity {
    static THIS_PROCESS: PerProcess<()> = PerProcess::new();
    // Values are never freed, so no two that live in one memory have the same address.
    Identity(std::ptr::from_ref(THIS_PROCESS.owned()) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `body` holds in a forked process.
    fn holds_in_a_fork(body: impl Fn() -> bool) -> bool {
        // SAFETY: the child only makes its own values, forks and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let holds = body();
            // SAFETY: leaves without running the test harness's exit handlers.
            unsafe { libc::_exit(i32::from(!holds)) };
        }
        process::waitid(process::P_PID, pid, process::WEXITED).is_ok_and(|info| info.status == 0)
    }

    #[test]
    fn a_forked_process_has_a_value_of_its_own() {
        static COUNT: PerProcess<AtomicUsize> = PerProcess::new();
        COUNT.get().store(7, Ordering::Relaxed);
        let before = identity();
        assert!(holds_in_a_fork(|| COUNT.get().load(Ordering::Relaxed) == 0 && identity() != before));
        assert_eq!((COUNT.get().load(Ordering::Relaxed), identity()), (7, before));
    }

    /// As in old sandboxes, which refuse `MADV_WIPEONFORK`.
    #[test]
    fn a_pointer_that_survives_a_fork_is_not_believed() {
        static COUNT: PerProcess<AtomicUsize> = PerProcess::new();
        // In a process of its own, since the flag is never unset.
        assert!(holds_in_a_fork(|| {
            A_POINTER_SURVIVES.store(true, Ordering::Relaxed);
            let word: &'static AtomicUsize = Box::leak(Box::default());
            COUNT.pointer.store(std::ptr::from_ref(word) as usize, Ordering::Relaxed);
            COUNT.get().store(7, Ordering::Relaxed);
            let is_new = || COUNT.get().load(Ordering::Relaxed) == 0;
            holds_in_a_fork(is_new) && COUNT.get().load(Ordering::Relaxed) == 7
        }));
    }
}
