//! The interposers of x86-64: calls that children make between fork and exec, and calls of the
//! program that its later speculations must know of.

// The parent module's expectation of unsafe code covers this file.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use forkless_speculate::marks;
use forkless_sys::Errno;
use forkless_sys::signal::{KernelAction, SA_RESTART, SA_RESTORER};
use linux_raw_sys::general as k;

use crate::close_loop::{self, LOOP};
use crate::errno::{fail, libc_answer};
use crate::fork::{self, child};
use crate::mappings::advice;
use crate::next::{self, Next, arguments_back, jump_slot, keep_arguments, of_libc};
use crate::signals::{SIG_IGN, SIGSYS};
use crate::speculation::{self, Interception, SPECULATING};
use crate::window;

use super::closes::{self, forget_closes};
use super::{
    absent, fork_entry, fork_other_name_entry, fork_signal_safe_entry, note_cancel, note_namespaces,
    note_prctl,
};

pub(super) use super::fork_handlers::{alone, has_ours};

/// `fork(2)`. The call's return address is the call site.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn fork() -> c_int {
    naked_asm!("mov rdi, [rsp]", "jmp {entry}", entry = sym fork_entry)
}

/// glibc's other name for it.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn __fork() -> c_int {
    naked_asm!("mov rdi, [rsp]", "jmp {entry}", entry = sym fork_other_name_entry)
}

/// `_Fork(3)`, fork without the fork handlers.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _Fork() -> c_int {
    naked_asm!("mov rdi, [rsp]", "jmp {entry}", entry = sym fork_signal_safe_entry)
}

/// Defines a libc function. In a speculative child with [`Interception::Direct`] it is `$slow`.
/// Elsewhere it is the next definition, found at the first call.
///
/// `sigsys`: its first argument is a signal, whose action it reads or sets. There are three
/// arguments at most, and one more here. SIGSYS's action may be the library's at the moment
/// ([`of_sigsys`]).
///
/// `opens`: it makes a descriptor of any number. A handler may call it in the midst of a close
/// loop.
macro_rules! interpose {
    ($($name:ident, $text:literal => $slow:path $(, $kind:ident)?;)*) => {
        /// The names of these functions.
        const REPLACED: &str = concat!($(stringify!($name), "\0"),*);

        fn find_replaced() {
            $(next::settle(&$name::NEXT, $text, absent as *const ());)*
        }

        $(mod $name {
            use super::*;

            jump_slot!(pub(super) NEXT = $text, else absent);

            interpose!(@function $name, $slow $(, $kind)?);
        })*
    };
    (@function $name:ident, $slow:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                "cmp byte ptr [rip + {speculating}], {direct}",
                "je 2f",
                "jmp [rip + {next}]",
                "2: jmp {slow}",
                speculating = sym SPECULATING,
                direct = const Interception::Direct as u8,
                next = sym NEXT,
                slow = sym $slow,
            )
        }
    };
    (@function $name:ident, $slow:path, opens) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(super) extern "C" fn $name() {
            naked_asm!(
                forget_closes!(),
                "cmp byte ptr [rip + {speculating}], {direct}",
                "je 2f",
                "jmp [rip + {next}]",
                "2: jmp {slow}",
                known = sym LOOP,
                speculating = sym SPECULATING,
                direct = const Interception::Direct as u8,
                next = sym NEXT,
                slow = sym $slow,
            )
        }
    };
    (@function $name:ident, $slow:path, sigsys) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(super) extern "C" fn $name() {
            naked_asm!(
                "cmp byte ptr [rip + {speculating}], {direct}",
                "je 2f",
                "cmp edi, {sigsys}",
                "je 3f",
                "jmp [rip + {next}]",
                "2: jmp {slow}",
                "3: lea rcx, [rip + {next}]",
                "jmp {of_sigsys}",
                speculating = sym SPECULATING,
                direct = const Interception::Direct as u8,
                sigsys = const SIGSYS,
                next = sym NEXT,
                slow = sym $slow,
                of_sigsys = sym of_sigsys,
            )
        }
    };
}

