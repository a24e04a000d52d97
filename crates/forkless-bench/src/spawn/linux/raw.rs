//! `vfork` and `execve` with nothing around them: the yardstick of the suite.
//!
//! A vfork child runs on its parent's stack. A return from the function that called vfork, or a
//! compiler's spill, would overwrite the stack that the parent finds when it resumes. Therefore one
//! assembly routine makes both system calls and touches no stack between them. The arguments stay
//! in registers, which every task has for itself.

#![expect(unsafe_code, reason = "vfork cannot be called safely from compiled code")]

use std::arch::naked_asm;

use libc::{c_char, c_int, c_long};

/// vfork; in the child, dup2 of `stdout` onto descriptor 1 unless it is negative, then execve.
/// Returns the child's pid or a negative error number of vfork. When execve fails the child writes
/// the error number to `failure` (the memory is the parent's) and exits with 127.
///
/// # Safety
/// `path` is a NUL-terminated string, `argv` and `envp` are NULL-terminated arrays of such, and
/// `failure` is writable; all stay so until the function returns. The child takes no signal
/// handler: the program must have none that runs on this stack, as this one has not.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork_exec(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdout: c_int,
    failure: *mut c_int,
) -> c_long {
    naked_asm!(
        // syscall clobbers rcx and r11 and nothing else; the kernel gives the child a copy of the
        // registers.
        "mov r9d, ecx",
        "mov eax, 58", // vfork
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "mov r10, rdi",
        "test r9d, r9d",
        "js 3f",
        "mov r12, rsi", // callee-saved, but this is the child's copy, which never returns
        "mov edi, r9d",
        "mov esi, 1",
        "mov eax, 33", // dup2
        "syscall",
        "mov rsi, r12",
        "3:",
        "mov rdi, r10",
        "mov eax, 59", // execve
        "syscall",
        "neg eax",
        "mov [r8], eax",
        "mov edi, 127",
        "mov eax, 231", // exit_group
        "syscall",
        "ud2",
    )
}

/// The same on arm64, where vfork is `clone` with `CLONE_VM | CLONE_VFORK | SIGCHLD` and a null
/// stack.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork_exec(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdout: c_int,
    failure: *mut c_int,
) -> c_long {
    naked_asm!(
        "mov x9, x0",
        "mov x10, x1",
        "mov x11, x2",
        "mov w12, w3",
        "mov x13, x4",
        "mov x0, #0x4111", // CLONE_VM | CLONE_VFORK | SIGCHLD
        "mov x1, xzr",
        "mov x2, xzr",
        "mov x3, xzr",
        "mov x4, xzr",
        "mov x8, #220", // clone
        "svc #0",
        "cbz x0, 2f",
        "ret",
        "2:",
        "tbnz w12, #31, 3f",
        "mov w0, w12",
        "mov w1, #1",
        "mov w2, wzr",
        "mov x8, #24", // dup3
        "svc #0",
        "3:",
        "mov x0, x9",
        "mov x1, x10",
        "mov x2, x11",
        "mov x8, #221", // execve
        "svc #0",
        "neg w0, w0",
        "str w0, [x13]",
        "mov w0, #127",
        "mov x8, #94", // exit_group
        "svc #0",
        "brk #1",
    )
}

/// vfork with a child that exits with 0 at once. Returns as [`vfork_exec`].
///
/// # Safety
/// The program must have no signal handler that runs on this stack while the child lives.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork_exit() -> c_long {
    naked_asm!(
        "mov eax, 58", // vfork
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "xor edi, edi",
        "mov eax, 60", // exit
        "syscall",
        "ud2",
    )
}

/// The same on arm64.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork_exit() -> c_long {
    naked_asm!(
        "mov x0, #0x4111", // CLONE_VM | CLONE_VFORK | SIGCHLD
        "mov x1, xzr",
        "mov x2, xzr",
        "mov x3, xzr",
        "mov x4, xzr",
        "mov x8, #220", // clone
        "svc #0",
        "cbz x0, 2f",
        "ret",
        "2:",
        "mov x8, #93", // exit
        "svc #0",
        "brk #1",
    )
}
