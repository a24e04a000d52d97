//! The laboratory: this project's measurements of itself, on top of `forkless-bench`.
//!
//! - [`victims`]: real programs with and without `forkless run`.
//! - [`acceptance`]: this project's own limits for them.
//! - [`reproduce`]: the published experiments by their authors' procedures, and a ledger of their
//!   claims.
//! - [`subreaper`]: ends the programs that either starts.
//!
//! Measuring is for Linux; elsewhere there are the acceptance limits and the registry of suites.

pub mod acceptance;
#[cfg(target_os = "linux")]
mod install;
#[cfg(target_os = "linux")]
mod last_lines;
#[cfg(target_os = "linux")]
pub mod reproduce;
#[cfg(target_os = "linux")]
mod run_command;
#[cfg(target_os = "linux")]
pub mod subreaper;
#[cfg(target_os = "linux")]
pub mod victims;

use forkless_bench::registry::Registry;
use forkless_bench::suites;

/// The name of the suite `victims`.
const VICTIMS: &str = "victims";

/// All suites there are: those of `forkless-bench` and `victims`.
#[cfg(target_os = "linux")]
pub const SUITES: Registry = Registry(&[suites::ALL, &[victims::SUITE]]);

/// All suites there are.
#[cfg(not(target_os = "linux"))]
pub const SUITES: Registry = suites::SUITES;
