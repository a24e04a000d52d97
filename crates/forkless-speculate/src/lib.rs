//! The decisions of a speculative fork, apart from the kernel.
#![no_std]

pub mod commit;
