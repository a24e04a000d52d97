//! The only assembly of the child side: it enters the kernel, and starts a child on a stack of its
//! own.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
pub mod raw;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
pub mod raw;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("forkless-sys knows x86-64 and aarch64; see docs/guide/platforms.md");
