//! libc's `vfork` and `execve`, for systems whose system calls are not an interface: the yardstick
//! of the suite there.
//!
//! As on Linux, a vfork child runs on its parent's stack, and compiled code must not call vfork.
//! This assembly may. All that it needs afterwards is in callee-saved registers or was pushed
//! before. The child only calls functions, which use the stack below. The parent is suspended until
//! the child has become a program. libc's vfork keeps its own return address off the stack.
//!
//! It works with any libc, so its tests run on Linux, too.

#![expect(unsafe_code, reason = "vfork cannot be called safely from compiled code")]

use std::arch::naked_asm;

use libc::{c_char, c_int, c_long, pid_t};

unsafe extern "C" {
    // Called from assembly only: it returns twice.
    fn vfork() -> pid_t;
    #[cfg_attr(target_os = "linux", link_name = "__errno_location")]
    #[cfg_attr(not(target_os = "linux"), link_name = "__error")]
    fn errno_location() -> *mut c_int;
}

/// What the assembly calls, in this order; addresses, so that how a system spells and binds its
/// symbols does not matter.
#[repr(C)]
struct Calls {
    vfork: unsafe extern "C" fn() -> pid_t,
    dup2: unsafe extern "C" fn(c_int, c_int) -> c_int,
    execve: unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int,
    errno: unsafe extern "C" fn() -> *mut c_int,
    exit: unsafe extern "C" fn(c_int) -> !,
}

static CALLS: Calls =
    Calls { vfork, dup2: libc::dup2, execve: libc::execve, errno: errno_location, exit: libc::_exit };

/// What the child does; in memory that parent and child share while it runs.
#[repr(C)]
struct Child {
    /// Null for a child that only exits, with 0.
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    failure: *mut c_int,
    stdout: c_int,
}

/// vfork; in the child, dup2 of `stdout` onto descriptor 1 unless it is negative, then execve.
/// Returns the child's pid or a negative error number of vfork. When execve fails the child writes
/// the error number to `failure` (the memory is the parent's) and exits with 127.
///
/// # Safety
/// `path` is a NUL-terminated string, `argv` and `envp` are NULL-terminated arrays of such, and
/// `failure` is writable; all stay so until the function returns. The child takes no signal
/// handler: the program must have none that runs on this stack, as this one has not.
#[inline]
pub(super) unsafe fn vfork_exec(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    stdout: c_int,
    failure: *mut c_int,
) -> c_long {
    let child = Child { path, argv, envp, failure, stdout };
    // SAFETY: the caller's promises, and `child` outlives the call.
    answer(unsafe { start(&raw const child, &raw const CALLS) })
}

/// vfork with a child that exits with 0 at once. Returns as [`vfork_exec`].
///
/// # Safety
/// The program must have no signal handler that runs on this stack while the child lives.
pub(crate) unsafe fn vfork_exit() -> c_long {
    let null = std::ptr::null();
    let child =
        Child { path: null, argv: null.cast(), envp: null.cast(), failure: std::ptr::null_mut(), stdout: -1 };
    // SAFETY: the caller's promise, and `child` outlives the call.
    answer(unsafe { start(&raw const child, &raw const CALLS) })
}

fn answer(pid: pid_t) -> c_long {
    if pid < 0 {
        let error = std::io::Error::last_os_error();
        return -c_long::from(error.raw_os_error().unwrap_or(libc::EAGAIN));
    }
    c_long::from(pid)
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn start(child: *const Child, calls: *const Calls) -> pid_t {
    naked_asm!(
        "push rbx",
        "push r12",
        "push r13", // three pushes and the return address: aligned to 16
        "mov rbx, rdi",
        "mov r12, rsi",
        "call [r12]", // vfork
        "test eax, eax",
        "jz 2f",
        "pop r13",
        "pop r12",
        "pop rbx",
        "ret",
        "2:",
        "xor edi, edi",
        "cmp qword ptr [rbx], 0",
        "je 4f",
        "mov edi, [rbx + 32]",
        "test edi, edi",
        "js 3f",
        "mov esi, 1",
        "call [r12 + 8]", // dup2
        "3:",
        "mov rdi, [rbx]",
        "mov rsi, [rbx + 8]",
        "mov rdx, [rbx + 16]",
        "call [r12 + 16]", // execve
        "call [r12 + 24]", // where errno is
        "mov eax, [rax]",
        "mov rcx, [rbx + 24]",
        "mov [rcx], eax",
        "mov edi, 127",
        "4:",
        "call [r12 + 32]", // _exit
        "ud2",
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn start(child: *const Child, calls: *const Calls) -> pid_t {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x19, x20, [sp, #16]",
        "mov x29, sp",
        "mov x19, x0",
        "mov x20, x1",
        "ldr x8, [x20]", // vfork
        "blr x8",
        "cbz w0, 2f",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "ret",
        "2:",
        "mov w0, wzr",
        "ldr x8, [x19]",
        "cbz x8, 4f",
        "ldr w0, [x19, #32]",
        "tbnz w0, #31, 3f",
        "mov w1, #1",
        "ldr x8, [x20, #8]", // dup2
        "blr x8",
        "3:",
        "ldp x0, x1, [x19]",
        "ldr x2, [x19, #16]",
        "ldr x8, [x20, #16]", // execve
        "blr x8",
        "ldr x8, [x20, #24]", // where errno is
        "blr x8",
        "ldr w0, [x0]",
        "ldr x8, [x19, #24]",
        "str w0, [x8]",
        "mov w0, #127",
        "4:",
        "ldr x8, [x20, #32]", // _exit
        "blr x8",
        "brk #1",
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::spawn::worker::{drain, environment, pipe, reap};

    /// The pid, what was read and the error number that execve left.
    fn echo(path: &std::ffi::CStr) -> (c_int, usize, c_int) {
        let (read, write) = pipe().unwrap();
        let argv = [c"echo".as_ptr(), c"hello".as_ptr(), std::ptr::null()];
        let mut failure = 0;
        // SAFETY: the vectors outlive the call; the tests install no signal handler.
        let pid = unsafe {
            vfork_exec(path.as_ptr(), argv.as_ptr(), environment(), write.as_raw_fd(), &raw mut failure)
        };
        drop(write);
        let count = drain(&read).unwrap();
        let status = reap(pid_t::try_from(pid).unwrap(), 0).unwrap();
        // SAFETY: a local; volatile because the compiler does not see the child write to it.
        (status, count, unsafe { std::ptr::read_volatile(&raw const failure) })
    }

    #[test]
    fn the_child_becomes_the_program_with_its_output_where_it_was_asked_to() {
        assert_eq!(echo(c"/bin/echo"), (0, 6, 0));
    }

    #[test]
    fn an_exec_that_fails_leaves_its_error_number_and_ends_the_child() {
        assert_eq!(echo(c"/nonexistent"), (127 << 8, 0, libc::ENOENT));
    }

    #[test]
    fn a_child_that_only_exits_is_reaped_with_0() {
        // SAFETY: the tests install no signal handler.
        let pid = unsafe { vfork_exit() };
        assert_eq!(reap(pid_t::try_from(pid).unwrap(), 0).unwrap(), 0);
    }
}
