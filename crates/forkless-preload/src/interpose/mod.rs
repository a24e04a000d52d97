//! The symbols that this library puts in front of libc's, and the wiring of all other modules.
//!
//! `fork` and `_Fork` are the point. Most of the others are libc functions that children call
//! between fork and exec, dozens of times. In a speculative child they go straight to the policy
//! and skip the signal (2 us each). Everywhere else they are one compare and one jump to the next
//! definition, arguments untouched. Where no child speculates they are not interposed.
//!
//! Each name goes on to the next definition of that name, though libc has one function for some
//! two: another library's `fork` may call `__fork`, its `_exit` `_Exit`.
#![expect(unsafe_code, reason = "functions under libc's names, with libc's contracts")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};

use linux_raw_sys::prctl;

use forkless_run::HugePages;

use crate::config;
use crate::errno::absent;
use crate::fork;
use crate::huge::{background, pool};
use crate::mappings::advice;
use crate::next::{self, Next, of_libc};
use crate::speculation;
use crate::unknown_words;
use crate::window;

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod arch;
#[cfg(target_arch = "x86_64")]
mod closes;
mod exec;
#[cfg(target_arch = "x86_64")]
mod fork_handlers;
#[cfg(target_arch = "x86_64")]
mod handles;

/// Runs when the library is loaded, before the program's constructors. glibc passes main's
/// arguments, musl nothing.
extern "C" fn load() {
    crate::objects::remember();
    crate::memory_owner::at_take_over(fork::forget_parents);
    // SAFETY: libc's own vector, set before constructors run.
    if let Some((options, unknown)) = unsafe { config::read(crate::next::environment()) } {
        crate::filters::configure(options.filters);
        crate::shell::configure(options.shell);
        crate::context::configure(options.fast_context);
        let merges = options.huge_pages != HugePages::Off;
        crate::huge::configure(merges);
        // Without huge pages there is nothing to say later.
        pool::configure(options.huge_pages == HugePages::Pool, !options.quiet && merges);
        if let Some(entry) = unknown {
            // SAFETY: the process's own writable string, still ours alone this early.
            unsafe { unknown_words::complain(entry, options.quiet) };
        }
    }
    crate::tally::begin();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

extern "C" fn unload() {
    at_exit(true);
}

/// Makes no system call. `certain`: this is not a child of `vfork`, which calls `_exit` and nothing
/// else.
fn at_exit(certain: bool) {
    crate::context::report();
    crate::tally::finish(certain);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

type Exit = extern "C" fn(c_int) -> !;
of_libc! {
    static EXIT: Exit = c"_exit", "_exit(2)";
    static EXIT_OTHER_NAME: Exit = c"_Exit", "_exit(2)";
}

/// `_exit(2)`: ends a process without its destructors, ours included.
#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    end(status, &EXIT)
}

/// `_Exit(3)`, its other name.
#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    end(status, &EXIT_OTHER_NAME)
}

fn end(status: c_int, next: &Next<Exit>) -> ! {
    #[cfg(target_arch = "x86_64")]
    if speculation::is_direct() {
        fork::child::direct(linux_raw_sys::general::__NR_exit_group, &[status as usize, 0, 0, 0, 0, 0]);
    }
    if !speculation::speculating() {
        at_exit(false);
    }
    if let Some(real) = next.get() {
        real(status);
    }
    forkless_sys::process::exit_group(status)
}

of_libc! {
    static FORK: next::Fork = c"fork", "fork(2)";
    #[cfg(target_arch = "x86_64")]
    static FORK_OTHER_NAME: next::Fork = c"__fork", "fork(2); glibc's other name of `fork`";
    static FORK_SIGNAL_SAFE: next::Fork = c"_Fork", "fork(2), C library/kernel differences";
}

/// `fork(2)`, called at `site`.
extern "C" fn fork_entry(site: usize) -> c_int {
    fork_by(&FORK, site, arch::has_ours())
}

/// The same by its other name in glibc.
#[cfg(target_arch = "x86_64")]
extern "C" fn fork_other_name_entry(site: usize) -> c_int {
    fork_by(&FORK_OTHER_NAME, site, arch::has_ours())
}

/// `_Fork(3)`, fork without the fork handlers.
extern "C" fn fork_signal_safe_entry(site: usize) -> c_int {
    fork_by(&FORK_SIGNAL_SAFE, site, false)
}

/// `arm_after_handlers`: the last fork handler arms the thread.
fn fork_by(real: &'static Next<next::Fork>, site: usize, arm_after_handlers: bool) -> c_int {
    find_for_children();
    let pid = fork::speculate_or_fork(real, site, arm_after_handlers, passes_others_over);
    if pid == 0 {
        arch::alone();
    }
    pid
}

/// How often the process has forked, as far as [`find_for_children`] wants to know.
static FORKS: AtomicU8 = AtomicU8::new(0);

