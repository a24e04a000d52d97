//! Raw Linux system calls, typed by what each register carries.
//!
//! This crate exists because a child that shares its parent's memory may not touch libc: libc's wrappers write
//! `errno` through the parent's thread pointer, take locks, and some (`setuid`) signal every thread. Everything here is
//! one `syscall` instruction, `no_std`, without allocation, and touches no thread-local storage.
//!
//! It does not interpret: no retry on `EINTR`, no fallback, no caching. A refusal is the caller's to handle.
//!
//! Functions are safe when the kernel cannot be made to write to memory the caller does not own, and `unsafe`
//! otherwise. All of them are async-signal-safe and thread-safe as far as the kernel's own semantics go; where a call acts on
//! the calling thread only although POSIX says "process" (the set*id family), its documentation says so.
#![no_std]

#[cfg(not(target_os = "linux"))]
compile_error!("forkless-sys is for Linux; portable measurements live in forkless-bench");

mod arch;
#[doc(hidden)]
pub mod calls;
pub mod clone;
pub mod dispatch;
mod errno;
pub mod fd;
pub mod futex;
pub mod ids;
pub mod maps;
pub mod mm;
pub mod poll;
pub mod process;
mod reg;
pub mod sched;
pub mod signal;
pub mod time;
pub mod timer;

pub use arch::raw;
pub use errno::Errno;
pub use reg::{CPtr, Reg};

/// What a system call returns: its value, or the error the kernel named.
pub type Result<T> = core::result::Result<T, Errno>;
