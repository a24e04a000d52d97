//! The library that `forkless run` preloads. An unmodified program's `fork` becomes a speculation,
//! simple shell lines lose their shell, and context switches lose their system calls.
//!
//! The options in force are read once, when the library is loaded ([`config`]). With the library
//! switched off, every interposed function is one jump to the next definition.
//!
//! What a speculation decides is in `forkless-speculate`, where it is tested. Here are symbols,
//! traps, assembly and system calls.
//!
//! House rules, each learnt from a hang or a crash:
//! - The library is linked against nothing. It looks up what it needs of libc in the program
//!   ([`next`]), so it serves glibc and musl.
//! - A signal handler, and a speculative child's system calls, allocate nothing, use no
//!   thread-local storage and call no libc.
//! - All state is in statics made of atomics, so that a handler may read it at any point. They lie
//!   on one page, which the loader writes in every program: they cost no program another fault.
//!   Larger tables are made usable by the programs that need them ([`lazy_mapping`]).
//! - Memory that lasts lies in the library's own address space ([`reserve`]), never in a place that
//!   the program may know to be free.
//! - What cannot be proven unnoticeable is not done. The library makes the plain call, counts it
//!   and reports it.
//!
//! Imports point down only: [`interpose`] is at the top, and wires the others together when the
//! library is loaded.
#![no_std]

#[cfg(not(panic = "abort"))]
compile_error!("build with --profile preload: a preloaded library must not unwind");

#[cfg(target_arch = "x86_64")]
mod close_loop;
mod complaint;
mod config;
mod context;
mod environment;
mod errno;
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
mod patience;
mod proc;
mod reserve;
mod rt;
mod shell;
mod signals;
mod small_file;
mod speculation;
mod tally;
mod uninterrupted;
mod unknown_words;
mod users_record;
mod waits;
mod window;
