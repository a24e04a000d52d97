//! The instructions of x86-64. Callee-saved and argument registers are kept, and the x87 and SSE
//! control words.

// The parent module's expectation of unsafe code covers this file.

use core::arch::naked_asm;
use core::ffi::c_int;

use super::{FAST, NEXT_GET, NEXT_MAKE, NEXT_SET, NEXT_SWAP, SWITCHES, exit_process};

/// Whether a context here is no more than what these functions keep.
pub(super) const fn keeps_all() -> bool {
    true
}

// Offsets in glibc's `ucontext_t` (sysdeps/unix/sysv/linux/x86_64/ucontext_i.sym); musl has the
// same up to the mask.
const R8: usize = 40;
const R9: usize = 48;
const R12: usize = 72;
const R13: usize = 80;
const R14: usize = 88;
const R15: usize = 96;
const RDI: usize = 104;
const RSI: usize = 112;
const RBP: usize = 120;
const RBX: usize = 128;
const RDX: usize = 136;
const RCX: usize = 152;
const RSP: usize = 160;
const RIP: usize = 168;
const FPREGS: usize = 224;
const FPMEM: usize = 424;
const MXCSR: usize = FPMEM + 24;

/// Of `tcbhead_t`: features of control-flow enforcement in force; bit 1 is the shadow stack.
const FEATURE: usize = 0x48;
const SHADOW_STACK: u32 = 2;

/// The code of a function that saves the calling context at rdi: everything but the floating-point
/// environment, whose address is in rcx for `$then`, which goes on from there.
macro_rules! saving {
    ($next:ident, $($then:literal),+ $(; $($operand:tt)+)?) => {
        naked_asm!(
            "cmp byte ptr [rip + {fast}], 0",
            "je 2f",
            "test dword ptr fs:[{feature}], {shadow}",
            "jnz 2f",
            "mov [rdi + {rbx}], rbx",
            "mov [rdi + {rbp}], rbp",
            "mov [rdi + {r12}], r12",
            "mov [rdi + {r13}], r13",
            "mov [rdi + {r14}], r14",
            "mov [rdi + {r15}], r15",
            "mov [rdi + {rdi}], rdi",
            "mov [rdi + {rsi}], rsi",
            "mov [rdi + {rdx}], rdx",
            "mov [rdi + {rcx}], rcx",
            "mov [rdi + {r8}], r8",
            "mov [rdi + {r9}], r9",
            "mov rcx, [rsp]",
            "mov [rdi + {rip}], rcx",
            "lea rcx, [rsp + 8]",
            "mov [rdi + {rsp}], rcx",
            "lea rcx, [rdi + {fpmem}]",
            "mov [rdi + {fpregs}], rcx",
            $($then,)+
            "2: jmp [rip + {next}]",
            fast = sym FAST, next = sym $next, feature = const FEATURE, shadow = const SHADOW_STACK,
            rbx = const RBX, rbp = const RBP, r12 = const R12, r13 = const R13, r14 = const R14, r15 = const R15,
            rdi = const RDI, rsi = const RSI, rdx = const RDX, rcx = const RCX, r8 = const R8, r9 = const R9,
            rip = const RIP, rsp = const RSP, fpregs = const FPREGS, fpmem = const FPMEM, mxcsr = const MXCSR,
            $($($operand)+)?
        )
    };
}

/// `getcontext(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn getcontext() -> c_int {
    saving!(
        NEXT_GET,
        // The whole environment once, so that the area is valid for libc; switches then save the
        // control word only.
        "fnstenv [rcx]",
        "fldenv [rcx]",
        "stmxcsr [rdi + {mxcsr}]",
        // Never read by us; empty rather than whatever was there, should the program look.
        "mov qword ptr [rdi + 296], 0",
        "xor eax, eax",
        "ret"
    )
}

/// `setcontext(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn setcontext() -> c_int {
    naked_asm!(
        "cmp byte ptr [rip + {fast}], 0",
        "je 2f",
        "test dword ptr fs:[{feature}], {shadow}",
        "jnz 2f",
        "mov rsi, rdi",
        "jmp {load}",
        "2: jmp [rip + {next}]",
        fast = sym FAST, next = sym NEXT_SET, feature = const FEATURE, shadow = const SHADOW_STACK, load = sym load,
    )
}

