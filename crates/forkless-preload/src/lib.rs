//! The library `forkless run` preloads: an unmodified program's `fork` becomes a speculation, simple shell lines lose
//! their shell, context switches lose their system calls. What is done is decided once, from one environment variable
//! ([`config`]); with none of it switched on, every interposed function is one jump to the next definition.
//!
//! Rules of the house, all of them learnt from a hang or a crash:
//! - linked against nothing; what it needs of libc is looked up in the program ([`next`]), so glibc and musl both do;
//! - no allocation, no thread-local storage, no libc call in a signal handler or in a speculative child's system calls;
//! - all state is in statics made of atomics, so that a handler may read it at any point: on one page of the library, which the loader writes in every
//!   program, so that it costs none of them another fault; and what is larger in tables that those make usable that need them ([`lazy_mapping`]);
//! - what lasts lies in the library's own address space ([`reserve`]), never where the program could know of room;
//! - whatever cannot be proven unnoticeable is not done: fall back to the plain call, count it, report it.
#![no_std]

#[cfg(not(panic = "abort"))]
compile_error!("build with --profile preload: a preloaded library must not unwind");

mod config;
mod context;
mod filters;
#[cfg_attr(not(target_arch = "x86_64"), path = "fork/plain.rs")]
mod fork;
mod huge;
mod interpose;
#[cfg(target_arch = "x86_64")]
mod kernel;
mod lazy_mapping;
mod loader;
mod mappings;
mod memory_owner;
mod namespace;
mod next;
mod objects;
mod proc;
mod reserve;
mod rt;
mod shell;
mod signals;
mod small_file;
mod speculation;
mod tally;
mod uninterrupted;
mod window;
