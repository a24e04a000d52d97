//! `close` and `fcntl`. A child that closes every number there is gets most answers from here
//! ([`close_loop`]).

// The parent module's expectation of unsafe code covers this file.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use forkless_speculate::close_loop::FIRST;
use forkless_sys::Errno;
use linux_raw_sys::general as k;

use crate::close_loop::{self, ERRNO_AT, LOOP, THREAD, TOKEN};
use crate::errno::libc_answer;
use crate::fork::child;
use crate::next::{self, jump_slot};
use crate::objects;
use crate::speculation::{self, Interception, SPECULATING};

use super::{FORKS, absent};

/// Instructions after which nothing is known of a close loop. Any process may run them; only in one
/// with a close loop they write.
macro_rules! forget_closes {
    () => {
        "cmp dword ptr [rip + {known} + 4], 0
        je 9f
        mov qword ptr [rip + {known}], 0
        9:"
    };
}
pub(super) use forget_closes;

/// Defines a libc function whose calls may be a close loop. `$if_of_loop` goes to label 3 with a
/// call that may be of one. In a speculative child with [`Interception::Direct`] the function is
/// `$slow`. Elsewhere it is the next definition.
///
/// The frame of label 5 is told to unwinders: a thread may be cancelled in `close`.
macro_rules! may_loop {
    ($($name:ident, $text:literal => $slow:path, $if_of_loop:expr;)*) => {
        /// The names of these functions.
        const LOOPING: &str = concat!($(stringify!($name), "\0"),*);

        /// Finds the functions, before a child does.
        pub(super) fn find() {
            $(next::settle(&$name::NEXT, $text, absent as *const ());)*
        }

        $(mod $name {
            use super::*;

            jump_slot!(pub(super) NEXT = $text, else absent);

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(in super::super) extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    $if_of_loop,
                    "4: cmp byte ptr [rip + {speculating}], {direct}",
                    "je 2f",
                    "jmp [rip + {next}]",
                    "2: jmp {slow}",
                    "3: cmp byte ptr [rip + {forks}], 0",
                    "je 4b",
                    "cmp r11, [rip + {token}]",
                    "jne 5f",
                    "cmp edi, dword ptr [rip + {known}]",
                    "jb 5f",
                    "cmp edi, dword ptr [rip + {known} + 4]",
                    "jae 5f",
                    "mov rax, fs:[0]",
                    "cmp rax, [rip + {thread}]",
                    "jne 5f",
                    "mov rax, [rip + {errno}]",
                    "mov dword ptr [rax], {ebadf}",
                    "mov eax, -1",
                    "ret",
                    "5: sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "xor ecx, ecx",
                    "cmp r11, [rip + {token}]",
                    "sete cl",
                    "call {call}",
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "mov r11, [rip + {token}]",
                    "ret",
                    ".cfi_endproc",
                    first = const FIRST,
                    speculating = sym SPECULATING,
                    direct = const Interception::Direct as u8,
                    next = sym NEXT,
                    slow = sym $slow,
                    forks = sym FORKS,
                    token = sym TOKEN,
                    known = sym LOOP,
                    thread = sym THREAD,
                    errno = sym ERRNO_AT,
                    ebadf = const Errno::EBADF.raw(),
                    call = sym call,
                )
            }

            extern "C" fn call(fd: c_int, command: c_int, argument: usize, is_unbroken: bool) -> c_int {
                let make = if speculation::is_direct() { $slow } else { next_of(&NEXT) };
                close_loop::call(fd, command, argument, is_unbroken, make)
            }
        })*
    };
}

/// `F_GETFD` and `F_SETFD` of high numbers. Other commands may open one.
macro_rules! of_flags {
    () => {
        concat!(
            "lea r10d, [rsi - 1]
            cmp r10d, 1
            ja 8f
            cmp edi, {first}
            jae 3f
            8:",
            forget_closes!()
        )
    };
}

may_loop! {
    close, c"close" => slow_close, "cmp edi, {first}; jae 3f";
    fcntl, c"fcntl" => slow_fcntl, of_flags!();
    __fcntl, c"__fcntl" => slow_fcntl, of_flags!();
    fcntl64, c"fcntl64" => slow_fcntl, of_flags!();
}

/// Whether another library has functions of its own under these names.
pub(super) fn others_define() -> bool {
    objects::others_define(LOOPING)
}

fn next_of(slot: &AtomicPtr<c_void>) -> close_loop::Make {
    // SAFETY: `close` or `fcntl`, or what finds it and keeps the arguments. A function takes no
    // notice of the arguments beyond its own.
    unsafe { core::mem::transmute::<*mut c_void, close_loop::Make>(slot.load(Relaxed)) }
}

extern "C" fn slow_close(fd: c_int, _: c_int, _: usize) -> c_int {
    libc_answer(child::direct(k::__NR_close, &[fd as usize, 0, 0, 0, 0, 0]))
}

/// The third argument may be absent. The kernel looks at it only where it means something.
extern "C" fn slow_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    libc_answer(child::direct(k::__NR_fcntl, &[fd as usize, command as usize, argument, 0, 0, 0]))
}
