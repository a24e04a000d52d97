//! `dlsym`. A program that asks a handle of libc's for a function gets libc's own, past the
//! functions of this library: Python's ctypes, JNA and Ruby's Fiddle do so. Beside a speculation
//! libc's `fork` would make a child that lacks memory, and its `madvise` a mark that nobody knows.
//! So such a program gets ours, as it would by `RTLD_DEFAULT`.
//!
//! `RTLD_NEXT` and `RTLD_DEFAULT` depend on the caller, so those calls are passed on by a jump.

// The parent module's expectation of unsafe code covers this file.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};

use crate::next::{self, DLSYM};
use crate::{objects, speculation};

/// `dlsym(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn dlsym() {
    naked_asm!(
        // `RTLD_NEXT` is -1, `RTLD_DEFAULT` is 0.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "jbe 2f",
        "jmp {by_handle}",
        "2: jmp [rip + {next}]",
        by_handle = sym by_handle,
        next = sym DLSYM,
    )
}

#[cold]
extern "C" fn by_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    ours_for(next::dlsym()(handle, name), name)
}

/// This library's function where the program has found the one that ours goes on to. Any other
/// library's own stays.
fn ours_for(found: *mut c_void, name: *const c_char) -> *mut c_void {
    // A child would read memory for it that it lacks.
    if found.is_null() || speculation::speculating() {
        return found;
    }
    // SAFETY: libc has found a symbol of this name.
    let name = unsafe { CStr::from_ptr(name) };
    match objects::own(name) {
        Some(own) if objects::find(name) == Some(found) => own,
        _ => found,
    }
}