/// At the second fork of a process, finds the functions that its children call. Each child would
/// look them up for itself, with the tables for that not mapped yet. Most processes fork once or
/// never.
fn find_for_children() {
    match FORKS.load(Relaxed) {
        0 => FORKS.store(1, Relaxed),
        1 => {
            EXIT.find();
            EXIT_OTHER_NAME.find();
            MADVISE.find();
            MREMAP.find();
            MUNMAP.find();
            MPROTECT.find();
            next::settle(&pthread_create::NEXT, c"pthread_create", absent as *const ());
            // They lie far away, and few children wait before they execute a program.
            if background::WATCHED.load(Relaxed) != 0 {
                crate::waits::find();
            }
            arch::find_for_children();
            exec::find_for_children();
            FORKS.store(2, Relaxed);
        }
        _ => {}
    }
}

/// Whether another library has functions of its own under names that speculative children pass
/// over. Then all of them are looked up now: a child that calls them would look for them with
/// hardly any memory.
#[cfg(target_arch = "x86_64")]
fn passes_others_over() -> bool {
    let passes = arch::passes_others_over() || crate::objects::others_define("_exit\0_Exit\0execve\0");
    if passes {
        FORKS.store(1, Relaxed);
        find_for_children();
    }
    passes
}

/// Nothing is passed over where nothing speculates.
#[cfg(target_arch = "aarch64")]
fn passes_others_over() -> bool {
    false
}

/// The program calls `prctl`. With a filter or dispatch of its own, its system calls are its own
/// business.
fn note_prctl(option: u32) {
    match option {
        prctl::PR_SET_SECCOMP => fork::note_seccomp(),
        prctl::PR_CAPBSET_DROP => crate::shell::note_rights(),
        #[cfg(target_arch = "x86_64")]
        prctl::PR_SET_SYSCALL_USER_DISPATCH => crate::filters::note_dispatch(),
        _ => {}
    }
}

/// A thread is about to change namespaces.
#[cfg(target_arch = "x86_64")]
fn note_namespaces() {
    fork::note_namespaces();
    crate::shell::note_rights();
}

/// A thread is being cancelled. Children that it forks inherit the request, and end in the next of
/// libc's functions that is a cancellation point. So from here on no function is passed over, and
/// no close is answered.
#[cfg(target_arch = "x86_64")]
fn note_cancel() {
    if !speculation::speculating() {
        FORKS.store(1, Relaxed);
        find_for_children();
    }
    speculation::trap_from_now_on();
    crate::close_loop::LOOP.give_up();
}

// Functions that are watched and not replaced: what the program tells the kernel about its memory.

of_libc! {
    static MADVISE: extern "C" fn(*mut c_void, usize, c_int) -> c_int = c"madvise", "madvise(2)";
}

/// `madvise(2)`.
#[unsafe(no_mangle)]
extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    pool::before_use(addr as usize, len);
    let Some(real) = MADVISE.get() else { return absent() };
    advice::given(addr as usize, len, advice as u32, || real(addr, len, advice))
}

// SAFETY: `mremap` is variadic; its fifth argument is there or it is not, and libc looks at it only
// where it means something.
static MREMAP: Next<extern "C" fn(usize, usize, usize, c_int, usize) -> usize> =
    unsafe { Next::new(c"mremap") };

/// `mremap(2)`.
#[unsafe(no_mangle)]
extern "C" fn mremap(addr: usize, old_len: usize, new_len: usize, flags: c_int, new_addr: usize) -> usize {
    pool::before_use(addr, old_len);
    let Some(real) = MREMAP.get() else { return absent() as usize };
    advice::moved(addr, old_len, new_len, || real(addr, old_len, new_len, flags, new_addr))
}

of_libc! {
    static MUNMAP: extern "C" fn(*mut c_void, usize) -> c_int = c"munmap", "munmap(2)";
}

/// `munmap(2)`.
#[unsafe(no_mangle)]
extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    pool::before_unmap(addr as usize, len);
    let Some(real) = MUNMAP.get() else { return absent() };
    advice::unmapped(addr as usize, len, || real(addr, len))
}

of_libc! {
    static MPROTECT: extern "C" fn(*mut c_void, usize, c_int) -> c_int = c"mprotect", "mprotect(2)";
}

/// `mprotect(2)`, which fails on part of a huge page.
#[unsafe(no_mangle)]
extern "C" fn mprotect(addr: *mut c_void, len: usize, protection: c_int) -> c_int {
    pool::before_use(addr as usize, len);
    let Some(real) = MPROTECT.get() else { return absent() };
    window::unmarked(|| real(addr, len, protection))
}

/// `pthread_create(3)`. Its first call comes by way of the slot's first value.
mod pthread_create {
    use super::*;

    pub(super) static NEXT: AtomicPtr<c_void> = {
        #[unsafe(naked)]
        extern "C" fn find() {
            next::find_and_go_on!(first)
        }

        extern "C" fn first() -> *mut c_void {
            crate::filters::before_first_thread();
            next::settle(&NEXT, c"pthread_create", absent as *const ())
        }

        AtomicPtr::new(find as *const () as *mut c_void)
    };

    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn pthread_create() {
        arch::once_moved!(before, NEXT)
    }

    extern "C" fn before() {
        pool::before_thread();
    }
}