interpose! {
    dup, c"dup" => slow_dup;
    dup2, c"dup2" => slow_dup2, opens;
    __dup2, c"__dup2" => slow_dup2, opens;
    dup3, c"dup3" => slow_dup3, opens;
    open, c"open" => slow_open;
    open64, c"open64" => slow_open;
    setsid, c"setsid" => slow_setsid;
    setpgid, c"setpgid" => slow_setpgid;
    chdir, c"chdir" => slow_chdir;
    umask, c"umask" => slow_umask;
    signal, c"signal" => slow_signal, sigsys;
    sigaction, c"sigaction" => slow_sigaction, sigsys;
    __sigaction, c"__sigaction" => slow_sigaction, sigsys;
    sigprocmask, c"sigprocmask" => slow_sigprocmask;
    pthread_sigmask, c"pthread_sigmask" => slow_pthread_sigmask;
    setuid, c"setuid" => slow_setuid;
    seteuid, c"seteuid" => slow_seteuid;
    setreuid, c"setreuid" => slow_setreuid;
    setresuid, c"setresuid" => slow_setresuid;
}

/// Defines those that read or set an action and that children seldom call: their system calls are
/// judged where they arrive.
macro_rules! sets_actions_seldom {
    ($($name:ident, $text:literal;)*) => {
        $(mod $name {
            use super::*;

            jump_slot!(NEXT = $text, else absent);

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!(
                    "cmp edi, {sigsys}",
                    "je 2f",
                    "jmp [rip + {next}]",
                    "2: lea rcx, [rip + {next}]",
                    "jmp {of_sigsys}",
                    sigsys = const SIGSYS,
                    next = sym NEXT,
                    of_sigsys = sym of_sigsys,
                )
            }
        })*
    };
}

sets_actions_seldom! {
    bsd_signal, c"bsd_signal";
    sigignore, c"sigignore";
    sigset, c"sigset";
    ssignal, c"ssignal";
    sysv_signal, c"sysv_signal";
    // What `signal` is in a program that asked for nothing but ISO C or POSIX (signal.h).
    __sysv_signal, c"__sysv_signal";
}

/// The next definition, called while the action of SIGSYS is the program's own.
extern "C" fn of_sigsys(signal: usize, a: usize, b: usize, next: &AtomicPtr<c_void>) -> usize {
    // SAFETY: a function of libc's that takes these arguments or fewer. Until it is found, what
    // finds it keeps the arguments.
    let real = unsafe {
        core::mem::transmute::<*mut c_void, extern "C" fn(usize, usize, usize) -> usize>(next.load(Relaxed))
    };
    fork::with_own_sigsys(|| real(signal, a, b))
}

extern "C" fn slow_dup(fd: c_int) -> c_int {
    libc_answer(child::direct(k::__NR_dup, &[fd as usize, 0, 0, 0, 0, 0]))
}

extern "C" fn slow_dup2(from: c_int, to: c_int) -> c_int {
    libc_answer(child::direct(k::__NR_dup2, &[from as usize, to as usize, 0, 0, 0, 0]))
}

extern "C" fn slow_dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    libc_answer(child::direct(k::__NR_dup3, &[from as usize, to as usize, flags as usize, 0, 0, 0]))
}

extern "C" fn slow_open(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    libc_answer(child::direct(k::__NR_open, &[path as usize, flags as usize, mode as usize, 0, 0, 0]))
}

extern "C" fn slow_setsid() -> c_int {
    libc_answer(child::direct(k::__NR_setsid, &[0; 6]))
}

extern "C" fn slow_setpgid(pid: c_int, pgid: c_int) -> c_int {
    libc_answer(child::direct(k::__NR_setpgid, &[pid as usize, pgid as usize, 0, 0, 0, 0]))
}

