//! The waits of the program: functions of libc's in which a server waits for others. Where memory
//! is merged in the background, a slice of that is done after each. Else each is one compare and
//! one jump.
//!
//! They do not lie beside the other interposers, which every program runs through.
#![expect(unsafe_code, reason = "functions under libc's names, with libc's contracts")]

use core::ffi::c_int;

use crate::errno::absent;
use crate::fork;
use crate::huge::background;
use crate::next::{self, jump_slot};

/// The instructions that go on to `$next`, and where memory is merged in the background, come back
/// from it and call `$after` with its answer.
#[cfg(target_arch = "x86_64")]
macro_rules! then {
    ($after:ident, $next:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "cmp byte ptr [rip + {watched}], 0",
            "jne 2f",
            "jmp [rip + {next}]",
            "2: sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call [rip + {next}]",
            "mov [rsp], rax",
            "mov edi, eax",
            "call {after}",
            "mov rax, [rsp]",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
            watched = sym crate::huge::background::WATCHED,
            next = sym $next,
            after = sym $after,
        )
    };
}

/// The instructions that go on to `$next`, and where memory is merged in the background, come back
/// from it and call `$after` with its answer.
#[cfg(target_arch = "aarch64")]
macro_rules! then {
    ($after:ident, $next:ident) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34",
            "adrp x16, {watched}",
            "ldrb w16, [x16, :lo12:{watched}]",
            "cbnz w16, 2f",
            "adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            "2: stp x29, x30, [sp, #-32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset 29, -32",
            ".cfi_offset 30, -24",
            "mov x29, sp",
            "adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "blr x16",
            "str x0, [sp, #16]",
            "bl {after}",
            "ldr x0, [sp, #16]",
            "ldp x29, x30, [sp], #32",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore 29",
            ".cfi_restore 30",
            "ret",
            ".cfi_endproc",
            watched = sym crate::huge::background::WATCHED,
            next = sym $next,
            after = sym $after,
        )
    };
}

/// Defines a function that waits. Where memory is merged in the background, that is done after the
/// wait. Else it is one compare and one jump.
///
/// While the wait lasts, the function is on the stack, and a cancelled thread is unwound through
/// it: it says where its caller is (`.cfi`).
macro_rules! waits {
    ($($name:ident, $text:literal;)*) => {
        #[inline(never)]
        pub(crate) fn find() {
            $(next::settle(&$name::NEXT, $text, absent as *const ());)*
        }

        $(mod $name {
            use super::*;

            jump_slot!(pub(super) NEXT = $text, else absent);

            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".text.waits")]
            #[unsafe(naked)]
            extern "C" fn $name() {
                then!(after_wait, NEXT)
            }
        })*
    };
}

waits! {
    epoll_wait, c"epoll_wait";
    epoll_pwait, c"epoll_pwait";
    poll, c"poll";
    ppoll, c"ppoll";
    select, c"select";
    accept4, c"accept4";
}

/// `answer`: what the wait has returned, 0 if it ran out of time.
extern "C" fn after_wait(answer: c_int) {
    if !background::is_pending() {
        return;
    }
    let counted = fork::begin_work();
    crate::filters::learn();
    // Before anything else: under a filter of the program's even the clock may be forbidden.
    if !fork::sandboxed() && background::is_due() {
        background::work(answer == 0);
    }
    fork::end_work(counted);
}
