//! The library `forkless run` preloads: an unmodified program's `fork` becomes a speculation, simple shell lines lose
//! their shell, context switches lose their system calls. What is done is decided once, from one environment variable
//! ([`config`]); with none of it switched on, every interposed function is one jump to the next definition.
//!
//! Rules of the house, all of them learnt from a hang or a crash:
//! - linked against nothing; what it needs of libc is looked up in the program ([`next`]), so glibc and musl both do;
//! - no allocation, no thread-local storage, no libc call in a signal handler or in a speculative child's system calls;
//! - all state is in statics made of atomics, so that a handler may read it at any point;
//! - whatever cannot be proven unnoticeable is not done: fall back to the plain call, count it, report it.
#![no_std]

#[cfg(not(panic = "abort"))]
compile_error!("build with --profile preload: a preloaded library must not unwind");

/// Statics in a section of the linker's.
macro_rules! statics_in {
    ($section:literal: $($(#[$meta:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;)*) => { $(
        $(#[$meta])*
        #[expect(unsafe_code, reason = "the name of a section that holds what this is")]
        #[unsafe(link_section = $section)]
        $visibility static $name: $type = $value;
    )* };
}

/// Statics that every program of the tree reads or writes while it starts, forks or ends. The loader has written the page of `.data` by then;
/// in `.bss` each would be one more page fault (about 1 us, in every program).
macro_rules! at_hand {
    ($($statics:tt)*) => { statics_in! { ".data": $($statics)* } };
}

/// Statics that every speculation writes, in the parent or in the child, zero at first: side by side on as few pages as hold them. After a
/// fork each page that is written costs the parent a fault, and the child a fault and a copy (1 us together).
#[cfg(target_arch = "x86_64")]
macro_rules! side_by_side {
    ($($statics:tt)*) => { statics_in! { ".bss.side_by_side": $($statics)* } };
}

mod config;
mod context;
mod decimal;
#[cfg_attr(not(target_arch = "x86_64"), path = "fork/plain.rs")]
mod fork;
mod huge;
mod insist;
mod interpose;
#[cfg(target_arch = "x86_64")]
mod kernel;
mod mappings;
mod namespace;
mod next;
mod objects;
mod rt;
mod shell;
mod signals;
mod tally;