extern "C" fn slow_chdir(path: *const c_char) -> c_int {
    libc_answer(child::direct(k::__NR_chdir, &[path as usize, 0, 0, 0, 0, 0]))
}

extern "C" fn slow_setuid(uid: u32) -> c_int {
    libc_answer(child::direct(k::__NR_setuid, &[uid as usize, 0, 0, 0, 0, 0]))
}

extern "C" fn slow_seteuid(effective: u32) -> c_int {
    const NOBODY: u32 = u32::MAX;
    // glibc's does not ask the kernel for nobody (sysdeps/unix/sysv/linux/seteuid.c).
    if effective == NOBODY && next::is_glibc() {
        return fail(Errno::EINVAL);
    }
    slow_setresuid(NOBODY, effective, NOBODY)
}

extern "C" fn slow_setreuid(real: u32, effective: u32) -> c_int {
    libc_answer(child::direct(k::__NR_setreuid, &[real as usize, effective as usize, 0, 0, 0, 0]))
}

extern "C" fn slow_setresuid(real: u32, effective: u32, saved: u32) -> c_int {
    let ids = [real as usize, effective as usize, saved as usize, 0, 0, 0];
    libc_answer(child::direct(k::__NR_setresuid, &ids))
}

extern "C" fn slow_umask(mask: u32) -> c_int {
    libc_answer(child::direct(k::__NR_umask, &[mask as usize, 0, 0, 0, 0, 0]))
}

/// In a speculative child whose functions go to the policy themselves: `execve` there.
pub(super) fn direct_execve() -> Option<*mut c_void> {
    speculation::is_direct().then_some(slow_execve as *mut c_void)
}

extern "C" fn slow_execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    libc_answer(child::direct(k::__NR_execve, &[path as usize, argv as usize, envp as usize, 0, 0, 0]))
}

/// libc's `struct sigaction`: handler, 128 bytes of mask, flags, restorer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LibcAction {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

/// Signals libc keeps to itself: cancellation and set*id broadcasts.
const LIBC_OWN: u64 = 1 << 31 | 1 << 32;

/// Whether a signal is one of libc's own, which libc neither tells about nor changes.
fn is_libcs_own(signal: c_int) -> bool {
    matches!(signal, 32 | 33) || signal == 34 && !next::is_glibc()
}

/// `signal(3)` for the two actions that a child on its way to exec sets. Node.js sets them for all
/// signals.
extern "C" fn slow_signal(signal: c_int, handler: usize) -> usize {
    let restorer = child::signals::libcs_restorer();
    if handler > SIG_IGN || restorer == 0 || SIGINTERRUPT.load(Relaxed) {
        // SAFETY: found under the name of the function that has this type; until it is found, what
        // finds it keeps the arguments.
        let real = unsafe {
            core::mem::transmute::<*mut c_void, extern "C" fn(c_int, usize) -> usize>(
                signal::NEXT.load(Relaxed),
            )
        };
        return real(signal, handler);
    }
    if is_libcs_own(signal) {
        return fail(Errno::EINVAL) as usize;
    }
    child::count_direct();
    // As glibc's (sysdeps/posix/signal.c), and as musl's, which blocks nothing in the handler.
    let itself = if next::is_glibc() { 1u64.wrapping_shl(signal as u32 - 1) } else { 0 };
    let action = KernelAction { handler, flags: SA_RESTART | SA_RESTORER, restorer, mask: itself };
    match child::signals::exchange(signal as usize, Some(&action)) {
        Ok(before) => before.handler,
        Err(e) => fail(e) as usize,
    }
}

