//! `pthread_atfork`: the program's fork handlers run before the thread is armed.
//!
//! Fork handlers may make system calls and wait for signals. libc runs those that prepare a fork in
//! the reverse order of their registration. So ours is registered before the first of the
//! program's, and arms the thread when all the others have run.
#![expect(unsafe_code, reason = "functions under libc's names")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::Errno;

use crate::fork;
use crate::next::{self, Next, of_libc};
use crate::patience::wait_while;

/// Whether there are fork handlers. The first is then ours, [`fork::prepare`].
static HANDLERS: AtomicU8 = AtomicU8::new(0);

/// Values of [`HANDLERS`]; 0: none.
const BEING_ADDED: u8 = 1;
const OURS: u8 = 2;
/// Ours could not be added.
const NOT_OURS: u8 = 3;

/// `__register_atfork`, glibc's. The `pthread_atfork` that is a part of every object calls it.
type RegisterAtfork = extern "C" fn(*const c_void, *const c_void, *const c_void, *const c_void) -> c_int;

of_libc! {
    static REGISTER_ATFORK: RegisterAtfork = c"__register_atfork", "glibc's register-atfork.c";
}
// SAFETY: its type, but for a fourth argument, which it takes no notice of.
static PTHREAD_ATFORK: Next<RegisterAtfork> = unsafe { Next::new(c"pthread_atfork") };

/// Registers handlers: with glibc by `__register_atfork`, with musl, and for programs that were
/// linked long ago, by `pthread_atfork`.
fn add_handlers(
    next: &Next<RegisterAtfork>,
    prepare: *const c_void,
    parent: *const c_void,
    child: *const c_void,
    object: *const c_void,
) -> c_int {
    let Some(real) = next.get() else { return Errno::ENOSYS.raw() };
    if HANDLERS.compare_exchange(0, BEING_ADDED, Acquire, Relaxed).is_ok() {
        let none = core::ptr::null();
        let ours = real(fork::prepare as *const c_void, none, none, none);
        HANDLERS.store(if ours == 0 { OURS } else { NOT_OURS }, Release);
    }
    // Another thread's handlers come after ours.
    wait_while(|| HANDLERS.load(Acquire) == BEING_ADDED);
    real(prepare, parent, child, object)
}

/// glibc's, since 2.0.
#[unsafe(no_mangle)]
extern "C" fn __register_atfork(
    prepare: *const c_void,
    parent: *const c_void,
    child: *const c_void,
    object: *const c_void,
) -> c_int {
    add_handlers(&REGISTER_ATFORK, prepare, parent, child, object)
}

/// `pthread_atfork(3)`.
#[unsafe(no_mangle)]
extern "C" fn pthread_atfork(prepare: *const c_void, parent: *const c_void, child: *const c_void) -> c_int {
    let next = if next::is_glibc() { &REGISTER_ATFORK } else { &PTHREAD_ATFORK };
    add_handlers(next, prepare, parent, child, core::ptr::null())
}

/// Whether ours is among the handlers.
pub(crate) fn has_ours() -> bool {
    HANDLERS.load(Relaxed) == OURS
}

/// In a child: a thread that was adding ours is not here.
pub(crate) fn alone() {
    if HANDLERS.load(Relaxed) == BEING_ADDED {
        HANDLERS.store(NOT_OURS, Relaxed);
    }
}
