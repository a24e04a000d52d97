//! Workloads, executors, statistics and results of `forkless bench`, as a library that knows nothing of the command
//! line: it is given a specification, reports progress to an observer, and returns results.
//!
//! It is for Linux. On FreeBSD and macOS the suites `spawn`, `memory`, `cow`, `syscalls` and `context` measure what these
//! have; where a thing is told or done in another way, a module has two files of one face, `linux.rs` and the other.
//!
//! - [`spawn`]: the suite of ways to start a program.
//! - [`engine`]: interleaves methods in rounds.
//! - [`program`], [`pages`], [`memory`]: the measured child, the parent's burden, and how much of it is safe.
//! - [`under_run`]: a measurement in a process under `forkless run`.
//! - [`guard`]: undoes what a killed measurement leaves behind; [`keeper`]: ends the programs it has started.
//! - [`check`]: limits that figures are held to.
//! - [`reproduce`]: the published experiments by their authors' procedures, and a ledger of their claims; [`published`]:
//!   their figures.
//! - [`machine`], [`results`]: what is recorded, and its JSON form; [`render`]: tables, CSV, Markdown; [`store`]: where
//!   results are kept.

pub mod check;
mod clock;
pub mod compare;
pub mod engine;
pub mod error;
pub mod guard;
pub mod html;
#[cfg(target_os = "linux")]
pub mod keeper;
pub mod machine;
pub mod memory;
mod noise;
pub mod pages;
mod params;
pub mod parent;
pub mod program;
pub mod published;
pub mod registry;
pub mod render;
#[cfg(target_os = "linux")]
pub mod reproduce;
pub mod restarts;
pub mod results;
mod settings;
pub mod spawn;
mod stats;
mod stdio;
pub mod store;
pub mod suites;
#[cfg(not(target_os = "linux"))]
mod sysctl;
pub mod under_run;
