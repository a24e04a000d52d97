//! The C ABI of [`forkless`]: `include/forkless.h` and `include/popen_noshell.h`, which document
//! every function here.
//!
//! Translation only. Crate `forkless` decides the meaning of a call. Here are handles, numbers for
//! names, and the needs of C at the border: negative error numbers, `errno` left as it was, no
//! panic let out, no thread cancelled half way (`guard`).
//!
//! The exported functions take types that carry the header's promise about an argument ([`ffi`]).
//! So their bodies are safe code, and Rust code (the bench) can call them.
//!
//! This crate has no way of its own to start a process, but for the one fork in the project,
//! popen-noshell's debug mode (`debug_fork`).

mod atfork;
pub mod child;
pub mod command;
pub mod communicate;
pub mod conversation;
mod debug_fork;
pub mod error;
pub mod facilities;
pub mod ffi;
mod guard;
pub mod noshell;
pub mod pipeline;
pub mod popen;
pub mod prepared;
mod shell_line;
mod streams;
pub mod strerror;
pub mod system;
pub mod version;

pub use popen::{forkless_pclose, forkless_popen};
pub use system::forkless_system;
