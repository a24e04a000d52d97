//! The instructions of arm64. What the procedure call standard has a callee keep is kept (x19 to
//! x30, the lower halves of the vector registers 8 to 15, the platform's x18), the argument
//! registers, and the control and status words of floating point.
//!
//! Every entry is a landing pad (`hint #34`, BTI c), and contexts are continued by `ret`, not `br`:
//! what follows a call of swapcontext is no landing pad.

// The parent module's expectation of unsafe code covers this file.

use core::arch::naked_asm;
use core::ffi::c_int;

use crate::loader::auxiliary;

use super::{FAST, NEXT_GET, NEXT_MAKE, NEXT_SET, NEXT_SWAP, SWITCHES, exit_process};

// Offsets in `ucontext_t`, which glibc shares with the kernel
// (arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h).
const LINK: usize = 8;
const STACK: usize = 16;
const STACK_SIZE: usize = 32;
const MASK: usize = 40;
const X: [usize; 31] = {
    let mut x = [184; 31];
    let mut n = 0;
    while n < x.len() {
        x[n] += 8 * n;
        n += 1;
    }
    x
};
const SP: usize = 432;
const PC: usize = 440;
const PSTATE: usize = 448;
/// Tagged records. First is that of the vector registers (`struct fpsimd_context`), by libc's hand
/// and by the kernel's.
const RECORDS: usize = 464;
const Q8: usize = RECORDS + 16 + 8 * 16;
const SECOND_RECORD: usize = RECORDS + FPSIMD_SIZE;

const FPSIMD_MAGIC: usize = 0x4650_8001;
const FPSIMD_SIZE: usize = 528;

/// Whether a context here is no more than what these functions keep. Not with the Scalable Matrix
/// Extension: libc's setcontext first saves the matrix that the context it leaves may have in the
/// processor (AAPCS64, "lazy saving scheme").
pub(super) fn keeps_all() -> bool {
    const AT_HWCAP2: usize = 26;
    /// arch/arm64/include/uapi/asm/hwcap.h
    const HWCAP2_SME: usize = 1 << 23;
    auxiliary(AT_HWCAP2).is_some_and(|capabilities| capabilities & HWCAP2_SME == 0)
}

/// How all four begin: to libc's function, at label 2, when switched off, or with a shadow stack in
/// force (a guarded control stack: CHKFEAT, `hint #40`, clears the bit of x16 for it; processors
/// that know neither leave the bit alone).
macro_rules! unless_fast {
    () => {
        "hint #34
        adrp x9, {fast}
        ldrb w9, [x9, :lo12:{fast}]
        cbz w9, 2f
        mov x16, #1
        hint #40
        cbz x16, 2f"
    };
}

/// libc's function, with the arguments as they came.
macro_rules! libc {
    () => {
        "2: adrp x16, {next}
        ldr x16, [x16, :lo12:{next}]
        br x16"
    };
}

/// The code of a function that saves the calling context at x0; resumed, its own call returns 0.
/// `$then` goes on from there.
macro_rules! saving {
    ($next:ident, $($then:literal),+ $(; $($operand:tt)+)?) => {
        naked_asm!(
            unless_fast!(),
            "str xzr, [x0, #{x0}]",
            "stp x18, x19, [x0, #{x18}]",
            "stp x20, x21, [x0, #{x20}]",
            "stp x22, x23, [x0, #{x22}]",
            "stp x24, x25, [x0, #{x24}]",
            "stp x26, x27, [x0, #{x26}]",
            "stp x28, x29, [x0, #{x28}]",
            "mov x9, sp",
            "str x30, [x0, #{x30}]",
            "stp x9, x30, [x0, #{sp}]",
            "str xzr, [x0, #{pstate}]",
            "mov w9, #{magic_low}",
            "movk w9, #{magic_high}, lsl #16",
            "mov w10, #{size}",
            "add x11, x0, #{records}",
            "mrs x12, fpsr",
            "mrs x13, fpcr",
            "stp w9, w10, [x11]",
            "stp w12, w13, [x11, #8]",
            "str xzr, [x0, #{second}]",
            "stp q8, q9, [x0, #{q8}]",
            "stp q10, q11, [x0, #{q8} + 32]",
            "stp q12, q13, [x0, #{q8} + 64]",
            "stp q14, q15, [x0, #{q8} + 96]",
            $($then,)+
            libc!(),
            fast = sym FAST, next = sym $next,
            x0 = const X[0], x18 = const X[18], x20 = const X[20], x22 = const X[22], x24 = const X[24],
            x26 = const X[26], x28 = const X[28], x30 = const X[30], sp = const SP, pstate = const PSTATE,
            magic_low = const FPSIMD_MAGIC & 0xffff, magic_high = const FPSIMD_MAGIC >> 16, size = const FPSIMD_SIZE,
            records = const RECORDS, second = const SECOND_RECORD, q8 = const Q8,
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
        // Never read by us; empty rather than whatever was there, should the program look.
        "str xzr, [x0, #{mask}]",
        "mov w0, wzr",
        "ret";
        mask = const MASK
    )
}

/// `setcontext(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn setcontext() -> c_int {
    naked_asm!(unless_fast!(), "b {load}", libc!(), fast = sym FAST, next = sym NEXT_SET, load = sym load)
}

