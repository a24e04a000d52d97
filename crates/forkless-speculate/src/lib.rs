//! What a speculative fork decides, apart from the kernel that carries it out.
//!
//! A speculative child starts on almost no copied memory. Its exec commits the fork. Anything that another
//! process could notice aborts it, and the plain fork is made instead. The preloaded library
//! (`forkless-preload`) has the symbols, traps, assembly and system calls; the decisions are here, where
//! unit tests, property tests, model checkers and Miri reach them:
//!
//! - [`policy`]: what every system call of the child may do;
//! - [`descriptors`]: which of the child's descriptors are its own;
//! - [`files`]: which files the child may open;
//! - [`exclusions`]: which memory the child lacks, and which stays with the kernel;
//! - [`maps`]: the list of mappings as text;
//! - [`notes`], [`marks`]: which memory the program itself has marked for fork;
//! - [`signals`]: the child's signals as the program sees them;
//! - [`fetch`]: which memory the child brings from its parent;
//! - [`limit`]: how much memory the child may take;
//! - [`window`]: which threads may do what while memory is marked for a fork;
//! - [`site`]: what earlier forks of a call site have taught;
//! - [`commit`]: whether the child executed a program.
//!
//! The kernel is reached through closures and small traits, generic and not boxed: a decision costs what it
//! would cost written beside its system calls.
//!
//! No function allocates, calls libc or takes a lock. Types that are tables are made of atomics and are
//! valid when all their bytes are zero: the library maps them when they are first needed, and a handler may
//! read them at any point.
#![no_std]

pub mod commit;
pub mod descriptors;
pub mod exclusions;
pub mod fetch;
pub mod files;
pub mod limit;
pub mod maps;
pub mod marks;
pub mod notes;
#[cfg(target_arch = "x86_64")]
pub mod policy;
pub mod retry;
pub mod signals;
pub mod site;
pub mod text;
pub mod window;
