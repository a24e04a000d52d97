//! Raw Linux system calls, each with the kernel's prototype (`calls`).
//!
//! This crate exists because a child that shares its parent's memory may not touch libc: libc's
//! wrappers write `errno` through the parent's thread pointer, take locks, and some (`setuid`)
//! signal every thread. Everything here is one `syscall` instruction, `no_std`, without allocation,
//! and touches no thread-local storage.
//!
//! Every function is inlined into its caller, so that a child in shared memory stays inside its own
//! object (forkless-child, tests/object.rs).
//!
//! It does not interpret: no retry on `EINTR`, no fallback, no caching. The caller handles a
//! refusal.
//!
//! A function is `unsafe` if the kernel could be made to write to memory that the caller does not
//! own. All functions are async-signal-safe, and thread-safe as far as the kernel's call is. Where
//! a call acts on the calling thread although POSIX says "process" (the set*id family), its
//! documentation says so.
#![no_std]

#[cfg(not(target_os = "linux"))]
compile_error!("forkless-sys is for Linux; portable measurements live in forkless-bench");

mod abi;
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
pub mod namespace;
pub mod poll;
pub mod process;
pub mod quiet_write;
mod reg;
pub mod sched;
pub mod signal;
pub mod time;
pub mod timer;

pub use arch::raw;
pub use errno::Errno;
pub use reg::{CPtr, Reg};

/// The value of a system call, or the kernel's error.
pub type Result<T> = core::result::Result<T, Errno>;
