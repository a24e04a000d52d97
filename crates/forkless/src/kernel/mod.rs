//! Facilities of the kernel, properties of this process, and the state that each process has of
//! its own.

pub(crate) mod cancel;
pub(crate) mod descriptor;
pub(crate) mod emulated_vm;
pub(crate) mod facilities;
pub(crate) mod fd_count;
pub(crate) mod namespace;
pub(crate) mod poll;
pub(crate) mod process_state;
pub(crate) mod single_threaded;
pub(crate) mod thread;
pub(crate) mod wait;
