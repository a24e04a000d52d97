//! libc's `clone(CLONE_VM | CLONE_VFORK)`: `clone_vm`.

#![expect(unsafe_code, reason = "the workload is a C function, and a child on a stack of its own")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use libc::{c_char, c_int};

use super::super::worker::{Lap, SpawnedProgram, Worker, environment, finish};
use crate::clock::now;
use crate::error::Error;

/// `clone_vm`: the stack is made once, as a program that cares would.
pub(crate) struct CloneVm {
    target: Arc<SpawnedProgram>,
    stack: Stack,
}

struct Stack {
    base: *mut c_void,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Stack {}

impl Stack {
    const SIZE: usize = 64 << 10;

    fn new() -> Result<Stack, Error> {
        // SAFETY: a new private anonymous mapping at an address the kernel chooses touches no
        // existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Stack::SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os("map a stack for a child"));
        }
        Ok(Stack { base })
    }

    /// The end: stacks grow down. A multiple of the page size, so aligned as the ABI wants it.
    fn top(&self) -> *mut c_void {
        self.base.wrapping_byte_add(Stack::SIZE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this size; no child runs on it any more, each
        // has been reaped.
        unsafe { libc::munmap(self.base, Stack::SIZE) };
    }
}

/// What a child made by `clone` needs; lives on the parent's stack, which CLONE_VFORK keeps still.
struct ExecArguments {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
}

extern "C" fn exec_child(arguments: *mut c_void) -> c_int {
    // SAFETY: the parent passed a pointer to its own `ExecArguments` and is suspended until this
    // child execs or exits.
    let arguments = unsafe { &*arguments.cast::<ExecArguments>() };
    // SAFETY: path and vectors are valid C strings and arrays, as `SpawnedProgram` makes them.
    unsafe { libc::execve(arguments.path, arguments.argv, arguments.envp) };
    // SAFETY: _exit runs no handler of the parent whose memory this is.
    unsafe { libc::_exit(127) }
}

impl CloneVm {
    pub(crate) fn new(target: Arc<SpawnedProgram>) -> Result<CloneVm, Error> {
        Ok(CloneVm { target, stack: Stack::new()? })
    }
}

impl Worker for CloneVm {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        let argv = self.target.argv();
        let mut arguments =
            ExecArguments { path: self.target.path.as_ptr(), argv: argv.as_ptr(), envp: environment() };
        // SAFETY: the stack is used by one child at a time, CLONE_VFORK keeps this frame alive
        // while the child reads it, and the child calls only execve and _exit.
        let pid = unsafe {
            libc::clone(
                exec_child,
                self.stack.top(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut arguments).cast(),
            )
        };
        let returned = now();
        if pid < 0 {
            return Err(Error::last_os("clone"));
        }
        finish("clone_vm", start, returned, pid, None)
    }
}
