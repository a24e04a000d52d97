//! Creates a process that starts in a given function, on a stack of its own.
#![expect(
    unsafe_code,
    reason = "a child that shares memory cannot be made safely; the contract is on each function"
)]

use crate::calls::{self, Len};
use crate::{Errno, Result, raw};
use core::ffi::c_void;
use core::mem::size_of;
use linux_raw_sys::general as k;

pub use k::{
    CLONE_CHILD_CLEARTID, CLONE_CLEAR_SIGHAND, CLONE_FILES, CLONE_FS, CLONE_INTO_CGROUP, CLONE_PIDFD,
    CLONE_SETTLS, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK, CLONE_VM, clone_args,
};

/// Where a child begins. It must neither return nor unwind.
pub type Entry = unsafe extern "C" fn(*mut c_void) -> !;

/// `clone_args` with every field zero.
#[inline]
pub const fn args() -> clone_args {
    clone_args {
        flags: 0,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    }
}

/// `clone3(2)`: the child runs `entry(data)` on the stack of `args`; returns the child's pid to the
/// parent.
///
/// # Safety
/// The stack of `args` is writable, unused, 16-byte aligned and outlives the child; it and
/// everything `args` and `data` point to stay valid until the child has left this memory by an exec
/// or an exit. With `CLONE_VM`, `entry` must not return, unwind, or disturb memory the parent uses.
#[inline(always)]
pub unsafe fn clone3(args: &clone_args, entry: Entry, data: *mut c_void) -> Result<i32> {
    // SAFETY: the caller's contract.
    let ret = unsafe { raw::clone3((&raw const *args).cast(), size_of::<clone_args>(), entry, data) };
    Errno::check(ret).map(|pid| pid as i32)
}

/// `clone(2)` with the same meaning, for kernels or filters without `clone3`. With `CLONE_PIDFD`
/// the descriptor arrives in `parent_tid`.
///
/// # Safety
/// As for [`clone3`].
#[inline(always)]
pub unsafe fn clone(
    flags: u32,
    exit_signal: u32,
    stack_top: *mut c_void,
    parent_tid: *mut i32,
    child_tid: *mut i32,
    entry: Entry,
    data: *mut c_void,
) -> Result<i32> {
    // SAFETY: the caller's contract.
    let ret =
        unsafe { raw::clone((flags | exit_signal) as usize, stack_top, parent_tid, child_tid, entry, data) };
    Errno::check(ret).map(|pid| pid as i32)
}

/// Whether the kernel and every seccomp filter let `clone3` through. Creates nothing: the kernel
/// refuses an argument size that is too small with `EINVAL`, before it reads anything else
/// (kernel/fork.c, `copy_clone_args_from_user`).
#[inline]
pub fn clone3_allowed() -> Result<()> {
    // SAFETY: a null pointer with size zero is refused before it is read.
    match unsafe { calls::clone3(core::ptr::null(), Len(0)) } {
        Err(Errno::EINVAL) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(Errno::ENOSYS),
    }
}

const _: () = assert!(size_of::<clone_args>() == 88, "CLONE_ARGS_SIZE_VER2");
