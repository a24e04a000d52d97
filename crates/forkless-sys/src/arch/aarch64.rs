//! aarch64: number in x8, arguments in x0..x5, answer in x0; nothing else is lost (`syscall(2)`).
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
    // SAFETY: the caller's contract.
    unsafe {
        asm!("svc 0", in("x8") nr as usize, inlateout("x0") a.0 as isize => ret,
            in("x1") b.0, in("x2") c.0, in("x3") d.0, in("x4") e.0, in("x5") f.0, options(nostack));
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
    // x29 = 0 ends frame-pointer walks, x30 = 0 all others. Otherwise an unwinder takes the child
    // for a frame of the parent, and reads above the child's stack. The jump is by x16, which
    // enters a function as a call does (BTI).
    // SAFETY: the caller's contract for the arguments; the child never leaves the asm block.
    unsafe {
        asm!("svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x4",
            "mov x16, x3",
            "br x16",
            "2:",
            in("x8") linux_raw_sys::general::__NR_clone3 as usize,
            inlateout("x0") args => ret, in("x1") size, in("x3") entry, in("x4") data, options(nostack));
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
    // The order differs from x86-64: tls comes before child_tid (CONFIG_CLONE_BACKWARDS).
    // SAFETY: as in `clone3`.
    unsafe {
        asm!("svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x6",
            "mov x16, x5",
            "br x16",
            "2:",
            in("x8") linux_raw_sys::general::__NR_clone as usize,
            inlateout("x0") flags as isize => ret, in("x1") stack_top, in("x2") parent_tid, in("x3") 0usize, in("x4") child_tid,
            in("x5") entry, in("x6") data, options(nostack));
    }
    ret
}