extern "C" fn slow_sigaction(signal: c_int, new: usize, old: usize) -> c_int {
    if is_libcs_own(signal) {
        return fail(Errno::EINVAL);
    }
    let restorer = child::signals::libcs_restorer();
    if new != 0 && restorer == 0 {
        // SAFETY: as in `slow_signal`.
        let real = unsafe {
            core::mem::transmute::<*mut c_void, extern "C" fn(c_int, usize, usize) -> c_int>(
                sigaction::NEXT.load(Relaxed),
            )
        };
        return real(signal, new, old);
    }
    child::count_direct();
    child::need_bytes(new, size_of::<LibcAction>());
    child::need_bytes(old, size_of::<LibcAction>());
    let action = (new != 0).then(|| {
        let a = child::read::<LibcAction>(new);
        KernelAction {
            handler: a.handler,
            flags: a.flags as u32 as usize | SA_RESTORER,
            // Whatever the program says.
            restorer,
            mask: a.mask[0],
        }
    });
    match child::signals::exchange(signal as usize, action.as_ref()) {
        Ok(before) => {
            if old != 0 {
                child::write(old + offset_of!(LibcAction, handler), before.handler);
                child::write(old + offset_of!(LibcAction, mask), before.mask);
                child::write(old + offset_of!(LibcAction, flags), before.flags as c_int);
                // musl writes the kernel's part of the mask, and keeps the restorer to itself.
                if next::is_glibc() {
                    child::write(old + offset_of!(LibcAction, mask) + 8, [0u64; 15]);
                    child::write(old + offset_of!(LibcAction, restorer), before.restorer);
                }
            }
            0
        }
        Err(e) => fail(e),
    }
}

fn change_mask(how: c_int, set: usize, old: usize) -> isize {
    child::count_direct();
    child::need_bytes(set, 8);
    child::need_bytes(old, 8);
    let before = child::signals::mask();
    if set != 0 {
        let set = child::read::<u64>(set) & !LIBC_OWN;
        match forkless_speculate::signals::changed(before, how as usize, set) {
            Ok(after) => child::signals::set_mask(after),
            Err(e) => return -(e.raw() as isize),
        }
    }
    if old != 0 {
        child::write(old, before);
    }
    0
}

extern "C" fn slow_sigprocmask(how: c_int, set: usize, old: usize) -> c_int {
    libc_answer(change_mask(how, set, old))
}

extern "C" fn slow_pthread_sigmask(how: c_int, set: usize, old: usize) -> c_int {
    -change_mask(how, set, old) as c_int
}

/// The program has told libc which signals interrupt calls. From then on only libc knows what
/// `signal` does.
static SIGINTERRUPT: AtomicBool = AtomicBool::new(false);

