//! Close loops of processes that have forked or were forked: the calls for numbers past the table
//! of descriptors are answered without the kernel (`forkless_speculate::close_loop`).
//!
//! An answer is right as long as the process has made no system call since the kernel told the
//! length of its table. The interposers see that by a register. The `syscall` instruction leaves
//! the flags in `r11`. The interposers of close loops return with [`TOKEN`] there, which no flags
//! equal. A loop that comes back with it has made no system call by that instruction. And it has
//! made no process or thread, which could open something.
//!
//! A signal handler is no exception that the register shows: the kernel gives it back. So libc's
//! functions that open a number of the program's choice forget what is known. Every other call
//! opens the lowest free number, and the numbers that the loop was just refused are free.
#![expect(unsafe_code, reason = "libc's errno, and the instruction that changes a register")]

use core::arch::asm;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use forkless_speculate::close_loop::{Call, CloseLoop};
use forkless_speculate::text::decimal;
use forkless_sys::Errno;
use linux_raw_sys::general as k;

use crate::uninterrupted::uninterrupted;
use crate::{config, errno, filters, fork, objects, proc, rt, small_file, speculation};

/// What is known. The interposers read its first eight bytes.
pub(crate) static LOOP: CloseLoop = CloseLoop::new();

/// The mark in `r11`. Only assembly reads it: the compiler could leave it in the register.
pub(crate) static TOKEN: u64 = 0x636c_6f73_655f_6c70;

/// The thread that has learnt what is known, and its errno. A filter may forbid the question
/// whether memory is shared. Then a child of `vfork` may have learnt it for itself, in memory of a
/// process whose other threads run: their thread pointers differ.
pub(crate) static THREAD: AtomicUsize = AtomicUsize::new(0);
pub(crate) static ERRNO_AT: AtomicPtr<c_int> = AtomicPtr::new(null_mut());

/// The thread pointer, which is at its own address (System V ABI, ELF handling for TLS).
fn thread() -> usize {
    let pointer: usize;
    // SAFETY: reads the first word of the thread's block.
    unsafe { asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// A function as the interposer knows it: of `close` or `fcntl`. `close` takes no notice of the
/// other arguments.
pub(crate) type Make = extern "C" fn(c_int, c_int, usize) -> c_int;

/// A call that the interposer has not answered. `is_unbroken`: the register holds the token.
#[inline(never)]
pub(crate) fn call(fd: c_int, command: c_int, argument: usize, is_unbroken: bool, make: Make) -> c_int {
    let number = fd as u32;
    let is_known_here = is_unbroken && THREAD.load(Relaxed) == thread();
    if let Call::Answer(more) = LOOP.call(number, is_known_here) {
        fork::count_closes(more.into());
        return errno::fail(Errno::EBADF);
    }
    let answer = make(fd, command, argument);
    if answer == -1 && errno::get() == Errno::EBADF.raw() && LOOP.refused(number, is_unbroken) {
        look(number);
    }
    answer
}

/// The program makes a process by `clone`. Where a filter forbids the question whether memory is
/// shared, nothing else tells of it.
pub(crate) fn note_clone(flags: u32) {
    let is_suspended = flags & k::CLONE_VFORK != 0;
    if flags & k::CLONE_FILES != 0 || flags & k::CLONE_VM != 0 && !is_suspended {
        LOOP.give_up();
    }
}

/// A signal handler that opened a descriptor meanwhile would not be noticed.
#[cold]
#[inline(never)]
fn look(number: u32) {
    let look_and_learn = || {
        // A child of vfork writes its parent's memory, whose other threads run.
        if fork::is_alone() == Some(false) {
            return;
        }
        let table = table();
        ERRNO_AT.store(errno::location(), Relaxed);
        THREAD.store(thread(), Relaxed);
        LOOP.looked(number, table);
    };
    if speculation::speculating() {
        // No handler runs there, and the signals of fetches must not be blocked.
        look_and_learn();
    } else {
        uninterrupted(look_and_learn);
    }
}

/// How many numbers the process's table of descriptors has. `None`: not told, or more than this
/// thread could use the table, or the calls are not the library's to spare.
fn table() -> Option<u32> {
    let is_off = config::fork() == config::Fork::Off || filters::sandboxed() || rt::is_translated();
    if is_off || speculation::passes_others_over(|| objects::others_define("close\0fcntl\0fcntl64\0")) {
        return None;
    }
    if !system_calls_show() {
        return None;
    }
    let file = proc::open(c"self/status").ok()?;
    let (mut size, mut threads, mut tracer, mut mode, mut count) = (None, None, None, None, None);
    small_file::lines_of(file, &mut |line| {
        let number = |name: &[u8]| line.strip_prefix(name).and_then(decimal);
        size = size.or_else(|| number(b"FDSize:\t"));
        threads = threads.or_else(|| number(b"Threads:\t"));
        tracer = tracer.or_else(|| number(b"TracerPid:\t"));
        mode = mode.or_else(|| number(b"Seccomp:\t"));
        count = number(b"Seccomp_filters:\t");
        count.is_none()
    });
    let in_force = count.or_else(|| mode.map(|mode| u64::from(mode != 0)))?;
    let is_known = (threads, tracer) == (Some(1), Some(0))
        && !u32::try_from(in_force).is_ok_and(filters::are_more_than_containers);
    size.filter(|_| is_known).and_then(|size| u32::try_from(size).ok())
}

/// Whether a system call changes `r11`. Where the processor delivers events by FRED, and in some
/// emulators, it does not.
fn system_calls_show() -> bool {
    let shows: u32;
    // SAFETY: asks for a process number, which has no effect.
    unsafe {
        asm!(
            "mov r11, [rip + {token}]",
            "syscall",
            "xor eax, eax",
            "cmp r11, [rip + {token}]",
            "setne al",
            token = sym TOKEN,
            inlateout("eax") k::__NR_getpid => shows,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    shows != 0
}
