//! Measuring as a library that knows nothing of the command line: it is
//! given a specification, reports progress to an observer, and returns results.
//!
//! It is for Linux. FreeBSD and macOS have the suites `spawn`, `memory`, `cow`, `syscalls` and
//! `context`. Where these systems tell or do a thing in another way, a module has two files with
//! the same functions, `linux.rs` and the other.
//!
//! - [`spawn`]: the suite of ways to start a program.
//! - [`engine`]: interleaves methods in rounds.
//! - [`program`], [`page_kinds`], [`memory`]: the measured child, the parent's burden, and the safe
//!   amount of it.
//! - [`under_run`]: a measurement in a process with the preloaded library in it.
//! - [`plain`]: measuring without the preloaded library where it is all around.
//! - [`trial`], [`descendants`]: a user's own command, plain and with the preloaded library in it;
//!   and the processes that it leaves behind. Both are for Linux.
//! - [`private_directory`]: files of a measurement's own.
//! - [`guard`]: undoes what a killed measurement leaves behind.
//! - [`check`]: figures with their evidence.
//! - [`suites`], [`registry`]: the suites, and what each tells of itself.
//! - [`published`]: the figures of published experiments.
//! - [`machine`], [`results`]: what is recorded, and its JSON form; [`render`]: tables, CSV,
//!   Markdown; [`html`], [`html_page`], [`plot`]: pages;
//!   [`figure`]: a picture of its own; [`store`]: where results are kept.

pub mod check;
pub mod clock;
pub mod compare;
#[cfg(target_os = "linux")]
pub mod descendants;
pub mod engine;
pub mod error;
pub mod figure;
pub mod guard;
pub mod html;
pub mod html_page;
pub mod machine;
pub mod memory;
pub mod noise;
pub mod page_kinds;
mod params;
pub mod parent;
#[cfg(target_os = "linux")]
pub mod plain;
pub mod plot;
pub mod private_directory;
pub mod program;
pub mod published;
pub mod quiet_pipe;
pub mod registry;
pub mod render;
pub mod restarts;
pub mod results;
pub mod settings;
pub mod spawn;
pub mod stats;
pub mod stdio;
pub mod store;
pub mod suites;
#[cfg(not(target_os = "linux"))]
mod sysctl;
#[cfg(target_os = "linux")]
pub mod tracing;
#[cfg(target_os = "linux")]
pub mod trial;
pub mod under_run;
