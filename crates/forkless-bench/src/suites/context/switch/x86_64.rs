//! The instructions of x86-64.

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
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15", // five pushes and the return address: aligned to 16
        "mov rbx, rdi",
        "mov r12, rsi",
        "mov r13d, edx",
        "mov r14, rcx",
        "mov r15, r8",
        "2:",
        "mov rdi, r12",
        "mov esi, r13d",
        "call r14",
        "test eax, eax",
        "jnz 3f",
        "mov rdi, r12",
        "mov esi, 1",
        "call r15",
        "3:", // arrives here by the jump, with the registers of the call above
        "dec rbx",
        "jnz 2b",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "ret",
    )
}

/// Lays out a stack that ends at `top`: the first switch to it calls `enter(pair)`. It holds
/// the six callee-saved registers that [`switch`] pops (r12 with the function, rbx with the
/// argument), then the return address. The stack is left as a call would leave it. Returns
/// the stack pointer to switch to.
///
/// # Safety
/// The 128 bytes below `top` are writable, and nothing runs on that stack.
pub(super) unsafe fn lay_out(top: *mut u8, enter: usize, pair: usize) -> *mut c_void {
    // The trampoline calls, so it must find the stack aligned to 16.
    let top = top.wrapping_sub(top as usize % 16 + 72).cast::<usize>();
    let words = [0, 0, 0, enter, 0, pair, trampoline as *const () as usize, 0];
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: eight words at the end of the stack, below its top.
        unsafe { top.wrapping_add(index).write(word) };
    }
    top.cast()
}

/// The first return of a laid-out stack: r12 holds the function, rbx its argument.
#[unsafe(naked)]
extern "C" fn trampoline() {
    naked_asm!("mov rdi, rbx", "call r12", "ud2")
}

/// Saves the callee-saved registers on this stack and continues on another. No system call: the
/// signal mask is left alone.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn switch(save: *mut *mut c_void, to: *mut c_void) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}
