//! Programs of a few instructions, assembled with this library and copied from its code into
//! executables of their own (see [`program`](crate::program)). They are position-independent, and
//! have no data and only the kernel's stack. The labels are global, for the code that names them
//! may be in another object file of this crate than the assembly.

#![expect(unsafe_code, reason = "reads the library's own machine code")]

use std::arch::global_asm;

// Execs itself, counting the seven digits of its first argument down to zero.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .rodata",
    ".globl forkless_bench_countdown",
    ".hidden forkless_bench_countdown",
    "forkless_bench_countdown:",
    "mov rbx, [rsp + 16]", // argv[1]
    "mov ecx, 6",
    "2:",
    "cmp byte ptr [rbx + rcx], '0'",
    "jne 3f",
    "mov byte ptr [rbx + rcx], '9'",
    "dec ecx",
    "jns 2b",
    "xor edi, edi",
    "mov eax, 60", // exit
    "syscall",
    "3:",
    "dec byte ptr [rbx + rcx]",
    "mov rdi, [rsp + 8]",
    "lea rsi, [rsp + 8]",
    "lea rdx, [rsp + 32]", // behind argc, two arguments and their null
    "mov eax, 59",         // execve
    "syscall",
    "mov edi, 1",
    "mov eax, 60",
    "syscall",
    ".globl forkless_bench_countdown_end",
    ".hidden forkless_bench_countdown_end",
    "forkless_bench_countdown_end:",
    // Calls rt_sigprocmask(SIG_SETMASK, NULL, &set, 8) as often as its first argument says.
    ".globl forkless_bench_mask_loop",
    ".hidden forkless_bench_mask_loop",
    "forkless_bench_mask_loop:",
    "mov rsi, [rsp + 16]", // argv[1]
    "xor ebx, ebx",
    "2:",
    "movzx eax, byte ptr [rsi]",
    "test eax, eax",
    "jz 3f",
    "imul ebx, ebx, 10",
    "lea ebx, [rbx + rax - '0']",
    "inc rsi",
    "jmp 2b",
    "3:",
    "sub rsp, 16",
    "test ebx, ebx",
    "jz 4f",
    "2:",
    "mov edi, 2",
    "xor esi, esi",
    "mov rdx, rsp",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "dec ebx",
    "jnz 2b",
    "4:",
    "xor edi, edi",
    "mov eax, 60",
    "syscall",
    ".globl forkless_bench_mask_loop_end",
    ".hidden forkless_bench_mask_loop_end",
    "forkless_bench_mask_loop_end:",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .rodata",
    ".globl forkless_bench_countdown",
    ".hidden forkless_bench_countdown",
    "forkless_bench_countdown:",
    "ldr x19, [sp, #16]", // argv[1]
    "mov x20, #6",
    "2:",
    "ldrb w21, [x19, x20]",
    "cmp w21, #0x30",
    "b.ne 3f",
    "mov w21, #0x39",
    "strb w21, [x19, x20]",
    "subs x20, x20, #1",
    "b.pl 2b",
    "mov x0, #0",
    "mov x8, #93", // exit
    "svc #0",
    "3:",
    "sub w21, w21, #1",
    "strb w21, [x19, x20]",
    "ldr x0, [sp, #8]",
    "add x1, sp, #8",
    "add x2, sp, #32", // behind argc, two arguments and their null
    "mov x8, #221",    // execve
    "svc #0",
    "mov x0, #1",
    "mov x8, #93",
    "svc #0",
    ".globl forkless_bench_countdown_end",
    ".hidden forkless_bench_countdown_end",
    "forkless_bench_countdown_end:",
    // Calls rt_sigprocmask(SIG_SETMASK, NULL, &set, 8) as often as its first argument says.
    ".globl forkless_bench_mask_loop",
    ".hidden forkless_bench_mask_loop",
    "forkless_bench_mask_loop:",
    "ldr x20, [sp, #16]", // argv[1]
    "mov w19, #0",
    "mov w22, #10",
    "2:",
    "ldrb w21, [x20], #1",
    "cbz w21, 3f",
    "madd w19, w19, w22, w21",
    "sub w19, w19, #0x30",
    "b 2b",
    "3:",
    "sub sp, sp, #16",
    "cbz w19, 4f",
    "2:",
    "mov x0, #2",
    "mov x1, #0",
    "mov x2, sp",
    "mov x3, #8",
    "mov x8, #135",
    "svc #0",
    "subs w19, w19, #1",
    "b.ne 2b",
    "4:",
    "mov x0, #0",
    "mov x8, #93",
    "svc #0",
    ".globl forkless_bench_mask_loop_end",
    ".hidden forkless_bench_mask_loop_end",
    "forkless_bench_mask_loop_end:",
    ".popsection",
);

unsafe extern "C" {
    static forkless_bench_countdown: u8;
    static forkless_bench_countdown_end: u8;
    static forkless_bench_mask_loop: u8;
    static forkless_bench_mask_loop_end: u8;
}

/// Code that execs its own file until the number in its first argument, seven digits, is used up.
pub fn countdown() -> &'static [u8] {
    between(&raw const forkless_bench_countdown, &raw const forkless_bench_countdown_end)
}

/// Code that asks for its signal mask as many times as its first argument, a decimal number, says,
/// and exits.
pub fn mask_loop() -> &'static [u8] {
    between(&raw const forkless_bench_mask_loop, &raw const forkless_bench_mask_loop_end)
}

fn between(start: *const u8, end: *const u8) -> &'static [u8] {
    let length = end as usize - start as usize;
    // SAFETY: both labels are in the same constant section above, the end behind the start; it is
    // never written to.
    unsafe { std::slice::from_raw_parts(start, length) }
}
