//! What the compiler expects to find, and a library linked against nothing lacks: memory functions,
//! a panic handler, and the bounds of our own image.
//!
//! The memory functions are hidden, so only our code binds to them. libc's are indirect functions,
//! which a signal handler must not call. And a handler of ours may run inside the program's own
//! `memcpy`.
#![expect(unsafe_code, reason = "assembly and linker symbols")]

use core::arch::global_asm;
use core::ops::Range;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".macro hidden_fn name",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    "hidden_fn memcpy",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "hidden_fn memmove",
    "mov rax, rdi",
    "mov rcx, rdx",
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    // Overlapping with the destination above: from the end.
    "2: std",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "rep movsb",
    "cld",
    "ret",
    "hidden_fn memset",
    "mov r9, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r9",
    "ret",
    "hidden_fn bcmp",
    "hidden_fn memcmp",
    "xor eax, eax",
    "test rdx, rdx",
    "jz 3f",
    "2: movzx eax, byte ptr [rdi]",
    "movzx ecx, byte ptr [rsi]",
    "sub eax, ecx",
    "jnz 3f",
    "inc rdi",
    "inc rsi",
    "dec rdx",
    "jnz 2b",
    "3: ret",
    "hidden_fn strlen",
    "mov rax, rdi",
    "2: cmp byte ptr [rax], 0",
    "je 3f",
    "inc rax",
    "jmp 2b",
    "3: sub rax, rdi",
    "ret",
    // The unwinding tables of the precompiled core library name it; nothing here unwinds.
    "hidden_fn rust_eh_personality",
    "hidden_fn _Unwind_Resume",
    "ud2",
    ".hidden _end",
    ".hidden etext",
    ".hidden __ehdr_start",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".macro hidden_fn name",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    "hidden_fn memcpy",
    "mov x3, x0",
    "2: cmp x2, #16",
    "b.lo 3f",
    "ldp x4, x5, [x1], #16",
    "stp x4, x5, [x3], #16",
    "sub x2, x2, #16",
    "b 2b",
    "3: cbz x2, 4f",
    "ldrb w4, [x1], #1",
    "strb w4, [x3], #1",
    "sub x2, x2, #1",
    "b 3b",
    "4: ret",
    "hidden_fn memmove",
    "sub x3, x0, x1",
    "cmp x3, x2",
    "b.hs memcpy",
    // Overlapping with the destination above: from the end.
    "2: cbz x2, 3f",
    "sub x2, x2, #1",
    "ldrb w4, [x1, x2]",
    "strb w4, [x0, x2]",
    "b 2b",
    "3: ret",
    "hidden_fn memset",
    "mov x3, x0",
    "2: cbz x2, 3f",
    "strb w1, [x3], #1",
    "sub x2, x2, #1",
    "b 2b",
    "3: ret",
    "hidden_fn bcmp",
    "hidden_fn memcmp",
    "mov x3, x0",
    "mov w0, wzr",
    "2: cbz x2, 3f",
    "ldrb w4, [x3], #1",
    "ldrb w5, [x1], #1",
    "sub x2, x2, #1",
    "subs w0, w4, w5",
    "b.eq 2b",
    "3: ret",
    "hidden_fn strlen",
    "mov x1, x0",
    "2: ldrb w2, [x1], #1",
    "cbnz w2, 2b",
    "sub x0, x1, x0",
    "sub x0, x0, #1",
    "ret",
    // The compiler's atomics ask once whether the processor has the larger instructions (AT_HWCAP).
    // The smaller ones do.
    "hidden_fn getauxval",
    "mov x0, xzr",
    "ret",
    "hidden_fn rust_eh_personality",
    "hidden_fn _Unwind_Resume",
    "brk #1",
    ".hidden _end",
    ".hidden etext",
    ".hidden __ehdr_start",
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    abort()
}

/// Ends the process by an illegal instruction. In a speculative child that is one more way to abort
/// the speculation.
pub(crate) fn abort() -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: raises SIGILL and does not continue.
    unsafe {
        core::arch::asm!("ud2", options(noreturn, nostack))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: raises SIGTRAP and does not continue.
    unsafe {
        core::arch::asm!("brk #1", options(noreturn, nostack))
    }
}

/// The addresses from our first instruction (and headers) to the last. Dispatch lets their calls
/// through.
#[cfg(target_arch = "x86_64")]
pub(crate) fn text() -> Range<usize> {
    let (start, end): (usize, usize);
    // SAFETY: takes two addresses.
    unsafe {
        core::arch::asm!("lea {}, [rip + __ehdr_start]", "lea {}, [rip + etext]", out(reg) start, out(reg) end,
            options(nomem, nostack, preserves_flags));
    }
    start..end
}

/// The addresses of the whole library, data included.
#[cfg(target_arch = "x86_64")]
pub(crate) fn image() -> Range<usize> {
    let end: usize;
    // SAFETY: takes one address.
    unsafe {
        core::arch::asm!("lea {}, [rip + _end]", out(reg) end, options(nomem, nostack, preserves_flags));
    }
    text().start..end
}

/// The addresses of the whole library, data included.
#[cfg(target_arch = "aarch64")]
pub(crate) fn image() -> Range<usize> {
    let (start, end): (usize, usize);
    // SAFETY: takes two addresses.
    unsafe {
        core::arch::asm!("adrp {0}, __ehdr_start", "add {0}, {0}, :lo12:__ehdr_start", "adrp {1}, _end",
            "add {1}, {1}, :lo12:_end", out(reg) start, out(reg) end, options(nomem, nostack, preserves_flags));
    }
    start..end
}

/// Whether valgrind translates this program. Then valgrind's code makes the system calls, not the
/// program's. Valgrind answers a sequence of instructions that does nothing on a processor
/// (valgrind.h, `RUNNING_ON_VALGRIND`).
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_translated() -> bool {
    let question = [0x1001usize, 0, 0, 0, 0, 0];
    let answer: usize;
    // SAFETY: turns a register around twice, and exchanges one with itself.
    unsafe {
        core::arch::asm!("rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") question.as_ptr(), inout("rdx") 0usize => answer, options(nostack));
    }
    answer != 0
}

/// Only asked on x86-64, where it matters.
#[cfg(target_arch = "aarch64")]
pub(crate) const fn is_translated() -> bool {
    false
}

/// The calling thread's thread pointer. It is distinct for every thread, and a register, so it can
/// be read anywhere without a system call.
#[cfg(target_arch = "x86_64")]
pub(crate) fn thread_pointer() -> usize {
    let tp: usize;
    // SAFETY: the thread control block begins with its own address (x86-64 psABI, TLS variant II).
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) tp, options(readonly, nostack, preserves_flags));
    }
    tp
}

/// The calling thread's thread pointer.
#[cfg(target_arch = "aarch64")]
pub(crate) fn thread_pointer() -> usize {
    let tp: usize;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) tp, options(nomem, nostack, preserves_flags));
    }
    tp
}
