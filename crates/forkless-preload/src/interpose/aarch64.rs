//! The interposers of arm64: forks are counted, and huge pages taken out of the way. Every entry is
//! a landing pad (`hint #34`, BTI c).

// The parent module's expectation of unsafe code covers this file.

use core::arch::naked_asm;
use core::ffi::c_int;

use linux_raw_sys::general as k;

use crate::fork;
use crate::mappings::advice;
use crate::next::{self, arguments_back, jump_slot, keep_arguments};

use super::{absent, fork_entry, fork_signal_safe_entry, note_prctl};

/// `fork(2)`. The call's return address is the call site.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn fork() -> c_int {
    naked_asm!("hint #34", "mov x0, x30", "b {entry}", entry = sym fork_entry)
}

/// `_Fork(3)`, fork without the fork handlers.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _Fork() -> c_int {
    naked_asm!("hint #34", "mov x0, x30", "b {entry}", entry = sym fork_signal_safe_entry)
}

/// The instructions that go on to `$next`, once huge pages have been moved to by way of `$before`.
macro_rules! once_moved {
    ($before:ident, $next:ident) => {
        core::arch::naked_asm!(
            "hint #34",
            "adrp x16, {moved}",
            "ldrb w16, [x16, :lo12:{moved}]",
            "cbz w16, 2f",
            crate::next::keep_arguments!(),
            "bl {before}",
            crate::next::arguments_back!(),
            "2: adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            moved = sym crate::huge::pool::MOVED,
            next = sym $next,
            before = sym $before,
        )
    };
}
pub(super) use once_moved;

/// Finds the functions that children call between fork and exec.
pub(super) fn find_for_children() {
    next::settle(&prctl_function::NEXT, c"prctl", absent as *const ());
    next::settle(&syscall_function::NEXT, c"syscall", absent as *const ());
}

/// Fork handlers matter to speculation only.
pub(super) const fn has_ours() -> bool {
    false
}

/// Nothing speculates.
pub(super) const fn direct_execve() -> Option<*mut core::ffi::c_void> {
    None
}

/// Nothing to be left alone with.
pub(super) const fn alone() {}

mod prctl_function {
    use super::*;

    jump_slot!(pub(super) NEXT = c"prctl", else absent);

    /// `prctl(2)`, one of the ways to a seccomp filter.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn prctl() {
        naked_asm!(
            "hint #34",
            keep_arguments!(),
            "bl {note}",
            arguments_back!(),
            "adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            next = sym NEXT,
            note = sym note,
        )
    }

    extern "C" fn note(option: u32) {
        note_prctl(option);
    }
}

mod syscall_function {
    use super::*;

    jump_slot!(pub(super) NEXT = c"syscall", else absent);

    /// `syscall(2)`: libseccomp and allocators make the watched calls through it. The calls listed
    /// are noted, and made as they are. One list gives the comparisons and the notes.
    macro_rules! syscall {
        (($a:ident, $b:ident, $c:ident) $($name:ident = $nr:path => $note:expr;)*) => {
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn syscall() {
                naked_asm!(
                    "hint #34",
                    $(
                        concat!("cmp w0, #{", stringify!($name), "}"),
                        "b.eq 2f",
                    )*
                    "b 3f",
                    "2:",
                    keep_arguments!(),
                    "bl {note}",
                    arguments_back!(),
                    "3: adrp x16, {next}",
                    "ldr x16, [x16, :lo12:{next}]",
                    "br x16",
                    $($name = const $nr,)*
                    next = sym NEXT,
                    note = sym note,
                )
            }

            extern "C" fn note(nr: usize, $a: usize, $b: usize, $c: usize) {
                match nr as u32 {
                    $($nr => $note,)*
                    _ => {}
                }
            }
        };
    }

    syscall! { (a, b, c)
        madvise = k::__NR_madvise => advice::about_to_be_given(a, b, c as u32);
        prctl = k::__NR_prctl => note_prctl(a as u32);
        seccomp = k::__NR_seccomp => fork::note_seccomp();
    }
}
