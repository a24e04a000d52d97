//! The interposers of arm64: what forks are counted by, and what huge pages need to know of. Every entry is a landing pad (`hint #34`, BTI c).

// The parent module's expectation of unsafe code covers this file.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int};

use linux_raw_sys::general as k;

use crate::huge::pool;
use crate::mappings::advice;
use crate::next::{arguments_back, jump_slot, keep_arguments};

use super::{absent, fork_entry, fork_signal_safe_entry};

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

/// Defines a function that huge pages make fail: they are taken out of the way first. Before there are any, and that is mostly always,
/// one compare and one jump.
macro_rules! clears_the_way {
    ($($name:ident, $text:literal => $before:path;)*) => { $(
        mod $name {
            use super::*;

            jump_slot!(pub(super) NEXT = match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            }, else absent);

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!(
                    "hint #34",
                    "adrp x16, {moved}",
                    "ldrb w16, [x16, :lo12:{moved}]",
                    "cbz w16, 2f",
                    keep_arguments!(),
                    "bl {before}",
                    arguments_back!(),
                    "2: adrp x16, {next}",
                    "ldr x16, [x16, :lo12:{next}]",
                    "br x16",
                    moved = sym pool::MOVED,
                    next = sym NEXT,
                    before = sym before,
                )
            }

            extern "C" fn before(addr: usize, len: usize) {
                $before(addr, len);
            }
        }
    )* };
}

clears_the_way! {
    munmap, "munmap" => pool::before_unmap;
    mprotect, "mprotect" => pool::before_use;
    pthread_create, "pthread_create" => before_thread;
}

fn before_thread(_: usize, _: usize) {
    pool::before_thread();
}

mod syscall_function {
    use super::*;

    jump_slot!(pub(super) NEXT = c"syscall", else absent);

    /// `syscall(2)`: allocators make the watched call through it.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    extern "C" fn syscall() {
        naked_asm!(
            "hint #34",
            "cmp w0, #{madvise}",
            "b.ne 2f",
            keep_arguments!(),
            "bl {note}",
            arguments_back!(),
            "2: adrp x16, {next}",
            "ldr x16, [x16, :lo12:{next}]",
            "br x16",
            madvise = const k::__NR_madvise,
            next = sym NEXT,
            note = sym note,
        )
    }

    extern "C" fn note(_: usize, addr: usize, len: usize, advice: usize) {
        advice::note(addr, len, advice as u32);
    }
}
