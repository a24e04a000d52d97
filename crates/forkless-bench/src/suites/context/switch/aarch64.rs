//! The instructions of arm64.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

/// Sets and jumps `count` times, all within this one frame, which therefore is valid at every
/// return.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn jump_loop(
    count: u64,
    buffer: *mut c_void,
    save_mask: c_int,
    set: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    jump: unsafe extern "C" fn(*mut c_void, c_int) -> !,
) {
    naked_asm!(
        "stp x29, x30, [sp, #-64]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "str x23, [sp, #48]",
        "mov x29, sp",
        "mov x19, x0",
        "mov x20, x1",
        "mov w21, w2",
        "mov x22, x3",
        "mov x23, x4",
        "2:",
        "mov x0, x20",
        "mov w1, w21",
        "blr x22",
        "cbnz w0, 3f",
        "mov x0, x20",
        "mov w1, #1",
        "blr x23",
        "3:", // arrives here by the jump, with the registers of the call above
        "subs x19, x19, #1",
        "b.ne 2b",
        "ldr x23, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #64",
        "ret",
    )
}

/// Lays out a stack that ends at `top`: the first switch to it calls `enter(pair)`. It holds
/// the registers that [`switch`] loads: twelve general ones (x19 with the argument, x20 with the
/// function, x30 with the return address) and eight of floating point. Returns the stack pointer to
/// switch to.
///
/// # Safety
/// The 192 bytes below `top` are writable, and nothing runs on that stack.
pub(super) unsafe fn lay_out(top: *mut u8, enter: usize, pair: usize) -> *mut c_void {
    let top = top.wrapping_sub(top as usize % 16 + 160).cast::<usize>();
    let mut words = [0; 20];
    words[0] = pair;
    words[1] = enter;
    words[11] = trampoline as *const () as usize;
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: twenty words at the end of the stack, below its top.
        unsafe { top.wrapping_add(index).write(word) };
    }
    top.cast()
}

/// The first return of a laid-out stack: x20 holds the function, x19 its argument.
#[unsafe(naked)]
extern "C" fn trampoline() {
    naked_asm!("mov x0, x19", "blr x20", "brk #1")
}

/// Saves the callee-saved registers on this stack and continues on another. No system call: the
/// signal mask is left alone.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn switch(save: *mut *mut c_void, to: *mut c_void) {
    naked_asm!(
        "stp x19, x20, [sp, #-160]!",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x29, x30, [sp, #80]",
        "ldp x27, x28, [sp, #64]",
        "ldp x25, x26, [sp, #48]",
        "ldp x23, x24, [sp, #32]",
        "ldp x21, x22, [sp, #16]",
        "ldp x19, x20, [sp], #160",
        "ret",
    )
}
