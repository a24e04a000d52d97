//! The decisions of a speculative fork, apart from the system calls that carry them out.
//!
//! A speculative child starts on almost no copied memory. Its exec commits the fork. Anything that
//! another process could notice aborts the speculation, and the plain fork is made instead. The
//! preloaded library (`forkless-preload`) has the symbols, traps, assembly and system calls. The
//! decisions are here, where unit tests, property tests, model checkers and Miri reach them:
//!
//! - [`policy`]: which system calls the child may make;
//! - [`descriptors`]: which of the child's descriptors are its own;
//! - [`files`]: which files the child may open;
//! - [`close_loop`]: which closes of a child can be answered without the kernel;
//! - [`exclusions`]: which memory the child lacks, and which stays with the kernel;
//! - [`maps`]: the list of mappings as text;
//! - [`notes`], [`marks`]: which memory the program itself has marked for fork;
//! - [`signals`]: the child's signals as the program sees them;
//! - [`fetch`]: which memory the child fetches from its parent;
//! - [`late`]: which memory it may not have fetched when it commits;
//! - [`limit`]: how much memory the child may take;
//! - [`window`]: which threads may do what while memory is marked for a fork;
//! - [`site`]: the lessons of a call site's earlier forks;
//! - [`commit`]: whether the child executed a program.
//!
//! A decision reaches the kernel through closures and small traits, generic and not boxed. So it
//! costs the same as a decision that is written beside its system calls.
//!
//! No function allocates or calls libc. Only [`notes`] and [`window`] make a thread wait for
//! another. Tables are made of atomics, and all zeros are a valid table. The library maps a table
//! at its first use, and a handler may read it at any point.
#![no_std]

pub mod close_loop;
pub mod commit;
pub mod descriptors;
pub mod exclusions;
pub mod fetch;
pub mod files;
pub mod late;
pub mod limit;
pub mod maps;
pub mod marks;
pub mod notes;
#[cfg(target_arch = "x86_64")]
pub mod policy;
pub mod retry;
pub mod signals;
pub mod site;
pub mod status_flags;
pub mod text;
pub mod time_limit;
pub mod timers;
pub mod window;
