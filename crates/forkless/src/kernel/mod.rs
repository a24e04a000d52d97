//! What the kernel and the C library offer to this process, and what is kept for each process.

pub(crate) mod cancel;
pub(crate) mod emulated_vm;
pub(crate) mod facilities;
pub(crate) mod fd_count;
pub(crate) mod poll;
pub(crate) mod process_state;
pub(crate) mod thread;