/// Defines a libc function that is watched and not replaced: `$note` is done before the next
/// definition gets the same arguments.
macro_rules! watches {
    ($($(#[$meta:meta])* $name:ident, $text:literal, ($($argument:ident: $type:ty),*) => $note:expr;)*) => {
        fn find_watched() {
            $($name::NEXT.find();)*
        }

        $(mod $name {
            use super::*;

            // SAFETY: its page has these arguments, and an int as its answer.
            pub(super) static NEXT: Next<extern "C" fn($($argument: $type),*) -> c_int> = unsafe { Next::new($text) };

            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> c_int {
                $note;
                let Some(real) = NEXT.get() else { return absent() };
                real($($argument),*)
            }
        })*
    };
}

watches! {
    siginterrupt, c"siginterrupt", (signal: c_int, yes: c_int) => SIGINTERRUPT.store(true, Relaxed);
    pthread_cancel, c"pthread_cancel", (thread: usize) => note_cancel();
    unshare, c"unshare", (flags: c_int) => note_namespaces();
    setns, c"setns", (namespace: c_int, kind: c_int) => note_namespaces();
    /// Of whatever process.
    process_madvise, c"process_madvise", (process: c_int, ranges: usize, count: usize, advice: c_int, flags: u32) =>
        advice::about_to_be_given_somewhere(advice as u32);
    /// Variadic; six registers carry all it can take.
    prctl, c"prctl", (option: c_int, a: usize, b: usize, c: usize, d: usize) => note_prctl(option as u32);
}

/// The instructions that go on to `$next`, once huge pages have been moved to by way of `$before`.
macro_rules! once_moved {
    ($before:ident, $next:ident) => {
        core::arch::naked_asm!(
            "cmp byte ptr [rip + {moved}], 0",
            "jne 2f",
            "jmp [rip + {next}]",
            "2:",
            crate::next::keep_arguments!(),
            "call {before}",
            crate::next::arguments_back!(),
            "jmp [rip + {next}]",
            moved = sym crate::huge::pool::MOVED,
            next = sym $next,
            before = sym $before,
        )
    };
}
pub(super) use once_moved;

/// Finds the functions that children call between fork and exec.
pub(super) fn find_for_children() {
    find_replaced();
    closes::find();
    find_watched();
    next::settle(&ioctl::NEXT, c"ioctl", absent as *const ());
    next::settle(&fanotify_init::NEXT, c"fanotify_init", absent as *const ());
    next::settle(&syscall_function::NEXT, c"syscall", absent as *const ());
}

/// Whether speculative children with [`Interception::Direct`] would pass over another library's
/// functions.
pub(super) fn passes_others_over() -> bool {
    crate::objects::others_define(REPLACED) || closes::others_define()
}

/// Defines a libc function that is watched, whose arguments or answer are not ints. `$note` gets
/// the arguments, and the next definition gets all of them as they came.
macro_rules! watches_from_outside {
    ($($(#[$meta:meta])* $name:ident, $text:literal => $note:path;)*) => {
        $(mod $name {
            use super::*;

            jump_slot!(pub(super) NEXT = $text, else absent);

            $(#[$meta])*
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!(
                    keep_arguments!(),
                    "call {note}",
                    arguments_back!(),
                    "jmp [rip + {next}]",
                    note = sym $note,
                    next = sym NEXT,
                )
            }
        })*
    };
}

watches_from_outside! {
    /// `ptrace(2)`. It is variadic.
    ptrace, c"ptrace" => note_ptrace;
    vmsplice, c"vmsplice" => note_vmsplice;
    mq_notify, c"mq_notify" => note_mq_notify;
    /// glibc's. Its caller's address counts.
    dlmopen, c"dlmopen" => note_dlmopen;
}

/// `USERFAULTFD_IOC_NEW` (linux/userfaultfd.h): makes a descriptor of `userfaultfd` from one of
/// `/dev/userfaultfd`.
const USERFAULTFD_IOC_NEW: u32 = 0xaa00;

mod ioctl {
    use super::*;

    jump_slot!(pub(super) NEXT = c"ioctl", else absent);

    /// `ioctl(2)`. It is variadic.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn ioctl() {
        naked_asm!(
            "cmp esi, {new}",
            "je {serves}",
            "jmp [rip + {next}]",
            new = const USERFAULTFD_IOC_NEW,
            serves = sym serves,
            next = sym NEXT,
        )
    }

    extern "C" fn serves(device: c_int, request: usize, flags: usize) -> c_int {
        // SAFETY: its page has these arguments.
        let real = unsafe {
            core::mem::transmute::<*mut c_void, extern "C" fn(c_int, usize, usize) -> c_int>(
                NEXT.load(Relaxed),
            )
        };
        let made = real(device, request, flags);
        if made >= 0 {
            fork::note_userfaultfd();
        }
        made
    }
}

mod fanotify_init {
    use super::*;

    jump_slot!(pub(super) NEXT = c"fanotify_init", else absent);

    #[unsafe(no_mangle)]
    extern "C" fn fanotify_init(flags: c_uint, of_events: c_uint) -> c_int {
        // SAFETY: its page has these arguments.
        let real = unsafe {
            core::mem::transmute::<*mut c_void, extern "C" fn(c_uint, c_uint) -> c_int>(NEXT.load(Relaxed))
        };
        let made = real(flags, of_events);
        if made >= 0 {
            fork::note_fanotify(flags);
        }
        made
    }
}

extern "C" fn note_ptrace(request: u32) {
    const PTRACE_TRACEME: u32 = 0;
    if request == PTRACE_TRACEME {
        fork::note_tracer();
    }
}

extern "C" fn note_vmsplice() {
    fork::note_vmsplice();
}

extern "C" fn note_mq_notify() {
    fork::note_mq_notify();
}

extern "C" fn note_dlmopen(namespace: usize) {
    const LM_ID_BASE: usize = 0;
    if namespace != LM_ID_BASE {
        fork::note_second_libc();
    }
}

/// Defines `realloc(3)` under a name of libc's. It moves a block that is a mapping by itself.
/// Another thread's fork may have marked it at the moment.
///
/// The frame has a frame pointer: by those the sanitizers find who has called `realloc`.
macro_rules! reallocates {
    ($($name:ident, $text:literal;)*) => {
        $(mod $name {
            use super::*;

            jump_slot!(NEXT = $text, else absent);

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    "cmp rsi, {smallest}",
                    "jae 2f",
                    "jmp [rip + {next}]",
                    "2: push rbp",
                    ".cfi_adjust_cfa_offset 8",
                    ".cfi_rel_offset rbp, 0",
                    "mov rbp, rsp",
                    "push rdi",
                    ".cfi_adjust_cfa_offset 8",
                    "push rsi",
                    ".cfi_adjust_cfa_offset 8",
                    "call {begin}",
                    "pop rsi",
                    ".cfi_adjust_cfa_offset -8",
                    "pop rdi",
                    ".cfi_adjust_cfa_offset -8",
                    "test al, al",
                    "jz 3f",
                    "call [rip + {next}]",
                    "push rax",
                    ".cfi_adjust_cfa_offset 8",
                    "push rax",
                    ".cfi_adjust_cfa_offset 8",
                    "call {end}",
                    "pop rax",
                    ".cfi_adjust_cfa_offset -8",
                    "pop rax",
                    ".cfi_adjust_cfa_offset -8",
                    "pop rbp",
                    ".cfi_adjust_cfa_offset -8",
                    ".cfi_restore rbp",
                    "ret",
                    "3: .cfi_adjust_cfa_offset 8",
                    ".cfi_rel_offset rbp, 0",
                    "pop rbp",
                    ".cfi_adjust_cfa_offset -8",
                    ".cfi_restore rbp",
                    "jmp [rip + {next}]",
                    ".cfi_endproc",
                    smallest = const SMALLEST_MOVE,
                    begin = sym begin_realloc,
                    end = sym end_realloc,
                    next = sym NEXT,
                )
            }
        })*
    };
}

reallocates! {
    realloc, c"realloc";
    __libc_realloc, c"__libc_realloc";
}

/// No block that is a mapping by itself grows to less: a page without the two words in front.
const SMALLEST_MOVE: usize = 4000;

/// Whether a block may move, so that [`end_realloc`] must follow. Waits in that case.
///
/// A block of an arena does not wait. Its call takes the arena's lock, which the thread that
/// speculates holds, and that thread would wait for this one.
extern "C" fn begin_realloc(block: usize, size: usize) -> bool {
    let may_be_a_mapping = if next::is_glibc() {
        marks::may_be_a_mapping(block)
    } else {
        size >= marks::SMALLEST_MAPPING_OF_MUSL
    };
    // No look for filters, which takes system calls. A process whose fork has not looked for them
    // does not speculate.
    let waits =
        may_be_a_mapping && !speculation::speculating() && !fork::sandboxed() && window::meets_threads();
    if waits {
        window::begin_move();
    }
    waits
}

extern "C" fn end_realloc() {
    window::end_move();
}

/// Makes a fork of libc's own, once no memory is marked.
fn past_fork<F: Copy>(next: &'static Next<F>, call: impl FnOnce(F) -> c_int) -> c_int {
    let Some(real) = next.get() else { return absent() };
    window::past_fork(|| call(real))
}

of_libc! {
    static DAEMON: extern "C" fn(c_int, c_int) -> c_int = c"daemon", "daemon(3)";
}

/// `daemon(3)`, which forks without a call that could be seen.
#[unsafe(no_mangle)]
extern "C" fn daemon(keep_directory: c_int, keep_streams: c_int) -> c_int {
    past_fork(&DAEMON, |real| real(keep_directory, keep_streams))
}

type ForkPty = extern "C" fn(usize, usize, usize, usize) -> c_int;
// SAFETY: its type; all arguments are addresses.
static FORKPTY: Next<ForkPty> = unsafe { Next::new(c"forkpty") };

/// `forkpty(3)`. As `daemon`.
#[unsafe(no_mangle)]
extern "C" fn forkpty(terminal: usize, name: usize, settings: usize, size: usize) -> c_int {
    past_fork(&FORKPTY, |real| real(terminal, name, settings, size))
}

fn note_clone(flags: u32) {
    fork::note_clone(flags);
    close_loop::note_clone(flags);
}

type Clone = extern "C" fn(usize, usize, c_int, usize, usize, usize, usize) -> c_int;

/// Defines `clone(2)` under a name of libc's.
macro_rules! clones {
    ($($name:ident, $text:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name(
                entry: usize,
                stack: usize,
                flags: c_int,
                argument: usize,
                parent_tid: usize,
                tls: usize,
                child_tid: usize,
            ) -> c_int {
                // SAFETY: `clone` is variadic; its last three arguments are there or they are not,
                // and libc looks at them only where they mean something.
                static NEXT: Next<Clone> = unsafe { Next::new($text) };
                note_clone(flags as u32);
                let make = |real: Clone| real(entry, stack, flags, argument, parent_tid, tls, child_tid);
                if flags as u32 & k::CLONE_VM == 0 {
                    past_fork(&NEXT, make)
                } else {
                    NEXT.get().map_or_else(|| absent(), make)
                }
            }
        )*
    };
}

clones! {
    clone, c"clone";
    __clone, c"__clone";
}

mod syscall_function {
    use super::*;

    jump_slot!(pub(super) NEXT = c"syscall", else absent);

    /// `syscall(2)`: libseccomp and allocators make the watched calls through it. The calls listed
    /// are noted, and made as they are. One list gives the comparisons and the notes.
    macro_rules! syscall {
        (($a:ident, $b:ident, $c:ident, $d:ident) $($name:ident = $nr:path => $note:expr;)*) => {
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn syscall() {
                naked_asm!(
                    forget_closes!(),
                    $(
                        concat!("cmp edi, {", stringify!($name), "}"),
                        "je 2f",
                    )*
                    "cmp edi, {mremap}",
                    "je {moves}",
                    "cmp edi, {mprotect}",
                    "je {changes}",
                    "cmp edi, {userfaultfd}",
                    "je {serves}",
                    "cmp edi, {fanotify_init}",
                    "je {serves}",
                    "cmp edi, {ioctl}",
                    "je 6f",
                    "cmp edi, {clone}",
                    "je 5f",
                    "cmp edi, {clone3}",
                    "je 5f",
                    "cmp edi, {fork}",
                    "je 5f",
                    "cmp edi, {rt_sigaction}",
                    "je 3f",
                    "4: jmp [rip + {next}]",
                    "6: cmp edx, {new}",
                    "je {serves}",
                    "jmp 4b",
                    "3: cmp esi, {sigsys}",
                    "jne 4b",
                    "jmp {of_sigsys}",
                    "5:",
                    keep_arguments!(),
                    "call {noted_fork}",
                    "test al, al",
                    arguments_back!(),
                    "jz 4b",
                    "jmp {forks}",
                    "2:",
                    keep_arguments!(),
                    "call {note}",
                    arguments_back!(),
                    "jmp [rip + {next}]",
                    $($name = const $nr,)*
                    rt_sigaction = const k::__NR_rt_sigaction,
                    sigsys = const SIGSYS,
                    of_sigsys = sym of_sigsys,
                    mremap = const k::__NR_mremap,
                    moves = sym moves,
                    mprotect = const k::__NR_mprotect,
                    changes = sym changes,
                    userfaultfd = const k::__NR_userfaultfd,
                    fanotify_init = const k::__NR_fanotify_init,
                    ioctl = const k::__NR_ioctl,
                    new = const USERFAULTFD_IOC_NEW,
                    serves = sym serves,
                    clone = const k::__NR_clone,
                    clone3 = const k::__NR_clone3,
                    known = sym LOOP,
                    fork = const k::__NR_fork,
                    noted_fork = sym noted_fork,
                    forks = sym forks,
                    next = sym NEXT,
                    note = sym note,
                )
            }

            extern "C" fn note(nr: usize, $a: usize, $b: usize, $c: usize, $d: usize) {
                match nr as u32 {
                    $($nr => $note,)*
                    _ => {}
                }
            }
        };
    }

    syscall! { (a, b, c, d)
        madvise = k::__NR_madvise => advice::about_to_be_given(a, b, c as u32);
        process_madvise = k::__NR_process_madvise => advice::about_to_be_given_somewhere(d as u32);
        prctl = k::__NR_prctl => note_prctl(a as u32);
        seccomp = k::__NR_seccomp => fork::note_seccomp();
        unshare = k::__NR_unshare => note_namespaces();
        setns = k::__NR_setns => note_namespaces();
        vmsplice = k::__NR_vmsplice => fork::note_vmsplice();
        mq_notify = k::__NR_mq_notify => fork::note_mq_notify();
        ptrace = k::__NR_ptrace => note_ptrace(a as u32);
    }

    /// `rt_sigaction` of SIGSYS.
    extern "C" fn of_sigsys(nr: usize, signal: usize, new: usize, old: usize, size: usize) -> usize {
        // SAFETY: as in the other `of_sigsys`, and it is variadic.
        let real = unsafe {
            core::mem::transmute::<*mut c_void, extern "C" fn(usize, usize, usize, usize, usize) -> usize>(
                NEXT.load(Relaxed),
            )
        };
        fork::with_own_sigsys(|| real(nr, signal, new, old, size))
    }

    /// Notes a call that makes a process or thread. Returns whether [`forks`] is to make it: a
    /// child with a stack of its own could not return from there.
    extern "C" fn noted_fork(nr: usize, a: usize, b: usize) -> bool {
        match nr as u32 {
            k::__NR_clone => {
                note_clone(a as u32);
                a as u32 & k::CLONE_VM == 0 && b == 0
            }
            k::__NR_clone3 => {
                close_loop::note_clone(k::CLONE_FILES);
                fork::note_clone3(a)
            }
            _ => true,
        }
    }

    fn real() -> extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize {
        // SAFETY: as in `of_sigsys`.
        unsafe {
            core::mem::transmute::<
                *mut c_void,
                extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize,
            >(NEXT.load(Relaxed))
        }
    }

    extern "C" fn forks(nr: usize, a: usize, b: usize, c: usize, d: usize, e: usize) -> usize {
        window::past_fork(|| real()(nr, a, b, c, d, e))
    }

    /// `mremap`, as libc's.
    extern "C" fn moves(nr: usize, a: usize, b: usize, c: usize, d: usize, e: usize) -> usize {
        advice::moved(a, b, c, || real()(nr, a, b, c, d, e))
    }

    /// `mprotect`, as libc's.
    extern "C" fn changes(nr: usize, a: usize, b: usize, c: usize) -> usize {
        window::unmarked(|| real()(nr, a, b, c, 0, 0))
    }

    /// `fanotify_init`; `userfaultfd`, and the command of `ioctl` that does the same.
    extern "C" fn serves(nr: usize, a: usize, b: usize, c: usize) -> usize {
        let made = real()(nr, a, b, c, 0, 0);
        if (made as isize) < 0 {
            return made;
        }
        match nr as u32 {
            k::__NR_fanotify_init => fork::note_fanotify(a as u32),
            _ => fork::note_userfaultfd(),
        }
        made
    }
}
