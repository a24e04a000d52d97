//! x86-64: number in rax, arguments in rdi, rsi, rdx, r10, r8, r9; rcx and r11 are lost
//! (`syscall(2)`).
#![expect(unsafe_code, reason = "entering the kernel is the purpose of this file")]

use crate::Reg;
use core::arch::asm;
use core::ffi::c_void;

/// Makes a system call with up to six arguments. Returns the kernel's answer unchanged:
/// `-4095..=-1` is an errno.
///
/// # Safety
/// The kernel may write only to memory that the caller owns, in the call `nr` with these arguments.
#[inline(always)]
pub unsafe fn syscall(nr: u32, args: [Reg; 6]) -> isize {
    let ret: isize;
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller's contract; the clobbers are those of the syscall instruction.
    unsafe {
        asm!("syscall", inlateout("rax") nr as isize => ret,
            in("rdi") a.0, in("rsi") b.0, in("rdx") c.0, in("r10") d.0, in("r8") e.0, in("r9") f.0,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// `clone3(2)` whose child calls `entry(data)` on the stack of `args`. Returns in the parent only.
///
/// # Safety
/// `args` points to `size` bytes of a valid `clone_args` whose stack is writable, unused, 16-byte
/// aligned and outlives the child; with `CLONE_VM`, `entry` must not return, unwind, or disturb
/// memory the parent uses.
#[inline(always)]
pub(crate) unsafe fn clone3(
    args: *const c_void,
    size: usize,
    entry: unsafe extern "C" fn(*mut c_void) -> !,
    data: *mut c_void,
) -> isize {
    let ret: isize;
    // The child begins at the instruction after `syscall` with all registers unchanged but rax,
    // rcx, r11 and rsp: entry and data are in r8 and r9. Zeros in rbp and as return address end the
    // walks of unwinders. Otherwise an unwinder takes the child for a frame of the parent, and
    // reads above the child's stack.
    // SAFETY: the caller's contract for the arguments; the child never leaves the asm block.
    unsafe {
        asm!("syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r9",
            "push 0",
            "jmp r8",
            "2:",
            inlateout("rax") linux_raw_sys::general::__NR_clone3 as isize => ret,
            in("rdi") args, in("rsi") size, in("r8") entry, in("r9") data,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// `clone(2)`, for kernels or filters that refuse `clone3`. The child calls `entry(data)` on the
/// stack that ends at `stack_top`.
///
/// # Safety
/// As for [`clone3`]; `parent_tid` and `child_tid` must be null or writable for as long as `flags`
/// lets the kernel write them.
#[inline(always)]
pub(crate) unsafe fn clone(
    flags: usize,
    stack_top: *mut c_void,
    parent_tid: *mut i32,
    child_tid: *mut i32,
    entry: unsafe extern "C" fn(*mut c_void) -> !,
    data: *mut c_void,
) -> isize {
    let ret: isize;
    // SAFETY: as in `clone3`; r9 and r12 survive the call in both processes.
    unsafe {
        asm!("syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "push 0",
            "jmp r9",
            "2:",
            inlateout("rax") linux_raw_sys::general::__NR_clone as isize => ret,
            in("rdi") flags, in("rsi") stack_top, in("rdx") parent_tid, in("r10") child_tid, in("r8") 0usize,
            in("r9") entry, in("r12") data,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}