/// Continues the context in rsi.
#[unsafe(naked)]
extern "C" fn load() -> c_int {
    naked_asm!(
        "inc qword ptr [rip + {switches}]",
        "mov rcx, [rsi + {fpregs}]",
        // Both fnstenv's format and the kernel's (of a signal frame) begin with the control word.
        "fldcw [rcx]",
        "ldmxcsr [rsi + {mxcsr}]",
        "mov rsp, [rsi + {rsp}]",
        "mov rbx, [rsi + {rbx}]",
        "mov rbp, [rsi + {rbp}]",
        "mov r12, [rsi + {r12}]",
        "mov r13, [rsi + {r13}]",
        "mov r14, [rsi + {r14}]",
        "mov r15, [rsi + {r15}]",
        "mov r11, [rsi + {rip}]",
        "mov rdi, [rsi + {rdi}]",
        "mov rdx, [rsi + {rdx}]",
        "mov rcx, [rsi + {rcx}]",
        "mov r8, [rsi + {r8}]",
        "mov r9, [rsi + {r9}]",
        "mov rsi, [rsi + {rsi}]",
        "xor eax, eax",
        "jmp r11",
        switches = sym SWITCHES, fpregs = const FPREGS, mxcsr = const MXCSR,
        rbx = const RBX, rbp = const RBP, r12 = const R12, r13 = const R13, r14 = const R14, r15 = const R15,
        rdi = const RDI, rsi = const RSI, rdx = const RDX, rcx = const RCX, r8 = const R8, r9 = const R9,
        rip = const RIP, rsp = const RSP,
    )
}

/// `swapcontext(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn swapcontext() -> c_int {
    saving!(NEXT_SWAP, "fnstcw [rcx]", "stmxcsr [rdi + {mxcsr}]", "jmp {load}"; load = sym load)
}

/// `makecontext(3)`: variadic, so the arguments are collected here.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn makecontext() {
    naked_asm!(
        "cmp byte ptr [rip + {fast}], 0",
        "je 2f",
        "test dword ptr fs:[{feature}], {shadow}",
        "jnz 2f",
        // Three in registers, the others on the stack.
        "lea r10, [rsp + 8]",
        "push r9",
        "push r8",
        "push rcx",
        "mov rcx, rsp",
        "mov r8, r10",
        "call {make}",
        "add rsp, 24",
        "ret",
        "2: jmp [rip + {next}]",
        fast = sym FAST, next = sym NEXT_MAKE, feature = const FEATURE, shadow = const SHADOW_STACK, make = sym make,
    )
}

/// Lays the context's stack out as glibc does: the return address, arguments past the sixth, the
/// link.
///
/// # Safety `context` has been through getcontext and has a stack; the arguments are there.
unsafe extern "C" fn make(
    context: *mut u8,
    function: usize,
    count: c_int,
    registers: *const usize,
    stack: *const usize,
) {
    let field = |offset: usize| context.wrapping_add(offset).cast::<usize>();
    let set = |offset: usize, value: usize| {
        // SAFETY: inside the caller's ucontext_t.
        unsafe { *field(offset) = value };
    };
    let get = |offset: usize| {
        // SAFETY: as above.
        unsafe { *field(offset) }
    };
    let count = count.max(0) as usize;
    let spilled = count.saturating_sub(6);
    let top = get(16) + get(32);
    // 16-byte aligned where the function's call would have been.
    let sp = ((top - (spilled + 1) * 8) & !15) - 8;
    let word = |i: usize, value: usize| {
        // SAFETY: inside the stack the caller gave.
        unsafe { *((sp + 8 * i) as *mut usize) = value };
    };
    for i in 0..count {
        let from = if i < 3 { registers.wrapping_add(i) } else { stack.wrapping_add(i - 3) };
        // SAFETY: the caller passed that many.
        let value = unsafe { *from };
        match i {
            0 => set(RDI, value),
            1 => set(RSI, value),
            2 => set(RDX, value),
            3 => set(RCX, value),
            4 => set(R8, value),
            5 => set(R9, value),
            _ => word(1 + i - 6, value),
        }
    }
    word(0, finished as *const () as usize);
    word(1 + spilled, get(8));
    set(RBX, sp + 8 * (1 + spilled));
    set(RSP, sp);
    set(RIP, function);
}

/// Where a context's function returns to: the linked context, or the end of the process.
#[unsafe(naked)]
extern "C" fn finished() {
    naked_asm!(
        "mov rsp, rbx",
        "mov rsi, [rsp]",
        "test rsi, rsi",
        "jnz {load}",
        "xor edi, edi",
        "and rsp, -16",
        "call {exit}",
        "ud2",
        load = sym load, exit = sym exit_process,
    )
}