/// `swapcontext(3)`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn swapcontext() -> c_int {
    saving!(NEXT_SWAP, "mov x0, x1", "b {load}"; load = sym load)
}

/// Continues the context in x0.
#[unsafe(naked)]
extern "C" fn load() -> c_int {
    naked_asm!(
        "adrp x9, {switches}",
        "ldr x10, [x9, :lo12:{switches}]",
        "add x10, x10, #1",
        "str x10, [x9, :lo12:{switches}]",
        // A record of another kind: a context made by something else, which had no vector registers
        // to keep.
        "add x11, x0, #{records}",
        "ldr w9, [x11]",
        "mov w10, #{magic_low}",
        "movk w10, #{magic_high}, lsl #16",
        "cmp w9, w10",
        "b.ne 3f",
        "ldp q8, q9, [x0, #{q8}]",
        "ldp q10, q11, [x0, #{q8} + 32]",
        "ldp q12, q13, [x0, #{q8} + 64]",
        "ldp q14, q15, [x0, #{q8} + 96]",
        "ldp w9, w10, [x11, #8]",
        "msr fpsr, x9",
        // Writing the control word waits for everything under way on some processors; it is nearly
        // always the same.
        "mrs x11, fpcr",
        "cmp x11, x10",
        "b.eq 3f",
        "msr fpcr, x10",
        "3: ldp x9, x16, [x0, #{sp}]",
        "mov sp, x9",
        "ldp x18, x19, [x0, #{x18}]",
        "ldp x20, x21, [x0, #{x20}]",
        "ldp x22, x23, [x0, #{x22}]",
        "ldp x24, x25, [x0, #{x24}]",
        "ldp x26, x27, [x0, #{x26}]",
        "ldp x28, x29, [x0, #{x28}]",
        "ldr x30, [x0, #{x30}]",
        "ldp x6, x7, [x0, #{x6}]",
        "ldp x4, x5, [x0, #{x4}]",
        "ldp x2, x3, [x0, #{x2}]",
        "ldp x0, x1, [x0, #{x0}]",
        "ret x16",
        switches = sym SWITCHES, records = const RECORDS, q8 = const Q8, sp = const SP,
        magic_low = const FPSIMD_MAGIC & 0xffff, magic_high = const FPSIMD_MAGIC >> 16,
        x0 = const X[0], x2 = const X[2], x4 = const X[4], x6 = const X[6], x18 = const X[18], x20 = const X[20],
        x22 = const X[22], x24 = const X[24], x26 = const X[26], x28 = const X[28], x30 = const X[30],
    )
}

/// `makecontext(3)`: variadic, so the arguments are collected here.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn makecontext() {
    naked_asm!(
        unless_fast!(),
        // Five in registers, the others on the stack: all of them in a row.
        "stp x29, x30, [sp, #-64]!",
        "mov x29, sp",
        "stp x3, x4, [sp, #24]",
        "stp x5, x6, [sp, #40]",
        "str x7, [sp, #56]",
        "add x3, sp, #24",
        "bl {make}",
        "ldp x29, x30, [sp], #64",
        "ret",
        libc!(),
        fast = sym FAST, next = sym NEXT_MAKE, make = sym make,
    )
}

/// Arguments in registers (AAPCS64).
const REGISTERS: usize = 8;

/// Lays the context out as glibc does: eight arguments in registers, the others on the stack, the
/// link in x19, and nobody above.
///
/// # Safety `context` has been through getcontext and has a stack; `arguments` are `count` words.
unsafe extern "C" fn make(context: *mut u8, function: usize, count: c_int, arguments: *const usize) {
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
    let sp = (get(STACK) + get(STACK_SIZE) - count.saturating_sub(REGISTERS) * 8) & !15;
    for i in 0..count {
        // SAFETY: the caller passed that many.
        let value = unsafe { *arguments.wrapping_add(i) };
        match X[..REGISTERS].get(i) {
            Some(register) => set(*register, value),
            // SAFETY: inside the stack the caller gave.
            None => unsafe { *((sp + 8 * (i - REGISTERS)) as *mut usize) = value },
        }
    }
    set(X[19], get(LINK));
    // Ends the chain of frame records.
    set(X[29], 0);
    set(X[30], finished as *const () as usize + RETURN);
    set(SP, sp);
    set(PC, function);
}

/// What a context's function returns to lies behind one instruction: unwinders look a caller up by
/// the address before.
const RETURN: usize = 4;

/// Where a context's function returns to, x19 untouched: the linked context, or the end of the
/// process. For unwinders the outermost frame.
#[unsafe(naked)]
extern "C" fn finished() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "nop",
        "mov x0, x19",
        "cbnz x0, {load}",
        // The stack is aligned, as it was for the function.
        "b {exit}",
        ".cfi_endproc",
        load = sym load, exit = sym exit_process,
    )
}
