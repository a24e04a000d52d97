//! Creating a process that starts in a function of ours, on a stack of its own.
#![expect(
    unsafe_code,
    reason = "a child that shares memory cannot be made safely; the contract is on each function"
)]

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

/// `clone_args` with nothing asked for.
///
/// ```
/// use forkless_sys::clone::{self, clone_args};
/// let args = clone_args { exit_signal: 17, ..clone::args() }; // what fork asks for
/// assert_eq!((args.flags, args.exit_signal, args.stack), (0, 17, 0));
/// ```
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

/// `clone3(2)`: the child runs `entry(data)` on the stack of `args`; returns the child's pid to the parent.
///
/// # Safety
/// The stack of `args` is writable, unused, 16-byte aligned and outlives the child; it and everything `args` and `data` point to
/// stay valid until the child has left this memory. With `CLONE_VM`, `entry` must not return, unwind, or disturb memory the parent
/// uses.
///
/// ```
/// # use core::ffi::c_void;
/// # use forkless_sys::{Errno, clone, mm, process};
/// unsafe extern "C" fn child(data: *mut c_void) -> ! {
///     // SAFETY: the parent waits (CLONE_VFORK), so nobody else uses its variable.
///     unsafe { *data.cast::<i32>() = process::getpid() };
///     process::exit_group(7)
/// }
/// # const STACK: usize = 64 << 10;
/// # let stack = mm::map_anonymous(STACK, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// let mut seen = 0i32;
/// let mut args = clone::args();
/// args.flags = u64::from(clone::CLONE_VM | clone::CLONE_VFORK);
/// args.exit_signal = 17; // SIGCHLD
/// (args.stack, args.stack_size) = (stack as u64, STACK as u64);
/// // SAFETY: the stack is fresh, and the child has left it and `seen` before the parent goes on.
/// match unsafe { clone::clone3(&args, child, (&raw mut seen).cast()) } {
///     Ok(pid) => assert_eq!((seen, process::wait4(pid, 0)), (pid, Ok(7 << 8))),
///     Err(e) => assert_eq!(clone::clone3_allowed(), Err(e)), // a container's filter
/// }
/// # // SAFETY: the child is gone.
/// # unsafe { mm::munmap(stack, STACK) }?;
/// # Ok::<(), Errno>(())
/// ```
#[inline(always)]
pub unsafe fn clone3(args: &clone_args, entry: Entry, data: *mut c_void) -> Result<i32> {
    // SAFETY: the caller's contract.
    let ret = unsafe { raw::clone3((&raw const *args).cast(), size_of::<clone_args>(), entry, data) };
    Errno::check(ret).map(|pid| pid as i32)
}

/// `clone(2)` with the same meaning, for kernels or filters without `clone3`. With `CLONE_PIDFD` the descriptor arrives in `parent_tid`.
///
/// # Safety
/// As for [`clone3`].
///
/// ```
/// # use core::{ffi::c_void, ptr::null_mut};
/// # use forkless_sys::{Errno, clone, mm, process};
/// # unsafe extern "C" fn child(data: *mut c_void) -> ! {
/// #     // SAFETY: the parent waits (CLONE_VFORK), so nobody else uses its variable.
/// #     unsafe { *data.cast::<i32>() = process::getpid() };
/// #     process::exit_group(7)
/// # }
/// # const STACK: usize = 64 << 10;
/// # let stack = mm::map_anonymous(STACK, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// // `stack`, STACK bytes, and `child`, which stores its pid and exits with 7: as for clone3.
/// let mut seen = 0i32;
/// let (flags, top) = (clone::CLONE_VM | clone::CLONE_VFORK, stack.wrapping_byte_add(STACK));
/// // SAFETY: the stack is fresh, and the child has left it and `seen` before the parent goes on.
/// let pid = unsafe {
///     clone::clone(flags, 17, top, null_mut(), null_mut(), child, (&raw mut seen).cast())
/// }?;
/// assert_eq!((seen, process::wait4(pid, 0)), (pid, Ok(7 << 8)));
/// # // SAFETY: the child is gone.
/// # unsafe { mm::munmap(stack, STACK) }?;
/// # Ok::<(), Errno>(())
/// ```
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

/// Whether the kernel, and every filter above it, lets `clone3` through. Creates nothing: the argument size is too small, which
/// the kernel refuses with `EINVAL` before it looks at anything else (`copy_clone_args_from_user`).
///
/// ```
/// # use forkless_sys::{Errno, clone, process};
/// match clone::clone3_allowed() {
///     Ok(()) => assert_eq!(process::wait4(-1, 0), Err(Errno::ECHILD)), // asking made no child
///     Err(e) => assert!(matches!(e, Errno::ENOSYS | Errno::EPERM)),    // a container's filter
/// }
/// ```
pub fn clone3_allowed() -> Result<()> {
    use crate::Reg;
    // SAFETY: a null pointer with size zero is refused before it is read.
    let ret = unsafe { raw::syscall(k::__NR_clone3, [Reg::ZERO; 6]) };
    match Errno::check(ret) {
        Err(Errno::EINVAL) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(Errno::ENOSYS),
    }
}

const _: () = assert!(size_of::<clone_args>() == 88, "CLONE_ARGS_SIZE_VER2");
